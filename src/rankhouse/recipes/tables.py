"""The tables of a recipe: rows side by side, tested against a baseline, compared with what was expected."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, NamedTuple

from rankhouse.core.errors import warn
from rankhouse.evaluation.compare import Comparison, compare_scores
from rankhouse.evaluation.measures import Scores
from rankhouse.evaluation.report import differences_table, mark, records
from rankhouse.evaluation.significance import Interval, t_interval
from rankhouse.page.tables import BETTER, WORSE, Table
from rankhouse.recipes.lines import Key
from rankhouse.recipes.parse import TableSpec, label, measure_names
from rankhouse.recipes.plan import RecipePlan
from rankhouse.recipes.values import (
    Quantity,
    Results,
    Sample,
    check_references,
    heading,
    over_passes,
    over_queries,
)

REPRODUCED, DIFFERS, ABSENT = "reproduced", "differs by", "data absent"


class Check(NamedTuple):
    """An expected number and what was found."""

    row: str
    column: str
    expected: float
    within: float  # the difference that still counts as reproduced
    source: str  # where it is from
    found: float | None  # None if data are absent
    status: str  # "reproduced", "differs by +0.0123" or "data absent"


class TableResult(NamedTuple):
    """A table of a result."""

    name: str
    note: str  # a sentence below
    table: Table  # its texts
    cells: list[dict[str, object]]  # its numbers, one mapping a cell
    checks: list[Check]  # expected numbers
    comparison: Comparison | None  # what stands behind it; None if all is absent
    remarks: tuple[str, ...]  # what a reader must know
    tests: Table | None = None  # differences to the baseline, with intervals and p; None without a baseline


def _own(plan: RecipePlan, table: TableSpec, place: Key) -> tuple[str, ...]:
    """Name the variables that a table writes in braces; it is made once for each of their values."""
    written = [table.name, table.qrels, table.note, table.rows, list(table.rows), table.numbers]
    return plan.loops.own(written, place)


def check_tables(plan: RecipePlan) -> None:
    """Check, before anything runs, that all rows and judgements name something; a fault says the line."""
    for number, table in enumerate(plan.file.recipe.table):
        place: Key = ("table", number)
        own = _own(plan, table, place)
        check_references(plan, table, place)
        for at, expect in enumerate(table.expect):
            for name in expect.when.keys() - set(own):
                raise plan.file.lines.fault(
                    (*place, "expect", at),
                    f"when = {{ {name} = ... }}: the table is not made once for each {name}; write "
                    f"{{{name}}} in its qrels, rows or name",
                )


def make_tables(plan: RecipePlan, results: Results) -> list[TableResult]:
    """Make all tables of a recipe."""
    return [
        _make(plan, results, table, ("table", number), bindings=bindings)
        for number, table in enumerate(plan.file.recipe.table)
        for bindings in plan.loops.passes(_own(plan, table, ("table", number)))
    ]


def _make(
    plan: RecipePlan, results: Results, table: TableSpec, place: Key, bindings: dict[str, Any]
) -> TableResult:
    quantity = Quantity(table.measures, table.qrels, table.numbers)
    samples = {
        row: results.sample(reference, quantity, bindings, (*place, "rows", row))
        for row, reference in table.rows.items()
    }
    there = {row: sample for row, sample in samples.items() if sample is not None}
    columns = tuple(table.numbers)
    if table.measures:
        columns = measure_names(table.measures, (*place, "measures"), plan.file.lines)
    comparison = _compared(plan, table, there, place) if there else None
    name, note = heading(plan, table, bindings, place)
    return TableResult(
        name=name,
        note=note,
        table=_texts(table, columns, there, comparison),
        cells=_records(samples, columns, comparison),
        checks=list(_checks(table, bindings, there, smallest=plan.file.smallest, place=place, plan=plan)),
        comparison=comparison,
        remarks=(
            *(comparison.remarks if comparison and table.measures else ()),
            *_unequal(table, there, name),
        ),
        tests=differences_table(comparison)._replace(legend="")
        if comparison and comparison.challengers
        else None,
    )


def _unequal(table: TableSpec, samples: Mapping[str, Sample], name: str) -> Iterator[str]:
    """Say, and warn, where rows differ in a column that they should share."""
    for column in table.equal:
        means = {row: over_passes(sample).mean(column) for row, sample in samples.items()}
        if len(set(means.values())) > 1:
            shown = ", ".join(f"{row} {number_text(mean)}" for row, mean in means.items())
            text = f"{column} should be equal in all rows, but are not: {shown}"
            warn(f"{name}: {text}")
            yield text


def _compared(plan: RecipePlan, table: TableSpec, samples: Mapping[str, Sample], place: Key) -> Comparison:
    """Average runs by query, numbers by pass, and test against the baseline if it is there."""
    merge = over_queries if table.measures else over_passes
    scores = {row: merge(sample) for row, sample in samples.items()}
    baseline = table.baseline if table.baseline in scores and len(scores) > 1 else None
    if baseline is not None:
        base = scores[baseline]
        for row, own in scores.items():
            if set(own.query_ids) != set(base.query_ids):
                what = "queries" if table.measures else "passes of the loop"
                raise plan.file.lines.fault(
                    (*place, "rows", row),
                    f'"{row}" ({len(own.query_ids)} {what}) and the baseline ({len(base.query_ids)}) are '
                    f"measured on different {what}, so they cannot be tested in pairs; leave out baseline",
                )
        scores = {row: _in_order(own, base.query_ids) for row, own in scores.items()}
    return compare_scores(scores, baseline, table.test, table.correction)


def _in_order(scores: Scores, query_ids: tuple[str, ...]) -> Scores:
    """Bring the columns into the order of these queries, which are the same ones."""
    place = {query_id: at for at, query_id in enumerate(scores.query_ids)}
    return replace(scores, query_ids=query_ids, values=scores.values[:, [place[q] for q in query_ids]])


def _texts(
    table: TableSpec, columns: tuple[str, ...], samples: Mapping[str, Sample], comparison: Comparison | None
) -> Table:
    """Lay the table out: mean, ± half the interval over the loop, ▲ and ▼."""
    rows, looped = [], False
    for row in table.rows:
        if comparison is None or row not in samples:
            rows.append((row, *("–" for _ in columns)))
            continue
        texts = []
        for column in columns:
            cell, spread = comparison.cell(row, column), over_loop(samples[row], column)
            text = number_text(cell.mean) if table.numbers else f"{cell.mean:.4f}"
            if spread is not None and not math.isnan(spread.high):
                looped = True
                half = spread.high - spread.mean
                text += f" ± {number_text(half) if table.numbers else f'{half:.4f}'}"
            texts.append(text + mark(cell))
        rows.append((row, *texts))
    strong = _best(table, columns, comparison) if table.measures and comparison else frozenset()
    return Table(("", *columns), tuple(rows), strong, _legend(table, comparison, looped=looped))


def over_loop(sample: Sample, column: str) -> Interval | None:
    """Return mean and 95 % interval over the passes; None if there is one pass only."""
    if len(sample.scores) < 2:
        return None
    return t_interval(over_passes(sample).of(column))


def number_text(value: float) -> str:
    """Write a number of unknown kind: whole ones whole, large ones short."""
    if math.isnan(value):
        return "–"
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    return f"{value:,.1f}" if abs(value) >= 100 else f"{value:.4f}"


def _best(table: TableSpec, columns: tuple[str, ...], comparison: Comparison) -> frozenset[tuple[int, int]]:
    """Find the best of each column, if several rows are there."""
    if len(comparison.systems) < 2:
        return frozenset()
    order = list(table.rows)
    strong = set()
    for at, column in enumerate(columns, 1):
        means = {row: round(comparison.cell(row, column).mean, 4) for row in comparison.systems}
        strong |= {(order.index(row), at) for row, mean in means.items() if mean == max(means.values())}
    return frozenset(strong)


def _legend(table: TableSpec, comparison: Comparison | None, *, looped: bool) -> str:
    if comparison is None:
        return "Data absent."
    over = " ±: half the 95 % t interval over the loop." if looped else ""
    if table.measures:
        return f"{comparison.method}{over}"
    if not comparison.challengers:
        return over.strip()
    return (
        f'Means over the loop.{over} {BETTER} significantly higher, {WORSE} lower than "{table.baseline}": '
        f"two-sided {table.test} test paired by pass, correction {table.correction}, p < 0.05."
    )


def _records(
    samples: Mapping[str, Sample | None], columns: tuple[str, ...], comparison: Comparison | None
) -> list[dict[str, object]]:
    """Return every cell as numbers, those that are absent as None or NaN."""
    known = {}
    if comparison is not None:
        known = {(r["system"], r["measure"]): r for r in records(comparison)}
    rows = []
    for row, sample in samples.items():
        for column in columns:
            cell = dict(known.get((row, column), {"system": row, "measure": column, "mean": None}))
            if sample is not None and (spread := over_loop(sample, column)) is not None:
                values = over_passes(sample).of(column).tolist()
                cell["passes"] = dict(zip(sample.labels, values, strict=True))
                cell["loop_low"], cell["loop_high"] = spread.low, spread.high
            rows.append(cell)
    return rows


def _checks(
    table: TableSpec,
    bindings: Mapping[str, Any],
    samples: Mapping[str, Sample],
    *,
    smallest: bool,
    place: Key,
    plan: RecipePlan,
) -> Iterator[Check]:
    """Compare with what was expected."""
    labels = {name: label(value) for name, value in bindings.items()}
    for expect in table.expect:
        if expect.smallest != smallest or any(labels.get(n) != str(v) for n, v in expect.when.items()):
            continue
        for row, cells in expect.rows.items():
            is_there = row in samples and expect.passes in (0, len(samples[row].labels))
            for column, expected in cells.items():
                name = measure_names(column, place, plan.file.lines)[0] if table.measures else column
                number = float(over_passes(samples[row]).of(name).mean()) if is_there else None
                yield Check(
                    row,
                    name,
                    expected,
                    expect.within,
                    source=expect.source,
                    found=number,
                    status=status(expected, number, expect.within),
                )


def status(expected: float, measured: float | None, within: float) -> str:
    """Say how a number, None if data are absent, compares with the expected one."""
    if measured is None:
        return ABSENT
    # The last digit of what is expected was rounded, and so was the tolerance.
    if abs(measured - expected) <= within + 1e-9:
        return REPRODUCED
    return f"{DIFFERS} {measured - expected:+.4f}"
