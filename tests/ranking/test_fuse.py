"""Fusion: a run from several, the same in whatever order they come, and weights found on a grid."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.notation import make
from rankhouse.core.run import Run
from rankhouse.ranking.fuse import FUSIONS, combmnz, combsum, interpolations, linear, rrf, tune

FIRST = Run.from_rankings({"q1": {"a": 10.0, "b": 6.0, "c": 2.0}, "q2": {"a": 1.0}})
SECOND = Run.from_rankings({"q1": {"b": -1.0, "d": -3.0}, "q3": {"e": 5.0}})

rankings = st.dictionaries(
    st.sampled_from(["q1", "q2", "q3"]),
    st.dictionaries(st.sampled_from("abcdefg"), st.floats(-50, 50, width=32), max_size=7),
    max_size=3,
).map(Run.from_rankings)
weights = st.floats(0.01, 10)
fusions = st.sampled_from(
    [
        *(
            f"linear(normalise={n!r}, missing={m!r})"
            for n in ("raw", "min-max", "z-score")
            for m in ("min", "zero", "drop")
        ),
        "rrf",
        "rrf(k=0.5)",
        "combsum",
        "combmnz('raw')",
    ]
).map(lambda text: make(text, FUSIONS, "fusion"))


def as_scores(run, query_id):
    return run[query_id].to_dict()


# --- the arithmetic ---------------------------------------------------------------------------------------


def test_raw_interpolation_gives_a_missing_document_the_lowest_score_of_its_query():
    fused = linear("raw")([FIRST, SECOND], [0.75, 0.25])
    assert as_scores(fused, "q1") == {
        "a": 0.75 * 10 + 0.25 * -3,
        "b": 0.75 * 6 + 0.25 * -1,
        "c": 0.75 * 2 + 0.25 * -3,
        "d": 0.75 * 2 + 0.25 * -3,
    }
    assert fused["q1"].doc_ids == ("a", "b", "d", "c")
    assert as_scores(fused, "q2") == {"a": 0.75}
    assert as_scores(fused, "q3") == {"e": 1.25}


def test_min_max_stretches_each_query_and_run():
    fused = linear("min-max")([FIRST, SECOND], [0.5, 0.5])
    assert as_scores(fused, "q1") == {"a": 0.5, "b": 0.75, "c": 0.0, "d": 0.0}
    assert as_scores(fused, "q2") == {"a": 0.5}


def test_z_score_is_scipys():
    from scipy.stats import zscore

    fused = linear("z-score", missing="zero")([FIRST, SECOND], [1.0, 2.0])
    first, second = zscore([10.0, 6.0, 2.0]), zscore([-1.0, -3.0])
    wanted = {"a": first[0], "b": first[1] + 2 * second[0], "c": first[2], "d": 2 * second[1]}
    assert as_scores(fused, "q1") == pytest.approx(wanted, rel=1e-6)
    assert as_scores(fused, "q2") == {"a": 1.0}  # scipy's is NaN


def test_missing_documents_count_nothing_or_drop_out_if_so_wished():
    assert as_scores(linear("raw", "zero")([FIRST, SECOND], [1, 1]), "q1")["d"] == -3.0
    dropped = linear("raw", "drop")([FIRST, SECOND], [1, 1])
    assert as_scores(dropped, "q1") == {"b": 5.0}
    assert dropped["q2"].doc_ids == dropped["q3"].doc_ids == ()
    assert list(dropped) == ["q1", "q2", "q3"]


def test_reciprocal_rank_fusion_is_the_papers():
    fused = rrf()([FIRST, SECOND])
    wanted = {"a": 1 / 61, "b": 1 / 62 + 1 / 61, "c": 1 / 63, "d": 1 / 62}
    assert as_scores(fused, "q1") == pytest.approx(wanted, rel=1e-6)
    assert fused["q1"].doc_ids == ("b", "a", "d", "c")
    assert as_scores(rrf(k=0)([FIRST, SECOND], [2, 1]), "q1")["b"] == 2.0


def test_combsum_adds_and_combmnz_counts_votes():
    assert as_scores(combsum()([FIRST, SECOND]), "q1") == {"a": 1.0, "b": 1.5, "c": 0.0, "d": 0.0}
    assert as_scores(combmnz()([FIRST, SECOND]), "q1") == {"a": 1.0, "b": 3.0, "c": 0.0, "d": 0.0}


def test_linear_weights_not_given_are_equal_and_sum_to_one():
    three = [FIRST, SECOND, FIRST]
    assert linear()(three) == linear()(three, [1 / 3] * 3)


def test_a_ranking_of_equal_scores_is_neither_lost_nor_torn():
    flat = Run.from_rankings({"q": {"a": 2.0, "b": 2.0}})
    other = Run.from_rankings({"q": {"c": 1.0, "d": 0.0}})
    assert as_scores(linear("min-max", "zero")([flat, other], [1, 1]), "q") == {
        "a": 1,
        "b": 1,
        "c": 1,
        "d": 0,
    }
    assert as_scores(linear("z-score")([flat, other], [1, 0]), "q") == {"a": 1, "b": 1}


RARE = Run.from_rankings({"q": {"x-451": 17.5}})
MANY = Run.from_rankings({"q": {f"d{n}": float(n) for n in range(1, 10)} | {"x-451": 4.0}})
OTHERS = Run.from_rankings({"q": {f"d{n}": float(n) for n in range(1, 10)}})


@pytest.mark.parametrize("missing", ["min", "zero"])
@pytest.mark.parametrize("normalise", ["min-max", "z-score"])
def test_a_run_of_one_document_has_a_say(normalise, missing):
    """It had none: the document that holds a rare word came last, or stayed where the other run had it."""
    fusion = linear(normalise, missing)
    assert fusion([RARE, MANY])["q"].doc_ids.index("x-451") < MANY["q"].doc_ids.index("x-451") - 1
    fused = fusion([RARE, OTHERS], [0.6, 0.4])["q"].doc_ids
    assert fused.index("x-451") < 4
    twice = Run.from_rankings({"q": {"x-451": 2.0, "x-452": 2.0}})  # nor is a run of equal scores
    assert fusion([twice, OTHERS], [0.7, 0.3])["q"].doc_ids.index("x-451") < 4
    summed = make(f"combsum({normalise!r})", FUSIONS, "fusion")([RARE, MANY])["q"].doc_ids
    assert summed.index("x-451") < MANY["q"].doc_ids.index("x-451") - 1


def test_found_and_not_found_are_worth_what_two_documents_would_be():
    two = Run.from_rankings({"q": {"x-451": 17.5, "below": 3.0}})
    for normalise in ("min-max", "z-score"):
        flat, spread = (linear(normalise).addends([run, OTHERS], "q", "d9")[0].value for run in (RARE, two))
        assert flat == spread == {"min-max": 0.0, "z-score": -1.0}[normalise]
        assert linear(normalise).addends([RARE, OTHERS], "q", "x-451")[0].value == 1.0
    assert linear("raw").addends([RARE, OTHERS], "q", "d9")[0].value == 17.5  # raw scores have no scale


# --- what holds for any runs --------------------------------------------------------------------------------


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(rankings, weights), min_size=2, max_size=4), fusions, st.randoms())
def test_the_order_of_the_runs_changes_nothing(given_runs, fusion, random):
    shuffled = random.sample(given_runs, len(given_runs))
    fused = fusion(*zip(*given_runs, strict=True))
    assert fused == fusion(*zip(*shuffled, strict=True))
    assert fusion([run for run, _ in given_runs]) == fusion([run for run, _ in shuffled])


def test_not_even_cancelling_scores_depend_on_the_order_of_the_runs():
    three = [Run.of([("q", "d", score)]) for score in (3e7, 1e-3, -3e7)]
    assert linear("raw")(three) == linear("raw")([three[0], three[2], three[1]])


def test_nought_and_minus_nought_are_a_tie():
    # The smallest float32 below nought, times a small weight, is stored as minus nought.
    run = Run.from_rankings({"q": {"a": 0.0, "b": -1.4e-45, "c": 0.0}})
    fused = linear("raw")([run, FIRST], [0.01, 0])
    assert np.signbit(fused["q"].scores).any()
    assert fused["q"].doc_ids == ("c", "b", "a")


@settings(max_examples=60, deadline=None)
@given(rankings, rankings, st.sampled_from(["min", "zero", "drop"]))
def test_weight_one_and_nought_gives_the_first_run_back(first, second, missing):
    fused = linear("raw", missing)([first, second], [1, 0])
    assert {q: fused[q].doc_ids for q in first} == {q: first[q].doc_ids for q in first}
    assert all(np.array_equal(fused[q].scores, first[q].scores) for q in first)
    assert all(fused[q].doc_ids == () for q in set(second) - set(first))


@settings(max_examples=60, deadline=None)
@given(rankings, rankings, fusions)
def test_the_result_is_a_run_like_any_other_over_the_union(first, second, fusion):
    fused = fusion([first, second])
    assert set(fused) == set(first) | set(second)
    if fusion.missing != "drop":
        for query_id in fused:
            both = {d for run in (first, second) if query_id in run for d in run[query_id].doc_ids}
            assert set(fused[query_id].doc_ids) == both
    assert Run.from_rankings({q: as_scores(fused, q) for q in fused}) == fused
    rebuilt = Run.from_rankings({q: as_scores(fused, q) for q in fused})
    assert {q: rebuilt[q].doc_ids for q in fused} == {q: fused[q].doc_ids for q in fused}
    assert fused.top(2).rows <= fused.rows


@settings(max_examples=40, deadline=None)
@given(rankings, st.sampled_from(["linear('raw')", "rrf", "combsum"]))
def test_a_run_fused_with_itself_keeps_its_order(run, name):
    assume(all(len(set(run[q].scores.tolist())) == len(run[q].scores) for q in run))
    fused = make(name, FUSIONS, "fusion")([run, run])
    separated = all(len(np.unique(fused[q].scores)) == len(fused[q].scores) for q in fused)
    assume(separated)  # float32 may tie what was apart
    assert {q: fused[q].doc_ids for q in run} == {q: run[q].doc_ids for q in run}


@settings(max_examples=40, deadline=None)
@given(rankings, rankings, st.floats(0.25, 8), st.floats(-100, 100))
def test_min_max_and_ranks_do_not_care_how_a_run_scales_its_scores(first, second, factor, shift):
    moved = Run.from_rankings(
        {q: {d: s * factor + shift for d, s in as_scores(first, q).items()} for q in first}
    )
    assume(all(moved[q].doc_ids == first[q].doc_ids for q in first))
    assert rrf()([moved, second]) == rrf()([first, second])
    spread = [first[q].scores[0] - first[q].scores[-1] for q in first if len(first[q].doc_ids) > 1]
    assume(all(s > 1 for s in spread))
    plain, scaled = linear()([first, second]), linear()([moved, second])
    for query_id in plain:
        assert as_scores(scaled, query_id) == pytest.approx(as_scores(plain, query_id), abs=1e-3)


# --- tuning ---------------------------------------------------------------------------------------------


def first_document_is(wanted):
    return lambda run: sum(run[q].doc_ids[:1] == (d,) for q, d in wanted.items()) / len(wanted)


def test_the_best_weights_of_the_grid_are_found_and_all_tries_are_told():
    left = Run.from_rankings({"q": {"a": 1.0, "b": 0.0}, "p": {"x": 1.0, "y": 0.3}})
    right = Run.from_rankings({"q": {"b": 1.0, "a": 0.0}, "p": {"y": 1.0, "x": 0.0}})
    # b is first of q from weight .5 on (ties go to the higher id), y of p only above .7 / 1.7 = .412.
    tuned = tune([left, right], first_document_is({"q": "a", "p": "y"}), linear("raw"))
    assert tuned.weights == (0.55, 0.45)
    assert tuned.score == 1.0
    assert len(tuned.tried) == 21
    assert tuned.tried[0] == ((1.0, 0.0), 0.5)
    assert tuned.tried[-1] == ((0.0, 1.0), 0.5)
    assert linear("raw")([left, right], tuned.weights)["p"].doc_ids[0] == "y"


def test_refining_looks_closer_around_the_best_point():
    left = Run.from_rankings({"q": {"a": 1.0, "b": 0.0}, "p": {"x": 1.0, "y": 0.04}})
    right = Run.from_rankings({"q": {"b": 1.0, "a": 0.0}, "p": {"y": 1.0, "x": 0.0}})

    def distance(run):
        margin = as_scores(run, "p")
        return -abs(margin["x"] - margin["y"] - 0.3)

    coarse = tune([left, right], distance, linear("raw"), step=0.1)
    fine = tune([left, right], distance, linear("raw"), step=0.1, refine=True)
    best = (0.96 - 0.3) / 1.96  # where .96 (1 - w) - w = .3
    assert coarse.weights == (0.7, 0.3)
    assert fine.weights[1] == pytest.approx(round(best, 2))
    assert fine.score > coarse.score
    assert len(fine.tried) == 11 + 21


def test_equal_scores_go_to_the_least_weight_on_later_runs():
    assert tune([FIRST, SECOND], lambda run: 1.0).weights == (1.0, 0.0)
    assert tune([FIRST, SECOND, FIRST], lambda run: 1.0, step=0.5).weights == (1.0, 0.0, 0.0)
    assert tune([FIRST, SECOND], lambda run: 1.0, grid=[(0.5, 0.5), (1, 0)]).weights == (0.5, 0.5)


def test_three_runs_are_tuned_over_all_weights_that_sum_to_one():
    tried = [point for point, _ in tune([FIRST, SECOND, FIRST], lambda run: 0.0, rrf(), step=0.25).tried]
    assert len(tried) == len(set(tried)) == 15
    assert all(sum(point) == 1 and min(point) >= 0 for point in tried)
    assert [point[1] for point in tried] == sorted(point[1] for point in tried)


def test_a_grid_of_ones_own_is_taken_as_it_is():
    grid = [(1, a / 100) for a in range(3)]
    assert [point for point, _ in tune([FIRST, SECOND], lambda run: 0.0, linear("raw"), grid).tried] == grid


def test_tuning_tries_exactly_what_fusing_gives():
    seen = []
    tuned = tune([FIRST, SECOND], lambda run: seen.append(run) or 0.0, linear("z-score"), step=0.25)
    assert seen == [linear("z-score")([FIRST, SECOND], point) for point, _ in tuned.tried]


# --- refusals -------------------------------------------------------------------------------------------


def test_infinite_scores_are_refused_where_they_would_be_added():
    endless = Run.from_rankings({"q1": {"a": 1.0, "b": float("-inf")}})
    for name in ("linear('raw')", "linear", "linear('z-score')", "combsum"):
        with pytest.raises(BadData, match='run 2 has infinite scores for query "q1"'):
            make(name, FUSIONS, "fusion")([FIRST, endless])
    assert rrf()([FIRST, endless])["q1"].doc_ids[0] == "a"


def test_wrong_wishes_are_refused():
    with pytest.raises(WrongUse, match="number of runs given is 1"):
        linear()([FIRST])
    with pytest.raises(WrongUse, match=r"2 runs but 3 weights \(1, 2, 3\)"):
        linear()([FIRST, SECOND], [1, 2, 3])
    for bad in ([1, -1], [0, 0], [float("nan"), 1], [float("inf"), 1]):
        with pytest.raises(WrongUse, match="must be 0 or more and not all 0"):
            linear()([FIRST, SECOND], bad)
    with pytest.raises(WrongUse, match='"minmax" is not a known normalisation.*did you mean "min-max"'):
        make("linear('minmax')", FUSIONS, "fusion")
    with pytest.raises(
        WrongUse, match='"mean" is not a known treatment of missing documents.*drop, min, zero'
    ):
        linear(missing="mean")
    with pytest.raises(WrongUse, match=r"rrf\(k=-1\)"):
        rrf(-1)
    with pytest.raises(WrongUse, match="step = 0.3"):
        tune([FIRST, SECOND], lambda run: 0.0, step=0.3)
    with pytest.raises(WrongUse, match="more than 5,000 weightings of 5 runs in steps of 0.05"):
        tune([FIRST] * 5, lambda run: 0.0)
    with pytest.raises(WrongUse, match="grid of weights is empty"):
        tune([FIRST, SECOND], lambda run: 0.0, grid=[])
    with pytest.raises(WrongUse, match="refine=True goes with step"):
        tune([FIRST, SECOND], lambda run: 0.0, grid=[(1, 1)], refine=True)
    with pytest.raises(WrongUse, match="number of runs given is 1"):
        tune([FIRST], lambda run: 0.0)


def test_empty_runs_fuse_to_an_empty_run():
    assert len(linear()([Run.of([]), Run.of([])])) == 0
    assert rrf()([Run.of([]), FIRST]).rows == FIRST.rows


def test_interpolations_are_birchs_grid():
    points = interpolations(4)
    assert len(points) == len(set(points)) == 1000
    assert points[0] == pytest.approx((0.9, 0.1, 0, 0))
    assert points[-1] == pytest.approx((0, 1, 0.9, 0.9))
    assert all(sum(point[:2]) == pytest.approx(1) and max(point[2:]) < point[1] for point in points)
    assert interpolations(2, 0.5) == [(0.5, 0.5), (0.0, 1.0)]


@pytest.mark.parametrize(("runs", "step"), [(1, 0.1), (4, 0.3), (4, 0.01)])
def test_interpolations_refuse_what_is_no_grid(runs, step):
    with pytest.raises(WrongUse, match="multiple of it|give two or more"):
        interpolations(runs, step)


@pytest.mark.parametrize("weight", [1e308, 3e38, 1e-45, 1e-300])
@pytest.mark.parametrize("fusion", [linear(), linear("z-score"), rrf(0)])
def test_weights_that_leave_nothing_but_ties_in_32_bits_are_refused(weight, fusion):
    with pytest.raises(WrongUse, match="give some of the same proportions about 1"):
        fusion([FIRST, SECOND], [weight, weight])
    assert fusion([FIRST, SECOND], [1e-20, 1e-20])["q1"].doc_ids == fusion([FIRST, SECOND])["q1"].doc_ids


def test_sums_beyond_32_bits_are_refused():
    huge = Run.of({"q": {"a": 3e38, "b": 2e38, "c": 1.0}})
    with pytest.raises(BadData, match=r"up to 6e\+38, too large for 32 bits"):
        linear("raw")([huge, huge], [1, 1])
    assert linear("raw")([huge, huge])["q"].doc_ids == ("a", "b", "c")
