"""The forward pass of decoders (Qwen2, Qwen3, Llama, Mistral, Gemma) over rows that lie end to end.

Architecture: Touvron et al., "LLaMA", 2023: norms before each half, rotary positions, gated feed-forward
parts; Ainslie et al., "GQA", 2023: several queries share a key; Qwen3 norms queries and keys. A token reads
what stands before it, so that the states of a beginning that all rows share, a prompt's, are computed once.
Shapes: n rows, t tokens of all rows together, w width, h heads, s heads of keys, d width of a head.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn.layers.attention import Group, RowLayout
from rankhouse.nn.layers.linear import Affine, linear, root_mean_square, root_mean_square_norm
from rankhouse.nn.layers.prenorm import (
    FeedForward,
    NamedWeights,
    NormAffine,
    Rotary,
    State,
    Turn,
    interleaved,
)
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Activation, Compute, require_int8

_QUERIES = 256  # of a row that attend at once, so that memory grows with the row's length only


@dataclass(frozen=True)
class DecoderSizes:
    """Sizes that the weights do not show."""

    layers: int  # how many
    heads: int  # h
    key_heads: int  # s
    eps: float  # added to mean squares
    activation: Activation  # of the feed-forward part
    rotary: Rotary  # positions
    gain_from: float = 0.0  # what is added to norms' gains (Gemma: 1)
    scale: float = 1.0  # what word vectors are multiplied by (Gemma: the root of w)


KeysValues = tuple[Tensor, Tensor]
"""Keys and values (s, p, d) of a layer for the p tokens of a beginning."""


class _DecoderWeights(NamedWeights):
    """Norms have a gain only, which may count from 1 (Gemma)."""

    def __init__(self, state: State, sizes: DecoderSizes) -> None:
        super().__init__(state, sizes.eps)
        self._gain_from = sizes.gain_from

    def gain(self, name: str) -> Tensor | None:
        """Return a norm's gain, or None where there is no such norm."""
        gain = self._state.get(f"{name}.weight")
        return None if gain is None else gain.detach().float() + self._gain_from

    def norm(self, name: str) -> NormAffine:
        """Return the norm before a half of a layer."""
        gain = self.gain(name)
        assert gain is not None
        return NormAffine(gain, None, self._eps)


class _Attention:
    """Queries, keys and values, attention to what stands before, mixing."""

    def __init__(self, weights: _DecoderWeights, name: str, sizes: DecoderSizes, compute: Compute) -> None:
        norm, own = weights.norm(f"{name}.input_layernorm"), f"{name}.self_attn"
        parts = [weights.affine(f"{own}.{part}_proj") for part in "qkv"]
        self._heads, self._keys, self._eps = sizes.heads, sizes.key_heads, sizes.eps
        self._d = len(parts[0][0]) // sizes.heads
        self._normed = [weights.gain(f"{own}.{part}_norm") for part in "qk"]
        self._qkv = linear(*norm.into(*self._beside(parts)), compute)
        self._mix = linear(*weights.affine(f"{own}.o_proj"), compute)
        self._norm = root_mean_square_norm(len(norm.gain), norm.eps, compute)
        self._gains = self._of_heads(compute)

    def _beside(self, parts: Sequence[Affine]) -> Affine:
        """Join the three products; queries take 1 / sqrt(d) along, unless they are normed."""
        scale = 1.0 if self._normed[0] is not None else self._d**-0.5
        heads = (self._heads, self._keys)

        def joined(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            return torch.cat([interleaved(q, heads[0]) * scale, interleaved(k, heads[1]), v])

        weights, biases = zip(*parts, strict=True)
        return joined(*weights), None if biases[0] is None else joined(*biases)

    def _of_heads(self, compute: Compute) -> Tensor | None:
        """Return the gains (h + s, d) of normed queries and keys, the queries' with 1 / sqrt(d)."""
        q, k = self._normed
        if q is None or k is None:
            return None
        rows = [interleaved(q, 1)[None] * self._d**-0.5] * self._heads + [
            interleaved(k, 1)[None]
        ] * self._keys
        return torch.cat(rows).to(compute.device)

    def add(self, x: Tensor, layout: RowLayout, turn: Turn, before: KeysValues | None) -> KeysValues:
        """Add the result of x (t, w) float32 to x, in place; return keys and values (s, t, d)."""
        qkv = self._qkv(self._norm(x)[1])
        turned = self._heads + self._keys
        if self._gains is not None:
            own = qkv[:, : turned * self._d]
            heads = own.reshape(-1, self._d).float()
            own.copy_((root_mean_square(heads, self._eps).view(len(x), turned, -1) * self._gains).flatten(1))
        parts = turn(qkv, turned).view(len(x), turned + self._keys, self._d)
        heard = qkv.new_empty(len(x), self._heads * self._d)
        for g in layout.groups:
            self._attend(g, parts, before, heard)
        self._mix.add(heard, x)
        both = parts[:, self._heads :].transpose(0, 1)
        return both[: self._keys], both[self._keys :]

    def _attend(self, g: Group, parts: Tensor, before: KeysValues | None, heard: Tensor) -> None:
        """Let a rectangle's tokens read themselves and what stands before them: into heard (t, h * d)."""
        n, length, shared = g.rows, g.length, self._heads // self._keys
        own = parts[g.start : g.start + g.tokens].view(n, length, -1, self._d).transpose(1, 2)
        q, k, v = own[:, : self._heads], own[:, self._heads : -self._keys], own[:, -self._keys :]
        if before is not None:
            k, v = (
                torch.cat([b.expand(n, -1, -1, -1), own], 2) for b, own in zip(before, (k, v), strict=True)
            )
        earlier = k.shape[2] - length
        k, v = (both.reshape(n * self._keys, -1, self._d) for both in (k, v))
        out = g.rectangle(heard).view(n, length, self._heads, self._d)
        for first in range(0, length, _QUERIES):
            last = min(first + _QUERIES, length)
            asked = q[:, :, first:last].reshape(n * self._keys, shared * (last - first), self._d)
            seen = earlier + last
            scores = torch.bmm(asked, k[:, :seen].transpose(1, 2)).float().view(-1, last - first, seen)
            place = torch.arange(seen, device=k.device)
            scores.masked_fill_(place > place[earlier + first : seen, None], -torch.inf)
            weights = torch.softmax(scores, -1).to(v.dtype).view(n * self._keys, -1, seen)
            some = torch.bmm(weights, v[:, :seen]).view(n, self._heads, last - first, self._d)
            out[:, first:last] = some.transpose(1, 2)


class Decoder:
    """Rows of ids -> states.

    Args:
        beginning: Ids that rows may begin with; :meth:`last` takes such rows without them.
    """

    def __init__(
        self, state: State, sizes: DecoderSizes, compute: Compute, beginning: Sequence[int] = ()
    ) -> None:
        weights = _DecoderWeights(state, sizes)
        words, gain = state["embed_tokens.weight"].detach(), weights.gain("norm")
        assert gain is not None
        inner, width = state["layers.0.mlp.up_proj.weight"].shape
        require_int8(compute, "this decoder", (width, inner))
        self._compute, self._sizes = compute, sizes
        self._words, self._gain = words.to(compute.device), gain.to(compute.device)
        names = [f"layers.{i}" for i in range(sizes.layers)]
        self._layers = [
            (_Attention(weights, name, sizes, compute), self._feed(weights, name)) for name in names
        ]
        self._before: list[KeysValues] = []
        if beginning:
            ids = torch.tensor(beginning, device=compute.device)
            layout, places = RowLayout(torch.tensor([len(ids)]), compute), torch.arange(len(ids))
            kept = self._through(ids, places.to(ids.device), layout, None)[1]
            self._before = [(k.contiguous(), v.contiguous()) for k, v in kept]

    def _feed(self, weights: _DecoderWeights, name: str) -> FeedForward:
        return FeedForward(
            weights.norm(f"{name}.post_attention_layernorm"),
            weights.affine(f"{name}.mlp.gate_proj"),
            weights.affine(f"{name}.mlp.up_proj"),
            weights.affine(f"{name}.mlp.down_proj"),
            compute=self._compute,
            activation=self._sizes.activation,
        )

    def hidden(self, batch: Packed) -> Tensor:
        """Return every token's last state, (t, w) float32, rows end to end."""
        return self._normed(self._states(batch, RowLayout(batch.lengths, self._compute)))

    def first(self, batch: Packed) -> Tensor:
        """Return the last state of every row's first token, (n, w) float32."""
        layout = RowLayout(batch.lengths, self._compute)
        return self._normed(self._states(batch, layout)[layout.ends[:-1]])

    def last(self, batch: Packed, *, begun: bool = False) -> Tensor:
        """Return the last state of every row's last token, (n, w) float32.

        Args:
            begun: Whether rows stand behind the beginning, without it.
        """
        layout = RowLayout(batch.lengths, self._compute)
        return self._normed(self._states(batch, layout, begun=begun)[layout.ends[1:] - 1])

    def _normed(self, x: Tensor) -> Tensor:
        return root_mean_square(x, self._sizes.eps) * self._gain

    def _states(self, batch: Packed, layout: RowLayout, *, begun: bool = False) -> Tensor:
        before = self._before if begun else None
        places = batch.ids.positions() + (before[0][0].shape[1] if before else 0)
        return self._through(batch.ids.values, places, layout, before)[0]

    def _through(
        self, ids: Tensor, places: Tensor, layout: RowLayout, before: Sequence[KeysValues] | None
    ) -> tuple[Tensor, list[KeysValues]]:
        """Return states before the last norm, and each layer's keys and values unless something is before."""
        x = F.embedding(ids, self._words).float() * self._sizes.scale
        turn = self._sizes.rotary.at(places)
        kept = []
        for number, (attention, feed) in enumerate(self._layers):
            keys_values = attention.add(x, layout, turn, before[number] if before else None)
            if not self._before:
                kept.append(keys_values)
            feed.add(x)
        return x, kept
