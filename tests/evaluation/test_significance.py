"""Tests of significance against scipy's, and the cases in which there is little to test."""

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from rankhouse.evaluation.significance import (
    PERMUTATIONS,
    bonferroni,
    holm,
    randomization_test,
    t_interval,
    t_test,
    uncorrected,
)


def differences(queries, seed, shift=0.05):
    return np.random.default_rng(seed).normal(shift, 0.2, queries)


def mean_of(flipped, axis):
    return np.mean(flipped, axis=axis)


@pytest.mark.parametrize("queries", [2, 5, 50, 300])
def test_the_t_test_is_scipys(queries):
    gains = np.stack([differences(queries, seed) for seed in range(4)])
    wanted = [scipy.stats.ttest_rel(row + 0.3, np.full(queries, 0.3)).pvalue for row in gains]
    np.testing.assert_allclose(t_test(gains), wanted, rtol=1e-9)


@pytest.mark.parametrize("queries", [2, 5, 50, 300])
def test_the_interval_is_scipys(queries):
    values = differences(queries, 7)
    wanted = scipy.stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert t_interval(values) == pytest.approx((values.mean(), wanted.low, wanted.high), rel=1e-9)


@pytest.mark.parametrize("queries", [2, 3, 8, 12])
def test_the_exact_randomization_test_is_scipys(queries):
    for seed in range(3):
        gains = differences(queries, seed).round(1)  # rounded, so that many sums are equal
        wanted = scipy.stats.permutation_test(
            (gains,), mean_of, permutation_type="samples", n_resamples=np.inf, vectorized=True
        )
        # scipy doubles the smaller tail; with signs flipped both tails are alike.
        assert randomization_test(gains[None])[0] == pytest.approx(wanted.pvalue, abs=1e-12)


def test_seventeen_differing_queries_are_still_exact_and_others_do_not_count():
    gains = differences(17, 3)
    padded = np.concatenate([gains, np.zeros(200)])
    np.random.default_rng(0).shuffle(padded)
    exact = randomization_test(gains[None])[0]
    assert (exact * 2**17) == int(exact * 2**17)
    assert randomization_test(padded[None], seed=99)[0] == pytest.approx(exact, abs=1e-12)


@pytest.mark.parametrize("shift", [0.0, 0.02, 0.04])
def test_drawn_patterns_come_close_to_scipys(shift):
    gains = differences(80, 5, shift)
    wanted = scipy.stats.permutation_test(
        (gains,),
        mean_of,
        permutation_type="samples",
        n_resamples=20_000,
        vectorized=True,
        rng=np.random.default_rng(1),
    )
    assert randomization_test(gains[None])[0] == pytest.approx(wanted.pvalue, abs=0.015)


def test_drawn_patterns_come_close_to_the_exact_p():
    gains = differences(18, 11, 0.05)
    sums = np.zeros(1)
    for gain in gains:
        sums = np.concatenate([sums + gain, sums - gain])
    exact = np.mean(np.abs(sums) >= abs(gains.sum()) - 1e-12)
    assert 0.01 < exact < 0.5
    assert randomization_test(gains[None])[0] == pytest.approx(exact, abs=4 * np.sqrt(exact / PERMUTATIONS))


def test_drawn_p_is_never_zero():
    p = randomization_test(np.ones((1, 40)))[0]
    assert p == 1 / (PERMUTATIONS + 1)


def test_the_same_seed_gives_the_same_p_whatever_other_tests_are_made():
    gains = np.stack([differences(70, seed) for seed in range(6)])
    together = randomization_test(gains, seed=5)
    alone = [randomization_test(row[None], seed=5)[0] for row in gains]
    np.testing.assert_array_equal(together, alone)
    assert not np.array_equal(together, randomization_test(gains, seed=6))


def test_the_size_of_the_chunks_changes_nothing(monkeypatch):
    gains = np.stack([differences(70, seed) for seed in range(2)])
    whole = randomization_test(gains, seed=5, permutations=5_000)
    monkeypatch.setattr("rankhouse.evaluation.significance._CHUNK_BYTES", 50_000)
    np.testing.assert_array_equal(randomization_test(gains, seed=5, permutations=5_000), whole)


@pytest.mark.parametrize("test", [t_test, randomization_test])
def test_cases_with_nothing_to_test_give_one(test):
    assert test(np.zeros((1, 5)))[0] == 1
    assert test(np.zeros((1, 50)))[0] == 1
    assert test(np.array([[0.4]]))[0] == 1
    assert test(np.array([[0.4, -0.4]]))[0] == 1


def test_one_difference_on_every_query_leaves_the_t_test_no_doubt():
    assert t_test(np.full((1, 5), 0.25))[0] == 0
    assert randomization_test(np.full((1, 5), 0.25))[0] == 2 / 2**5


def test_one_value_has_no_interval():
    mean, low, high = t_interval(np.array([0.3]))
    assert mean == 0.3
    assert np.isnan([low, high]).all()


def test_corrections_are_those_of_the_textbook():
    p = np.array([0.04, 0.01, 0.03, 0.5])
    np.testing.assert_allclose(bonferroni(p), [0.16, 0.04, 0.12, 1.0])
    np.testing.assert_allclose(holm(p), [0.09, 0.04, 0.09, 0.5])
    np.testing.assert_array_equal(uncorrected(p), p)


@given(arrays(np.float64, st.integers(1, 12), elements=st.floats(0, 1)))
def test_holm_never_exceeds_bonferroni_nor_undercuts_p_and_keeps_the_order(p):
    assert np.all(p <= holm(p))
    assert np.all(holm(p) <= bonferroni(p) + 1e-15)
    order = np.argsort(p, kind="stable")
    assert np.all(np.diff(holm(p)[order]) >= 0)


@settings(max_examples=30, deadline=None)
@given(arrays(np.float64, (2, 30), elements=st.floats(-1, 1, width=32)))
def test_p_is_a_probability_and_does_not_depend_on_who_is_the_baseline(gains):
    for test in (t_test, lambda g: randomization_test(g, permutations=2_000)):
        p = test(gains)
        assert np.all((p >= 0) & (p <= 1))
        np.testing.assert_allclose(test(-gains), p, rtol=1e-12)
