"""The compiled loops of an encoder's rows: what can use them, how weights are laid out, and the calls.

Where the loops of ``_infer.c`` cannot run (see machine.py), in fp32, on CUDA and for odd widths, PyTorch
computes the same (linear.py, attention.py). A number of a result depends on its own row only, to the bit.
bf16 is computed here; int8, in wide.py.
Shapes: n rows, t tokens of all rows together, k inputs, m outputs, d width of a head, w width.
"""

from __future__ import annotations

import math
from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.machine import Activation, checked

with suppress(ImportError):  # not compiled on this machine: `fits` says so
    from rankhouse.nn.cpu import _infer

_ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "gelu": 2, "gelu_tanh": 3, "silu": 0}
STORED, ADDED, MULTIPLIED = range(3)
BF16, INT8 = range(2)
_PANEL = 64  # columns that are computed together
TILE = 32
"""Inputs of a bf16 product are multiples of it where AMX computes it, of an int8 product of twice as many."""


class Arguments(NamedTuple):
    """Arguments of the loop ``product``: act(rows weightᵀ + bias), put ``into`` out."""

    kind: int
    activation: int
    into: int
    x: Tensor
    scales: Tensor | None
    weight: Tensor
    weight_scale: Tensor | None
    zeros: Tensor | None
    bias: Tensor | None
    out: Tensor
    rows: int
    steps: int
    columns: int


class PackedLinear:
    """act(x Wᵀ + b) in bf16, weights packed; may add its result to the residual, or multiply a gate by it.

    Args:
        bias: (m,), or None.
        activation: Activation of the result; not with ``add`` and ``multiply``.
    """

    def __init__(self, weight: Tensor, bias: Tensor | None, activation: Activation = "none") -> None:
        self._activation, self._silu = _ACTIVATIONS[activation], activation == "silu"
        self._out, self._in = weight.shape
        self._weight = packed(weight.detach().float().bfloat16(), 2)
        self._bias = None if bias is None else bias.detach().float().contiguous()

    def __call__(self, rows: Tensor) -> Tensor:
        """Apply to rows: (t, k) -> (t, m) bf16."""
        out = torch.empty(len(rows), self._out, dtype=torch.bfloat16)
        self._compute(rows, out, STORED)
        return F.silu(out, inplace=True) if self._silu else out

    def add(self, rows: Tensor, x: Tensor) -> Tensor:
        """Add the result to x (t, m) float32, in place; return x."""
        self._compute(rows, checked(x, torch.float32, self._out), ADDED)
        return x

    def multiply(self, rows: Tensor, y: Tensor) -> Tensor:
        """Multiply y (t, m) bf16 by the result, in place; return y."""
        self._compute(rows, checked(y, torch.bfloat16, self._out), MULTIPLIED)
        return y

    def feed(self, rows: Tensor, then: PackedLinear, x: Tensor) -> Tensor:
        """Add what the next layer makes of the result to x (t, its m) float32, in place; return x."""
        if self._silu or self._out != then._in:
            return then.add(self(rows), x)
        values = self._checked(rows, x)
        weights = self._weight, None, None, self._bias, then._weight, None, None, then._bias
        sizes = len(values), self._in // 2, self._out, then._out
        given = BF16, self._activation, values, None
        machine.call(_infer.feed, (*given, *weights, checked(x, torch.float32, then._out), *sizes))
        return x

    def attend(self, rows: Tensor, ends: Tensor, heads: int, bias: Tensor | None = None) -> Tensor:
        """Return what :func:`attend` makes of the result, some rows at a time: (t, k) -> (t, m / 3) bf16."""
        out = torch.empty(len(rows), self._out // 3, dtype=torch.bfloat16)
        if int(ends[-1]) != len(rows):
            raise ValueError(f"rows end at {int(ends[-1])}, there are {len(rows)} tokens")
        weight = self._weight, None, None, self._bias, self._in // 2
        sizes = checked(ends[None], torch.int64, len(ends)), len(ends) - 1, heads, self._out // 3 // heads
        given = BF16, self._checked(rows, out), None
        layout, room = bias_layout(bias, ends, heads), portions(ends, heads, sizes[3], 2)
        machine.call(_infer.attend_to, (*given, *weight, *sizes, *layout, out, *room))
        return out

    def _checked(self, rows: Tensor, out: Tensor) -> Tensor:
        if len(out) != len(rows):
            raise ValueError(f"{len(rows)} rows were multiplied into {len(out)}")
        return checked(rows, torch.bfloat16, self._in)

    def _compute(self, rows: Tensor, out: Tensor, into: int) -> None:
        values = self._checked(rows, out)
        arguments = Arguments(
            kind=BF16,
            activation=self._activation,
            into=into,
            x=values,
            scales=None,
            weight=self._weight,
            weight_scale=None,
            zeros=None,
            bias=self._bias,
            out=out,
            rows=len(values),
            steps=self._in // 2,
            columns=self._out,
        )
        machine.call(_infer.product, arguments)


class FusedNorm:
    """Layer norm, or with no gain division by the root mean square, rounded to bf16 for the next product."""

    def __init__(self, gain: Tensor | None, shift: Tensor | None, eps: float) -> None:
        self._gain = None if gain is None else gain.detach().float().contiguous()
        self._shift = None if shift is None else shift.detach().float().contiguous()
        self._eps = eps

    def __call__(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """Normalise x (t, k) float32, in place if there is a gain; return it and its rounded normed rows."""
        count, width = x.shape
        checked(x, torch.float32, width if self._gain is None else len(self._gain))
        rows = torch.empty_like(x, dtype=torch.bfloat16)
        machine.call(_infer.norm, (BF16, x, self._gain, self._shift, self._eps, count, width, rows, None))
        return x, rows


def packed(weight: Tensor, together: int) -> Tensor:
    """Lay weights (m, k) out in panels of columns; ``together`` inputs stand side by side."""
    out, inside = weight.shape
    panels = -(-out // _PANEL)
    whole = weight.new_zeros(panels * _PANEL, inside)
    whole[:out] = weight
    return whole.view(panels, _PANEL, inside // together, together).transpose(1, 2).contiguous()


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
        qkv: (t, 3 * heads * d) bf16, or float32 for int8's arithmetic: queries, keys, values side by side.
        ends: (n + 1,) int64, where rows begin and end in t.
        bias: (heads, 2 * c + 1) float32, added to the score of key j for query i: column c + j - i; c is at
            least the longest row plus 32. None: nothing is added.

    Returns:
        (t, heads * d) of the type of qkv.
    """
    width = qkv.shape[1] // 3
    is_bf16 = qkv.dtype is torch.bfloat16
    checked(qkv, torch.bfloat16 if is_bf16 else torch.float32, 3 * width)
    checked(ends[None], torch.int64, len(ends))
    if int(ends[-1]) != len(qkv):
        raise ValueError(f"rows end at {int(ends[-1])}, there are {len(qkv)} tokens")
    out = qkv.new_empty(len(qkv), width)
    sizes = len(ends) - 1, heads, width // heads
    kind = BF16 if is_bf16 else INT8
    machine.call(_infer.attend, (kind, qkv, ends, *sizes, *bias_layout(bias, ends, heads), out))
    return out


_NEAR = 2**20  # bytes of queries, keys and values that stay near the processor
_TOGETHER = 512  # tokens of rows that are read together


def portions(ends: Tensor, heads: int, d: int, size: int) -> tuple[Tensor, int, int]:
    """Return memory for queries, keys and values, how many tokens and how many heads are computed together.

    Heads are whole panels of the weight, and the longest row is computed at once.
    """
    tokens = min(max(int(ends.diff().max()), _TOGETHER), int(ends[-1]))
    least = _PANEL // math.gcd(_PANEL, d)
    counts = [count for count in range(least, heads, least) if heads % count == 0]
    fit = [count for count in [*counts, heads] if 3 * tokens * count * d * size <= _NEAR]
    together = max(fit) if fit else min([*counts, heads])
    return machine.work(3 * tokens * together * d * size), tokens, together


def bias_layout(bias: Tensor | None, ends: Tensor, heads: int) -> tuple[Tensor | None, int, int]:
    """Return a bias as the loops take it: numbers of a head, and which of them is for a query's own place."""
    if bias is None:
        return None, 0, 0
    stride = checked(bias, torch.float32, bias.shape[1]).shape[1]
    beyond = 2 * machine.REGISTER  # scores are computed by two registers
    if len(bias) != heads or stride // 2 < int(ends.diff().max()) + beyond:
        raise ValueError(f"a bias of shape {tuple(bias.shape)} is too small for {heads} heads and these rows")
    return bias, stride, stride // 2


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
    """Multiply the first heads of x (t, any * d) bf16 or float32, complex numbers, by circle (t, d / 2)."""
    d, is_bf16 = 2 * circle.shape[1], x.dtype is torch.bfloat16
    checked(x, torch.bfloat16 if is_bf16 else torch.float32, x.shape[1])
    by = checked(torch.view_as_real(circle).view(len(circle), d), torch.float32, d, len(x))
    if heads * d > x.shape[1] or d % machine.REGISTER:
        raise ValueError(f"{heads} heads of {d} numbers in rows of {x.shape[1]}")
    machine.call(_infer.turn, (BF16 if is_bf16 else INT8, x, by, len(x), x.shape[1], heads, d))
