"""What rankers are asked about a chunk of pairs: each ranker about each pair once, and never in vain."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.scores import Doubles, numbers_only, one_each

BoolArray = NDArray[np.bool_]
Places = NDArray[np.int64]


class ChunkScores:
    """One chunk of n pairs, and the scores that rankers gave for some of them."""

    def __init__(self, pairs: Sequence[Pair]) -> None:
        self.pairs = pairs
        self._given: dict[int, tuple[FloatArray, BoolArray]] = {}

    def scores(self, ranker: Ranker, places: Places) -> FloatArray:
        """Return a ranker's scores (m,) of the pairs at these m places; it reads only what it has not read.

        Raises:
            BadModel: It gave another number of scores, or one that is not a number.
        """
        values, asked = self._given.setdefault(
            id(ranker), (np.full(len(self.pairs), np.nan, np.float32), np.zeros(len(self.pairs), np.bool_))
        )
        fresh = places[~asked[places]]
        if len(fresh):
            chosen = [self.pairs[i] for i in fresh.tolist()]
            values[fresh] = numbers_only(one_each(len(chosen), ranker.score(chosen)), chosen)
            asked[fresh] = True
        return values[places]

    def column(self, ranker: Ranker) -> tuple[FloatArray, BoolArray]:
        """Return all a ranker said: scores (n,), NaN where it was not asked, and where it was asked (n,)."""
        empty = np.full(len(self.pairs), np.nan, np.float32), np.zeros(len(self.pairs), np.bool_)
        return self._given.get(id(ranker), empty)


def foremost(pairs: Sequence[Pair], values: Doubles, k: int) -> BoolArray:
    """Return which of n pairs are among the k best passages of their document for their query: (n,).

    Of equally good passages the earlier ones are taken.
    """
    documents: dict[tuple[str, str], list[int]] = {}
    for place, (query, passage) in enumerate(pairs):
        documents.setdefault((query.id, passage.doc_id), []).append(place)
    answers = np.zeros(len(pairs), np.bool_)
    for places in documents.values():
        answers[sorted(places, key=lambda place: (-values[place], pairs[place].passage.index))[:k]] = True
    return answers
