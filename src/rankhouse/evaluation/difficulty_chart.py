"""Query difficulty beside gain (extra: report): what a system adds on queries that the baseline finds hard.

Difficulty is the baseline's own value of a query, so part of any slope is arithmetic: where the baseline has
.9 nothing can gain more than .1, where it has .1 nothing can lose more. The chart shows both limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rankhouse.evaluation.comparison_data import ComparisonData, QueryDifference
from rankhouse.evaluation.significance import Floats, t_interval
from rankhouse.page.charts import Draw, Palette, inline, plain_axes, shortened, write, write_heading

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GROUPS = 4
_LEAST = 5  # queries in a group whose mean is drawn


def write_difficulty_chart(comparison: ComparisonData, system: str, measure: str, path: Path | str) -> None:
    """Draw a system's gain on each query over the baseline's value of it into a PNG or SVG file.

    Raises:
        WrongUse: Another suffix, no baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    write(_difficulty(comparison, system, measure), path, f"difficulty\t{system}\t{measure}")


def inline_difficulty_chart(comparison: ComparisonData, system: str, measure: str) -> str:
    """Draw the same chart as SVG for a page.

    Raises:
        WrongUse: No baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
    """
    return inline(_difficulty(comparison, system, measure), f"difficulty\t{system}\t{measure}")


def _difficulty(comparison: ComparisonData, system: str, measure: str) -> Draw:
    rows = comparison.differences(system, measure)
    names = (shortened(str(comparison.baseline), 26), shortened(system, 26), shortened(measure, 16))
    return lambda palette: _figure(rows, names, palette)


def _figure(rows: tuple[QueryDifference, ...], names: tuple[str, str, str], palette: Palette) -> Figure:
    """Lay the chart out: a dot a query, the limits of gain and loss, and means of groups of equal size."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    baseline, system, measure = names
    before, gains = (np.array([getattr(row, name) for row in rows]) for name in ("baseline", "difference"))
    figure = Figure(figsize=(9.0, 4.2), facecolor="none")
    axes = figure.subplots()
    figure.subplots_adjust(left=0.085, right=0.985, top=0.87, bottom=0.115)
    _dots(before, gains, palette, axes)
    bounded = before.min() >= 0 and max(before.max(), (before + gains).max()) <= 1
    if bounded:
        for limit in ([1, 0], [0, -1]):  # most gain, most loss
            axes.plot([0, 1], limit, color=palette.grid, linewidth=1.2)
        axes.set_xlim(-0.015, 1.015)
    groups = _means(before, gains, palette, axes)
    axes.axhline(0, color=palette.muted, linewidth=0.8)
    least = 0.12 * max(float(np.abs(gains).max()), 0.01)
    axes.set_ylim(min(-least, 1.08 * float(gains.min())), max(least, 1.08 * float(gains.max())))
    axes.set_xlabel(f"{measure} of {baseline}, hard queries to the left")
    axes.set_ylabel(f"gain of {system}")
    said = f"; black: mean gain and its 95% interval in {groups} groups of equal size" if groups else ""
    said += "; grey slopes: the most that can be gained or lost" if bounded else ""
    title = f"{measure}: gain of {system} over {baseline}, by difficulty"
    write_heading(figure, palette, (title, f"{len(rows):,} queries{said}"), 0.085, 0.06)
    plain_axes(axes, palette)
    return figure


def _dots(before: Floats, gains: Floats, palette: Palette, axes: Axes) -> None:
    """Draw a dot a query in the colours of gain and loss."""
    size = 22 if len(gains) <= 200 else 9
    kinds = ((palette.gain, gains > 0), (palette.loss, gains < 0), (palette.muted, gains == 0))
    for colour, chosen in kinds:
        axes.scatter(before[chosen], gains[chosen], s=size, color=colour, alpha=0.6, linewidths=0, zorder=3)


def _means(before: Floats, gains: Floats, palette: Palette, axes: Axes) -> int:
    """Draw the mean gain of groups of equal size, hard to easy; return how many groups there are."""
    groups = min(_GROUPS, len(gains) // _LEAST)
    if groups < 2:
        return 0
    for rows in np.array_split(np.argsort(before, kind="stable"), groups):
        mean = t_interval(gains[rows])
        left, right = float(before[rows].min()), float(before[rows].max())
        axes.plot([left, right], [mean.mean, mean.mean], color=palette.ink, linewidth=1.6, zorder=4)
        middle = float(np.median(before[rows]))
        axes.plot([middle, middle], [mean.low, mean.high], color=palette.ink, linewidth=1.0, zorder=4)
    return groups
