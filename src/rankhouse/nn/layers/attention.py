"""Attention over rows that lie end to end: only neighbours of one length are seen as a rectangle.

How wide a row's rectangle is depends on its own length only, and so do all bits of its result: products have
the same bits in one shape only, so rows of like length are not padded to a common one, which is slower too.

Scores are kept in base-2 units where that is quicker: softmax(s) = 2^(s log2 e) / sum, the factor log2 e and
1 / sqrt(d) being multiplied into the query weights beforehand. Without the usual subtraction of the row's
largest score this can overflow; the row sums tell, and such a row is computed again the long way.
Shapes: n rows, t tokens of all rows together, h heads, d width of a head.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from itertools import groupby
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn.compute import Compute
from rankhouse.nn.cpu import infer

Bias = Callable[["Group"], Tensor]
"""The (1, h, length, length) numbers added to a group's scores."""

_SAFE = 2.0**-100  # a row sum below this has lost digits to underflow


@dataclass(frozen=True)
class Group:
    """Neighbouring rows of one length.

    Attributes:
        start: Their first token.
        rows: How many they are.
        length: Tokens of each.
    """

    start: int
    rows: int
    length: int

    @property
    def tokens(self) -> int:
        """How many they have together."""
        return self.rows * self.length

    def rectangle(self, x: Tensor) -> Tensor:
        """See this group's tokens of (t, w) as (rows, length, w)."""
        return x[self.start : self.start + self.tokens].view(self.rows, self.length, x.shape[1])

    def put(self, out: Tensor, heads: Tensor) -> None:
        """Write (rows, h, length, d) into this group's tokens of out (t, h * d)."""
        h, d = heads.shape[1], heads.shape[3]
        self.rectangle(out).view(self.rows, self.length, h, d).copy_(heads.transpose(1, 2))


def group(lengths: Tensor) -> list[Group]:
    """See rows of lengths (n,) as rectangles; sorted rows give the fewest."""
    groups, start = [], 0
    for length, rows in groupby(lengths.tolist()):
        groups.append(Group(start, len(list(rows)), length))
        start += groups[-1].tokens
    return groups


@dataclass(frozen=True)
class RowLayout:
    """How the rows of a batch lie end to end: ``lengths`` (n,) int64, tokens of each."""

    lengths: Tensor
    compute: Compute

    @cached_property
    def ends(self) -> Tensor:
        """(n + 1,) int64: row i begins at ``ends[i]`` and ends before ``ends[i + 1]``."""
        return torch.cat([self.lengths.new_zeros(1), self.lengths.cumsum(0)])

    @cached_property
    def groups(self) -> list[Group]:
        """The rows as rectangles."""
        return group(self.lengths)


class SelfAttention:
    """Softmax attention of every row over itself, in rectangles, as suits device and precision."""

    def __init__(self, heads: int, compute: Compute) -> None:
        self.heads, self._compute = heads, compute
        self._base2 = compute.device.type == "cpu" and compute.precision != "fp32"
        self.fold = math.log2(math.e) if self._base2 else 1.0

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Bias | None = None) -> Tensor:
        """Attend: (t, 3 * h * d), queries, keys, values side by side -> (t, h * d)."""
        if qkv.is_cuda and bias is None and qkv.dtype is torch.bfloat16 and (flash := _varlen()) is not None:
            return self._flash(qkv, layout, flash)
        out = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        for g in layout.groups:
            parts = g.rectangle(qkv).view(g.rows, g.length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            added = bias(g) if bias is not None else None
            if qkv.is_cuda:
                q, k, v = parts.unbind(0)
                heads = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=1.0)
            else:
                heads = self._attend(parts.contiguous(), added)
            g.put(out, heads)
        return out

    def _attend(self, parts: Tensor, added: Tensor | None) -> Tensor:
        """Attend within a rectangle: (3, n, h, l, d), scores plus ``added`` -> (n, h, l, d)."""
        _, n, h, length, d = parts.shape
        q, k, v = parts.view(3, n * h, length, d).unbind(0)
        scores = _scores(q, k, added, h)
        if not self._base2:
            return torch.bmm(torch.softmax(scores, -1), v).view(n, h, length, d)
        weights = scores.exp2_()
        sums = weights.sum(-1, keepdim=True)
        low, high = sums.view(n, -1).aminmax(dim=1)
        heard = torch.bmm(weights, v).mul_(sums.reciprocal_()).view(n, h, length, d)
        unsafe = ~((low > _SAFE) & high.isfinite())
        if unsafe.any():  # such a row only: its neighbours' bits stay what they are
            scores = _scores(q, k, added, h).float().mul_(math.log(2))
            slowly = torch.bmm(torch.softmax(scores, -1).to(v.dtype), v).view(n, h, length, d)
            heard = torch.where(unsafe.view(n, 1, 1, 1), slowly, heard)
        return heard

    def _flash(self, qkv: Tensor, layout: RowLayout, flash: Callable[..., Tensor]) -> Tensor:
        """Attend with CUDA's kernel for rows of any length; no rectangles at all."""
        ends, longest = layout.ends.to(qkv.device, torch.int32), int(layout.lengths.max())
        q, k, v = qkv.view(len(qkv), 3, self.heads, -1).unbind(1)
        return flash(q, k, v, ends, ends, longest, longest, scale=1.0).reshape(len(qkv), -1)


class FusedAttention:
    """The same by the compiled loops; needs no rectangles."""

    def __init__(self, heads: int) -> None:
        self.heads, self.fold = heads, math.log2(math.e)

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Tensor | None = None) -> Tensor:
        """Attend: (t, 3 * h * d) -> (t, h * d); bias as ``infer.attend`` takes it."""
        return infer.attend(qkv, layout.ends, self.heads, bias)


class Attention(Protocol):
    """Softmax attention of every row over itself; with a bias of its own kind, see ``t5.RelativeBias``.

    Attributes:
        fold: What query weights (and added biases) must be multiplied by, besides 1 / sqrt(d).
    """

    fold: float

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Any = None) -> Tensor:  # noqa: ANN401  # Bias, or a table
        """Attend: (t, 3 * h * d) -> (t, h * d)."""
        ...


def attention(heads: int, d: int, compute: Compute) -> Attention:
    """Make the quickest attention of ``heads`` heads of width ``d`` there is."""
    return FusedAttention(heads) if infer.fits(compute, d) else SelfAttention(heads, compute)


def attend_once(queries: Tensor, x: Tensor, layout: RowLayout) -> Tensor:
    """Let h queries a row read the row: softmax(queries · x) weighted sums of x, (n, h, w).

    Keys and values are x itself: a single query can take the key projection on its own side, and a single
    result the value projection, which costs a row what otherwise each of its tokens costs.
    """
    if infer.fits(layout.compute, x.shape[1] // 2):
        return infer.attend_once(queries, x, layout.ends)
    out, first = torch.empty_like(queries), 0
    for g in layout.groups:
        rows = slice(first, first + g.rows)
        rectangle = g.rectangle(x)
        scores = torch.bmm(queries[rows], rectangle.transpose(1, 2)).float()
        out[rows] = torch.bmm(torch.softmax(scores, -1).to(x.dtype), rectangle)
        first += g.rows
    return out


def _scores(q: Tensor, k: Tensor, added: Tensor | None, heads: int) -> Tensor:
    """Return q kᵀ + added, (n * h, l, l)."""
    scores = torch.bmm(q, k.transpose(1, 2))
    if added is not None:
        scores.view(-1, heads, *scores.shape[1:]).add_(added)
    return scores


def _varlen() -> Callable[..., Tensor] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415  # newer PyTorch only
    except ImportError:
        return None
    return cast("Callable[..., Tensor]", varlen_attn)
