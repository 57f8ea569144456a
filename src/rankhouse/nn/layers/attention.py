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
from functools import cached_property, lru_cache
from itertools import groupby
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.cpu import infer, wide
from rankhouse.nn.machine import Compute

Bias = Callable[["Group"], Tensor]
"""The (1, h, length, length) numbers added to a group's scores."""

_SAFE = 2.0**-100  # a row sum below this has lost digits to underflow
_USUAL = 512  # tokens of a row for which a bias by distance is kept ready
_NEVER = -1e5  # added to a score in base 2: the weight is 0
_NEAR = 2**19  # scores that are computed, turned into weights and used before the next ones are
_BLOCKS = 4  # windows that a row must hold for blocks of one to cost less than all scores


@dataclass(frozen=True)
class Group:
    """Neighbouring rows of one length."""

    start: int  # their first token
    rows: int  # how many they are
    length: int  # tokens of each

    @property
    def tokens(self) -> int:
        """Number of tokens of all rows."""
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
    """Layout of a batch's rows, end to end: ``lengths`` (n,) int64, tokens of each."""

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
    """Softmax attention of every row over itself, in rectangles, as suits device and precision.

    Args:
        window: How far behind or before itself a token reads; None: the whole row.
    """

    def __init__(self, heads: int, compute: Compute, window: int | None = None) -> None:
        self.heads, self._compute, self._window = heads, compute, window
        self._base2 = compute.device.type == "cpu" and compute.precision != "fp32"
        self.fold = math.log2(math.e) if self._base2 else 1.0

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Bias | None = None) -> Tensor:
        """Attend: (t, 3 * h * d), queries, keys, values side by side -> (t, h * d)."""
        plain = bias is None and self._window is None
        if qkv.is_cuda and plain and qkv.dtype is torch.bfloat16 and (flash := _varlen()) is not None:
            return self._flash(qkv, layout, flash)
        out = qkv.new_empty(len(qkv), qkv.shape[1] // 3)
        for g in layout.groups:
            parts = g.rectangle(qkv).view(g.rows, g.length, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            added = bias(g) if bias is not None else self._outside(g.length, qkv)
            if qkv.is_cuda:
                q, k, v = parts.unbind(0)
                heads = F.scaled_dot_product_attention(q, k, v, attn_mask=added, scale=1.0)
            elif self._window and g.length >= _BLOCKS * self._window:
                heads = self._in_blocks(parts, self._window)
            else:
                q, k, v = parts.contiguous().flatten(1, 2).unbind(0)
                heads = self._heard(q, k, v, added, rows=g.rows).view(g.rows, self.heads, g.length, -1)
            g.put(out, heads)
        return out

    def to_product(self, product: Any, rows: Any, layout: RowLayout, bias: Bias | None = None) -> Tensor:  # noqa: ANN401  # as products take them
        """Attend to what a product makes of rows: (t, h * d)."""
        return self(product(rows), layout, bias)

    def _outside(self, length: int, like: Tensor) -> Tensor | None:
        """Return what keeps tokens from reading beyond their window: (1, 1, length, length), or None."""
        if self._window is None or length <= self._window + 1:
            return None
        place = torch.arange(length, device=like.device)
        far = (place[:, None] - place).abs() > self._window
        return torch.zeros_like(far, dtype=like.dtype).masked_fill_(far, -torch.inf)[None, None]

    def _in_blocks(self, parts: Tensor, window: int) -> Tensor:
        """Attend within windows: (3, n, h, l, d) -> (n, h, l, d); a block reads itself and its neighbours."""
        _, n, h, length, d = parts.shape
        blocks = -(-length // window)
        filled = F.pad(parts, (0, 0, window, (blocks + 1) * window - length)).flatten(1, 2)
        q = filled[0, :, window:-window].reshape(n * h * blocks, window, d)
        around = filled[1:].unfold(2, 3 * window, window).transpose(3, 4)  # (2, n * h, blocks, 3 window, d)
        k, v = around.reshape(2, n * h * blocks, 3 * window, d).unbind(0)
        own = torch.arange(blocks * window).view(blocks, window, 1)
        read = torch.arange(blocks)[:, None, None] * window + torch.arange(-window, 2 * window)
        hidden = ((own - read).abs() > window) | (read < 0) | (read >= length)
        added = torch.zeros(hidden.shape, dtype=parts.dtype).masked_fill_(hidden, -torch.inf)
        return self._heard(q, k, v, added[None], rows=n).view(n, h, blocks * window, d)[:, :, :length]

    def _heard(self, q: Tensor, k: Tensor, v: Tensor, added: Tensor | None, rows: int) -> Tensor:
        """Attend within rectangles: m queries (m, l, d), keys and values (m, s, d), of n rows -> (m, l, d).

        Args:
            added: (1, m / any, l, s), added to scores.
        """
        if not self._base2:
            biases = 1 if added is None else added.shape[1]
            step = len(q) if q.is_cuda else _together(q.shape[1] * k.shape[1], biases)
            heard = torch.empty_like(q)
            for i in range(0, len(q), step):
                part = slice(i, i + step)
                own = None if added is None else added[:, i % biases :][:, :step]
                torch.bmm(torch.softmax(_scores(q[part], k[part], own), -1), v[part], out=heard[part])
            return heard
        scores = _scores(q, k, added)
        weights = scores.exp2_()
        sums = weights.sum(-1, keepdim=True)
        low, high = sums.view(rows, -1).aminmax(dim=1)
        heard = torch.bmm(weights, v).mul_(sums.reciprocal_())
        unsafe = ~((low > _SAFE) & high.isfinite())
        if unsafe.any():  # such a row only: its neighbours' bits stay what they are
            scores = _scores(q, k, added).float().mul_(math.log(2))
            slowly = torch.bmm(torch.softmax(scores, -1).to(v.dtype), v)
            heard = torch.where(unsafe.repeat_interleave(len(q) // rows)[:, None, None], slowly, heard)
        return heard

    def _flash(self, qkv: Tensor, layout: RowLayout, flash: Callable[..., Tensor]) -> Tensor:
        """Attend with CUDA's kernel for rows of any length; no rectangles at all."""
        ends, longest = layout.ends.to(qkv.device, torch.int32), int(layout.lengths.max())
        q, k, v = qkv.view(len(qkv), 3, self.heads, -1).unbind(1)
        return flash(q, k, v, ends, ends, longest, longest, scale=1.0).reshape(len(qkv), -1)


class FusedAttention:
    """The same by the compiled loops; needs no rectangles."""

    def __init__(self, heads: int, window: int | None = None) -> None:
        self.heads, self.fold, self._window = heads, math.log2(math.e), window

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Tensor | None = None) -> Tensor:
        """Attend: (t, 3 * h * d) -> (t, h * d); bias as ``infer.attend`` takes it."""
        attend = infer.attend if qkv.dtype is torch.bfloat16 else wide.attend
        return attend(qkv, layout.ends, self.heads, self._bias(layout, bias))

    def to_product(self, product: Any, rows: Any, layout: RowLayout, bias: Tensor | None = None) -> Tensor:  # noqa: ANN401  # as products take them
        """Attend to what a product makes of rows, without the whole of it where its loops can: (t, h * d)."""
        if isinstance(product, wide.QuantisedLinear | infer.PackedLinear):
            return product.attend(rows, layout.ends, self.heads, self._bias(layout, bias))
        return self(product(rows), layout, bias)

    def _bias(self, layout: RowLayout, bias: Tensor | None) -> Tensor | None:
        longest = int(layout.lengths.max())
        if bias is None and self._window is not None and longest > self._window + 1:
            return _by_distance(self.heads, self._window, -(-longest // _USUAL) * _USUAL)
        return bias


@lru_cache(maxsize=8)
def _by_distance(heads: int, window: int, longest: int) -> Tensor:
    """Return the bias that keeps tokens from reading beyond their window, as ``infer.attend`` takes it."""
    far = torch.arange(-longest - 64, longest + 65).abs() > window
    return torch.zeros(heads, len(far)).masked_fill_(far, _NEVER)


class Attention(Protocol):
    """Softmax attention of every row over itself; with a bias of its own kind, see ``t5.RelativeBias``."""

    fold: float  # what query weights (and added biases) must be multiplied by, besides 1 / sqrt(d)

    def __call__(self, qkv: Tensor, layout: RowLayout, bias: Any = None) -> Tensor:  # noqa: ANN401  # Bias, or a table
        """Attend: (t, 3 * h * d) -> (t, h * d)."""
        ...

    def to_product(self, product: Any, rows: Any, layout: RowLayout, bias: Any = None) -> Tensor:  # noqa: ANN401  # likewise
        """Attend to what a product makes of rows."""
        ...


def attention(heads: int, d: int, compute: Compute, window: int | None = None) -> Attention:
    """Make the quickest attention of ``heads`` heads of width ``d``; within a window, if one is given."""
    if machine.fits_infer(compute, d) or machine.fits_wide(compute, d):
        return FusedAttention(heads, window)
    return SelfAttention(heads, compute, window)


def bucket(distance: Tensor, buckets: int, furthest: int) -> Tensor:
    """Number the relative positions (int64, key minus query) of a bidirectional T5.

    Half of the buckets is for keys behind the query, half for keys at or before it. In each half the nearer
    part counts one by one, the rest is spread logarithmically up to ``furthest``.
    """
    half = buckets // 2
    exact = half // 2
    far = distance.abs()
    ratio = torch.log(far.clamp(min=exact).float() / exact) / math.log(furthest / exact)
    spread = (exact + (ratio * (half - exact)).long()).clamp(max=half - 1)
    return (distance > 0).long() * half + torch.where(far < exact, far, spread)


class RelativeBias:
    """The position bias of a batch, the same in every layer: a table by distance, or rectangles cut of it."""

    def __init__(self, table: Tensor, d: int, furthest: int, fold: float, compute: Compute) -> None:
        self._table = (table.detach().float() * fold).to(compute.device)
        self._furthest, self._compute = furthest, compute
        is_fused = machine.fits_infer(compute, d) or machine.fits_wide(compute, d)
        self._by_distance = self._far(_USUAL) if is_fused else None

    def __call__(self, layout: RowLayout) -> Bias | Tensor:
        """Return what ``attention`` adds: a table by distance (compiled loops) or a function of groups."""
        if self._by_distance is not None:
            longest = int(layout.lengths.max())
            return self._by_distance if longest <= _USUAL else self._far(longest)
        squares = {length: self._square(length) for length in {g.length for g in layout.groups}}
        return lambda g: squares[g.length]

    def _far(self, longest: int) -> Tensor:
        """Return (h, 2 * c + 1) float32: column c + s is for keys s behind the query; c exceeds longest."""
        return self._of(torch.arange(-longest - 64, longest + 65, device=self._table.device)).contiguous()

    def _square(self, length: int) -> Tensor:
        """Return (1, h, length, length) from the 2 * length - 1 distances there are."""
        by_distance = self._of(torch.arange(1 - length, length, device=self._table.device))
        rows = by_distance.unfold(1, length, 1).flip(1)
        return rows.to(self._compute.dtype).contiguous()[None]

    def _of(self, distances: Tensor) -> Tensor:
        return self._table[bucket(distances, len(self._table), self._furthest)].T


def attend_once(queries: Tensor, x: Tensor, layout: RowLayout) -> Tensor:
    """Let h queries a row read the row: softmax(queries · x) weighted sums of x, (n, h, w).

    Keys and values are x itself: a single query can take the key projection on its own side, and a single
    result the value projection, which costs a row what otherwise each of its tokens costs.
    """
    if machine.fits_infer(layout.compute, x.shape[1] // 2):
        return infer.attend_once(queries, x, layout.ends)
    if machine.fits_wide(layout.compute, x.shape[1]):
        return wide.attend_once(queries, x, layout.ends)
    out, first = torch.empty_like(queries), 0
    for g in layout.groups:
        rows = slice(first, first + g.rows)
        rectangle = g.rectangle(x)
        scores = torch.bmm(queries[rows], rectangle.transpose(1, 2)).float()
        out[rows] = torch.bmm(torch.softmax(scores, -1).to(x.dtype), rectangle)
        first += g.rows
    return out


def _scores(q: Tensor, k: Tensor, added: Tensor | None) -> Tensor:
    """Return q kᵀ + added, (m, l, s)."""
    scores = torch.bmm(q, k.transpose(1, 2))
    if added is not None:
        scores.view(-1, *added.shape[1:]).add_(added)
    return scores


def _together(cells: int, biases: int) -> int:
    """Return how many matrices of so many scores stay near the processor; biases come again and again."""
    step = max(1, _NEAR // max(1, cells))
    if step >= biases:
        return step - step % biases
    return max(divisor for divisor in range(1, step + 1) if biases % divisor == 0)


def _varlen() -> Callable[..., Tensor] | None:
    try:
        from torch.nn.attention.varlen import varlen_attn  # noqa: PLC0415  # newer PyTorch only
    except ImportError:
        return None
    return cast("Callable[..., Tensor]", varlen_attn)
