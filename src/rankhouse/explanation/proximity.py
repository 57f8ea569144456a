"""How close together, and how early, the words of a query stand in a text: what PROX1 to PROX5 compare.

Positions count the terms that an index keeps of a text, from 0, stop words left out. Words of a query that a
text does not hold are passed over; axioms compare texts that hold the same ones. Nothing here is slower than
occurrences × query words, so that a text of 100,000 words takes milliseconds.

Hagen, Völske, Göring, Stein, "Axiomatic Result Re-Ranking", CIKM 2016, on Tao, Zhai, SIGIR 2007.
"""

from __future__ import annotations

import math
from itertools import combinations
from typing import NamedTuple

import numpy as np

from rankhouse.core.run import IntArray


class Proximity(NamedTuple):
    """How close together a query stands in one text; infinite where there is nothing to measure.

    Attributes:
        distance: Terms between two query words, averaged over their occurrences, then over pairs of words.
        first: Sum of the places where each query word comes first.
        phrase: Where the query stands word by word for the first time.
        gap: Fewest other words inside a group of all the query words that the text holds.
        groups: How many groups have that few.
        span: Width of such a group, averaged over all of them.
    """

    distance: float = math.inf
    first: float = math.inf
    phrase: float = math.inf
    gap: float = math.inf
    groups: float = 0.0
    span: float = math.inf


def measure(text: IntArray, query: IntArray) -> Proximity:
    """Measure how close together the words of a query stand in a text."""
    words = np.unique(query)
    places = [np.flatnonzero(text == word) for word in words.tolist()]
    held = [place for place in places if len(place)]
    if len(held) < 2:
        return Proximity()
    pairs = [_distance(one, other) for one, other in combinations(held, 2)]
    low, high = _groups(held)
    is_query = np.zeros(len(text) + 1, np.int64)
    is_query[1:] = np.cumsum(np.isin(text, words))
    others = high - low + 1 - (is_query[high + 1] - is_query[low])
    return Proximity(
        distance=math.fsum(pairs) / len(pairs),
        first=float(sum(int(place[0]) for place in held)),
        phrase=_phrase(text, query),
        gap=float(others.min()),
        groups=float((others == others.min()).sum()),
        span=float((high - low).mean()),
    )


def _distance(one: IntArray, other: IntArray) -> float:
    """Return how many terms stand between two words, averaged over all pairs of their occurrences."""
    before = np.searchsorted(other, one)  # of each place of the first word: how often the other came before
    sums = np.concatenate([[0], np.cumsum(other)])
    apart = one * before - sums[before] + (sums[-1] - sums[before]) - one * (len(other) - before)
    return float(apart.sum()) / (len(one) * len(other)) - 1


def _groups(held: list[IntArray]) -> tuple[IntArray, IntArray]:
    """Group each occurrence with the nearest of every other word: lowest and highest place of each group."""
    every = np.concatenate(held)
    low, high = every.copy(), every.copy()
    for places in held:
        after = np.searchsorted(places, every)
        left, right = places[np.maximum(after - 1, 0)], places[np.minimum(after, len(places) - 1)]
        nearest = np.where(np.abs(right - every) < np.abs(every - left), right, left)
        low, high = np.minimum(low, nearest), np.maximum(high, nearest)
    return low, high


def _phrase(text: IntArray, query: IntArray) -> float:
    """Return where a text contains the query as a phrase, or infinity."""
    starts = np.flatnonzero(text[: max(0, len(text) - len(query) + 1)] == query[0])
    for offset, word in enumerate(query[1:].tolist(), 1):
        starts = starts[text[starts + offset] == word]
    return float(starts[0]) if len(starts) else math.inf
