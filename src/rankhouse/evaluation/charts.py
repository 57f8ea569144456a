"""Per-query differences as bars: one look tells whether a mean hides a few queries or many (extra: report).

The same numbers give the same bytes: no dates, fixed ids, no global state of the plotting library.
"""

from __future__ import annotations

import io
import re
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankhouse.core.errors import MissingExtra, WrongUse, writing_failures
from rankhouse.core.outputs import replacing
from rankhouse.evaluation.compare import Comparison, QueryDifference

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_NAMED_QUERIES = 40  # more bars than this leave no room to write under each
_LONGEST_LABEL = 18
_IDS_NOT_USED = re.compile(r' id="(?:figure|axes|patch|text|line2d|xtick|ytick|matplotlib)[^"]*"')
_FONT = "DejaVu Sans"  # comes with the plotting library, so that pictures do not depend on the machine
_FONTS = f"'Helvetica Neue', Arial, '{_FONT}', sans-serif"


class Palette(NamedTuple):
    """Colours of a chart."""

    ink: str
    muted: str
    grid: str
    gain: str
    loss: str
    paper: str


LIGHT = Palette("#1b1f24", "#656d76", "#d0d7de", "#2370b3", "#c4541d", "#ffffff")
# Placeholders that a page's style sheet turns into its own light or dark colours.
_STYLED = Palette("#010101", "#020202", "#030303", "#040404", "#050505", "none")


def write_chart(comparison: Comparison, system: str, measure: str, path: Path | str) -> None:
    """Draw a system's per-query differences to the baseline into a PNG or SVG file.

    Raises:
        WrongUse: Another suffix, no baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    suffix = path.suffix.lower()
    if suffix not in (".png", ".svg"):
        raise WrongUse(f'"{path}": charts are written as .png or .svg; give the file one of these endings')
    drawn = _drawn(comparison, system, measure, LIGHT, suffix[1:])
    with replacing(path) as temporary, writing_failures(path):
        temporary.write_bytes(drawn)


def inline_chart(comparison: Comparison, system: str, measure: str) -> str:
    """Draw the same chart as SVG for a page that defines --ink, --muted, --grid, --gain and --loss.

    Raises:
        WrongUse: No baseline, or no such system or measure.
        MissingExtra: matplotlib is not installed.
    """
    return inlined(_drawn(comparison, system, measure, _STYLED, "svg"))


def inline(draw: Callable[[Palette], Figure], salt: str) -> str:
    """Draw any figure as SVG for a page that defines --ink, --muted, --grid, --gain and --loss.

    Args:
        draw: Makes the figure in the colours it is given.
        salt: Keeps ids inside a page apart from those of its other pictures.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    return inlined(rendered(lambda: draw(_STYLED), "svg", salt, _STYLED))


def inlined(drawn: bytes) -> str:
    """Turn a drawn SVG file into what stands inside a page, in the page's colours."""
    svg = drawn.decode()
    svg = _IDS_NOT_USED.sub("", svg[svg.index("<svg") :])
    for name, placeholder in zip(Palette._fields[:-1], _STYLED[:-1], strict=True):
        svg = svg.replace(placeholder, f"var(--{name})")
    return svg


def _drawn(comparison: Comparison, system: str, measure: str, palette: Palette, kind: str) -> bytes:
    """Draw and give the bytes of the file."""
    rows = comparison.differences(system, measure)
    # A page says above the picture whom it compares.
    both = f"{_shortened(system, 42)} against {_shortened(str(comparison.baseline), 26)}"
    title = measure if palette is _STYLED else f"{_shortened(measure, 16)}: {both}"
    return rendered(lambda: _figure(rows, title, measure, palette), kind, f"{system}\t{measure}", palette)


def rendered(draw: Callable[[], Figure], kind: str, salt: str, palette: Palette = LIGHT) -> bytes:
    """Draw a figure into the bytes of an SVG or PNG file; the same figure gives the same bytes.

    Args:
        draw: Makes the figure; called under this module's settings.
        kind: "svg" or "png".
        salt: What the ids inside an SVG are made of.
        palette: Its paper is the background.

    Raises:
        MissingExtra: matplotlib is not installed.
    """
    try:
        import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to load
    except ImportError as error:
        raise MissingExtra("drawing charts", "report") from error
    settings: dict[Any, Any] = {
        "svg.fonttype": "none",
        # Ids inside a page must differ from chart to chart, and be the same at every run.
        "svg.hashsalt": salt,
        "font.family": _FONT,
        "font.size": 9.0,
        "axes.unicode_minus": True,
        "text.parse_math": False,
    }
    with mpl.rc_context(), warnings.catch_warnings():
        mpl.rcdefaults()  # whatever the user's own settings say
        mpl.rcParams.update(settings)
        # A script that the font lacks is drawn as boxes in a PNG, and rightly by whoever shows an SVG.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font", category=UserWarning)
        figure = draw()
        drawn = io.BytesIO()
        metadata = (
            {"Software": None} if kind == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
        )
        figure.savefig(drawn, format=kind, dpi=160, metadata=metadata, facecolor=palette.paper)
    if kind == "png":
        return drawn.getvalue()
    return drawn.getvalue().decode().replace(f"'{_FONT}'", _FONTS).encode()


def _figure(rows: tuple[QueryDifference, ...], title: str, measure: str, palette: Palette) -> Figure:
    """Lay the chart out: bars from the largest gain to the largest loss, and their mean."""
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    gains = np.array([row.difference for row in rows])
    labels = [_shortened(row.query_id, _LONGEST_LABEL) for row in rows] if len(rows) <= _NAMED_QUERIES else []
    room = 0.066 * max(map(len, labels)) + 0.12 if labels else 0.32
    height = 2.9 + room  # inches, as are the margins
    figure = Figure(figsize=(9.0, height), facecolor="none")
    axes = figure.subplots()
    figure.subplots_adjust(left=0.075, right=0.99, top=1 - 0.55 / height, bottom=(0.05 + room) / height)
    mean = float(gains.mean())
    wins, losses = int((gains > 0).sum()), int((gains < 0).sum())
    counts = f"{wins} better, {len(gains) - wins - losses} equal, {losses} worse, mean {mean:+.4f} (dashed)"
    edge: dict[str, Any] = {"x": 0.075, "ha": "left", "va": "top"}
    heading: dict[str, Any] = {"color": palette.ink, "fontsize": 10, "fontweight": "bold"}
    figure.text(y=1 - 0.06 / height, s=title, **heading, **edge)
    figure.text(y=1 - 0.28 / height, s=counts.replace("-", "\N{MINUS SIGN}"), color=palette.muted, **edge)
    _bars(gains, palette, axes)
    axes.axhline(0, color=palette.muted, linewidth=0.8)
    axes.axhline(mean, color=palette.ink, linewidth=0.9, linestyle=(0, (4, 3)))
    axes.set_xlim(-0.7, len(gains) - 0.3)
    least = 0.12 * max(float(np.abs(gains).max()), 0.01)
    axes.set_ylim(min(-least, 1.08 * float(gains.min())), max(least, 1.08 * float(gains.max())))
    axes.set_ylabel(f"difference in {_shortened(measure, 24)}", color=palette.muted)
    axes.set_xticks(range(len(labels)), labels, rotation=90, color=palette.muted, fontsize=7.5)
    if not labels:
        axes.set_xlabel(f"{len(gains):,} queries, largest gain first", color=palette.muted)
    axes.tick_params(colors=palette.muted, length=0)
    axes.grid(axis="y", color=palette.grid, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.set_facecolor("none")
    axes.spines[:].set_visible(False)
    return figure


def _bars(gains: np.ndarray[tuple[int], np.dtype[np.float64]], palette: Palette, axes: object) -> None:
    """Draw all bars of one colour as one shape: 300 queries stay a small picture."""
    from matplotlib.patches import PathPatch  # noqa: PLC0415 - optional, and slow to load
    from matplotlib.path import Path as Outline  # noqa: PLC0415 - optional, and slow to load

    half = 0.4 if len(gains) <= 3 * _NAMED_QUERIES else 0.5
    for colour, chosen in ((palette.gain, gains > 0), (palette.loss, gains < 0)):
        at, height = np.flatnonzero(chosen), gains[chosen]
        if not len(at):
            continue
        corners = np.zeros((len(at), 5, 2))
        corners[:, :, 0] = at[:, None] + np.array([-half, -half, half, half, -half])
        corners[:, 1:3, 1] = height[:, None]
        codes = [Outline.MOVETO, Outline.LINETO, Outline.LINETO, Outline.LINETO, Outline.CLOSEPOLY]
        outline = Outline(corners.reshape(-1, 2), codes * len(at))
        axes.add_patch(PathPatch(outline, facecolor=colour, edgecolor="none", linewidth=0))  # type: ignore[attr-defined]  # matplotlib is untyped here


def _shortened(text: str, most: int) -> str:
    """Cut the middle out of a long name, since names often differ at their ends."""
    if len(text) <= most:
        return text
    head = (most - 1) * 2 // 3
    return f"{text[:head]}…{text[head + 1 - most :]}"
