"""Which batches a training takes: on labels, on a teacher's scores, or both side by side."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, count, islice

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.training.batches import Batches
from rankhouse.training.crossed_batches import CrossedBatches
from rankhouse.training.denoising import DENOISERS, denoise
from rankhouse.training.examples import Examples
from rankhouse.training.groups import Shape, Task
from rankhouse.training.settings import Settings
from rankhouse.training.soft_batches import SoftBatches
from rankhouse.training.soft_losses import soft_loss


class MixedBatches:
    """Batches on scores, each beside one on judgements.

    Args:
        soft: Those on scores; an epoch is theirs.
        share: What the loss on judgements counts, between 0 and 1.
    """

    def __init__(self, soft: SoftBatches | CrossedBatches, judged: Batches, share: float) -> None:
        self.soft, self.judged, self._share = soft, judged, share
        self.examples, self.shape = soft.examples, soft.shape
        self.without_relevant, self.without_negatives = judged.without_relevant, judged.without_negatives
        self.false_negatives, self.negatives = judged.false_negatives, judged.negatives

    @property
    def per_epoch(self) -> int:
        """How many batches an epoch has."""
        return self.soft.per_epoch

    def plan(self, number: int) -> Iterator[list[Task]]:
        """Plan an epoch as steps, each of two tasks: a batch on scores and one on judgements."""
        first, size = number * self.soft.per_epoch, max(1, self.judged.per_epoch)
        epochs = (self.judged.epoch(first // size + more) for more in count())
        judged = islice(chain.from_iterable(epochs), first % size, None)
        for soft, hard in zip(self.soft.epoch(number), judged, strict=False):
            yield [Task(self.soft.read, soft, 1 - self._share), Task(self.judged.read, hard, self._share)]


AnyBatches = Batches | SoftBatches | CrossedBatches | MixedBatches


def batches_for(examples: Examples, shape: Shape, settings: Settings) -> AnyBatches:
    """Return the batches that a training takes: on labels, on a teacher's scores, or on both.

    Raises:
        BadData: Nothing to learn from.
        WrongUse: A teacher without a loss that learns from it.
    """
    if not settings.loss:
        if examples.teacher is not None and not settings.denoise:
            raise WrongUse('a teacher\'s scores are learned by a loss: give loss="margin-mse" or another one')
        return _judged(examples, shape, settings)
    kind = CrossedBatches if settings.crossed else SoftBatches
    soft = kind(examples, shape, soft_loss(settings.loss))
    return (
        MixedBatches(soft, _judged(examples, shape, settings), settings.judged) if settings.judged else soft
    )


def _judged(examples: Examples, shape: Shape, settings: Settings) -> Batches:
    """Return batches on labels, without false negatives if that is wanted."""
    if not settings.denoise:
        return Batches(examples, shape)
    done = denoise(examples, notation.make(settings.denoise, DENOISERS, "bound of negatives"))
    batches = Batches(done.examples, shape)
    batches.false_negatives, batches.negatives = done.removed, done.negatives
    return batches
