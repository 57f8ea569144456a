"""Training's operations on words by compiled loops, with gradients: match, pool, sweep, grams.

What can use them is told by ``learn.fits``; the same stands in PyTorch in kernels.py, convolve.py and
Conv-KNRM.
Shapes: n texts, q and p places, d width, k kernels or filter length, f filters, m n-gram lengths, u words.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankhouse.nn.cpu.train import check_lengths, check_rows, rounded, run
from rankhouse.nn.layers.linear import multiply

_CHUNK_ROWS = 2048  # of products that are made at once

KernelPair = Sequence[tuple[float, ...]]
"""Centres and widths."""


class Rows(NamedTuple):
    """One side's texts.

    Attributes:
        at: (n, p) int64 rows of words.
        lengths: (n,) int64, how many of them count.
    """

    at: Tensor
    lengths: Tensor


def match(words: Tensor, query: Rows, passage: Rows) -> Tensor:
    """Return all products (n, q, p) of the words of pairs, zeros beyond their ends, with gradients.

    Args:
        words: (u, d).
        query: Of n texts.
        passage: Likewise.
    """
    sides = tuple(Rows(side.at.contiguous(), side.lengths) for side in (query, passage))
    for side in sides:
        check_rows(side.at, side.lengths, len(words))
    return cast(Tensor, _Match.apply(words.contiguous(), *sides))  # type: ignore[no-untyped-call]  # torch's


class _Match(torch.autograd.Function):
    """Rows are read where they stand, and never copied together."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, query: Rows, passage: Rows) -> Tensor:  # noqa: ANN401 - torch's context
        (n, q), p = query.at.shape, passage.at.shape[1]
        out = words.new_empty(n, q, p)
        given = words, query.at, passage.at, query.lengths, passage.lengths
        run("match", False, *given, n, q, p, words.shape[1], out, 0, 0)
        ctx.save_for_backward(words, *query, *passage)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        words, asked, query_lengths, said, lengths = ctx.saved_tensors
        (n, q, p), gradient, to_words = gradient.shape, gradient.contiguous(), torch.zeros_like(words)
        given = words, asked, said, query_lengths, lengths
        run("match", True, *given, n, q, p, words.shape[1], 0, gradient, to_words)
        return to_words, None, None


def pool(match: Tensor, lengths: Tensor, kernels: KernelPair) -> Tensor:
    """Sum kernels over the first ``lengths`` places of rows: (n, q, p), (n,) -> (n, q, k), with gradients.

    Args:
        match: (n, q, p) similarities.
        lengths: (n,) int64.
        kernels: Centres and widths.
    """
    return cast(Tensor, _Pool.apply(match.contiguous(), lengths, kernels))  # type: ignore[no-untyped-call]  # torch's


@lru_cache(maxsize=16)
def _constants(kernels: KernelPair) -> tuple[Tensor, Tensor]:
    centres, widths = kernels
    scales = [-0.5 * math.log2(math.e) / width**2 for width in widths]
    with torch.inference_mode(False):  # a validation may be the first to ask, and training saves them
        return torch.tensor(centres), torch.tensor(scales)


class _Pool(torch.autograd.Function):
    """Remembers the similarities only; the kernels are computed again going back."""

    @staticmethod
    def forward(ctx: Any, match: Tensor, lengths: Tensor, kernels: Any) -> Tensor:  # noqa: ANN401 - torch's context
        n, q, p = match.shape
        check_lengths(lengths, n, p)
        constants = _constants(kernels)
        counts = match.new_empty(n, q, len(constants[0]))
        run("pool",
            False, match, lengths, n, q, p, *constants, counts.shape[2], counts, 0, 0
        )  # fmt: skip
        ctx.save_for_backward(match, lengths, *constants)
        return counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        match, lengths, *constants = ctx.saved_tensors
        n, q, p = match.shape
        gradient, back = gradient.contiguous(), torch.empty_like(match)
        run("pool",
            True, match, lengths, n, q, p, *constants, gradient.shape[2], 0, gradient, back
        )  # fmt: skip
        return back, None, None


class Texts(NamedTuple):
    """What is swept over.

    Attributes:
        at: (n, p) int64 rows of words.
        lengths: (n,) int64, how many of them count.
        left: (n,) int64, the row of a word that every word of the text is multiplied by; None for none.
    """

    at: Tensor
    lengths: Tensor
    left: Tensor | None = None


def sweep(words: Tensor, weight: Tensor, texts: Texts, scales: Tensor | None = None) -> Tensor:
    """Convolve texts and take the maximum over their true places, with gradients: (n, s, f).

    Args:
        words: (u, d).
        weight: (f, k, d).
        texts: Of n texts; with ``left``, no scales.
        scales: (n, s, p) what each word is multiplied by in each of s sweeps; None for one sweep without.
    """
    n, sweeps = len(texts.at), 1 if scales is None else scales.shape[1]
    texts = texts._replace(at=texts.at.contiguous())
    check_rows(texts.at, texts.lengths, len(words))
    best = _Sweep.apply(words.contiguous(), weight, texts, None if scales is None else scales.contiguous())  # type: ignore[no-untyped-call]  # torch's
    return cast(Tensor, best).view(n, sweeps, len(weight))


class _Sweep(torch.autograd.Function):
    """Remembers which place won; going back, only the words of winning places are touched."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, weight: Tensor, texts: Texts, scales: Tensor | None) -> Tensor:  # noqa: ANN401 - torch's context
        f, k, d = weight.shape
        n, p = texts.at.shape
        sweeps = n if scales is None else n * scales.shape[1]
        flat = weight.permute(1, 0, 2).reshape(k * f, d)
        best = words.new_empty(sweeps, f)
        winners = torch.empty(sweeps, f, dtype=torch.int32)
        if texts.left is None:
            products = multiply(words, flat)
            run(
                "sweep", products, texts.at, texts.lengths, scales, sweeps, sweeps // max(1, n), p, k, f,
                best, winners,
            )  # fmt: skip
        else:
            _meet(words, flat, texts, k, (best, winners))
        ctx.save_for_backward(words, weight, texts.at, texts.lengths, texts.left, scales, winners)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None, Tensor | None]:  # noqa: ANN401
        words, weight, index, lengths, left, scales, winners = ctx.saved_tensors
        f, k, d = weight.shape
        sweeps, (n, p) = len(winners), index.shape
        gradient, weight = gradient.contiguous(), weight.contiguous()
        to_words, to_weight = torch.zeros_like(words), torch.zeros_like(weight)
        to_scales = torch.zeros_like(scales) if ctx.needs_input_grad[3] else None
        run(
            "sweep_back", words, weight, left, index, lengths, scales, sweeps,
            sweeps // max(1, n), p, k, f, d, winners, gradient, to_words, to_weight, to_scales,
        )  # fmt: skip
        return to_words, to_weight, None, to_scales


def _meet(words: Tensor, flat: Tensor, texts: Texts, k: int, into: tuple[Tensor, Tensor]) -> None:
    """Sweep texts whose words are multiplied by a word of their own, some at a time.

    Texts of the same factor stand beside each other, and each distinct pair of words is multiplied once.
    """
    left = cast(Tensor, texts.left)
    (n, p), u = texts.at.shape, len(words)
    order = torch.argsort(left, stable=True)
    step = max(1, _CHUNK_ROWS // max(1, p))
    for start in range(0, n, step):
        chosen = order[start : start + step]
        factors, lengths = left[chosen], texts.lengths[chosen]
        pairs, at = torch.unique(factors[:, None] * u + texts.at[chosen], return_inverse=True)
        at = at.contiguous()
        pairs = torch.nn.functional.pad(pairs, (0, rounded(len(pairs)) - len(pairs)))
        read = words.index_select(0, torch.div(pairs, u, rounding_mode="floor"))
        products = multiply(read.mul_(words.index_select(0, pairs % u)), flat)
        best, winners = (torch.empty(len(chosen), len(flat) // k, dtype=each.dtype) for each in into)
        run(
            "sweep", products, at, lengths, None, len(chosen), 1, p, k, len(flat) // k,
            best, winners,
        )  # fmt: skip
        for each, part in zip(into, (best, winners), strict=True):
            each[chosen] = part


def grams(products: Tensor, bias: Tensor, sides: tuple[Rows, ...], eps: float) -> tuple[Tensor, ...]:
    """Make the unit vectors of all n-grams of texts, with gradients: for each side (n, m, p, f).

    Args:
        products: (u, m (m + 1) / 2, f): a word times each filter row, those of length 1, 2, ... m in turn.
        bias: (m, f).
        sides: Texts.
        eps: Added to a vector's length before dividing.
    """
    sides = tuple(Rows(side.at.contiguous(), side.lengths) for side in sides)
    for side in sides:
        check_rows(side.at, side.lengths, len(products))
    return cast("tuple[Tensor, ...]", _Grams.apply(products.contiguous(), bias.contiguous(), sides, eps))  # type: ignore[no-untyped-call]  # torch's


class _Grams(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any,  # noqa: ANN401 - torch's context
        products: Tensor,
        bias: Tensor,
        sides: tuple[Rows, ...],
        eps: float,
    ) -> tuple[Tensor, ...]:
        m, f = bias.shape
        made, inverses = [], []
        for index, lengths in sides:
            n, p = index.shape
            out, inverse = products.new_empty(n, m, p, f), products.new_empty(n, m, p)
            run(
                "grams", False, products, index, lengths, bias, n, p, m, f, eps,
                out, inverse, 0, 0, 0,
            )  # fmt: skip
            made.append(out)
            inverses.append(inverse)
        ctx.sides, ctx.shapes = sides, (products.shape, bias.shape)
        ctx.save_for_backward(*made, *inverses)
        return tuple(made)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, Tensor, None, None]:  # noqa: ANN401
        count = len(ctx.sides)
        made, inverses = ctx.saved_tensors[:count], ctx.saved_tensors[count:]
        to_products, to_bias = (made[0].new_zeros(shape) for shape in ctx.shapes)
        for (index, lengths), out, inverse, gradient in zip(
            ctx.sides, made, inverses, gradients, strict=True
        ):
            n, m, p, f = out.shape
            wanted = gradient.contiguous()
            run(
                "grams", True, 0, index, lengths, 0, n, p, m, f, 0.0,
                out, inverse, wanted, to_products, to_bias,
            )  # fmt: skip
        return to_products, to_bias, None, None
