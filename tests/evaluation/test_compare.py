"""Comparisons: every number a table needs, over one set of queries."""

import numpy as np
import pytest
import scipy.stats

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare
from rankhouse.evaluation.measures import evaluate


def a_run(seed, quality, queries=40, documents=30):
    generator = np.random.default_rng(seed)
    rows = []
    for query in range(queries):
        scores = generator.normal(size=documents) + quality * (np.arange(documents) < 5)
        rows += [(f"q{query}", f"d{d}", float(s)) for d, s in enumerate(scores)]
    return Run.of(rows)


QRELS = {f"q{query}": {f"d{d}": int(d < 5) for d in range(30)} for query in range(40)}
RUNS = {"first": a_run(1, 1.0), "better": a_run(2, 2.5), "alike": a_run(3, 1.0), "worse": a_run(4, 0.0)}


@pytest.fixture(scope="module")
def comparison():
    return compare(RUNS, QRELS, "AP P@5", baseline="first", test="t", correction="holm")


def test_every_cell_says_what_scipy_says(comparison):
    values = {name: evaluate(run, QRELS, "AP P@5") for name, run in RUNS.items()}
    assert [(c.system, c.measure) for c in comparison.cells] == [(s, m) for s in RUNS for m in ("AP", "P@5")]
    for cell in comparison.cells:
        mine, base = values[cell.system].of(cell.measure), values["first"].of(cell.measure)
        assert cell.mean == values[cell.system].mean(cell.measure)
        assert cell.low < cell.mean < cell.high
        if cell.system == "first":
            assert cell.paired_test is None
            continue
        wanted = scipy.stats.ttest_rel(mine, base)
        interval = wanted.confidence_interval(0.95)
        assert cell.paired_test.p == pytest.approx(wanted.pvalue)
        assert (cell.paired_test.low, cell.paired_test.high) == pytest.approx((interval.low, interval.high))
        assert cell.paired_test.difference == pytest.approx(
            cell.mean - comparison.cell("first", cell.measure).mean
        )
        assert cell.paired_test.wins == np.sum(mine > base + 1e-12)
        assert cell.paired_test.losses == np.sum(mine < base - 1e-12)
        assert cell.paired_test.wins + cell.paired_test.ties + cell.paired_test.losses == 40


def test_significance_goes_by_the_corrected_p_over_systems_and_measures(comparison):
    contrasts = [cell.paired_test for cell in comparison.cells if cell.paired_test]
    raw = np.array([c.p for c in contrasts])
    assert len(raw) == 6
    wanted = np.minimum(np.maximum.accumulate(np.sort(raw) * np.arange(6, 0, -1)), 1)
    np.testing.assert_allclose(np.sort([c.corrected for c in contrasts]), wanted)
    assert [c.significant for c in contrasts] == [c.corrected < 0.05 for c in contrasts]
    assert comparison.cell("better", "AP").paired_test.significant
    assert comparison.cell("worse", "AP").paired_test.significant
    assert not comparison.cell("alike", "AP").paired_test.significant
    bonferroni = compare(RUNS, QRELS, "AP P@5", baseline="first", correction="bonferroni")
    assert bonferroni.cell("alike", "AP").paired_test.corrected == pytest.approx(
        min(1, 6 * comparison.cell("alike", "AP").paired_test.p)
    )


def test_without_correction_the_corrected_p_is_p():
    plain = compare(RUNS, QRELS, "AP", baseline="first")
    assert all(c.paired_test.corrected == c.paired_test.p for c in plain.cells if c.paired_test)
    assert plain.correction == "none"


def test_the_randomization_test_is_seeded_and_independent_of_the_other_systems():
    both = [compare(RUNS, QRELS, "AP P@5", "first", "randomization", seed=3) for _ in range(2)]
    assert both[0].cells == both[1].cells
    alone = compare({k: RUNS[k] for k in ("first", "alike")}, QRELS, "AP", "first", "randomization", seed=3)
    assert alone.cell("alike", "AP").paired_test.p == both[0].cell("alike", "AP").paired_test.p
    other = compare(RUNS, QRELS, "AP P@5", "first", "randomization", seed=4)
    assert other.cell("alike", "AP").paired_test.p != both[0].cell("alike", "AP").paired_test.p
    t = compare(RUNS, QRELS, "AP", "first", "t").cell("alike", "AP").paired_test.p
    assert both[0].cell("alike", "AP").paired_test.p == pytest.approx(t, abs=0.05)


def test_without_a_baseline_there_are_means_and_intervals_only():
    plain = compare(RUNS, QRELS, "AP")
    assert all(cell.paired_test is None for cell in plain.cells)
    assert plain.challengers == ()
    assert plain.method == "Means over 40 queries."
    with pytest.raises(WrongUse, match="no baseline"):
        plain.extremes("better", "AP")


def test_best_and_worst_queries_are_those_with_the_largest_differences(comparison):
    best, worst = comparison.extremes("alike", "AP", most=3)
    every = {q: row["AP"] for q, row in comparison.scores["alike"].per_query.items()}
    base = {q: row["AP"] for q, row in comparison.scores["first"].per_query.items()}
    gains = sorted(every[q] - base[q] for q in every)
    assert [row.difference for row in best] == pytest.approx(gains[::-1][:3])
    assert [row.difference for row in worst] == pytest.approx(gains[:3])
    assert best[0].value - best[0].baseline == best[0].difference
    assert every[best[0].query_id] == best[0].value


def test_a_system_that_only_gains_has_no_worst_queries():
    runs = {
        "none": Run.of([("q1", "x", 1.0), ("q2", "x", 1.0)]),
        "all": Run.of([("q1", "d", 1.0), ("q2", "d", 1.0)]),
    }
    best, worst = compare(runs, {"q2": {"d": 1}, "q1": {"d": 1}}, "AP", "none").extremes("all", "AP")
    assert [row.query_id for row in best] == ["q1", "q2"]
    assert worst == ()


@pytest.mark.parametrize("test", ["t", "randomization"])
def test_a_system_compared_with_its_copy_is_safe_and_explained(test):
    copies = compare({"a": RUNS["first"], "b": RUNS["first"]}, QRELS, "AP P@5", "a", test, "holm")
    contrast = copies.cell("b", "AP").paired_test
    assert (contrast.difference, contrast.p, contrast.significant) == (0.0, 1.0, False)
    assert (contrast.wins, contrast.ties, contrast.losses) == (0, 40, 0)
    assert "nothing to test" in contrast.note
    assert copies.remarks == (f"{contrast.note}: b (AP, P@5)",)


@pytest.mark.parametrize("test", ["t", "randomization"])
def test_one_query_is_safe_and_explained(test):
    qrels = {"q0": QRELS["q0"]}
    runs = {name: run.restrict(["q0"]) for name, run in RUNS.items()}
    contrast = compare(runs, qrels, "AP", "first", test).cell("better", "AP").paired_test
    assert contrast.p == 1
    assert np.isnan(contrast.low)
    assert "one query alone" in contrast.note


def test_the_same_gain_on_every_query_is_explained():
    runs = {
        "none": Run.of([(f"q{i}", "x", 1.0) for i in range(4)]),
        "all": Run.of([(f"q{i}", "d", 1.0) for i in range(4)]),
    }
    qrels = {f"q{i}": {"d": 1} for i in range(4)}
    contrast = compare(runs, qrels, "AP", "none", "t").cell("all", "AP").paired_test
    assert contrast.p == 0
    assert "no spread" in contrast.note
    assert compare(runs, qrels, "AP", "none", "randomization").cell("all", "AP").paired_test.p == 2 / 16


def test_runs_that_cover_different_queries_are_compared_over_all_judged_ones():
    part = RUNS["first"].restrict([f"q{i}" for i in range(39)])
    both = compare({"whole": RUNS["first"], "part": part}, QRELS, "AP", "whole")
    assert both.cell("part", "AP").paired_test.losses == 1
    assert both.remarks[0] == "part: 1 of 40 judged queries without results, counted as 0: q39"


def test_what_holds_for_all_runs_is_said_once():
    qrels = QRELS | {"q99": {"d1": 1}}
    both = compare({k: RUNS[k] for k in ("first", "alike")}, qrels, "AP", "first")
    assert both.remarks == ("all runs: 1 of 41 judged queries without results, counted as 0: q99",)
    one = compare({"first": RUNS["first"]}, qrels, "AP")
    assert one.remarks == ("first: 1 of 41 judged queries without results, counted as 0: q99",)


def test_the_method_is_said_in_one_sentence(comparison):
    assert comparison.method == (
        'Means over 40 queries; two-sided paired t-test against "first", '
        "Holm correction over 6 tests; significant at p < 0.05."
    )


def test_wrong_names_are_refused_with_the_choices():
    with pytest.raises(WrongUse, match=r'"bm25" is not a known baseline.*alike, better, first, worse'):
        compare(RUNS, QRELS, "AP", baseline="bm25")
    with pytest.raises(WrongUse, match=r'"wilcoxon" is not a known test.*randomization, t'):
        compare(RUNS, QRELS, "AP", baseline="first", test="wilcoxon")
    with pytest.raises(WrongUse, match=r'"holms" is not a known correction.*did you mean "holm"'):
        compare(RUNS, QRELS, "AP", baseline="first", correction="holms")
    with pytest.raises(WrongUse, match="seed = -1"):
        compare(RUNS, QRELS, "AP", baseline="first", seed=-1)
    with pytest.raises(WrongUse, match="no run was given"):
        compare({}, QRELS, "AP")
    with pytest.raises(BadData, match="no query in common"):
        compare({"first": RUNS["first"]}, {"zzz": {"d1": 1}}, "AP")
