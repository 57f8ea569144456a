"""The compiled loops of a training step: what can use them, and the calls, forward and back.

``_learn.c`` is optional and made for x86 processors with AVX512, in float32; everywhere else the modules that
call this one compute the same in PyTorch (kernels.py, convolve.py, encoder.py, models/conv_knrm.py).
Shapes: n texts, t tokens, q and p places, d width, h heads, k kernels or filter length, f filters, u words.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankhouse.nn.linear import multiplies, multiply

try:
    from rankhouse.nn import _learn
except ImportError:  # not compiled on this machine
    SUPPORTED = False
else:
    SUPPORTED = _learn.supported()

_DEEPEST = 64  # columns of a head
_CHUNK_ROWS = 2048  # of products that are made at once; what is less is rounded up to multiples of a part
_PART_ROWS = 256


def fits(*tensors: Tensor) -> bool:
    """Tell whether the compiled loops serve these tensors now: with gradients, float32, on the processor."""
    return SUPPORTED and torch.is_grad_enabled() and multiplies(*tensors)


def rounded(rows: int) -> int:
    """Give the next multiple of 256: products are laid out anew for every number of rows they meet."""
    return -(-rows // _PART_ROWS) * _PART_ROWS


class Head(NamedTuple):
    """How attention is cut.

    Attributes:
        ends: (n + 1,) int64, where rows begin and end in t.
        heads: h.
        scale: What products of queries and keys are multiplied by.
    """

    ends: Tensor
    heads: int
    scale: float


def attend(qkv: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    """Softmax attention of rows over themselves, without gradients.

    Args:
        qkv: (t, 3 * h * d); tokens behind the last row hear nothing and give zeros.
        head: How it is cut.

    Returns:
        (t, h * d), and (h, 2, t) what :func:`attend_back` needs.
    """
    ends, heads, scale = head
    tokens, width = len(qkv), qkv.shape[1] // 3
    _check(qkv, tokens, 3 * width)
    last = int(ends[-1])
    if ends.dtype is not torch.int64 or not ends.is_contiguous() or last > tokens or width > heads * _DEEPEST:
        raise ValueError(f"{heads} heads of {width} columns, rows end at {last}, there are {tokens} tokens")
    out, stats = qkv.new_empty(tokens, width), qkv.new_empty(heads, 2, tokens)
    out[last:] = 0
    _learn.attend(
        False, *_at(qkv, ends), len(ends) - 1, heads, width // heads, tokens, scale, *_at(out, stats), 0, 0
    )  # fmt: skip
    return out, stats


def attend_back(gradient: Tensor, qkv: Tensor, head: Head, out: Tensor, stats: Tensor) -> Tensor:
    """Turn the gradient of ``out`` (t, h * d) into that of ``qkv``."""
    ends, heads, scale = head
    tokens, width = out.shape
    gradient = gradient.contiguous()
    _check(gradient, tokens, width)
    back = torch.empty_like(qkv)
    back[int(ends[-1]) :] = 0
    _learn.attend(
        True, *_at(qkv, ends), len(ends) - 1, heads, width // heads, tokens, scale,
        *_at(out, stats, gradient, back),
    )  # fmt: skip
    return back


class NormKind(NamedTuple):
    """A layer norm's small constant, and whether it stands outside the root."""

    eps: float
    outer: bool


def norm(x: Tensor, gain: Tensor, shift: Tensor, kind: NormKind) -> tuple[Tensor, Tensor]:
    """Layer norm without gradients: (t, d), and (2, t) what :func:`norm_back` needs."""
    rows, width = x.shape
    _check(x, rows, width)
    _check(gain[None], 1, width)
    _check(shift[None], 1, width)
    out, stats = torch.empty_like(x), x.new_empty(2, rows)
    _learn.norm(False, *_at(x, gain, shift), rows, width, kind.outer, kind.eps, *_at(out, stats), 0, 0, 0, 0)
    return out, stats


def norm_back(
    gradient: Tensor, x: Tensor, gain: Tensor, stats: Tensor, kind: NormKind
) -> tuple[Tensor, Tensor, Tensor]:
    """Give the gradients of x, gain and shift; with eps outside the root, its part of x's is left out."""
    rows, width = x.shape
    gradient = gradient.contiguous()
    _check(gradient, rows, width)
    to = torch.empty_like(x), torch.empty_like(gain), torch.empty_like(gain)
    _learn.norm(
        True, *_at(x, gain), 0, rows, width, kind.outer, kind.eps, 0, *_at(stats, gradient, *to)
    )  # fmt: skip
    return to


class Rows(NamedTuple):
    """One side's texts.

    Attributes:
        index: (n, p) int64 rows of words.
        lengths: (n,) int64, how many of them count.
    """

    index: Tensor
    lengths: Tensor


def match(words: Tensor, query: Rows, passage: Rows) -> Tensor:
    """Give all products (n, q, p) of the words of pairs, zeros beyond their ends, with gradients.

    Args:
        words: (u, d).
        query: Of n texts.
        passage: Likewise.
    """
    sides = tuple(Rows(side.index.contiguous(), side.lengths) for side in (query, passage))
    for side in sides:
        _check_rows(side.index, side.lengths, len(words))
    return cast(Tensor, _Match.apply(words.contiguous(), *sides))  # type: ignore[no-untyped-call]  # torch's


class _Match(torch.autograd.Function):
    """Rows are read where they stand, and never copied together."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, query: Rows, passage: Rows) -> Tensor:  # noqa: ANN401 - torch's context
        (n, q), p = query.index.shape, passage.index.shape[1]
        out = words.new_empty(n, q, p)
        at = _at(words, query.index, passage.index, query.lengths, passage.lengths)
        _learn.match(False, *at, n, q, p, words.shape[1], *_at(out), 0, 0)
        ctx.save_for_backward(words, *query, *passage)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        words, asked, query_lengths, said, lengths = ctx.saved_tensors
        (n, q, p), gradient, to_words = gradient.shape, gradient.contiguous(), torch.zeros_like(words)
        at = _at(words, asked, said, query_lengths, lengths)
        _learn.match(True, *at, n, q, p, words.shape[1], 0, *_at(gradient, to_words))
        return to_words, None, None


def pool(match: Tensor, lengths: Tensor, kernels: tuple[tuple[float, ...], tuple[float, ...]]) -> Tensor:
    """Sum kernels over the first ``lengths`` places of rows: (n, q, p), (n,) -> (n, q, k), with gradients.

    Args:
        match: (n, q, p) similarities.
        lengths: (n,) int64.
        kernels: Centres and widths.
    """
    return cast(Tensor, _Pool.apply(match.contiguous(), lengths, kernels))  # type: ignore[no-untyped-call]  # torch's


@lru_cache(maxsize=16)
def _constants(kernels: tuple[tuple[float, ...], tuple[float, ...]]) -> tuple[Tensor, Tensor]:
    centres, widths = kernels
    return torch.tensor(centres), torch.tensor([-0.5 * math.log2(math.e) / width**2 for width in widths])


class _Pool(torch.autograd.Function):
    """Remembers the similarities only; the kernels are computed again going back."""

    @staticmethod
    def forward(ctx: Any, match: Tensor, lengths: Tensor, kernels: Any) -> Tensor:  # noqa: ANN401 - torch's context
        n, q, p = match.shape
        _check_lengths(lengths, n, p)
        constants = _constants(kernels)
        counts = match.new_empty(n, q, len(constants[0]))
        _learn.pool(
            False, *_at(match, lengths), n, q, p, *_at(*constants), counts.shape[2], *_at(counts), 0, 0
        )  # fmt: skip
        ctx.save_for_backward(match, lengths, *constants)
        return counts

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        match, lengths, *constants = ctx.saved_tensors
        n, q, p = match.shape
        gradient, back = gradient.contiguous(), torch.empty_like(match)
        _learn.pool(
            True, *_at(match, lengths), n, q, p, *_at(*constants), gradient.shape[2], 0, *_at(gradient, back)
        )  # fmt: skip
        return back, None, None


class Texts(NamedTuple):
    """What is swept over.

    Attributes:
        index: (n, p) int64 rows of words.
        lengths: (n,) int64, how many of them count.
        left: (n,) int64, the row of a word that every word of the text is multiplied by; None for none.
    """

    index: Tensor
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
    n, p = texts.index.shape
    sweeps = 1 if scales is None else scales.shape[1]
    texts = texts._replace(index=texts.index.contiguous())
    _check_rows(texts.index, texts.lengths, len(words))
    best = _Sweep.apply(words, weight, texts, None if scales is None else scales.contiguous())  # type: ignore[no-untyped-call]  # torch's
    return cast(Tensor, best).view(n, sweeps, len(weight))


class _Sweep(torch.autograd.Function):
    """Remembers which place won; going back, only the words of winning places are touched."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, weight: Tensor, texts: Texts, scales: Tensor | None) -> Tensor:  # noqa: ANN401 - torch's context
        f, k, d = weight.shape
        n, p = texts.index.shape
        sweeps = n if scales is None else n * scales.shape[1]
        flat = weight.permute(1, 0, 2).reshape(k * f, d)
        best = words.new_empty(sweeps, f)
        winners = torch.empty(sweeps, f, dtype=torch.int32)
        if texts.left is None:
            products = multiply(words, flat)
            _learn.sweep(
                *_at(products, texts.index, texts.lengths, scales), sweeps, sweeps // max(1, n), p, k, f,
                *_at(best, winners),
            )  # fmt: skip
        else:
            _meet(words, flat, texts, k, (best, winners))
        ctx.save_for_backward(words, weight, texts.index, texts.lengths, texts.left, scales, winners)
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
        _learn.sweep_back(
            *_at(words, weight, left, index, lengths, scales), sweeps,
            sweeps // max(1, n), p, k, f, d, *_at(winners, gradient, to_words, to_weight, to_scales),
        )  # fmt: skip
        return to_words, to_weight, None, to_scales


def _meet(words: Tensor, flat: Tensor, texts: Texts, k: int, into: tuple[Tensor, Tensor]) -> None:
    """Sweep texts whose words are multiplied by a word of their own, some at a time.

    Texts of the same factor stand beside each other, and each distinct pair of words is multiplied once.
    """
    left = cast(Tensor, texts.left)
    (n, p), u = texts.index.shape, len(words)
    order = torch.argsort(left, stable=True)
    step = max(1, _CHUNK_ROWS // max(1, p))
    for start in range(0, n, step):
        chosen = order[start : start + step]
        factors, lengths = left[chosen], texts.lengths[chosen]
        pairs, at = torch.unique(factors[:, None] * u + texts.index[chosen], return_inverse=True)
        at = at.contiguous()
        pairs = torch.nn.functional.pad(pairs, (0, rounded(len(pairs)) - len(pairs)))
        read = words.index_select(0, torch.div(pairs, u, rounding_mode="floor"))
        products = multiply(read.mul_(words.index_select(0, pairs % u)), flat)
        best, winners = (torch.empty(len(chosen), len(flat) // k, dtype=each.dtype) for each in into)
        _learn.sweep(
            *_at(products, at, lengths, None), len(chosen), 1, p, k, len(flat) // k,
            *_at(best, winners),
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
    sides = tuple(Rows(side.index.contiguous(), side.lengths) for side in sides)
    for side in sides:
        _check_rows(side.index, side.lengths, len(products))
    return cast("tuple[Tensor, ...]", _Grams.apply(products.contiguous(), bias.contiguous(), sides, eps))  # type: ignore[no-untyped-call]  # torch's


class _Grams(torch.autograd.Function):
    @staticmethod
    def forward(  # noqa: D102 - torch's
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
            _learn.grams(
                False, *_at(products, index, lengths, bias), n, p, m, f, eps,
                *_at(out, inverse), 0, 0, 0,
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
        for (index, lengths), out, inverse, gradient in zip(ctx.sides, made, inverses, gradients, strict=True):
            n, m, p, f = out.shape
            wanted = gradient.contiguous()
            _learn.grams(
                True, 0, *_at(index, lengths), 0, n, p, m, f, 0.0,
                *_at(out, inverse, wanted, to_products, to_bias),
            )  # fmt: skip
        return to_products, to_bias, None, None


def _at(*tensors: Tensor | None) -> list[int]:
    """Give addresses, 0 of what is not there. The tensors must be contiguous and live on."""
    return [0 if x is None else x.data_ptr() for x in tensors]


def _check(x: Tensor, rows: int, width: int) -> None:
    """Refuse what the compiled loops would misread: they see addresses only."""
    if x.dtype is not torch.float32 or x.shape != (rows, width) or not x.is_contiguous() or x.is_cuda:
        raise ValueError(
            f"({rows}, {width}) float32 were expected, {tuple(x.shape)} {x.dtype} came"
        )


def _check_lengths(lengths: Tensor, n: int, most: int) -> None:
    if lengths.dtype is not torch.int64 or lengths.shape != (n,) or not lengths.is_contiguous():
        raise ValueError(f"{n} lengths of int64 were expected, {tuple(lengths.shape)} {lengths.dtype} came")
    if n and int(lengths.max()) > most:
        raise ValueError(f"a length of {int(lengths.max())} in rows of {most}")


def _check_rows(index: Tensor, lengths: Tensor, rows: int) -> None:
    _check_lengths(lengths, *index.shape)
    low, high = index.aminmax() if index.numel() else (0, 0)
    if index.dtype is not torch.int64 or low < 0 or high >= rows:
        raise ValueError(f"rows {int(low)} to {int(high)} of {rows}, as {index.dtype}; int64 were expected")
