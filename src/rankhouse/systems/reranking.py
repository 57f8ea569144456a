"""Reranking with everything that goes with it: stored passages, a cache of scores, what was not read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from rankhouse.core import notation
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.options import Option
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import rerank
from rankhouse.ranking.rerank_plan import Plan, Report
from rankhouse.systems.precomputed import PrecomputedRanker, PrecomputedScorer, open_precomputed
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker


@dataclass(frozen=True, kw_only=True)
class RerankOptions:
    """How to rerank; what ``rankhouse rerank`` says of each, too."""

    depth: Annotated[int, Option("Documents read a query; 50 by default for duot5.", least=0)] = 1000
    split: Annotated[
        str,
        Option('"sentences(10, 5)", "words(100)" ...', default="whole; as kept, where encode kept it"),
    ] = ""
    pool: Annotated[
        str, Option('first, max, sum, mean, "top(3)" ...', default="max; as kept, where encode kept it")
    ] = ""
    stored: Annotated[
        bool | None, Option("Insist on, or refuse, what encode kept.", default="used if there")
    ] = None
    tail: Annotated[Literal["keep", "drop"], Option("What becomes of documents below the depth.")] = "keep"
    alone: Annotated[bool, Option("Queries one by one, as people ask them, and the time of each.")] = False
    cache: Annotated[
        Path | None, Option("Keep scores in this folder, and go on from there after a kill.", kind="local")
    ] = None


class RerankResult(NamedTuple):
    """A reranked run, and how it came about.

    Attributes:
        run: The new order.
        report: What happened on the way.
        seconds: How long it took.
        stored: What scored by precomputed passages; None where nothing is stored for the ranker.
    """

    run: Run
    report: Report
    seconds: float
    stored: PrecomputedScorer | None


def reading_plan(
    ranker: Ranker, index: AnyIndex, options: RerankOptions
) -> tuple[Plan, PrecomputedScorer | None]:
    """Settle how documents are cut and pooled: as asked, else as what is stored for the ranker, else whole.

    Raises:
        WrongUse: An unknown splitter or pool, or nothing is stored where it is insisted on.
    """
    cut = str(notation.make(options.split, SPLITTERS, "splitter")) if options.split else ""
    scorer = None
    if options.stored is not False:
        scorer = open_precomputed(index, ranker, cut, required=bool(options.stored))
    state = scorer.store.state if scorer else None
    plan = Plan(
        split=notation.make(options.split or (state.split if state else "whole"), SPLITTERS, "splitter"),
        pool=notation.make(options.pool or (state.pool if state else "max"), POOLS, "pool"),
        depth=options.depth,
        tail=options.tail,
        alone=options.alone,
        stored=scorer if options.cache is None else None,  # a cache knows passages by their texts
    )
    return plan, scorer


def ranker_tag(ranker: NeuralRanker | DuoT5Ranker) -> str:
    """Return the tag of a run that a ranker ordered: its family and eight digits of its fingerprint."""
    return f"{ranker.family}-{ranker.fingerprint[:8]}"


def with_cache(
    ranker: Ranker, scorer: PrecomputedScorer | None, cache: Path | None, stack: ExitStack
) -> Ranker:
    """Return a ranker that keeps its scores; itself where there is no cache."""
    if cache is None:
        return ranker
    texts = ranker if scorer is None else PrecomputedRanker(ranker, scorer)
    return stack.enter_context(closing(CachedRanker(texts, cache)))


def rerank_with(
    ranker: Ranker,
    run: Run,
    queries: Sequence[Query],
    index: AnyIndex,
    options: RerankOptions,
    progress: Progress | None = None,
) -> RerankResult:
    """Rerank a run.

    Raises:
        WrongUse: An unknown splitter or pool, or nothing is stored where it is insisted on.
        BadData: A query of the run has no text.
    """
    plan, scorer = reading_plan(ranker, index, options)
    report, started = Report(), time.perf_counter()
    with ExitStack() as stack:
        ranker = with_cache(ranker, scorer, options.cache, stack)
        reranked = rerank(ranker, run, queries, index.documents, plan=plan, report=report, progress=progress)
    seconds = time.perf_counter() - started
    return RerankResult(reranked, report, seconds, scorer)
