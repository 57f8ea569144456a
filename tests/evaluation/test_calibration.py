"""Calibration: equal to its definitions, honest about other queries, clear about what cannot be fitted."""

import json

import numpy as np
import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.fitted_scales import Isotonic
from rankhouse.core.scores import latent, probabilities
from rankhouse.evaluation.calibration import (
    JudgedScores,
    bins_table,
    calibrate,
    calibration_record,
    goodness_table,
    write_figure,
    write_report,
)


def drawn(n=2000, slope=1.3, intercept=-1.0, queries=40, scale="logit", seed=0, ties=False):
    """Pairs whose relevance is drawn with the probability that a true curve gives."""
    generator = np.random.default_rng(seed)
    x = generator.normal(size=n) * 2
    if ties:
        x = np.round(x, 1)
    yes = generator.random(n) < 1 / (1 + np.exp(-(slope * x + intercept)))
    scores = {"logit": x, "similarity": x, "logprob": -np.logaddexp(0, -x)}[scale]
    names = tuple(f"q{i}" for i in generator.integers(0, queries, n))
    return JudgedScores(names, scores.astype(np.float32), yes, scale)


def targets(yes):
    n, p = len(yes), yes.sum()
    return np.where(yes, (p + 1) / (p + 2), 1 / (n - p + 2))


@pytest.mark.parametrize("scale", ["logit", "similarity", "logprob"])
def test_platt_is_where_the_gradient_of_the_cross_entropy_vanishes(scale):
    judged = drawn(scale=scale)
    fitted = calibrate(judged).scale
    x = latent(judged.scores.astype(float), scale)
    gap = 1 / (1 + np.exp(-(fitted.slope * x + fitted.intercept))) - targets(judged.relevant)
    assert abs(gap.mean()) < 1e-7
    assert abs((gap * x).mean()) < 1e-7
    assert fitted.slope == pytest.approx(1.3, abs=0.15)
    assert fitted.intercept == pytest.approx(-1.0, abs=0.15)
    assert fitted.of == scale


def minimax(values, weights):
    """Isotonic regression: the highest, over beginnings, of the lowest mean to an end."""
    n = len(values)
    sums, size = np.cumsum([0, *(values * weights)]), np.cumsum([0, *weights])
    mean = {(j, k): (sums[k] - sums[j]) / (size[k] - size[j]) for j in range(n) for k in range(j + 1, n + 1)}
    return np.array(
        [max(min(mean[j, k] for k in range(i + 1, n + 1)) for j in range(i + 1)) for i in range(n)]
    )


def test_isotonic_has_the_levels_of_isotonic_regression_at_the_centres_of_its_steps():
    judged = drawn(n=300, ties=True)
    fitted = calibrate(judged, "isotonic").scale
    x, place = np.unique(judged.scores.astype(float), return_inverse=True)
    weights = np.bincount(place).astype(float)
    levels = minimax(np.bincount(place, targets(judged.relevant)) / weights, weights)
    expected = [
        (np.average(x[own], weights=weights[own]), level)
        for level in np.unique(np.round(levels, 10))
        if (own := np.isclose(levels, level, atol=1e-9)).any()
    ]
    np.testing.assert_allclose(fitted.knots, expected, rtol=1e-5)


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_probabilities_never_fall_with_the_score_and_are_never_certain(method):
    judged = drawn(n=400)
    scale = calibrate(judged, method).scale
    p = probabilities(np.linspace(-6, 6, 999, dtype=np.float32), str(scale))
    assert (np.diff(p) >= 0).all()
    assert 0 < p[0] < 0.2
    assert 0.8 < p[-1] < 1


@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_a_shifted_ranker_is_better_calibrated_on_queries_it_was_not_fitted_on(method):
    result = calibrate(drawn(), method)
    share, own, fitted = result.goodness
    assert own.error.mean > 0.1
    assert fitted.error.mean < 0.03
    assert fitted.brier.high < own.brier.low
    assert fitted.brier.mean < own.brier.mean < share.brier.mean
    assert fitted.log_loss.mean < own.log_loss.mean
    for one in result.goodness:
        for value in (one.error, one.brier, one.log_loss):
            assert 0 <= value.low <= value.mean <= value.high


def test_the_measures_are_those_of_their_definitions():
    judged = drawn(n=600)
    own = calibrate(judged).goodness[1]
    p = 1 / (1 + np.exp(-judged.scores.astype(float)))
    assert own.brier.mean == pytest.approx(((p - judged.relevant) ** 2).mean())
    given = np.where(judged.relevant, p, 1 - p)
    assert own.log_loss.mean == pytest.approx(-np.log(given).mean())
    bins = np.minimum((p * 10).astype(int), 9)
    gaps = [abs(p[bins == b].sum() - judged.relevant[bins == b].sum()) for b in range(10)]
    assert own.error.mean == pytest.approx(sum(gaps) / len(p))
    assert own.error.mean == pytest.approx(own.reliability.error)


def test_held_out_probabilities_are_of_other_queries():
    """Scores that know the query's own labels by heart, but say nothing beyond it, earn nothing."""
    generator = np.random.default_rng(3)
    names, scores, yes = [], [], []
    for q in range(10):  # one query in two has its relevant pairs on top, the others at the bottom
        turned = 1 if q % 2 else -1
        for _ in range(40):
            relevant = generator.random() < 0.5
            names.append(f"q{q}")
            scores.append(turned * (1.0 if relevant else -1.0) + generator.normal() * 0.1 + 0.02 * relevant)
            yes.append(relevant)
    judged = JudgedScores(tuple(names), np.float32(scores), np.array(yes), "score")
    result = calibrate(judged)
    share, fitted = result.goodness
    assert fitted.brier.mean >= share.brier.mean - 1e-3


def test_the_same_seed_gives_the_same_numbers():
    first, second = calibrate(drawn(), seed=4), calibrate(drawn(), seed=4)
    assert str(first.scale) == str(second.scale)
    assert calibration_record(first) == calibration_record(second)


def test_what_cannot_be_fitted_is_refused_with_the_reason():
    judged = drawn(n=200)
    with pytest.raises(BadData, match="0 relevant pairs and 200 others: at least 5 of each"):
        calibrate(judged._replace(relevant=np.zeros(200, bool)))
    with pytest.raises(BadData, match="200 relevant pairs and 0 others"):
        calibrate(judged._replace(relevant=np.ones(200, bool)))
    with pytest.raises(BadData, match="of one query"):
        calibrate(judged._replace(query_ids=("q",) * 200))
    with pytest.raises(BadData, match="infinite or not a number"):
        calibrate(judged._replace(scores=np.full(200, np.nan, np.float32)))
    with pytest.raises(BadData, match="higher scores are not more often relevant"):
        calibrate(judged._replace(scores=-judged.scores))
    constant = judged._replace(scores=np.zeros(200, np.float32))
    for method in ("platt", "isotonic"):
        with pytest.raises(BadData, match="higher scores are not more often relevant"):
            calibrate(constant, method)
    with pytest.raises(WrongUse, match="isotonic, platt"):
        calibrate(judged, "beta")


def test_an_isotonic_scale_has_few_knots_and_is_no_worse_for_it(monkeypatch):
    judged = drawn(n=20_000, queries=10)
    few = calibrate(judged, "isotonic")
    monkeypatch.setattr("rankhouse.evaluation.calibration.MOST_KNOTS", 10**6)
    many = calibrate(judged, "isotonic")
    assert len(few.scale.knots) <= 32 < len(many.scale.knots)
    assert few.goodness[-1].brier.mean == pytest.approx(many.goodness[-1].brier.mean, abs=1e-3)
    x = np.linspace(-6, 6, 500)
    np.testing.assert_allclose(few.scale.probabilities(x), many.scale.probabilities(x), atol=0.05)


def test_isotonic_survives_scores_that_separate_the_pairs():
    n = 40
    scores = np.arange(n, dtype=np.float32)
    judged = JudgedScores(tuple(f"q{i % 4}" for i in range(n)), scores, scores >= 20, "score")
    assert calibrate(judged, "isotonic").scale == Isotonic(((9.5, 0.0454545), (29.5, 0.954545)))
    assert calibrate(judged, "platt").scale.slope > 0


def test_tables_figure_and_page(tmp_path):
    pytest.importorskip("matplotlib")
    result = calibrate(drawn(n=500))
    table = goodness_table(result)
    assert [row[0] for row in table.rows] == [
        "share of relevant",
        "as the ranker gives them",
        "calibrated (platt, held out)",
    ]
    assert sum(int(row[1]) for row in bins_table(result.goodness[-1].reliability).rows) == 500
    json.dumps(calibration_record(result), allow_nan=False)
    write_figure(result, tmp_path / "figure.svg")
    write_report(result, tmp_path / "page.html", "Calibration of a & b")
    page = (tmp_path / "page.html").read_text()
    assert "Calibration of a &amp; b" in page
    assert "platt(" in page
    assert page.count("<svg") == 1
    assert "calibrated" in (tmp_path / "figure.svg").read_text()
    no_probabilities = calibrate(drawn(n=500, scale="similarity"))
    assert len(no_probabilities.goodness) == 2
    write_figure(no_probabilities, tmp_path / "one.svg")
