"""Systems side by side: means with intervals, differences to a baseline, and whether they are more than luck.

All tests of one comparison, every system other than the baseline times every measure, form the family that
a correction counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import Examiner, Scores
from rankhouse.evaluation.significance import CORRECTIONS, PERMUTATIONS, TESTS, Floats, Interval, t_interval

ALPHA = 0.05
_A_TIE = 1e-12  # smaller differences are rounding, not ranking


class Contrast(NamedTuple):
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


class Cell(NamedTuple):
    """One system on one measure: mean with its 95 % t interval, and the contrast to the baseline, if any."""

    system: str
    measure: str
    mean: float
    low: float
    high: float
    contrast: Contrast | None


class QueryDifference(NamedTuple):
    """One query: the value of the baseline, of the system, and the second minus the first."""

    query_id: str
    baseline: float
    value: float
    difference: float


@dataclass(frozen=True, eq=False)
class Comparison:
    """Everything a table of systems and measures needs.

    Attributes:
        scores: System -> its scores, in the order given; all over the same queries.
        baseline: The system the others are compared with; None if there is none.
        test: "t" or "randomization".
        correction: "none", "bonferroni" or "holm".
        seed: Of the randomization test.
        cells: Row by row: the systems in order, within each the measures in order.
    """

    scores: Mapping[str, Scores]
    baseline: str | None
    test: str
    correction: str
    seed: int
    cells: tuple[Cell, ...]

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

    def cell(self, system: str, measure: str) -> Cell:
        """Return one cell of the table."""
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
        gains = _cleaned(new - old)
        rows = zip(self.query_ids, old.tolist(), new.tolist(), gains.tolist(), strict=True)
        return tuple(
            sorted((QueryDifference(*row) for row in rows), key=lambda r: (-r.difference, r.query_id))
        )

    def extremes(
        self, system: str, measure: str, most: int = 5
    ) -> tuple[tuple[QueryDifference, ...], tuple[QueryDifference, ...]]:
        """Return the queries a system helps most and those it hurts most, the strongest first."""
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
            if cell.contrast is not None and cell.contrast.note:
                noted.setdefault(cell.contrast.note, {}).setdefault(cell.system, []).append(cell.measure)
        of_tests = [
            f"{note}: {'; '.join(places)}"
            for note, found in noted.items()
            for places in [[f"{system} ({', '.join(where)})" for system, where in found.items()]]
        ]
        return tuple(of_runs + of_tests)

    @property
    def method(self) -> str:
        """Say in one sentence how the numbers were made."""
        said = f"Means over {len(self.query_ids)} queries with 95 % t intervals"
        if not self.challengers:
            return said + "."
        named = {
            "t": "paired t-test",
            "randomization": f"Fisher's randomization test ({PERMUTATIONS:,} permutations or all, "
            f"seed {self.seed})",
        }[self.test]
        tests = len(self.challengers) * len(self.measures)
        family = "1 test" if tests == 1 else f"{tests} tests"
        corrected = {
            "none": f"no correction for {family}",
            "bonferroni": f"Bonferroni correction over {family}",
            "holm": f"Holm correction over {family}",
        }[self.correction]
        return (
            f'{said}; two-sided {named} against "{self.baseline}", {corrected}; significant at p < {ALPHA}.'
        )


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
        test: "t" (paired t-test) or "randomization" (Fisher's, exact where at most 17 queries differ).
        correction: None (or "none"), "bonferroni" or "holm", over all systems and measures tested.
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
    examiner = Examiner(qrels, measures)
    scores = {system: examiner(run) for system, run in runs.items()}
    return compare_scores(scores, baseline, test, correction, seed)


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
        baseline: The system to compare the others with; None only gives means and intervals.
        test: "t" or "randomization".
        correction: None (or "none"), "bonferroni" or "holm".
        seed: Of the randomization test.

    Raises:
        WrongUse: A baseline, test or correction that does not exist, or other queries than the baseline's.
    """
    if baseline is not None:
        choose(baseline, scores, "baseline")
    tested = choose(test, TESTS, "test")
    corrected = choose(correction or "none", CORRECTIONS, "correction")
    if seed < 0:
        raise WrongUse(f"seed = {seed} was given; a seed is a whole number of 0 or more")
    measures = next(iter(scores.values())).measures
    contrasts: dict[tuple[str, str], Contrast] = {}
    challengers = [system for system in scores if baseline is not None and system != baseline]
    if baseline is not None and challengers:
        _require_pairs(scores, baseline)
        gains = _cleaned(np.concatenate([scores[s].values - scores[baseline].values for s in challengers]))
        p = tested(gains, seed)
        names = [(system, measure) for system in challengers for measure in measures]
        found = zip(names, gains, p.tolist(), corrected(p).tolist(), strict=True)
        contrasts = {name: _contrast(row, raw, final) for name, row, raw, final in found}
    cells = [
        Cell(system, measure, *_interval(scores[system], measure), contrasts.get((system, measure)))
        for system in scores
        for measure in measures
    ]
    return Comparison(scores, baseline, test, correction or "none", seed, tuple(cells))


def _require_pairs(scores: Mapping[str, Scores], baseline: str) -> None:
    """Refuse to pair values of different queries."""
    for system, found in scores.items():
        if found.query_ids != scores[baseline].query_ids:
            raise WrongUse(
                f'"{system}" and the baseline "{baseline}" are measured on different queries, or in another '
                "order; measure them with the same judgements"
            )


def _interval(scores: Scores, measure: str) -> Interval:
    """Return the interval around the mean that trec_eval would print."""
    return t_interval(scores.of(measure))._replace(mean=scores.mean(measure))


def _cleaned(differences: Floats) -> Floats:
    """Set differences that are only rounding to 0."""
    return np.where(np.abs(differences) < _A_TIE, 0.0, differences)


def _contrast(gains: Floats, p: float, corrected: float) -> Contrast:
    """Sum up one test from its (queries,) differences."""
    wins, losses = int(np.count_nonzero(gains > 0)), int(np.count_nonzero(gains < 0))
    return Contrast(
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
    if np.ptp(gains) < _A_TIE:
        return "the difference is the same on every query, which leaves a t-test no spread to judge by"
    return ""
