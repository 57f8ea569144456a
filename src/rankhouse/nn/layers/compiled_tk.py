"""The two halves of a TK layer in training, each one step forward and one back, over tokens end to end.

The same arithmetic stands in tk_encoder.py for rectangles of padded rows, part by part; here products come
from oneDNN, attention and norms from the compiled loops, and padding is never computed.
Paper: Hofstätter et al., TREC 2019, eq. 2-3.
Shapes: t tokens, d width, h heads, i columns of all heads together, w width of the feed-forward part.
"""

from __future__ import annotations

from typing import Any, NamedTuple, cast

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from rankhouse.nn.cpu import train
from rankhouse.nn.cpu.train import Head, NormKind
from rankhouse.nn.layers.linear import multiply, to_weight

Gradients = tuple[Tensor | None, ...]


class Weights(NamedTuple):
    """A half's weights: in (w or 3i, d), out (d, w or i), and the norm behind it (d,)."""

    inward: Tensor
    inward_bias: Tensor
    outward: Tensor
    outward_bias: Tensor
    gain: Tensor
    shift: Tensor


def feed(x: Tensor, weights: Weights, kind: NormKind) -> Tensor:
    """Return norm(x + W2 relu(W1 x + b1) + b2): (t, d) -> (t, d).

    Args:
        weights: W1 inward, W2 outward.
    """
    return cast(Tensor, _Feed.apply(x, *weights, kind))  # type: ignore[no-untyped-call]  # torch's


def attend(x: Tensor, weights: Weights, kind: NormKind, head: Head) -> Tensor:
    """Return norm(x + attention of every row of tokens over itself): (t, d) -> (t, d)."""
    return cast(Tensor, _Attend.apply(x, *weights, kind, head))  # type: ignore[no-untyped-call]  # torch's


def _sides(gradient: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """Return the gradients of a product's weight and bias: (t, m), (t, d) -> (m, d), (m,)."""
    return to_weight(gradient, x), gradient.sum(0)


class _Feed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401 - torch's
        weights, kind = Weights(*rest[:6]), rest[6]
        hidden = multiply(x, weights.inward, weights.inward_bias, "relu")
        total = multiply(hidden, weights.outward, weights.outward_bias).add_(x)
        out, stats = train.norm(total, weights.gain, weights.shift, kind)
        ctx.save_for_backward(x, hidden, total, stats, weights.inward, weights.outward, weights.gain)
        ctx.kind = kind
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:  # noqa: ANN401
        x, hidden, total, stats, inward, outward, gain = ctx.saved_tensors
        to_total, to_gain, to_shift = train.norm_back(gradient, total, gain, stats, ctx.kind)
        to_hidden = torch.ops.aten.threshold_backward(multiply(to_total, outward.T), hidden, 0)
        to_x = multiply(to_hidden, inward.T).add_(to_total)
        return to_x, *_sides(to_hidden, x), *_sides(to_total, hidden), to_gain, to_shift, None


class _Attend(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, *rest: Any) -> Tensor:  # noqa: ANN401 - torch's
        weights, kind, head = Weights(*rest[:6]), rest[6], rest[7]
        qkv = multiply(x, weights.inward, weights.inward_bias)
        heard, how = train.attend(qkv, head)
        total = multiply(heard, weights.outward, weights.outward_bias).add_(x)
        out, stats = train.norm(total, weights.gain, weights.shift, kind)
        ctx.save_for_backward(
            x, qkv, heard, how, total, stats, weights.inward, weights.outward, weights.gain, head.ends
        )
        ctx.kind, ctx.cut = kind, head[1:]
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Gradients:  # noqa: ANN401
        x, qkv, heard, how, total, stats, inward, outward, gain, ends = ctx.saved_tensors
        to_total, to_gain, to_shift = train.norm_back(gradient, total, gain, stats, ctx.kind)
        to_qkv = train.attend_back(multiply(to_total, outward.T), qkv, Head(ends, *ctx.cut), heard, how)
        to_x = multiply(to_qkv, inward.T).add_(to_total)
        return to_x, *_sides(to_qkv, x), *_sides(to_total, heard), to_gain, to_shift, None, None
