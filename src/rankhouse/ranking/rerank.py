"""Run -> Run: a ranker reads the documents a first stage found, passage by passage, and orders them anew.

Documents stream through: each is fetched, split and scored in its turn and then forgotten, so memory grows
neither with the depth nor with the number of queries. A ranking comes out in three parts, in this order:

1. what the ranker scored, by the pooled score;
2. the tail, documents below ``depth``, in first-stage order (``tail="drop"`` leaves it out);
3. documents within the depth that have no text or are not in the store, in first-stage order: always kept.

Parts 2 and 3 get the float32 numbers next below the lowest score of part 1, one each, so that they tie with
nothing and stay in place in any tool that sorts by score. A query with nothing to score keeps its first-stage
ranking and scores.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np

from rankhouse.core.errors import BadData, BadModel, DuplicateId, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranker
from rankhouse.core.progress import Progress
from rankhouse.core.run import Ranking, Run
from rankhouse.core.scores import numbers_only, one_each, with_room_below
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import Pool, best
from rankhouse.text.split import Whole

Split = Callable[[Document], Sequence[Passage]]
"""What cuts a document into passages; ``text.split`` has them."""


NAMED: Final = 5
"""How many ids a warning names."""


class Documents(Protocol):
    """The documents by id: a dict, or the index's document store."""

    def __getitem__(self, doc_id: str, /) -> Document:
        """Return a document; KeyError where there is none of that id."""
        ...


@dataclass(frozen=True)
class Plan:
    """How to rerank.

    Attributes:
        split: What cuts documents into passages.
        pool: What makes one score of a document's passage scores.
        depth: How many documents a query are read.
        tail: What becomes of those below: "keep" or "drop".
        chunk: Pairs handed to the ranker at once, at most.
        characters: A chunk is also closed when its passages have so many characters.
        alone: No chunk holds two queries, as where queries come one by one; the report then has their times.
    """

    split: Split = field(default_factory=Whole)
    pool: Pool = field(default_factory=best)
    depth: int = 1000
    tail: Literal["keep", "drop"] = "keep"
    chunk: int = 2_048
    characters: int = 4_000_000
    alone: bool = False

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise WrongUse(f"depth={self.depth}: rerank 0 documents a query or more")
        if self.tail not in ("keep", "drop"):
            raise WrongUse(f'tail="{self.tail}": choose "keep" or "drop"')
        if self.chunk < 1 or self.characters < 1:
            raise WrongUse(
                f"chunk={self.chunk}, characters={self.characters}: a chunk has at least one of each"
            )


@dataclass
class Report:
    """What happened; filled in as the work goes on, so it is right after an interruption too.

    Attributes:
        queries: Queries that had something to rerank.
        documents: (query, document) rows that were scored.
        passages: Pairs that were scored for them.
        cached: How many of these the cache knew.
        tail: Rows below the depth, kept or dropped.
        unknown: Rows whose document is not in the store.
        without_text: Rows whose document has no text (or, for ``first``, no text in passage 0).
        unknown_ids: The first few of these documents.
        without_text_ids: The first few of these documents.
        dropped_words: Words of scored documents that are in no passage, where the split counts them.
        queries_not_in_run: Queries that the run does not have.
        times: Query id -> seconds that fetching, cutting, scoring and pooling took, if each was done alone.
    """

    queries: int = 0
    documents: int = 0
    passages: int = 0
    cached: int = 0
    tail: int = 0
    unknown: int = 0
    without_text: int = 0
    dropped_words: int = 0
    unknown_ids: list[str] = field(default_factory=list)
    without_text_ids: list[str] = field(default_factory=list)
    queries_not_in_run: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)


def rerank(
    ranker: Ranker,
    run: Run,
    queries: Iterable[Query],
    documents: Documents,
    plan: Plan | None = None,
    *,
    report: Report | None = None,
    progress: Progress | None = None,
) -> Run:
    """Order the best documents of every query anew.

    Args:
        ranker: What scores pairs; wrap it in :class:`~rankhouse.ranking.cache.CachedRanker` to keep scores.
        run: The first stage.
        queries: Texts of the run's queries; more than those do no harm but are reported.
        documents: The documents by id.
        plan: Split, pool, depth, tail.
        report: Filled with what happened.
        progress: Told how far the work is.

    Returns:
        The same queries, and, unless the tail is dropped, the same documents. Equal scores are ordered as in
        every Run.

    Raises:
        BadData: A query of the run has no text among ``queries``.
        DuplicateId: Two queries have one id.
        WrongUse: The pool works on a scale that the ranker's scores cannot be carried to.
        BadModel: The ranker gave something that is not a number; names query and document.
    """
    plan, report = plan or Plan(), Report() if report is None else report
    said = plan.pool.check(ranker)
    _warn_of_trap(plan.pool, said)
    texts = _texts(run, queries, report)
    before = _hits(ranker)
    asked = _asked(run, texts, documents, plan, report)
    tell = _Teller(progress, sum(min(plan.depth, len(run[query_id].scores)) for query_id in run))
    doc_ids: dict[str, Sequence[str]] = {}
    scores: dict[str, FloatArray] = {}
    for query_id, some in groupby(_scored(ranker, asked, plan, report, tell), lambda done: done[0].query.id):
        pooled = {
            one.doc_id: _pooled(plan.pool, said, one, values) for one, values in some if len(one.passages)
        }
        report.queries += bool(pooled)
        report.cached = _hits(ranker) - before
        doc_ids[query_id], scores[query_id] = _settled(run[query_id], pooled, plan)
    for query_id in run:
        if query_id not in doc_ids:  # no documents, or depth 0
            doc_ids[query_id], scores[query_id] = _settled(run[query_id], {}, plan)
        report.tail += max(0, len(run[query_id].scores) - plan.depth)
    report.cached = _hits(ranker) - before
    _warn_of_losses(report)
    return Run.from_columns(list(run), [doc_ids[q] for q in run], [scores[q] for q in run])


class _Asked(NamedTuple):
    """One document of one query, and those of its passages that are to be scored; maybe none."""

    query: Query
    doc_id: str
    passages: list[Passage]


class _Teller:
    """Counts documents for the progress display."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0

    def add(self, documents: int) -> None:
        self._done += documents
        if self._progress is not None:
            self._progress(self._done, self._total)


def _texts(run: Run, queries: Iterable[Query], report: Report) -> dict[str, Query]:
    texts: dict[str, Query] = {}
    for query in queries:
        if query.id in texts:
            raise DuplicateId(f'query "{query.id}" is given twice; a query has one text')
        texts[query.id] = query
    asked = [query_id for query_id in run if len(run[query_id].scores)]
    if missing := [q for q in asked if q not in texts or not texts[q].text.strip()]:
        raise BadData(
            f"{len(missing):,} of the run's {len(asked):,} queries have no text among the queries given: "
            f"{_named(missing)}; give the queries the run was made with"
        )
    report.queries_not_in_run = [q for q in texts if q not in run]
    if (absent := report.queries_not_in_run) and len(run):
        _warn(
            f"{len(absent):,} of {len(texts):,} queries are not in the run, so nothing is ranked for them: "
            f"{_named(absent)}"
        )
    return texts


def _asked(
    run: Run, texts: dict[str, Query], documents: Documents, plan: Plan, report: Report
) -> Iterator[_Asked]:
    """Fetch and split document after document, no sooner than it is wanted."""
    dropped = getattr(plan.split, "dropped", lambda _: 0)  # those of text.split count, a bare function cannot
    for query_id in run:
        for doc_id in run[query_id].doc_ids[: plan.depth]:
            passages: list[Passage] = []
            try:
                document = documents[doc_id]
            except KeyError:
                report.unknown += 1
                _note(doc_id, report.unknown_ids)
            else:
                passages = [p for p in plan.split(document) if p.text.strip() and _counts(p, plan.pool)]
                if not passages:
                    report.without_text += 1
                    _note(doc_id, report.without_text_ids)
                report.dropped_words += dropped(document)
            yield _Asked(texts[query_id], doc_id, passages)


def _counts(passage: Passage, pool: Pool) -> bool:
    return passage.index == 0 or not pool.first_only


def _scored(
    ranker: Ranker, asked: Iterable[_Asked], plan: Plan, report: Report, tell: _Teller
) -> Iterator[tuple[_Asked, FloatArray]]:
    """Score documents, several at once; gives each with the scores (p,) of its p passages, in order."""
    before = time.perf_counter()
    for waiting in _chunks(asked, plan):
        pairs = [Pair(one.query, passage) for one in waiting for passage in one.passages]
        yield from _score_waiting(ranker, waiting, pairs, plan)
        _count(report, waiting, pairs, tell)
        if plan.alone:
            query_id, now = waiting[0].query.id, time.perf_counter()
            report.times[query_id] = report.times.get(query_id, 0.0) + now - before
            before = now


def _chunks(asked: Iterable[_Asked], plan: Plan) -> Iterator[list[_Asked]]:
    """Gather documents until there are enough pairs for the ranker, or until the query ends."""
    waiting: list[_Asked] = []
    pairs = characters = 0
    for one in asked:
        # Documents that cannot be scored wait as well, but not without bound.
        full = pairs >= plan.chunk or characters >= plan.characters or len(waiting) >= 10 * plan.chunk
        if full or (plan.alone and waiting and waiting[0].query.id != one.query.id):
            yield waiting
            waiting, pairs, characters = [], 0, 0
        waiting.append(one)
        pairs += len(one.passages)
        characters += sum(len(passage.text) for passage in one.passages)
    if waiting:
        yield waiting


def _count(report: Report, waiting: list[_Asked], pairs: list[Pair], tell: _Teller) -> None:
    report.passages += len(pairs)
    report.documents += sum(1 for one in waiting if one.passages)
    tell.add(len(waiting))


def _score_waiting(
    ranker: Ranker, waiting: list[_Asked], pairs: list[Pair], plan: Plan
) -> Iterator[tuple[_Asked, FloatArray]]:
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), plan.chunk):
        some = pairs[start : start + plan.chunk]
        scores[start : start + len(some)] = one_each(len(some), ranker.score(some))
    numbers_only(scores, pairs)
    at = 0
    for one in waiting:
        yield one, scores[at : at + len(one.passages)]
        at += len(one.passages)


def _pooled(pool: Pool, said: str, one: _Asked, scores: FloatArray) -> float:
    value = pool(scores, said, [passage.index for passage in one.passages])
    if np.isnan(value):
        raise BadModel(
            f'the scores of document "{one.doc_id}" for query "{one.query.id}" cannot be pooled by {pool}: '
            f"infinities of both signs meet ({float(scores.min())} and {float(scores.max())})"
        )
    return value


def _settled(ranking: Ranking, pooled: dict[str, float], plan: Plan) -> tuple[Sequence[str], FloatArray]:
    """Put a query's ranking together: the scored, the tail, the lost."""
    kept = len(ranking.doc_ids) if plan.tail == "keep" else plan.depth
    if not pooled:
        return ranking.doc_ids[:kept], ranking.scores[:kept]
    lost = [doc_id for doc_id in ranking.doc_ids[: plan.depth] if doc_id not in pooled]
    after = [*ranking.doc_ids[plan.depth : kept], *lost]
    with np.errstate(over="ignore"):  # a sum beyond float32 becomes infinite, which a Run can hold
        scores = np.fromiter(pooled.values(), np.float64, len(pooled)).astype(np.float32)
    return [*pooled, *after], with_room_below(scores, len(after))


# --- what the user should know --------------------------------------------------------------------------


def _hits(ranker: Ranker) -> int:
    return ranker.hits if isinstance(ranker, CachedRanker) else 0


def _note(doc_id: str, ids: list[str]) -> None:
    if len(ids) <= NAMED and doc_id not in ids:
        ids.append(doc_id)


def _named(ids: Sequence[str]) -> str:
    return ", ".join(f'"{i}"' for i in ids[:NAMED]) + (" ..." if len(ids) > NAMED else "")


def _warn(text: str) -> None:
    warnings.warn(text, RankhouseWarning, stacklevel=4)


def _warn_of_trap(pool: Pool, said: str) -> None:
    if pool.missing_is_zero and pool.scale == "score" and said == "logprob":
        _warn(
            f"{pool} adds log probabilities, which are never above 0: the fewer passages a document has, the "
            'better it scores. Say scale="probability" in the pool, or scale="logprob" to mean it'
        )


def _warn_of_losses(report: Report) -> None:
    if report.unknown:
        hint = "" if report.documents else "; is this the index the run was made on?"
        _warn(
            f"{report.unknown:,} rows of the run name documents that are not in the store, kept at the end "
            f"unscored: {_named(report.unknown_ids)}{hint}"
        )
    if report.without_text:
        _warn(
            f"{report.without_text:,} rows of the run name documents without text, kept at the end unscored: "
            f"{_named(report.without_text_ids)}"
        )
