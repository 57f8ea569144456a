"""A result for people and programs: Markdown, JSON, and a page of HTML with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import msgspec

from rankhouse.app.recipes.execute.execute import State
from rankhouse.app.recipes.read.plan import Plan
from rankhouse.app.recipes.show.figures import Drawn
from rankhouse.app.recipes.show.tables import ABSENT, DIFFERS, REPRODUCED, Shown
from rankhouse.core.errors import MissingExtra
from rankhouse.core.outputs import writing
from rankhouse.evaluation import report
from rankhouse.evaluation.charts import inline_chart
from rankhouse.evaluation.report import BETTER, WORSE, Table


class Result(NamedTuple):
    """All that a recipe shows."""

    plan: Plan
    states: list[State]
    tables: list[Shown]
    figures: list[Drawn]

    @property
    def seconds(self) -> float:
        """What the steps took, those of earlier sittings too."""
        return sum(state.record.seconds for state in self.states if state.record is not None)

    @property
    def differing(self) -> int:
        """How many expected numbers were not met."""
        return sum(check.status.startswith(DIFFERS) for shown in self.tables for check in shown.checks)

    @property
    def verdict(self) -> str:
        """Say in one sentence how the expected numbers fared."""
        statuses = [check.status for shown in self.tables for check in shown.checks]
        if not statuses:
            return "No numbers were expected."
        counts = {
            REPRODUCED: statuses.count(REPRODUCED),
            "not met": self.differing,
            ABSENT: statuses.count(ABSENT),
        }
        said = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"Of {len(statuses)} expected numbers: {said}."


def checks_table(shown: Shown) -> Table:
    """Lay out expected and found numbers."""
    rows = tuple(
        (
            check.row,
            check.column,
            f"{check.expected:g}",
            "–" if check.found is None else f"{check.found:.4f}",
            f"{check.within:g}",
            check.status,
            check.source,
        )
        for check in shown.checks
    )
    return Table(("row", "column", "expected", "found", "within", "outcome", "source"), rows)


def write_results(result: Result, out: Path) -> list[Path]:
    """Write results.md, results.json and report.html; gives what was written."""
    written = [out / "results.md", out / "results.json"]
    with writing(written[0]) as file:
        file.write(_markdown(result))
    with writing(written[1]) as file:
        file.write(msgspec.json.format(msgspec.json.encode(record(result)), indent=2).decode() + "\n")
    try:
        _write_page(result, out / "report.html")
    except MissingExtra:
        return written
    return [*written, out / "report.html"]


def record(result: Result) -> dict[str, object]:
    """Return the result as plain data."""
    recipe = result.plan.written.recipe
    return {
        "title": recipe.title,
        "verdict": result.verdict,
        "tables": [
            {
                "name": shown.name,
                "method": shown.table.legend,
                "cells": shown.cells,
                "expected": [check._asdict() for check in shown.checks],
                "remarks": list(shown.remarks),
            }
            for shown in result.tables
        ],
        "figures": [{"name": drawn.name, "points": drawn.points} for drawn in result.figures],
        "absent": [state.task.title for state in result.states if state.record is None],
    }


def _markdown(result: Result) -> str:
    recipe = result.plan.written.recipe
    parts = [f"# {recipe.title}\n"]
    parts += [f"{text}\n" for text in (recipe.about, recipe.source and f"Source: {recipe.source}") if text]
    parts.append(f"{result.verdict}\n")
    for shown in result.tables:
        parts.append(f"## {shown.name}\n\n{report.markdown(shown.table)}")
        parts += [f"{shown.note}\n"] if shown.note else []
        parts += [f"- {remark}" for remark in shown.remarks] + ([""] if shown.remarks else [])
        parts += [report.markdown(checks_table(shown))] if shown.checks else []
    for drawn in result.figures:
        parts.append(f"## {drawn.name}\n\n{report.markdown(drawn.table)}")
    return "\n".join(parts)


def _write_page(result: Result, path: Path) -> None:
    try:
        from jinja2 import Environment, FileSystemLoader, StrictUndefined
        from markupsafe import Markup
    except ImportError as error:
        raise MissingExtra("writing a report page", "report") from error
    folders = [Path(__file__).parent / "templates", Path(report.__file__).parent / "templates"]
    environment = Environment(
        loader=FileSystemLoader(folders),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    tables = [
        {
            "shown": shown,
            "checks": checks_table(shown) if shown.checks else None,
            # The plotting library has escaped the names that it wrote into the picture.
            "charts": [
                (system, measure, Markup(inline_chart(shown.comparison, system, measure)))  # noqa: S704
                for system in shown.comparison.challengers
                for measure in shown.comparison.measures[:1]
            ]
            if shown.comparison is not None and shown.table.strong
            else [],
        }
        for shown in result.tables
    ]
    figures = [{"drawn": drawn, "svg": Markup(drawn.svg())} for drawn in result.figures]  # noqa: S704
    page = environment.get_template("recipe.html.j2").render(
        recipe=result.plan.written.recipe,
        result=result,
        tables=tables,
        figures=figures,
        better=BETTER,
        worse=WORSE,
    )
    with writing(path) as out:
        out.write(page)
