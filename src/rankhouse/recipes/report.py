"""A result for people and programs: its figures, Markdown, JSON, and a page of HTML with pictures."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from rankhouse.core.errors import MissingExtra
from rankhouse.evaluation.report import inline_chart
from rankhouse.evaluation.significance import Interval, t_interval
from rankhouse.io.outputs import write_json, writing
from rankhouse.page.charts import Palette, canvas, inline, plain_axes
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table
from rankhouse.recipes.execute import State
from rankhouse.recipes.lines import Key
from rankhouse.recipes.parse import FigureSpec, label, measure_names
from rankhouse.recipes.plan import RecipePlan
from rankhouse.recipes.tables import ABSENT, DIFFERS, REPRODUCED, TableResult
from rankhouse.recipes.values import Quantity, Results, check_references, heading, over_passes, over_queries

if TYPE_CHECKING:
    from matplotlib.figure import Figure


_DASHES: tuple[Any, ...] = ("solid", (0, (5, 2)), (0, (1, 1.5)), (0, (6, 2, 1, 2)))
_UNKNOWN = Interval(math.nan, math.nan, math.nan)
_MARKS = ("o", "s", "^", "D", "v", "P")


class FigureResult(NamedTuple):
    """A figure with its numbers."""

    name: str
    note: str  # a sentence below
    spec: FigureSpec
    xs: tuple[Any, ...]  # values along the bottom
    lines: Mapping[str, list[Interval | None]]  # rows, or values along the side -> at each x; None: no data
    measure: str  # what is drawn

    @property
    def table(self) -> Table:
        """The numbers as a table: a row a line, a column an x."""
        rows = tuple(
            (line, *("–" if p is None else f"{p.mean:.4f}{_half(p)}" for p in points))
            for line, points in self.lines.items()
        )
        head = self.spec.y or self.measure
        legend = f"{self.measure}; ±: half the 95 % t interval, over the loop if there is more than one pass"
        columns = (head, *(f"{self.spec.x} = {label(x)}" for x in self.xs))
        return Table(columns, rows, legend=f"{legend}, else over the queries.")

    @property
    def points(self) -> list[dict[str, object]]:
        """The numbers as plain data; what is unknown is NaN."""
        return [
            {"line": line, "x": label(x), **(p or _UNKNOWN)._asdict()}
            for line, points in self.lines.items()
            for x, p in zip(self.xs, points, strict=True)
        ]

    def svg(self) -> str:
        """Draw for a page; MissingExtra where matplotlib is not installed."""
        draw = _matrix if self.spec.kind == "matrix" else _curve
        return inline(lambda palette: draw(self, palette), f"{self.name}\t{self.measure}")


def _half(point: Interval) -> str:
    return "" if math.isnan(point.high) else f" ± {point.high - point.mean:.4f}"


def check_figures(plan: RecipePlan) -> None:
    """Check, before anything runs, that all rows and judgements name something; a fault says the line."""
    for number, figure in enumerate(plan.file.recipe.figure):
        check_references(plan, figure, ("figure", number))


def make_figures(plan: RecipePlan, results: Results) -> list[FigureResult]:
    """Measure all figures of a recipe, each once for each value of the variables it writes in braces."""
    figures = []
    for number, figure in enumerate(plan.file.recipe.figure):
        place: Key = ("figure", number)
        axes = {figure.x, figure.y}
        written = [figure.name, figure.qrels, figure.note, figure.rows]
        own = tuple(name for name in plan.loops.own(written, place) if name not in axes)
        figures += [_make(plan, results, number, bindings) for bindings in plan.loops.passes(own)]
    return figures


def _make(plan: RecipePlan, results: Results, number: int, bindings: dict[str, Any]) -> FigureResult:
    recipe, place = plan.file.recipe, ("figure", number)
    figure = recipe.figure[number]
    quantity = Quantity(figure.value, figure.qrels, {figure.number: figure.number} if figure.number else {})
    measure = figure.number or measure_names(figure.value, place, plan.file.lines)[0]
    xs = recipe.loop[figure.x]
    sides: tuple[Any, ...] = recipe.loop[figure.y] if figure.y else (None,)
    lines: dict[str, list[Interval | None]] = {}
    for row, reference in figure.rows.items():
        for side in sides:
            bound = bindings | ({figure.y: side} if figure.y else {})
            points: list[Interval | None] = []
            for x in xs:
                at = (*place, "rows", row)
                sample = results.sample(reference, quantity, bound | {figure.x: x}, at)
                if sample is None:
                    points.append(None)
                elif len(sample.scores) > 1 or figure.number:
                    points.append(t_interval(over_passes(sample).of(measure)))
                else:
                    points.append(t_interval(over_queries(sample).of(measure)))
            lines[label(side) if figure.y else row] = points
    name, note = heading(plan, figure, bindings, place)
    return FigureResult(name, note, figure, tuple(xs), lines=lines, measure=measure)


def _curve(result: FigureResult, palette: Palette) -> Figure:
    """Draw lines with their intervals; dashes and marks tell them apart without colour too."""
    numeric = all(isinstance(x, int | float) for x in result.xs)
    at = [float(x) for x in result.xs] if numeric else [float(i) for i in range(len(result.xs))]
    figure, axes = canvas(3.6, left=0.075, right=0.8, top=0.95, bottom=0.15)
    for number, (line, points) in enumerate(result.lines.items()):
        known = [(x, p) for x, p in zip(at, points, strict=True) if p is not None and not math.isnan(p.mean)]
        if not known:
            continue
        colour = (palette.gain, palette.loss, palette.muted, palette.ink)[number % 4]
        places, means = [x for x, _ in known], [p.mean for _, p in known]
        style: dict[str, Any] = {"color": colour, "linestyle": _DASHES[number % len(_DASHES)]}
        axes.plot(places, means, marker=_MARKS[number % len(_MARKS)], markersize=4, linewidth=1.4, **style)
        sure = [(x, p) for x, p in known if not math.isnan(p.high)]
        for x, point in sure:
            axes.plot([x, x], [point.low, point.high], color=colour, linewidth=1.0, alpha=0.6)
        text: dict[str, Any] = {"xytext": (8, 0), "textcoords": "offset points", "va": "center"}
        axes.annotate(line, (places[-1], means[-1]), color=colour, annotation_clip=False, **text)
    if result.spec.log and numeric and min(at) > 0:
        axes.set_xscale("log")
        axes.minorticks_off()
    axes.set_xticks(at, [f"{x:,}" if isinstance(x, int) else label(x) for x in result.xs])
    axes.set_xlabel(result.spec.x)
    axes.set_ylabel(result.measure, color=palette.muted)
    plain_axes(axes, palette)
    return figure


def _matrix(result: FigureResult, palette: Palette) -> Figure:
    """Draw a field of numbers, the darker the higher within its column."""
    from matplotlib.patches import Rectangle

    sides, xs = list(result.lines), [label(x) for x in result.xs]
    height = 0.75 + 0.45 * len(sides)
    figure, axes = canvas(height, left=0.2, right=0.98, top=1 - 0.5 / height, bottom=0.08 / height)
    for column in range(len(xs)):
        points = [result.lines[side][column] for side in sides]
        means = [p.mean for p in points if p is not None and not math.isnan(p.mean)]
        low, high = min(means, default=0.0), max(means, default=0.0)
        for row, point in enumerate(points):
            text, weight = "absent", "normal"
            if point is not None and not math.isnan(point.mean):
                share = (point.mean - low) / (high - low) if high > low else 0.0
                box = Rectangle((column - 0.48, row - 0.46), 0.96, 0.92, facecolor=palette.gain)
                box.set_alpha(0.08 + 0.32 * share)
                axes.add_patch(box)
                text = f"{point.mean:.4f}{_half(point)}"
                weight = "bold" if point.mean == high and len(means) > 1 else "normal"
            axes.text(column, row, text, ha="center", va="center", color=palette.ink, fontweight=weight)
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(len(sides) - 0.5, -0.5)
    axes.set_xticks(range(len(xs)), xs)
    axes.xaxis.tick_top()
    axes.set_yticks(range(len(sides)), sides)
    axes.set_xlabel(result.spec.x, color=palette.muted)
    axes.xaxis.set_label_position("top")
    axes.set_ylabel(result.spec.y, color=palette.muted)
    plain_axes(axes, palette, grid=False)
    return figure


_TEMPLATE = Path(__file__).parent / "templates" / "recipe.html.j2"


class Result(NamedTuple):
    """All that a recipe shows."""

    plan: RecipePlan
    states: list[State]
    tables: list[TableResult]
    figures: list[FigureResult]

    @property
    def seconds(self) -> float:
        """Seconds that the steps took, earlier runs of the recipe included."""
        return sum(state.record.seconds for state in self.states if state.record is not None)

    @property
    def differing(self) -> int:
        """Number of expected values that were not met."""
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
