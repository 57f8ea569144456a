"""Systems at work: first stages search, fusions join, rankers read; what several need is done once."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import as_given
from rankhouse.core.nouns import Document, Encoder, Marks, Query, Ranking, SearchResult
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.index.dense.exact import Searcher, search
from rankhouse.index.impacts.impacts import QueryWeigher
from rankhouse.index.impacts.search import search_impacts
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.lexical.store import NoTexts
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.index.sharded.vectors import AnyImpacts, AnyImpactSearcher
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.ranking.rerank import Plan
from rankhouse.systems.on_record import OnRecord
from rankhouse.systems.rankers import (
    ComputeOptions,
    as_encoder,
    as_weigher,
    dense_searcher,
    impact_searcher,
    query_weigher,
    sparse_spec,
)
from rankhouse.systems.stage import Live, Stage
from rankhouse.systems.system import (
    FOUND,
    Cut,
    Dense,
    FirstStage,
    FusedSystem,
    Lexical,
    RerankedSystem,
    Sparse,
    System,
    whole,
)
from rankhouse.text.snippets import snippet

if TYPE_CHECKING:
    from rankhouse.systems.reranking import RerankOptions

LOOKED_AT: Final = 100_000
"""Characters of a document, from its beginning, among which the stretch to show is chosen."""


def open_index(paths: Sequence[Path]) -> AnyIndex:
    """Open an index, or several as one, to be searched.

    Raises MissingInput where there is no such folder, BadIndex or WrongUse where one of them holds no index
    that can be read here, or they do not go together.
    """
    folders = index_folders(paths)
    index = Index.open(folders[0]) if len(folders) == 1 else ShardedIndex.open(folders)
    str(index.analyzer)  # one that is not known is refused now, not at the first query
    return index


@dataclass(frozen=True)
class TextsAlone:
    """Documents that are in no index: a ranker reads them, a first stage cannot search them."""

    documents: Mapping[str, Document]


class Execution:
    """Systems that rank the documents of one index for some queries.

    What is opened and found is kept, so that stages that stand in several systems are run once. A subclass
    says where rankers come from and what becomes of stages that are late.

    Args:
        compute: How to compute, where a stage does not say.
        progress: Takes how much is done of the work known so far: queries searched for by each first stage,
            and documents read by each ranker.
    """

    def __init__(
        self,
        index: AnyIndex | TextsAlone | str | os.PathLike[str],
        queries: Sequence[Query],
        compute: ComputeOptions | None = None,
        progress: Progress = ignore,
    ) -> None:
        self._held = open_index([Path(index)]) if isinstance(index, str | os.PathLike) else index
        self.documents: Mapping[str, Document] = self._held.documents
        self.queries, self.compute, self.progress = queries, compute or ComputeOptions(), progress
        self._runs: dict[System, Run] = {}
        self._depths: dict[FirstStage, int] = {}
        self._opened: dict[tuple[str, str], Any] = {}
        self._done, self._pending = 0, dict[System, int]()

    @property
    def index(self) -> AnyIndex:
        """The index; WrongUse where there are texts alone."""
        if isinstance(self._held, TextsAlone):
            raise WrongUse("a first stage needs an index: its words are counted there; give index=")
        return self._held

    def run(self, system: System) -> Run:
        """Rank by a system; WrongUse where a stage cannot be run on this index."""
        return self.run_all({"": system})[""]

    def run_all(self, systems: Mapping[str, System]) -> dict[str, Run]:
        """Rank by several systems; what they share is run once, and dropped when the last has used it."""
        for system in systems.values():
            for stage, k in demands(whole(system)):
                self._depths[stage] = max(k, self._depths.get(stage, 0))
        self._pending = {stage: self._work(stage) for system in systems.values() for stage in costly(system)}
        done: dict[str, Run] = {}
        waiting = list(systems.items())
        while waiting:
            name, system = waiting.pop(0)
            done[name] = self.made(system)
            if waiting:
                needed = {part for _, later in waiting for part in later.walk()}
                needed |= {Cut(stage, self._depths[stage]) for stage in self._depths if stage in needed}
                self._runs = {part: run for part, run in self._runs.items() if part in needed}
        return done

    def made(self, system: System) -> Run:
        """Return a system's run, which is made when it is first asked for."""
        if isinstance(system, OnRecord):
            return system.found(self.queries)
        if isinstance(system, FirstStage):
            return self._found(system, FOUND)
        if isinstance(system, Cut) and isinstance(system.of, Lexical | Dense | Sparse):
            return self._found(system.of, system.k)
        if system not in self._runs:
            self._runs[system] = self._make(system)
        return self._runs[system]

    def _make(self, system: System) -> Run:
        match system:
            case Cut():
                return self.made(system.of).top(system.k)
            case FusedSystem():
                return self.fused(system)
            case RerankedSystem():
                before = self.made(system.of)
                return self._counted(system, lambda show: self.reranked(system, before, show))
        raise TypeError(f"{type(system).__name__} is no kind of system")

    def _found(self, stage: FirstStage, k: int) -> Run:
        """Return the best k of a first stage, which is asked once for as many as anybody needs."""
        exact = not isinstance(stage, Dense) or stage.vectors in ("exact", "flat")
        deepest = max(k, self._depths.get(stage, 0)) if exact else k  # others look further for more
        asked = Cut(stage, deepest)
        if asked not in self._runs:
            self._runs[asked] = self._counted(stage, lambda show: self.found(stage, deepest, show))
        run = self._runs[asked]
        return run if k == deepest else run.top(k)

    # --- the steps, of which a subclass may do some in its own way

    def found(self, stage: FirstStage, k: int, show: Progress) -> Run:
        """Search by a first stage."""
        match stage:
            case Lexical():
                model, feedback = as_given(stage.model), as_given(stage.feedback)
                options = LexicalOptions(model, feedback, k, self.compute.threads)
                return retrieve(self.index, self.queries, options, show)
            case Dense():
                return search(self.searcher(stage), self.encoder(stage), self.queries, k, progress=show)
            case Sparse():
                searcher, threads = self.impacts(stage), self.compute.threads
                weigher = self.weigher(stage, searcher.impacts)
                return search_impacts(searcher, weigher, self.queries, k, threads=threads, progress=show)
        raise TypeError(f"{type(stage).__name__} is no kind of first stage")

    def fused(self, system: FusedSystem) -> Run:
        """Join the runs of several systems."""
        fusion = notation.make(system.method, FUSIONS, "method of fusion")
        return fusion([self.made(part) for part in system.systems], system.weights)

    def reranked(self, system: RerankedSystem, before: Run, show: Progress) -> Run:
        """Let a ranker read what was found."""
        from rankhouse.ranking.pairwise import DEPTH, rerank_pairwise
        from rankhouse.ranking.rerank import rerank
        from rankhouse.systems.reranking import PairwiseSystem

        stage, ranker, documents = system.stage, self.ranker(system.stage), self.documents
        if isinstance(ranker, PairwiseSystem):
            plan = ranker.plan(options_of(stage, DEPTH))
            return rerank_pairwise(ranker.ranker, before, self.queries, documents, plan=plan, progress=show)
        return rerank(ranker, before, self.queries, documents, plan=self.plan(stage), progress=show)

    def searcher(self, stage: Dense) -> Searcher:
        """Open the vectors of a first stage."""
        return dense_searcher(self.index, stage)

    def encoder(self, stage: Dense) -> Encoder:
        """Open the encoder of a first stage."""
        return as_encoder(self.ranker(Stage(stage.ranker)), stage.ranker)

    def impacts(self, stage: Sparse) -> AnyImpactSearcher:
        """Open the impacts of a first stage."""
        return impact_searcher(self.index, stage)

    def weigher(self, stage: Sparse, impacts: AnyImpacts) -> QueryWeigher:
        """Return what weighs queries: a table that came with the impacts, or else the encoder itself."""
        table = query_weigher(impacts, stage)
        return table or as_weigher(self.ranker(Stage(sparse_spec(stage.ranker))), stage.ranker)

    def ranker(self, stage: Stage) -> Any:  # noqa: ANN401 - a Ranker, or what compares passages two by two
        """Open the ranker of a stage, once."""
        from rankhouse.systems.reranking import as_reranker, open_reranker

        if isinstance(stage.ranker, Live):
            return as_reranker(stage.ranker.ranker)
        key = stage.ranker, stage.precision
        if key not in self._opened:
            compute = replace(self.compute, precision=stage.precision or self.compute.precision)
            self._opened[key] = open_reranker(stage.ranker, compute)
        return self._opened[key]

    def plan(self, stage: Stage) -> Plan:
        """Settle how the ranker of a stage reads documents."""
        from rankhouse.systems.reranking import reading_plan, stored_for

        ranker, options = self.ranker(stage), options_of(stage, sys.maxsize)
        alone = isinstance(self._held, TextsAlone)  # of which nothing can be stored
        return reading_plan(ranker, options, None if alone else stored_for(ranker, self.index, options))

    @property
    def rankers(self) -> dict[str, Any]:
        """Rankers that were opened, by their notation; of what compares, the one that reads."""
        if not self._opened:
            return {}
        from rankhouse.systems.reranking import PairwiseSystem

        return {
            name: one.ranker if isinstance(one, PairwiseSystem) else one
            for (name, _), one in self._opened.items()
        }

    def _work(self, stage: System) -> int:
        """Return how much work a stage is, as far as is known before it begins."""
        if not isinstance(stage, RerankedSystem):
            return len(self.queries)
        depth = FOUND if stage.stage.depth is None else stage.stage.depth
        return len(self.queries) * min(_most(stage.of), depth, len(self.documents))

    def _counted(self, stage: System, work: Callable[[Progress], Run]) -> Run:
        """Do the work of one stage; how much that is may be known only once it has begun."""
        size, before = self._pending.pop(stage, None) or self._work(stage), self._done
        later = sum(self._pending.values())

        def show(done: float, total: int | None = None) -> None:
            nonlocal size
            size = size if total is None else total
            self.progress(before + done, before + size + later)

        run = work(show)
        self._done += size
        self.progress(self._done, self._done + later)
        return run


def options_of(stage: Stage, depth: int) -> RerankOptions:
    """Return the options of a stage; it reads ``depth`` documents where it does not say how many."""
    from rankhouse.systems.reranking import RerankOptions

    return RerankOptions(depth=depth if stage.depth is None else stage.depth, **stage.reading)


def demands(system: System) -> Iterator[tuple[FirstStage, int]]:
    """Yield the first stages of a system, with how many documents a query it needs of each."""
    match system:
        case FirstStage():
            yield system, FOUND
        case Cut(of=FirstStage() as stage):
            yield stage, system.k
        case _:
            for part in system.parts:
                yield from demands(part)


def _most(system: System) -> int:
    """Return how many documents a query a system gives at most."""
    match system:
        case Cut():
            return min(system.k, _most(system.of))
        case RerankedSystem():
            return _most(system.of)
        case FusedSystem():
            return sum(map(_most, system.systems))
    return FOUND


def before_ranker(system: System) -> System | None:
    """Return what stands before the first ranker of a system, outermost first; None where none reads."""
    return next((part.of for part in system.walk() if isinstance(part, RerankedSystem)), None)


def costly(system: System) -> Iterator[System]:
    """Yield the stages of a system that search or read."""
    return (part for part in system.walk() if isinstance(part, Lexical | Dense | Sparse | RerankedSystem))


def with_snippets(index: AnyIndex, question: str, ranking: Ranking) -> SearchResult:
    """Return a ranking with each document's title and the stretch of its text that answers best."""
    return SearchResult(ranking, snippets_of(index, question, ranking.doc_ids))


def snippets_of(index: AnyIndex, question: str, doc_ids: Sequence[str]) -> list[tuple[str, str, Marks]]:
    """Return documents' titles, and the stretches of their texts that answer best, with the words in them."""
    weights = {t: 1 / (1 + index.counts(t).documents) ** 0.5 for t in dict.fromkeys(index.analyzer(question))}
    documents = documents_of(index, doc_ids)
    return [(d.title, *snippet(d.text[:LOOKED_AT], weights, index.analyzer)) for d in documents]


def documents_of(index: AnyIndex, doc_ids: Sequence[str]) -> list[Document]:
    """Return documents of an index; their ids alone where it holds terms and no texts."""
    try:
        return index.documents.fetch(doc_ids)
    except NoTexts:
        return [Document(doc_id, "") for doc_id in doc_ids]
