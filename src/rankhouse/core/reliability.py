"""Whether probabilities come true: predicted against observed shares, bin by bin.

expected calibration error = sum over bins of n_bin / n * |mean probability - share of yes|
"""

from __future__ import annotations

import math
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.scores import Doubles

BINS: Final = 10


class Reliability(NamedTuple):
    """Predicted probabilities against what came true, in tenths.

    Attributes:
        reference: By whose word: "truth", "judge", "judgements".
        pairs: (bins,) how many pairs lie in each tenth.
        predicted: (bins,) their mean probability; NaN without pairs.
        observed: (bins,) their share of yes; NaN without pairs.
    """

    reference: str
    pairs: tuple[int, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @classmethod
    def of(cls, sums: Doubles, reference: str) -> Self:
        """Make it of sums of bins.

        Args:
            sums: (3, bins), of :func:`bin_sums`; those of parts may be added.
            reference: By whose word.
        """
        pairs, hits, predicted = sums
        with np.errstate(invalid="ignore"):
            shares = (predicted / pairs).tolist(), (hits / pairs).tolist()
        return cls(reference, tuple(pairs.astype(np.int64).tolist()), *map(tuple, shares))

    @property
    def error(self) -> float:
        """Expected calibration error, from 0 to 1."""
        gaps = [
            n * abs(p - o) for n, p, o in zip(self.pairs, self.predicted, self.observed, strict=True) if n
        ]
        return math.fsum(gaps) / sum(self.pairs)


def bin_sums(probabilities: Doubles, yes: NDArray[np.bool_]) -> Doubles:
    """Sum n pairs up in tenths of probability: pairs, those of yes, probabilities; (3, bins)."""
    places = bin_of(probabilities, 0.0, 1.0, BINS)
    weights = (None, yes.astype(np.float64), probabilities)
    return np.stack([np.bincount(places, weight, BINS).astype(np.float64) for weight in weights])


def bin_of(values: Doubles, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Number the bin of each of n values: (n,); what lies outside goes into the first or the last.

    Args:
        values: (n,).
        low: Where the first bin begins.
        high: Where the last one ends.
        bins: How many of equal width.
    """
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.floor(np.nan_to_num((values - low) / (high - low) * bins))
    return np.clip(places, 0, bins - 1).astype(np.int64)
