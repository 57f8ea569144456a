"""T5's encoder over rows that lie end to end, one step of its decoder, a few rows of its output layer.

Architecture: Raffel et al., "Exploring the Limits of Transfer Learning", JMLR 2020; 1.1 and mT5 gate the
feed-forward part. Norms have no shift, so that their gains are multiplied into the weights behind them. The
decoder's first step has one position: its self-attention is one product, and its cross-attention reads the
encoder's states themselves (see ``attention.attend_once``).
Shapes: n rows, t tokens of all rows together, w width, h heads, d width of a head, c words asked for.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.layers.attention import Bias, RelativeBias, RowLayout, attend_once, attention
from rankhouse.nn.layers.linear import (
    PerHead,
    Product,
    linear,
    products,
    root_mean_square,
    root_mean_square_norm,
)
from rankhouse.nn.layers.prenorm import FeedForward, NormAffine, SelfAttentionHalf, State
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Activation, Compute

_ENCODER_BLOCK, _DECODER_BLOCK = "encoder.block.{}.layer.", "decoder.block.{}.layer."


@dataclass(frozen=True)
class T5Sizes:
    """Sizes that the weights do not show."""

    encoder_layers: int  # how many
    decoder_layers: int  # how many
    heads: int  # h
    eps: float  # added to mean squares
    activation: Activation  # of the feed-forward parts
    furthest: int  # distance from which on all positions share a bucket
    scaled: bool  # whether decoder states are multiplied by w ** -0.5 before the output layer (T5 1.0)


def _feed(state: State, name: str, sizes: T5Sizes, compute: Compute, few: bool = False) -> FeedForward:
    """Make a feed-forward part, plain or gated."""
    inner = f"{name}.DenseReluDense"
    first = "wi" if f"{inner}.wi.weight" in state else "wi_0"
    gate = state.get(f"{inner}.wi_1.weight")
    return FeedForward(
        NormAffine(state[f"{name}.layer_norm.weight"], None, sizes.eps),
        (state[f"{inner}.{first}.weight"], None),
        None if gate is None else (gate, None),
        (state[f"{inner}.wo.weight"], None),
        compute=compute,
        activation=sizes.activation,
        few=few,
    )


class T5EncoderLayer:
    """Self-attention and feed-forward part, each with a norm before it and a residual around it."""

    def __init__(self, state: State, name: str, sizes: T5Sizes, compute: Compute) -> None:
        norm = NormAffine(state[f"{name}0.layer_norm.weight"], None, sizes.eps)
        q, k, v = (state[f"{name}0.SelfAttention.{part}.weight"].detach().float() for part in "qkv")
        self.attention = attention(sizes.heads, len(q) // sizes.heads, compute)
        qkv = torch.cat([q * self.attention.fold, k, v]), None
        mix = state[f"{name}0.SelfAttention.o.weight"], None
        self._attend = SelfAttentionHalf(norm, qkv, mix, self.attention, compute=compute)
        self._feed = _feed(state, f"{name}1", sizes, compute)

    def __call__(self, x: Tensor, layout: RowLayout, bias: Bias | Tensor) -> Tensor:
        """Transform t tokens in place: (t, w) float32 -> (t, w) float32."""
        return self._feed.add(self._attend.add(x, layout, bias))


class FirstStepLayer:
    """A decoder layer at its first position, where self-attention can only look at itself."""

    def __init__(
        self, state: State, name: str, sizes: T5Sizes, encoder_gain: Tensor, compute: Compute
    ) -> None:
        def weight(part: str) -> Tensor:
            return state[f"{name}{part}.weight"].detach().float()

        compute, h = compute.unquantised._replace(halved=True), sizes.heads
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
        self._feed = _feed(state, f"{name}2", sizes, compute, few=True)
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
        machine.require_int8(compute, "this T5", (head.shape[1], inside, inner, inside // sizes.heads))
        self._compute, self._sizes = compute, sizes
        self._words = state["shared.weight"].detach().float().to(compute.device)
        blocks = [_ENCODER_BLOCK.format(i) for i in range(sizes.encoder_layers)]
        self._layers = [T5EncoderLayer(state, name, sizes, compute) for name in blocks]
        table = state["encoder.block.0.layer.0.SelfAttention.relative_attention_bias.weight"]
        self._bias = RelativeBias(
            table, inside // sizes.heads, sizes.furthest, self._layers[0].attention.fold, compute=compute
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


def _linear(weight: Tensor, compute: Compute, gain: Tensor | None = None, few: bool = False) -> Product:
    """Make a layer without bias, behind a norm of this gain (in,)."""
    weight = weight.detach().float()
    return linear(weight if gain is None else weight * gain, None, compute, few=few)
