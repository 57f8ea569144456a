"""The compiled loops of an encoder's rows: what can use them, how weights are laid out, and the calls.

Where the loops of ``_infer.c`` cannot run (see machine.py), in fp32, on CUDA and for odd widths, PyTorch
computes the same (linear.py, attention.py). A number of a result depends on its own row only, to the bit.

int8: a weight has one scale for each output, a row of activations one for itself, both symmetric:
x ≈ s_x X and w ≈ s_w W with X, W in -127..127, so that x · w ≈ s_x s_w (X · (W + 128) - 128 sum(X)).
Shapes: n rows, t tokens of all rows together, k inputs, m outputs, d width of a head, w width.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.machine import Activation, Compute, checked

with suppress(ImportError):  # not compiled on this machine: `fits` says so
    from rankhouse.nn.cpu import _infer

_ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 0}
_ROUNDED, _ADDED, _MULTIPLIED = range(3)
_BF16, _INT8 = range(2)
_PANEL = 64  # columns that are computed together
TILE = 32
"""Inputs of a bf16 product are multiples of it where AMX computes it, of an int8 product of twice as many."""


class Int8Rows(NamedTuple):
    """Rows of activations in int8."""

    values: Tensor  # (t, k) int8
    scales: Tensor  # (t,) float32, what a row's values are multiplied by
    sums: Tensor  # (t,) int32, the sum of each row's values

    @classmethod
    def empty(cls, count: int, width: int) -> Int8Rows:
        """Return rows to be filled."""
        return cls(
            torch.empty(count, width, dtype=torch.int8),
            torch.empty(count),
            torch.empty(count, dtype=torch.int32),
        )


Rows = Tensor | Int8Rows
"""Input of a product: (t, k) in the type of the computation."""


class _Product(NamedTuple):
    """Arguments of the loop ``product``: act(rows weightᵀ + bias), put ``into`` out."""

    kind: int
    activation: int
    into: int
    x: Tensor
    scales: Tensor | None
    sums: Tensor | None
    weight: Tensor
    weight_scale: Tensor | None
    bias: Tensor | None
    out: Tensor
    rows: int
    steps: int
    columns: int


class _InferNorm(NamedTuple):
    """Arguments of the loop ``norm``."""

    kind: int
    x: Tensor
    gain: Tensor | None
    shift: Tensor | None
    eps: float
    rows: int
    width: int
    out: Tensor
    scales: Tensor | None
    sums: Tensor | None


class _Quantise(NamedTuple):
    """Arguments of the loop ``quantise``."""

    x: Tensor
    rows: int
    width: int
    out: Tensor
    scales: Tensor
    sums: Tensor


class PackedLinear:
    """act(x Wᵀ + b) with packed weights; may add its result to the residual, or multiply a gate by it.

    Args:
        bias: (m,), or None.
        compute: Its precision is that of the product: bf16 or int8.
        activation: Activation of the result; not with ``add`` and ``multiply``.
    """

    def __init__(
        self, weight: Tensor, bias: Tensor | None, compute: Compute, activation: Activation = "none"
    ) -> None:
        self._type = _INT8 if compute.precision == "int8" else _BF16
        self._activation, self._silu = _ACTIVATIONS[activation], activation == "silu"
        self._out, self._in = weight.shape
        self._steps = self._in // (4 if self._type == _INT8 else 2)
        weight = weight.detach().float()
        self._bias = None if bias is None else bias.detach().float().contiguous()
        self._scale: Tensor | None = None
        if self._type == _INT8:
            scale = weight.abs().amax(1).clamp(min=1e-30) / 127
            whole = torch.round(weight / scale[:, None]).to(torch.int16) + 128
            self._weight, self._scale = _packed(whole.to(torch.uint8), 4), scale.contiguous()
        else:
            self._weight = _packed(weight.bfloat16(), 2)

    def __call__(self, rows: Rows) -> Tensor:
        """Apply to rows: (t, k) -> (t, m) bf16."""
        rows = self._typed(rows)
        out = torch.empty(_count(rows), self._out, dtype=torch.bfloat16)
        self._compute(rows, out, _ROUNDED)
        return F.silu(out, inplace=True) if self._silu else out

    def add(self, rows: Rows, x: Tensor) -> Tensor:
        """Add the result to x (t, m) float32, in place; return x."""
        self._compute(self._typed(rows), checked(x, torch.float32, self._out), _ADDED)
        return x

    def multiply(self, rows: Rows, y: Tensor) -> Tensor:
        """Multiply y (t, m) bf16 by the result, in place; return y."""
        self._compute(self._typed(rows), checked(y, torch.bfloat16, self._out), _MULTIPLIED)
        return y

    def feed(self, rows: Rows, then: PackedLinear, x: Tensor) -> Tensor:
        """Add what the next layer makes of the result to x (t, its m) float32, in place; return x."""
        if self._silu or self._type != then._type or self._out != then._in:
            return then.add(self(rows), x)
        values, scales, sums, count = self._checked(self._typed(rows), x)
        weights = self._weight, self._scale, self._bias, then._weight, then._scale, then._bias
        sizes = count, self._steps, self._out, then._out
        of_rows = self._type, self._activation, values, scales, sums
        machine.call(_infer.feed, (*of_rows, *weights, checked(x, torch.float32, then._out), *sizes))
        return x

    def _typed(self, rows: Rows) -> Rows:
        return quantise(rows) if self._type == _INT8 and isinstance(rows, Tensor) else rows

    def _checked(self, rows: Rows, out: Tensor) -> tuple[Tensor, Tensor | None, Tensor | None, int]:
        """Return the parts of rows that go into ``out``, and their number."""
        if len(out) != _count(rows):
            raise ValueError(f"{_count(rows)} rows were multiplied into {len(out)}")
        if isinstance(rows, Int8Rows):
            return checked(rows.values, torch.int8, self._in), rows.scales, rows.sums, len(out)
        return checked(rows, torch.bfloat16, self._in), None, None, len(out)

    def _compute(self, rows: Rows, out: Tensor, into: int) -> None:
        values, scales, sums, count = self._checked(rows, out)
        arguments = _Product(
            kind=self._type,
            activation=self._activation,
            into=into,
            x=values,
            scales=scales,
            sums=sums,
            weight=self._weight,
            weight_scale=self._scale,
            bias=self._bias,
            out=out,
            rows=count,
            steps=self._steps,
            columns=self._out,
        )
        machine.call(_infer.product, arguments)


class FusedNorm:
    """Layer norm, or with no gain division by the root mean square, rounded for the next product."""

    def __init__(self, gain: Tensor | None, shift: Tensor | None, eps: float, compute: Compute) -> None:
        self._gain = None if gain is None else gain.detach().float().contiguous()
        self._shift = None if shift is None else shift.detach().float().contiguous()
        self._eps, self._int8 = eps, compute.precision == "int8"

    def __call__(self, x: Tensor) -> tuple[Tensor, Rows]:
        """Normalise x (t, k) float32, in place if there is a gain; return it and its rounded normed rows."""
        count, width = x.shape
        checked(x, torch.float32, width if self._gain is None else len(self._gain))
        rows = Int8Rows.empty(count, width) if self._int8 else torch.empty_like(x, dtype=torch.bfloat16)
        out, scales, sums = rows if isinstance(rows, Int8Rows) else (rows, None, None)
        arguments = _InferNorm(
            kind=_INT8 if self._int8 else _BF16,
            x=x,
            gain=self._gain,
            shift=self._shift,
            eps=self._eps,
            rows=count,
            width=width,
            out=out,
            scales=scales,
            sums=sums,
        )
        machine.call(_infer.norm, arguments)
        return x, rows


def quantise(x: Tensor) -> Int8Rows:
    """Round rows of bf16 (t, k) to int8, each with its own scale."""
    count, width = x.shape
    checked(x, torch.bfloat16, width)
    rows = Int8Rows.empty(count, width)
    values, scales, sums = rows
    arguments = _Quantise(x=x, rows=count, width=width, out=values, scales=scales, sums=sums)
    machine.call(_infer.quantise, arguments)
    return rows


def _packed(weight: Tensor, together: int) -> Tensor:
    """Lay weights (m, k) out in panels of columns; ``together`` inputs stand side by side."""
    out, inside = weight.shape
    panels = -(-out // _PANEL)
    whole = weight.new_zeros(panels * _PANEL, inside)
    whole[:out] = weight
    return whole.view(panels, _PANEL, inside // together, together).transpose(1, 2).contiguous()


def _count(rows: Rows) -> int:
    return len(rows.values if isinstance(rows, Int8Rows) else rows)


class _InferAttend(NamedTuple):
    """Arguments of the loop ``attend``; ``stride`` and ``centre`` say how the bias is laid out."""

    qkv: Tensor
    ends: Tensor
    rows: int
    heads: int
    deep: int
    bias: Tensor | None
    stride: int
    centre: int
    out: Tensor


class _AttendOnce(NamedTuple):
    """Arguments of the loop ``attend_once``."""

    queries: Tensor
    x: Tensor
    ends: Tensor
    rows: int
    heads: int
    width: int
    out: Tensor


def attend(qkv: Tensor, ends: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
    """Softmax attention of every row of tokens over itself, scores in base 2.

    Args:
        qkv: (t, 3 * heads * d) bf16, queries, keys, values side by side.
        ends: (n + 1,) int64, where rows begin and end in t.
        bias: (heads, 2 * c + 1) float32, added to the score of key j for query i: column c + j - i; c is at
            least the longest row plus 32. None: nothing is added.

    Returns:
        (t, heads * d) bf16.
    """
    width = qkv.shape[1] // 3
    checked(qkv, torch.bfloat16, 3 * width)
    checked(ends[None], torch.int64, len(ends))
    if int(ends[-1]) != len(qkv):
        raise ValueError(f"rows end at {int(ends[-1])}, there are {len(qkv)} tokens")
    stride = 0 if bias is None else checked(bias, torch.float32, bias.shape[1]).shape[1]
    beyond = 2 * machine.REGISTER  # scores are computed by two registers
    if bias is not None and (len(bias) != heads or stride // 2 < int(ends.diff().max()) + beyond):
        raise ValueError(f"a bias of shape {tuple(bias.shape)} is too small for {heads} heads and these rows")
    out = torch.empty(len(qkv), width, dtype=torch.bfloat16)
    arguments = _InferAttend(
        qkv=qkv,
        ends=ends,
        rows=len(ends) - 1,
        heads=heads,
        deep=width // heads,
        bias=bias,
        stride=stride,
        centre=stride // 2,
        out=out,
    )
    machine.call(_infer.attend, arguments)
    return out


def attend_once(queries: Tensor, x: Tensor, ends: Tensor) -> Tensor:
    """Let h queries a row (n, h, w) read their row of x (t, w), which ends at ``ends`` (n + 1,) int64; bf16.

    See ``attention.attend_once``.
    """
    rows, heads, width = queries.shape
    checked(x, torch.bfloat16, width)
    checked(queries.view(rows * heads, width), torch.bfloat16, width)
    _check_rows(queries, ends, x)
    out = torch.empty_like(queries)
    arguments = _AttendOnce(queries=queries, x=x, ends=ends, rows=rows, heads=heads, width=width, out=out)
    machine.call(_infer.attend_once, arguments)
    return out


def _check_rows(queries: Tensor, ends: Tensor, tokens: Tensor) -> None:
    if len(ends) != len(queries) + 1 or int(ends[-1]) != len(tokens):
        raise ValueError(
            f"{len(queries)} rows of queries, {len(ends) - 1} rows of {int(ends[-1])} tokens in {len(tokens)}"
        )


class _AttendFirst(NamedTuple):
    """Arguments of the loop ``attend_first``; tokens of keys and values stand ``step`` numbers apart."""

    queries: Tensor
    keys: Tensor
    values: Tensor
    ends: Tensor
    rows: int
    heads: int
    deep: int
    step: int
    most: int
    out: Tensor


def attend_first(queries: Tensor, keys_values: Tensor, ends: Tensor, most: int | None) -> Tensor:
    """Let h queries a row (n, h, d) read keys and values of their row, (t, 2 * h * d), side by side; bf16.

    Args:
        most: Tokens of a row that are read, from its first; None: all.
    """
    rows, heads, d = queries.shape
    step = 2 * heads * d
    checked(keys_values, torch.bfloat16, step)
    checked(queries.view(rows * heads, d), torch.bfloat16, d)
    _check_rows(queries, ends, keys_values)
    out = torch.empty_like(queries)
    arguments = _AttendFirst(
        queries=queries,
        keys=keys_values,
        values=keys_values[:, heads * d :],
        ends=ends,
        rows=rows,
        heads=heads,
        deep=d,
        step=step,
        most=most or int(ends[-1]),
        out=out,
    )
    machine.call(_infer.attend_first, arguments)
    return out


def turn(x: Tensor, circle: Tensor, heads: int) -> None:
    """Multiply the first heads of x (t, any * d) bf16, complex numbers, by circle (t, d / 2), in place."""
    d = 2 * circle.shape[1]
    checked(x, torch.bfloat16, x.shape[1])
    by = checked(torch.view_as_real(circle).view(len(circle), d), torch.float32, d, len(x))
    if heads * d > x.shape[1] or d % machine.REGISTER:
        raise ValueError(f"{heads} heads of {d} numbers in rows of {x.shape[1]}")
    machine.call(_infer.turn, (x, by, len(x), x.shape[1], heads, d))
