"""T5's encoder over rows that lie end to end, one step of its decoder, a few rows of its output layer.

Architecture: Raffel et al., "Exploring the Limits of Transfer Learning", JMLR 2020; 1.1 and mT5 gate the
feed-forward part. Norms have no shift, so that their gains are multiplied into the weights behind them. The
decoder's first step has one position: its self-attention is one product, and its cross-attention reads the
encoder's states themselves (see ``attention.attend_once``).
Shapes: n rows, t tokens of all rows together, w width, h heads, d width of a head, c words asked for.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn.compute import Activation, Compute
from rankhouse.nn.cpu import infer
from rankhouse.nn.layers.attention import Bias, RowLayout, attend_once, attention
from rankhouse.nn.layers.linear import (
    PerHead,
    Product,
    linear,
    products,
    root_mean_square,
    root_mean_square_norm,
)
from rankhouse.nn.layers.ragged import Packed

State = Mapping[str, Tensor]

_USUAL = 512  # tokens of a row for which the position bias is kept ready
_ENCODER_BLOCK, _DECODER_BLOCK = "encoder.block.{}.layer.", "decoder.block.{}.layer."


@dataclass(frozen=True)
class T5Sizes:
    """What the weights do not say.

    Attributes:
        encoder_layers: How many.
        decoder_layers: How many.
        heads: h.
        eps: Added to mean squares.
        activation: Of the feed-forward parts.
        buckets: Rows of the table of relative positions.
        furthest: Distance from which on all positions share a bucket.
        scaled: Whether decoder states are multiplied by w ** -0.5 before the output layer (T5 1.0).
    """

    encoder_layers: int
    decoder_layers: int
    heads: int
    eps: float
    activation: Activation
    buckets: int
    furthest: int
    scaled: bool


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

    def __init__(self, table: Tensor, d: int, sizes: T5Sizes, fold: float, compute: Compute) -> None:
        self._table = (table.detach().float() * fold).to(compute.device)
        self._sizes, self._compute = sizes, compute
        self._by_distance = self._far(_USUAL) if infer.fits(compute, d) else None

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
        return self._table[bucket(distances, self._sizes.buckets, self._sizes.furthest)].T


class FeedForward:
    """Plain or gated; the norm before it is part of its weights."""

    def __init__(self, state: State, name: str, sizes: T5Sizes, compute: Compute, few: bool = False) -> None:
        gain = state[f"{name}.layer_norm.weight"].detach().float()
        inner = f"{name}.DenseReluDense"
        first = "wi" if f"{inner}.wi.weight" in state else "wi_0"
        self._up = _linear(state[f"{inner}.{first}.weight"], compute, gain, sizes.activation, few=few)
        gate = state.get(f"{inner}.wi_1.weight")
        self._gate = None if gate is None else _linear(gate, compute, gain, few=few)
        self._down = _linear(state[f"{inner}.wo.weight"], compute, few=few)
        self._norm = root_mean_square_norm(len(gain), sizes.eps, compute)

    def add(self, x: Tensor) -> Tensor:
        """Add the result of x (t, w) float32 to x, in place."""
        _, rows = self._norm(x)
        up = self._up(rows)
        return self._down.add(up if self._gate is None else self._gate.multiply(rows, up), x)


class T5EncoderLayer:
    """Self-attention and feed-forward part, each with a norm before it and a residual around it."""

    def __init__(self, state: State, name: str, sizes: T5Sizes, compute: Compute) -> None:
        gain = state[f"{name}0.layer_norm.weight"].detach().float()
        q, k, v = (state[f"{name}0.SelfAttention.{part}.weight"].detach().float() for part in "qkv")
        self.attention = attention(sizes.heads, len(q) // sizes.heads, compute)
        self._qkv = _linear(torch.cat([q * self.attention.fold, k, v]), compute, gain)
        self._mix = _linear(state[f"{name}0.SelfAttention.o.weight"], compute)
        self._feed = FeedForward(state, f"{name}1", sizes, compute)
        self._norm = root_mean_square_norm(len(gain), sizes.eps, compute)

    def __call__(self, x: Tensor, layout: RowLayout, bias: Bias | Tensor) -> Tensor:
        """Transform t tokens in place: (t, w) float32 -> (t, w) float32."""
        _, rows = self._norm(x)
        return self._feed.add(self._mix.add(self.attention(self._qkv(rows), layout, bias), x))


class FirstStepLayer:
    """A decoder layer at its first position, where self-attention can only look at itself."""

    def __init__(
        self, state: State, name: str, sizes: T5Sizes, encoder_gain: Tensor, compute: Compute
    ) -> None:
        def weight(part: str) -> Tensor:
            return state[f"{name}{part}.weight"].detach().float()

        compute, h = compute.unquantised, sizes.heads
        self._itself = _linear(
            weight("0.SelfAttention.o") @ weight("0.SelfAttention.v"),
            compute,
            weight("0.layer_norm"),
            few=True,
        )
        self._query = _linear(weight("1.EncDecAttention.q"), compute, weight("1.layer_norm"), few=True)
        key = (weight("1.EncDecAttention.k") * encoder_gain).view(h, -1, len(encoder_gain))
        value = (weight("1.EncDecAttention.v") * encoder_gain).view(*key.shape)
        self._key, self._value = PerHead(key.transpose(1, 2), compute), PerHead(value, compute)
        self._mix = _linear(weight("1.EncDecAttention.o"), compute, few=True)
        self._feed = FeedForward(state, f"{name}2", sizes, compute, few=True)
        self._norm = root_mean_square_norm(len(encoder_gain), sizes.eps, compute)
        self._heads = h

    def __call__(self, x: Tensor, encoded: Tensor, layout: RowLayout) -> Tensor:
        """Transform n first positions in place, reading (t, w): (n, w) float32 -> (n, w) float32."""
        x = self._itself.add(self._norm(x)[1], x)
        queries = self._query(self._norm(x)[1]).view(len(x), self._heads, -1)
        values = self._value(attend_once(self._key(queries), encoded, layout)).view(len(x), -1)
        return self._feed.add(self._mix.add(values, x))


class T5FirstStep:
    """Rows of ids -> what the decoder would say first."""

    def __init__(self, state: State, head: Tensor, start: int, sizes: T5Sizes, compute: Compute) -> None:
        inside = len(state["encoder.block.0.layer.0.SelfAttention.q.weight"])
        inner = state["encoder.block.0.layer.1.DenseReluDense.wo.weight"].shape[1]
        infer.require_int8(compute, "this T5", (head.shape[1], inside, inner, inside // sizes.heads))
        self._compute, self._sizes = compute, sizes
        self._words = state["shared.weight"].detach().float().to(compute.device)
        blocks = [_ENCODER_BLOCK.format(i) for i in range(sizes.encoder_layers)]
        self._layers = [T5EncoderLayer(state, name, sizes, compute) for name in blocks]
        table = state["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        self._bias = RelativeBias(
            table, inside // sizes.heads, sizes, self._layers[0].attention.fold, compute=compute
        )
        gain = state["encoder.final_layer_norm.weight"].detach().float()
        steps = [_DECODER_BLOCK.format(i) for i in range(sizes.decoder_layers)]
        self._steps = [FirstStepLayer(state, name, sizes, gain, compute=compute) for name in steps]
        self._start = self._words[start]
        scale = head.shape[1] ** -0.5 if sizes.scaled else 1.0
        last = state["decoder.final_layer_norm.weight"].detach().float()
        self._head = (head.detach().float() * last * scale).to(compute.device)

    def __call__(self, batch: Packed) -> Tensor:
        """Return the logits (n, c) float32 of the words asked for."""
        layout = RowLayout(batch.lengths, self._compute)
        encoded = self._encode(batch, layout)
        x = self._start.repeat(len(batch), 1)
        for step in self._steps:
            x = step(x, encoded, layout)
        return products(root_mean_square(x, self._sizes.eps), self._head)

    def _encode(self, batch: Packed, layout: RowLayout) -> Tensor:
        """Return the encoder's states before the last norm's gain, (t, w)."""
        x = F.embedding(batch.ids.values, self._words)
        bias = self._bias(layout)
        for layer in self._layers:
            x = layer(x, layout, bias)
        return root_mean_square(x, self._sizes.eps).to(self._compute.dtype)


def _linear(
    weight: Tensor,
    compute: Compute,
    gain: Tensor | None = None,
    activation: Activation = "none",
    few: bool = False,
) -> Product:
    """Make a layer without bias, behind a norm of this gain (in,)."""
    weight = weight.detach().float()
    return linear(weight if gain is None else weight * gain, None, compute, activation, few=few)
