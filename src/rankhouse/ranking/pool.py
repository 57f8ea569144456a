"""Pools: how the scores of a document's passages become one score of the document.

With s_(1) >= s_(2) >= ... the passage scores of one document, best first:

| notation | score of the document | known as |
|---|---|---|
| ``first`` | the score of the passage with index 0 | FirstP (Dai & Callan 2019) |
| ``max`` | s_(1) | MaxP |
| ``sum`` | all of them added | SumP |
| ``mean`` | their mean | AvgP |
| ``top(k)`` | mean of the k best; of all, where there are fewer | k-max average |
| ``weighted(w1, w2, ...)`` | w1 s_(1) + w2 s_(2) + ...; missing ones add 0 | birch (Yilmaz et al. 2019) |

The scale of the scores matters to every pool but ``first``, ``max`` and ``top(1)``: the mean of logits orders
documents otherwise than the mean of probabilities does. So each pool says on which scale it works:
``mean(scale="probability")``. The default, ``scale="score"``, takes the ranker's score as it comes.

A trap: log probabilities are never above 0, so under ``sum`` and ``weighted`` a passage that is *not* there
(it adds 0, the best log probability) helps a document. Say ``scale="probability"`` for such a ranker.
Another: near 1, float32 cannot tell probabilities apart (logits above 17 all become 1), so ``max`` is better
left on the ranker's own scale.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose, write
from rankhouse.core.nouns import Passage, Ranker, StoredPassage
from rankhouse.core.scores import PROBABLE, Doubles, convert, scale_of

AnyPassage = TypeVar("AnyPassage", bound=Passage | StoredPassage)


class Pool(NamedTuple):
    """One way to pool.

    Attributes:
        notation: Its notation, like ``top(3, scale="logit")``.
        gather: Scores in float64 (p,), on the pool's scale and in passage order -> the document's score.
        scale: "score" (as the ranker gives it), "logit", "probability" or "logprob".
        first_only: Only the passage with index 0 counts, so the others need no score at all.
        missing_is_zero: A passage that is not there counts as 0, not as absent.
        factors: Scores (p,) as for ``gather`` -> what each is multiplied by in the document's score, (p,); of
            equal scores the earlier passage counts as the better one.
    """

    notation: str
    gather: Callable[[Doubles], float]
    scale: str = "score"
    first_only: bool = False
    missing_is_zero: bool = False
    factors: Callable[[Doubles], Doubles] | None = None

    def __str__(self) -> str:
        return self.notation

    def __call__(
        self,
        scores: Sequence[float] | NDArray[np.float32],
        declared: str = "score",
        indexes: Sequence[int] | None = None,
    ) -> float:
        """Pool the scores (p,) of one document's passages, p >= 1, in any order.

        Args:
            declared: The scale the ranker declares: "score" if it declares none.
            indexes: Passage.index of each; only ``first`` looks at them. 0, 1, 2 ... if not given.

        Raises:
            WrongUse: No scores, no passage 0 for ``first``, or no way from the ranker's scale to the pool's.
            BadModel: A score lies outside the scale the ranker declares.
        """
        values = np.asarray(scores, np.float64)
        counted = self._counted(len(values), indexes)
        with np.errstate(invalid="ignore"):  # infinities may meet; the caller refuses what is not a number
            return self.gather(convert(values[counted], declared, self.scale))

    def shares(
        self,
        scores: Sequence[float] | NDArray[np.float32],
        declared: str = "score",
        indexes: Sequence[int] | None = None,
    ) -> tuple[Doubles, Doubles]:
        """Return what each passage adds to the pooled score, in the order given, as factor and value.

        Returns:
            Factors (p,), 0 where a passage does not count, and factor x score on the pool's scale (p,); the
            latter sum to the pooled score.

        Raises:
            WrongUse: As for pooling, or the pool does not say how passages share.
        """
        if self.factors is None:
            raise WrongUse(f"{self.notation}: does not say how passages share in its score (Pool.factors)")
        values = np.asarray(scores, np.float64)
        counted = self._counted(len(values), indexes)
        on_scale = convert(values[counted], declared, self.scale)
        factors, added = np.zeros(len(values)), np.zeros(len(values))
        factors[counted] = own = self.factors(on_scale)
        # Where the factor is 0, so is what is added, were the score infinite.
        added[counted] = np.multiply(own, on_scale, where=own != 0, out=np.zeros(len(own)))
        return factors, added

    def _counted(self, n: int, indexes: Sequence[int] | None) -> NDArray[np.int64]:
        """Return the places of the passages that are looked at."""
        places = np.arange(n)
        if self.first_only and indexes is not None:
            places = np.flatnonzero(np.asarray(indexes, np.int64) == 0)[:1]
        if not len(places):
            raise WrongUse(
                f"{self.notation}: there is no passage to pool; give at least one score"
                + (", that of the passage with index 0" if self.first_only else "")
            )
        return places

    def check(self, ranker: Ranker) -> str:
        """Return the ranker's declared scale if this pool can work with it, before any time is spent.

        Raises:
            WrongUse: It cannot.
        """
        scale = scale_of(ranker)
        convert(np.empty(0), scale, self.scale)
        return scale


# --- the pools ------------------------------------------------------------------------------------------


def first(scale: str = "score") -> Pool:
    """Make FirstP: the passage with index 0 speaks for the document, wherever it stands among them."""

    def factors(scores: Doubles) -> Doubles:
        return np.concatenate([np.ones(1), np.zeros(len(scores) - 1)])

    pool = _pool("first", (), scale, lambda scores: float(scores[0]), factors=factors)
    return pool._replace(first_only=True)


def best(scale: str = "score") -> Pool:
    """Make MaxP: the best passage speaks for the document."""
    factors = partial(_by_rank, weights=(1.0,))
    return _pool("max", (), scale, lambda scores: float(scores.max()), factors=factors)


def total(scale: str = "score") -> Pool:
    """Make SumP: all passages add up; long documents gain where scores are positive."""
    pool = _pool("sum", (), scale, _add, factors=lambda scores: np.ones(len(scores)))
    return pool._replace(missing_is_zero=True)


def mean(scale: str = "score") -> Pool:
    """Make AvgP: the mean of all passages."""
    return _pool(
        "mean",
        (),
        scale,
        lambda scores: _add(scores) / len(scores),
        factors=lambda scores: np.full(len(scores), 1 / len(scores)),
    )


def top(k: int, scale: str = "score") -> Pool:
    """Make the mean of the k best passages; of all of them where there are fewer.

    Raises:
        WrongUse: k is not a whole number of at least 1.
    """
    if isinstance(k, bool) or not isinstance(k, int) or k < 1:
        raise WrongUse(f"top({k!r}): k is how many passages count, a whole number from 1 up, like top(3)")

    def gather(scores: Doubles) -> float:
        some = np.sort(scores)[-k:]
        return _add(some) / len(some)

    def factors(scores: Doubles) -> Doubles:
        some = min(k, len(scores))
        return _by_rank(scores, (1 / some,) * some)

    return _pool("top", (k,), scale, gather, factors=factors)


def weighted(*weights: float, scale: str = "score") -> Pool:
    """Make a weighted sum of the best passages, best first; missing ones add nothing.

    Raises:
        WrongUse: No weights, or one that is not a finite number.
    """
    if not weights or not all(isinstance(w, int | float) and math.isfinite(w) for w in weights):
        raise WrongUse(
            f"{write('weighted', *weights)}: give one finite weight for each passage that counts, best "
            "first, like weighted(1.0, 0.5, 0.25)"
        )

    def gather(scores: Doubles) -> float:
        some = np.sort(scores)[::-1][: len(weights)]
        return _add(some * np.asarray(weights[: len(some)], np.float64))

    factors = partial(_by_rank, weights=weights)
    return _pool("weighted", weights, scale, gather, factors=factors)._replace(missing_is_zero=True)


def _add(values: Doubles) -> float:
    """Add exactly, so that the order of passages cannot change a bit."""
    return math.fsum(values) if np.isfinite(values).all() else float(values.sum())


def _by_rank(scores: Doubles, weights: Sequence[float]) -> Doubles:
    """Return the weights of scores (p,), given best first; 0 for those behind."""
    best, factors = np.argsort(-scores, kind="stable")[: len(weights)], np.zeros(len(scores))
    factors[best] = weights[: len(best)]
    return factors


def _pool(
    name: str,
    arguments: tuple[float, ...],
    scale: str,
    gather: Callable[[Doubles], float],
    factors: Callable[[Doubles], Doubles],
) -> Pool:
    choose(scale, {"score": 0, **dict.fromkeys(PROBABLE, 0)}, "scale of a pool")
    options = {} if scale == "score" else {"scale": scale}
    return Pool(write(name, *arguments, **options), gather, scale, factors=factors)


POOLS: dict[str, Callable[..., Pool]] = {
    "first": first,
    "max": best,
    "sum": total,
    "mean": mean,
    "top": top,
    "weighted": weighted,
}
"""The table of names, for :func:`rankhouse.core.notation.make`."""


def pooled_ones(passages: Sequence[AnyPassage], pool: Pool) -> Sequence[AnyPassage]:
    """Return the passages that a pool looks at; the others need no score."""
    return [p for p in passages if p.index == 0] if pool.first_only else passages
