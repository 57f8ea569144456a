"""Pictures of an agreement, as SVG for the inside of a page (extra: report)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy as np

from rankhouse.core.reliability import Reliability
from rankhouse.labels.calibration import Histogram
from rankhouse.page.charts import DASHED, Palette, inline, plain_axes
from rankhouse.page.reliability_chart import reliability_diagram

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (6.4, 3.1)  # inches


def histogram_chart(histogram: Histogram) -> str:
    """Draw how many pairs have which score, relevant ones by the reference on top, and the threshold.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Axes, colours: Palette) -> None:
        edges, no, yes = np.array(histogram.edges), np.array(histogram.no), np.array(histogram.yes)
        width = np.diff(edges)
        if not histogram.reference:
            axes.bar(edges[:-1], no, width, align="edge", color=colours.muted, linewidth=0)
        else:
            axes.bar(
                edges[:-1], no, width, align="edge", color=colours.loss, linewidth=0, label="not relevant"
            )
            axes.bar(
                edges[:-1], yes, width, no, align="edge", color=colours.gain, linewidth=0, label="relevant"
            )
            legend = axes.legend(
                title=f"by the {histogram.reference}", labelcolor=colours.muted, frameon=False, fontsize=8
            )
            legend.get_title().set(color=colours.muted, fontsize=8)
        if edges[0] <= histogram.threshold <= edges[-1]:
            axes.axvline(histogram.threshold, color=colours.ink, linewidth=0.9, linestyle=DASHED)
        margin = 0.02 * (edges[-1] - edges[0])
        axes.set_xlim(edges[0] - margin, edges[-1] + margin)
        axes.set_ylim(0, 1.08 * max(1, (no + yes).max()))
        axes.set_xlabel(f"{histogram.scale} given by the teacher (dashed: threshold {histogram.threshold:g})")
        axes.set_ylabel("pairs")
        _whole_numbers(axes)

    return _inline("histogram", draw)


def calibration_chart(calibration: Reliability) -> str:
    """Draw observed shares against predicted probabilities; on the diagonal they come true.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    predicted_by = "probability given by the teacher (mean of each tenth)"
    observed_by = f"share relevant by the {calibration.reference}"
    return inline(reliability_diagram([("", calibration)], predicted_by, observed_by), "calibration")


def positives_chart(positives: Mapping[str, int]) -> str:
    """Draw how many queries have how many relevant pairs.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Axes, colours: Palette) -> None:
        groups = grouped(positives)
        heights = [count for _, count in groups]
        bars = [colours.loss if name == "0" else colours.gain for name, _ in groups]
        axes.bar(range(len(groups)), heights, 0.8, color=bars, linewidth=0)
        for place, height in enumerate(heights):
            axes.annotate(
                f"{height:,}",
                (place, height),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=colours.muted,
                fontsize=8,
            )
        axes.set_xticks(range(len(groups)), [name for name, _ in groups])
        axes.margins(y=0.12)
        axes.set_xlabel("relevant pairs of a query")
        axes.set_ylabel("queries")
        _whole_numbers(axes)

    return _inline("positives", draw)


def grouped(positives: Mapping[str, int]) -> list[tuple[str, int]]:
    """Count queries by their relevant pairs: 0 to 5 one by one, then in doubling ranges."""
    counts = np.bincount(np.fromiter(positives.values(), np.int64, len(positives)), minlength=6)
    groups = [(str(n), int(counts[n])) for n in range(6)]
    first = 6
    while first < len(counts):
        last = 10 if first == 6 else 2 * (first - 1)
        groups.append((f"{first}-{last}", int(counts[first : last + 1].sum())))
        first = last + 1
    return groups


def _whole_numbers(axes: Axes) -> None:
    from matplotlib.ticker import MaxNLocator, StrMethodFormatter  # noqa: PLC0415 - optional, slow to load

    axes.yaxis.set_major_locator(MaxNLocator(5, integer=True))
    axes.yaxis.set_major_formatter(StrMethodFormatter("{x:,.0f}"))


def _inline(name: str, draw: Callable[[Axes, Palette], None]) -> str:
    """Draw one chart as SVG for a page."""

    def figure_in(palette: Palette) -> Figure:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

        figure = Figure(figsize=_SIZE, facecolor="none", layout="constrained")
        axes = figure.subplots()
        draw(axes, palette)
        plain_axes(axes, palette)
        return figure

    return inline(figure_in, name)
