"""What rankers are asked about a chunk of pairs: each ranker about each pair once, and never in vain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import FloatArray, Pair, Ranker

BoolArray = NDArray[np.bool_]
Places = NDArray[np.int64]
Doubles = NDArray[np.float64]

PROBABLE: Final = ("logit", "probability", "logprob")
"""Scales on which a score stands for a probability; thresholds on these are probabilities."""
RAW: Final = ("score", "similarity")
"""Scales on which it does not; thresholds on these are compared with the score as it is."""

_SLACK: Final = 1e-3  # half precision puts a probability of 1 a little above it


class Asking:
    """One chunk of n pairs, and the scores that rankers gave for some of them.

    Args:
        pairs: The chunk.
    """

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
            values[fresh] = _checked([self.pairs[i] for i in fresh.tolist()], ranker)
            asked[fresh] = True
        return values[places]

    def column(self, ranker: Ranker) -> tuple[FloatArray, BoolArray]:
        """Return all a ranker said: scores (n,), NaN where it was not asked, and where it was asked (n,)."""
        empty = np.full(len(self.pairs), np.nan, np.float32), np.zeros(len(self.pairs), np.bool_)
        return self._given.get(id(ranker), empty)


def _checked(pairs: list[Pair], ranker: Ranker) -> FloatArray:
    scores = np.asarray(ranker.score(pairs), np.float32)
    if scores.shape != (len(pairs),):
        raise BadModel(
            f"the teacher was asked for {len(pairs)} scores and gave an array of shape {scores.shape}"
        )
    if (bad := np.flatnonzero(np.isnan(scores))).size:
        query, passage = pairs[int(bad[0])]
        raise BadModel(
            f'the teacher\'s score of passage {passage.index} of document "{passage.doc_id}" for query '
            f'"{query.id}" is not a number ({bad.size:,} of {len(pairs):,} pairs); its weights are damaged '
            "or overflow in this precision: use another copy, or fp32"
        )
    return scores


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


def probabilities(scores: FloatArray, scale: str) -> Doubles:
    """Carry scores (n,) to probabilities, or leave them raw where their scale has none: (n,) float64.

    logit: 1 / (1 + exp(-x)). logprob: exp(x). NaN stays NaN.

    Raises:
        BadModel: A score lies outside the scale that was declared.
    """
    values = scores.astype(np.float64)
    if scale == "logit":
        return np.asarray(np.exp(-np.logaddexp(0, -values)))
    if scale not in PROBABLE:
        return values
    low, high = (0.0, 1.0) if scale == "probability" else (-math.inf, 0.0)
    if (far := np.flatnonzero((values < low - _SLACK) | (values > high + _SLACK))).size:
        raise BadModel(
            f'the teacher declares scale "{scale}" but gave {values[far[0]]:g}, outside of '
            f'[{low:g}, {high:g}]; say the true scale, like taught("DIR", threshold=0.5, scale="logit")'
        )
    inside = np.clip(values, low, high)
    return inside if scale == "probability" else np.exp(inside)
