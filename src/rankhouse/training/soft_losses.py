"""Losses that learn from a teacher's scores, for every family; shapes: g lists of s pairs each.

A pupil's scores are compared as what they stand for: probabilities and their logarithms as log-odds, a
bi-encoder's similarities divided by its temperature.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, cast

from torch import Tensor
from torch.nn import functional as F

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.models.contract import Model, OddsModel, TemperedModel
from rankhouse.models.engine import Batch


@dataclass(frozen=True)
class SoftLoss:
    """A loss between the scores of a pupil and of its teacher; make one with :func:`soft_loss`.

    Attributes:
        compare: (pupil (g, s), teacher (g, s)) -> ().
        least: Pairs of a query it needs side by side: 1 for pointwise losses.
        factor: What the teacher's scores are multiplied by; 0: see :mod:`rankhouse.training.soft_targets`.
    """

    compare: Callable[[Tensor, Tensor], Tensor]
    least: int
    factor: float

    def __call__(self, pupil: Tensor, teacher: Tensor) -> Tensor:
        """Return the loss, (). Args: as in ``compare``."""
        return self.compare(pupil.float(), teacher)


def margin_error(pupil: Tensor, teacher: Tensor) -> Tensor:
    """Return the mean squared difference of margins, over all two pairs of a list: (g, s), (g, s) -> ().

    Hofstätter et al., "Improving Efficient Neural Ranking Models with Cross-Architecture Knowledge
    Distillation" (2020), eq. 5; there a list is a relevant passage and another one; longer ones have more.

    Args:
        pupil: Its scores.
        teacher: Its scores.
    """
    error = pupil - teacher
    # The mean square of all differences of two is twice their variance.
    return 2 * error.var(dim=1, correction=1).mean()


def list_divergence(pupil: Tensor, teacher: Tensor) -> Tensor:
    """Return KL(softmax(teacher) || softmax(pupil)), the mean over lists: (g, s), (g, s) -> ().

    Cao et al., "Learning to Rank: From Pairwise Approach to Listwise Approach" (2007), top one probabilities;
    less the teacher's entropy, so that 0 is reached.

    Args:
        pupil: Its scores.
        teacher: Its scores.
    """
    wanted, given = F.log_softmax(teacher, 1), F.log_softmax(pupil, 1)
    return F.kl_div(given, wanted, reduction="batchmean", log_target=True)


def cross_entropy(pupil: Tensor, teacher: Tensor) -> Tensor:
    """Return the cross-entropy of the teacher's probabilities, given as log-odds: (g, s), (g, s) -> ().

    Args:
        pupil: Its log-odds.
        teacher: Its log-odds.
    """
    return F.binary_cross_entropy_with_logits(pupil, teacher.sigmoid())


def _margin_mse(factor: float = 0.0) -> SoftLoss:
    return SoftLoss(margin_error, 2, _factor(factor))


def _listwise_kl(factor: float = 0.0) -> SoftLoss:
    return SoftLoss(list_divergence, 2, _factor(factor))


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
    """Return the loss that a text names: ``margin-mse``, ``listwise_kl(factor=15)``.

    Raises:
        WrongUse: An unknown loss, or an argument that it does not take.
    """
    name, bracket, rest = text.partition("(")
    return notation.make(name.replace("-", "_") + bracket + rest, LOSSES, "loss on a teacher's scores")


def comparable(model: Model[Any], batch: Batch) -> Tensor:
    """Return a model's scores (n,) as the losses compare them, with gradients: log-odds where it has them.

    Args:
        model: Whose scores.
        batch: n pairs of it.
    """
    if isinstance(model, OddsModel):
        return model.log_odds(batch).float()
    scores: Tensor = cast(Any, model)(batch).float()
    return scores / model.temperature if isinstance(model, TemperedModel) else scores
