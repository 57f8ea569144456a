"""From a teacher's scores to what a pupil is compared with: one scale, one size.

Probabilities and their logarithms become log-odds. Margins and lists are then multiplied by a factor; where
none is given, by the one that makes the scores of a query's pairs differ by 2 (their standard deviation, root
mean square over queries): cosines differ by a tenth and the log-odds of a large cross-encoder by 5, and what
is learned from either should not depend on that. Pointwise losses need probabilities: scores that stand for
none are calibrated on judged pairs (Platt 1999).
"""

from __future__ import annotations

from typing import Final, NamedTuple

import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray
from rankhouse.core.scores import Doubles, base_of, convert, is_probable
from rankhouse.evaluation.calibration import fit_platt
from rankhouse.training.negatives import RELEVANT, UNJUDGED, IntArray
from rankhouse.training.soft_losses import SoftLoss

WANTED_SPREAD: Final = 2.0


class ScoredPairs(NamedTuple):
    """Pairs that a teacher has scored, to measure by: the rows of n.

    Attributes:
        query: (n,) whose pair.
        score: (n,) the teacher's scores.
        label: (n,) 1, 0, or -1 where nobody judged.
    """

    query: IntArray
    score: FloatArray
    label: IntArray


class Targets(NamedTuple):
    """Turns scores into targets: log-odds where the scale has them, then slope * x + intercept.

    Attributes:
        scale: Of the scores.
        slope: What they are multiplied by.
        intercept: What is added.
    """

    scale: str
    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, scores: FloatArray) -> FloatArray:
        """Return the targets of scores of any shape."""
        return (self.slope * log_odds(scores, self.scale) + self.intercept).astype(np.float32)


def log_odds(scores: FloatArray, scale: str) -> Doubles:
    """Return scores as log-odds where their scale has them, else as they are.

    Args:
        scores: Of any shape.
        scale: Their scale.
    """
    values = scores.astype(np.float64)
    return convert(values, scale, "logit") if is_probable(scale) else values


def targets_for(loss: SoftLoss, scale: str, pairs: ScoredPairs) -> Targets:
    """Measure how scores become targets.

    Args:
        loss: What compares them.
        scale: The scale of the scores.
        pairs: Some that were scored.

    Raises:
        BadData: All pairs of each query have one score, so there is no order to learn.
        WrongUse: A pointwise loss on scores that are no probabilities, without judged pairs of both kinds.
    """
    if loss.least == 1:
        if is_probable(scale):
            return Targets(scale)
        return Targets(scale, *_platt(log_odds(pairs.score, scale), pairs.label))
    scale = base_of(scale)  # a fitted curve may put scores that differ at one probability
    values = log_odds(pairs.score, scale)
    spread = _spread(pairs.query, values)
    if not spread > 0:
        raise BadData(
            f"the teacher gives all pairs of each of {len(np.unique(pairs.query)):,} queries one score: "
            "there is no order to learn from"
        )
    return Targets(scale, loss.factor or WANTED_SPREAD / spread)


def _spread(query: IntArray, values: Doubles) -> float:
    """Return the root mean square over queries of the standard deviation of their values."""
    _, place, size = np.unique(query, return_inverse=True, return_counts=True)
    means = np.bincount(place, values) / size
    variances = np.bincount(place, (values - means[place]) ** 2) / size
    return float(np.sqrt(variances.mean()))


def _platt(values: Doubles, label: IntArray) -> tuple[float, float]:
    """Fit P(relevant) = 1 / (1 + exp(-(slope x + intercept))) to judged pairs, labels smoothed."""
    judged = label != UNJUDGED
    x, y = values[judged], label[judged] == RELEVANT
    right, wrong = int(y.sum()), int((~y).sum())
    if not right or not wrong:
        raise WrongUse(
            "the pointwise loss needs probabilities, and the teacher's scores stand for none; judged pairs "
            f"would calibrate them, and there are {right:,} relevant and {wrong:,} other ones with a "
            "score: give some of both, or take  --loss margin-mse  or  --loss listwise-kl"
        )
    return fit_platt(x, y)
