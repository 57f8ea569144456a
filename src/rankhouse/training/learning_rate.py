"""How the learning rate changes while training: pure functions of where training stands.

A schedule keeps nothing, so a resumed training has the same rates as an unbroken one: what a plateau needs
to know, all validations so far, is part of the moment.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from rankhouse.core.errors import WrongUse


class Moment(NamedTuple):
    """Where training stands when a step is about to be taken.

    Attributes:
        step: Steps taken so far.
        steps: Steps that all epochs will have.
        epoch: Epochs finished so far.
        validations: Values of all validations so far, higher is better.
    """

    step: int
    steps: int
    epoch: int
    validations: Sequence[float] = ()


Schedule = Callable[[Moment], float]
"""From a moment to the factor, 0 to 1, by which every group's learning rate is multiplied."""


def _warm(moment: Moment, steps: int) -> float:
    return min(1.0, (moment.step + 1) / steps) if steps else 1.0


def _check_warmup(warmup: float) -> None:
    if warmup < 0 or (warmup >= 1 and warmup != int(warmup)):
        raise WrongUse(f"warmup={warmup}: give a share of all steps (0 to 1) or a whole number of steps")


def _in_steps(warmup: float, steps: int) -> int:
    """A share of all steps, or a number of steps."""
    return round(warmup * steps) if warmup < 1 else int(warmup)


@dataclass(frozen=True)
class Constant:
    """``constant(warmup=0)``: the same rate all the time, after rising to it.

    Attributes:
        warmup: Share of all steps (below 1) or number of steps.
    """

    warmup: float = 0.0

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)

    def __call__(self, moment: Moment) -> float:
        """Return the factor of this step."""
        return _warm(moment, _in_steps(self.warmup, moment.steps))


@dataclass(frozen=True)
class Linear:
    """``linear(warmup=0.1)``: up to the rate in equal steps, then down towards 0 at the end.

    No step has rate 0: the first is 1/warmup, the last 1/(steps - warmup).

    Attributes:
        warmup: Share of all steps (below 1) or number of steps.
    """

    warmup: float = 0.1

    def __post_init__(self) -> None:
        _check_warmup(self.warmup)

    def __call__(self, moment: Moment) -> float:
        """Return the factor of this step."""
        rising = min(_in_steps(self.warmup, moment.steps), moment.steps)
        if moment.step < rising:
            return _warm(moment, rising)
        return max(0.0, (moment.steps - moment.step) / max(1, moment.steps - rising))


@dataclass(frozen=True)
class Step:
    """``step(every=5, factor=0.75)``: times ``factor`` after every so many epochs."""

    every: int
    factor: float

    def __post_init__(self) -> None:
        if self.every < 1 or not 0 < self.factor <= 1:
            raise WrongUse(
                f"step(every={self.every}, factor={self.factor}): every counts epochs from 1, "
                "the factor is above 0 and at most 1"
            )

    def __call__(self, moment: Moment) -> float:
        """Return the factor of this step."""
        return float(self.factor ** (moment.epoch // self.every))


@dataclass(frozen=True)
class Plateau:
    """``plateau(factor=0.5, patience=10)``: times ``factor`` when validation has not risen for a while.

    As torch's ReduceLROnPlateau in mode "max": the rate falls at the validation after ``patience`` ones
    that brought nothing, and the count begins anew.

    Attributes:
        factor: What the rate is multiplied by.
        patience: Validations without a gain that are let pass.
        gain: A validation counts as better when it is higher by more than this.
    """

    factor: float = 0.5
    patience: int = 10
    gain: float = 0.0

    def __post_init__(self) -> None:
        if not 0 < self.factor < 1 or self.patience < 0 or self.gain < 0:
            raise WrongUse(
                f"plateau(factor={self.factor}, patience={self.patience}, gain={self.gain}): the factor is "
                "between 0 and 1, patience and gain are 0 or more"
            )

    def __call__(self, moment: Moment) -> float:
        """Return the factor of this step."""
        best, waited, falls = float("-inf"), 0, 0
        for value in moment.validations:
            if value > best + self.gain:
                best, waited = value, 0
            else:
                waited += 1
            if waited > self.patience:
                falls, waited = falls + 1, 0
        return float(self.factor**falls)


SCHEDULES: dict[str, Callable[..., Schedule]] = {
    "constant": Constant,
    "linear": Linear,
    "step": Step,
    "plateau": Plateau,
}
"""Name -> what makes the schedule; see ``core.notation``."""
