"""What an evaluation found, for people: tables as plain data, Markdown, a page of HTML with charts.

Tables need nothing but this package; the page needs the extra ``report``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from rankhouse.core.errors import MissingExtra
from rankhouse.core.outputs import writing
from rankhouse.evaluation.charts import inline_chart
from rankhouse.evaluation.compare import Cell, Comparison
from rankhouse.evaluation.measures import Scores

BETTER, WORSE = "▲", "▼"
_NOTHING: Mapping[str, str] = {}


class Table(NamedTuple):
    """Text in rows and columns.

    Attributes:
        columns: The heads.
        rows: One text a column; the first names the row.
        strong: (row, column) of the cells that stand out: the best of their column.
        legend: What a reader needs beside it; may be empty.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[tuple[int, int]] = frozenset()
    legend: str = ""


def means_table(comparison: Comparison) -> Table:
    """One row a system, one column a measure; the best of a column is strong, ▲ and ▼ are significant."""
    shown = {m: {f"{c.mean:.4f}" for c in comparison.cells if c.measure == m} for m in comparison.measures}
    best = {m: max(means, key=float) for m, means in shown.items() if len(means) > 1}
    rows, strong = [], set()
    for number, system in enumerate(comparison.systems):
        cells = [comparison.cell(system, measure) for measure in comparison.measures]
        rows.append((system, *(f"{cell.mean:.4f}{_mark(cell, ' ')}" for cell in cells)))
        strong |= {(number, i) for i, c in enumerate(cells, 1) if f"{c.mean:.4f}" == best.get(c.measure)}
    return Table(("system", *comparison.measures), tuple(rows), frozenset(strong), _legend(comparison))


def contrasts_table(comparison: Comparison, system: str | None = None) -> Table:
    """One row a test: the difference with its interval, p before and after correction, wins and losses.

    Args:
        comparison: With a baseline; without one there are no rows.
        system: Only the tests of this one.
    """
    columns = (
        "system",
        "measure",
        "difference",
        "95 % interval",
        "p",
        "corrected p",
        "better / equal / worse",
    )
    rows = tuple(
        (
            cell.system,
            cell.measure,
            f"{c.difference:+.4f}{_mark(cell, ' ')}",
            _range(c.low, c.high),
            _probability(c.p),
            _probability(c.corrected),
            f"{c.wins} / {c.ties} / {c.losses}",
        )
        for cell in comparison.cells
        if (c := cell.contrast) is not None and system in (None, cell.system)
    )
    return Table(columns, rows, legend=_legend(comparison))


def extremes_tables(
    comparison: Comparison, system: str, measure: str, most: int = 5, texts: Mapping[str, str] = _NOTHING
) -> tuple[Table, Table]:
    """Two tables: the queries a system helps most, and those it hurts most.

    Args:
        comparison: With a baseline.
        system: The system to look at.
        measure: One of the comparison's measures.
        most: Rows of each table.
        texts: Query id -> its words, shown where known.
    """
    columns = ("query", *(("text",) if texts else ()), "baseline", "system", "difference")
    best, worst = (
        tuple(
            (
                row.query_id,
                *((texts.get(row.query_id, ""),) if texts else ()),
                f"{row.baseline:.4f}",
                f"{row.value:.4f}",
                f"{row.difference:+.4f}",
            )
            for row in side
        )
        for side in comparison.extremes(system, measure, most)
    )
    return Table(columns, best), Table(columns, worst)


def per_query_table(scores: Mapping[str, Scores]) -> Table:
    """One row a query and system, one column a measure, every digit kept."""
    measures = next(iter(scores.values())).measures if scores else ()
    rows = tuple(
        (query_id, system, *(repr(value) for value in values.values()))
        for system, found in scores.items()
        for query_id, values in found.per_query.items()
    )
    return Table(("query", "system", *measures), rows)


def write_per_query(scores: Mapping[str, Scores], path: Path | str) -> None:
    """Write the per-query table with tabs between the columns (compressed by suffix).

    Raises:
        OutputFailed: The file cannot be written.
    """
    table = per_query_table(scores)
    with writing(Path(path)) as out:
        out.writelines("\t".join(row) + "\n" for row in (table.columns, *table.rows))


def records(comparison: Comparison) -> list[dict[str, object]]:
    """Return every cell as a flat mapping for JSON; what is unknowable (NaN) is None."""
    rows = []
    for cell in comparison.cells:
        row: dict[str, object] = cell._asdict()
        row.pop("contrast")
        if cell.contrast is not None:
            row |= {
                f"difference_{k}" if k in ("low", "high") else k: v
                for k, v in cell.contrast._asdict().items()
            }
        rows.append({k: None if isinstance(v, float) and math.isnan(v) else v for k, v in row.items()})
    return rows


def markdown(table: Table) -> str:
    """Write a table in Markdown: numbers to the right, the best bold, the legend below."""
    numeric = [all(_is_number(row[i]) for row in table.rows) for i in range(len(table.columns))]
    lines = [table.columns, tuple("---:" if right else "---" for right in numeric)]
    for number, row in enumerate(table.rows):
        cells = [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
        lines.append(tuple(f"**{c}**" if (number, i) in table.strong else c for i, c in enumerate(cells)))
    text = "\n".join(f"| {' | '.join(line)} |" for line in lines)
    return f"{text}\n\n{table.legend}\n" if table.legend else f"{text}\n"


def write_report(
    comparison: Comparison,
    path: Path | str,
    title: str = "Evaluation",
    texts: Mapping[str, str] = _NOTHING,
    most: int = 5,
) -> None:
    """Write a page that stands alone: tables, charts, best and worst queries; no link and no script.

    Args:
        comparison: What to show.
        path: The HTML file.
        title: Its heading.
        texts: Query id -> its words, shown beside the best and worst queries.
        most: How many of these to show on each side.

    Raises:
        MissingExtra: jinja2 or matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined  # noqa: PLC0415 - optional
        from markupsafe import Markup  # noqa: PLC0415 - comes with jinja2
    except ImportError as error:
        raise MissingExtra("writing a report page", "report") from error
    environment = Environment(
        loader=FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    sections = [
        {
            "system": system,
            "contrasts": contrasts_table(comparison, system),
            "charts": [
                # The plotting library has escaped the names that it wrote into the picture.
                (measure, Markup(inline_chart(comparison, system, measure)))  # noqa: S704
                for measure in comparison.measures
            ],
            "extremes": extremes_tables(comparison, system, comparison.measures[0], most, texts),
        }
        for system in comparison.challengers
    ]
    page = environment.get_template("report.html.j2").render(
        title=title,
        comparison=comparison,
        means=means_table(comparison),
        sections=sections,
        better=BETTER,
        worse=WORSE,
    )
    with writing(Path(path)) as out:
        out.write(page)


def _mark(cell: Cell, before: str) -> str:
    if cell.contrast is None or not cell.contrast.significant:
        return ""
    return before + (BETTER if cell.contrast.difference > 0 else WORSE)


def _legend(comparison: Comparison) -> str:
    marks = f" {BETTER} significantly better, {WORSE} significantly worse." if comparison.challengers else ""
    return comparison.method + marks


def _range(low: float, high: float) -> str:
    return "unknown" if math.isnan(low) else f"{low:+.4f} to {high:+.4f}"


def _probability(p: float) -> str:
    return "< 0.0001" if p < 0.0001 else f"{p:.4f}"


def _is_number(text: str) -> bool:
    return text[:1] in "+-.<0123456789" and bool(text)
