"""Several runs into one: weighted sums of scores, or of reciprocal ranks.

Sources: reciprocal rank fusion, Cormack, Clarke and Büttcher (SIGIR 2009); CombSUM and CombMNZ, Fox and Shaw
(TREC-2, 1994). A document of any run is a document of the fusion. What a run says of a document that it
does not have is a choice, ``missing``: "min", its lowest value for that query (a run ends where its depth
ends, so the document would have come later; with raw query likelihoods, which are negative, a 0 would be
a prize), "zero" (what libraries that add up score lists do), or "drop", which keeps only documents that
every run has. A run of weight 0 takes no part: neither its scores nor its documents.

A run that finds one document for a query, or several with equal scores, has no spread to divide by. Found is
better than not found all the same (a rare word, a product's number), so its documents count as the first of
two would: 1 in min-max and in z-scores, and those it lacks as the second of two, 0 and -1.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Ranking
from rankhouse.core.run import Run
from rankhouse.core.scores import ordinals
from rankhouse.ranking.align import AlignedRuns, Floats, align

Weights = tuple[float, ...]

_MOST_TRIALS = 5_000


class Addend(NamedTuple):
    """One run's share of one document's score.

    Attributes:
        weight: The run's.
        rank: The document's place in the run, from 1; 0 where the run lacks it.
        score: Its score there; NaN where the run lacks it.
        value: Value of that score, or the one that counts for a missing document.
        votes: Factor of the sum.
        added: weight x value x votes.
    """

    weight: float
    rank: int
    score: float
    value: float
    votes: int
    added: float


@dataclass(frozen=True)
class Fusion:
    """A way to make one run of several; call it with runs and weights.

    Attributes:
        value: Ranking -> what each of its documents is worth, (k,).
        missing: "min", "zero" or "drop".
        flat_floor: What a run whose scores are all equal says of others where ``missing`` is "min"; None: the
            same as of its own.
        shares: Weights not given are 1 / runs each, so that they sum to 1; else 1 each.
        votes: The sum is multiplied by how many runs have the document.
    """

    value: Callable[[Ranking], Floats]
    missing: str = "zero"
    flat_floor: float | None = None
    shares: bool = False
    votes: bool = False

    def __call__(self, runs: Sequence[Run], weights: Sequence[float] | None = None) -> Run:
        """Fuse runs; the order in which they are given does not matter.

        Args:
            weights: One a run, 0 or more, not all 0; equal if not given.

        Raises:
            WrongUse: Fewer than two runs, or weights that do not fit.
            BadData: An infinite score where scores are added.
        """
        return _mix(self, self.align(runs), self._weights(runs, weights))

    def align(self, runs: Sequence[Run]) -> AlignedRuns:
        """Value the documents of all runs and lay them side by side.

        Raises:
            BadData: An infinite score where scores are added.
        """
        return align(runs, self.value, self.missing, self.flat_floor)

    def _weights(self, runs: Sequence[Run], weights: Sequence[float] | None) -> Weights:
        usual = 1 / len(runs) if self.shares and runs else 1.0
        return _checked(runs, [usual] * len(runs) if weights is None else weights)

    def addends(
        self, runs: Sequence[Run], query_id: str, doc_id: str, weights: Sequence[float] | None = None
    ) -> list[Addend]:
        """Return what each run adds to a document's score, the run of weight 0 too.

        Raises:
            WrongUse: The fusion lacks the document for this query; otherwise as for fusing.
        """
        of_query, factors = [run.restrict([query_id]) for run in runs], self._weights(runs, weights)
        aligned = self.align(of_query)
        terms = _terms(self, aligned, factors)
        places = np.flatnonzero(aligned.table[aligned.code[terms.rows]] == doc_id)
        if not len(places):
            raise WrongUse(
                f'document "{doc_id}" is not in the fusion for query "{query_id}": '
                + ("a run lacks it" if self.missing == "drop" else "no run of a weight above 0 has it")
            )
        place, addends, scores = int(places[0]), list[Addend](), [run.to_dict() for run in of_query]
        added = dict(zip(terms.runs.tolist(), terms.values[:, place].tolist(), strict=True))
        votes = int(terms.present[:, place].sum()) if self.votes else 1
        values, floors = aligned.values[:, terms.rows[place]].tolist(), aligned.floors[:, 0].tolist()
        for number, own in enumerate(run.get(query_id, {}) for run in scores):
            rank = 1 + [*own].index(doc_id) if doc_id in own else 0
            value, mine = values[number] if rank else floors[number], added.get(number, 0.0) * votes
            addends.append(
                Addend(factors[number], rank, own.get(doc_id, math.nan), value, votes=votes, added=mine)
            )
        return addends


class _FusionTerms(NamedTuple):
    """Terms of a fusion: the runs that take part (r,), rows (n,), weight x value and presence (r, n)."""

    runs: NDArray[np.int64]
    rows: NDArray[np.int64]
    values: Floats
    present: NDArray[np.bool_]


def _terms(fusion: Fusion, aligned: AlignedRuns, weights: Weights) -> _FusionTerms:
    part = np.flatnonzero(np.array(weights) > 0)
    values = aligned.values[part]
    present = ~np.isnan(values)
    rows = np.flatnonzero(present.all(axis=0) if fusion.missing == "drop" else present.any(axis=0))
    values, present, query = values[:, rows], present[:, rows], aligned.query[rows]
    terms = np.where(present, values, aligned.floors[part][:, query]) * np.array(weights)[part, None]
    return _FusionTerms(part, rows, terms, present)


_LARGEST: Final = float(np.finfo(np.float32).max)


def _mix(fusion: Fusion, aligned: AlignedRuns, weights: Weights) -> Run:
    """Add up and sort."""
    terms = _terms(fusion, aligned, weights)
    # Added from small to large: the sum, to the last bit, is the same in whatever order runs are given.
    sums = np.sort(terms.values, axis=0).sum(axis=0)
    if fusion.votes:
        sums *= terms.present.sum(axis=0)
    if np.abs(sums).max(initial=0) > _LARGEST:
        raise BadData(
            f"the sums of these scores are up to {np.abs(sums).max():.3g}, too large for 32 bits; "
            "divide all scores by the same number, or all weights"
        )
    scores, query = sums.astype(np.float32), aligned.query[terms.rows]
    # By query, then score, descending: a single whole-number key sorts several times faster.
    order = np.argsort((query << 32) - ordinals(scores), kind="stable")
    offsets = np.searchsorted(query, np.arange(len(aligned.queries) + 1))
    codes = aligned.code[terms.rows][order].astype(np.int32)
    return Run(aligned.queries, offsets, aligned.table, codes, scores=scores[order])


_HEAVIEST: Final = 1e30


def _checked(runs: Sequence[Run], weights: Sequence[float]) -> Weights:
    if len(runs) < 2:
        raise WrongUse(f"the number of runs given is {len(runs)}; a fusion needs two or more")
    shown = ", ".join(f"{weight:g}" for weight in weights)
    if len(weights) != len(runs):
        raise WrongUse(f"{len(runs)} runs but {len(weights)} weights ({shown}) were given; give one a run")
    if not all(math.isfinite(w) and w >= 0 for w in weights) or not any(weights):
        raise WrongUse(f"weights {shown} were given; they must be 0 or more and not all 0")
    if not 1 / _HEAVIEST <= max(weights) <= _HEAVIEST:
        raise WrongUse(
            f"weights {shown} leave nothing but ties in scores of 32 bits; give some of the same proportions "
            "about 1"
        )
    return tuple(map(float, weights))


# --- what a ranking is worth -----------------------------------------------------------------------------


def raw(ranking: Ranking) -> Floats:
    """Take the scores as they are, (k,)."""
    return ranking.scores.astype(np.float64)


def min_max(ranking: Ranking) -> Floats:
    """Stretch a query's scores, (k,), to 0 ... 1; all alike become 1."""
    scores = ranking.scores.astype(np.float64)
    span = scores[0] - scores[-1]
    return (scores - scores[-1]) / span if span != 0 else np.ones(len(scores))


def z_score(ranking: Ranking) -> Floats:
    """Shift and stretch a query's scores, (k,), to mean 0 and standard deviation 1; all alike become 1."""
    scores = ranking.scores.astype(np.float64)
    deviation = scores.std()
    return (scores - scores.mean()) / deviation if scores[0] != scores[-1] else np.ones(len(scores))


def _reciprocal_ranks(ranking: Ranking, k: float) -> Floats:
    return 1 / (k + np.arange(1, len(ranking.doc_ids) + 1))


NORMALISATIONS: dict[str, Callable[[Ranking], Floats]] = {"raw": raw, "min-max": min_max, "z-score": z_score}
MISSING = ("min", "zero", "drop")
_FLAT_FLOORS: dict[str, float] = {"min-max": 0.0, "z-score": -1.0}


def linear(normalise: str = "min-max", missing: str = "min") -> Fusion:
    """Interpolate: the weighted sum of scores.

    Args:
        normalise: "raw", "min-max" or "z-score", within each query and run.
        missing: What a run says of a document it lacks: "min", "zero" or "drop" (see the module).
    """
    choose(missing, dict.fromkeys(MISSING), "treatment of missing documents")
    value = choose(normalise, NORMALISATIONS, "normalisation")
    return Fusion(value, missing, flat_floor=_FLAT_FLOORS.get(normalise), shares=True)


def rrf(k: float = 60) -> Fusion:
    """Add up weight / (k + rank), rank from 1; a missing document adds nothing (Cormack et al. 2009)."""
    if not (math.isfinite(k) and k >= 0):
        raise WrongUse(f"rrf(k={k}): k must be 0 or more; 60 is usual")
    return Fusion(partial(_reciprocal_ranks, k=k))


def combsum(normalise: str = "min-max") -> Fusion:
    """Add up normalised scores; a missing document adds nothing (Fox and Shaw 1994)."""
    return Fusion(choose(normalise, NORMALISATIONS, "normalisation"))


def combmnz(normalise: str = "min-max") -> Fusion:
    """Like combsum, times the number of runs that have the document (Fox and Shaw 1994)."""
    return Fusion(choose(normalise, NORMALISATIONS, "normalisation"), votes=True)


FUSIONS: dict[str, Callable[..., Fusion]] = {
    "linear": linear,
    "rrf": rrf,
    "combsum": combsum,
    "combmnz": combmnz,
}


# --- finding the weights ---------------------------------------------------------------------------------


class TuningResult(NamedTuple):
    """The best weights found, their score, and everything that was tried, in that order."""

    weights: Weights
    score: float
    tried: tuple[tuple[Weights, float], ...]


def tune(
    runs: Sequence[Run],
    score: Callable[[Run], float],
    fusion: Fusion | None = None,
    grid: Sequence[Sequence[float]] | None = None,
    step: float = 0.05,
    refine: bool = False,
) -> TuningResult:
    """Find weights by trying a grid. Equal scores go to the first tried: least weight on the later runs.

    Args:
        score: What to make large, for example ``rankhouse.evaluation.measures.scorer(qrels, "AP")``. Judge by
            queries other than those that the result is reported on.
        grid: The weights to try; if not given, all multiples of ``step`` that sum to 1.
        refine: Then also try steps a tenth as large around the best point of the grid.

    Raises:
        WrongUse: A step that does not divide 1, a grid too large or empty, weights that do not fit.
    """
    fusion = linear() if fusion is None else fusion
    if grid is not None and refine:
        raise WrongUse("refine=True goes with step, not with a grid of your own; give one or the other")
    parts = _parts(step)
    points = _simplex(len(runs), parts) if grid is None else [_checked(runs, point) for point in grid]
    if not points:
        raise WrongUse("the grid of weights is empty; give at least one point")
    _checked(runs, points[0])
    aligned = fusion.align(runs)
    tried = [(point, score(_mix(fusion, aligned, point))) for point in points]
    if refine:
        near = _simplex(len(runs), parts * 10, _best(tried)[0])
        tried += [(point, score(_mix(fusion, aligned, point))) for point in near]
    return TuningResult(*_best(tried), tuple(tried))


def interpolations(runs: int, step: float = 0.1) -> list[Weights]:
    """List the weights birch tries: alpha * run 1 + (1 - alpha) * (run 2 + beta * run 3 + gamma * run 4 ...).

    Alpha, beta and gamma go from 0 to below 1 (Yilmaz et al. 2019, "Cross-Domain Modeling of Sentence-Level
    Evidence for Document Retrieval", equation 1, and its code). The first points lean most on run 1 and least
    on later runs, so that they win where points are equally good.

    Args:
        runs: Two or more: a first stage, then the scores of the best, second best ... sentence.

    Raises:
        WrongUse: Fewer than two runs, a step that does not divide 1, or too many points.
    """
    parts = _parts(step)
    if runs < 2 or parts ** (runs - 1) > _MOST_TRIALS:
        raise WrongUse(
            f"{runs} runs in steps of {step:g}: give two or more, and a step that makes at most "
            f"{_MOST_TRIALS:,} points of (1 / step) ** (runs - 1)"
        )
    shares = [part / parts for part in range(parts)]
    return [
        (alpha, 1 - alpha, *((1 - alpha) * share for share in later))
        for alpha in reversed(shares)
        for later in itertools.product(shares, repeat=runs - 2)
    ]


def _best(tried: Sequence[tuple[Weights, float]]) -> tuple[Weights, float]:
    """Return the first of the highest (differences below 1e-12 are rounding)."""
    return reduce(lambda best, point: point if point[1] > best[1] + 1e-12 else best, tried)


def _parts(step: float) -> int:
    parts = round(1 / step) if 0 < step <= 1 else 0
    if parts < 1 or abs(parts * step - 1) > 1e-9:
        raise WrongUse(f"step = {step} was given; 1 must be a multiple of it, like 0.1 or 0.05")
    return parts


def _simplex(runs: int, parts: int, near: Weights | None = None) -> list[Weights]:
    """List weights that are whole parts and sum to 1, later runs' smallest first; near a point if given."""

    def splits(number: int, left: int) -> Iterator[tuple[int, ...]]:
        """Return what runs ``number`` to the last may get, in parts, leaving the rest to the first run."""
        if number == runs:
            yield ()
            return
        centre = 0 if near is None else round(near[number] * parts)
        reach = left if near is None else 10
        for mine in range(max(0, centre - reach), min(left, centre + reach) + 1):
            for others in splits(number + 1, left - mine):
                yield (mine, *others)

    points = []
    for later in splits(1, parts):
        points.append(((parts - sum(later)) / parts, *(mine / parts for mine in later)))
        if len(points) > _MOST_TRIALS:
            raise WrongUse(
                f"more than {_MOST_TRIALS:,} weightings of {runs} runs in steps of {1 / parts:g}; "
                "take a larger step or give a grid"
            )
    return points
