"""Scores of rankers: the scales they are on, float32 numbers in their order, and what no score may be.

A ranker declares one scale:

| scale | a score x stands for the probability |
|---|---|
| ``logit`` | 1 / (1 + exp(-x)) |
| ``probability`` | x |
| ``logprob`` | exp(x) |
| ``similarity``, ``score`` | none: x only orders |
| ``platt(a, b)``, ``isotonic(...)`` | fitted on judged pairs: :mod:`rankhouse.core.fitted_scales` |
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import ge
from typing import Final, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.fitted_scales import read_fitted
from rankhouse.core.nouns import FloatArray, Pair, Ranker, StoredPair
from rankhouse.core.progress import part

Doubles = NDArray[np.float64]
Ordinals = NDArray[np.int64]
AnyPair = TypeVar("AnyPair", Pair, StoredPair)

PROBABLE: Final = ("logit", "probability", "logprob")
"""Scales on which a score stands for a probability by itself; see :func:`is_probable`."""
RAW: Final = ("score", "similarity")
"""Scales on which it does not."""

_TINY: Final = 1.2e-38  # about the smallest normal float32: stands for a probability of 0
_BELOW_ONE: Final = 1 - 2.0**-25  # between 1 and the float32 below it: stands for a probability of 1
_SLACK: Final = 1e-3  # bf16 puts a probability of 1 a little above it
_BOUNDS: Final = {"probability": (0.0, 1.0), "logprob": (-math.inf, 0.0)}


def scale_of(ranker: Ranker) -> str:
    """Return the scale a ranker declares in its ``scale``; "score" where it declares none.

    Raises:
        WrongUse: It declares a scale that does not exist.
    """
    return check_scale(str(getattr(ranker, "scale", "score")))


def check_scale(scale: str) -> str:
    """Return a scale, which exists.

    Raises:
        WrongUse: It does not.
    """
    if base_of(scale) not in (*PROBABLE, *RAW):
        raise WrongUse(
            f'"{scale}" is no scale of a ranker; choose from: {", ".join((*PROBABLE, *RAW))}; or a fitted '
            'one, like platt(1.5, -2.0, of="logit")'
        )
    return scale


def base_of(scale: str) -> str:
    """Return the scale of the numbers themselves: of a fitted one, that on which it was fitted."""
    fitted = read_fitted(scale) if "(" in scale else None
    return scale if fitted is None else fitted.of


def is_probable(scale: str) -> bool:
    """Return whether a score on a scale stands for a probability."""
    return scale in PROBABLE or read_fitted(scale) is not None


def latent(values: Doubles, scale: str) -> Doubles:
    """Return what a fitted scale is a curve over: log-odds where there are probabilities, else the scores.

    Raises:
        BadModel: A score lies outside of it.
    """
    inside = within(values, scale)
    return inside if scale in ("logit", *RAW) else _CONVERSIONS[scale, "logit"](inside)


# --- scales ---------------------------------------------------------------------------------------------


def _probability_to_logit(values: Doubles) -> Doubles:
    values = np.clip(values, _TINY, _BELOW_ONE)
    return np.asarray(np.log(values) - np.log1p(-values))


def _logprob_to_logit(values: Doubles) -> Doubles:
    values = np.minimum(values, -_TINY)
    return np.asarray(values - np.log(-np.expm1(values)))


_CONVERSIONS: dict[tuple[str, str], Callable[[Doubles], Doubles]] = {
    ("logit", "probability"): lambda values: np.asarray(np.exp(-np.logaddexp(0, -values))),
    ("logit", "logprob"): lambda values: np.asarray(-np.logaddexp(0, -values)),
    ("probability", "logit"): _probability_to_logit,
    ("probability", "logprob"): lambda values: np.asarray(np.log(np.maximum(values, _TINY))),
    ("logprob", "logit"): _logprob_to_logit,
    ("logprob", "probability"): np.exp,
}


def convert(values: Doubles, scale: str, wanted: str) -> Doubles:
    """Convert scores from the scale a ranker declares to another one.

    Monotone: the order never changes. Certainty is bounded, so that no probability becomes an infinite logit:
    0 counts as 1.2e-38, 1 as 1 - 2**-25, and a log probability of 0 as -1.2e-38.

    Args:
        values: Scores, (n,).
        scale: Their scale.
        wanted: The scale to convert to; "score" leaves them as they are.

    Raises:
        WrongUse: There is no way from one to the other.
        BadModel: A value lies outside the declared scale.
    """
    if wanted in ("score", scale):
        return values
    if scale in RAW:
        raise WrongUse(
            f'a pool on scale="{wanted}" needs a ranker whose scores are logits, probabilities or log '
            f'probabilities; this one gives "{scale}". Leave scale out to pool its scores as they come'
        )
    if (fitted := read_fitted(scale)) is None:
        return _CONVERSIONS[scale, wanted](within(values, scale))
    shares = fitted.probabilities(latent(values, fitted.of))
    return shares if wanted == "probability" else _CONVERSIONS["probability", wanted](shares)


def probabilities(scores: FloatArray, scale: str) -> Doubles:
    """Convert scores (n,) to probabilities, or leave them raw where their scale has none: (n,) float64.

    NaN stays NaN.

    Args:
        scores: What a ranker gave.
        scale: The scale it declares.

    Raises:
        BadModel: A score lies outside the declared scale.
    """
    values = scores.astype(np.float64)
    return convert(within(values, scale), scale, "probability") if is_probable(scale) else values


def within(values: Doubles, scale: str) -> Doubles:
    """Return scores (n,) cut off at the bounds of their scale, which rounding may overstep a little.

    Raises:
        BadModel: One lies so far outside that the scale cannot be true.
    """
    low, high = _BOUNDS.get(base_of(scale), (-math.inf, math.inf))
    if (far := np.flatnonzero((values < low - _SLACK) | (values > high + _SLACK))).size:
        raise BadModel(
            f'the ranker declares scale "{scale}" but gave {values[far[0]]:g}, outside of '
            f"[{low:g}, {high:g}]; declare its true scale, in a rule like "
            'taught("DIR", threshold=0.5, scale="logit"), or pool with scale left out'
        )
    return np.clip(values, low, high)


# --- float32 numbers in their order ---------------------------------------------------------------------

_LARGEST: Final = 0x7F7FFFFF  # bits of the largest finite float32
_FEW: Final = 64  # scores, below which numpy's calls cost more than they save
_NORMAL: Final = 0x00800000  # bits of the smallest one that processors never flush to zero


def ordinals(scores: FloatArray) -> Ordinals:
    """Number float32 numbers in their order: (n,) int64; both zeros are 0, neighbours differ by 1."""
    bits = np.ascontiguousarray(scores, np.float32).view(np.int32).astype(np.int64)
    return np.where(bits < 0, -(bits & 0x7FFFFFFF), bits)


def from_ordinals(numbers: Ordinals) -> FloatArray:
    """Return the float32 numbers that have these ordinals: (n,)."""
    bits = np.where(numbers < 0, -numbers | 0x80000000, numbers)
    return bits.astype(np.uint32).view(np.float32)


def strictly_falling(scores: FloatArray, offsets: Ordinals | None = None) -> FloatArray:
    """Lower each of n scores that is not below its predecessor to the next float32 below that one: (n,).

    On ordinals, "one below the predecessor" is a running minimum.

    Args:
        offsets: Where each ranking begins and the last ends, (rankings + 1,); None for one of all scores.
    """
    if len(scores) < 2:
        return scores
    if offsets is None and len(scores) <= _FEW:
        return _each_falling(scores)
    rises = scores[1:] >= scores[:-1]
    if offsets is not None:
        starts = offsets[1:-1]
        rises[starts[(starts > 0) & (starts < len(scores))] - 1] = False
    if not rises.any():
        return scores
    # Far below all of the ranking before, none is held down by it.
    below = 0 if offsets is None else np.repeat(np.arange(len(offsets) - 1) << 33, np.diff(offsets))
    place = np.arange(len(scores)) - below
    return from_ordinals(np.minimum.accumulate(ordinals(scores) + place) - place)


def _each_falling(scores: FloatArray) -> FloatArray:
    """Do the same for one ranking score by score: of few, several times quicker."""
    values = scores.tolist()
    if not any(map(ge, values[1:], values)):
        return scores
    falling, before = [], 1 << 32
    for one in np.ascontiguousarray(scores, np.float32).view(np.int32).tolist():
        number = one if one >= 0 else -(one & 0x7FFFFFFF)
        before = number if number < before else before - 1
        falling.append(before if before >= 0 else -before | 0x80000000)
    return np.array(falling, np.uint32).view(np.float32)


def with_room_below(scores: FloatArray, n: int) -> FloatArray:
    """Append n finite scores, strictly falling, strictly below all m given ones: (m,) -> (m + n,).

    They are the next float32 numbers below the lowest score. Subnormal numbers are skipped,
    since some programs take those for 0. Where there is no room above minus the largest float32 (a score of
    minus infinity, say), the lowest scores are raised as little as makes room; none changes places.
    """
    if n == 0:
        return scores
    numbers = ordinals(scores)
    lowest = n - _LARGEST
    if numbers.min() < lowest:
        distinct, place = np.unique(numbers, return_inverse=True)
        numbers = np.maximum(distinct, lowest + np.arange(len(distinct)))[place]
        scores = from_ordinals(numbers)
    start = int(numbers.min()) - 1
    if start > -_NORMAL and start - n + 1 < _NORMAL:
        start = -_NORMAL
    return np.concatenate([scores, from_ordinals(start - np.arange(n))])


# --- what no score may be -------------------------------------------------------------------------------


def one_each(n: int, scores: FloatArray) -> FloatArray:
    """Return what a ranker gave for n pairs as (n,) float32.

    Raises:
        BadModel: It gave another number of scores, or what is none, or one beyond 32 bits.
    """
    try:
        with np.errstate(over="raise"):
            scores = np.asarray(scores, np.float32)
    except (TypeError, ValueError, FloatingPointError) as error:
        raise BadModel(f"what the ranker gave cannot be {n} scores of 32 bits: {error}") from error
    if scores.shape != (n,):
        raise BadModel(f"the ranker was asked for {n} scores and gave an array of shape {scores.shape}")
    return scores


def numbers_only(
    scores: FloatArray, pairs: Sequence[Pair | StoredPair], remedy: str = "use another copy, or fp32"
) -> FloatArray:
    """Return scores, none of which is NaN.

    Args:
        scores: (n,).
        pairs: What was scored.
        remedy: What to do, for the message.

    Raises:
        BadModel: One is not a number; names the first such pair.
    """
    if (bad := np.flatnonzero(np.isnan(scores))).size:
        query, passage = pairs[int(bad[0])]
        raise BadModel(
            f'the score of passage {passage.index} of document "{passage.doc_id}" for query "{query.id}" is '
            f"not a number ({bad.size:,} of {len(pairs):,} pairs); the ranker's weights are damaged or "
            f"overflow in this precision: {remedy}"
        )
    return scores


def in_chunks(
    score: Callable[[Sequence[AnyPair]], FloatArray], pairs: Sequence[AnyPair], size: int
) -> FloatArray:
    """Score n pairs, so many at once: (n,); BadModel for one that is no number, too few or too many."""
    scores = np.empty(len(pairs), np.float32)
    for start in range(0, len(pairs), size):
        some = pairs[start : start + size]
        with part(start / len(pairs), (start + len(some)) / len(pairs)):
            scores[start : start + len(some)] = one_each(len(some), score(some))
    return numbers_only(scores, pairs)
