"""Why, through the service: one document, one against another, the first of a ranking, a move.

Rankers that are explained by their scores alone are asked like any request asks them, in turns with all
others. An explanation that looks into models runs in their threads; where there are several, their threads
are held in one order, so that no two explanations wait for each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Final, TypeVar

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.index.precomputed.read import PrecomputedScorer
from rankhouse.ranking.rerank import StoredScorer
from rankhouse.serve.engine.waiting import Deadline, waited
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.documents import UnknownDocument
from rankhouse.serve.search.ranking import ServedExecution
from rankhouse.serve.search.shapes import MOST_PASSES, MOST_TOP, ExplainBody
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.stage import Stage

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.served import ServedRanker

T = TypeVar("T")

PASSES: Final = 128
_BY_SCORES: Final = frozenset({"crossencoder", "monot5"})
"""Families that are explained by scores alone, unless by gradients."""


def explain(catalogue: Catalogue, asked: ExplainBody, deadline: Deadline | None = None) -> Answer:
    """Explain a ranking; called in a thread, as it waits for models.

    Without a deadline, the question's own counts. UnknownName: there is no such index, system, ranker or
    document. WrongUse: the question cannot be explained. DeadlinePassed: the time is over.
    """
    _check(asked)
    view = catalogue.view(asked.index)
    for doc_id in filter(None, (asked.document, asked.against)):
        if doc_id not in view.index.documents:
            raise UnknownDocument(doc_id, view)
    return _answer(catalogue, view, asked, deadline or Deadline.after(asked.deadline_s))


def _check(asked: ExplainBody) -> None:
    if not asked.query.strip():
        raise WrongUse("query is empty: say what was looked for")
    if bool(asked.document) == (asked.top is not None):
        raise WrongUse(
            "give document (and against, another to compare it with), or top, how many of the first"
        )
    if asked.top is not None and not 1 <= asked.top <= MOST_TOP:
        raise WrongUse(f"top={asked.top}: ask for 1 to {MOST_TOP} documents")
    if asked.top is not None and (asked.against or asked.before):
        raise WrongUse("top tells of the whole ranking; leave out against and before, or name a document")
    if asked.passes is not None and not 2 <= asked.passes <= MOST_PASSES:
        raise WrongUse(f"passes={asked.passes}: give 2 to {MOST_PASSES:,}")


def _answer(catalogue: Catalogue, view: IndexView, asked: ExplainBody, deadline: Deadline) -> Answer:
    """Answer in the threads of those models that are looked into."""
    specs = [catalogue.system(asked.system, view.name, asked.own())]
    if asked.before:
        specs.append(catalogue.system(asked.before, view.name, field="before"))
    names = sorted({name for spec in specs for name in spec.rankers})  # in the order of holding threads
    models = [catalogue.ranker(name) for name in names]
    system, *earlier = [spec.system for spec in specs]
    question = Question(
        (asked.document,) if asked.document else (),
        asked.against or "",
        asked.top,
        before=earlier[0] if earlier else None,
        options=ExplainOptions(asked.method or "", asked.unit or "", asked.passes or PASSES),
    )

    def answer(opened: Mapping[str, NeuralRanker], *, stores: bool) -> Answer:
        work = _ExplainedSystem(catalogue, view, Query("query", asked.query), deadline)
        work.opened, work.stores = opened, stores
        return ask(work, system, question)

    if asked.method != "gradients" and all(family_of(one.ranker) in _BY_SCORES for one in models):
        return answer({one.name: _through_queue(one, deadline) for one in models}, stores=False)
    opened = {one.name: one.ranker for one in models}
    return _in_threads(models, lambda: answer(opened, stores=True), deadline)


class _ExplainedSystem(ServedExecution):
    """A system at work with rankers, by name, that an explanation may look into.

    ``stores`` says whether they score by what is stored for them, at once.
    """

    opened: Mapping[str, NeuralRanker]
    stores: bool
    remembers = False  # texts may have been scored in place of what is stored of them

    def ranker(self, stage: Stage) -> NeuralRanker:
        """Return a ranker. Args: as for :meth:`Execution.ranker`."""
        return self.opened[str(stage.ranker)]

    def stored(self, scorer: PrecomputedScorer, served: ServedRanker) -> StoredScorer | None:
        """Return what scores stored passages. Args: as for :meth:`ServedExecution.stored`."""
        del served
        return scorer if self.stores else None


def _through_queue(served: ServedRanker, deadline: Deadline) -> NeuralRanker:
    """Return a ranker like the served one, whose scores wait in turn with all other requests'."""
    ranker = copy.copy(served.ranker)
    ranker.score = served.blocking(deadline).score  # type: ignore[method-assign]
    return ranker


def _in_threads(models: list[ServedRanker], run: Callable[[], T], deadline: Deadline) -> T:
    """Run something in the threads of models, one within the other."""
    if not models:
        return run()
    first, *rest = models
    return waited(first.call(lambda: _in_threads(rest, run, deadline), deadline), deadline)
