"""Layers with a norm before each half, over rows that lie end to end: T5, ModernBERT, and decoders.

x stays in fp32 from layer to layer; each half reads x divided by its root mean square and adds its result to
x. The gain of a norm is multiplied into the weights behind it. A layer norm differs from the root mean square
by the mean that it subtracts: where all that writes to x has mean 0 (:func:`centred`), there is none. Rotary
positions, which ModernBERT and decoders turn queries and keys by, stand here too.
Shapes: t tokens of all rows together, w width, h heads, d width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor

from rankhouse.nn import machine
from rankhouse.nn.cpu import infer
from rankhouse.nn.layers.attention import Attention, RowLayout
from rankhouse.nn.layers.linear import Affine, Gated, Rows, feed, linear, root_mean_square_norm
from rankhouse.nn.machine import Activation, Compute

State = Mapping[str, Tensor]
"""A checkpoint's weights by name."""

# Su et al., "RoFormer: Enhanced Transformer with Rotary Position Embedding", 2021, eq. 34: numbers i and
# i + d / 2 of a head are one complex number, multiplied by exp(i place frequency). Here the two stand side by
# side, which the weights are laid out for (:func:`interleaved`): products of queries and keys do not change.
# Shapes: t tokens, h heads, d width of a head.


def interleaved(rows: Tensor, heads: int) -> Tensor:
    """Put numbers i and i + d / 2 of each head side by side: rows (h * d, ...) of a weight or bias."""
    return rows.view(heads, 2, -1, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


class Rotary:
    """Turns by place.

    Args:
        frequencies: (d / 2,) float32, radians a place.
        scale: A further factor of queries and keys (YaRN).
    """

    def __init__(self, frequencies: Tensor, scale: float = 1.0) -> None:
        self._frequencies, self._scale = frequencies.detach().float(), scale

    def at(self, places: Tensor) -> Turn:
        """Return what turns tokens at these places (t,) of their rows."""
        angles = places.float()[:, None] * self._frequencies.to(places.device)
        return Turn(torch.polar(torch.full_like(angles, self._scale), angles))


class Turn(NamedTuple):
    """Turns the tokens of a batch."""

    circle: Tensor  # (t, d / 2) complex64

    def __call__(self, x: Tensor, heads: int, chosen: Tensor | None = None) -> Tensor:
        """Turn the first ``heads`` heads of x (t, any * d), in place; return x.

        Args:
            chosen: (t,) int64, which of the batch's tokens these are; None: all.
        """
        circle = self.circle if chosen is None else self.circle[chosen]
        has_loop = machine.INFER_LOOPS if x.dtype is torch.bfloat16 else machine.INT8_LOOPS
        if has_loop and _fits_loop(x, circle):
            infer.turn(x, circle, heads)
            return x
        turned = x[:, : heads * 2 * circle.shape[1]]
        own = turned.float()
        numbers = torch.view_as_complex(own.view(len(x), heads, circle.shape[1], 2))
        numbers.mul_(circle[:, None])
        if own.data_ptr() != turned.data_ptr():
            turned.copy_(own)
        return x


def _fits_loop(x: Tensor, circle: Tensor) -> bool:
    is_either = x.dtype in {torch.bfloat16, torch.float32}
    return is_either and not x.is_cuda and x.is_contiguous() and 2 * circle.shape[1] % machine.REGISTER == 0


class NormAffine(NamedTuple):
    """The norm before a half of a layer."""

    gain: Tensor  # (w,)
    shift: Tensor | None  # (w,), or None
    eps: float  # added to the mean square

    def into(self, weight: Tensor, bias: Tensor | None = None) -> Affine:
        """Return a weight (out, w) and bias with the norm's gain and shift multiplied into them."""
        weight = weight.detach().float()
        if self.shift is not None:
            moved = weight @ self.shift.detach().float()
            bias = moved if bias is None else bias.detach().float() + moved
        return weight * self.gain.detach().float(), bias


class NamedWeights:
    """Weights by their names in the checkpoint, float32."""

    def __init__(self, state: State, eps: float) -> None:
        self._state, self._eps = state, eps

    def affine(self, name: str) -> Affine:
        """Return weight (out, in) and bias (out,) or None."""
        bias = self._state.get(f"{name}.bias")
        return self._state[f"{name}.weight"].detach().float(), None if bias is None else bias.detach().float()

    def norm(self, name: str) -> NormAffine:
        """Return the norm before a half of a layer."""
        return NormAffine(*self.affine(name), self._eps)


def centred(weight: Tensor, bias: Tensor | None = None) -> Affine:
    """Take the mean over the outputs away: what such a product adds to a row has mean 0."""
    weight = weight.detach().float()
    bias = None if bias is None else bias.detach().float()
    return weight - weight.mean(0), None if bias is None else bias - bias.mean()


class FeedForward:
    """Down(act(up x) * gate x), or without a gate; the norm before it is part of its weights.

    Args:
        gate: Its weight and bias; None for a plain feed-forward part.
    """

    def __init__(
        self,
        norm: NormAffine,
        up: Affine,
        gate: Affine | None,
        down: Affine,
        compute: Compute,
        activation: Activation,
        few: bool = False,
    ) -> None:
        inward = norm.into(*up)
        self._up = (
            linear(*inward, compute, activation, few=few, feeds=True)
            if gate is None
            else Gated(inward, norm.into(*gate), compute, activation, few=few)
        )
        self._down = linear(*down, compute, few=few)
        self._norm = root_mean_square_norm(len(norm.gain), norm.eps, compute)

    def add(self, x: Tensor) -> Tensor:
        """Add the result of x (t, w) float32 to x, in place."""
        _, rows = self._norm(x)
        return feed(rows, self._up, self._down, x)


class SelfAttentionHalf:
    """Queries, keys and values, attention, mixing; the norm before it is part of its weights.

    Args:
        norm: None where the half reads what is given to ``add`` besides x.
        qkv: Of all heads side by side; queries already carry the attention's factors.
    """

    def __init__(
        self, norm: NormAffine | None, qkv: Affine, mix: Affine, attention: Attention, compute: Compute
    ) -> None:
        self.attention = attention
        self._qkv = linear(*(qkv if norm is None else norm.into(*qkv)), compute)
        self._mix = linear(*mix, compute)
        self._norm = norm and root_mean_square_norm(len(norm.gain), norm.eps, compute)

    def add(
        self,
        x: Tensor,
        layout: RowLayout,
        bias: Any = None,  # noqa: ANN401  # as the attention takes it
        turn: Callable[[Tensor], object] | None = None,
        rows: Rows | None = None,
    ) -> Tensor:
        """Add the result of x (t, w) float32 to x, in place.

        Args:
            turn: Change of (t, 3 * h * d) before attention, in place: rotary positions.
            rows: Input in place of x, as products read it; without a norm.
        """
        rows = rows if self._norm is None else self._norm(x)[1]
        if turn is None:
            return self._mix.add(self.attention.to_product(self._qkv, rows, layout, bias), x)
        qkv = self._qkv(rows)
        turn(qkv)
        return self._mix.add(self.attention(qkv, layout, bias), x)
