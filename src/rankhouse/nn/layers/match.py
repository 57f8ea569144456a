"""Match matrices and kernel pooling: soft counts of how often each degree of similarity occurs.

Papers: Xiong et al., SIGIR 2017 (KNRM); Hofstätter et al., TREC 2019 (TK, eq. 4-6). The tensor of all kernels
of all matches, (n, q, p, k), is never made: forward and backward walk over the kernels with one buffer of
the size of the match matrix. Shapes: n pairs, q query tokens, p passage tokens, d width, k kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rankhouse.nn.cpu import train
from rankhouse.nn.cpu.machine import multiplies
from rankhouse.nn.cpu.train_words import Texts
from rankhouse.nn.layers import compiled_words
from rankhouse.nn.layers.linear import multiply, products, query_sums, row_sums

NORM_EPS = 1e-13
"""Added to a vector's length before dividing; a zero vector then matches nothing, with similarity 0."""

COUNT_FLOOR = 1e-10
"""Least soft count whose logarithm is taken."""

_FAR = 1e4
_NOTHING = -80.0
_BLOCK = 1024


class Kernels(NamedTuple):
    """Gaussian kernels over similarity: ``centres`` and ``widths``, k numbers each."""

    centres: tuple[float, ...]
    widths: tuple[float, ...]

    def __len__(self) -> int:
        return len(self.centres)

    @classmethod
    def usual(cls, first_width: float = 0.1) -> Kernels:
        """Return the 11 kernels of the TK authors' code: 1, .9, .7 ... -.9, width 0.1 but for the first."""
        centres = (1.0, 0.9, 0.7, 0.5, 0.3, 0.1, -0.1, -0.3, -0.5, -0.7, -0.9)
        return cls(centres, (first_width, *(0.1,) * 10))


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors (..., d) to length 1; a zero vector stays zero."""
    if torch.is_grad_enabled() and vectors.requires_grad:
        return cast(Tensor, _Unit.apply(vectors))  # type: ignore[no-untyped-call]  # torch's
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / (length + NORM_EPS)


class _Unit(torch.autograd.Function):
    """Going back takes three walks over the vectors, where the parts on their own take eight."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        inverse = (torch.linalg.vector_norm(vectors, dim=-1, keepdim=True) + NORM_EPS).reciprocal_()
        scaled: Tensor = vectors * inverse
        ctx.save_for_backward(scaled, inverse)
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        scaled, inverse = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, scaled).unsqueeze(-1)
        across: Tensor = torch.addcmul(gradient, scaled, along, value=-1).mul_(inverse)
        return across


def dots(query: Tensor, passage: Tensor) -> Tensor:
    """Return all products (n, q, p) of query (n, q, d) and passage (n, p, d)."""
    if not torch.is_grad_enabled() and multiplies(query, passage):
        return _dots_by_query(query, passage)
    return cast(Tensor, _Dots.apply(query, passage))  # type: ignore[no-untyped-call]  # torch's


def _dots_by_query(query: Tensor, passage: Tensor) -> Tensor:
    """Multiply all passages of neighbours with one query at once; each number has the same bits anyhow."""
    n, q, d = query.shape
    if train.fits(query):
        table = torch.cat([query.reshape(-1, d), passage.reshape(-1, d)])
        asked, said = torch.split(torch.arange(len(table)), [n * q, len(table) - n * q])
        return row_dots(table, asked.view(n, q), said.view(n, -1))
    out = query.new_empty(n, passage.shape[1], q)
    other = (query[1:] != query[:-1]).flatten(1).any(1).nonzero().flatten() + 1
    for start, end in pairwise([0, *other.tolist(), n]):
        said = multiply(passage[start:end].reshape(-1, d), query[start].contiguous())
        out[start:end] = said.view(end - start, -1, q)
    return out.transpose(1, 2).contiguous()


class _Dots(torch.autograd.Function):
    """Gradients are made in the layout that they are wanted in; torch's own are copied into it."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, passage: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(query, passage)
        match: Tensor = query @ passage.transpose(1, 2)
        return match

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        query, passage = ctx.saved_tensors
        gradient = gradient.to(query.dtype)
        return gradient @ passage, gradient.transpose(1, 2) @ query


def cosines(query: Tensor, passage: Tensor) -> Tensor:
    """Return the match matrix (n, q, p) of cosines of query (n, q, d) and passage (n, p, d); TK's eq. 4.

    Products are divided by both lengths afterwards, which leaves the wide side (n, p, d) untouched.
    """
    if torch.is_grad_enabled() and (query.requires_grad or passage.requires_grad):
        return cast(Tensor, _Cosines.apply(query, passage))  # type: ignore[no-untyped-call]  # torch's
    return _over_lengths(dots(query, passage), query, passage)[0]


def _over_lengths(match: Tensor, query: Tensor, passage: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Divide products (n, q, p) by lengths: the matrix, and one over all lengths, (n, q, 1) and (n, 1, p)."""
    asked = (torch.linalg.vector_norm(query, dim=2) + NORM_EPS).reciprocal_().unsqueeze(2)
    said = (torch.linalg.vector_norm(passage, dim=2) + NORM_EPS).reciprocal_().unsqueeze(1)
    return match * asked * said, asked, said


class _Cosines(torch.autograd.Function):
    """Going back, each side is walked over twice: a product, and what lies along the vector itself."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, passage: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        with torch.autocast(query.device.type, enabled=False):
            query32, passage32 = query.float(), passage.float()
            match, asked, said = _over_lengths(query32 @ passage32.transpose(1, 2), query32, passage32)
        ctx.save_for_backward(query, passage, match, asked, said)
        return match

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        query, passage, match, asked, said = ctx.saved_tensors
        query, passage = query.float(), passage.float()
        products = gradient * asked * said
        shared = gradient * match
        to_query, to_passage = products @ passage, products.transpose(1, 2) @ query
        to_query.addcmul_(query, shared.sum(2, keepdim=True) * asked.square(), value=-1)
        to_passage.addcmul_(passage, (shared.sum(1, keepdim=True) * said.square()).transpose(1, 2), value=-1)
        return to_query, to_passage


def word_cosines(
    words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the match matrix (n, q, p) of plain word vectors.

    Reranking meets the same words again and again: every distinct query word is matched with every distinct
    passage word once, and the matrix is looked up; query by query where the table would be too large.

    Args:
        words: Word vectors (v, d); row 0 (padding) is zero.
        query: (n, q) int64 word numbers.
        passage: (n, p) int64 word numbers.
        dtype: Number type to compute in.
    """
    if torch.is_grad_enabled():
        return _learned_cosines(words, query, passage, dtype)
    asked, query_at = torch.unique(query, return_inverse=True)
    said, passage_at = torch.unique(passage, return_inverse=True)
    if len(asked) * len(said) > 2 * query.shape[1] * passage.numel():
        return _cosines_by_query(words, query, passage, dtype)
    known = products(unit(words(said).to(dtype)), unit(words(asked).to(dtype))).T
    return known[query_at[:, :, None], passage_at[:, None, :]]


def _cosines_by_query(words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the same with a table for each distinct query: never more products than pairs of words."""
    queries, which = torch.unique(query, dim=0, return_inverse=True)
    out = words.weight.new_empty(*query.shape, passage.shape[1], dtype=dtype)
    for i in range(len(queries)):
        at = (which == i).nonzero().flatten()
        out[at] = word_cosines(words, query[at], passage[at], dtype)
    return out


def _learned_cosines(words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype) -> Tensor:
    """In training: each distinct word is scaled to length 1 once, and so is its gradient."""
    distinct, at = torch.unique(torch.cat([query.flatten(), passage.flatten()]), return_inverse=True)
    table = unit(words(distinct).to(dtype))
    if train.fits(table):
        parts = at.split([query.numel(), passage.numel()])
        return row_dots(
            table, *(rows.view(ids.shape) for rows, ids in zip(parts, (query, passage), strict=True))
        )
    # index_select and not table[...]: going back, it adds up rows several times as fast
    asked, said = (
        table.index_select(0, rows).view(*ids.shape, -1)
        for rows, ids in zip(at.split([query.numel(), passage.numel()]), (query, passage), strict=True)
    )
    return dots(asked, said)


def row_dots(table: Tensor, query: Tensor, passage: Tensor) -> Tensor:
    """Return all products (n, q, p) of rows (n, q) and (n, p) of a table (u, d); see ``train.fits``."""
    n, q, p = *query.shape, passage.shape[1]
    return compiled_words.match(table, Texts(query, torch.full((n,), q)), Texts(passage, torch.full((n,), p)))


def soft_counts(match: Tensor, passage_mask: Tensor, kernels: Kernels) -> Tensor:
    """Sum every kernel over the passage: (n, q, k); TK's eq. 5 and 6.

    Args:
        match: (n, q, p) similarities.
        passage_mask: (n, p) bool, true for real tokens; the others count nothing.
        kernels: The k kernels.
    """
    return windowed_counts(match, passage_mask, kernels, (max(1, match.shape[2]),))[0].squeeze(2)


def windowed_counts(
    match: Tensor, passage_mask: Tensor, kernels: Kernels, sizes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Sum every kernel over windows of the passage that do not overlap, for several window sizes at once.

    Args:
        match: (n, q, p) similarities.
        passage_mask: (n, p) bool.
        kernels: The k kernels.
        sizes: Window sizes in tokens; the last window of each may be shorter.

    Returns:
        For each size w a tensor (n, q, ceil(p / w), k).
    """
    far = match.masked_fill(~passage_mask[:, None, :], _FAR)
    n, _, p = far.shape
    if len(sizes) == 1 and sizes[0] >= p and train.fits(far):
        return (compiled_words.pool(far, torch.full((n,), p), tuple(kernels)).unsqueeze(2),)
    if not far.requires_grad:
        return _sums(far, kernels, sizes, row_sums)
    outputs: tuple[Tensor, ...] = _WindowedCounts.apply(far, kernels, tuple(sizes))  # type: ignore[no-untyped-call]  # torch's
    return outputs


def _sums(
    match: Tensor, kernels: Kernels, sizes: Sequence[int], add: Callable[[Tensor], Tensor]
) -> tuple[Tensor, ...]:
    """Walk over the kernels with one buffer (n, q, p padded to the windows); ``add`` sums (..., p)."""
    n, q, p = match.shape
    counts = [match.new_empty(n, q, -(-p // size), len(kernels)) for size in sizes]
    buffer = torch.empty_like(match)
    for k, (centre, width) in enumerate(zip(*kernels, strict=True)):
        _kernel(match, centre, width, buffer)
        for out, size in zip(counts, sizes, strict=True):
            out[..., k] = _window_sums(buffer, size, add)
    return tuple(counts)


def _kernel(match: Tensor, centre: float, width: float, out: Tensor) -> Tensor:
    """Fill ``out`` with exp(-(match - centre)^2 / 2 width^2), eq. 5.

    Values below e^-80 become exact zeros: numbers near the smallest a float can hold make processors
    a hundred times slower, and no count notices them.
    """
    torch.sub(match, centre, out=out)
    out.square_().mul_(-0.5 / width**2)
    return torch.threshold_(out, _NOTHING, -torch.inf).exp_()


def _window_sums(values: Tensor, size: int, add: Callable[[Tensor], Tensor]) -> Tensor:
    """(n, q, p) -> (n, q, ceil(p / size))."""
    p = values.shape[2]
    windows = -(-p // size)
    if windows == 1:
        return add(values).unsqueeze(2)
    whole = add(values[..., : p - p % size].reshape(*values.shape[:2], p // size, size))
    if p % size == 0:
        return whole
    return torch.cat([whole, add(values[..., p - p % size :]).unsqueeze(2)], dim=2)


class _WindowedCounts(torch.autograd.Function):
    """Kernel sums that remember only the match matrix and compute the kernels again going back."""

    @staticmethod
    def forward(ctx: Any, match: Tensor, kernels: Kernels, sizes: tuple[int, ...]) -> tuple[Tensor, ...]:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(match)
        ctx.kernels, ctx.sizes = kernels, sizes
        return _sums(match, kernels, sizes, lambda values: values.sum(-1))

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None, None]:  # noqa: ANN401
        (match,) = ctx.saved_tensors
        p = match.shape[2]
        total, buffer = torch.zeros_like(match), torch.empty_like(match)
        for k, (centre, width) in enumerate(zip(*ctx.kernels, strict=True)):
            _kernel(match, centre, width, buffer)
            buffer.mul_(_spread(gradients, ctx.sizes, k, p))
            total.addcmul_(buffer, match - centre, value=-1 / width**2)
        return total, None, None


def _spread(gradients: Sequence[Tensor], sizes: Sequence[int], k: int, p: int) -> Tensor:
    """Return each passage token the gradient of its windows: (n, q, p), or (n, q, 1) for one whole window."""
    parts = []
    for gradient, size in zip(gradients, sizes, strict=True):
        own = gradient[..., k]
        parts.append(own if own.shape[2] == 1 else own.repeat_interleave(size, dim=2)[..., :p])
    return sum(parts[1:], start=parts[0])


def ragged_counts(
    query: Tensor,
    vectors: NDArray[Any],
    scales: NDArray[np.float32],
    offsets: NDArray[np.int64],
    kernels: Kernels,
) -> Tensor:
    """Sum every kernel over each of n passages stored end to end, for one query: (n, q, k).

    Args:
        query: (q, d) unit vectors.
        vectors: (t, d) unit vectors of all passages' tokens: float32, float16, or int8 with ``scales``.
        scales: (t,) factor of each row of int8 vectors; empty for floats.
        offsets: (n + 1,) where each passage begins; an empty passage counts nothing.
        kernels: The k kernels.
    """
    match = _stored_match(query, torch.from_numpy(vectors), torch.from_numpy(scales))  # (q, t)
    filled = np.flatnonzero(np.diff(offsets))
    counts = torch.zeros(len(offsets) - 1, len(query), len(kernels))
    if not filled.size or not len(query):
        return counts
    sums = np.empty((len(filled), len(query), len(kernels)), np.float32)
    buffer = torch.empty_like(match)
    for k, (centre, width) in enumerate(zip(*kernels, strict=True)):
        values = _kernel(match, centre, width, buffer).numpy()
        sums[:, :, k] = np.add.reduceat(values, offsets[filled], axis=1).T
    counts[torch.from_numpy(filled)] = torch.from_numpy(sums)
    return counts


def _stored_match(query: Tensor, vectors: Tensor, scales: Tensor) -> Tensor:
    """(q, d), (t, d) -> (q, t); other types become float32 a cache-sized block at a time."""
    t, d = vectors.shape
    out = torch.empty(t, len(query))
    if vectors.dtype == torch.float32:
        out = products(vectors, query)
    else:
        block = torch.empty(min(_BLOCK, t), d)
        for start in range(0, t, _BLOCK):
            part = vectors[start : start + _BLOCK]
            out[start : start + len(part)] = products(block[: len(part)].copy_(part), query)
    if len(scales):
        out.mul_(scales[:, None])
    return out.T.contiguous()


def log_counts(counts: Tensor, query_mask: Tensor, base: float | None = None) -> Tensor:
    """Sum the logarithms of soft counts over the query: (n, k); TK's eq. 7.

    Args:
        counts: (n, q, k) soft counts; at least 1e-10 of each is taken.
        query_mask: (n, q) bool.
        base: 2 for TK; None for the natural logarithm (KNRM).
    """
    floored = counts.clamp_min(COUNT_FLOOR)
    logs = floored.log2() if base == 2 else floored.log()
    return query_sums(logs * query_mask.unsqueeze(2))


def shares(values: Tensor, mask: Tensor) -> Tensor:
    """Spread 1 over each query's words by the softmax of values (n, q): (n, q), 0 where mask is false."""
    values = values.masked_fill(~mask, -1e30)
    if torch.is_grad_enabled():
        return values.softmax(1) * mask
    weights = (values - values.amax(1, keepdim=True)).exp() * mask
    return weights / query_sums(weights).clamp_min(1e-30).unsqueeze(1)
