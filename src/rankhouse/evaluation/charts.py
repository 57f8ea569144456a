"""The charts of an evaluation (extra: report): differences by query and by difficulty, who is right where.

Difficulty is the baseline's own value of a query, so part of any slope is arithmetic: where the baseline has
.9 nothing can gain more than .1, where it has .1 nothing can lose more. The chart shows both limits.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rankhouse.evaluation.paired_wins import PairedWins
from rankhouse.evaluation.significance import Floats, t_interval
from rankhouse.page import charts

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from rankhouse.evaluation.compare import Comparison, QueryDifference

CHARTS: Final = ("differences", "difficulty")
"""Kinds of charts."""
_NAMED_QUERIES = 60  # more bars than this leave no room to write under each
_PALE = ("#eaeef2", "#afb8c1")  # both wrong, both right: it is the others that differ


def write_chart(
    comparison: Comparison, system: str, measure: str, path: Path | str, kind: str = "differences"
) -> None:
    """Draw a system's gain on each query over the baseline into a PNG or SVG file.

    Args:
        kind: "differences", largest gain first, or "difficulty", over the baseline's value of the query.

    Raises:
        WrongUse: Another suffix, no baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    both = f"{charts.shortened(system, 42)} against {charts.shortened(str(comparison.baseline), 26)}"
    title = f"{charts.shortened(measure, 16)}: {both}"
    charts.write(_drawn(comparison, system, measure, kind, title=title), path, _salt(system, measure, kind))


def inline_chart(comparison: Comparison, system: str, measure: str, kind: str = "differences") -> str:
    """Draw the same chart as SVG for a page, which says above it whom it compares.

    Raises:
        WrongUse: No baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
    """
    return charts.inline(
        _drawn(comparison, system, measure, kind, title=measure), _salt(system, measure, kind)
    )


def _drawn(comparison: Comparison, system: str, measure: str, kind: str, title: str) -> charts.Draw:
    """Return what draws a kind of chart; the one by difficulty has a title of its own."""
    rows = comparison.differences(system, measure)
    if kind == "differences":
        return lambda palette: _figure(rows, title, measure, palette)
    names = (
        charts.shortened(str(comparison.baseline), 26),
        charts.shortened(system, 26),
        charts.shortened(measure, 16),
    )
    return lambda palette: _difficulty_figure(rows, names, palette)


def _salt(system: str, measure: str, kind: str) -> str:
    """Return what the names of a chart's parts are made of, which differ within a page."""
    return f"{system}\t{measure}" if kind == "differences" else f"{kind}\t{system}\t{measure}"


def write_wins_chart(wins: PairedWins, path: Path | str) -> None:
    """Draw the shares of the four kinds of queries in every range into a PNG or SVG file.

    Errors as of :func:`rankhouse.page.charts.write`.
    """
    charts.write(lambda palette: _wins_figure(wins, palette), path, f"{wins.first}\t{wins.second}")


def _figure(rows: tuple[QueryDifference, ...], title: str, measure: str, palette: charts.Palette) -> Figure:
    """Lay the chart out: bars from the largest gain to the largest loss, and their mean."""
    gains = np.array([row.difference for row in rows])
    labels = [charts.shortened(row.query_id, 18) for row in rows] if len(rows) <= _NAMED_QUERIES else []
    room = 0.066 * max(map(len, labels)) + 0.12 if labels else 0.32
    height = 2.9 + room  # inches, as are the margins
    edges = {"top": 1 - 0.55 / height, "bottom": (0.05 + room) / height}
    figure, axes = charts.canvas(height, left=0.09, right=0.99, **edges)
    mean = float(gains.mean())
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    counts = f"{wins} better, {len(gains) - wins - losses} equal, {losses} worse, mean {mean:+.4f} (dashed)"
    charts.write_heading(figure, palette, (title, counts.replace("-", "\N{MINUS SIGN}")), 0.09, top=0.06)
    _bars(gains, palette, axes)
    _axis_of_gains(gains, palette, axes)
    axes.axhline(mean, color=palette.ink, linewidth=0.9, linestyle=charts.DASHED)
    axes.set_xlim(-0.7, len(gains) - 0.3)
    axes.set_ylabel(f"difference in {charts.shortened(measure, 24)}")
    axes.set_xticks(range(len(labels)), labels, rotation=90, color=palette.muted, fontsize=7.5)
    if not labels:
        axes.set_xlabel(f"{len(gains):,} queries, largest gain first")
    charts.plain_axes(axes, palette)
    return figure


def _axis_of_gains(gains: Floats, palette: charts.Palette, axes: Axes) -> None:
    """Draw the line of no difference, with room for gains and losses on both sides."""
    axes.axhline(0, color=palette.muted, linewidth=0.8)
    least = 0.12 * max(float(np.abs(gains).max()), 0.01)
    axes.set_ylim(min(-least, 1.08 * float(gains.min())), max(least, 1.08 * float(gains.max())))


def _bars(gains: Floats, palette: charts.Palette, axes: Axes) -> None:
    """Draw all bars of one colour as one shape: 300 queries stay a small picture."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415 - optional, and slow to load
    from matplotlib.path import Path as Outline  # noqa: PLC0415 - optional, and slow to load

    half = 0.4 if len(gains) <= 2 * _NAMED_QUERIES else 0.5
    for colour, chosen in ((palette.gain, gains > 0), (palette.loss, gains < 0)):
        at, height = np.flatnonzero(chosen), gains[chosen]
        if not len(at):
            continue
        corners = np.zeros((len(at), 5, 2))
        corners[:, :, 0] = at[:, None] + np.array([-half, -half, half, half, -half])
        corners[:, 1:3, 1] = height[:, None]
        codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
        outline = Outline(corners.reshape(-1, 2), codes * len(at))
        axes.add_patch(PathPatch(outline, facecolor=colour, edgecolor="none", linewidth=0))


def _wins_figure(wins: PairedWins, palette: charts.Palette) -> Figure:
    """Lay the chart out: one stacked bar a range."""
    figure = charts.blank(7.2, 3.6, "constrained")
    axes = figure.subplots()
    _stack(wins, palette, axes)
    counts = [f"{number}\n{one.counts.queries:,} queries" for number, one in enumerate(wins.ranges, 1)]
    axes.set_xticks(range(len(counts)), counts)
    axes.set_ylim(0, 1)
    axes.set_ylabel("share of queries")
    axes.set_xlabel(f"ranges by the distance of {wins.first}, nearest first")
    charts.plain_axes(axes, palette, grid=False)
    figure.legend(loc="outside upper center", ncols=4, frameon=False, labelcolor=palette.ink, fontsize=8.5)
    return figure


def _stack(wins: PairedWins, palette: charts.Palette, axes: Axes) -> None:
    """Stack the shares: both right at the foot, both wrong at the top."""
    labels = ("both wrong", f"only {wins.first}", f"only {wins.second}", "both right")
    colours = (_PALE[0], palette.loss, palette.gain, _PALE[1])
    floors = [0.0] * len(wins.ranges)
    for kind in (3, 2, 1, 0):
        shares = [one.counts[kind] / one.counts.queries for one in wins.ranges]
        axes.bar(
            range(len(shares)), shares, 0.72, floors, color=colours[kind], linewidth=0, label=labels[kind]
        )
        for place, (share, floor) in enumerate(zip(shares, floors, strict=True)):
            if share >= 0.06:  # smaller ones have no room for a number
                axes.text(place, floor + share / 2, f"{share:.0%}", ha="center", va="center", fontsize=8)
        floors = [floor + share for floor, share in zip(floors, shares, strict=True)]


def _difficulty_figure(
    rows: tuple[QueryDifference, ...], names: tuple[str, str, str], palette: charts.Palette
) -> Figure:
    """Lay the chart out: a dot a query, the limits of gain and loss, and means of groups of equal size."""
    baseline, system, measure = names
    before, gains = (np.array([getattr(row, name) for row in rows]) for name in ("baseline", "difference"))
    figure, axes = charts.canvas(4.2, left=0.085, right=0.985, top=0.87, bottom=0.115)
    dot: dict[str, Any] = {"s": 22 if len(gains) <= 200 else 9, "alpha": 0.6, "linewidths": 0, "zorder": 3}
    kinds = ((palette.gain, gains > 0), (palette.loss, gains < 0), (palette.muted, gains == 0))
    for colour, chosen in kinds:
        axes.scatter(before[chosen], gains[chosen], color=colour, **dot)
    bounded = before.min() >= 0 and max(before.max(), (before + gains).max()) <= 1
    if bounded:
        for limit in ([1, 0], [0, -1]):  # most gain, most loss
            axes.plot([0, 1], limit, color=palette.grid, linewidth=1.2)
        axes.set_xlim(-0.015, 1.015)
    groups = _means(before, gains, palette, axes)
    _axis_of_gains(gains, palette, axes)
    axes.set_xlabel(f"{measure} of {baseline}, hard queries to the left")
    axes.set_ylabel(f"gain of {system}")
    said = f"; black: mean gain and its 95% interval in {groups} groups of equal size" if groups else ""
    said += "; grey slopes: the most that can be gained or lost" if bounded else ""
    title = f"{measure}: gain of {system} over {baseline}, by difficulty"
    charts.write_heading(figure, palette, (title, f"{len(rows):,} queries{said}"), 0.085, top=0.06)
    charts.plain_axes(axes, palette)
    return figure


def _means(before: Floats, gains: Floats, palette: charts.Palette, axes: Axes) -> int:
    """Draw the mean gain of groups of equal size, hard to easy; return how many groups there are."""
    groups = min(4, len(gains) // 5)
    if groups < 2:
        return 0
    for rows in np.array_split(np.argsort(before, kind="stable"), groups):
        mean = t_interval(gains[rows])
        left, right = float(before[rows].min()), float(before[rows].max())
        axes.plot([left, right], [mean.mean, mean.mean], color=palette.ink, linewidth=1.6, zorder=4)
        middle = float(np.median(before[rows]))
        axes.plot([middle, middle], [mean.low, mean.high], color=palette.ink, linewidth=1.0, zorder=4)
    return groups
