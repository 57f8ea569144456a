"""Why, through the service: one document, one against another, the first of a ranking, a move.

Rankers that are explained by their scores alone are asked like any request asks them, in turns with all
others. An explanation that looks into models runs in their threads; where there are several, their threads
are held in one order, so that no two explanations wait for each other.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final, TypeVar

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import name_of
from rankhouse.core.nouns import Query
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.serve.engine.waiting import Deadline, waited
from rankhouse.serve.search.answer import Searching
from rankhouse.serve.search.documents import UnknownDocument
from rankhouse.serve.search.recent import ReadBy
from rankhouse.serve.search.stages import reading_plan
from rankhouse.serve.search.systems import SystemSpec
from rankhouse.serve.search.view import IndexView
from rankhouse.systems.explaining.answers import why_documents, why_moved, why_ranking
from rankhouse.systems.explaining.build import SystemOptions, build_system, first_stage_of
from rankhouse.systems.explaining.reranker import RerankSystem
from rankhouse.systems.explaining.systems import FusedSystem, System
from rankhouse.systems.reranking import RerankOptions

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
        models = self._models(specs)
        by_scores = [one for one in models if self._by_scores(one)]
        if len(by_scores) == len(models):
            asked = {one.name: _through_queue(one, self.deadline) for one in models}
            return self._told(specs, asked, stored=False)
        opened = {one.name: one.ranker for one in models}
        return _in_threads(models, lambda: self._told(specs, opened, stored=None), self.deadline)

    def _spec(self, own: SystemSpec | None, name: str) -> SystemSpec:
        return own or self.service.catalogue.system(name, self.view.name)

    def _models(self, specs: list[SystemSpec]) -> list[ServedRanker]:
        """Return the models that the systems name, in the order in which their threads are held."""
        names = sorted({name for spec in specs for name in spec.rankers})
        return [self.service.catalogue.ranker(name) for name in names]

    def _by_scores(self, one: ServedRanker) -> bool:
        return family_of(one.ranker) in _BY_SCORES and self.request.method != "gradients"

    def _told(
        self, specs: list[SystemSpec], opened: Mapping[str, NeuralRanker], *, stored: bool | None
    ) -> Answer:
        request, query = self.request, Query("query", self.request.query)
        spec = specs[0]
        options = self._options(spec, opened, stored=stored)
        system = self._system(spec, options, query)
        if request.top is not None:
            return why_ranking(system, query, request.top)
        if request.before:
            then = self._system(specs[1], self._options(specs[1], opened, stored=stored), query)
            return why_moved(system, then, query, request.doc_id, request.against)
        ranked = not spec.ranker or spec.joins_ranker
        if not ranked:
            system = self._reader(system, options, query)
        return why_documents(system, query, (request.doc_id,), request.against, ranked=ranked)

    def _system(self, spec: SystemSpec, options: SystemOptions, query: Query) -> System:
        """Put a system together; what its ranker made of the question lately is not made again."""
        system = build_system(self.view.index, options)
        if not spec.ranker:
            return system
        mark = self.service.catalogue.ranker(spec.ranker).fingerprint
        known = self.view.recent.get(ReadBy.of(spec, mark, query.text))
        if known is None:
            return system
        if isinstance(system, FusedSystem):
            *others, reader = system.systems
            assert isinstance(reader, RerankSystem)
            return replace(system, systems=[*others, reader.knowing(query, known)])
        assert isinstance(system, RerankSystem)
        return system.knowing(query, known)

    def _reader(self, system: System, options: SystemOptions, query: Query) -> System:
        """Return a reranking system; where it read the documents asked about, it need not read all others."""
        assert isinstance(system, RerankSystem)
        found = first_stage_of(self.view.index, options).ranking(query).doc_ids
        named = {self.request.doc_id, self.request.against} - {""}
        blank = {doc_id for doc_id in named if not self.view.index.documents[doc_id].full_text.strip()}
        if blank or named & set(found[options.rerank.depth :]):
            return system  # a number in place of a score is told by the whole ranking
        return RerankSystem(system.ranker, system.name, system.documents, system.plan, system.options)

    def _options(
        self, spec: SystemSpec, opened: Mapping[str, NeuralRanker], *, stored: bool | None
    ) -> SystemOptions:
        request, reading = self.request, RerankOptions(stored=stored)
        if spec.ranker:
            plan = reading_plan(self.view, self.service.catalogue.ranker(spec.ranker), spec)
            reading = RerankOptions(
                split=name_of(plan.split), pool=name_of(plan.pool), depth=spec.depth, stored=stored
            )
        encoders: dict[str, Any] = {name: ranker for name, ranker in opened.items() if name != spec.ranker}
        return SystemOptions(
            spec.models,
            spec.feedback,
            spec.fusion,
            spec.weights,
            opened[spec.ranker] if spec.ranker else None,
            spec.ranker,
            k=spec.k,
            rerank=reading,
            explain=ExplainOptions(request.method, request.unit, request.passes),
            encoders=encoders,
        )


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
