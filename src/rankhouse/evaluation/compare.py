"""Systems side by side: means with intervals, differences to a baseline, and whether they are more than luck.

All tests of one comparison, every system other than the baseline times every measure, form the family that
a correction counts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.frames import frame
from rankhouse.core.notation import choose
from rankhouse.core.progress import counted
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation import report, significance
from rankhouse.evaluation.measures import Evaluator, Scores
from rankhouse.io.outputs import write_json, writing
from rankhouse.page.charts import ending_of

if TYPE_CHECKING:
    import pandas as pd


class QueryDifference(NamedTuple):
    """One query: the value of the baseline, of the system, and the second minus the first."""

    query_id: str
    baseline: float
    value: float
    difference: float


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Systems side by side, to be printed, shown in a notebook, converted and saved.

    >>> import rankhouse as rh
    >>> old, new = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "a": 1.0}}
    >>> print(rh.compare({"old": old, "new": new}, {"q": {"b": 1}}, "AP").to_markdown(), end="")
    | system | AP |
    | --- | ---: |
    | old | 0.5000 |
    | new | **1.0000** |
    <BLANKLINE>
    Means over 1 query.

    Attributes:
        scores: System -> its scores, in the order given; all over the same queries.
        baseline: The system the others are compared with; None if there is none.
        test: "t" or "randomization".
        correction: "none", "bonferroni" or "holm".
        cells: Row by row: the systems in order, within each the measures in order.
    """

    scores: Mapping[str, Scores]
    baseline: str | None
    test: str
    correction: str
    seed: int
    cells: tuple[significance.MeanScore, ...]

    @property
    def systems(self) -> tuple[str, ...]:
        """The systems' names, in the order given."""
        return tuple(self.scores)

    @property
    def measures(self) -> tuple[str, ...]:
        """The measures' names."""
        return next(iter(self.scores.values())).measures

    @property
    def query_ids(self) -> tuple[str, ...]:
        """The judged queries; every mean is over all of them."""
        return next(iter(self.scores.values())).query_ids

    @property
    def challengers(self) -> tuple[str, ...]:
        """The systems compared with the baseline; none without a baseline."""
        return tuple(s for s in self.scores if s != self.baseline) if self.baseline is not None else ()

    def __getitem__(self, system: str) -> Scores:
        return choose(system, self.scores, "system")

    def __iter__(self) -> Iterator[str]:
        return iter(self.scores)

    def __len__(self) -> int:
        return len(self.scores)

    def cell(self, system: str, measure: str) -> significance.MeanScore:
        """Return one cell of the table.

        Raises:
            WrongUse: There is no such system or measure.
        """
        choose(system, self.scores, "system")
        choose(measure, dict.fromkeys(self.measures), "measure of this comparison")
        return next(c for c in self.cells if c.system == system and c.measure == measure)

    def differences(self, system: str, measure: str) -> tuple[QueryDifference, ...]:
        """Compare a system with the baseline query by query, largest gain first (ties by query id).

        Raises:
            WrongUse: There is no baseline, or no such system or measure.
        """
        if self.baseline is None:
            raise WrongUse("there is no baseline to differ from; name one of the systems as baseline")
        choose(system, self.scores, "system")
        old, new = self.scores[self.baseline].of(measure), self.scores[system].of(measure)
        gains = significance.without_rounding(new - old)
        rows = zip(self.query_ids, old.tolist(), new.tolist(), gains.tolist(), strict=True)
        return tuple(
            sorted((QueryDifference(*row) for row in rows), key=lambda r: (-r.difference, r.query_id))
        )

    def extremes(
        self, system: str, measure: str, most: int = 5
    ) -> tuple[tuple[QueryDifference, ...], tuple[QueryDifference, ...]]:
        """Return the queries a system helps most and those it hurts most, the strongest first.

        Raises:
            WrongUse: There is no baseline, or no such system or measure.
        """
        ordered = self.differences(system, measure)
        best = tuple(row for row in ordered[:most] if row.difference > 0)
        worst = tuple(row for row in ordered[::-1][:most] if row.difference < 0)
        return best, worst

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks that a reader of the table needs, one sentence each: queries not covered, odd tests."""
        shared: dict[str, list[str]] = {}
        for system, scores in self.scores.items():
            for remark in scores.remarks:
                shared.setdefault(remark, []).append(system)
        everybody = [*self.scores] if len(self.scores) > 1 else []
        of_runs = [
            f"{'all runs' if systems == everybody else ', '.join(systems)}: {remark}"
            for remark, systems in shared.items()
        ]
        noted: dict[str, dict[str, list[str]]] = {}
        for cell in self.cells:
            if cell.paired_test is not None and cell.paired_test.note:
                noted.setdefault(cell.paired_test.note, {}).setdefault(cell.system, []).append(cell.measure)
        of_tests = [
            f"{note}: {'; '.join(places)}"
            for note, tested in noted.items()
            for places in [[f"{system} ({', '.join(where)})" for system, where in tested.items()]]
        ]
        return tuple(of_runs + of_tests)

    @property
    def method(self) -> str:
        """Say in one sentence how the numbers were computed."""
        queries = counted(len(self.query_ids), "query", "queries")
        means = f"Means over {queries}"
        if not self.challengers:
            return f"{means}."
        count = len(self.challengers) * len(self.measures)
        tests = "1 test" if count == 1 else f"{count} tests"
        return (
            f"{means}; two-sided {significance.TESTS[self.test].describe(self.seed)} "
            f'against "{self.baseline}", {significance.CORRECTIONS[self.correction].name} {tests}; '
            f"significant at p < {significance.ALPHA}."
        )

    def __str__(self) -> str:
        notes = "\n".join(f"note: {remark}" for remark in self.remarks)
        shown = [table.to_text() for table in report.main_tables(self)]
        return "\n\n".join([*shown, notes] if notes else shown)

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.systems)} in {' '.join(self.measures)}>\n{self}"

    def _repr_html_(self) -> str:
        shown = [f"{table.to_html()}<p>{escape(table.legend)}</p>" for table in report.main_tables(self)]
        return "".join([*shown, *(f"<p>{escape(remark)}</p>" for remark in self.remarks)])

    def to_dict(self) -> dict[str, object]:
        """Return method, remarks and cells as plain values, as ``rankhouse evaluate --json`` prints them."""
        return {"method": self.method, "remarks": list(self.remarks), "cells": report.records(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a system and measure: mean, interval, and its test (needs pandas)."""
        records = report.records(self)
        return frame(records, _columns(records))

    def to_markdown(self) -> str:
        """Return the means, and with a baseline the tests, as Markdown."""
        return "\n".join(table.to_markdown() for table in report.main_tables(self))

    def save(
        self,
        path: Path | str,
        *,
        title: str = "Evaluation",
        texts: Mapping[str, str] | None = None,
        system: str | None = None,
        measure: str | None = None,
    ) -> None:
        """Write the comparison as the file's ending says.

        ``.html`` is a page with tables, charts, best and worst queries; ``.md`` the tables; ``.csv`` a row
        for each system and measure; ``.json`` what :meth:`to_dict` returns; ``.png`` and ``.svg`` a chart of
        the differences of one system to the baseline, query by query.

        Args:
            title: Heading of a page.
            texts: Query id -> its words, shown in a page.
            system: Whose differences a chart shows; may be left out where only one differs from the baseline.
            measure: In which measure; the first one where left out.

        Raises:
            WrongUse: Another ending; a chart without a baseline, or of several systems.
            MissingExtra: A page or chart without the extra ``report``.
            OutputFailed: The file cannot be written.
        """
        path = Path(path)
        kind = ending_of(path, "a comparison is", ".html", ".md", ".csv", ".json", ".png", ".svg")
        if kind == ".html":
            report.write_report(self, path, title, texts)
        elif kind in (".png", ".svg"):
            report.write_chart(self, system or self._only_challenger(), measure or self.measures[0], path)
        elif kind == ".json":
            write_json(path, self.to_dict())
        else:
            with writing(path) as out:
                out.write(self.to_markdown() if kind == ".md" else _csv(self))

    def _only_challenger(self) -> str:
        if self.baseline is None:
            raise WrongUse("a chart shows differences to a baseline; name one of the systems as baseline")
        if not self.challengers:
            raise WrongUse(f'"{self.baseline}" alone differs from nothing; compare it with another system')
        if len(self.challengers) > 1:
            raise WrongUse(
                f"a chart shows one system: name it, like  system={self.challengers[0]!r};  there are: "
                f"{', '.join(self.challengers)}"
            )
        return self.challengers[0]


def _columns(records: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for record in records for key in record))


def _csv(comparison: Comparison) -> str:
    records = report.records(comparison)
    text = io.StringIO()
    writer = csv.DictWriter(text, _columns(records), lineterminator="\n")
    writer.writeheader()
    writer.writerows(records)
    return text.getvalue()


def compare(
    runs: Mapping[str, Run],
    qrels: Qrels,
    measures: str | Iterable[str],
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison:
    """Evaluate systems side by side and test their differences to a baseline.

    Args:
        runs: System name -> its run, in the order of the table.
        qrels: Judgements; every judged query counts for every system, as 0 where a run has no results.
        measures: Names in ir_measures' notation.
        baseline: The system to compare the others with; None only gives means and intervals.
        test: One of :data:`TESTS`: "t" (paired t-test), "randomization" (Fisher's, exact where at most 17
            queries differ).
        correction: None, or one of :data:`CORRECTIONS`: "bonferroni", "holm"; over all systems and measures.
        seed: Of the randomization test.

    Raises:
        WrongUse: No runs, or a baseline, test, correction or measure that does not exist.
        BadData: A run that shares no query with the judgements.
    """
    if not runs:
        raise WrongUse("no run was given; give at least one run to evaluate")
    if baseline is not None:
        choose(baseline, runs, "baseline")
    choose(test, significance.TESTS, "test")
    choose(correction or "none", significance.CORRECTIONS, "correction")
    evaluator = Evaluator(qrels, measures)
    scores = {system: evaluator(run) for system, run in runs.items()}
    return compare_scores(scores, baseline, test, correction, seed=seed)


def compare_scores(
    scores: Mapping[str, Scores],
    baseline: str | None = None,
    test: str = "t",
    correction: str | None = None,
    seed: int = 0,
) -> Comparison:
    """Test the differences of systems that were measured already, as :func:`compare` does.

    Args:
        scores: System name -> its scores; all with the same measures, and with the baseline's queries.

    Raises:
        WrongUse: A baseline, test or correction that does not exist, or other queries than the baseline's.
    """
    if baseline is not None:
        choose(baseline, scores, "baseline")
    test_of = choose(test, significance.TESTS, "test").p
    correct = choose(correction or "none", significance.CORRECTIONS, "correction").correct
    if seed < 0:
        raise WrongUse(f"seed = {seed} was given; a seed is a whole number of 0 or more")
    measures = next(iter(scores.values())).measures
    tests: dict[tuple[str, str], significance.PairedTest] = {}
    challengers = [system for system in scores if baseline is not None and system != baseline]
    if baseline is not None and challengers:
        for system, own in scores.items():
            if own.query_ids != scores[baseline].query_ids:
                raise WrongUse(
                    f'"{system}" and the baseline "{baseline}" are measured on different queries, or in '
                    "another order; measure them with the same judgements"
                )
        gains = significance.without_rounding(
            np.concatenate([scores[s].values - scores[baseline].values for s in challengers])
        )
        p = test_of(gains, seed)
        names = [(system, measure) for system in challengers for measure in measures]
        rows = zip(names, gains, p.tolist(), correct(p).tolist(), strict=True)
        tests = {name: _paired_test(row, raw, final) for name, row, raw, final in rows}
    cells = []
    for system, own in scores.items():
        for measure in measures:
            _, low, high = significance.t_interval(own.of(measure))
            mean = own.mean(measure)  # as trec_eval would print it
            cells.append(
                significance.MeanScore(
                    system, measure, mean, low, high=high, paired_test=tests.get((system, measure))
                )
            )
    return Comparison(scores, baseline, test, correction or "none", seed=seed, cells=tuple(cells))


def _paired_test(gains: significance.Floats, p: float, corrected: float) -> significance.PairedTest:
    """Sum up one test."""
    wins, losses, note = int(np.count_nonzero(gains > 0)), int(np.count_nonzero(gains < 0)), ""
    if not gains.any():
        note = "no query differs from the baseline, so there is nothing to test (p = 1)"
    elif len(gains) == 1:
        note = "one query alone cannot show that a difference is more than luck (p = 1)"
    elif np.ptp(gains) < significance.TIE:
        note = "the difference is the same on every query, which leaves a t-test no spread to judge by"
    return significance.PairedTest(
        *significance.t_interval(gains),
        p=p,
        corrected=corrected,
        significant=corrected < significance.ALPHA,
        wins=wins,
        ties=len(gains) - wins - losses,
        losses=losses,
        note=note,
    )
