"""A teacher's scores: how they lie, and whether its probabilities come true."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.reliability import BINS, Reliability, bin_of, bin_sums
from rankhouse.core.scores import Doubles, is_probable, probabilities
from rankhouse.labels.leaf_rules import TeacherRule
from rankhouse.labels.votes import ASKED, JUDGE, TRUTH, Votes

_HISTOGRAM_BINS: Final = 20


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
    """Count a teacher's scores by their height."""
    lowest = min((float(v.min()) for v, _ in _blocks(teacher, votes, reference) if len(v)), default=math.nan)
    highest = max((float(v.max()) for v, _ in _blocks(teacher, votes, reference) if len(v)), default=math.nan)
    low, high = (0.0, 1.0) if is_probable(teacher.score_scale) else _finite(lowest, highest)
    counts = np.zeros((2, _HISTOGRAM_BINS), np.int64)
    for values, yes in _blocks(teacher, votes, reference):
        places = bin_of(values, low, high, _HISTOGRAM_BINS)
        for row, chosen in enumerate((~yes, yes)):
            counts[row] += np.bincount(places[chosen], minlength=_HISTOGRAM_BINS)
    return Histogram(
        "probability" if is_probable(teacher.score_scale) else teacher.score_scale,
        tuple(np.linspace(low, high, _HISTOGRAM_BINS + 1).tolist()),
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


def calibration(teacher: TeacherRule, votes: Votes, reference: str) -> Reliability | None:
    """Compare a teacher's probabilities with what came true.

    Returns:
        None unless it gives probabilities and was asked about both kinds of pairs.
    """
    if not is_probable(teacher.score_scale) or not reference:
        return None
    sums = sum((bin_sums(*block) for block in _blocks(teacher, votes, reference)), np.zeros((3, BINS)))
    pairs, hits = sums[:2].sum(1)
    # all yes or all no: nothing to come true
    return Reliability.of(sums, reference) if 0 < hits < pairs else None
