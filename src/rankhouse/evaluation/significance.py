"""How sure one can be of a difference: intervals, two paired tests, two corrections for many tests.

Paired t-test: Student (1908). Randomization test: Fisher (1935), as Smucker, Allan and Carterette (CIKM 2007)
recommend it for rankings: if two systems are alike, each query's difference is as likely with either sign.
Corrections: Bonferroni; Holm (1979). Everything is two-sided.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LEVEL = 0.95
ALPHA = 0.05
TIE = 1e-12  # smaller differences are rounding, not ranking
PERMUTATIONS = 100_000
_EXACT_UP_TO = 17  # differing queries: 2**17 sign patterns are more than the permutations drawn otherwise
_CHUNK_BYTES = 32 * 2**20
_ROUNDING = 1e-12  # relative to the sum of sizes: sums of the same numbers in another order count as equal


class Interval(NamedTuple):
    """A mean and the interval that holds the true one with 95 % confidence; NaN ends if unknowable."""

    mean: float
    low: float
    high: float


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


def t_interval(values: Floats) -> Interval:
    """Return the mean of values, (queries,), with its 95 % Student interval; one value gives NaN ends."""
    mean, count = float(np.mean(values)), len(values)
    if count < 2:
        return Interval(mean, float("nan"), float("nan"))
    from scipy.special import stdtrit  # noqa: PLC0415 - takes a quarter of a second to load

    half = float(stdtrit(count - 1, (1 + LEVEL) / 2)) * float(np.std(values, ddof=1)) / count**0.5
    return Interval(mean, mean - half, mean + half)


def without_rounding(differences: Floats) -> Floats:
    """Return differences, those that are only rounding set to 0."""
    return np.where(np.abs(differences) < TIE, 0.0, differences)


def t_test(differences: Floats, seed: int = 0) -> Floats:  # noqa: ARG001 - one signature for all tests
    """Test paired differences with Student's t.

    Args:
        differences: (tests, queries), system minus baseline.

    Returns:
        (tests,) two-sided p. No difference anywhere, or a single query, gives 1; the same difference on
        every query leaves no spread and gives 0.
    """
    from scipy.special import stdtr  # noqa: PLC0415 - takes a quarter of a second to load

    tests, count = differences.shape
    if count < 2:
        return np.ones(tests)
    means = differences.mean(axis=1)
    errors = differences.std(axis=1, ddof=1) / count**0.5
    with np.errstate(divide="ignore", invalid="ignore"):
        t = np.where(means == 0, 0.0, np.abs(means) / errors)
    p: Floats = np.minimum(2 * stdtr(count - 1, -t), 1.0)
    return p


def randomization_test(differences: Floats, seed: int = 0, permutations: int = PERMUTATIONS) -> Floats:
    """Test paired differences by flipping their signs.

    Where at most 17 queries differ, every pattern of signs is tried and p is exact. Otherwise patterns are
    drawn, the same ones for every test, and p = (as extreme + 1) / (drawn + 1), so that it is never 0.
    Memory does not grow with the number of patterns.

    Args:
        differences: (tests, queries), system minus baseline.
        seed: Of the patterns; the same seed gives the same p, whatever other tests are asked for.
        permutations: Patterns drawn where not all are tried.

    Returns:
        (tests,) two-sided p of the mean difference.
    """
    p = np.ones(len(differences))
    few = np.count_nonzero(differences, axis=1) <= _EXACT_UP_TO
    for row in np.flatnonzero(few):
        p[row] = _every_pattern(differences[row])
    if not few.all():
        p[~few] = _drawn_patterns(differences[~few].T, seed, permutations)
    return p


def _every_pattern(differences: Floats) -> float:
    """Return the exact p of (queries,) differences; those of 0 change nothing and are left out."""
    sums = np.zeros(1)
    for difference in differences[differences != 0]:
        sums = np.concatenate([sums + difference, sums - difference])
    least = abs(differences.sum()) - _ROUNDING * np.abs(differences).sum()
    return float(np.mean(np.abs(sums) >= least))


def _drawn_patterns(differences: Floats, seed: int, permutations: int) -> Floats:
    """Return the Monte Carlo p of (queries, tests) differences: (tests,)."""
    queries, tests = differences.shape
    total = differences.sum(axis=0)
    least = np.abs(total) - _ROUNDING * np.abs(differences).sum(axis=0)
    generator = np.random.default_rng(seed)
    words = -(-queries // 64)
    chunk = max(1, _CHUNK_BYTES // (8 * (queries + tests)))
    extreme = np.zeros(tests, dtype=np.int64)
    for start in range(0, permutations, chunk):
        rows = min(chunk, permutations - start)
        random = generator.integers(0, 2**64, size=(rows, words), dtype=np.uint64).astype("<u8", copy=False)
        signs = np.unpackbits(random.view(np.uint8), axis=1, count=queries)
        sums = 2 * (signs.astype(np.float64) @ differences) - total
        extreme += np.count_nonzero(np.abs(sums) >= least, axis=0)
    p: Floats = (extreme + 1) / (permutations + 1)
    return p


def uncorrected(p: Floats) -> Floats:
    """Leave every p, (tests,), as it is."""
    return p.copy()


def bonferroni(p: Floats) -> Floats:
    """Multiply every p, (tests,), by the number of tests; never above 1."""
    return np.minimum(p * len(p), 1.0)


def holm(p: Floats) -> Floats:
    """Multiply the smallest p by the number of tests, the next by one less, and so on; keeps the order."""
    order = np.argsort(p, kind="stable")
    stepped = np.maximum.accumulate(p[order] * np.arange(len(p), 0, -1))
    corrected = np.empty_like(p)
    corrected[order] = np.minimum(stepped, 1.0)
    return corrected


class SignificanceTest(NamedTuple):
    """A paired test that a comparison can be asked for.

    Attributes:
        p: From (tests, queries) differences and a seed to (tests,) two-sided p.
        describe: From the seed to its name in a sentence: "two-sided ... against the baseline".
    """

    p: Callable[[Floats, int], Floats]
    describe: Callable[[int], str]


class Correction(NamedTuple):
    """A correction for many tests.

    Attributes:
        correct: From (tests,) p to (tests,) corrected p.
        name: How it stands in a sentence before "3 tests".
    """

    correct: Callable[[Floats], Floats]
    name: str


TESTS: dict[str, SignificanceTest] = {
    "t": SignificanceTest(t_test, lambda _: "paired t-test"),
    "randomization": SignificanceTest(
        randomization_test,
        lambda seed: f"Fisher's randomization test ({PERMUTATIONS:,} permutations or all, seed {seed})",
    ),
}
"""The tests by name: one that is added here is known to :func:`compare`, the command line and recipes."""

CORRECTIONS: dict[str, Correction] = {
    "none": Correction(uncorrected, "no correction for"),
    "bonferroni": Correction(bonferroni, "Bonferroni correction over"),
    "holm": Correction(holm, "Holm correction over"),
}
"""The corrections by name."""
