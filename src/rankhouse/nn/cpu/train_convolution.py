"""Compiled loops in float32 that convolve the words of texts: a typed function for each.

sweep: convolution and maximum. grams: unit vectors of n-grams. What can use them is told by
:func:`rankhouse.nn.cpu.train.fits`.
Shapes: n texts, p places, d width, k filter length, f filters, m n-gram lengths, u words, s sweeps of a text.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn.cpu import machine
from rankhouse.nn.cpu.train_words import Texts

with suppress(ImportError):  # not compiled on this machine: `train.fits` says so
    from rankhouse.nn.cpu import _train


class _Sweep(NamedTuple):
    """Arguments of the loop ``sweep``."""

    products: Tensor
    at: Tensor
    lengths: Tensor
    scales: Tensor | None
    sweeps: int
    repeat: int
    places: int
    k: int
    f: int
    best: Tensor
    winners: Tensor


def sweep(products: Tensor, texts: Texts, k: int, scales: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Sum k neighbouring products and take the maximum over a text's true places.

    Args:
        scales: (n, s, p) what each word is multiplied by in each of s sweeps; None for one sweep without.

    Returns:
        (n * s, f) the maxima, and (n * s, f) int32 the places that won.
    """
    texts.check(len(products))
    n, f = len(texts.at), products.shape[1] // k
    sweeps = n if scales is None else n * scales.shape[1]
    best = products.new_empty(sweeps, f)
    arguments = _Sweep(
        products=products,
        at=texts.at,
        lengths=texts.lengths,
        scales=scales,
        sweeps=sweeps,
        repeat=sweeps // max(1, n),
        places=texts.at.shape[1],
        k=k,
        f=f,
        best=best,
        winners=(winners := torch.empty(sweeps, f, dtype=torch.int32)),
    )
    machine.call(_train.sweep, arguments)
    return best, winners


class Maxima(NamedTuple):
    """What the maxima of :func:`sweep` were made of.

    Attributes:
        words: (u, d).
        weight: (f, k, d).
        at: (n, p) int64 rows of words.
        lengths: (n,) int64.
        left: (n,) int64 row of a word that every word of the text is multiplied by, or None.
        scales: (n, s, p), or None.
        winners: (n * s, f) int32.
    """

    words: Tensor
    weight: Tensor
    at: Tensor
    lengths: Tensor
    left: Tensor | None
    scales: Tensor | None
    winners: Tensor


class _SweepBack(NamedTuple):
    """Arguments of the loop ``sweep_back``."""

    words: Tensor
    weight: Tensor
    left: Tensor | None
    at: Tensor
    lengths: Tensor
    scales: Tensor | None
    sweeps: int
    repeat: int
    places: int
    k: int
    f: int
    d: int
    winners: Tensor
    gradient: Tensor
    to_words: Tensor
    to_weight: Tensor
    to_scales: Tensor | None


def sweep_back(gradient: Tensor, maxima: Maxima, of_scales: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return the gradients of words, weight and scales.

    Args:
        of_scales: Whether the gradient of the scales is wanted; None is returned for it otherwise.
    """
    weight = maxima.weight.contiguous()
    (n, p), (f, k, d) = maxima.at.shape, weight.shape
    arguments = _SweepBack(
        words=maxima.words,
        weight=weight,
        left=maxima.left,
        at=maxima.at,
        lengths=maxima.lengths,
        scales=maxima.scales,
        sweeps=len(maxima.winners),
        repeat=len(maxima.winners) // max(1, n),
        places=p,
        k=k,
        f=f,
        d=d,
        winners=maxima.winners,
        gradient=gradient.contiguous(),
        to_words=torch.zeros_like(maxima.words),
        to_weight=torch.zeros_like(weight),
        to_scales=torch.zeros_like(maxima.scales) if of_scales and maxima.scales is not None else None,
    )
    machine.call(_train.sweep_back, arguments)
    return arguments.to_words, arguments.to_weight, arguments.to_scales


class _Grams(NamedTuple):
    """Arguments of the loop ``grams``."""

    back: bool
    products: Tensor | None
    at: Tensor
    lengths: Tensor
    bias: Tensor | None
    texts: int
    places: int
    grams: int
    f: int
    eps: float
    out: Tensor
    inverse: Tensor
    gradient: Tensor | None = None
    to_products: Tensor | None = None
    to_bias: Tensor | None = None


def grams(products: Tensor, bias: Tensor, texts: Texts, eps: float) -> tuple[Tensor, Tensor]:
    """Make the unit vectors of all n-grams of texts.

    Args:
        products: (u, m (m + 1) / 2, f): a word times each filter row, those of length 1, 2, ... m in turn.

    Returns:
        (n, m, p, f) the vectors, and (n, m, p) one over their lengths.
    """
    texts.check(len(products))
    (n, p), (m, f) = texts.at.shape, bias.shape
    out, inverse = products.new_empty(n, m, p, f), products.new_empty(n, m, p)
    machine.call(_train.grams, _grams_of(texts, out, inverse)._replace(products=products, bias=bias, eps=eps))
    return out, inverse


def grams_back(
    gradient: Tensor, texts: Texts, vectors: tuple[Tensor, Tensor], into: tuple[Tensor, Tensor]
) -> None:
    """Add the gradients of products and bias to what they are so far.

    Args:
        into: (u, m (m + 1) / 2, f) and (m, f), added to in place.
    """
    arguments = _grams_of(texts, *vectors)._replace(
        back=True, gradient=gradient.contiguous(), to_products=into[0], to_bias=into[1]
    )
    machine.call(_train.grams, arguments)


def _grams_of(texts: Texts, out: Tensor, inverse: Tensor) -> _Grams:
    n, m, p, f = out.shape
    return _Grams(
        back=False,
        products=None,
        at=texts.at,
        lengths=texts.lengths,
        bias=None,
        texts=n,
        places=p,
        grams=m,
        f=f,
        eps=0.0,
        out=out,
        inverse=inverse,
    )
