"""Pictures of an agreement, as SVG for the inside of a page (extra: report).

The page gives the colours: it defines --ink, --muted, --grid, --gain and --loss. The same numbers give the
same bytes: no dates, fixed ids, nothing of the user's own plotting settings.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rankhouse.core.errors import MissingExtra
from rankhouse.labels.agreement import Calibration, Histogram

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_FONT: Final = "DejaVu Sans"  # comes with the plotting library, so that pictures do not depend on the machine
_FONTS: Final = f"'Helvetica Neue', Arial, '{_FONT}', sans-serif"
_IDS_NOT_USED: Final = re.compile(r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib)[^"]*"')
# Placeholders that the page's style sheet turns into its own light or dark colours.
INK, MUTED, GRID, YES, NO = "#010101", "#020202", "#030303", "#040404", "#050505"
_STYLES: Final = dict(zip((INK, MUTED, GRID, YES, NO), ("ink", "muted", "grid", "gain", "loss"), strict=True))
_SIZE: Final = (6.4, 3.1)


def histogram_chart(found: Histogram) -> str:
    """Draw how many pairs have which score, relevant ones by the reference on top, and the threshold.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        edges, no, yes = np.array(found.edges), np.array(found.no), np.array(found.yes)
        width = np.diff(edges)
        if not found.reference:
            axes.bar(edges[:-1], no, width, align="edge", color=MUTED, linewidth=0)
        else:
            axes.bar(edges[:-1], no, width, align="edge", color=NO, linewidth=0, label="not relevant")
            axes.bar(edges[:-1], yes, width, no, align="edge", color=YES, linewidth=0, label="relevant")
            legend = axes.legend(
                title=f"by the {found.reference}", labelcolor=MUTED, frameon=False, fontsize=8
            )
            legend.get_title().set(color=MUTED, fontsize=8)
        if edges[0] <= found.threshold <= edges[-1]:
            axes.axvline(found.threshold, color=INK, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.margins(y=0.08)
        axes.set_xlim(edges[0], edges[-1])
        axes.set_xlabel(f"{found.scale} given by the teacher (dashed: threshold {found.threshold:g})")
        axes.set_ylabel("pairs")
        _whole_numbers(axes)

    return _drawn("histogram", draw)


def calibration_chart(found: Calibration) -> str:
    """Draw observed shares against predicted probabilities; on the diagonal they come true.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        points = [
            (p, o, n) for p, o, n in zip(found.predicted, found.observed, found.pairs, strict=True) if n
        ]
        predicted, observed, pairs = (np.array(column) for column in zip(*points, strict=True))
        axes.plot([0, 1], [0, 1], color=MUTED, linewidth=0.9, linestyle=(0, (4, 3)))
        axes.plot(predicted, observed, color=YES, linewidth=1.2)
        # The area of a point is its share of the pairs, with a least size to be seen at all.
        axes.scatter(predicted, observed, s=12 + 260 * pairs / pairs.sum(), color=YES, linewidths=0, zorder=3)
        axes.set_xlim(-0.03, 1.03)
        axes.set_ylim(-0.03, 1.03)
        axes.set_xlabel("probability given by the teacher (mean of each tenth)")
        axes.set_ylabel(f"share relevant by the {found.reference}")

    return _drawn("calibration", draw)


def positives_chart(positives: Mapping[str, int]) -> str:
    """Draw how many queries have how many relevant pairs.

    Raises:
        MissingExtra: matplotlib is not installed.
    """

    def draw(axes: Axes) -> None:
        groups = grouped(positives)
        heights = [count for _, count in groups]
        colours = [NO if name == "0" else YES for name, _ in groups]
        axes.bar(range(len(groups)), heights, 0.8, color=colours, linewidth=0)
        for place, height in enumerate(heights):
            axes.annotate(
                f"{height:,}",
                (place, height),
                (0, 2),
                textcoords="offset points",
                ha="center",
                va="bottom",
                color=MUTED,
                fontsize=8,
            )
        axes.set_xticks(range(len(groups)), [name for name, _ in groups])
        axes.margins(y=0.12)
        axes.set_xlabel("relevant pairs of a query")
        axes.set_ylabel("queries")
        _whole_numbers(axes)

    return _drawn("positives", draw)


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


def _drawn(name: str, draw: Callable[[Axes], None]) -> str:
    """Draw one picture and give its SVG, with the page's colours in it."""
    with _plain_settings(name):
        from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

        figure = Figure(figsize=_SIZE, facecolor="none", layout="constrained")
        axes = figure.subplots()
        draw(axes)
        axes.xaxis.label.set_color(MUTED)
        axes.yaxis.label.set_color(MUTED)
        axes.tick_params(colors=MUTED, length=0)
        axes.grid(axis="y", color=GRID, linewidth=0.6)
        axes.set_axisbelow(True)
        axes.set_facecolor("none")
        axes.spines[:].set_visible(False)
        drawn = io.BytesIO()
        nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
        figure.savefig(drawn, format="svg", metadata=nothing, facecolor="none")
    svg = drawn.getvalue().decode().replace(f"'{_FONT}'", _FONTS)
    svg = _IDS_NOT_USED.sub("", svg[svg.index("<svg") :])
    for placeholder, style in _STYLES.items():
        svg = svg.replace(placeholder, f"var(--{style})")
    return svg


@contextmanager
def _plain_settings(name: str) -> Iterator[None]:
    try:
        import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to load
    except ImportError as error:
        raise MissingExtra("drawing charts", "report") from error
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        "svg.hashsalt": name,  # ids in a page differ from chart to chart, and are the same at every run
        "font.family": _FONT,
        "font.size": 9.0,
        "text.parse_math": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # whatever the user's own settings say
        mpl.rcParams.update(settings)
        yield
