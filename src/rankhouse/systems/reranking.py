"""Reranking with everything that goes with it: stored passages, a cache of scores, what was not read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.precomputed.read import PASSAGES, PrecomputedState, find, open_all
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import POOLS, Pool
from rankhouse.ranking.rerank import Plan, Report, rerank
from rankhouse.text.split import SPLITTERS, Splitter, Whole

if TYPE_CHECKING:
    from rankhouse.index.precomputed.score import PrecomputedScorer
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.precomputing import TokenPrecomputer, VectorPrecomputer
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
    alone: Annotated[
        bool, Option("Queries one by one, as people ask them, and the time of each.", neutral=True)
    ] = False
    cache: Annotated[
        Path | None,
        Option("Keep scores in this folder, and go on from there after a kill.", kind="local", neutral=True),
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


def split_and_pool(
    split: str, pool: str, stored: PrecomputedState | None = None, usual: tuple[Splitter, Pool] | None = None
) -> tuple[Splitter, Pool]:
    """Settle how documents are cut and pooled: as asked, else as is stored, else as is usual for the ranker.

    Raises:
        WrongUse: An unknown splitter or pool.
    """
    if stored is not None:
        split, pool = split or stored.split, pool or stored.pool
    whole, best = usual or (Whole(), POOLS["max"]())
    return (
        notation.make(split, SPLITTERS, "splitter") if split else whole,
        notation.make(pool, POOLS, "pool") if pool else best,
    )


def reading_plan(
    ranker: Ranker, index: AnyIndex, options: RerankOptions
) -> tuple[Plan, PrecomputedScorer | None]:
    """Settle how documents are read, and find what is stored for the ranker.

    Raises:
        WrongUse: An unknown splitter or pool, or nothing is stored where it is insisted on.
    """
    cut = str(notation.make(options.split, SPLITTERS, "splitter")) if options.split else ""
    scorer = None
    if options.stored is not False:
        scorer = open_precomputed(index, ranker, cut, required=bool(options.stored))
    split, pool = split_and_pool(options.split, options.pool, scorer.store.state if scorer else None)
    plan = Plan(
        split=split,
        pool=pool,
        depth=options.depth,
        tail=options.tail,
        alone=options.alone,
        stored=scorer if options.cache is None else None,  # a cache knows passages by their texts
    )
    return plan, scorer


def open_precomputed(
    index: AnyIndex, ranker: Ranker, split: str = "", *, required: bool = False
) -> PrecomputedScorer | None:
    """Find what an index stores for a ranker; neither of them is changed.

    Args:
        ranker: A TK, or a model that reads token ids; for any other ranker nothing can be stored.
        split: How documents are to be cut, in notation; "" takes what there is.

    Returns:
        None where nothing is stored for it.

    Raises:
        WrongUse: Nothing is stored, and it is required.
        BadIndex: What is stored is of other documents, or damaged.
    """
    if isinstance(index, ShardedIndex):
        if required:
            raise WrongUse(f"{index.path}: what parts store for rankers is not read; leave out --stored")
        return None
    if not required and not (index.path / PASSAGES).exists():
        return None
    from rankhouse.index.precomputed.score import PrecomputedScorer

    try:
        maker = _precomputer(ranker)
    except WrongUse:
        if required:
            raise
        return None
    stores = open_all(index.path)
    store = find(stores, maker.kind, maker.fingerprint, split)
    if store is not None:
        return PrecomputedScorer(index, store, partial(maker.score, store))
    if not required:
        return None
    there = ", ".join(f"{s.state.kind} ({s.state.dtype}, split {s.state.split})" for s in stores)
    wanted = f" with the split {split}" if split else ""
    raise WrongUse(
        f"{index.path}: keeps nothing that this ranker can use{wanted}; it keeps {there or 'nothing at all'} "
        "(of other weights or tokenizers). Make it with  rankhouse encode --ranker ..."
    )


def _precomputer(ranker: Ranker) -> VectorPrecomputer | TokenPrecomputer:
    """Return what a ranker scores by in place of texts."""
    nothing = f"{type(ranker).__name__}: nothing is stored for such a ranker"
    try:
        from rankhouse.models.precomputing import precomputer_of
        from rankhouse.models.ranker import NeuralRanker
    except ImportError as error:  # without torch nobody has one
        raise WrongUse(nothing) from error
    if not isinstance(ranker, NeuralRanker):
        raise WrongUse(f"{nothing}; TK, crossencoder and monot5 have something")
    return precomputer_of(ranker)


def ranker_tag(ranker: NeuralRanker | DuoT5Ranker) -> str:
    """Return the tag of a run that a ranker ordered: its family and eight digits of its fingerprint."""
    return f"{ranker.family}-{ranker.fingerprint[:8]}"


def with_cache(
    ranker: Ranker, scorer: PrecomputedScorer | None, cache: Path | None, stack: ExitStack
) -> Ranker:
    """Return a ranker that keeps its scores; itself where there is no cache."""
    if cache is None:
        return ranker
    from rankhouse.index.precomputed.score import PrecomputedRanker

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
