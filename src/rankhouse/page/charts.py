"""Style of every chart: one palette, one set of settings, the same bytes for the same numbers.

A chart is a function from a palette to a matplotlib figure. :func:`write` makes a PNG or SVG file of it,
:func:`inline` makes SVG for the inside of a page, whose style sheet then chooses the colours. No dates, fixed
ids, nothing of the user's own plotting settings (extra: report).
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast

import numpy as np

from rankhouse.core.errors import WrongUse, encodable, needs
from rankhouse.core.fitted_scales import Reliability
from rankhouse.io.outputs import replacing

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure


def ending_of(path: Path, what: str, *endings: str) -> str:
    """Return a file's ending, one of those that something can be written as.

    Args:
        what: What is written, with its verb, for the message: "charts are".
        endings: Two or more of ".html", ".md" ..., in lower case.

    Raises:
        WrongUse: It has another one.
    """
    ending = path.suffix.lower()
    if ending not in endings:
        named = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise WrongUse(f'"{path}": {what} written as {named}; give the file one of these endings')
    return ending


_UNUSED_IDS = re.compile(
    r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib|PathCollection)[^"]*"'
)
_TAG = re.compile(r"<[a-z][^>]*>")
_STYLE = re.compile(r' style="([^"]*)"')
_STYLE_SHEET = re.compile(r"<style[^>]*>\*\{([^}]*)\}</style>")
_FONT = "DejaVu Sans"  # comes with the plotting library, so that charts do not depend on the machine
_FONTS = f"'Helvetica Neue', Arial, '{_FONT}', sans-serif"
DASHED = (0, (4, 3))


class Palette(NamedTuple):
    """Colours of a chart."""

    ink: str
    muted: str
    grid: str
    gain: str
    loss: str
    paper: str


Draw = Callable[[Palette], "Figure"]

LIGHT = Palette("#1b1f24", "#656d76", "#d0d7de", "#2370b3", loss="#c4541d", paper="#ffffff")
# Placeholders that a page's style sheet turns into its own light or dark colours.
_STYLED = Palette("#010101", "#020202", "#030303", "#040404", loss="#050505", paper="none")


def chart_kind(path: Path) -> Literal["png", "svg"]:
    """Return the kind of chart that a file's ending asks for.

    Raises:
        WrongUse: Neither .png nor .svg.
    """
    return "png" if ending_of(path, "charts are", ".png", ".svg") == ".png" else "svg"


def write(draw: Draw, path: Path | str, salt: str) -> None:
    """Draw a chart into a PNG or SVG file.

    Args:
        salt: Source of the ids inside an SVG.

    Raises:
        WrongUse: Another suffix.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    content = _render(draw, chart_kind(path), salt, LIGHT)
    with replacing(path) as temporary:
        temporary.write_bytes(content)


def inline(draw: Draw, salt: str) -> str:
    """Draw a chart as SVG for a page that defines --ink, --muted, --grid, --gain and --loss.

    Colours and fonts are attributes of their own, so that a page whose security policy allows no style
    attribute shows it too.

    Args:
        salt: Keeps ids inside a page apart from those of its other charts.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    svg = _render(draw, "svg", salt, _STYLED).decode()
    svg = _UNUSED_IDS.sub("", svg[svg.index("<svg") :])
    for name, placeholder in zip(Palette._fields[:-1], _STYLED[:-1], strict=True):
        svg = svg.replace(placeholder, f"var(--{name})")
    return _without_styles(svg)


def _without_styles(svg: str) -> str:
    """Return an SVG with its style sheet and style attributes written as attributes."""
    sheet = _STYLE_SHEET.search(svg)
    if sheet:
        svg = _STYLE_SHEET.sub("", svg).replace("<svg", f"<svg{_attributes(sheet[1])}", 1)
    return _TAG.sub(lambda tag: _STYLE.sub(lambda style: _attributes(style[1]), tag[0]), svg)


def _attributes(declarations: str) -> str:
    """Return "a: b; c: d" as the attributes ``a="b" c="d"``, each after a space."""
    pairs = (one.partition(":") for one in declarations.split(";") if one.strip())
    return "".join(f' {name.strip()}="{value.strip()}"' for name, _, value in pairs)


def _render(draw: Draw, kind: Literal["png", "svg"], salt: str, palette: Palette) -> bytes:
    """Return the bytes of an SVG or PNG file."""
    with needs("report", "drawing charts"):
        import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to load
        from matplotlib.text import Text  # noqa: PLC0415 - as above
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        # Ids inside a page must differ from chart to chart, and be the same at every run.
        "svg.hashsalt": encodable(salt),
        "font.family": _FONT,
        "font.size": 9.0,
        "axes.unicode_minus": True,
        "text.parse_math": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # whatever the user's own settings say
        mpl.rcParams.update(settings)
        # A script that the font lacks is drawn as boxes in a PNG, and rightly where an SVG is shown.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        content = io.BytesIO()
        metadata = (
            {"Software": None} if kind == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
        figure = draw(palette)

        def save() -> None:
            figure.savefig(content, format=kind, dpi=160, metadata=metadata, facecolor=palette.paper)

        try:
            save()
        except (UnicodeEncodeError, TypeError):  # a file's name that is not UTF-8 stands in it
            for text in cast(list[Text], figure.findobj(Text)):
                text.set_text(encodable(text.get_text()))
            content = io.BytesIO()
            save()
    if kind == "png":
        return content.getvalue()
    return content.getvalue().decode().replace(f"'{_FONT}'", _FONTS).encode()


def plain_axes(axes: Axes, palette: Palette, *, grid: bool = True) -> None:
    """Take away frame and ticks, and colour what is left.

    Args:
        grid: Whether there are horizontal lines behind the data.
    """
    axes.xaxis.label.set_color(palette.muted)
    axes.yaxis.label.set_color(palette.muted)
    axes.tick_params(colors=palette.muted, length=0)
    if grid:
        axes.grid(axis="y", color=palette.grid, linewidth=0.6)
        axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)


def canvas(height: float, **margins: float) -> tuple[Figure, Axes]:
    """Return a figure, 9 inches wide and so many high, and its axes.

    Args:
        margins: Edges of the axes as shares of the figure: left, right, top, bottom.
    """
    figure = blank(9.0, height)
    axes = figure.subplots()
    figure.subplots_adjust(**margins)
    return figure, axes


def blank(width: float, height: float, layout: Literal["constrained"] | None = None) -> Figure:
    """Return an empty figure without background, sizes in inches."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    return Figure(figsize=(width, height), facecolor="none", layout=layout)


def on_axes(draw: Callable[[Axes, Palette], None], size: tuple[float, float] = (6.4, 3.1)) -> Draw:
    """Return what makes a figure of one pair of axes, of a size in inches, laid out by itself.

    Args:
        draw: Draws on the axes; frame and colours of the axes are seen to afterwards.
    """

    def figure_in(palette: Palette) -> Figure:
        figure = blank(*size, "constrained")
        axes = figure.subplots()
        draw(axes, palette)
        plain_axes(axes, palette)
        return figure

    return figure_in


def write_heading(
    figure: Figure, palette: Palette, lines: tuple[str, str], left: float = 0.01, top: float = 0.05
) -> None:
    """Write a title and, below it, what a reader has to know.

    Args:
        left: Their left edge, as a share of the width.
        top: Inches above the title.
    """
    height = figure.get_figheight()
    edge: dict[str, Any] = {"ha": "left", "va": "top"}
    heading: dict[str, Any] = {"color": palette.ink, "fontsize": 10, "fontweight": "bold"}
    figure.text(left, 1 - top / height, lines[0], **heading, **edge)
    figure.text(left, 1 - (top + 0.22) / height, lines[1], color=palette.muted, **edge)


def shortened(text: str, most: int) -> str:
    """Cut the middle out of a long name, since names often differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - most :]}"


def reliability_diagram(
    tables: Sequence[tuple[str, Reliability]], predicted_by: str, observed_by: str
) -> Draw:
    """Return what draws observed shares against predicted probabilities.

    Args:
        tables: (name, table), at most two; the last is the one in question. A single one needs no name.
    """

    def draw(axes: Axes, palette: Palette) -> None:
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

    return on_axes(draw)


def _draw(axes: Axes, table: Reliability, colour: str, name: str) -> None:
    rows = zip(table.predicted, table.observed, table.pairs, strict=True)
    predicted, observed, pairs = (np.array(c) for c in zip(*(r for r in rows if r[2]), strict=True))
    axes.plot(predicted, observed, color=colour, linewidth=1.2, label=name)
    # The area of a point is its share of the pairs, with a least size to be seen at all.
    sizes = 12 + 260 * pairs / pairs.sum()
    axes.scatter(predicted, observed, s=sizes, color=colour, linewidths=0, zorder=3)
