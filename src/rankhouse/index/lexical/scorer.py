"""The scores of one index's documents for weighted terms: best k, or one document with what it is made of.

A document's score is the same sum wherever it lies: terms in one order, statistics those of all documents
that are ranked together, of which the index may hold a part, float32 a term, added in float64. A term's
postings are scored by a table of counts and lengths that all segments share, or one by one where the model
reads true lengths or the term occurs too often in one document.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import ScoredPostings
from rankhouse.index.lexical.segment import DECODED, Segment
from rankhouse.index.lexical.weighting import Collection, TermCounts, Weighting

# A table of scores [tf][length code] is made for a term unless its largest count is above this.
LARGEST_TABLE_TF = 255

Weighted = Mapping[str, tuple[float, TermCounts]]
"""The terms of a query in the order of the sum, with their weights as they are scored and their counts."""


class TermScores:
    """One model's numbers for the terms of an index; safe to share between threads."""

    def __init__(self, index: Index, model: Weighting, collection: Collection) -> None:
        self._index, self._model, self._collection = index, model, collection
        # Tables of words that queries share; a few kilobytes each.
        self.part = lru_cache(maxsize=16_384)(self._make_part)
        self._table = lru_cache(maxsize=4096)(self._make_table)
        exact = index.segments if model.exact_lengths else []
        self._lengths = {id(part): part.lengths.astype(np.float64) for part in exact}

    def addend(self, position: int, row: int, part: ScoredPostings | None) -> tuple[int, float]:
        """Read off a term's count in one document and what it adds, from what a search would add."""
        columns = self._index.segments[position].columns
        if part is None:
            return 0, 0.0
        place = part.first + int(np.searchsorted(columns.rows[part.first : part.end], np.int32(row)))
        if place == part.end or columns.rows[place] != row:
            return 0, 0.0
        tf = int(columns.tfs[place])
        if part.table is not None:
            return tf, float(part.table[tf, columns.codes[row]])
        assert part.scores is not None
        return tf, float(part.scores[place - part.first])

    def prior(self, segment: Segment, terms: Weighted) -> NDArray[np.float64] | None:
        """Return what each document of a segment gets besides its terms; None without a prior."""
        if self._model.prior is None:
            return None
        weights = list(terms.values())
        prior = self._model.prior(self._lengths[id(segment)], weights, self._collection)
        return np.ascontiguousarray(prior, np.float64)

    def _make_part(self, position: int, term: str, boost: float, counts: TermCounts) -> ScoredPostings | None:
        """Score a term's postings in one segment: by a table of counts and lengths, or one by one."""
        number = self._index.numbers(term)[position]
        if number < 0:
            return None
        segment = self._index.segments[position]
        first, end = segment.span(number)
        if not self._model.exact_lengths and segment.highest_tf(number) <= LARGEST_TABLE_TF:
            return ScoredPostings(first, end, self._table(term, boost, counts))
        rows = segment.columns.rows[first:end]
        exact = self._lengths.get(id(segment))
        length = DECODED[segment.columns.codes[rows]] if exact is None else exact[rows]
        tf = segment.columns.tfs[first:end]
        scores = self._model.term(tf, length, counts, collection=self._collection, boost=boost)
        return ScoredPostings(first, end, None, _float32(scores))

    def _make_table(self, term: str, boost: float, counts: TermCounts) -> NDArray[np.float32]:
        """Score every count up to the term's highest, at every length code in use, for all segments."""
        segments = self._index.segments
        holders = [(s, n) for s, n in zip(segments, self._index.numbers(term), strict=True) if n >= 0]
        highest = max(s.highest_tf(number) for s, number in holders)
        tf = np.arange(min(highest, LARGEST_TABLE_TF) + 1)[:, None]
        lengths = DECODED[None, : max(s.length_codes for s in segments)]
        scores = self._model.term(tf, lengths, counts, collection=self._collection, boost=boost)
        return _float32(scores)


def _float32(scores: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(scores, np.float32)


class Hits(NamedTuple):
    """The best documents for a query.

    Attributes:
        rows: Their rows among all documents, (k,) int64, by score, then by document id, ascending.
        scores: Their raw scores, (k,) float32.
        ids: Their ids, where these came with them: from parts of an index that may lie elsewhere.
    """

    rows: NDArray[np.int64]
    scores: FloatArray
    ids: tuple[str, ...] = ()


NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


class TermAddend(NamedTuple):
    """What one term of a query adds to one document's score.

    Attributes:
        boost: The term's weight as it is scored.
        counts: Of the term, in the whole index.
        tf: Its occurrences in the document.
        value: What it adds; the engine's own float32 number.
    """

    boost: float
    counts: TermCounts
    tf: int
    value: float


class DocumentScore(NamedTuple):
    """One document's score, added up as a search does, whether a search would return it or not.

    Attributes:
        score: The float32 sum.
        addends: By term: those that the index has, in the order of the sum.
        prior: What the document gets besides them; None where the model has no prior.
        length: Its length as it is scored: Lucene's, one byte, or the true one.
        tokens: Its true length.
    """

    score: float
    addends: dict[str, TermAddend]
    prior: float | None
    length: float
    tokens: int


class Scorer:
    """One model over the documents of one index; safe to share between threads.

    Args:
        collection: Statistics of all documents that are ranked; the index may hold a part of them.
    """

    def __init__(self, index: Index, model: Weighting, collection: Collection) -> None:
        self._index, self._model = index, model
        self._scores = TermScores(index, model, collection)

    def hits(self, terms: Weighted, k: int) -> Hits:
        """Find the best k documents for weighted terms; rows are those of the index."""
        of_segments, scores, floor = list[Hits](), NO_HITS.scores, -math.inf
        for position, segment in enumerate(self._index.segments):
            parts = [
                p for t, (w, c) in terms.items() if (p := self._scores.part(position, t, w, c)) is not None
            ]
            if parts:
                rows, values = kernel.rank(
                    segment.columns, parts, self._scores.prior(segment, terms), k, floor=floor
                )
                of_segments.append(Hits(rows + self._index.starts[position], values))
                scores = np.concatenate([scores, values])
                if len(scores) >= k:
                    # What lies below k better ones need not be gathered in the segments to come.
                    scores = np.partition(scores, len(scores) - k)[-k:]
                    floor = float(scores[0])
        return self._merge(of_segments, k) if of_segments else NO_HITS

    def document_score(self, terms: Weighted, row: int) -> DocumentScore:
        """Score one document, with the addends: the sum that :meth:`hits` computes."""
        segment, there = self._index.place(row)
        position = self._index.segments.index(segment)
        addends, total = dict[str, TermAddend](), 0.0
        for term, (boost, counts) in terms.items():
            part = self._scores.part(position, term, boost, counts)
            tf, value = self._scores.addend(position, there, part)
            addends[term] = TermAddend(boost, counts, tf, value)
            total += value
        priors = self._scores.prior(segment, terms)
        prior = None if priors is None else float(priors[there])
        tokens = int(segment.lengths[there])
        length = float(tokens if self._model.exact_lengths else DECODED[segment.columns.codes[there]])
        return DocumentScore(float(np.float32(total + (prior or 0.0))), addends, prior, length, tokens=tokens)

    def _merge(self, of_segments: list[Hits], k: int) -> Hits:
        """Join the segments' best, by score, then by document id."""
        if len(of_segments) == 1:
            return of_segments[0]
        scores = np.concatenate([h.scores for h in of_segments])
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        rows = np.concatenate([h.rows for h in of_segments])[order]
        if self._index.in_id_order:
            return Hits(rows[:k], scores[:k])  # the stable sort has left equals in the order of segments
        owner = np.repeat(np.arange(len(of_segments)), [len(h.rows) for h in of_segments])[order]
        # A segment's own equals are in order of id already; only ties across segments have to be sorted.
        is_tie = scores[1:] == scores[:-1]
        group = np.concatenate([[0], np.cumsum(~is_tie)])
        is_mixed = np.zeros(group[-1] + 1, bool)
        is_mixed[group[1:][is_tie & (owner[1:] != owner[:-1])]] = True
        places = np.flatnonzero(is_mixed[group] & (group <= group[min(k, len(group)) - 1]))
        tied = rows[places]
        rows[places] = tied[self._index.by_id(tied, group[places])]
        return Hits(rows[:k], scores[:k])
