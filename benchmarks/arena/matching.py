"""Unions and intersections over an index of ours."""

from __future__ import annotations

from functools import reduce
from pathlib import Path
from typing import Protocol

import numpy as np

from rankhouse.core.nouns import Query
from rankhouse.index.index import Index
from rankhouse.index.lexical.search import LexicalOptions, Retriever
from rankhouse.index.lexical.segment import Segment


class Words(Protocol):
    """A query."""

    words: list[str]
    all_of: bool


class Matcher:
    """An open index. The best of a union are found by the kernel, counts and intersections by numpy."""

    def __init__(self, path: Path) -> None:
        self._index, self._retrievers = Index.open(path), dict[int, Retriever]()

    def _retriever(self, k: int) -> Retriever:
        if k not in self._retrievers:
            self._retrievers[k] = Retriever(self._index, LexicalOptions(k=k, threads=1))
        return self._retrievers[k]

    def best(self, words: list[str], k: int) -> None:
        """Find the best documents of a union."""
        self._retriever(k).search_all([Query("q", " ".join(words))])

    def rows(self, query: Words) -> list[np.ndarray]:
        """Return the rows of each segment that match."""
        words = list(dict.fromkeys(query.words))
        return [self._matching(segment, words, query.all_of) for segment in self._index.segments]

    @staticmethod
    def _matching(segment: Segment, words: list[str], all_of: bool) -> np.ndarray:
        lists = [segment.postings_among_alive(n)[0] for n in segment.find(words).tolist() if n >= 0]
        if all_of:
            lists.sort(key=len)
            return reduce(_common, lists) if len(lists) == len(words) else np.empty(0, np.int32)
        marks = np.zeros(segment.documents, bool)
        for rows in lists:
            marks[rows] = True
        return np.flatnonzero(marks)

    def best_of(self, held: list[np.ndarray], words: list[str], k: int) -> np.ndarray:
        """Find the best of the documents that hold all words: rows of the whole index."""
        term, index = self._retriever(k).model.term, self._index
        scores = [np.empty(0)]
        for segment, rows in zip(index.segments, held, strict=True):
            total, lengths = np.zeros(len(rows)), segment.lengths_among_all(exact=False)
            length = lengths[segment.among_all(rows.astype(np.int64))]
            for word in dict.fromkeys(words) if len(rows) else ():
                every, tf = segment.postings_among_alive(segment.find([word]).item())
                some = tf[np.searchsorted(every, rows)]
                total += term(some, length, index.counts(word), index.collection, float(words.count(word)))
            scores.append(total)
        whole = [rows + first for rows, first in zip(held, index.starts.tolist(), strict=False)]
        return np.concatenate(whole)[np.argsort(-np.concatenate(scores), kind="stable")[:k]]


def _common(few: np.ndarray, many: np.ndarray) -> np.ndarray:
    return few[many[np.minimum(np.searchsorted(many, few), len(many) - 1)] == few]
