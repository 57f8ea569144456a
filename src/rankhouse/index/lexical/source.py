"""What a retriever ranks: the documents of one index here, or of several that are searched as one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.index import Index
from rankhouse.index.lexical.scorer import NO_HITS, DocumentScore, Hits, Scorer, Weighted
from rankhouse.index.lexical.weighting import Collection, TermCounts, Weighting
from rankhouse.text.analyze import Analyzer

Table = NDArray[np.object_]
Codes = NDArray[np.int32]

_AT_ONCE: Final = 8


class SearchSource(Protocol):
    """Documents that are ranked together, wherever they lie."""

    @property
    def analyzer(self) -> Analyzer:
        """What turned their texts, and will turn queries, into terms."""
        ...

    @property
    def collection(self) -> Collection:
        """Statistics of all of them."""
        ...

    def together(self, queries: int, threads: int) -> int:
        """Return how many of so many queries each of so many threads best asks together."""
        ...

    def counts(self, term: str) -> TermCounts:
        """Count the documents that hold a term, and its occurrences."""
        ...

    def look_up(self, terms: Iterable[str]) -> None:
        """Prepare for being asked for the counts of many terms."""
        ...

    def hits(self, model: Weighting, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents for each of several queries."""
        ...

    def document_score(self, model: Weighting, terms: Weighted, row: int) -> DocumentScore:
        """Score one document, with what its score is made of."""
        ...

    def terms_of(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of each of several documents, with their counts."""
        ...

    def table(self, answers: Sequence[Hits]) -> tuple[Table, Codes]:
        """Return the distinct ids of all hits, sorted, and the place of each hit's id among them."""
        ...


class IndexSource:
    """The documents of one index."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.analyzer, self.collection, self.counts = index.analyzer, index.collection, index.counts
        self._scorers: dict[str, Scorer] = {}

    def together(self, queries: int, threads: int) -> int:
        """Return a few: a small search costs little more than handing it over, of large ones none waits."""
        return max(1, min(_AT_ONCE, queries // (4 * threads)))

    def look_up(self, terms: Iterable[str]) -> None:
        """Do nothing: counts are at hand."""

    def scorer(self, model: Weighting) -> Scorer:
        """Return what scores with a model; made once."""
        if model.notation not in self._scorers:
            self._scorers[model.notation] = Scorer(self._index, model, self.collection)
        return self._scorers[model.notation]

    def hits(self, model: Weighting, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents for each query."""
        scorer = self.scorer(model)
        return [scorer.hits(terms, k) for terms in queries]

    def document_score(self, model: Weighting, terms: Weighted, row: int) -> DocumentScore:
        """Score one document."""
        return self.scorer(model).document_score(terms, row)

    def terms_of(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of each of several documents, with their counts."""
        return terms_of(self._index, rows)

    def table(self, answers: Sequence[Hits]) -> tuple[Table, Codes]:
        """Decode each document's id once."""
        index = self._index
        rows, where = _distinct(np.concatenate([NO_HITS.rows, *(h.rows for h in answers)]), len(index))
        ids = np.array(index.ids(rows), dtype=object)
        if len(index.segments) == 1:
            by_id = np.argsort(index.segments[0].columns.id_rank[rows])
        else:
            by_id = np.argsort(ids, kind="stable") if len(ids) else np.empty(0, np.int64)
        code = np.empty(len(ids), np.int32)
        code[by_id] = np.arange(len(ids), dtype=np.int32)
        return ids[by_id], code[where]


def terms_of(index: Index, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
    """List the terms of documents of an index, with their counts."""
    places = (index.place(row) for row in rows)
    return [segment.terms_of(there) for segment, there in places]


def _distinct(rows: NDArray[np.int64], documents: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows, ascending, and the place of each row among them."""
    if documents > 20 * len(rows):
        return np.unique(rows, return_inverse=True)
    # Many rows of few documents: marking them beats sorting them several times over.
    marked = np.zeros(documents, bool)
    marked[rows] = True
    return np.flatnonzero(marked), (np.cumsum(marked) - 1)[rows]
