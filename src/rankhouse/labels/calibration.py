"""A teacher's scores: how they lie, and whether its probabilities come true.

expected calibration error = sum over bins of n_bin / n * |mean probability - share of yes|
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.scores import PROBABLE, Doubles, probabilities
from rankhouse.labels.leaf_rules import TeacherRule
from rankhouse.labels.votes import ASKED, JUDGE, TRUTH, Votes

BINS: Final = 20
_CALIBRATION_BINS: Final = 10


class Histogram(NamedTuple):
    """The teacher's scores of the pairs it was asked about.

    Attributes:
        scale: "probability", or the raw scale of the scores.
        edges: (bins + 1,) borders.
        yes: (bins,) pairs that the reference calls relevant.
        no: (bins,) the others.
        reference: Who tells them apart: "truth", "judge", or "" where nobody does and all are in ``no``.
        threshold: Where the teacher's yes begins.
        lowest: The lowest score it gave, on this scale; NaN where it was never asked.
        highest: The highest.
    """

    scale: str
    edges: tuple[float, ...]
    yes: tuple[int, ...]
    no: tuple[int, ...]
    reference: str
    threshold: float
    lowest: float
    highest: float


class Calibration(NamedTuple):
    """Whether the teacher's probabilities come true.

    Attributes:
        reference: By whose word: "truth" or "judge".
        pairs: (bins,) how many pairs lie in each tenth.
        predicted: (bins,) their mean probability; NaN without pairs.
        observed: (bins,) their share of yes; NaN without pairs.
    """

    reference: str
    pairs: tuple[int, ...]
    predicted: tuple[float, ...]
    observed: tuple[float, ...]

    @property
    def error(self) -> float:
        """Expected calibration error, from 0 to 1."""
        gaps = [
            n * abs(p - o) for n, p, o in zip(self.pairs, self.predicted, self.observed, strict=True) if n
        ]
        return math.fsum(gaps) / sum(self.pairs)


def _blocks(
    teacher: TeacherRule, votes: Votes, reference: str
) -> Iterator[tuple[Doubles, NDArray[np.bool_]]]:
    """Stream what the teacher read: probabilities or raw scores (m,), and the reference's yes (m,)."""
    bit = {"truth": TRUTH, "judge": JUDGE, "": 0}[reference]
    for block in votes.blocks():
        asked = (block.marks & ASKED) > 0
        values = probabilities(np.asarray(block.scores[asked]), teacher.score_scale)
        yield values, (block.marks[asked] & bit) > 0


def histogram(teacher: TeacherRule, votes: Votes, reference: str) -> Histogram:
    """Count a teacher's scores by their height.

    Args:
        teacher: Whose scores.
        votes: With the scores.
        reference: Who tells relevant pairs from others: "truth", "judge" or "".
    """
    lowest = min((float(v.min()) for v, _ in _blocks(teacher, votes, reference) if len(v)), default=math.nan)
    highest = max((float(v.max()) for v, _ in _blocks(teacher, votes, reference) if len(v)), default=math.nan)
    low, high = (0.0, 1.0) if teacher.score_scale in PROBABLE else _finite(lowest, highest)
    counts = np.zeros((2, BINS), np.int64)
    for values, yes in _blocks(teacher, votes, reference):
        places = _bin(values, low, high, BINS)
        for row, chosen in enumerate((~yes, yes)):
            counts[row] += np.bincount(places[chosen], minlength=BINS)
    return Histogram(
        "probability" if teacher.score_scale in PROBABLE else teacher.score_scale,
        tuple(np.linspace(low, high, BINS + 1).tolist()),
        tuple(counts[1].tolist()),
        tuple(counts[0].tolist()),
        reference,
        teacher.threshold,
        lowest,
        highest,
    )


def _finite(lowest: float, highest: float) -> tuple[float, float]:
    """Return borders for raw scores; infinite ones go into the outer bins of what lies within +-1e6."""
    low = max(-1e6, lowest) if not math.isnan(lowest) else 0.0
    high = min(1e6, highest) if not math.isnan(highest) else 1.0
    return (low, high) if high > low else (low, low + 1.0)


def calibration(teacher: TeacherRule, votes: Votes, reference: str) -> Calibration | None:
    """Compare a teacher's probabilities with what came true.

    Args:
        teacher: Whose probabilities.
        votes: With the scores.
        reference: By whose word: "truth", "judge" or "".

    Returns:
        None unless it gives probabilities and was asked about both kinds of pairs.
    """
    if teacher.score_scale not in PROBABLE or not reference:
        return None
    pairs, hits, sums = (np.zeros(_CALIBRATION_BINS) for _ in range(3))
    for values, yes in _blocks(teacher, votes, reference):
        places = _bin(values, 0.0, 1.0, _CALIBRATION_BINS)
        pairs += np.bincount(places, minlength=_CALIBRATION_BINS)
        hits += np.bincount(places[yes], minlength=_CALIBRATION_BINS)
        sums += np.bincount(places, values, _CALIBRATION_BINS)
    if not 0 < hits.sum() < pairs.sum():
        return None  # all yes or all no: nothing to come true
    with np.errstate(invalid="ignore"):
        return Calibration(
            reference,
            tuple(pairs.astype(np.int64).tolist()),
            tuple((sums / pairs).tolist()),
            tuple((hits / pairs).tolist()),
        )


def _bin(values: Doubles, low: float, high: float, bins: int) -> NDArray[np.int64]:
    """Number the bin of each value; what lies outside goes into the first or the last."""
    with np.errstate(invalid="ignore", over="ignore"):
        places = np.floor(np.nan_to_num((values - low) / (high - low) * bins))
    return np.clip(places, 0, bins - 1).astype(np.int64)
