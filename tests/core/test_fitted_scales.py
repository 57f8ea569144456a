"""Fitted scales: what they say of scores, and that they change no order."""

import numpy as np
import pytest

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.fitted_scales import Isotonic, Platt, read_fitted
from rankhouse.core.scores import base_of, check_scale, convert, is_probable, probabilities, scale_of


def sigmoid(z):
    return 1 / (1 + np.exp(-z))


def test_platt_is_a_logistic_curve_over_the_log_odds_of_the_own_scale():
    logits = np.array([-4.0, -0.5, 0.0, 2.5])
    expected = sigmoid(1.5 * logits - 2)
    own = {
        "logit": logits,
        "score": logits,
        "similarity": logits,
        "probability": sigmoid(logits),
        "logprob": np.log(sigmoid(logits)),
    }
    for of, scores in own.items():
        scale = str(Platt(1.5, -2.0, of))
        np.testing.assert_allclose(convert(scores, scale, "probability"), expected, rtol=1e-9)
        np.testing.assert_allclose(convert(scores, scale, "logit"), 1.5 * logits - 2, rtol=1e-9)
        np.testing.assert_allclose(convert(scores, scale, "logprob"), np.log(expected), rtol=1e-9)
        np.testing.assert_array_equal(convert(scores, scale, "score"), scores)
        assert (base_of(scale), is_probable(scale)) == (of, True)


def test_isotonic_lies_on_lines_between_its_knots_and_is_flat_beyond_them():
    scale = str(Isotonic(((-1.0, 0.1), (1.0, 0.5), (2.0, 0.9))))
    scores = np.float32([-9, -1, 0, 1, 1.5, 2, 50, np.nan])
    np.testing.assert_allclose(
        probabilities(scores, scale), [0.1, 0.1, 0.3, 0.5, 0.7, 0.9, 0.9, np.nan], rtol=1e-12
    )


@pytest.mark.parametrize(
    "scale", [Platt(0.3, -7.25, "logit"), Isotonic(((0.125, 1e-6), (3.5, 1.0)), "logprob")]
)
def test_the_text_of_a_fitted_scale_reads_back(scale):
    assert read_fitted(str(scale)) == scale
    assert check_scale(str(scale)) == str(scale)


@pytest.mark.parametrize(
    "wrong",
    [
        "platt",
        "isotonic",
        "platt(0, 1)",
        "platt(-1, 1)",
        "platt(1)",
        "platt(1, 2, of='percent')",
        "platt(1, 2, of='platt(1, 2)')",
        "isotonic((0, 0.5))",
        "isotonic((0, 0.5), (1, 0.5))",
        "isotonic((1, 0.1), (0, 0.5))",
        "isotonic((0, 0.5), (1, 1.5))",
        "isotonic((0, 1, 2), (1, 2, 3))",
        "sigmoid(1)",
        "percent",
    ],
)
def test_what_is_no_scale_is_refused(wrong):
    class Ranker:
        scale = wrong

    with pytest.raises(WrongUse):
        scale_of(Ranker())


def test_scores_outside_the_own_scale_are_refused():
    with pytest.raises(BadModel, match="outside of"):
        probabilities(np.float32([0.5, 7.0]), 'platt(1.0, 0.0, of="probability")')
