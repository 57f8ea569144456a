"""What a comparison holds: means with intervals, differences to a baseline, and what tests say of them.

Numbers only: tables, charts and pages of them are in the files beside this one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.evaluation.measures import Scores
from rankhouse.evaluation.significance import CORRECTIONS, TESTS, Floats

ALPHA = 0.05
TIE = 1e-12  # smaller differences are rounding, not ranking


class PairedTest(NamedTuple):
    """A system against the baseline on one measure.

    ``low`` and ``high`` are the 95 % t interval of the mean difference; ``corrected`` is p after the
    correction (p itself without one); ``significant`` is corrected < 0.05; wins, ties and losses count
    queries; ``note`` explains a case in which the test has little to say, else is empty.
    """

    difference: float
    low: float
    high: float
    p: float
    corrected: float
    significant: bool
    wins: int
    ties: int
    losses: int
    note: str


class MeanScore(NamedTuple):
    """One system on one measure: mean with its 95 % t interval, and the test against the baseline, if any."""

    system: str
    measure: str
    mean: float
    low: float
    high: float
    paired_test: PairedTest | None


class QueryDifference(NamedTuple):
    """One query: the value of the baseline, of the system, and the second minus the first."""

    query_id: str
    baseline: float
    value: float
    difference: float


@dataclass(frozen=True, eq=False)
class ComparisonData:
    """Everything a table of systems and measures needs.

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
    cells: tuple[MeanScore, ...]

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

    def cell(self, system: str, measure: str) -> MeanScore:
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
        gains = without_rounding(new - old)
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
        """What a reader of the table must know, one sentence each: queries not covered, odd tests."""
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
        means = f"Means over {len(self.query_ids)} queries with 95 % t intervals"
        if not self.challengers:
            return f"{means}."
        count = len(self.challengers) * len(self.measures)
        tests = "1 test" if count == 1 else f"{count} tests"
        return (
            f"{means}; two-sided {TESTS[self.test].describe(self.seed)} "
            f'against "{self.baseline}", {CORRECTIONS[self.correction].name} {tests}; '
            f"significant at p < {ALPHA}."
        )


def without_rounding(differences: Floats) -> Floats:
    """Return differences, those that are only rounding set to 0."""
    return np.where(np.abs(differences) < TIE, 0.0, differences)
