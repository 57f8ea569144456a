"""The compiled loops of training as steps of autograd: words, n-grams, and the two halves of a TK layer.

What can use them: :func:`rankhouse.nn.cpu.train.fits`; the same stands in PyTorch in match.py,
convolve.py, tk_encoder.py and Conv-KNRM. Here products come from oneDNN, all else from the compiled loops,
and padding is never computed. TK: Hofstätter et al., TREC 2019, eq. 2-3.
Shapes: n texts, q and p places, t tokens of all texts together, d width, k kernels or filter length, f
filters, m n-gram lengths, u words, s sweeps over a text, h heads, i columns of all heads together.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rankhouse.nn.cpu import train, train_words
from rankhouse.nn.cpu.train import Head, NormKind, Weights, rounded
from rankhouse.nn.cpu.train_words import Gaussians, Maxima, TextRows
from rankhouse.nn.layers.linear import multiply, to_weight

_CHUNK_ROWS = 2048  # of products that are made at once

KernelPair = Sequence[tuple[float, ...]]
"""Centres and widths."""


def match(words: Tensor, query: TextRows, passage: TextRows) -> Tensor:
    """Return all products (n, q, p) of the words of pairs, zeros beyond their ends, with gradients."""
    sides = (TextRows(side.at.contiguous(), side.lengths) for side in (query, passage))
    return cast(Tensor, _MatchStep.apply(words.contiguous(), *sides))  # type: ignore[no-untyped-call]  # torch's


class _MatchStep(torch.autograd.Function):
    """Rows are read where they stand, and never copied together."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, query: TextRows, passage: TextRows) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(words, *query, *passage)
        return train_words.match(words, query, passage)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        words, *sides = ctx.saved_tensors
        return train_words.match_back(gradient, words, TextRows(*sides[:2]), TextRows(*sides[2:])), None, None


def pool(match: Tensor, lengths: Tensor, kernels: KernelPair) -> Tensor:
    """Sum kernels over the first ``lengths`` places of rows: (n, q, p), (n,) -> (n, q, k), with gradients."""
    return cast(Tensor, _PoolStep.apply(match.contiguous(), lengths, kernels))  # type: ignore[no-untyped-call]  # torch's


def count(
    query: Tensor,
    rows: Tensor,
    scales: Tensor | None,
    offsets: Tensor,
    kernels: KernelPair,
    threads: int = 1,
) -> Tensor:
    """Sum kernels over n texts' stored rows end to end, as train_words.count does: (n, q, k)."""
    constants = _gaussians(kernels)
    return train_words.count(query.contiguous(), rows, scales, offsets, kernels=constants, threads=threads)


@lru_cache(maxsize=16)
def _gaussians(kernels: KernelPair) -> Gaussians:
    centres, widths = kernels
    steepness = [-0.5 * math.log2(math.e) / width**2 for width in widths]
    with torch.inference_mode(False):  # scoring may ask first, and training then needs plain tensors
        return Gaussians(*(torch.tensor(each, dtype=torch.float32) for each in (centres, steepness)))


class _PoolStep(torch.autograd.Function):
    """Remembers the similarities only; the kernels are computed again going back."""

    @staticmethod
    def forward(ctx: Any, match: Tensor, lengths: Tensor, kernels: Any) -> Tensor:  # noqa: ANN401 - torch's context
        constants = _gaussians(kernels)
        ctx.save_for_backward(match, lengths, *constants)
        return train_words.pool(match, lengths, constants)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        match, lengths, *constants = ctx.saved_tensors
        return train_words.pool_back(gradient, match, lengths, Gaussians(*constants)), None, None


_AT_ONCE = 2**19  # similarities whose windows are summed at once: they stay in a core's cache


def window_logs(
    match: Tensor,
    query_mask: Tensor,
    lengths: Tensor,
    *,
    sizes: tuple[int, ...],
    kernels: KernelPair,
    least: float,
) -> tuple[Tensor, ...]:
    """Sum logarithms of kernel sums in windows over the query, with gradients: (n, w, k) for each size.

    Kernels are computed for true words only, once for all sizes: in windows of their common divisor. A pair's
    numbers have the same bits beside any others, and with any padding.

    Args:
        match: (n, q, p) similarities.
        query_mask: (n, q) bool, which words of the queries are true.
        lengths: (n,) int64, how many places of a passage count.
        sizes: Places of a window.
        kernels: Centres and widths.
        least: The least kernel sum whose logarithm is taken.
    """
    shared = math.gcd(*sizes)
    whole = max(1, -(-match.shape[2] // shared)) * shared  # a larger window has nothing more in it
    windows = _WindowSizes(tuple(min(size, whole) for size in sizes), shared, kernels, least)
    return cast("tuple[Tensor, ...]", _WindowStep.apply(match, query_mask, lengths, windows))  # type: ignore[no-untyped-call]  # torch's


class _WindowSizes(NamedTuple):
    """Windows of several sizes that do not overlap, put together from those of the sizes' common divisor."""

    sizes: tuple[int, ...]
    shared: int  # their common divisor
    kernels: KernelPair
    least: float

    def parts(
        self, match: Tensor, query_mask: Tensor, lengths: Tensor
    ) -> Iterator[tuple[tuple[Tensor, ...], tuple[Tensor, Tensor], Tensor]]:
        """Yield r true words at a time: where they stand, their smallest windows, and the kernels' sums.

        These are pairs and places in queries, (r,) each; similarities (r c, 1, s) with how many of the places
        count, (r c,); and (r, c, k).
        """
        p, size = match.shape[2], self.shared
        spare = max(self.sizes) // size - 1  # behind a passage, which fill up the last window
        starts = torch.arange(-(-p // size) + spare) * size
        for some in torch.split(query_mask.nonzero(), max(1, _AT_ONCE // (len(starts) * size))):
            at = some.unbind(1)
            filled = nn.functional.pad(match[at], (0, len(starts) * size - p)).view(-1, 1, size)
            left = (lengths[at[0], None] - starts).clamp_(0, size).flatten()
            sums = train_words.pool(filled, left, _gaussians(self.kernels))
            yield at, (filled, left), sums.view(len(some), len(starts), sums.shape[2])

    def groups(self, sums: Tensor, size: int, places: int) -> Tensor:
        """View the smallest windows' sums, (r, c, k), as what windows of a size consist of: (r, w, m, k)."""
        count, windows = size // self.shared, -(-places // size)
        return sums[:, : windows * count].view(len(sums), windows, count, sums.shape[2])

    def added(self, sums: Tensor, size: int, places: int) -> Tensor:
        """Add up what windows of a size consist of, in order, so that zeros change no bit: (r, w, k)."""
        first, *rest = self.groups(sums, size, places).unbind(2)
        total = first.clone(memory_format=torch.contiguous_format)
        for one in rest:
            total += one
        return total


class _WindowStep(torch.autograd.Function):
    """Remembers the similarities only; the rest is computed again going back, a part at a time."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        match: Tensor,
        query_mask: Tensor,
        lengths: Tensor,
        windows: _WindowSizes,
    ) -> tuple[Tensor, ...]:
        ctx.save_for_backward(match, query_mask, lengths)
        ctx.windows, (n, _, p) = windows, match.shape
        logs = [match.new_zeros(n, -(-p // size), len(windows.kernels[0])) for size in windows.sizes]
        for at, _, sums in windows.parts(match, query_mask, lengths):
            for out, size in zip(logs, windows.sizes, strict=True):
                own = windows.added(sums, size, p).clamp_(min=windows.least).log_()
                out.index_add_(0, at[0], own)
        return tuple(logs)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None, None]:  # noqa: ANN401
        match, query_mask, lengths = ctx.saved_tensors
        windows, p, back = ctx.windows, match.shape[2], torch.zeros_like(match)
        for at, (filled, left), sums in windows.parts(match, query_mask, lengths):
            slopes = torch.zeros_like(sums)
            for gradient, size in zip(gradients, windows.sizes, strict=True):
                own = windows.added(sums, size, p)
                slope = torch.where(own < windows.least, 0, gradient[at[0]] / own)
                windows.groups(slopes, size, p).add_(slope.unsqueeze(2))
            each = slopes.view(len(filled), 1, slopes.shape[2])
            rows = train_words.pool_back(each, filled, left, _gaussians(windows.kernels))
            back[at] = rows.view(len(sums), rows.shape[2] * sums.shape[1])[:, :p]
        return back, None, None, None


def sweep(
    words: Tensor, weight: Tensor, texts: TextRows, scales: Tensor | None = None, left: Tensor | None = None
) -> Tensor:
    """Convolve texts and take the maximum over their true places, with gradients: (n, s, f).

    Args:
        scales: (n, s, p) what each word is multiplied by in each of s sweeps; None for one sweep without.
        left: (n,) int64, the row of a word that every word of the text is multiplied by; not with scales.
    """
    n, sweeps = len(texts.at), 1 if scales is None else scales.shape[1]
    texts = texts._replace(at=texts.at.contiguous())
    texts.check(len(words))
    scales = None if scales is None else scales.contiguous()
    best = _SweepStep.apply(words.contiguous(), weight, texts, scales, left)  # type: ignore[no-untyped-call]  # torch's
    return cast(Tensor, best).view(n, sweeps, len(weight))


class _SweepStep(torch.autograd.Function):
    """Remembers which place won; going back, only the words of winning places are touched."""

    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        words: Tensor,
        weight: Tensor,
        texts: TextRows,
        scales: Tensor | None,
        left: Tensor | None,
    ) -> Tensor:
        f, k, d = weight.shape
        flat = weight.permute(1, 0, 2).reshape(k * f, d)
        if left is None:
            best, winners = train_words.sweep(multiply(words, flat), texts, k, scales)
        else:
            best, winners = _sweep_products(words, flat, texts, left, k=k)
        ctx.save_for_backward(*Maxima(words, weight, *texts, left, scales, winners))
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None, None]:  # noqa: ANN401
        maxima, of_scales = Maxima(*ctx.saved_tensors), ctx.needs_input_grad[3]
        to_words, to_weight, to_scales = train_words.sweep_back(gradient, maxima, of_scales)
        return to_words, to_weight, None, to_scales, None


def _sweep_products(
    words: Tensor, flat: Tensor, texts: TextRows, left: Tensor, k: int
) -> tuple[Tensor, Tensor]:
    """Sweep texts whose words are multiplied by the word in row ``left`` (n,), some texts at a time.

    Texts of the same factor stand beside each other, and each distinct pair of words is multiplied once.
    Gives (n, f) the maxima, and (n, f) int32 the places that won.
    """
    (n, p), u, f = texts.at.shape, len(words), len(flat) // k
    best, winners = words.new_empty(n, f), torch.empty(n, f, dtype=torch.int32)
    order = torch.argsort(left, stable=True)
    step = max(1, _CHUNK_ROWS // max(1, p))
    for start in range(0, n, step):
        chosen = order[start : start + step]
        pairs, at = torch.unique(left[chosen][:, None] * u + texts.at[chosen], return_inverse=True)
        pairs = nn.functional.pad(pairs, (0, rounded(len(pairs)) - len(pairs)))
        factors = words.index_select(0, torch.div(pairs, u, rounding_mode="floor"))
        products = multiply(factors.mul_(words.index_select(0, pairs % u)), flat)
        part = TextRows(at.contiguous(), texts.lengths[chosen])
        best[chosen], winners[chosen] = train_words.sweep(products, part, k)
    return best, winners


def grams(products: Tensor, bias: Tensor, sides: tuple[TextRows, ...], eps: float) -> tuple[Tensor, ...]:
    """Make the unit vectors of all n-grams of texts, with gradients: for each side (n, m, p, f).

    Products are (u, m (m + 1) / 2, f): a word times each filter row, those of length 1, 2, ... m in turn.
    """
    sides = tuple(TextRows(side.at.contiguous(), side.lengths) for side in sides)
    return cast("tuple[Tensor, ...]", _GramsStep.apply(products.contiguous(), bias.contiguous(), sides, eps))  # type: ignore[no-untyped-call]  # torch's


class _GramsStep(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        products: Tensor,
        bias: Tensor,
        sides: tuple[TextRows, ...],
        eps: float,
    ) -> tuple[Tensor, ...]:
        vectors = [train_words.grams(products, bias, side, eps) for side in sides]
        out, inverses = zip(*vectors, strict=True)
        ctx.sides, ctx.shapes = sides, (products.shape, bias.shape)
        ctx.save_for_backward(*out, *inverses)
        return tuple(out)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        count = len(ctx.sides)
        out, inverses = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        into = out[0].new_zeros(ctx.shapes[0]), out[0].new_zeros(ctx.shapes[1])
        for side, gradient, *vectors in zip(ctx.sides, gradients, out, inverses, strict=True):
            train_words.grams_back(gradient, side, (vectors[0], vectors[1]), into)
        return *into, None, None


Gradients = tuple[Tensor | None, ...]


def feed(x: Tensor, weights: Weights, kind: NormKind) -> Tensor:
    """Return norm(x + W2 relu(W1 x + b1) + b2): (t, d) -> (t, d); W1 is inward, W2 outward."""
    return cast(Tensor, _HalfLayer.apply(x, *weights, kind, None))  # type: ignore[no-untyped-call]  # torch's


def attend(x: Tensor, weights: Weights, kind: NormKind, head: Head) -> Tensor:
    """Return norm(x + attention of every row of tokens over itself): (t, d) -> (t, d)."""
    return cast(Tensor, _HalfLayer.apply(x, *weights, kind, head))  # type: ignore[no-untyped-call]  # torch's


def _sides(gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a product's weight and bias: (t, m), (t, d) -> (m, d), (m,)."""
    return to_weight(gradient, x), gradient.sum(0)


class _HalfLayer(torch.autograd.Function):
    """A residual and a norm around two products; between them attention or, without a head, ReLU."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401 - torch's
        weights, kind, head = Weights(*rest[:6]), rest[6], rest[7]
        inner = multiply(x, weights.inward, weights.inward_bias, "relu" if head is None else "none")
        heard, how = (inner, None) if head is None else train.attend(inner, head)
        total = multiply(heard, weights.outward, weights.outward_bias).add_(x)
        out, stats = train.norm(total, weights.gain, weights.shift, kind)
        ends, ctx.cut = (None, None) if head is None else (head.ends, head[1:])
        ctx.save_for_backward(
            x, inner, heard, how, total, stats, weights.inward, weights.outward, weights.gain, ends
        )
        ctx.kind = kind
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:  # noqa: ANN401
        x, inner, heard, how, total, stats, inward, outward, gain, ends = ctx.saved_tensors
        to_total, to_gain, to_shift = train.norm_back(gradient, total, gain, stats, kind=ctx.kind)
        to_heard = multiply(to_total, outward.T)
        if ctx.cut is None:
            to_inner = torch.ops.aten.threshold_backward(to_heard, inner, 0)
        else:
            to_inner = train.attend_back(to_heard, inner, Head(ends, *ctx.cut), heard, stats=how)
        to_x = multiply(to_inner, inward.T).add_(to_total)
        return to_x, *_sides(to_inner, x), *_sides(to_total, heard), to_gain, to_shift, None, None
