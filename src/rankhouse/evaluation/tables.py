"""An evaluation as tables, as plain values, and as a page of HTML (the page needs the extra report)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.evaluation.charts import inline_chart
from rankhouse.evaluation.measures import Scores
from rankhouse.evaluation.significance import MeanScore
from rankhouse.io.outputs import writing
from rankhouse.page.html import write_page
from rankhouse.page.tables import BETTER, WORSE, Table

if TYPE_CHECKING:
    from rankhouse.evaluation.compare import Comparison


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
    return "one query" if math.isnan(cell.high) else f"± {cell.high - cell.mean:.4f}"


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
