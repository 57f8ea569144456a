"""Reranking with everything that goes with it: stored passages, a cache of scores, what was not read."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NamedTuple

from rankhouse.app.precomputed import Stored, stored_for
from rankhouse.core import notation
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Documents, Plan, Report, rerank
from rankhouse.text.split import SPLITTERS


@dataclass(frozen=True)
class RerankOptions:
    """How to rerank.

    Attributes:
        split: How documents are cut, in notation; "" is as stored for this ranker, else whole.
        pool: What makes one score of passages, in notation; "" is as stored, else max.
        depth: How many documents a query are read.
        tail: What becomes of those below: "keep" or "drop".
        alone: No two queries are scored together; the report then has a time for each.
        stored: Use what the index stores for this ranker: True insists, False does without, None if there.
        cache: Where scores are kept for the next time; None keeps none.
    """

    split: str = ""
    pool: str = ""
    depth: int = 1000
    tail: Literal["keep", "drop"] = "keep"
    alone: bool = False
    stored: bool | None = None
    cache: Path | None = None


class Reranked(NamedTuple):
    """What came out.

    Attributes:
        run: The new order.
        report: What happened on the way.
        seconds: How long it took.
        stored: What the index stores for the ranker and was read; None where nothing was.
    """

    run: Run
    report: Report
    seconds: float
    stored: Stored | None


def rerank_with(
    ranker: Ranker,
    run: Run,
    queries: Sequence[Query],
    index: Index,
    options: RerankOptions,
    progress: Progress | None = None,
) -> Reranked:
    """Rerank a run.

    Args:
        ranker: What scores.
        run: The first stage.
        queries: Texts of its queries.
        index: Where the documents are.
        options: Split, pool, depth and the rest.
        progress: Told (documents done, documents in all).

    Raises:
        WrongUse: An unknown splitter or pool, or nothing is stored where it is insisted on.
        BadData: A query of the run has no text.
    """
    cut = str(notation.make(options.split, SPLITTERS, "splitter")) if options.split else ""
    neural: Any = ranker
    reads_stored = options.stored is not False and hasattr(ranker, "model")
    stored = stored_for(index, neural, cut, insist=bool(options.stored)) if reads_stored else None
    held = stored.kept.state if stored else None
    plan = Plan(
        split=notation.make(options.split or (held.split if held else "whole"), SPLITTERS, "splitter"),
        pool=notation.make(options.pool or (held.pool if held else "max"), POOLS, "pool"),
        depth=options.depth,
        tail=options.tail,
        alone=options.alone,
    )
    report, started = Report(), time.perf_counter()
    with ExitStack() as stack:
        scorer = stored.ranker if stored else ranker
        documents: Documents = index.documents
        if options.cache is not None:  # it knows passages by their texts
            scorer = stack.enter_context(closing(CachedRanker(scorer, options.cache)))
        elif stored is not None:
            plan, documents = replace(plan, split=stored.split), stored.documents
        done = rerank(scorer, run, queries, documents, plan, report=report, progress=progress)
    return Reranked(done, report, time.perf_counter() - started, stored)
