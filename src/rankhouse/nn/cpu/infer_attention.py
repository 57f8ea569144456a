"""The compiled loops of an encoder's attention; :func:`rankhouse.nn.cpu.infer.fits` says what can use them.

Shapes: n rows, t tokens of all rows together, d width of a head, w width.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn.cpu import machine
from rankhouse.nn.cpu.infer import REGISTER
from rankhouse.nn.cpu.machine import checked

with suppress(ImportError):  # not compiled on this machine: `infer.fits` says so
    from rankhouse.nn.cpu import _infer


class _Attend(NamedTuple):
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
            least the longest row plus 16. None: nothing is added.

    Returns:
        (t, heads * d) bf16.
    """
    width = qkv.shape[1] // 3
    checked(qkv, torch.bfloat16, 3 * width)
    checked(ends[None], torch.int64, len(ends))
    if int(ends[-1]) != len(qkv):
        raise ValueError(f"rows end at {int(ends[-1])}, there are {len(qkv)} tokens")
    stride = 0 if bias is None else checked(bias, torch.float32, bias.shape[1]).shape[1]
    if bias is not None and (len(bias) != heads or stride // 2 < int(ends.diff().max()) + REGISTER):
        raise ValueError(f"a bias of shape {tuple(bias.shape)} is too small for {heads} heads and these rows")
    out = torch.empty(len(qkv), width, dtype=torch.bfloat16)
    arguments = _Attend(
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
    """Let h queries a row (n, h, w) read their row of x (t, w), all bf16; see ``attention.attend_once``.

    Args:
        ends: (n + 1,) int64, where rows begin and end in t.
    """
    rows, heads, width = queries.shape
    checked(x, torch.bfloat16, width)
    checked(queries.view(rows * heads, width), torch.bfloat16, width)
    if len(ends) != rows + 1 or int(ends[-1]) != len(x):
        raise ValueError(
            f"{rows} rows of queries, {len(ends) - 1} rows of {int(ends[-1])} tokens in {len(x)}"
        )
    out = torch.empty_like(queries)
    arguments = _AttendOnce(queries=queries, x=x, ends=ends, rows=rows, heads=heads, width=width, out=out)
    machine.call(_infer.attend_once, arguments)
    return out
