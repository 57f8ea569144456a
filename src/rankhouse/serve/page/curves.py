"""Line charts as SVG that a template draws: lines over steps or places, and the numbers a pointer shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

WIDTH: Final = 640
HEIGHT: Final = 240
LEFT, RIGHT, TOP, BOTTOM = 44, 60, 14, 26
MOST_POINTS: Final = 300
Points = Sequence[tuple[float, float]]
"""Places on the axis below, and values there."""


class Tick(NamedTuple):
    """A place on an axis and what is written there."""

    at: float
    text: str


class Line(NamedTuple):
    """A line: its name, the class of its colour, its points "x,y x,y ...", and dots where there are few."""

    name: str
    kind: str
    points: str
    dots: tuple[tuple[float, float], ...] = ()


class Chart(NamedTuple):
    """A chart in units of its picture: ticks of the axes, and ``level``, a dashed line across.

    ``data`` is what the script reads: places, what they are called, and each line's values, as JSON.
    """

    lines: tuple[Line, ...]
    below: tuple[Tick, ...]
    left: tuple[Tick, ...]
    sentence: str
    data: str
    right: tuple[Tick, ...] = ()
    level: float | None = None


class Scale(NamedTuple):
    """Maps numbers between two to a part of the picture."""

    low: float
    high: float
    start: float
    end: float

    def __call__(self, number: float) -> float:
        """Return a number's place."""
        share = (number - self.low) / (self.high - self.low) if self.high > self.low else 0.5
        return round(self.start + share * (self.end - self.start), 1)

    def ticks(self, form: str) -> tuple[Tick, ...]:
        """Return the two ends, or the one number there is."""
        return tuple(Tick(self(n), format(n, form)) for n in dict.fromkeys((self.low, self.high)))


def across(low: float, high: float) -> Scale:
    """Return the scale of the axis below."""
    return Scale(low, high, LEFT, WIDTH - RIGHT)


def upwards(values: Sequence[float]) -> Scale:
    """Return the scale of an axis that begins at 0 and ends with the greatest value."""
    return Scale(min([0.0, *values]), max([0.0, *values]) or 1.0, HEIGHT - BOTTOM, TOP)


def thinned(points: Points) -> Points:
    """Return points of a line; of very many, every so many and the last."""
    every = max(1, len(points) // MOST_POINTS)
    return [*points[:-1:every], *points[-1:]]


def lines_chart(
    curves: Mapping[str, Points], sentence: str, *, first: float, place: str, form: str, dots: bool
) -> Chart:
    """Return lines over one scale; the axis below begins at ``first``, that to the left has a format.

    ``dots`` says whether lines of few points have them; ``place`` is as for :func:`hover_data`.
    """
    curves = {name: thinned(points) for name, points in curves.items()}
    x = across(first, max(at for points in curves.values() for at, _ in points))
    y = upwards([value for points in curves.values() for _, value in points])
    lines = [drawn(name, f"line{n}", points, (x, y)) for n, (name, points) in enumerate(curves.items())]
    return Chart(
        tuple(lines if dots else (line._replace(dots=()) for line in lines)),
        below=x.ticks(",g"),
        left=y.ticks(form),
        sentence=sentence,
        data=hover_data(x, place, curves),
    )


def drawn(name: str, kind: str, points: Points, scales: tuple[Scale, Scale]) -> Line:
    """Return a line over two scales, with dots if it has few points."""
    x, y = scales
    at = [(x(place), y(value)) for place, value in points]
    few = len(at) <= (1 if kind == "loss" else 40)
    return Line(name, kind, " ".join(f"{a},{b}" for a, b in at), tuple(at) if few else ())


def hover_data(x: Scale, place: str, curves: Mapping[str, Points]) -> str:
    """Return what is shown at each place as JSON: {"x": [...], "at": [...], "lines": [[name, values], ...]}.

    ``place`` is how a place is said, with {} for its number.
    """
    places = sorted({at for points in curves.values() for at, _ in points})
    lines = []
    for name, points in curves.items():
        known = dict(points)
        lines.append((name, [f"{known[at]:.4f}" if at in known else None for at in places]))
    labels = [place.format(f"{at:,g}") for at in places]
    return msgspec.json.encode({"x": [x(at) for at in places], "at": labels, "lines": lines}).decode()
