"""Kernel pooling: soft counts of how often each degree of similarity occurs in a match matrix.

Papers: Xiong et al., SIGIR 2017 (KNRM); Hofstätter et al., TREC 2019 (TK, eq. 5-7). The tensor of all kernels
of all matches, (n, q, p, k), is never made: forward and backward walk over the kernels with one buffer of
the size of the match matrix. Shapes: n pairs, q query tokens, p passage tokens, d width, k kernels.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankhouse.nn.cpu import train, train_words
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.compiled import KernelPair
from rankhouse.nn.layers.linear import products, query_sums, row_sums
from rankhouse.nn.machine import workers

COUNT_FLOOR = 1e-10
"""Least soft count whose logarithm is taken."""

_FAR = 1e4
_NOTHING = -80.0
_ROWS = 1024  # vectors that become float32 at once
_SHARED = 8  # words in windows' common divisor from which larger windows are put together quicker
_BLOCK = 16_384  # tokens whose kernels are computed at once without the loops


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


def soft_counts(match: Tensor, passage_mask: Tensor, kernels: Kernels) -> Tensor:
    """Sum every kernel over the passage's true tokens (mask (n, p) bool): (n, q, k); TK's eq. 5 and 6."""
    return windowed_counts(match, passage_mask, kernels, (max(1, match.shape[2]),))[0].squeeze(2)


def windowed_counts(
    match: Tensor, passage_mask: Tensor, kernels: Kernels, sizes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Sum every kernel over windows of the passage that do not overlap, for several window sizes at once.

    For each size w in tokens a tensor (n, q, ceil(p / w), k); the last window may be shorter.
    """
    far = match.masked_fill(~passage_mask[:, None, :], _FAR)
    n, _, p = far.shape
    if len(sizes) == 1 and sizes[0] >= p and train.fits(far):
        return (compiled.pool(far, torch.full((n,), p), tuple(kernels)).unsqueeze(2),)
    if not far.requires_grad:
        return _sums(far, kernels, sizes, row_sums)
    outputs: tuple[Tensor, ...] = _WindowedCounts.apply(far, kernels, tuple(sizes))  # type: ignore[no-untyped-call]  # torch's
    return outputs


def windowed_logs(
    match: Tensor, query_mask: Tensor, passage_mask: Tensor, *, kernels: Kernels, sizes: Sequence[int]
) -> tuple[Tensor, ...]:
    """Sum the natural logarithms of soft counts in windows over the query's true words (mask (n, q) bool).

    For each size w in tokens a tensor (n, ceil(p / w), k); at least 1e-10 of each count is taken.
    """
    if train.fits(match) and math.gcd(*sizes) >= _SHARED:
        lengths = passage_mask.sum(1)
        return compiled.window_logs(
            match, query_mask, lengths, sizes=tuple(sizes), kernels=tuple(kernels), least=COUNT_FLOOR
        )
    true = query_mask[:, :, None, None]
    return tuple(
        query_sums(counts.clamp_min(COUNT_FLOOR).log() * true)
        for counts in windowed_counts(match, passage_mask, kernels, sizes)
    )


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
    # MKL takes four times as long for the exponential of minus infinity as for that of a number.
    torch.threshold_(out, _NOTHING, _NOTHING - 5).exp_()
    return torch.threshold_(out, math.exp(_NOTHING) / 2, 0.0)


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
        vectors: (t, d) unit vectors of all passages' tokens: float32, float16, or int8 with ``scales``.
        scales: (t,) factor of each row of int8 vectors; empty for floats.
        offsets: (n + 1,) where each passage begins; an empty passage counts nothing.
    """
    rows, factors = torch.from_numpy(vectors), torch.from_numpy(scales) if len(scales) else None
    threads = torch.get_num_threads()
    if train.fits(query):
        ends = torch.from_numpy(offsets)
        return compiled.count(query, rows, factors, ends, kernels=tuple(kernels), threads=threads)
    counts = torch.zeros(len(offsets) - 1, len(query), len(kernels))

    def count(part: slice) -> None:
        """Fill in the counts of some passages."""
        begin, end = int(offsets[part.start]), int(offsets[part.stop])
        if begin < end:
            own = rows[begin:end], None if factors is None else factors[begin:end]
            within = torch.from_numpy(offsets[part.start : part.stop + 1] - begin)
            with torch.inference_mode():
                counts[part] = _plain_count(query, *own, within, tuple(kernels))

    parts = list(_parts(offsets[1:], _BLOCK)) if len(query) else []
    with workers(min(len(parts), threads)) as submit:
        for done in [submit(count, part) for part in parts]:
            done.result()
    return counts


def _parts(ends: NDArray[np.int64], size: int) -> Iterator[slice]:
    """Cut passages into parts of about so many tokens."""
    _, firsts = np.unique((ends - 1) // size, return_index=True)
    return (slice(first, last) for first, last in pairwise([*firsts.tolist(), len(ends)]))


def _plain_count(
    query: Tensor, vectors: Tensor, scales: Tensor | None, offsets: Tensor, kernels: KernelPair
) -> Tensor:
    """Compute what :func:`compiled.count` does in float32, a cache-sized block of products at a time."""
    match = query.new_empty(len(query), len(vectors))
    for start in range(0, len(vectors), _ROWS):
        match[:, start : start + _ROWS] = products(vectors[start : start + _ROWS].float(), query).T
    if scales is not None:
        match.mul_(scales)
    filled = np.flatnonzero(offsets.diff())
    sums = np.zeros((len(kernels[0]), len(match), len(offsets) - 1), np.float32)
    buffer = torch.empty_like(match)
    for k, (centre, width) in enumerate(zip(*kernels, strict=True)):
        values = _kernel(match, centre, width, buffer).numpy()
        sums[k, :, filled] = np.add.reduceat(values, offsets.numpy()[filled], axis=1).T
    return torch.from_numpy(sums).permute(2, 1, 0)


def log_counts(counts: Tensor, query_mask: Tensor, base: float | None = None) -> Tensor:
    """Sum the logarithms of soft counts over the query: (n, k); TK's eq. 7.

    Args:
        counts: (n, q, k) soft counts; at least 1e-10 of each is taken.
        base: 2 for TK; None for the natural logarithm (KNRM).
    """
    floored = counts.clamp_min(COUNT_FLOOR)
    logs = floored.log2() if base == 2 else floored.log()
    return query_sums(logs * query_mask.unsqueeze(2))


def weighed(counts: Tensor, log_weights: Tensor, weights: Tensor, lengths: Tensor) -> Tensor:
    """Score soft counts of n passages, b blocks and q words, (n, b, q, k): (n,), without gradients.

    Sums over words: of logarithms (base 2) times ``log_weights``, of counts / (length + 1) times
    ``weights``, (b, k) each; ``lengths`` are (n,).
    """
    if train.fits(counts):
        return train_words.weigh(counts, log_weights, weights, lengths, least=COUNT_FLOOR)
    by_word = counts.transpose(1, 2)
    logs, sums = query_sums(by_word.clamp_min(COUNT_FLOOR).log2()), query_sums(by_word)
    features = torch.cat([logs.flatten(1), sums.flatten(1) / (lengths[:, None] + 1)], 1)
    return products(features, torch.cat([log_weights.flatten(), weights.flatten()])[None])[:, 0]
