"""The curve of a training as it grows: losses, validations, and what the first stage is worth."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from rankhouse.training.log import Entry

WIDTH, HEIGHT = 640, 220
LEFT, RIGHT, TOP, BOTTOM = 44, 60, 14, 26
_MOST_POINTS = 300


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    at: float
    text: str


class Curve(NamedTuple):
    """What a template draws, in units of its picture.

    Attributes:
        loss: Points of the loss, "x,y x,y ...".
        value: Points of the validations.
        dots: The same, one by one.
        first: How high the first stage's line is; None without validations.
        steps: Of the axis below.
        losses: Of the axis on the left.
        values: Of the axis on the right.
        sentence: The curve in words.
        measure: What validations measure; "" without any.
    """

    loss: str
    value: str
    dots: tuple[tuple[float, float], ...]
    first: float | None
    steps: tuple[Tick, ...]
    losses: tuple[Tick, ...]
    values: tuple[Tick, ...]
    sentence: str
    measure: str


class _Scale(NamedTuple):
    """Maps numbers between two to a stretch of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        share = (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, form: str) -> tuple[Tick, ...]:
        """Return the two ends, or the one number there is."""
        return tuple(Tick(self(n), format(n, form)) for n in dict.fromkeys((self.low, self.high)))


def curve_of(log: Sequence[Entry]) -> Curve | None:
    """Return the curve of a log; None where it has nothing to draw."""
    losses = [(entry["step"], entry["loss"]) for entry in log if "loss" in entry]
    checks = [entry for entry in log if "value" in entry]
    if not losses and not checks:
        return None
    steps = [step for step, _ in losses] + [entry["step"] for entry in checks]
    x = _Scale(min(0, *steps), max(steps), LEFT, WIDTH - RIGHT)
    floor, top = HEIGHT - BOTTOM, TOP
    left = _Scale(0.0, max((loss for _, loss in losses), default=1.0) or 1.0, floor, top)
    numbers = [n for entry in checks for n in (entry["value"], entry["first_stage"])]
    right = _Scale(0.0, max(numbers, default=1.0) or 1.0, floor, top)
    values = [(entry["step"], entry["value"]) for entry in checks]
    return Curve(
        _points(losses, x, left),
        _points(values, x, right),
        tuple((x(step), right(value)) for step, value in values),
        right(checks[-1]["first_stage"]) if checks else None,
        x.ticks(",d"),
        left.ticks(".2g") if losses else (),
        right.ticks(".3f") if checks else (),
        _sentence(losses, checks),
        str(checks[0]["measure"]) if checks else "",
    )


def _points(pairs: Sequence[tuple[int, float]], x: _Scale, y: _Scale) -> str:
    """Return points of a line; of very many, every so many and the last."""
    every = max(1, len(pairs) // _MOST_POINTS)
    shown = [*pairs[:-1:every], *pairs[-1:]]
    return " ".join(f"{x(step)},{y(number)}" for step, number in shown)


def _sentence(losses: Sequence[tuple[int, float]], checks: Sequence[Entry]) -> str:
    told = []
    if losses:
        told.append(f"Step {losses[-1][0]:,}, loss {losses[-1][1]:.3f}")
    if checks:
        best = max(checks, key=lambda entry: (entry["value"], -entry["step"]))
        told.append(
            f"best {best['measure']} on held-out questions {best['value']:.4f} at step {best['step']:,}, "
            f"first stage {best['first_stage']:.4f}"
        )
    return "; ".join(told)
