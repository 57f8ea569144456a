"""Reranking with everything that goes with it: stored passages, a cache of scores, what was not read.

By a ranker that scores pairs, or by one that compares passages two by two.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, cast

from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.precomputed.read import PASSAGES, PrecomputedState, find, open_all
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.io.files import PathLike
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pairwise import PairwisePlan, rerank_pairwise
from rankhouse.ranking.pool import POOLS, Pool
from rankhouse.ranking.rerank import Plan, ReadingOptions, Report, rerank
from rankhouse.ranking.see import See, check_keep
from rankhouse.systems.rankers import ComputeOptions, as_ranker, is_pairwise, open_ranker
from rankhouse.text.split import SPLITTERS, Splitter, Whole

if TYPE_CHECKING:
    from rankhouse.index.precomputed.read import PrecomputedScorer
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.precomputing import TokenPrecomputer, VectorPrecomputer
    from rankhouse.models.ranker import NeuralRanker


@dataclass(frozen=True, kw_only=True)
class RerankOptions(ReadingOptions):
    """Options of a reranking; ``rankhouse rerank`` shows their help texts."""

    depth: Annotated[int, Option("Documents read per query; 50 by default for duot5.", least=0)] = 1000
    alone: Annotated[
        bool, Option("Rerank queries one by one, as people ask them, and time each.", neutral=True)
    ] = False
    cache: Annotated[
        Path | None,
        Option("Keep scores in this folder, and resume from them after a kill.", "local", neutral=True),
    ] = None


class RerankedRun(NamedTuple):
    """A reranked run, and how it came about."""

    run: Run  # the new order
    report: Report  # what happened on the way
    seconds: float  # how long it took
    stored: PrecomputedScorer | None  # what scored by precomputed passages; None where nothing is stored


def split_and_pool(
    split: str, pool: str, stored: PrecomputedState | None = None, usual: tuple[Splitter, Pool] | None = None
) -> tuple[Splitter, Pool]:
    """Settle how documents are cut and pooled: as asked, else as is stored, else as is usual for the ranker.

    Raises WrongUse for an unknown splitter or pool.
    """
    if stored is not None:
        split, pool = split or stored.split, pool or stored.pool
    whole, best = usual or (Whole(), POOLS["max"]())
    return (
        notation.make(split, SPLITTERS, "splitter") if split else whole,
        notation.make(pool, POOLS, "pool") if pool else best,
    )


def stored_for(ranker: Ranker, index: AnyIndex, options: RerankOptions) -> PrecomputedScorer | None:
    """Find what an index stores for a ranker, as the options have it.

    Raises WrongUse for an unknown splitter, and where nothing is stored that is insisted on.
    """
    cut = str(notation.make(options.split, SPLITTERS, "splitter")) if options.split else ""
    if options.stored is False:
        return None
    return open_precomputed(index, ranker, cut, required=bool(options.stored))


def reading_plan(
    ranker: Ranker,
    options: RerankOptions,
    scorer: PrecomputedScorer | None,
    usual: tuple[Splitter, Pool] | None = None,
) -> Plan:
    """Settle how documents are read; WrongUse for an unknown splitter or pool.

    Args:
        scorer: What the index stores for the ranker.
        usual: How documents are cut and pooled where neither the options nor what is stored say it.
    """
    state = scorer.store.state if scorer else None
    split, pool = split_and_pool(options.split, options.pool, state, usual)
    return Plan(
        split=split,
        pool=pool,
        depth=options.depth,
        tail=options.tail,
        alone=options.alone,
        stored=scorer if options.cache is None else None,  # a cache knows passages by their texts
        see=see_of(ranker, options.see),
    )


def see_of(ranker: object, keep: float) -> See | None:
    """Return what chooses the share of documents that a ranker reads; None where it reads all.

    Raises WrongUse for no share, and for a ranker without word embeddings.
    """
    if keep == 1 and not isinstance(keep, bool):
        return None
    share = check_keep(keep)
    with needs("neural", f"see(keep={keep:g})"):
        from rankhouse.models.dual_encoder import word_similarity
        from rankhouse.models.ranker import NeuralRanker
    if isinstance(ranker, NeuralRanker):
        return See(share, word_similarity(ranker.model, ranker.family))
    return See(share, word_similarity(None, type(ranker).__name__))


def open_precomputed(
    index: AnyIndex, ranker: Ranker, split: str = "", *, required: bool = False
) -> PrecomputedScorer | None:
    """Find what an index stores for a ranker, None where that is nothing; neither of them is changed.

    Raises WrongUse where nothing is stored and it is required, BadIndex where what is stored is of other
    documents, or damaged.

    Args:
        ranker: One that stores words (TK, KNRM, Conv-KNRM, colbert) or reads token ids; others store nothing.
        split: How documents are to be cut, in notation; "" takes what there is.
    """
    if isinstance(index, ShardedIndex):
        if required:
            raise WrongUse(f"{index.path}: what the shards of an index store is not read; leave out --stored")
        return None
    if not required and not (index.path / PASSAGES).exists():
        return None
    from rankhouse.index.precomputed.read import PrecomputedScorer

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
        raise WrongUse(f"{nothing}; only for tk, knrm, conv_knrm, colbert, crossencoder, monot5")
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
    from rankhouse.index.precomputed.read import PrecomputedRanker

    texts = ranker if scorer is None else PrecomputedRanker(ranker, scorer)
    return stack.enter_context(closing(CachedRanker(texts, cache)))


def rerank_with(
    ranker: Ranker | PairwiseSystem,
    run: Run,
    queries: Sequence[Query],
    index: AnyIndex,
    options: RerankOptions,
    progress: Progress | None = None,
) -> RerankedRun:
    """Rerank a run.

    Raises WrongUse for an unknown splitter or pool, where nothing is stored that is insisted on, and where
    documents are cut for a ranker that compares and none is named that chooses a passage; BadData where a
    query of the run has no text.
    """
    report, scorer, documents = Report(), None, index.documents
    with ExitStack() as stack:
        if isinstance(ranker, PairwiseSystem):
            compared, started = ranker.plan(options), time.perf_counter()
            reranked = rerank_pairwise(
                ranker.ranker, run, queries, documents, plan=compared, report=report, progress=progress
            )
        else:
            scorer = stored_for(ranker, index, options)
            plan = reading_plan(ranker, options, scorer)
            started, ranker = time.perf_counter(), with_cache(ranker, scorer, options.cache, stack)
            reranked = rerank(ranker, run, queries, documents, plan=plan, report=report, progress=progress)
    return RerankedRun(reranked, report, time.perf_counter() - started, scorer)


# --- rankers that compare passages two by two ------------------------------------------------------------


@dataclass(frozen=True)
class PairwiseSystem:
    """An opened ``duot5("DIR", aggregate="sym-sum", passages="")``."""

    ranker: DuoT5Ranker
    aggregate: str = "sym-sum"  # how preferences become scores
    passages: str = ""  # the ranker that chooses the passage of a long document, in notation; "" for none
    compute: ComputeOptions | None = None  # how the latter computes

    @cached_property
    def chooser(self) -> NeuralRanker | None:
        """The ranker that chooses passages."""
        return open_ranker(self.passages, self.compute or ComputeOptions()) if self.passages else None

    def plan(self, options: RerankOptions) -> PairwisePlan:
        """Settle how documents are read and compared; errors as in :func:`rerank_with`."""
        if check_keep(options.see) != 1:
            raise WrongUse(
                f"see(keep={options.see:g}): duot5 compares documents and reads few; cut instead:  "
                "% 25 >> duot5(...)"
            )
        split = notation.make(options.split or "whole", SPLITTERS, "splitter")
        return PairwisePlan(options.depth, self.aggregate, split, self.chooser, tail=options.tail)


def open_reranker(spec: str, compute: ComputeOptions) -> NeuralRanker | PairwiseSystem:
    """Open a ranker that scores or one that compares, ``duot5("DIR")``, by its notation.

    Errors are those of :func:`~rankhouse.systems.rankers.open_ranker`.
    """
    if not is_pairwise(spec):
        return open_ranker(spec, compute)
    with needs("neural", f"the ranker {spec}"):
        from rankhouse.models.duot5 import DuoT5Ranker
        from rankhouse.models.families import PAIRWISE
        from rankhouse.nn.machine import choose
    named = notation.parse(spec)
    own = dict(named.kwargs)
    aggregate, passages = own.pop("aggregate", "sym-sum"), own.pop("passages", "")
    if not isinstance(aggregate, str) or not isinstance(passages, str):
        raise WrongUse(f"{spec}: aggregate and passages are texts in quotes")
    PairwisePlan(aggregate=aggregate)  # a wrong word is refused before anything is opened
    model = notation.make(named._replace(kwargs=own), PAIRWISE, "family of rankers that compare")
    device = choose(compute.precision, compute.device, compute.threads or None)
    return PairwiseSystem(DuoT5Ranker(model, device), aggregate, passages, compute)


def as_reranker(given: PathLike | Ranker) -> Ranker | PairwiseSystem:
    """Return what can be put behind a run: an object, or one opened from its notation; else WrongUse."""
    if isinstance(given, str) and is_pairwise(given):
        return open_reranker(given, ComputeOptions())
    if callable(getattr(given, "preferences", None)) and not hasattr(given, "score"):
        return PairwiseSystem(cast(Any, given))
    return as_ranker(given)
