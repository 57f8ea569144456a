"""An evaluation as tables, as plain values, as charts, and as a page (charts and page need the extra report).

Difficulty is the baseline's own value of a query, so part of any slope is arithmetic: where the baseline has
.9 nothing can gain more than .1, where it has .1 nothing can lose more. The chart shows both limits.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from rankhouse.evaluation.measures import Scores
from rankhouse.evaluation.significance import Floats, MeanScore, PairedWins, t_interval
from rankhouse.io.outputs import writing
from rankhouse.page import charts
from rankhouse.page.html import write_page
from rankhouse.page.tables import BETTER, WORSE, Table

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
    note = f"; black: mean gain and its 95% interval in {groups} groups of equal size" if groups else ""
    note += "; grey slopes: the most that can be gained or lost" if bounded else ""
    title = f"{measure}: gain of {system} over {baseline}, by difficulty"
    charts.write_heading(figure, palette, (title, f"{len(rows):,} queries{note}"), 0.085, top=0.06)
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


def main_tables(comparison: Comparison) -> tuple[Table, ...]:
    """Return the means, and with a baseline the tests against it."""
    if not comparison.challengers:
        return (means_table(comparison),)
    return means_table(comparison)._replace(legend=""), differences_table(comparison)


def means_table(comparison: Comparison) -> Table:
    """Return one row a system, one column a measure.

    The best of a column is strong, ▲ and ▼ are significant; notes are half the 95 % interval, and which
    system is the baseline.
    """
    texts = {m: {f"{c.mean:.4f}" for c in comparison.cells if c.measure == m} for m in comparison.measures}
    best = {m: max(means, key=float) for m, means in texts.items() if len(means) > 1}
    rows, strong = [], set[tuple[int, int]]()
    notes: dict[tuple[int, int], str] = {}
    for number, system in enumerate(comparison.systems):
        cells = [comparison.cell(system, measure) for measure in comparison.measures]
        rows.append((system, *(f"{cell.mean:.4f}{mark(cell)}" for cell in cells)))
        strong |= {(number, i) for i, c in enumerate(cells, 1) if f"{c.mean:.4f}" == best.get(c.measure)}
        notes |= {(number, i): _half(c) for i, c in enumerate(cells, 1)}
        if system == comparison.baseline:
            notes[number, 0] = "baseline"
    columns = ("system", *comparison.measures)
    return Table(columns, tuple(rows), frozenset(strong), _legend(comparison), notes=notes)


def differences_table(comparison: Comparison, system: str | None = None) -> Table:
    """Return one row a test: the difference and its interval, p before and after correction, wins and losses.

    Args:
        system: Only the tests of this one, which is then not named in each row.
    """
    numbers = ("difference", "95 % interval", "p", "corrected p", "better / equal / worse")
    rows = tuple(
        (
            cell.system,
            cell.measure,
            f"{c.difference:+.4f}{mark(cell)}",
            "unknown" if math.isnan(c.low) else f"{c.low:+.4f} to {c.high:+.4f}",
            _probability(c.p),
            _probability(c.corrected),
            f"{c.wins} / {c.ties} / {c.losses}",
        )
        for cell in comparison.cells
        if (c := cell.paired_test) is not None and system in (None, cell.system)
    )
    table = Table(("system", "measure", *numbers), rows, legend=_legend(comparison))
    return table if system is None else table.select(range(1, 7))


def extremes_tables(
    comparison: Comparison, system: str, measure: str, most: int = 5, texts: Mapping[str, str] | None = None
) -> tuple[Table, Table]:
    """Return two tables: the queries a system helps most, and those it hurts most.

    Args:
        texts: Query id -> its words, shown where known.
    """
    columns = ("query", "text", "baseline", "system", "difference")
    best, worst = (
        Table(
            columns,
            tuple(
                (
                    row.query_id,
                    (texts or {}).get(row.query_id, ""),
                    *(f"{row.baseline:.4f}", f"{row.value:.4f}", f"{row.difference:+.4f}"),
                )
                for row in side
            ),
        )
        for side in comparison.extremes(system, measure, most)
    )
    return (best, worst) if texts else (best.select((0, 2, 3, 4)), worst.select((0, 2, 3, 4)))


def per_query_table(scores: Mapping[str, Scores]) -> Table:
    """Return one row a query and system, one column a measure, with every digit."""
    measures = next(iter(scores.values())).measures if scores else ()
    rows = tuple(
        (query_id, system, *(repr(value) for value in values.values()))
        for system, own in scores.items()
        for query_id, values in own.per_query.items()
    )
    return Table(("query", "system", *measures), rows)


def write_per_query(scores: Mapping[str, Scores], path: Path | str) -> None:
    """Write the per-query table with tabs between the columns (compressed by suffix).

    Raises:
        OutputFailed: The file cannot be written.
    """
    with writing(Path(path)) as out:
        out.write(per_query_table(scores).to_tsv())


def records(comparison: Comparison) -> list[dict[str, object]]:
    """Return every cell as a flat mapping for JSON; what is unknowable (NaN) is None."""
    rows = []
    for cell in comparison.cells:
        row: dict[str, object] = cell._asdict()
        row.pop("paired_test")
        if cell.paired_test is not None:
            row |= {
                f"difference_{k}" if k in ("low", "high") else k: v
                for k, v in cell.paired_test._asdict().items()
            }
        rows.append({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()})
    return rows


def mark(cell: MeanScore) -> str:
    """Return what stands behind a mean: ▲ or ▼ after a blank if its difference is significant."""
    if cell.paired_test is None or not cell.paired_test.significant:
        return ""
    return " " + (BETTER if cell.paired_test.difference > 0 else WORSE)


def _legend(comparison: Comparison) -> str:
    marks = f" {BETTER} significantly better, {WORSE} significantly worse." if comparison.challengers else ""
    return comparison.method + marks


def _half(cell: MeanScore) -> str:
    return "one query" if math.isnan(cell.high) else f"± {cell.high - cell.mean:.4f} (95 %)"


def _probability(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


_TEMPLATE = Path(__file__).parent / "templates" / "report.html.j2"


def write_report(
    comparison: Comparison,
    path: Path | str,
    title: str = "Evaluation",
    texts: Mapping[str, str] | None = None,
    most: int = 5,
) -> None:
    """Write a page that stands alone: tables, charts, best and worst queries; no link and no script.

    Errors as of :func:`rankhouse.page.html.write_page`.
    """
    sections = [
        {
            "system": system,
            "tests": differences_table(comparison, system),
            "charts": [
                (measure, inline_chart(comparison, system, measure)) for measure in comparison.measures
            ],
            "difficulty": inline_chart(comparison, system, comparison.measures[0], "difficulty"),
            "extremes": extremes_tables(comparison, system, comparison.measures[0], most, texts=texts),
        }
        for system in comparison.challengers
    ]
    content = {"title": title, "comparison": comparison, "sections": sections}
    write_page(_TEMPLATE, content | {"means": means_table(comparison)}, path)
