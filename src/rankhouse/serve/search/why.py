"""Why, through the service: one document, one against another, the first of a ranking, a move.

Rankers that are explained by their scores alone are asked like any request asks them, in turns with all
others. An explanation that looks into models runs in their threads; where there are several, their threads
are held in one order, so that no two explanations wait for each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.ranking.rerank_plan import StoredScorer
from rankhouse.serve.engine.waiting import Deadline, waited
from rankhouse.serve.search.answer import Searching
from rankhouse.serve.search.documents import UnknownDocument
from rankhouse.serve.search.recent import ReadBy
from rankhouse.serve.search.stages import ServedExecution
from rankhouse.serve.search.systems import SystemSpec
from rankhouse.serve.search.view import IndexView
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.precomputed import PrecomputedScorer
from rankhouse.systems.stage import Stage

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker
    from rankhouse.serve.engine.served import ServedRanker

T = TypeVar("T")

PASSES: Final = 128
MOST_PASSES: Final = 1024
MOST_TOP: Final = 20
_BY_SCORES: Final = frozenset({"crossencoder", "monot5"})
"""Families that are explained by scores alone, unless by gradients."""


@dataclass(frozen=True)
class ExplainRequest:
    """What is asked.

    Attributes:
        query: The question.
        doc_id: The document; "" with ``top``.
        system: Name of what ranks; "" for the default.
        index: Name of what is searched; "" for the default.
        against: The document that it is held against; "" for none.
        before: Name of the system from whose ranking it moved; "" for none.
        top: The first so many documents of the ranking instead; None for a named one.
        method: "removal", "shapley" or "gradients"; "" for what suits the ranker.
        unit: "sentence" or "word"; "" for what suits ranker and text.
        passes: Most pairs scored for one document.
        deadline_s: Seconds after which nobody waits; None waits.
        spec: A system of the asker's own, in place of a name.
    """

    query: str
    doc_id: str = ""
    system: str = ""
    index: str = ""
    against: str = ""
    before: str = ""
    top: int | None = None
    method: str = ""
    unit: str = ""
    passes: int = PASSES
    deadline_s: float | None = None
    spec: SystemSpec | None = None


def explain(service: Searching, request: ExplainRequest, deadline: Deadline | None = None) -> Answer:
    """Say why; called in a thread, as it waits for models.

    Args:
        deadline: When nobody waits any more; None: as the request says.

    Raises:
        UnknownName: There is no such index, system, ranker or document.
        WrongUse: No question, none or two of ``doc_id`` and ``top``, or an unknown method or unit.
        DeadlinePassed: The time is over.
    """
    _check(request)
    view = service.catalogue.view(request.index)
    for doc_id in filter(None, (request.doc_id, request.against)):
        if doc_id not in view.index.documents:
            raise UnknownDocument(doc_id, view)
    return _Explainer(service, view, request, deadline or Deadline.after(request.deadline_s)).answer()


def _check(request: ExplainRequest) -> None:
    if not request.query.strip():
        raise WrongUse("query is empty: say what was looked for")
    if bool(request.doc_id) == (request.top is not None):
        raise WrongUse(
            "give document (and against, another to hold it against), or top, how many of the first"
        )
    if request.top is not None and not 1 <= request.top <= MOST_TOP:
        raise WrongUse(f"top={request.top}: ask for 1 to {MOST_TOP} documents")
    if request.top is not None and (request.against or request.before):
        raise WrongUse("top tells of the whole ranking; leave out against and before, or name a document")
    if not 2 <= request.passes <= MOST_PASSES:
        raise WrongUse(f"passes={request.passes}: give 2 to {MOST_PASSES:,}")


@dataclass(frozen=True)
class _Explainer:
    """One request at work."""

    service: Searching
    view: IndexView
    request: ExplainRequest
    deadline: Deadline

    def answer(self) -> Answer:
        """Answer in the threads of those models that are looked into."""
        specs = [self._spec(self.request.spec, self.request.system)]
        if self.request.before:
            specs.append(self._spec(None, self.request.before))
        names = sorted({name for spec in specs for name in spec.rankers})  # in the order of holding threads
        models = [self.service.catalogue.ranker(name) for name in names]
        if all(map(self._by_scores, models)):
            asked = {one.name: _through_queue(one, self.deadline) for one in models}
            return self._told(specs, asked, stores=False)
        opened = {one.name: one.ranker for one in models}
        return _in_threads(models, lambda: self._told(specs, opened, stores=True), self.deadline)

    def _spec(self, own: SystemSpec | None, name: str) -> SystemSpec:
        return own or self.service.catalogue.system(name, self.view.name)

    def _by_scores(self, one: ServedRanker) -> bool:
        return family_of(one.ranker) in _BY_SCORES and self.request.method != "gradients"

    def _told(self, specs: list[SystemSpec], opened: Mapping[str, NeuralRanker], *, stores: bool) -> Answer:
        request = self.request
        work = _Opened(self.service.catalogue, self.view, Query("query", request.query), self.deadline)
        work.opened, work.stores = opened, stores
        system, earlier = specs[0].system, specs[1].system if len(specs) > 1 else None
        named = (request.doc_id,) if request.doc_id else ()
        options = ExplainOptions(request.method, request.unit, request.passes)
        question = Question(named, request.against, request.top, before=earlier, options=options)
        return ask(work, system, question)


class _Opened(ServedExecution):
    """A system at work with rankers that an explanation may look into.

    Attributes:
        opened: The rankers by name.
        stores: Whether they score by what is stored for them, at once.
    """

    opened: Mapping[str, NeuralRanker]
    stores: bool

    def ranker(self, stage: Stage) -> NeuralRanker:
        """Return a ranker. Args: as for :meth:`Execution.ranker`."""
        return self.opened[str(stage.ranker)]

    def stored(self, scorer: PrecomputedScorer, served: ServedRanker) -> StoredScorer | None:
        """Return what scores stored passages. Args: as for :meth:`ServedExecution.stored`."""
        del served
        return scorer if self.stores else None

    def remember(self, key: ReadBy, ranking: Ranking) -> None:
        """Keep nothing: texts may have been scored in place of what is stored of them."""


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
