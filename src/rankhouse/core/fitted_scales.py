"""Scales fitted on judged pairs: which share of the pairs with a score was relevant.

| notation | a score x stands for the probability |
|---|---|
| ``platt(a, b)`` | 1 / (1 + exp(-(a x + b))), a > 0 (Platt 1999) |
| ``isotonic((x1, p1), (x2, p2), ...)`` | p on the line between the knots; p1 below them, the last p above |

``of`` names the scale of the ranker's own numbers; where these stand for probabilities already, x is their
log-odds. The numbers themselves, and so every order, stay as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import make, write

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


Doubles = NDArray[np.float64]


@dataclass(frozen=True)
class Platt:
    """A logistic curve over scores.

    Attributes:
        slope: Of the log-odds; above 0.
        intercept: Log-odds at x = 0.
        of: The scale of the ranker's own numbers.
    """

    slope: float
    intercept: float
    of: str = "score"

    def __post_init__(self) -> None:
        if not (math.isfinite(self.slope) and self.slope > 0 and math.isfinite(self.intercept)):
            raise WrongUse(f"{self}: the slope must be above 0, and both numbers finite")

    def probabilities(self, x: Doubles) -> Doubles:
        """Return the probabilities that x, (n,), stand for: (n,); NaN stays NaN."""
        return np.asarray(np.exp(-np.logaddexp(0, -(self.slope * x + self.intercept))))

    def __str__(self) -> str:
        return write("platt", self.slope, self.intercept, **_base(self.of))


@dataclass(frozen=True)
class Isotonic:
    """Straight lines between knots that rise from left to right.

    Attributes:
        knots: (x, probability), both rising.
        of: The scale of the ranker's own numbers.
    """

    knots: tuple[tuple[float, float], ...]
    of: str = "score"
    _lines: tuple[Doubles, Doubles] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        try:
            x, p = np.array(self.knots, np.float64).reshape(-1, 2).T
        except (TypeError, ValueError):
            x = p = np.empty(0)
        rises = (np.diff(x) > 0).all() and (np.diff(p) > 0).all()
        if len(x) < 2 or not rises or not np.isfinite(x).all() or not (p[0] >= 0 and p[-1] <= 1):
            raise WrongUse(
                f"{self}: write two knots or more, (score, probability), both rising, the probabilities from "
                "0 to 1"
            )
        object.__setattr__(self, "_lines", (x, p))

    def probabilities(self, x: Doubles) -> Doubles:
        """Return the probabilities that x, (n,), stand for: (n,); NaN stays NaN."""
        return np.asarray(np.interp(x, *self._lines))

    def __str__(self) -> str:
        return write("isotonic", *self.knots, **_base(self.of))


def _base(of: str) -> dict[str, str]:
    return {} if of == "score" else {"of": of}


FittedScale = Platt | Isotonic
"""A way from scores to probabilities; its text is its notation."""


def _isotonic(*knots: tuple[float, float], of: str = "score") -> FittedScale:
    return Isotonic(knots, of)


FITTED: dict[str, Callable[..., FittedScale]] = {"platt": Platt, "isotonic": _isotonic}
"""Notation of a fitted scale -> what makes it."""


@lru_cache(maxsize=64)
def read_fitted(scale: str) -> FittedScale | None:
    """Return the fitted scale that a scale's text writes; None for a scale that is only a name.

    Raises:
        WrongUse: It is written like one, and is none.
    """
    return make(scale, FITTED, "fitted scale") if "(" in scale else None
