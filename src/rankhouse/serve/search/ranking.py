"""A system at work on one question: the documents and numbers of ``rankhouse search``, ``rerank``, ``fuse``.

They are the same to the bit; stages that are late are left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from rankhouse.core.nouns import FloatArray, Query, Ranking, StoredPair, StoredPassage
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.impacts.impacts import QueryWeigher
from rankhouse.index.precomputed.read import PrecomputedScorer
from rankhouse.index.sharded.vectors import AnyImpacts, AnyImpactSearcher
from rankhouse.ranking.fuse import rrf
from rankhouse.ranking.rerank import Plan, StoredScorer
from rankhouse.serve.engine.choice import asked_split
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, waited
from rankhouse.serve.errors import DeadlinePassed
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.systems import NamedSystem
from rankhouse.systems.execution import Execution, before_ranker, options_of
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.reranking import reading_plan
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import (
    FOUND,
    Cut,
    Dense,
    FirstStage,
    FusedSystem,
    RerankedSystem,
    Sparse,
    System,
)

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

_STORED_AT_ONCE = 64
"""Stored passages scored in one turn of the model."""
_LATE = "did not answer in time"


@dataclass(frozen=True)
class RankResult:
    """A system's ranking for a question; ``before`` is the first stage's order, where a later stage follows.

    ``found`` says how many documents it ranked, of which the ranking may have only the first; ``degraded``
    why this is only the first stage's order, "" where it is the system's.
    """

    ranking: Ranking
    found: int
    before: Ranking | None = None
    degraded: str = ""
    warnings: tuple[str, ...] = ()


def rank(
    catalogue: Catalogue,
    view: IndexView,
    spec: NamedSystem,
    query: Query,
    deadline: Deadline = ENDLESS,
    k: int | None = None,
) -> RankResult:
    """Rank the documents of an index for a question, and return the first k; errors as for `search`."""
    system = spec.system
    for name in spec.rankers:
        catalogue.ranker(name)
    work = ServedExecution(catalogue, view, query, deadline)
    for part in system.walk():
        if isinstance(part, RerankedSystem):
            work.plan(part.stage)  # what is wrong with it is said before anything is searched
    run = work.run(system)
    ranking = (run if k is None else run.top(k))[query.id]  # ids that nobody asks for are not read
    warnings = tuple(dict.fromkeys(work.warnings))
    if work.degraded:
        return RankResult(ranking, run.rows, degraded=work.degraded, warnings=warnings)
    whole = system.of if isinstance(system, Cut) else system
    before = before_ranker(whole) or (whole.parts[0] if isinstance(whole, FusedSystem) else None)
    known = None if before is None else work.made(before)[query.id]
    return RankResult(ranking, run.rows, known, warnings=warnings)


class ServedExecution(Execution):
    """A system at work on one question, with the rankers of a service; late stages are left out.

    ``degraded`` says why the order is that of the stages that were in time; "" where all were.
    """

    remembers = True  # what rankers make of the question, for a while

    def __init__(self, catalogue: Catalogue, view: IndexView, query: Query, deadline: Deadline) -> None:
        super().__init__(view.index, [query], ComputeOptions(threads=1))
        self._catalogue, self._view, self._deadline = catalogue, view, deadline
        self.warnings: list[str] = []
        self.degraded = ""
        self._late: dict[str, None] = {}
        self._lacking: set[System] = set()

    def searcher(self, stage: Dense) -> Searcher:
        """Return vectors of the index. Args: as for :meth:`Execution.searcher`."""
        searcher, warning = self._view.searcher(stage)
        self.warnings += filter(None, [warning])
        return searcher

    def encoder(self, stage: Dense) -> Any:  # noqa: ANN401 - what blocks until the encoder's turn
        """Return an encoder of the service. Args: as for :meth:`Execution.encoder`."""
        return self.ranker(Stage(stage.ranker))

    def impacts(self, stage: Sparse) -> AnyImpactSearcher:
        """Return impacts of the index. Args: as for :meth:`Execution.impacts`."""
        searcher, warning = self._view.impacts(stage)
        self.warnings += filter(None, [warning])
        return searcher

    def weigher(self, stage: Sparse, impacts: AnyImpacts) -> QueryWeigher:
        """Return the table of an encoder of the service, or the encoder. Args: as for the base class."""
        served = self._catalogue.ranker(stage.ranker)
        table = self._view.table(impacts, replace(stage, ranker=served.spec))
        return table or served.blocking(self._deadline)

    def ranker(self, stage: Stage) -> Any:  # noqa: ANN401 - what blocks until the ranker's turn
        """Return a ranker of the service. Args: as for :meth:`Execution.ranker`."""
        return self._catalogue.ranker(str(stage.ranker)).blocking(self._deadline)

    def plan(self, stage: Stage) -> Plan:
        """Settle how a ranker reads: as asked, else as what is stored for it, else in its own way."""
        served = self._catalogue.ranker(str(stage.ranker))
        cut = str(asked_split(stage.split)) if stage.split else ""
        scorer = self._view.stored(served, cut) if stage.stored is not False else None
        plan = reading_plan(served.ranker, options_of(stage, FOUND), scorer, (served.split, served.pool))
        return replace(plan, stored=self.stored(scorer, served) if scorer else None)

    def stored(self, scorer: PrecomputedScorer, served: ServedRanker) -> StoredScorer | None:
        """Return what scores stored passages for a ranker, in turn with its other work."""
        return _InTurns(scorer, served, self._deadline)

    def found(self, stage: FirstStage, k: int, show: Progress) -> Run:
        """Search by a first stage; late, it raises DeadlinePassed. Args: as for :meth:`Execution.found`."""
        try:
            return super().found(stage, k, show)
        except DeadlinePassed:
            if isinstance(stage, Dense | Sparse):
                self._late[stage.ranker] = None
            names = " and ".join(self._late)
            self.degraded = f"{names} {_LATE}: this is the others' order"
            raise DeadlinePassed(f"{names} {_LATE}; ask for less, or wait longer") from None

    def fused(self, system: FusedSystem) -> Run:
        """Join what is in time: of late systems, the others' order. Args: as for :meth:`Execution.fused`."""
        runs, late = list[Run](), None
        for part in system.systems:
            try:
                run = self.made(part)
            except DeadlinePassed as error:
                late = error
                continue
            if not self._lacks(part):
                runs.append(run)
        if len(runs) == len(system.systems):
            return super().fused(system)
        self._lacking.add(system)
        if not runs:
            raise late or DeadlinePassed(f"{system} {_LATE}")
        return runs[0] if len(runs) == 1 else rrf()(runs).top(FOUND)

    def reranked(self, system: RerankedSystem, before: Run, show: Progress) -> Run:
        """Let a ranker read, or return what it read lately, or, where it is late, what comes before it."""
        if self._lacks(system.of):
            self._lacking.add(system)
            return before
        served, [query] = self._catalogue.ranker(str(system.stage.ranker)), self.queries
        key = system, served.fingerprint, query.text
        if (known := self._view.recent.get(key)) is not None:
            return Run.from_rankings({query.id: known})
        try:
            run = super().reranked(system, before, show)
        except DeadlinePassed:
            self._lacking.add(system)
            self.degraded = f"{served.name} {_LATE}: this is the first stage's order"
            return before
        if self.remembers:
            self._view.recent.put(key, run[query.id])
        return run

    def _lacks(self, system: System) -> bool:
        """Return whether a system's order is not its own, as a part of it was late."""
        return not self._lacking.isdisjoint(system.walk())


class _InTurns:
    """Stored passages of a ranker, scored in the ranker's thread, in turn with all other work of it."""

    def __init__(self, scorer: PrecomputedScorer, ranker: ServedRanker, deadline: Deadline) -> None:
        self._scorer, self._ranker, self._deadline = scorer, ranker, deadline

    def passages(self, doc_id: str) -> Sequence[StoredPassage] | None:
        """Return a document's passages; None where nothing is stored of it."""
        return self._scorer.passages(doc_id)

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32."""
        scores = np.empty(len(pairs), np.float32)
        for start in range(0, len(pairs), _STORED_AT_ONCE):
            some = pairs[start : start + _STORED_AT_ONCE]
            done = self._ranker.call(partial(self._scorer.score, some), self._deadline)
            scores[start : start + len(some)] = waited(done, self._deadline)
        return scores
