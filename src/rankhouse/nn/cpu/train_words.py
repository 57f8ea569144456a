"""Compiled loops in float32 over the words of texts: a typed function for each.

match: all products of two texts' words. pool: kernel sums over a row of similarities. count: the same
of stored rows. sweep: convolution and maximum. grams: unit vectors of n-grams.
:func:`rankhouse.nn.cpu.train.fits` says what can use them.
Shapes: n texts, q and p places, d width, k kernels or filter length, f filters, m n-gram lengths, u words, s
sweeps of a text.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn import machine
from rankhouse.nn.machine import checked

with suppress(ImportError):  # not compiled on this machine: `train.fits` says so
    from rankhouse.nn.cpu import _train

_STORED = {torch.float32, torch.float16, torch.int8}
_PRODUCTS = 100_000  # of words and rows that keep a thread for half a millisecond
_PARTS = 4  # that a thread takes, one after the other: others may be slower


class TextRows(NamedTuple):
    """n texts, whose words stand as rows of a table."""

    at: Tensor  # (n, p) int64 rows of words
    lengths: Tensor  # (n,) int64, how many of them count

    def check(self, rows: int) -> None:
        """Refuse rows that lead outside a table of so many, or texts longer than their row."""
        check_lengths(self.lengths, *self.at.shape)
        low, high = self.at.aminmax() if self.at.numel() else (0, 0)
        if self.at.dtype is not torch.int64 or low < 0 or high >= rows:
            raise ValueError(
                f"rows {int(low)} to {int(high)} of {rows}, as {self.at.dtype}; int64 were expected"
            )


def check_lengths(lengths: Tensor, n: int, most: int) -> None:
    """Refuse lengths that are not (n,) int64 of at most ``most``."""
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


def match(words: Tensor, query: TextRows, passage: TextRows) -> Tensor:
    """Return all products (n, q, p) of the words of pairs, zeros beyond their ends."""
    query.check(len(words))
    passage.check(len(words))
    out = words.new_empty(*query.at.shape, passage.at.shape[1])
    machine.call(_train.match, _matching(words, query, passage)._replace(out=out))
    return out


def match_back(gradient: Tensor, words: Tensor, query: TextRows, passage: TextRows) -> Tensor:
    """Turn the gradient of :func:`match`, (n, q, p), into that of its words, (u, d)."""
    to_words = torch.zeros_like(words)
    arguments = _matching(words, query, passage)._replace(
        back=True, gradient=gradient.contiguous(), to_table=to_words
    )
    machine.call(_train.match, arguments)
    return to_words


def _matching(words: Tensor, query: TextRows, passage: TextRows) -> _Match:
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
    """Sum kernels over the first ``lengths`` places of rows: (n, q, k)."""
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


def sweep(products: Tensor, texts: TextRows, k: int, scales: Tensor | None = None) -> tuple[Tensor, Tensor]:
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
    """Operands of the maxima of :func:`sweep`."""

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
    """Return the gradients of words, weight and, where they are wanted, scales."""
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


def grams(products: Tensor, bias: Tensor, texts: TextRows, eps: float) -> tuple[Tensor, Tensor]:
    """Make the unit vectors of all n-grams of texts: (n, m, p, f), and (n, m, p) one over their lengths.

    Products are (u, m (m + 1) / 2, f): a word times each filter row, those of length 1, 2, ... m in turn.
    """
    texts.check(len(products))
    (n, p), (m, f) = texts.at.shape, bias.shape
    out, inverse = products.new_empty(n, m, p, f), products.new_empty(n, m, p)
    machine.call(_train.grams, _grams_of(texts, out, inverse)._replace(products=products, bias=bias, eps=eps))
    return out, inverse


def grams_back(
    gradient: Tensor, texts: TextRows, vectors: tuple[Tensor, Tensor], into: tuple[Tensor, Tensor]
) -> None:
    """Add the gradients of products (u, m (m + 1) / 2, f) and bias (m, f) to what ``into`` holds of them."""
    arguments = _grams_of(texts, *vectors)._replace(
        back=True, gradient=gradient.contiguous(), to_products=into[0], to_bias=into[1]
    )
    machine.call(_train.grams, arguments)


def _grams_of(texts: TextRows, out: Tensor, inverse: Tensor) -> _Grams:
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


def count(
    query: Tensor,
    rows: Tensor,
    scales: Tensor | None,
    offsets: Tensor,
    kernels: Gaussians,
    threads: int = 1,
) -> Tensor:
    """Sum kernels over products of a query (q, d) and n texts' rows (t, d), end to end: (n, q, k).

    Rows of bytes meet words that are rounded to 16 bits, in exact sums. A text's sums have the same bits
    whatever the threads and the texts beside it.

    Args:
        rows: float32, float16 or int8.
        scales: (t,) float32 factors of the rows; None for 1.
        offsets: (n + 1,) int64 where the texts' rows begin, and where the last ends.
        threads: Most threads that count at the same time; few rows are counted by one.
    """
    (q, d), n, k = query.shape, len(offsets) - 1, len(kernels.centres)
    checked(query, torch.float32, d)
    checked(rows, rows.dtype if rows.dtype in _STORED else torch.float32, d)
    checked(offsets[:, None], torch.int64, 1)
    if scales is not None:
        checked(scales[:, None], torch.float32, 1, len(rows))
    ends = int(offsets[0]), int(offsets[-1])
    if ends != (0, len(rows)) or (offsets.diff() < 0).any():
        raise ValueError(f"texts begin at {ends[0]} and end at {ends[1]} of {len(rows)} rows, or overlap")
    counts = query.new_empty(n, q, k)
    share = min(threads, q * len(rows) // _PRODUCTS)  # a thread more takes its time to start
    size = n if share < 2 else -(-n // (_PARTS * share))
    firsts = iter(range(0, n, max(1, size)))

    def work() -> None:
        """Count texts that no thread has taken yet."""
        for first in firsts:
            last = min(n, first + size)
            sizes = (last - first, q, d, k, rows.element_size())
            part = offsets[first : last + 1]
            machine.call(_train.count, (query, rows, scales, part, *sizes, *kernels, counts[first:last]))

    with ThreadPoolExecutor(max(1, share - 1)) as pool:
        helpers = [pool.submit(work) for _ in range(share - 1)]
        work()
    for helper in helpers:
        helper.result()
    return counts


def weigh(counts: Tensor, log_weights: Tensor, weights: Tensor, lengths: Tensor, least: float) -> Tensor:
    """Score soft counts of n texts, b blocks and q words, (n, b, q, k): (n,).

    Args:
        log_weights: (b, k), of the sum over words of the logarithms in base 2 of counts, ``least`` or more.
        weights: (b, k), of the sum over words of the counts, divided by the length + 1.
        lengths: (n,) int64, the texts'.
    """
    n, b, q, k = counts.shape
    checked(counts.view(n, b * q * k), torch.float32, b * q * k)
    for each in (log_weights, weights):
        checked(each, torch.float32, k, b)
    check_lengths(lengths, n, 2**62)
    scores = counts.new_empty(n)
    sizes = (n, b, q, k)
    machine.call(_train.weigh, (counts, log_weights, weights, lengths, *sizes, least, scores))
    return scores
