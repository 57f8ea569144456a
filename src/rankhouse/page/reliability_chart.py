"""The reliability diagram: on the diagonal, probabilities come true (extra: report)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from rankhouse.core.reliability import Reliability
from rankhouse.page.charts import DASHED, Draw, Palette, plain_axes

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_SIZE = (6.4, 3.1)  # inches


def reliability_diagram(
    tables: Sequence[tuple[str, Reliability]], predicted_by: str, observed_by: str
) -> Draw:
    """Return what draws observed shares against predicted probabilities.

    Args:
        tables: (name, table), at most two; the last is the one in question. A single one needs no name.
        predicted_by: The name of the axis of probabilities.
        observed_by: The name of the other.
    """

    def figure_in(palette: Palette) -> Figure:
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

        figure = Figure(figsize=_SIZE, facecolor="none", layout="constrained")
        axes = figure.subplots()
        axes.plot([0, 1], [0, 1], color=palette.muted, linewidth=0.9, linestyle=DASHED)
        colours = [palette.loss, palette.gain][-len(tables) :]
        for (name, table), colour in zip(tables, colours, strict=True):
            _draw(axes, table, colour, name)
        if len(tables) > 1:
            axes.legend(labelcolor=palette.muted, frameon=False, fontsize=8)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel(predicted_by)
        axes.set_ylabel(observed_by)
        plain_axes(axes, palette)
        return figure

    return figure_in


def _draw(axes: Axes, table: Reliability, colour: str, name: str) -> None:
    rows = zip(table.predicted, table.observed, table.pairs, strict=True)
    predicted, observed, pairs = (np.array(c) for c in zip(*(r for r in rows if r[2]), strict=True))
    axes.plot(predicted, observed, color=colour, linewidth=1.2, label=name)
    # The area of a point is its share of the pairs, with a least size to be seen at all.
    sizes = 12 + 260 * pairs / pairs.sum()
    axes.scatter(predicted, observed, s=sizes, color=colour, linewidths=0, zorder=3)
