"""What the terms of a query add to the scores of an index's documents, segment by segment.

The statistics are handed in: they are those of all documents that are ranked together, of which the index
may hold a part.

A term's postings are scored by a table of counts and lengths that all segments share, or one by one where
the model reads true lengths or the term occurs too often in one document.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.index import Index
from rankhouse.index.lexical.kernel import Part
from rankhouse.index.lexical.lengths import DECODED
from rankhouse.index.lexical.segment import Segment
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

    def addend(self, position: int, row: int, part: Part | None) -> tuple[int, float]:
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

    def _make_part(self, position: int, term: str, boost: float, counts: TermCounts) -> Part | None:
        """Score a term's postings in one segment: by a table of counts and lengths, or one by one."""
        number = self._index.numbers(term)[position]
        if number < 0:
            return None
        segment = self._index.segments[position]
        first, end = segment.span(number)
        if not self._model.exact_lengths and segment.highest_tf(number) <= LARGEST_TABLE_TF:
            return Part(first, end, self._table(term, boost, counts))
        rows = segment.columns.rows[first:end]
        exact = self._lengths.get(id(segment))
        length = DECODED[segment.columns.codes[rows]] if exact is None else exact[rows]
        scores = self._model.term(segment.columns.tfs[first:end], length, counts, self._collection, boost)
        return Part(first, end, None, _float32(scores))

    def _make_table(self, term: str, boost: float, counts: TermCounts) -> NDArray[np.float32]:
        """Score every count up to the term's highest, at every length code in use, for all segments."""
        segments = self._index.segments
        holders = [(s, n) for s, n in zip(segments, self._index.numbers(term), strict=True) if n >= 0]
        highest = max(s.highest_tf(number) for s, number in holders)
        tf = np.arange(min(highest, LARGEST_TABLE_TF) + 1)[:, None]
        lengths = DECODED[None, : max(s.length_codes for s in segments)]
        scores = self._model.term(tf, lengths, counts, self._collection, boost)
        return _float32(scores)


def _float32(scores: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(scores, np.float32)
