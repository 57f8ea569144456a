"""Scores that come true: a curve from scores to probabilities, fitted on judged pairs.

Platt, "Probabilistic outputs for support vector machines", 1999: a logistic curve, fitted to smoothed
targets, (N+ + 1) / (N+ + 2) for relevant pairs and 1 / (N- + 2) for others: no probability is ever certain.
Isotonic regression (Zadrozny, Elkan, KDD 2002) to the same targets; its steps are joined by straight lines
between their centres (centred isotonic regression, Oron, Flournoy 2017), so that it is flat at its ends only.
How good a curve is, is measured on queries that it was not fitted on. Shapes: n pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData
from rankhouse.core.fitted_scales import BINS, FittedScale, Isotonic, Platt, Reliability, bin_sums
from rankhouse.core.notation import choose
from rankhouse.core.scores import Doubles, is_probable, latent, probabilities
from rankhouse.evaluation.folds import deal
from rankhouse.evaluation.significance import LEVEL, Interval
from rankhouse.page.charts import Draw, inline, reliability_diagram, write
from rankhouse.page.html import write_page
from rankhouse.page.tables import Table

LEAST: Final = 5
"""Relevant pairs, and others, without which nothing is fitted."""
ISOTONIC_LEAST: Final = 1000
"""Pairs below which isotonic regression follows chance (Niculescu-Mizil, Caruana, ICML 2005)."""
MOST_KNOTS: Final = 32
"""Of an isotonic scale: its text stands in manifests and beside scores."""


class JudgedScores(NamedTuple):
    """A ranker's scores of n judged pairs.

    Attributes:
        query_ids: (n,) whose pairs they are.
        scores: (n,) float32, on the ranker's own scale.
        relevant: (n,) what the judges say.
        scale: The ranker's own scale.
    """

    query_ids: tuple[str, ...]
    scores: NDArray[np.float32]
    relevant: NDArray[np.bool_]
    scale: str


class Goodness(NamedTuple):
    """Calibration of probabilities; intervals by resampling queries.

    Attributes:
        error: Expected calibration error.
        brier: Mean squared difference to what came true.
        log_loss: Mean of minus the logarithm of what was given to what came true.
        reliability: Predicted against observed shares.
    """

    name: str
    error: Interval
    brier: Interval
    log_loss: Interval
    reliability: Reliability


class CalibrationResult(NamedTuple):
    """A fitted scale, and what it is worth.

    Attributes:
        scale: Fitted on all pairs.
        goodness: Of the share of relevant pairs for all, of the ranker's own probabilities where it gives
            some, and of the fitted ones on queries that were held out.
    """

    scale: FittedScale
    method: str
    pairs: int
    relevant: int
    queries: int
    goodness: tuple[Goodness, ...]


class _Curve(NamedTuple):
    """A fit before it is looked at: what makes probabilities of x, and the scale it is, if it rises."""

    probabilities: Callable[[Doubles], Doubles]
    scale: Callable[[str], FittedScale]
    rises: bool


def calibrate(judged: JudgedScores, method: str = "platt", seed: int = 0) -> CalibrationResult:
    """Fit a scale on judged pairs.

    Args:
        method: "platt" or "isotonic".
        seed: Of the folds and of the intervals.

    Raises:
        WrongUse: An unknown method.
        BadData: Too few pairs of one kind, a single query, infinite scores, or scores that do not rise with
            relevance.
        BadModel: A score lies outside the ranker's scale.
    """
    fit = choose(method, METHODS, "method of calibration")
    _check(judged)
    x = latent(judged.scores.astype(np.float64), judged.scale)
    if not (curve := fit(x, judged.relevant)).rises:
        raise BadData(
            "higher scores are not more often relevant on these pairs, so no curve makes probabilities of "
            "them; does the ranker fit the queries, and are these its judgements?"
        )
    queries = list(dict.fromkeys(judged.query_ids))
    fitted, share = _held_out(x, judged, fit, seed)
    systems = {"share of relevant": share}
    if is_probable(judged.scale):
        systems["as the ranker gives them"] = probabilities(judged.scores, judged.scale)
    systems[f"calibrated ({method}, held out)"] = fitted
    goodness = tuple(_goodness(name, judged, p, seed) for name, p in systems.items())
    relevant = int(judged.relevant.sum())
    scale = curve.scale(judged.scale)
    return CalibrationResult(scale, method, len(x), relevant, queries=len(queries), goodness=goodness)


def _check(judged: JudgedScores) -> None:
    """Refuse what nothing can be learned from."""
    n, yes = len(judged.relevant), int(judged.relevant.sum())
    if yes < LEAST or n - yes < LEAST:
        raise BadData(
            f"{yes:,} relevant pairs and {n - yes:,} others: at least {LEAST} of each are needed, and some "
            "hundreds are better; give more judged queries, or a greater --depth"
        )
    if len(set(judged.query_ids)) < 2 or len({q for q, r in zip(*judged[::2], strict=True) if r}) < 2:
        raise BadData(
            "all relevant pairs are of one query, so nobody could tell whether the fit holds for another; "
            "give relevant pairs of two queries or more"
        )
    if not np.isfinite(judged.scores).all():
        raise BadData("a score is infinite or not a number; no curve goes there: score the pairs again")


# --- the two fits ---------------------------------------------------------------------------------------


def _targets(relevant: NDArray[np.bool_]) -> Doubles:
    """Return Platt's targets: (n,)."""
    yes = int(relevant.sum())
    return np.where(relevant, (yes + 1) / (yes + 2), 1 / (len(relevant) - yes + 2))


def fit_platt(x: Doubles, relevant: NDArray[np.bool_]) -> tuple[float, float]:
    """Fit P(relevant) = 1 / (1 + exp(-(slope x + intercept))): the least cross-entropy to Platt's targets.

    By Newton's method within a trust region, x being standardised for it.

    Returns:
        Slope, which may be below 0, and intercept.
    """
    from scipy.optimize import minimize  # noqa: PLC0415 - takes long to load

    targets, centre, spread = _targets(relevant), float(x.mean()), float(x.std()) or 1.0
    design = np.stack([(x - centre) / spread, np.ones(len(x))], axis=1)

    def loss(w: Doubles) -> float:
        z = design @ w
        return float(np.mean(np.logaddexp(0, z) - targets * z))

    def slope(w: Doubles) -> Doubles:
        return np.asarray(design.T @ (_sigmoid(design @ w) - targets) / len(x))

    def curvature(w: Doubles) -> Doubles:
        p = _sigmoid(design @ w)
        return np.asarray((design * (p * (1 - p))[:, None]).T @ design / len(x))

    start = np.array([0.0, np.log(targets.mean() / (1 - targets.mean()))])
    best = minimize(loss, start, jac=slope, hess=curvature, method="trust-exact", options={"gtol": 1e-10}).x
    return float(best[0] / spread), float(best[1] - best[0] * centre / spread)


def _logistic(x: Doubles, relevant: NDArray[np.bool_]) -> _Curve:
    a, b = (float(f"{number:.8g}") for number in fit_platt(x, relevant))
    return _Curve(lambda at: _sigmoid(a * at + b), lambda of: Platt(a, b, of), rises=a > 0)


def _rising(x: Doubles, relevant: NDArray[np.bool_]) -> _Curve:
    from scipy.optimize import isotonic_regression  # noqa: PLC0415 - takes long to load

    distinct, place, count = np.unique(x, return_inverse=True, return_counts=True)
    shares = np.bincount(place, _targets(relevant)) / count
    fitted = isotonic_regression(shares, weights=count).x
    starts = np.concatenate([[0], np.flatnonzero(np.diff(fitted) > 1e-9) + 1])  # below that is rounding
    if len(starts) > MOST_KNOTS:  # neighbours are joined, to steps of about as many pairs
        parts = np.cumsum(count)[starts] * MOST_KNOTS // (len(x) + 1)
        starts = starts[np.flatnonzero(np.diff(parts, prepend=-1))]
    weights = np.add.reduceat(count, starts)
    centres, levels = (np.add.reduceat(own * count, starts) / weights for own in (distinct, fitted))
    knots: list[tuple[float, float]] = []
    for centre, level in zip(centres, levels, strict=True):
        knot = float(f"{centre:.9g}"), float(f"{level:.6g}")
        if not knots or (knot[0] > knots[-1][0] and knot[1] > knots[-1][1]):  # rounding may make two one
            knots.append(knot)
    return _Curve(
        lambda at: np.asarray(np.interp(at, *np.array(knots).T)),
        lambda of: Isotonic(tuple(knots), of),
        rises=len(knots) > 1,
    )


METHODS: dict[str, Callable[[Doubles, NDArray[np.bool_]], _Curve]] = {"platt": _logistic, "isotonic": _rising}
"""Name of a method -> what fits by it."""


def _sigmoid(z: Doubles) -> Doubles:
    return np.asarray(np.exp(-np.logaddexp(0, -z)))


# --- what they are worth --------------------------------------------------------------------------------


def _held_out(
    x: Doubles, judged: JudgedScores, fit: Callable[[Doubles, NDArray[np.bool_]], _Curve], seed: int
) -> tuple[Doubles, Doubles]:
    """Return each pair's probability by a curve and by the mere share, both of other queries: (n,) each."""
    queries = list(dict.fromkeys(judged.query_ids))
    folds = deal(queries, min(5, len(queries)), seed).folds
    fold_of = {query_id: number for number, fold in enumerate(folds) for query_id in fold}
    places = np.array([fold_of[query_id] for query_id in judged.query_ids])
    curves, shares = np.empty(len(x)), np.empty(len(x))
    for number in range(len(folds)):
        own, others = places == number, places != number
        targets = _targets(judged.relevant[others])
        shares[own] = targets.mean()
        curves[own] = fit(x[others], judged.relevant[others]).probabilities(x[own])
    return curves, shares


def _goodness(name: str, judged: JudgedScores, p: Doubles, seed: int) -> Goodness:
    """Measure probabilities (n,), with intervals by resampling queries."""
    _, query = np.unique(np.array(judged.query_ids), return_inverse=True)
    given = np.clip(np.where(judged.relevant, p, 1 - p), 1e-15, 1)  # a logarithm of 0 is infinite
    own = np.split(np.argsort(query, kind="stable"), np.cumsum(np.bincount(query))[:-1])
    sums = np.stack([bin_sums(p[rows], judged.relevant[rows]) for rows in own])
    costs = np.stack([np.bincount(query, (p - judged.relevant) ** 2), np.bincount(query, -np.log(given))])
    generator = np.random.default_rng(seed)
    many = len(sums)
    times = generator.multinomial(many, np.full(many, 1 / many), size=1000)
    drawn = np.concatenate([np.ones((1, many)), times])  # the queries themselves first
    bins = (drawn @ sums.reshape(many, -1)).reshape(-1, 3, BINS)
    pairs = bins[:, 0].sum(1)
    errors = np.abs(bins[:, 2] - bins[:, 1]).sum(1) / pairs
    brier, log_loss = (drawn @ cost / pairs for cost in costs)
    table = Reliability.of(bins[0], "judgements")
    return Goodness(name, _interval(errors), _interval(brier), _interval(log_loss), reliability=table)


def _interval(values: Doubles) -> Interval:
    """Return the first value, with the middle 95 % of the others about it.

    The others are moved so that their mean is the first: resampled calibration errors are too large by about
    as much as the error itself is.
    """
    value, others = float(values[0]), values[1:]
    low, high = np.quantile(others, [(1 - LEVEL) / 2, (1 + LEVEL) / 2]) + value - others.mean()
    return Interval(value, max(0.0, float(low)), float(high))


_TEMPLATE = Path(__file__).parent / "templates" / "calibration.html.j2"


def goodness_table(result: CalibrationResult) -> Table:
    """Return one row for each kind of probabilities: calibration error, Brier score, log loss."""
    rows = tuple(
        (one.name, *(_number(value) for value in (one.error, one.brier, one.log_loss)))
        for one in result.goodness
    )
    columns = ("probabilities", "calibration error", "Brier score", "log loss")
    legend = "In brackets: 95 % intervals, from resampled queries. Lower is better."
    return Table(columns, rows, legend=legend)


def bins_table(reliability: Reliability) -> Table:
    """Return one row for each tenth of probability in which there are pairs."""
    rows = tuple(
        (f"{i / 10:.1f} to {(i + 1) / 10:.1f}", f"{n:,}", f"{predicted:.4f}", f"{observed:.4f}")
        for i, (n, predicted, observed) in enumerate(zip(*reliability[1:], strict=True))
        if n
    )
    return Table(("probability", "pairs", "mean", "relevant"), rows)


def calibration_record(result: CalibrationResult) -> dict[str, Any]:
    """Return everything as plain values for JSON."""
    rows = [
        {
            "name": one.name,
            "calibration_error": one.error._asdict(),
            "brier": one.brier._asdict(),
            "log_loss": one.log_loss._asdict(),
            "bins": [
                {"pairs": n, "predicted": None if not n else p, "observed": None if not n else o}
                for n, p, o in zip(*one.reliability[1:], strict=True)
            ],
        }
        for one in result.goodness
    ]
    return result._asdict() | {"scale": str(result.scale), "goodness": rows}


def write_figure(result: CalibrationResult, path: Path | str) -> None:
    """Draw the reliability diagram into a PNG or SVG file.

    Errors as of :func:`rankhouse.page.charts.write`.
    """
    write(_diagram(result), path, "calibration")


def write_report(result: CalibrationResult, path: Path | str, title: str = "Calibration") -> None:
    """Write a page that stands alone: the fitted scale, what it is worth, the reliability diagram.

    Errors as of :func:`rankhouse.page.html.write_page`.
    """
    content = {
        "title": title,
        "result": result,
        "goodness": goodness_table(result),
        "bins": bins_table(result.goodness[-1].reliability),
        "chart": inline(_diagram(result), "calibration"),
    }
    write_page(_TEMPLATE, content, path)


def _diagram(result: CalibrationResult) -> Draw:
    """Return what draws the ranker's own probabilities, where it has some, and the fitted ones."""
    tables = [(one.name, one.reliability) for one in result.goodness[1:]]
    return reliability_diagram(tables, "probability (mean of each tenth)", "share relevant by the judgements")


def _number(value: Interval) -> str:
    if np.isnan(value.low):
        return f"{value.mean:.4f}"
    return f"{value.mean:.4f} [{value.low:.4f}, {value.high:.4f}]"
