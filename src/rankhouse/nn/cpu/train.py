"""Compiled loops in float32, attention and norms: what can use them, and a typed function for each.

Loops over words are in train_words.py. Going forward they serve scoring too: each
text's numbers have the same bits whatever stands beside it. Where the loops of ``_train.c`` cannot run (see
machine.py), the layers compute the same in PyTorch. Loops see addresses only: what they are given is checked.
Shapes: n rows, t tokens, d width, h heads.
"""

from __future__ import annotations

from contextlib import suppress
from typing import NamedTuple

import torch
from torch import Tensor

from rankhouse.nn import machine
from rankhouse.nn.machine import checked

with suppress(ImportError):  # not compiled on this machine: `fits` says so
    from rankhouse.nn.cpu import _train

DEEPEST = 64
"""Most columns of a head that :func:`attend` takes."""

_PART_ROWS = 256


def fits(*tensors: Tensor) -> bool:
    """Return whether the compiled loops serve these tensors now: float32, on the processor."""
    return machine.TRAIN_LOOPS and machine.multiplies(*tensors)


def rounded(rows: int, few: int = _PART_ROWS) -> int:
    """Return the next multiple of 256: products are laid out again for each new number of rows.

    Up to 256 it is one of ``few``: a row's products are the same bits beside any number of rows.
    """
    step = few if rows <= _PART_ROWS else _PART_ROWS
    return -(-rows // step) * step


class Head(NamedTuple):
    """Layout of attention."""

    ends: Tensor  # (n + 1,) int64, where rows begin and end in t
    heads: int  # h
    scale: float  # what products of queries and keys are multiplied by


class _Attend(NamedTuple):
    """Arguments of the loop ``attend``."""

    back: bool
    qkv: Tensor
    ends: Tensor
    rows: int
    heads: int
    deep: int
    tokens: int
    scale: float
    out: Tensor
    stats: Tensor
    gradient: Tensor | None = None
    to_qkv: Tensor | None = None


def attend(qkv: Tensor, head: Head) -> tuple[Tensor, Tensor]:
    """Softmax attention of rows over themselves, without gradients.

    Args:
        qkv: (t, 3 * h * d); tokens behind the last row hear nothing and give zeros.

    Returns:
        (t, h * d), and (h, 2, t) what :func:`attend_back` needs.
    """
    ends, heads = head.ends, head.heads
    tokens, width = len(qkv), qkv.shape[1] // 3
    checked(qkv, torch.float32, 3 * width, tokens)
    last = int(ends[-1])
    if ends.dtype is not torch.int64 or not ends.is_contiguous() or last > tokens or width > heads * DEEPEST:
        raise ValueError(f"{heads} heads of {width} columns, rows end at {last}, there are {tokens} tokens")
    out, stats = qkv.new_empty(tokens, width), qkv.new_empty(heads, 2, tokens)
    out[last:] = 0
    machine.call(_train.attend, _attention(qkv, head, out, stats))
    return out, stats


def attend_back(gradient: Tensor, qkv: Tensor, head: Head, out: Tensor, stats: Tensor) -> Tensor:
    """Turn the gradient of ``out`` (t, h * d) into that of ``qkv`` (t, 3 * h * d)."""
    gradient = gradient.contiguous()
    checked(gradient, torch.float32, out.shape[1], len(out))
    back = torch.empty_like(qkv)
    back[int(head.ends[-1]) :] = 0
    arguments = _attention(qkv, head, out, stats)._replace(back=True, gradient=gradient, to_qkv=back)
    machine.call(_train.attend, arguments)
    return back


def _attention(qkv: Tensor, head: Head, out: Tensor, stats: Tensor) -> _Attend:
    tokens, width = out.shape
    return _Attend(
        back=False,
        qkv=qkv,
        ends=head.ends,
        rows=len(head.ends) - 1,
        heads=head.heads,
        deep=width // head.heads,
        tokens=tokens,
        scale=head.scale,
        out=out,
        stats=stats,
    )


class NormKind(NamedTuple):
    """A layer norm's small constant, and whether it stands outside the root."""

    eps: float
    outer: bool


class _Norm(NamedTuple):
    """Arguments of the loop ``norm``."""

    back: bool
    x: Tensor
    gain: Tensor
    shift: Tensor | None
    rows: int
    width: int
    outer: bool
    eps: float
    out: Tensor | None
    stats: Tensor
    gradient: Tensor | None = None
    to_x: Tensor | None = None
    to_gain: Tensor | None = None
    to_shift: Tensor | None = None


def norm(x: Tensor, gain: Tensor, shift: Tensor, kind: NormKind) -> tuple[Tensor, Tensor]:
    """Layer norm without gradients: (t, d), and (2, t) what :func:`norm_back` needs."""
    rows, width = x.shape
    checked(x, torch.float32, width, rows)
    checked(gain[None], torch.float32, width, 1)
    checked(shift[None], torch.float32, width, 1)
    out, stats = torch.empty_like(x), x.new_empty(2, rows)
    machine.call(_train.norm, _norm_of(x, gain, stats, kind)._replace(shift=shift, out=out))
    return out, stats


def norm_back(
    gradient: Tensor, x: Tensor, gain: Tensor, stats: Tensor, kind: NormKind
) -> tuple[Tensor, Tensor, Tensor]:
    """Return the gradients of x, gain and shift; with eps outside the root, its part of x's is left out."""
    rows, width = x.shape
    gradient = gradient.contiguous()
    checked(gradient, torch.float32, width, rows)
    to_x, to_gain, to_shift = torch.empty_like(x), torch.empty_like(gain), torch.empty_like(gain)
    arguments = _norm_of(x, gain, stats, kind)._replace(
        back=True, gradient=gradient, to_x=to_x, to_gain=to_gain, to_shift=to_shift
    )
    machine.call(_train.norm, arguments)
    return to_x, to_gain, to_shift


def _norm_of(x: Tensor, gain: Tensor, stats: Tensor, kind: NormKind) -> _Norm:
    return _Norm(
        back=False,
        x=x,
        gain=gain,
        shift=None,
        rows=len(x),
        width=x.shape[1],
        outer=kind.outer,
        eps=kind.eps,
        out=None,
        stats=stats,
    )


class Weights(NamedTuple):
    """A half's weights: in (w or 3i, d), out (d, w or i), and the norm behind it (d,)."""

    inward: Tensor
    inward_bias: Tensor
    outward: Tensor
    outward_bias: Tensor
    gain: Tensor
    shift: Tensor


def half_layer(x: Tensor, weights: Weights, kind: NormKind, heads: int, scale: float) -> Tensor:
    """Return norm(x + W2 relu(W1 x + b1) + b2) of one short text; with heads, attention in place of ReLU.

    Without gradients, (t, d) -> (t, d). Five calls, of which each takes longer to start than to run, are one.
    """
    (rows, width), inner = x.shape, weights.outward.shape[1]
    checked(x, torch.float32, width)
    checked(weights.inward, torch.float32, width, 3 * inner if heads else inner)
    checked(weights.outward, torch.float32, inner, width)
    out = torch.empty_like(x)
    sizes = (rows, width, inner, heads, scale, kind.outer, kind.eps)
    machine.call(_train.half_layer, (x, *weights, *sizes, out))
    return out
