"""Differences of two systems: how sure one can be of them, and which queries only one of the two answers.

Paired t-test: Student (1908). Randomization test: Fisher (1935), as Smucker, Allan and Carterette (CIKM 2007)
recommend it for rankings: if two systems are alike, each query's difference is as likely with either sign.
Corrections: Bonferroni; Holm (1979). Everything is two-sided.

The annotation paper (Chiu, Shinzato, section 5.2) counts for how many test queries only one of two models has
a right document on top (its table 6), and cuts the queries into five ranges of equal size by the distance at
which the first model finds its top document (its figure 2). Here likewise, for any two runs.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.qrels import Qrels, relevant
from rankhouse.core.run import Run
from rankhouse.core.sameness import NOTHING, warn_of_mismatch
from rankhouse.page.tables import Table

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


class WinCounts(NamedTuple):
    """Queries by who is right."""

    neither: int
    only_first: int
    only_second: int
    both: int

    @property
    def queries(self) -> int:
        """Number of queries."""
        return sum(self)

    @property
    def p(self) -> float:
        """The two-sided exact probability of so uneven a split by chance (sign test, McNemar's exact).

        1 where the two never differ.
        """
        split = self.only_first + self.only_second
        if not split:
            return 1.0
        from scipy.stats import binomtest  # noqa: PLC0415 - takes half a second to load

        return float(binomtest(self.only_first, split).pvalue)


class ScoreRange(NamedTuple):
    """One of the ranges that queries are cut into."""

    nearest: float
    farthest: float
    counts: WinCounts


class PairedWins(NamedTuple):
    """Numbers of queries where one of two systems is right and the other is not.

    Attributes:
        counts: Counts of the right system, over all queries.
        ranges: The same by the score of the first system's top document, highest first.
    """

    first: str
    second: str
    counts: WinCounts
    ranges: tuple[ScoreRange, ...]


def paired_wins(first: Run, second: Run, qrels: Qrels, names: tuple[str, str], ranges: int = 5) -> PairedWins:
    """Compare the top documents of two runs.

    Only queries that have a relevant document count. A query that a run does not have is wrong there; one
    that the first run does not have is farthest of all. Equal scores are ordered by query id.

    Args:
        first: By whose scores the ranges are cut: the higher the nearer.
        ranges: How many, of equal size or one more.

    Raises:
        WrongUse: Fewer than one range.
        BadData: Fewer judged queries than ranges.

    Warns:
        RankhouseWarning: A run and the judgements hardly name a query, or no document, alike.
    """
    if ranges < 1:
        raise WrongUse(f"ranges={ranges}: one or more are possible")
    judged = sorted(query_id for query_id in qrels if relevant(qrels, query_id))
    if len(judged) < ranges:
        raise BadData(
            f"{len(judged):,} queries have a relevant document, too few for {ranges} ranges; give fewer "
            "ranges, or the judgements that belong to the runs"
        )
    for run, name in zip((first, second), names, strict=True):
        warn_of_mismatch({q: run[q].doc_ids for q in run}, name, qrels, "the judgements", documents=NOTHING)
    scores = {q: float(first[q].scores[0]) if q in first and len(first[q]) else -math.inf for q in judged}
    order = sorted(judged, key=lambda query_id: -scores[query_id])
    tops = [{q: run[q].doc_ids[:1] for q in run} for run in (first, second)]
    right = [[bool(relevant(qrels, q).intersection(top.get(q, ()))) for top in tops] for q in order]
    cut = [
        ScoreRange(scores[order[rows[0]]], scores[order[rows[-1]]], _count(right[rows[0] : rows[-1] + 1]))
        for rows in np.array_split(np.arange(len(order)), ranges)
    ]
    return PairedWins(*names, _count(right), tuple(cut))


def counts_table(wins: PairedWins) -> Table:
    """Return one row a kind of query: how many of them there are."""
    counts, queries = wins.counts, wins.counts.queries
    rows = [
        (kind, f"{count:,}", f"{count / queries:.1%}")
        for kind, count in zip(_kinds(wins), counts, strict=True)
    ]
    legend = f"{queries:,} queries; p = {counts.p:.4f} that only one is right by chance (exact sign test)"
    return Table(("", "queries", "share"), tuple(rows), legend=legend)


def ranges_table(wins: PairedWins) -> Table:
    """Return one row a range, nearest first: shares of the four kinds of queries."""
    rows = [
        (
            f"{number}: {one.nearest:.4f} to {one.farthest:.4f}",
            f"{one.counts.queries:,}",
            *(f"{count / one.counts.queries:.1%}" for count in one.counts),
        )
        for number, one in enumerate(wins.ranges, 1)
    ]
    legend = f"Ranges by the score of the top document of {wins.first}, nearest first."
    return Table((f"score by {wins.first}", "queries", *_kinds(wins)), tuple(rows), legend=legend)


def record(wins: PairedWins) -> dict[str, object]:
    """Return all numbers by name."""
    counts = wins.counts
    return {
        "first": wins.first,
        "second": wins.second,
        "queries": counts.queries,
        "p": counts.p,
        **counts._asdict(),
        "ranges": [{"nearest": r.nearest, "farthest": r.farthest, **r.counts._asdict()} for r in wins.ranges],
    }


def _kinds(wins: PairedWins) -> tuple[str, str, str, str]:
    return "both wrong", f"only {wins.first} right", f"only {wins.second} right", "both right"


def _count(right: list[list[bool]]) -> WinCounts:
    kinds = ([False, False], [True, False], [False, True], [True, True])
    return WinCounts(*map(right.count, kinds))
