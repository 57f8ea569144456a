"""The forward pass of BERT and its kin over rows that lie end to end; no padding, no gradients.

Architecture: Devlin et al., "BERT", NAACL 2019; the same layers serve RoBERTa, XLM-R, CamemBERT, ELECTRA and
DistilBERT, and MPNet with a bias by distance. Numbers between layers stay in fp32, products are of the chosen
precision.
Shapes: n rows, t tokens of all rows together, w width, h heads, d = w / h.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from rankhouse.nn.layers.attention import Bias, RelativeBias, RowLayout, attend_once, attention
from rankhouse.nn.layers.linear import PerHead, Rows, feed, layer_norm, linear
from rankhouse.nn.layers.ragged import Packed
from rankhouse.nn.machine import Activation, Compute, require_int8

State = Mapping[str, Tensor]


@dataclass(frozen=True)
class PostNormSizes:
    """Sizes that the weights do not show."""

    layers: int  # how many
    heads: int  # h
    eps: float  # added to variances
    activation: Activation  # of the feed-forward part
    first_position: int = 0  # row of the position table that the first token takes (RoBERTa: 2)
    furthest: int = 0  # distance from which on all share a bias (MPNet); 0 for an encoder without


BERT_NAMES = {
    "query": "encoder.layer.{}.attention.self.query",
    "key": "encoder.layer.{}.attention.self.key",
    "value": "encoder.layer.{}.attention.self.value",
    "mix": "encoder.layer.{}.attention.output.dense",
    "norm1": "encoder.layer.{}.attention.output.LayerNorm",
    "up": "encoder.layer.{}.intermediate.dense",
    "down": "encoder.layer.{}.output.dense",
    "norm2": "encoder.layer.{}.output.LayerNorm",
}
MPNET_NAMES = BERT_NAMES | {
    "query": "encoder.layer.{}.attention.attn.q",
    "key": "encoder.layer.{}.attention.attn.k",
    "value": "encoder.layer.{}.attention.attn.v",
    "mix": "encoder.layer.{}.attention.attn.o",
    "norm1": "encoder.layer.{}.attention.LayerNorm",
}
DISTANCES = "encoder.relative_attention_bias.weight"  # MPNet's bias
DISTILBERT_NAMES = {
    "query": "transformer.layer.{}.attention.q_lin",
    "key": "transformer.layer.{}.attention.k_lin",
    "value": "transformer.layer.{}.attention.v_lin",
    "mix": "transformer.layer.{}.attention.out_lin",
    "norm1": "transformer.layer.{}.sa_layer_norm",
    "up": "transformer.layer.{}.ffn.lin1",
    "down": "transformer.layer.{}.ffn.lin2",
    "norm2": "transformer.layer.{}.output_layer_norm",
}


class Embeddings:
    """Words + positions + segments, normalised; ELECTRA then widens them. Always in fp32."""

    def __init__(self, state: State, sizes: PostNormSizes, compute: Compute) -> None:
        device = compute.device
        self._words = state["embeddings.word_embeddings.weight"].detach().float().to(device)
        places = state["embeddings.position_embeddings.weight"].detach().float().to(device)
        self._places = places[sizes.first_position :]
        kinds = state.get("embeddings.token_type_embeddings.weight")
        self._kinds = None if kinds is None else kinds.detach().float().to(device)
        gain, shift = state["embeddings.LayerNorm.weight"], state["embeddings.LayerNorm.bias"]
        widen = state.get("embeddings_project.weight")
        fp32 = compute.fp32
        self._widen = None if widen is None else linear(widen, state["embeddings_project.bias"], fp32)
        self._norm = layer_norm(gain, shift, sizes.eps, compute if widen is None else fp32)
        self._round = compute.dtype

    def __call__(self, batch: Packed, places: Tensor | None = None) -> tuple[Tensor, Rows]:
        """Look up t tokens: (t, w) float32, and as the first product reads them; places as in ``states``."""
        x = F.embedding(batch.ids.values, self._words)
        x += F.embedding(batch.ids.positions() if places is None else places, self._places)
        if self._kinds is not None and batch.segments is not None:
            x += F.embedding(batch.segments, self._kinds)
        elif self._kinds is not None:
            x += self._kinds[0]
        x, rows = self._norm(x)
        if self._widen is not None:
            x = self._widen(x)
            rows = x.to(self._round)
        return x, rows


class LayerWeights:
    """One layer's weights by the names of its parts."""

    def __init__(self, state: State, names: Mapping[str, str]) -> None:
        self.state, self.names = state, names

    def __call__(self, part: str) -> tuple[Tensor, Tensor]:
        """Return weight (out, in) and bias (out,) in fp32."""
        name = self.names[part]
        return self.state[f"{name}.weight"].detach().float(), self.state[f"{name}.bias"].detach().float()


class AfterAttention:
    """The part of a layer after its heads: mixing, residual, norm; feed-forward part, residual, norm."""

    def __init__(self, part: LayerWeights, sizes: PostNormSizes, compute: Compute, few: bool = False) -> None:
        self._mix = linear(*part("mix"), compute, few=few)
        self._up = linear(*part("up"), compute, sizes.activation, few, feeds=True)
        self._down = linear(*part("down"), compute, few=few)
        self._norms = [layer_norm(*part(n), sizes.eps, compute) for n in ("norm1", "norm2")]

    def __call__(self, x: Tensor, heard: Tensor) -> tuple[Tensor, Rows]:
        """Transform x (t, w) float32, given the heads' results (t, w), and round it for the next product.

        x may be changed in place.
        """
        x, rows = self._norms[0](self._mix.add(heard, x))
        return self._norms[1](feed(rows, self._up, self._down, x))


class Layer:
    """Self-attention and feed-forward part, each with a residual and a norm behind it."""

    def __init__(self, part: LayerWeights, sizes: PostNormSizes, compute: Compute) -> None:
        (wq, bq), (wk, bk), (wv, bv) = part("query"), part("key"), part("value")
        self._attend = attention(sizes.heads, len(wq) // sizes.heads, compute)
        self.fold = self._attend.fold
        scale = self.fold / math.sqrt(len(wq) // sizes.heads)
        self._qkv = linear(torch.cat([wq * scale, wk, wv]), torch.cat([bq * scale, bk, bv]), compute)
        self._after = AfterAttention(part, sizes, compute)

    def __call__(
        self, x: Tensor, rows: Rows, layout: RowLayout, bias: Bias | Tensor | None
    ) -> tuple[Tensor, Rows]:
        """Transform t tokens: x (t, w) float32 and as products read it -> the same."""
        return self._after(x, self._attend.to_product(self._qkv, rows, layout, bias))


class FirstTokenLayer:
    """The last layer where only each row's first token is asked for: a fraction of the full layer's work."""

    def __init__(self, part: LayerWeights, sizes: PostNormSizes, compute: Compute) -> None:
        (wq, bq), (wk, _), (wv, bv) = part("query"), part("key"), part("value")
        self._heads, self._dtype, d = sizes.heads, compute.dtype, len(wq) // sizes.heads
        plain = compute.unquantised
        self._query = linear(wq / math.sqrt(d), bq / math.sqrt(d), plain, few=True)
        # A key's bias adds the same to all scores of a row, so that it falls out of the softmax.
        self._key = PerHead(wk.view(sizes.heads, d, -1).transpose(1, 2), plain)
        self._value = PerHead(wv.view(sizes.heads, d, -1), plain)
        self._value_bias = bv.to(compute.device, compute.dtype)
        self._after = AfterAttention(part, sizes, compute, few=True)

    def __call__(self, x: Tensor, first: Tensor, layout: RowLayout) -> Tensor:
        """Transform the tokens ``first`` (n,), reading all: (t, w) float32 -> (n, w) float32."""
        own = x[first]
        queries = self._query(own.to(self._dtype)).view(len(first), self._heads, -1)
        heard = attend_once(self._key(queries), x.to(self._dtype), layout)
        values = self._value(heard).view(len(first), -1)
        return self._after(own, values + self._value_bias)[0]


class PostNormEncoder:
    """A whole BERT-like encoder; ``first_only`` makes it ready for :meth:`first`, else for :meth:`hidden`."""

    def __init__(
        self,
        state: State,
        names: Mapping[str, str],
        sizes: PostNormSizes,
        compute: Compute,
        *,
        first_only: bool,
    ) -> None:
        width, inner = (len(state[f"{names[part].format(0)}.weight"]) for part in ("query", "up"))
        require_int8(compute, "this encoder", (width, inner, width // sizes.heads))
        self._compute = compute
        self._embed = Embeddings(state, sizes, compute)
        parts = [
            LayerWeights(state, {part: name.format(i) for part, name in names.items()})
            for i in range(sizes.layers)
        ]
        last_alone = first_only and not sizes.furthest
        self._layers = [Layer(part, sizes, compute) for part in (parts[:-1] if last_alone else parts)]
        self._last = FirstTokenLayer(parts[-1], sizes, compute) if last_alone else None
        self._bias = None
        if sizes.furthest:
            fold, d = self._layers[0].fold, width // sizes.heads
            self._bias = RelativeBias(state[DISTANCES], d, sizes.furthest, fold, compute=compute)

    def hidden(self, batch: Packed) -> Tensor:
        """Return every token's last state, (t, w) float32, rows end to end."""
        return deque(self._through(batch, RowLayout(batch.lengths, self._compute)), 1).pop()

    def first(self, batch: Packed) -> Tensor:
        """Return the last state of every row's first token, (n, w) float32."""
        layout = RowLayout(batch.lengths, self._compute)
        x, first = deque(self._through(batch, layout), 1).pop(), layout.ends[:-1]
        return x[first] if self._last is None else self._last(x, first, layout)

    def states(self, batch: Packed, places: Tensor) -> Tensor:
        """Return embeddings and every layer's states of all tokens, (L + 1, t, w) float32, rows end to end.

        Args:
            places: (t,) int64, each token's position in its row, from 0; some may be left out.
        """
        layout = RowLayout(batch.lengths, self._compute)
        return torch.stack([x.clone() for x in self._through(batch, layout, places)])

    def _through(self, batch: Packed, layout: RowLayout, places: Tensor | None = None) -> Iterator[Tensor]:
        """Yield the embeddings and each layer's states, which the next layer may change in place."""
        x, rows = self._embed(batch, places)
        yield x
        bias = None if self._bias is None else self._bias(layout)
        for layer in self._layers:
            x, rows = layer(x, rows, layout, bias)
            yield x
