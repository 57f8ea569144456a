"""What soft counts add to a score, by query word, kernel and passage word: the arithmetic of kernels.py.

Shapes: q query words, p passage words, k kernels.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from rankhouse.core.nouns import FloatArray
from rankhouse.core.scores import Doubles
from rankhouse.explanation.answer import Grid, Part
from rankhouse.explanation.units import NO_WORDS
from rankhouse.nn.layers.kernel_pooling import COUNT_FLOOR, Kernels

_EXACT = 0.01  # a kernel of at most this width counts nothing but the word itself


def above_floor(counts: FloatArray | Doubles, weights: Doubles) -> Doubles:
    """Return w ln(K / e) of counts K (..., k), e their floor: 0 where nothing was counted."""
    gains: Doubles = weights * np.log(np.maximum(counts.astype(np.float64), COUNT_FLOOR) / COUNT_FLOOR)
    return gains


def at_floor(query_words: int, weights: Doubles) -> Doubles:
    """Return what the floors of all query words give, (k,): the log path of a passage without words."""
    return query_words * math.log(COUNT_FLOOR) * weights


def responses(match: FloatArray, kernels: Kernels) -> Doubles:
    """Return every kernel of every match: (k, q, p)."""
    values = np.empty((len(kernels), *match.shape))
    for out, centre, width in zip(values, *kernels, strict=True):
        np.subtract(match, centre, out=out)
        np.exp(np.square(out, out=out) * (-0.5 / width**2), out=out)
    return values


def spread(gains: Doubles, values: Doubles) -> Doubles:
    """Share what counts gained among the words that were counted: (p,), with the gains' sum.

    Args:
        gains: (q, k); 0 where nothing was counted.
    """
    totals = values.sum(2)
    rates = np.divide(gains.T, totals, out=np.zeros_like(totals), where=totals > 0)
    words: Doubles = np.einsum("kq,kqp->p", rates, values)
    return words


def kernel_parts(kernels: Kernels, gains: Doubles, counts: FloatArray, weights: Doubles) -> tuple[Part, ...]:
    """Return a part for each kernel that adds something to a query word."""
    rows = zip(*kernels, gains.tolist(), counts.tolist(), weights.tolist(), strict=True)
    return tuple(
        Part(
            "exact match" if width <= _EXACT else f"cosine ≈ {centre:g}",
            gain,
            facts={"count": count, "weight": weight},
        )
        for centre, width, gain, count, weight in rows
        if gain
    )


def share_grid(name: str, rows: Sequence[str], kernels: Kernels, gains: Doubles, floors: Doubles) -> Grid:
    """Return what each query word and kernel adds, and what the floors give: it sums to the score."""
    columns = tuple(f"{centre:g}" for centre in kernels.centres)
    values = np.concatenate([gains, floors[None]]).astype(np.float32)
    return Grid(name, (*rows, NO_WORDS), columns, values)
