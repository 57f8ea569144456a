"""Run -> Run: a ranker reads the documents a first stage found, passage by passage, and reorders them.

Documents are fetched, cut, scored and then forgotten, so that memory grows neither with the depth nor with
the number of queries. A ranking comes out in three parts, in this order:

1. what the ranker scored, by the pooled score;
2. the tail, below ``depth`` or dropped by ``see``, in first-stage order (``tail="drop"`` leaves it out);
3. documents within the depth that have no text or are not in the store, in first-stage order: always kept.

Parts 2 and 3 get the float32 numbers next below the lowest score of part 1, one each, so that they tie with
nothing and stay in place in any tool that sorts by score. A query with nothing to score keeps its first-stage
ranking and scores.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import groupby
from typing import Annotated, Literal, NamedTuple, Protocol

import numpy as np

from rankhouse.core.arguments import Option, check_whole
from rankhouse.core.errors import BadModel, WrongUse, name_few, warn
from rankhouse.core.nouns import (
    Documents,
    FloatArray,
    Pair,
    Passage,
    Query,
    Ranker,
    Ranking,
    StoredPair,
    StoredPassage,
    by_id,
    require_texts,
)
from rankhouse.core.progress import Progress, ignore, part
from rankhouse.core.run import Run
from rankhouse.core.scores import base_of, in_chunks, with_room_below
from rankhouse.ranking.cache import CachedRanker
from rankhouse.ranking.pool import Pool, best, pooled_ones
from rankhouse.ranking.see import See
from rankhouse.text.split import Split, Whole, dropped_words, readable

_warn = partial(warn, stacklevel=3)


class StoredScorer(Protocol):
    """Scorer of documents by stored representations of their passages; their texts are not read."""

    def passages(self, doc_id: str) -> Sequence[StoredPassage] | None:
        """Return a document's passages; None where nothing is stored of it, so that its text has to be read.

        Raises:
            KeyError: There is no such document.
        """
        ...

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32, as the ranker would."""
        ...


@dataclass(frozen=True, kw_only=True)
class ReadingOptions:
    """Reading options of a ranker, the same in commands, expressions and Python."""

    split: Annotated[
        str, Option('"sentences(10, 5)", "words(100)" ...', default="whole; as kept, where encode kept it")
    ] = ""
    pool: Annotated[
        str, Option('first, max, sum, mean, "top(3)" ...', default="max; as kept, where encode kept it")
    ] = ""
    tail: Annotated[Literal["keep", "drop"], Option("Keep or drop the documents below the depth.")] = "keep"
    stored: Annotated[
        bool | None, Option("Require, or ignore, what encode stored.", default="used if there")
    ] = None
    see: Annotated[
        float, Option("Share of these that is read: the first by first stage and word embeddings.", least=0)
    ] = 1.0


@dataclass(frozen=True)
class Plan:
    """Plan of a reranking.

    Attributes:
        depth: How many documents a query are read.
        tail: Treatment of those below: "keep" or "drop".
        chunk: Pairs handed to the ranker at once, at most.
        characters: A chunk is also closed when its passages have so many characters.
        alone: No chunk holds two queries, as where queries come one by one; the report then has their times.
        stored: Scores documents of which something is stored; the others are read and cut by ``split``.
        see: Chooses which documents within the depth are read; None: all are.
        kept: Query id -> the documents that are read, in the run's order; None: those within the depth.
    """

    split: Split = field(default_factory=Whole)
    pool: Pool = field(default_factory=best)
    depth: int = 1000
    tail: Literal["keep", "drop"] = "keep"
    chunk: int = 2_048
    characters: int = 4_000_000
    alone: bool = False
    stored: StoredScorer | None = None
    see: See | None = None
    kept: Callable[[str], Sequence[str]] | None = None

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise WrongUse(f"depth={self.depth}: rerank 0 documents a query or more")
        if self.tail not in ("keep", "drop"):
            raise WrongUse(f'tail="{self.tail}": choose "keep" or "drop"')
        check_whole("a chunk", 1, chunk=self.chunk, characters=self.characters)

    def read(self, query_id: str, ranking: Ranking) -> Sequence[str]:
        """Return the documents of a query's ranking that are read."""
        return ranking.doc_ids[: self.depth] if self.kept is None else self.kept(query_id)

    def count(self, ranking: Ranking) -> int:
        """Return how many documents of a ranking are read."""
        within = min(self.depth, len(ranking.doc_ids))
        return within if self.see is None else self.see.count(within)

    def seen(self, run: Run, texts: Mapping[str, Query], documents: Documents) -> Plan:
        """Return the plan with what ``see`` chooses of a run's documents, when they are read."""
        see = self.see
        kept = see.chooser(run, texts, documents, split=self.split, depth=self.depth) if see else None
        return replace(self, kept=kept)


@dataclass
class Report:
    """Report of a reranking; filled in as the work goes on, so it is right after an interruption too.

    Attributes:
        queries: Queries that had something to rerank.
        documents: (query, document) rows that were scored.
        passages: Pairs that were scored for them.
        cached: How many of these the cache knew.
        tail: Rows below the depth, or that ``see`` dropped: kept unread or left out.
        unknown: Rows whose document is not in the store.
        without_text: Rows whose document has no text (or, for ``first``, no text in passage 0).
        unknown_ids: The first few of these documents.
        dropped_words: Words of scored documents that are in no passage, where the split counts them.
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


Columns = tuple[Sequence[str], FloatArray]
"""A ranking's document ids and scores."""


class Candidate(NamedTuple):
    """One document of one query, and those of its passages that are to be scored; maybe none."""

    query: Query
    doc_id: str
    passages: Sequence[Passage | StoredPassage]


class Counter:
    """Counts documents for the progress display."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress or ignore, total, 0
        self.add(0)

    def add(self, documents: int) -> None:
        """Count documents that are done."""
        self._done += documents
        self._progress(self._done, self._total)

    def reach(self, further: float) -> None:
        """Show that some of those are done that are read together."""
        self._progress(self._done + further, self._total)


def candidates(
    run: Run, texts: Mapping[str, Query], documents: Documents, plan: Plan, report: Report
) -> Iterator[Candidate]:
    """Fetch and cut document after document, no sooner than it is wanted."""
    dropped = dropped_words(plan.split)
    for query_id in run:
        for doc_id in plan.read(query_id, run[query_id]):
            passages: Sequence[Passage | StoredPassage] = []
            try:
                stored = plan.stored.passages(doc_id) if plan.stored is not None else None
                document = None if stored is not None else documents[doc_id]
            except KeyError:
                report.unknown += 1
                _note(doc_id, report.unknown_ids)
            else:
                if document is None:
                    passages = stored or []
                else:
                    passages = readable(document, plan.split)
                    report.dropped_words += dropped(document)
                passages = pooled_ones(passages, plan.pool)
                if not passages:
                    report.without_text += 1
                    _note(doc_id, report.without_text_ids)
            yield Candidate(texts[query_id], doc_id, passages)


def _note(doc_id: str, ids: list[str]) -> None:
    if len(ids) <= 5 and doc_id not in ids:  # one more than a warning names
        ids.append(doc_id)


def scored(
    ranker: Ranker, candidates: Iterable[Candidate], plan: Plan, report: Report, counter: Counter
) -> Iterator[tuple[Candidate, FloatArray]]:
    """Score documents, several at once; yield each with the scores (p,) of its p passages, in order."""
    before = time.perf_counter()
    for chunk in _chunks(candidates, plan):
        with part(0, len(chunk), counter.reach):
            scores = _scores(ranker, chunk, plan)
        ends = np.cumsum([len(one.passages) for one in chunk])[:-1]
        yield from zip(chunk, np.split(scores, ends), strict=True)
        report.passages += len(scores)
        report.documents += sum(1 for one in chunk if one.passages)
        counter.add(len(chunk))
        if plan.alone:
            query_id, now = chunk[0].query.id, time.perf_counter()
            report.times[query_id] = report.times.get(query_id, 0.0) + now - before
            before = now


def _chunks(candidates: Iterable[Candidate], plan: Plan) -> Iterator[list[Candidate]]:
    """Gather documents until there are enough pairs for the ranker, or until the query ends."""
    chunk: list[Candidate] = []
    pairs = characters = 0
    for one in candidates:
        # Documents that cannot be scored wait as well, but not without bound.
        full = pairs >= plan.chunk or characters >= plan.characters or len(chunk) >= 10 * plan.chunk
        if full or (plan.alone and chunk and chunk[0].query.id != one.query.id):
            yield chunk
            chunk, pairs, characters = [], 0, 0
        chunk.append(one)
        pairs += len(one.passages)
        characters += sum(len(p.text) for p in one.passages if isinstance(p, Passage))
    if chunk:
        yield chunk


def _scores(ranker: Ranker, chunk: Sequence[Candidate], plan: Plan) -> FloatArray:
    """Score all passages of a chunk: texts by the ranker, the others by what is stored."""
    texts: list[Pair] = []
    stored: list[StoredPair] = []
    is_text: list[bool] = []
    for query, _, passages in chunk:
        for passage in passages:
            is_text.append(isinstance(passage, Passage))
            if isinstance(passage, Passage):
                texts.append(Pair(query, passage))
            else:
                stored.append(StoredPair(query, passage))
    scores, read = np.empty(len(is_text), np.float32), np.array(is_text, bool)
    with part(0, share := len(texts) / max(1, len(read))):
        scores[read] = in_chunks(ranker.score, texts, plan.chunk)
    if plan.stored is not None:
        with part(share, 1):
            scores[~read] = in_chunks(plan.stored.score, stored, plan.chunk)
    return scores


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
    """Reorder the best documents of every query.

    Args:
        ranker: The scorer of pairs; wrap it in :class:`~rankhouse.ranking.cache.CachedRanker` to keep scores.
        queries: Texts of the run's queries; more than those do no harm but are reported.

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
    scale = plan.pool.check(ranker)
    if plan.pool.missing_is_zero and plan.pool.scale == "score" and base_of(scale) == "logprob":
        _warn(
            f"{plan.pool} adds log probabilities, which are never above 0: the fewer passages a document "
            'has, the better it scores. Say scale="probability" in the pool, or scale="logprob" to mean it'
        )
    texts = query_texts(run, queries, report)
    plan, before = plan.seen(run, texts, documents), _hits(ranker)
    read = candidates(run, texts, documents, plan, report=report)
    counter = Counter(progress, sum(plan.count(ranking) for ranking in run.values()))
    done = scored(ranker, read, plan, report, counter=counter)
    ranked: dict[str, Columns] = {}
    for query_id, some in groupby(done, lambda entry: entry[0].query.id):
        pooled = {
            one.doc_id: _pooled(plan.pool, scale, one, values) for one, values in some if len(one.passages)
        }
        report.queries += bool(pooled)
        report.cached = _hits(ranker) - before
        ranked[query_id] = settled(query_id, run[query_id], pooled, plan)
    report.cached = _hits(ranker) - before
    return completed(run, ranked, plan, report)


def completed(run: Run, ranked: Mapping[str, Columns], plan: Plan, report: Report) -> Run:
    """Return new rankings with those of queries without documents, and warn of what could not be scored."""
    rankings = [ranked.get(query_id) or settled(query_id, run[query_id], {}, plan) for query_id in run]
    report.tail += sum(len(ranking) - plan.count(ranking) for ranking in run.values())
    _warn_of_losses(report)
    return Run.from_columns(list(run), [ids for ids, _ in rankings], [scores for _, scores in rankings])


def query_texts(run: Run, queries: Iterable[Query], report: Report) -> dict[str, Query]:
    """Return the queries of a run by id.

    Raises:
        BadData: A query of the run has no text.
        DuplicateId: Two queries have one id.
    """
    texts = by_id(queries)
    require_texts([query_id for query_id in run if len(run[query_id].scores)], texts)
    report.queries_not_in_run = [q for q in texts if q not in run]
    if (absent := report.queries_not_in_run) and len(run):
        _warn(
            f"{len(absent):,} of {len(texts):,} queries are not in the run, so nothing is ranked for them: "
            f"{name_few(absent, quoted=True)}"
        )
    return texts


def _pooled(pool: Pool, scale: str, one: Candidate, scores: FloatArray) -> float:
    value = pool(scores, scale, [passage.index for passage in one.passages])
    if np.isnan(value):
        raise BadModel(
            f'the scores of document "{one.doc_id}" for query "{one.query.id}" cannot be pooled by {pool}: '
            f"infinities of both signs meet ({float(scores.min())} and {float(scores.max())})"
        )
    return value


def settled(query_id: str, ranking: Ranking, pooled: dict[str, float], plan: Plan) -> Columns:
    """Put a query's ranking together: the scored, the tail, the lost."""
    if not pooled:
        end = len(ranking.doc_ids) if plan.tail == "keep" else plan.depth
        return ranking.doc_ids[:end], ranking.scores[:end]
    read = plan.read(query_id, ranking)
    unread = set(ranking.doc_ids).difference(read) if plan.tail == "keep" else set[str]()
    after = [*filter(unread.__contains__, ranking.doc_ids), *(one for one in read if one not in pooled)]
    with np.errstate(over="ignore"):  # a sum beyond float32 becomes infinite, which a Run can hold
        scores = np.fromiter(pooled.values(), np.float64, len(pooled)).astype(np.float32)
    return [*pooled, *after], with_room_below(scores, len(after))


def _hits(ranker: Ranker) -> int:
    return ranker.hits if isinstance(ranker, CachedRanker) else 0


def _warn_of_losses(report: Report) -> None:
    """Warn of documents that could not be read."""
    kept = "kept at the end unscored"
    if report.unknown:
        named = name_few(report.unknown_ids, quoted=True)
        named += "" if report.documents else "; is this the index the run was made on?"
        _warn(f"{report.unknown:,} rows of the run name documents that are not in the store, {kept}: {named}")
    if report.without_text:
        named = name_few(report.without_text_ids, quoted=True)
        _warn(f"{report.without_text:,} rows of the run name documents without text, {kept}: {named}")
