"""Compiled loops in float32 over the words of texts: a typed function for each.

match: all products of two texts' words. pool: kernel sums over a row of similarities. Those that convolve are
in train_convolution.py. What can use them is told by :func:`rankhouse.nn.cpu.train.fits`.
Shapes: n texts, q and p places, d width, k kernels, u words.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn.cpu import machine

with suppress(ImportError):  # not compiled on this machine: `train.fits` says so
    from rankhouse.nn.cpu import _train


class Texts(NamedTuple):
    """n texts, whose words stand as rows of a table.

    Attributes:
        at: (n, p) int64 rows of words.
        lengths: (n,) int64, how many of them count.
    """

    at: Tensor
    lengths: Tensor

    def check(self, rows: int) -> None:
        """Refuse rows that lead outside a table of so many, or texts longer than their row."""
        check_lengths(self.lengths, *self.at.shape)
        low, high = self.at.aminmax() if self.at.numel() else (0, 0)
        if self.at.dtype is not torch.int64 or low < 0 or high >= rows:
            raise ValueError(
                f"rows {int(low)} to {int(high)} of {rows}, as {self.at.dtype}; int64 were expected"
            )


def check_lengths(lengths: Tensor, n: int, most: int) -> None:
    """Refuse lengths that are not (n,) int64 of at most ``most``.

    Args:
        n: How many there must be.
    """
    if lengths.dtype is not torch.int64 or lengths.shape != (n,) or not lengths.is_contiguous():
        raise ValueError(f"{n} lengths of int64 were expected, {tuple(lengths.shape)} {lengths.dtype} came")
    if n and int(lengths.max()) > most:
        raise ValueError(f"a length of {int(lengths.max())} in rows of {most}")


class _Match(NamedTuple):
    """Arguments of the loop ``match``."""

    back: bool
    table: Tensor
    query: Tensor
    passage: Tensor
    query_lengths: Tensor
    lengths: Tensor
    texts: int
    q: int
    p: int
    d: int
    out: Tensor | None = None
    gradient: Tensor | None = None
    to_table: Tensor | None = None


def match(words: Tensor, query: Texts, passage: Texts) -> Tensor:
    """Return all products (n, q, p) of the words of pairs, zeros beyond their ends."""
    query.check(len(words))
    passage.check(len(words))
    out = words.new_empty(*query.at.shape, passage.at.shape[1])
    machine.call(_train.match, _matching(words, query, passage)._replace(out=out))
    return out


def match_back(gradient: Tensor, words: Tensor, query: Texts, passage: Texts) -> Tensor:
    """Turn the gradient of :func:`match`, (n, q, p), into that of its words, (u, d)."""
    to_words = torch.zeros_like(words)
    arguments = _matching(words, query, passage)._replace(
        back=True, gradient=gradient.contiguous(), to_table=to_words
    )
    machine.call(_train.match, arguments)
    return to_words


def _matching(words: Tensor, query: Texts, passage: Texts) -> _Match:
    return _Match(
        back=False,
        table=words,
        query=query.at,
        passage=passage.at,
        query_lengths=query.lengths,
        lengths=passage.lengths,
        texts=len(query.at),
        q=query.at.shape[1],
        p=passage.at.shape[1],
        d=words.shape[1],
    )


class Gaussians(NamedTuple):
    """k kernels 2^(steepness (x - centre)^2), each (k,) float32."""

    centres: Tensor
    steepness: Tensor


class _Pool(NamedTuple):
    """Arguments of the loop ``pool``."""

    back: bool
    match: Tensor
    lengths: Tensor
    texts: int
    rows: int
    places: int
    centres: Tensor
    steepness: Tensor
    kernels: int
    counts: Tensor | None = None
    gradient: Tensor | None = None
    to_match: Tensor | None = None


def pool(match: Tensor, lengths: Tensor, kernels: Gaussians) -> Tensor:
    """Sum kernels over the first ``lengths`` places of rows: (n, q, k).

    Args:
        lengths: (n,) int64.
    """
    n, q, p = match.shape
    check_lengths(lengths, n, p)
    counts = match.new_empty(n, q, len(kernels.centres))
    machine.call(_train.pool, _pooling(match, lengths, kernels)._replace(counts=counts))
    return counts


def pool_back(gradient: Tensor, match: Tensor, lengths: Tensor, kernels: Gaussians) -> Tensor:
    """Turn the gradient of :func:`pool`, (n, q, k), into that of the similarities, (n, q, p)."""
    back = torch.empty_like(match)
    arguments = _pooling(match, lengths, kernels)._replace(
        back=True, gradient=gradient.contiguous(), to_match=back
    )
    machine.call(_train.pool, arguments)
    return back


def _pooling(match: Tensor, lengths: Tensor, kernels: Gaussians) -> _Pool:
    n, q, p = match.shape
    return _Pool(
        back=False,
        match=match,
        lengths=lengths,
        texts=n,
        rows=q,
        places=p,
        centres=kernels.centres,
        steepness=kernels.steepness,
        kernels=len(kernels.centres),
    )
