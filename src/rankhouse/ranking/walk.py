"""Documents of a run, fetched, cut and scored one after the other, and then forgotten.

Memory grows neither with the depth nor with the number of queries. Documents of which something is stored are
scored by that; the others are read and cut.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

import numpy as np

from rankhouse.core.nouns import Document, FloatArray, Pair, Passage, Query, Ranker, StoredPair, StoredPassage
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.core.scores import numbers_only, one_each
from rankhouse.ranking.pool import Pool
from rankhouse.ranking.rerank_plan import Documents, Plan, Report
from rankhouse.text.split import Split, dropped_words

NAMED: Final = 5
"""How many ids a warning names."""

AnyPair = TypeVar("AnyPair", Pair, StoredPair)
AnyPassage = TypeVar("AnyPassage", bound=Passage | StoredPassage)


class Candidate(NamedTuple):
    """One document of one query, and those of its passages that are to be scored; maybe none."""

    query: Query
    doc_id: str
    passages: Sequence[Passage | StoredPassage]


class Counter:
    """Counts documents for the progress display."""

    def __init__(self, progress: Progress | None, total: int) -> None:
        self._progress, self._total, self._done = progress, total, 0
        self.add(0)

    def add(self, documents: int) -> None:
        """Count documents that are done."""
        self._done += documents
        if self._progress is not None:
            self._progress(self._done, self._total)


def candidates(
    run: Run, texts: Mapping[str, Query], documents: Documents, plan: Plan, report: Report
) -> Iterator[Candidate]:
    """Fetch and cut document after document, no sooner than it is wanted.

    Args:
        report: Told what cannot be scored.
    """
    dropped = dropped_words(plan.split)
    for query_id in run:
        for doc_id in run[query_id].doc_ids[: plan.depth]:
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


def readable(document: Document, split: Split) -> list[Passage]:
    """Return a document's passages that have text."""
    return [passage for passage in split(document) if passage.text.strip()]


def pooled_ones(passages: Sequence[AnyPassage], pool: Pool) -> Sequence[AnyPassage]:
    """Return the passages that a pool looks at; the others need no score."""
    return [p for p in passages if p.index == 0] if pool.first_only else passages


def _note(doc_id: str, ids: list[str]) -> None:
    if len(ids) <= NAMED and doc_id not in ids:
        ids.append(doc_id)


def scored(
    ranker: Ranker, candidates: Iterable[Candidate], plan: Plan, report: Report, counter: Counter
) -> Iterator[tuple[Candidate, FloatArray]]:
    """Score documents, several at once.

    Yields:
        Each document with the scores (p,) of its p passages, in order.
    """
    before = time.perf_counter()
    for chunk in _chunks(candidates, plan):
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
    scores = np.empty(len(is_text), np.float32)
    read = np.array(is_text, bool)
    scores[read] = in_portions(ranker.score, texts, plan.chunk)
    if plan.stored is not None:
        scores[~read] = in_portions(plan.stored.score, stored, plan.chunk)
    return scores


def in_portions(
    score: Callable[[Sequence[AnyPair]], FloatArray], pairs: Sequence[AnyPair], size: int
) -> FloatArray:
    """Score n pairs, so many at once: (n,), none of them NaN.

    Raises:
        BadModel: A score is not a number, or there are too few or too many.
    """
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        scores[start : start + len(some)] = one_each(len(some), score(some))
    return numbers_only(scores, pairs)
