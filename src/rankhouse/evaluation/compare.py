"""Systems side by side: means with intervals, differences to a baseline, and whether they are more than luck.

All tests of one comparison, every system other than the baseline times every measure, form the family that
a correction counts.
"""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.frames import frame
from rankhouse.core.notation import choose
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation import charts, tables
from rankhouse.evaluation.comparison_data import (
    ALPHA,
    TIE,
    ComparisonData,
    MeanScore,
    PairedTest,
    without_rounding,
)
from rankhouse.evaluation.measures import Evaluator, Scores
from rankhouse.evaluation.significance import CORRECTIONS, TESTS, Floats, Interval, t_interval
from rankhouse.io.outputs import write_json, writing
from rankhouse.page.charts import ending_of

if TYPE_CHECKING:
    import pandas as pd

_NO_TEXTS: Mapping[str, str] = {}


@dataclass(frozen=True, eq=False, repr=False)
class Comparison(ComparisonData):
    """Systems side by side, to be printed, shown in a notebook, converted and saved.

    >>> import rankhouse as rh
    >>> old, new = {"q": {"a": 2.0, "b": 1.0}}, {"q": {"b": 2.0, "a": 1.0}}
    >>> print(rh.compare({"old": old, "new": new}, {"q": {"b": 1}}, "AP").to_markdown(), end="")
    | system | AP |
    | --- | ---: |
    | old | 0.5000 |
    | new | **1.0000** |
    <BLANKLINE>
    Means over 1 queries with 95 % t intervals.

    Its numbers are described at :class:`ComparisonData`.
    """

    def __str__(self) -> str:
        notes = "\n".join(f"note: {remark}" for remark in self.remarks)
        return "\n\n".join([*(table.to_text() for table in tables.main_tables(self)), *filter(None, [notes])])

    def __repr__(self) -> str:
        return f"<Comparison of {', '.join(self.systems)} in {' '.join(self.measures)}>\n{self}"

    def _repr_html_(self) -> str:
        return "".join(
            f"{table.to_html()}<p>{escape(table.legend)}</p>" for table in tables.main_tables(self)
        ) + "".join(f"<p>{escape(remark)}</p>" for remark in self.remarks)

    def to_dict(self) -> dict[str, object]:
        """Return method, remarks and cells as plain values, as ``rankhouse evaluate --json`` prints them."""
        return {"method": self.method, "remarks": list(self.remarks), "cells": tables.records(self)}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a system and measure: mean, interval, and its test (needs pandas)."""
        records = tables.records(self)
        return frame(records, _columns(records))

    def to_markdown(self) -> str:
        """Return the means, and with a baseline the tests, as Markdown."""
        return "\n".join(table.to_markdown() for table in tables.main_tables(self))

    def save(
        self,
        path: Path | str,
        *,
        title: str = "Evaluation",
        texts: Mapping[str, str] = _NO_TEXTS,
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
            tables.write_report(self, path, title, texts)
        elif kind in (".png", ".svg"):
            charts.write_chart(self, system or self._only_challenger(), measure or self.measures[0], path)
        elif kind == ".json":
            write_json(path, self.to_dict())
        else:
            with writing(path) as out:
                out.write(self.to_markdown() if kind == ".md" else _csv(self))

    def _only_challenger(self) -> str:
        if self.baseline is None:
            raise WrongUse("a chart shows differences to a baseline; name one of the systems as baseline")
        if len(self.challengers) != 1:
            raise WrongUse(
                f"a chart shows one system: name it, like  system={self.challengers[0]!r};  there are: "
                f"{', '.join(self.challengers)}"
                if self.challengers
                else f'"{self.baseline}" alone differs from nothing; compare it with another system'
            )
        return self.challengers[0]


def _columns(records: list[dict[str, object]]) -> list[str]:
    return list(dict.fromkeys(key for record in records for key in record))


def _csv(comparison: Comparison) -> str:
    records = tables.records(comparison)
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
    choose(test, TESTS, "test")
    choose(correction or "none", CORRECTIONS, "correction")
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
    test_of = choose(test, TESTS, "test").p
    correct = choose(correction or "none", CORRECTIONS, "correction").correct
    if seed < 0:
        raise WrongUse(f"seed = {seed} was given; a seed is a whole number of 0 or more")
    measures = next(iter(scores.values())).measures
    tests: dict[tuple[str, str], PairedTest] = {}
    challengers = [system for system in scores if baseline is not None and system != baseline]
    if baseline is not None and challengers:
        _require_pairs(scores, baseline)
        gains = without_rounding(
            np.concatenate([scores[s].values - scores[baseline].values for s in challengers])
        )
        p = test_of(gains, seed)
        names = [(system, measure) for system in challengers for measure in measures]
        rows = zip(names, gains, p.tolist(), correct(p).tolist(), strict=True)
        tests = {name: _paired_test(row, raw, final) for name, row, raw, final in rows}
    cells = [
        MeanScore(system, measure, *_interval(scores[system], measure), tests.get((system, measure)))
        for system in scores
        for measure in measures
    ]
    return Comparison(scores, baseline, test, correction or "none", seed=seed, cells=tuple(cells))


def _require_pairs(scores: Mapping[str, Scores], baseline: str) -> None:
    """Refuse to pair values of different queries."""
    for system, own in scores.items():
        if own.query_ids != scores[baseline].query_ids:
            raise WrongUse(
                f'"{system}" and the baseline "{baseline}" are measured on different queries, or in another '
                "order; measure them with the same judgements"
            )


def _interval(scores: Scores, measure: str) -> Interval:
    """Return the interval around the mean that trec_eval would print."""
    return t_interval(scores.of(measure))._replace(mean=scores.mean(measure))


def _paired_test(gains: Floats, p: float, corrected: float) -> PairedTest:
    """Sum up one test."""
    wins, losses = int(np.count_nonzero(gains > 0)), int(np.count_nonzero(gains < 0))
    return PairedTest(
        *t_interval(gains),
        p=p,
        corrected=corrected,
        significant=corrected < ALPHA,
        wins=wins,
        ties=len(gains) - wins - losses,
        losses=losses,
        note=_note(gains),
    )


def _note(gains: Floats) -> str:
    if not gains.any():
        return "no query differs from the baseline, so there is nothing to test (p = 1)"
    if len(gains) == 1:
        return "one query alone cannot show that a difference is more than luck (p = 1)"
    if np.ptp(gains) < TIE:
        return "the difference is the same on every query, which leaves a t-test no spread to judge by"
    return ""
