"""Learning from a teacher's scores, for every family: losses, and the scores as targets on one scale.

A student's scores are compared as what they stand for: probabilities and their logarithms as log-odds, a
bi-encoder's similarities divided by its temperature. The teacher's probabilities become log-odds too. Margins
and lists are then multiplied by a factor; where none is given, by the one that makes the scores of a query's
pairs differ by 2 (their standard deviation, root mean square over queries): cosines differ by a tenth and the
log-odds of a large cross-encoder by 5, and what is learned from either should not depend on that. Pointwise
losses need probabilities: scores that stand for none are calibrated on judged pairs (Platt 1999).

Scores also find false negatives before a training: the higher a negative stands in a run, the more it
teaches, and the more often it is relevant in truth. Moreira et al., "NV-Retriever" (2024), section 3: a
negative's score must stay below the relevant one's by a margin, or below a share of it.
Shapes: g lists of s pairs each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, NamedTuple, cast

import numpy as np
from torch import Tensor
from torch.nn import functional as F

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Ranker
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.scores import Doubles, base_of, convert, is_probable, numbers_only, one_each
from rankhouse.evaluation.calibration import fit_platt
from rankhouse.labels.soft_scores import JoinedTeachers, RunTeacher
from rankhouse.models.contract import Batch, Model, OddsModel, TemperedModel
from rankhouse.training.examples import NOT_RELEVANT, RELEVANT, UNJUDGED, Examples, IntArray


@dataclass(frozen=True)
class SoftLoss:
    """A loss between the scores of a student and of its teacher; make one with :func:`soft_loss`.

    Attributes:
        compare: (student (g, s), teacher (g, s)) -> ().
        least: Pairs of a query it needs side by side: 1 for pointwise losses.
        factor: Factor of the teacher's scores; 0: see :mod:`rankhouse.training.distillation`.
    """

    compare: Callable[[Tensor, Tensor], Tensor]
    least: int
    factor: float

    def __call__(self, student: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss, (). Args: as in ``compare``."""
        return self.compare(student.float(), teacher)


def margin_error(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared difference of margins, over all two pairs of a list: (g, s), (g, s) -> ().

    Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation" (2020), eq. 5; there a list is a relevant passage and another one; longer ones have more.
    """
    error = student - teacher
    # The mean square of all differences of two is twice their variance.
    return 2 * error.var(dim=1, correction=1).mean()


def list_divergence(student: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(student)), the mean over lists: (g, s), (g, s) -> ().

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (2007), top one probabilities;
    less the teacher's entropy, so that 0 is reached.
    """
    wanted, given = F.log_softmax(teacher, 1), F.log_softmax(student, 1)
    return F.kl_div(given, wanted, reduction="batchmean", log_target=True)


def cross_entropy(student: Tensor, teacher: Tensor) -> Tensor:
    """Return the cross-entropy of the teacher's probabilities, given as log-odds: (g, s), (g, s) -> ()."""
    return F.binary_cross_entropy_with_logits(student, teacher.sigmoid())


def _margin_mse(factor: float = 0.0) -> SoftLoss:
    return SoftLoss(margin_error, 2, _factor(factor))


def _listwise_kl(factor: float = 0.0, sharpness: float = 1.0) -> SoftLoss:
    if not 0 < sharpness < float("inf"):
        raise WrongUse(
            f"sharpness={sharpness}: scores are multiplied by a number above 0; the larger it is, the more "
            "the first places of a list count"
        )

    def compare(student: Tensor, teacher: Tensor) -> Tensor:
        return list_divergence(sharpness * student, sharpness * teacher)

    return SoftLoss(compare, 2, _factor(factor))


def _pointwise() -> SoftLoss:
    return SoftLoss(cross_entropy, 1, 1.0)


def _factor(factor: float) -> float:
    if not 0 <= factor < float("inf"):
        raise WrongUse(
            f"factor={factor}: the teacher's scores are multiplied by a number above 0, or by 0 for one that "
            "is measured"
        )
    return float(factor)


LOSSES: Final[dict[str, Callable[..., SoftLoss]]] = {
    "margin_mse": _margin_mse,
    "listwise_kl": _listwise_kl,
    "pointwise": _pointwise,
}
"""Name -> loss; a hyphen is as good as an underscore."""


def soft_loss(text: str) -> SoftLoss:
    """Return the loss that a text names: ``margin-mse``, ``listwise_kl(factor=15)``."""
    name, bracket, rest = text.partition("(")
    what, hyphened = "loss on a teacher's scores", {known.replace("_", "-"): known for known in LOSSES}
    known = notation.choose(name.strip().replace("_", "-"), hyphened, what)
    return notation.make(known + bracket + rest, LOSSES, what)


def comparable(model: Model[Any], batch: Batch) -> Tensor:
    """Return a model's scores (n,) as the losses compare them, with gradients: log-odds where it has them."""
    if isinstance(model, OddsModel):
        return model.log_odds(batch).float()
    scores: Tensor = cast(Any, model)(batch).float()
    return scores / model.temperature if isinstance(model, TemperedModel) else scores


class TeacherScores(NamedTuple):
    """Pairs that a teacher has scored, to measure by: (n,) each; labels are 1, 0, or -1 where unjudged."""

    query: IntArray
    score: FloatArray
    label: IntArray


class Targets(NamedTuple):
    """Turns scores into targets: log-odds where the scale has them, then slope * x + intercept."""

    scale: str
    slope: float = 1.0
    intercept: float = 0.0

    def __call__(self, scores: FloatArray) -> FloatArray:
        """Return the targets of scores of any shape."""
        return (self.slope * log_odds(scores, self.scale) + self.intercept).astype(np.float32)


def log_odds(scores: FloatArray, scale: str) -> Doubles:
    """Return scores as log-odds where their scale has them, else as they are."""
    values = scores.astype(np.float64)
    return convert(values, scale, "logit") if is_probable(scale) else values


def targets_for(loss: SoftLoss, scale: str, pairs: TeacherScores) -> Targets:
    """Measure how scores become targets.

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
    return Targets(scale, loss.factor or 2.0 / spread)


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


# --- scores given before a training ---------------------------------------------------------------------


Bound = Callable[[FloatArray], FloatArray]
"""The score of the relevant passage -> the highest that a negative may have."""


def _margin(margin: float) -> Bound:
    if margin < 0:
        raise WrongUse(f"margin({margin:g}): how far below the relevant one's score, from 0 up")
    return lambda scores: scores - np.float32(margin)


def _share(share: float = 0.95) -> Bound:
    if not 0 < share <= 1:
        raise WrongUse(f"share({share:g}): of the relevant one's score, above 0 and at most 1")
    return lambda scores: scores * np.float32(share)


DENOISERS: Final[dict[str, Callable[..., Bound]]] = {"margin": _margin, "share": _share}
"""Name -> bound: ``margin(0.1)`` below the relevant passage's score, or ``share(0.95)`` of it."""


class DenoiseResult(NamedTuple):
    """Examples without false negatives."""

    examples: Examples  # what is left
    removed: int  # negatives that the teacher likes too much
    negatives: int  # how many there were


def denoise(examples: Examples, bound: Bound) -> DenoiseResult:
    """Leave out negatives that a teacher puts near or above the relevant passage of their query.

    Of several relevant passages the one that the teacher likes least counts, since it is relevant too. Where
    no relevant passage has a score, the query keeps its negatives.

    Raises:
        BadData: There are neither scores nor a teacher.
        BadModel: The teacher gave something that is no score.
    """
    scores = _scores(examples)
    least = np.full(len(examples.queries), np.inf, np.float32)
    relevant = (examples.label == RELEVANT) & ~np.isnan(scores)
    np.minimum.at(least, examples.query[relevant], scores[relevant])
    negative = (examples.label == NOT_RELEVANT) | (examples.label == UNJUDGED)
    known = negative & ~np.isnan(scores) & np.isfinite(least[examples.query])
    false = known & (np.nan_to_num(scores) > bound(least)[examples.query])
    return DenoiseResult(examples.take(np.flatnonzero(~false)), int(false.sum()), int(negative.sum()))


def _scores(examples: Examples) -> FloatArray:
    """Return the scores of all examples, (n,); NaN where nobody gives one."""
    if examples.score is None and examples.teacher is None:
        raise BadData(
            "false negatives are found by a teacher's scores, and there are none; give a teacher, or pairs "
            "with scores as  rankhouse label --scores  writes them"
        )
    examples.check_scale()
    n = len(examples)
    scores = np.full(n, np.nan, np.float32) if examples.score is None else examples.score.copy()
    if examples.teacher is None:
        return scores
    missing = np.flatnonzero(np.isnan(scores))
    for start in range(0, len(missing), 4096):
        rows = missing[start : start + 4096]
        scores[rows] = ask_teacher(examples.teacher, examples.pairs(rows))
    return scores


def ask_teacher(teacher: Ranker, pairs: Sequence[Pair]) -> FloatArray:
    """Score n pairs, (n,); what is no score is the teacher's fault (BadModel)."""
    return numbers_only(one_each(len(pairs), teacher.score(pairs)), pairs)


def with_scores(
    examples: Examples, teacher: JoinedTeachers | RunTeacher, progress: Progress = ignore
) -> Examples:
    """Return examples with the scores of a run, or of several teachers joined over each query's pairs.

    Pairs of queries that no teacher knows, and pairs with a blank text, have none.

    Raises:
        WrongUse: The pairs have scores already.
        BadModel: A teacher gave something that is no score.
    """
    if examples.score is not None:
        raise WrongUse(
            "the pairs have a teacher's scores already, and what a run or several teachers say cannot be "
            "added to them; label with all of them (rankhouse label --scores), or give pairs without scores"
        )
    scores, done = np.full(len(examples), np.nan, np.float32), 0
    for rows in _portions(examples):
        progress(done, len(examples))
        pairs = examples.pairs(rows)
        known = [
            place
            for place, (query, passage) in enumerate(pairs)
            if teacher.knows(query.id) and query.text.strip() and passage.text.strip()
        ]
        if known:
            scores[rows[known]] = ask_teacher(teacher, [pairs[place] for place in known])
        done += len(rows)
    return replace(examples, score=scores, scale=teacher.scale)


def _portions(examples: Examples) -> Iterator[IntArray]:
    """Cut the rows into portions of whole queries, of about 4,096 rows."""
    begin = 0
    for end in [*np.flatnonzero(np.diff(examples.query)) + 1, len(examples)]:
        if end - begin >= 4096 or end == len(examples):
            yield np.arange(begin, end)
            begin = int(end)
