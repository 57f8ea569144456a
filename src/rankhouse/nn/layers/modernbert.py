"""The forward pass of ModernBERT over rows that lie end to end; no padding, no gradients.

Architecture: Warner et al., "Smarter, Better, Faster, Longer: A Modern Bidirectional Encoder", 2024: rotary
positions (Su et al., "RoFormer", 2021), gated feed-forward parts, layers that read within a window between
layers that read everything. The first layer reads the embeddings as they are.
Everything that writes to the residual has mean 0 here, so that root mean squares serve as layer norms.
Shapes: n rows, t tokens of all rows together, w width, h heads, d = w / h.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.cpu import infer, wide
from rankhouse.nn.layers.attention import RowLayout, attention
from rankhouse.nn.layers.linear import Affine, Rows, layer_norm, linear, root_mean_square_norm
from rankhouse.nn.layers.prenorm import (
    FeedForward,
    NamedWeights,
    Rotary,
    SelfAttentionHalf,
    State,
    Turn,
    centred,
    interleaved,
)
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Activation, Compute, require_int8


@dataclass(frozen=True)
class LayerKind:
    """Settings that layers of one kind share."""

    window: int | None  # how far a token reads; None: the whole row
    rotary: Rotary  # its positions


@dataclass(frozen=True)
class ModernSizes:
    """Sizes that the weights do not show."""

    kinds: tuple[LayerKind, ...]  # of each layer
    heads: int  # h
    eps: float  # added to variances
    activation: Activation  # of the feed-forward part


class _Projections(NamedTuple):
    """Queries, keys and values: weights (w, w) and biases (w,), laid out for :class:`Rotary`."""

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...] | None

    @classmethod
    def of(cls, whole: Affine, heads: int, fold: float = 1.0) -> _Projections:
        """Cut Wqkv in three; queries take ``fold`` / sqrt(d) along."""
        scale = fold / math.sqrt(len(whole[0]) // 3 // heads)

        def laid_out(rows: Tensor) -> tuple[Tensor, ...]:
            q, k, v = rows.chunk(3)
            return interleaved(q, heads) * scale, interleaved(k, heads), v

        return cls(laid_out(whole[0]), None if whole[1] is None else laid_out(whole[1]))

    def beside(self, first: int, last: int) -> Affine:
        """Return some of the three as one product."""
        biases = None if self.biases is None else torch.cat(self.biases[first:last])
        return torch.cat(self.weights[first:last]), biases


class _Layer:
    """Attention, then the gated feed-forward part."""

    def __init__(self, weights: NamedWeights, number: int, sizes: ModernSizes, compute: Compute) -> None:
        kind, name, self._heads = sizes.kinds[number], f"layers.{number}", sizes.heads
        whole = weights.affine(f"{name}.attn.Wqkv")
        attend = attention(sizes.heads, len(whole[0]) // 3 // sizes.heads, compute, kind.window)
        self._attend = SelfAttentionHalf(
            weights.norm(f"{name}.attn_norm") if number else None,
            _Projections.of(whole, sizes.heads, attend.fold).beside(0, 3),
            centred(*weights.affine(f"{name}.attn.Wo")),
            attend,
            compute=compute,
        )
        self._feed = _feed(weights, name, sizes, compute)

    def __call__(self, x: Tensor, layout: RowLayout, turn: Turn, rows: Rows | None) -> Tensor:
        """Transform t tokens in place: (t, w) float32 -> the same; ``rows`` for the first layer only."""
        heads = 2 * self._heads
        return self._feed.add(self._attend.add(x, layout, turn=lambda qkv: turn(qkv, heads), rows=rows))


def _feed(
    weights: NamedWeights, name: str, sizes: ModernSizes, compute: Compute, few: bool = False
) -> FeedForward:
    weight, bias = weights.affine(f"{name}.mlp.Wi")
    up, gate = weight.chunk(2)
    of_up, of_gate = (None, None) if bias is None else bias.chunk(2)
    return FeedForward(
        weights.norm(f"{name}.mlp_norm"),
        (up, of_up),
        (gate, of_gate),
        centred(*weights.affine(f"{name}.mlp.Wo")),
        compute=compute,
        activation=sizes.activation,
        few=few,
    )


class _FirstTokenLayer:
    """The last layer, where only first tokens are asked for: keys and values of all, the rest of these."""

    def __init__(self, weights: NamedWeights, number: int, sizes: ModernSizes, compute: Compute) -> None:
        name, norm = f"layers.{number}", weights.norm(f"layers.{number}.attn_norm")
        asked = _Projections.of(weights.affine(f"{name}.attn.Wqkv"), sizes.heads)
        self._heads, self._window = sizes.heads, sizes.kinds[number].window
        self._query = linear(*norm.into(*asked.beside(0, 1)), compute.unquantised, few=True)
        self._keys_values = linear(*norm.into(*asked.beside(1, 3)), compute)
        self._norm = root_mean_square_norm(len(norm.gain), norm.eps, compute)
        self._few_norm = root_mean_square_norm(len(norm.gain), norm.eps, compute.unquantised)
        self._mix = linear(*centred(*weights.affine(f"{name}.attn.Wo")), compute, few=True)
        self._feed = _feed(weights, name, sizes, compute, few=True)

    def __call__(self, x: Tensor, first: Tensor, layout: RowLayout, turn: Turn) -> Tensor:
        """Transform the tokens ``first`` (n,), reading all: (t, w) float32 -> (n, w) float32."""
        own = x[first]
        queries = turn(self._query(self._few_norm(own)[1]), self._heads, first)
        queries = queries.view(len(first), self._heads, -1)
        keys_values = turn(self._keys_values(self._norm(x)[1]), self._heads)
        most = None if self._window is None else self._window + 1
        is_fused = machine.fits_infer(layout.compute, queries.shape[2])
        if is_fused or machine.fits_wide(layout.compute, queries.shape[2]):
            attend_first = infer.attend_first if is_fused else wide.attend_first
            heard = attend_first(queries, keys_values, layout.ends, most)
            return self._feed.add(self._mix.add(heard.view(len(first), -1), own))
        queries = queries.float()[:, :, None]
        heard = torch.empty(len(first), queries.shape[1] * queries.shape[3], dtype=x.dtype, device=x.device)
        start = 0
        for g in layout.groups:
            read = g.length if self._window is None else min(g.length, self._window + 1)
            both = g.rectangle(keys_values)[:, :read].float().view(g.rows, read, 2, self._heads, -1)
            k, v = both.permute(2, 0, 3, 1, 4).reshape(2, g.rows * self._heads, read, -1).unbind(0)
            q = queries[start : start + g.rows].reshape(g.rows * self._heads, 1, -1)
            weights = torch.softmax(torch.bmm(q, k.transpose(1, 2)), -1)
            heard[start : start + g.rows] = torch.bmm(weights, v).view(g.rows, -1)
            start += g.rows
        return self._feed.add(self._mix.add(heard.to(keys_values.dtype), own))


class ModernEncoder:
    """A whole ModernBERT; ``first_only`` makes it ready for :meth:`first`, else for :meth:`hidden`."""

    def __init__(self, state: State, sizes: ModernSizes, compute: Compute, *, first_only: bool) -> None:
        weights, last = NamedWeights(state, sizes.eps), len(sizes.kinds) - 1
        words = state["embeddings.tok_embeddings.weight"].detach().float()
        inner = state["layers.0.mlp.Wo.weight"].shape[1]
        width = words.shape[1]
        require_int8(compute, "this ModernBERT", (width, inner, width // sizes.heads))
        self._compute, self._sizes = compute, sizes
        self._words = words.to(compute.device)
        norms = (weights.norm(name) for name in ("embeddings.norm", "final_norm"))
        self._embed, self._final = (
            layer_norm(n.gain, torch.zeros_like(n.gain) if n.shift is None else n.shift, n.eps, compute)
            for n in norms
        )
        split = first_only and last > 0
        self._layers = [_Layer(weights, i, sizes, compute) for i in range(last if split else last + 1)]
        self._last = _FirstTokenLayer(weights, last, sizes, compute) if split else None

    def hidden(self, batch: Packed) -> Tensor:
        """Return every token's last state, (t, w) float32, rows end to end."""
        return self._final(self._through(batch, RowLayout(batch.lengths, self._compute))[0])[0]

    def first(self, batch: Packed) -> Tensor:
        """Return the last state of every row's first token, (n, w) float32."""
        layout = RowLayout(batch.lengths, self._compute)
        x, turns = self._through(batch, layout)
        first = layout.ends[:-1]
        if self._last is not None:
            own = self._last(x, first, layout, turns[self._sizes.kinds[-1]])
        else:
            own = x[first]
        return self._final(own)[0]

    def _through(self, batch: Packed, layout: RowLayout) -> tuple[Tensor, dict[LayerKind, Turn]]:
        places = batch.ids.positions()
        turns = {kind: kind.rotary.at(places) for kind in dict.fromkeys(self._sizes.kinds)}
        x, rows = self._embed(F.embedding(batch.ids.values, self._words))
        x = x - x.mean(1, keepdim=True)
        for kind, layer in zip(self._sizes.kinds, self._layers, strict=False):
            x, rows = layer(x, layout, turns[kind], rows), None
        return x, turns
