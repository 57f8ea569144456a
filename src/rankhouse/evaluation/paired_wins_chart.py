"""Who is right, range by range, as one stacked bar each (extra: report)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.errors import WrongUse, writing_failures
from rankhouse.core.outputs import replacing
from rankhouse.evaluation.charts import LIGHT, rendered
from rankhouse.evaluation.paired_wins import Versus

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_COLOURS = (
    "#eaeef2",
    LIGHT.loss,
    LIGHT.gain,
    "#afb8c1",
)  # the outer two pale: it is the inner two that differ
_ROOM = 0.06  # a share below this has no room for its number


def write_versus_chart(found: Versus, path: Path | str) -> None:
    """Draw the shares of the four kinds of queries in every range into a PNG or SVG file.

    Raises:
        WrongUse: Another suffix.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise WrongUse(f'"{path}": charts are written as .png or .svg; give the file one of these endings')
    drawn = rendered(lambda: _figure(found), kind, f"{found.first}\t{found.second}")
    with replacing(path) as temporary, writing_failures(path):
        temporary.write_bytes(drawn)


def _figure(found: Versus) -> Figure:
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    figure = Figure(figsize=(7.2, 3.6), facecolor="none", layout="constrained")
    axes = figure.subplots()
    _bars(found, axes)
    counts = [f"{number}\n{one.counts.queries:,} queries" for number, one in enumerate(found.ranges, 1)]
    axes.set_xticks(range(len(counts)), counts, color=LIGHT.muted)
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of queries", color=LIGHT.muted)
    axes.set_xlabel(f"ranges by the distance of {found.first}, nearest first", color=LIGHT.muted)
    axes.tick_params(colors=LIGHT.muted, length=0)
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, labelcolor=LIGHT.ink, fontsize=8.5)
    return figure


def _bars(found: Versus, axes: Axes) -> None:
    """Stack the shares: both right at the foot, both wrong at the top."""
    labels = ("both wrong", f"only {found.first}", f"only {found.second}", "both right")
    floors = [0.0] * len(found.ranges)
    for kind in (3, 2, 1, 0):
        shares = [one.counts[kind] / one.counts.queries for one in found.ranges]
        axes.bar(
            range(len(shares)), shares, 0.72, floors, color=_COLOURS[kind], linewidth=0, label=labels[kind]
        )
        for place, (share, floor) in enumerate(zip(shares, floors, strict=True)):
            if share >= _ROOM:
                axes.text(place, floor + share / 2, f"{share:.0%}", ha="center", va="center", fontsize=8)
        floors = [floor + share for floor, share in zip(floors, shares, strict=True)]
