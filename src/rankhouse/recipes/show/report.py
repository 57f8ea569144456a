"""A result for people and programs: Markdown, JSON, and a page of HTML with pictures."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from rankhouse.core.errors import MissingExtra
from rankhouse.evaluation.charts import inline_chart
from rankhouse.io.outputs import write_json, writing
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table
from rankhouse.recipes.execute.execute import State
from rankhouse.recipes.read.plan import RecipePlan
from rankhouse.recipes.show.figures import FigureResult
from rankhouse.recipes.show.tables import ABSENT, DIFFERS, REPRODUCED, TableResult

_TEMPLATE = Path(__file__).parent / "templates" / "recipe.html.j2"


class Result(NamedTuple):
    """All that a recipe shows."""

    plan: RecipePlan
    states: list[State]
    tables: list[TableResult]
    figures: list[FigureResult]

    @property
    def seconds(self) -> float:
        """What the steps took, earlier runs of the recipe included."""
        return sum(state.record.seconds for state in self.states if state.record is not None)

    @property
    def differing(self) -> int:
        """How many expected numbers were not met."""
        return sum(check.status.startswith(DIFFERS) for table in self.tables for check in table.checks)

    @property
    def verdict(self) -> str:
        """Say in one sentence how the expected numbers fared."""
        statuses = [check.status for table in self.tables for check in table.checks]
        if not statuses:
            return "No numbers were expected."
        counts = {
            REPRODUCED: statuses.count(REPRODUCED),
            "not met": self.differing,
            ABSENT: statuses.count(ABSENT),
        }
        outcomes = ", ".join(f"{count} {what}" for what, count in counts.items() if count)
        return f"Of {len(statuses)} expected numbers: {outcomes}."


def checks_table(table: TableResult) -> Table:
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
        for check in table.checks
    )
    return Table(("row", "column", "expected", "found", "within", "outcome", "source"), rows)


def write_results(result: Result, out: Path) -> list[Path]:
    """Write results.md, results.json and, with the extra ``report``, report.html; return these files."""
    files = [out / "results.md", out / "results.json"]
    with writing(files[0]) as file:
        file.write(_markdown(result))
    write_json(files[1], record(result))
    try:
        _write_page(result, out / "report.html")
    except MissingExtra:
        return files
    return [*files, out / "report.html"]


def record(result: Result) -> dict[str, object]:
    """Return the result as plain data."""
    recipe = result.plan.file.recipe
    return {
        "title": recipe.title,
        "verdict": result.verdict,
        "tables": [
            {
                "name": table.name,
                "method": table.table.legend,
                "cells": table.cells,
                "expected": [check._asdict() for check in table.checks],
                "remarks": list(table.remarks),
            }
            for table in result.tables
        ],
        "figures": [{"name": figure.name, "points": figure.points} for figure in result.figures],
        "absent": [state.task.title for state in result.states if state.record is None],
    }


def _markdown(result: Result) -> str:
    recipe = result.plan.file.recipe
    parts = [f"# {recipe.title}\n"]
    parts += [f"{text}\n" for text in (recipe.about, recipe.source and f"Source: {recipe.source}") if text]
    parts.append(f"{result.verdict}\n")
    for table in result.tables:
        parts.append(f"## {table.name}\n\n{table.table.to_markdown()}")
        parts += [f"{table.note}\n"] if table.note else []
        if table.tests is not None and table.comparison is not None:
            parts.append(f"Differences to {table.comparison.baseline}:\n\n{table.tests.to_markdown()}")
        parts += [f"- {remark}" for remark in table.remarks] + ([""] if table.remarks else [])
        parts += [checks_table(table).to_markdown()] if table.checks else []
    for figure in result.figures:
        parts.append(f"## {figure.name}\n\n{figure.table.to_markdown()}")
    return "\n".join(parts)


def _write_page(result: Result, path: Path) -> None:
    tables = [
        {
            "result": table,
            "checks": checks_table(table) if table.checks else None,
            "charts": [
                (
                    system,
                    measure,
                    inline_chart(table.comparison, system, measure),
                    inline_chart(table.comparison, system, measure, "difficulty"),
                )
                for system in table.comparison.challengers
                for measure in table.comparison.measures[:1]
            ]
            if table.comparison is not None and table.table.strong
            else [],
        }
        for table in result.tables
    ]
    recipe = result.plan.file.recipe
    write_page(
        _TEMPLATE,
        {
            "title": recipe.title,
            "recipe": recipe,
            "result": result,
            "tables": tables,
            "figures": [(figure, figure.svg()) for figure in result.figures],
            "steps": _steps_table(result),
        },
        path,
    )


def _steps_table(result: Result) -> Table:
    rows = tuple(
        (state.task.title, state.task.command_line, f"{state.record.seconds:.1f}" if state.record else "–")
        for state in result.states
    )
    return Table(("step", "command", "seconds"), rows)
