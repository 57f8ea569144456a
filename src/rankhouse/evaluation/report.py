"""An evaluation as a page of HTML: tables, charts, best and worst queries (extra: report)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from rankhouse.evaluation.charts import inline_chart
from rankhouse.evaluation.comparison_data import ComparisonData
from rankhouse.evaluation.difficulty_chart import inline_difficulty_chart
from rankhouse.evaluation.tables import differences_table, extremes_tables, means_table
from rankhouse.page.html import write_page

_TEMPLATE = Path(__file__).parent / "templates" / "report.html.j2"
_NOTHING: Mapping[str, str] = {}


def write_report(
    comparison: ComparisonData,
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
    sections = [
        {
            "system": system,
            "tests": differences_table(comparison, system),
            "charts": [
                (measure, inline_chart(comparison, system, measure)) for measure in comparison.measures
            ],
            "difficulty": inline_difficulty_chart(comparison, system, comparison.measures[0]),
            "extremes": extremes_tables(comparison, system, comparison.measures[0], most, texts),
        }
        for system in comparison.challengers
    ]
    content = {"title": title, "comparison": comparison, "sections": sections}
    write_page(_TEMPLATE, content | {"means": means_table(comparison)}, path)
