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
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.notation import choose, write
from rankhouse.core.nouns import Ranker

Doubles = NDArray[np.float64]

_TINY: Final = 1.2e-38  # about the smallest normal float32: stands for a probability of 0
_BELOW_ONE: Final = 1 - 2.0**-25  # between 1 and the float32 below it: stands for a probability of 1


class Pool(NamedTuple):
    """One way to pool.

    Attributes:
        notation: What makes it again, like ``top(3, scale="logit")``.
        gather: Scores in float64 (p,), on the pool's scale and in passage order -> the document's score.
        scale: "score" (as the ranker gives it), "logit", "probability" or "logprob".
        first_only: Only the passage with index 0 counts, so the others need no score at all.
        missing_is_zero: A passage that is not there counts as 0, not as absent.
    """

    notation: str
    gather: Callable[[Doubles], float]
    scale: str = "score"
    first_only: bool = False
    missing_is_zero: bool = False

    def __str__(self) -> str:
        return self.notation

    def __call__(
        self,
        scores: Sequence[float] | NDArray[np.float32],
        said: str = "score",
        indexes: Sequence[int] | None = None,
    ) -> float:
        """Pool the scores (p,) of one document's passages, p >= 1, in any order.

        Args:
            scores: What the ranker gave.
            said: The scale the ranker declares: "score" if it declares none.
            indexes: Passage.index of each; only ``first`` looks at them. 0, 1, 2 ... if not given.

        Raises:
            WrongUse: No scores, no passage 0 for ``first``, or no way from the ranker's scale to the pool's.
            BadModel: A score lies outside the scale the ranker declares.
        """
        values = np.asarray(scores, np.float64)
        if self.first_only and indexes is not None:
            values = values[np.asarray(indexes, np.int64) == 0][:1]
        if not len(values):
            raise WrongUse(
                f"{self.notation}: there is no passage to pool; give at least one score"
                + (", that of the passage with index 0" if self.first_only else "")
            )
        with np.errstate(invalid="ignore"):  # infinities may meet; the caller refuses what is not a number
            return self.gather(convert(values, said, self.scale))

    def check(self, ranker: Ranker) -> str:
        """Return the ranker's declared scale if this pool can work with it, before any time is spent.

        Raises:
            WrongUse: It cannot.
        """
        said = scale_of(ranker)
        convert(np.empty(0), said, self.scale)
        return said


def scale_of(ranker: Ranker) -> str:
    """Return the scale a ranker declares in its ``scale``; "score" where it declares none.

    Raises:
        WrongUse: It declares something unheard of.
    """
    scale = str(getattr(ranker, "scale", "score"))
    choose(scale, _TO_LOGIT | _UNCONVERTIBLE, "scale of a ranker")
    return scale


# --- scales ---------------------------------------------------------------------------------------------


def _logprob_to_logit(values: Doubles) -> Doubles:
    values = np.minimum(values, -_TINY)
    return np.asarray(values - np.log(-np.expm1(values)))


def _probability_to_logit(values: Doubles) -> Doubles:
    values = np.clip(values, _TINY, _BELOW_ONE)
    return np.asarray(np.log(values) - np.log1p(-values))


def _logit_to_probability(values: Doubles) -> Doubles:
    return np.exp(-np.logaddexp(0, -values))


def _itself(values: Doubles) -> Doubles:
    return values


_TO_LOGIT: dict[str, Callable[[Doubles], Doubles]] = {
    "logit": _itself,
    "probability": _probability_to_logit,
    "logprob": _logprob_to_logit,
}
_FROM_LOGIT: dict[str, Callable[[Doubles], Doubles]] = {
    "logit": _itself,
    "probability": _logit_to_probability,
    "logprob": lambda values: np.asarray(-np.logaddexp(0, -values)),
}
# The short ways, which lose nothing on the way through the logit.
_DIRECT: dict[tuple[str, str], Callable[[Doubles], Doubles]] = {
    ("logprob", "probability"): np.exp,
    ("probability", "logprob"): lambda values: np.asarray(np.log(np.maximum(values, _TINY))),
}
_UNCONVERTIBLE: dict[str, Callable[[Doubles], Doubles]] = {"score": _itself, "similarity": _itself}
_SLACK: Final = 1e-3  # bf16 puts a probability of 1 a little above it


def convert(values: Doubles, said: str, wanted: str) -> Doubles:
    """Carry scores (p,) from the scale a ranker declares to the one a pool works on.

    Monotone: the order of passages never changes. Certainty is bounded, so that no probability becomes an
    infinite logit: 0 counts as 1.2e-38, 1 as 1 - 2**-25, and a log probability of 0 as -1.2e-38.

    Raises:
        WrongUse: There is no way from one to the other.
        BadModel: A value lies outside the declared scale.
    """
    if wanted in ("score", said):
        return values
    if said in _UNCONVERTIBLE:
        raise WrongUse(
            f'a pool on scale="{wanted}" needs a ranker whose scores are logits, probabilities or log '
            f'probabilities; this one gives "{said}". Leave scale out to pool its scores as they come'
        )
    bounds = {"probability": (0.0, 1.0), "logprob": (-math.inf, 0.0)}.get(said, (-math.inf, math.inf))
    inside = np.clip(values, *bounds)
    outside = (values < bounds[0] - _SLACK) | (values > bounds[1] + _SLACK)
    if (far := np.flatnonzero(outside)).size:
        raise BadModel(
            f'the ranker declares scale "{said}" but gave {values[far[0]]:g}, outside of '
            f"[{bounds[0]:g}, {bounds[1]:g}]; declare another scale, or pool with scale left out"
        )
    if (said, wanted) in _DIRECT:
        return _DIRECT[said, wanted](inside)
    return _FROM_LOGIT[wanted](_TO_LOGIT[said](inside))


# --- the pools ------------------------------------------------------------------------------------------


def first(scale: str = "score") -> Pool:
    """Make FirstP: the passage with index 0 speaks for the document, wherever it stands among them."""
    return _pool("first", (), scale, lambda scores: float(scores[0]))._replace(first_only=True)


def best(scale: str = "score") -> Pool:
    """Make MaxP: the best passage speaks for the document."""
    return _pool("max", (), scale, lambda scores: float(scores.max()))


def total(scale: str = "score") -> Pool:
    """Make SumP: all passages add up; long documents gain where scores are positive."""
    return _pool("sum", (), scale, _add)._replace(missing_is_zero=True)


def mean(scale: str = "score") -> Pool:
    """Make AvgP: the mean of all passages."""
    return _pool("mean", (), scale, lambda scores: _add(scores) / len(scores))


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

    return _pool("top", (k,), scale, gather)


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

    return _pool("weighted", weights, scale, gather)._replace(missing_is_zero=True)


def _add(values: Doubles) -> float:
    """Add exactly, so that the order of passages cannot change a bit."""
    return math.fsum(values) if np.isfinite(values).all() else float(values.sum())


def _pool(name: str, arguments: tuple[float, ...], scale: str, gather: Callable[[Doubles], float]) -> Pool:
    choose(scale, {"score": 0, **dict.fromkeys(_TO_LOGIT, 0)}, "scale of a pool")
    options = {} if scale == "score" else {"scale": scale}
    return Pool(write(name, *arguments, **options), gather, scale)


POOLS: dict[str, Callable[..., Pool]] = {
    "first": first,
    "max": best,
    "sum": total,
    "mean": mean,
    "top": top,
    "weighted": weighted,
}
"""The room's table, for :func:`rankhouse.core.notation.make`."""
