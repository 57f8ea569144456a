"""What rankers obey, to be looked at: a chart of shares with their intervals, and a page (extra: report)."""

from __future__ import annotations

import inspect
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankhouse.explanation.axioms import AXIOMS
from rankhouse.explanation.diagnosis import CHANCE, Diagnosis
from rankhouse.page import charts
from rankhouse.page.charts import DASHED, Palette, ending_of, plain_axes, shortened
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TEMPLATE = Path(__file__).parent / "templates" / "axioms.html.j2"
_MARKS = ("o", "s", "^", "D", "v", "P")


def check_target(path: Path) -> str:
    """Return the ending of a file that is a page or a chart.

    Raises:
        WrongUse: It ends in something else.
    """
    return ending_of(path, "axioms are", ".html", ".png", ".svg")


def write(diagnosis: Diagnosis, path: Path | str) -> None:
    """Write a page that stands alone, or the chart, as the file's ending asks.

    Raises:
        WrongUse: Another ending.
        MissingExtra: jinja2 or matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    if check_target(path) != ".html":
        charts.write(lambda palette: _figure(diagnosis, palette), path, "axioms")
        return
    said = {
        name: inspect.getdoc(AXIOMS[name].prefer) or "" for name in diagnosis.axioms
    }  # "TFC1: of two ..."
    rows = tuple((name, " ".join(words.split()).partition(": ")[2]) for name, words in said.items())
    content = {
        "title": "What rankers obey",
        "diagnosis": diagnosis,
        "table": diagnosis.table,
        "meanings": Table(("axiom", "of two documents, which should stand above"), rows),
        "chart": charts.inline(lambda palette: _figure(diagnosis, palette), "axioms"),
    }
    write_page(_TEMPLATE, content, path)


def _with_pairs(diagnosis: Diagnosis) -> list[str]:
    """Return the axioms that say anything about these runs; without any, all of them."""
    some = [name for name in diagnosis.axioms if any(count.pairs for count in diagnosis.of(name))]
    return some or list(diagnosis.axioms)


def _figure(diagnosis: Diagnosis, palette: Palette) -> Figure:
    """Lay the chart out: a band an axiom, in it a mark and a line a ranker; dashed is random order."""
    rankers, axioms = diagnosis.rankers, _with_pairs(diagnosis)
    band = max(2, len(rankers) + 1)
    height = 0.95 + 0.15 * band * len(axioms)  # inches
    figure, axes = charts.canvas(height, left=0.3, right=0.97, top=1 - 0.42 / height, bottom=0.5 / height)
    for number, ranker in enumerate(rankers):
        _draw_ranker(diagnosis, ranker, number, palette, axes=axes)
    for place in range(1, len(axioms)):
        axes.axhline(place - 0.5, color=palette.grid, linewidth=0.6)
    axes.axvline(CHANCE, color=palette.ink, linewidth=0.9, linestyle=DASHED)
    axes.set_xlim(-0.01, 1.01)
    axes.set_ylim(len(axioms) - 0.5, -0.5)
    axes.set_xticks([0, 0.25, 0.5, 0.75, 1], ["0%", "25%", "50%", "75%", "100%"])
    axes.set_yticks(range(len(axioms)), [f"{AXIOMS[name].wants}   {name}" for name in axioms])
    axes.set_xlabel("pairs ordered as the axiom asks, with 95% intervals; dashed: random order")
    plain_axes(axes, palette, grid=False)
    axes.grid(axis="x", color=palette.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    style: dict[str, Any] = {"frameon": False, "labelcolor": palette.ink, "fontsize": 8.5}
    figure.legend(loc="upper center", ncols=min(6, len(rankers)), handlelength=1.2, **style)
    return figure


def _draw_ranker(diagnosis: Diagnosis, ranker: str, number: int, palette: Palette, axes: Axes) -> None:
    """Draw one ranker's shares; marks and fillings tell rankers apart without colour too."""
    colours = (palette.gain, palette.loss, palette.muted, palette.ink)
    colour, count = colours[number % len(colours)], len(diagnosis.rankers)
    offset = (number - (count - 1) / 2) / (count + 1)
    rows = [
        (place + offset, diagnosis.of(axiom)[number].share)
        for place, axiom in enumerate(_with_pairs(diagnosis))
    ]
    known = [(at, share) for at, share in rows if not math.isnan(share.mean)]
    for at, share in known:
        if not math.isnan(share.low):
            axes.plot([share.low, share.high], [at, at], color=colour, linewidth=1.2)
    means, places = [share.mean for _, share in known], [at for at, _ in known]
    style: dict[str, Any] = {"linestyle": "none", "markersize": 4.5, "color": colour, "clip_on": False}
    if number >= len(colours):
        style["markerfacecolor"] = palette.paper if palette.paper != "none" else "none"
    axes.plot(means, places, marker=_MARKS[number % len(_MARKS)], label=shortened(ranker, 32), **style)
