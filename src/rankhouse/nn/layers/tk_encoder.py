"""TK's encoder: sinusoids, small self-attention, two orders of its layers.

Paper: Hofstätter et al., TREC 2019, eq. 1-3. Where the paper and its code differ, the code's arithmetic is
here (docs/tk.md lists the places). Shapes: n texts, t tokens, d width, h heads.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.nn.cpu import train
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.linear import through
from rankhouse.nn.layers.ragged import Ragged

Order = Literal["ff-first", "attention-first"]
"""Order in a layer: feed-forward first (the paper) or attention first (the usual Transformer)."""


def sinusoids(length: int, width: int, device: torch.device | None = None) -> Tensor:
    """Return the positions 0 .. length - 1 as (length, width): all sines, then all cosines.

    Frequencies fall geometrically from 1 to 1e-4, both included; an odd width ends in a column of zeros.
    """
    half = width // 2
    step = math.log(1e4) / max(half - 1, 1)
    frequencies = torch.exp(torch.arange(half, dtype=torch.float32, device=device) * -step)
    angles = torch.arange(length, dtype=torch.float32, device=device)[:, None] * frequencies
    return F.pad(torch.cat([angles.sin(), angles.cos()], dim=1), (0, width % 2))


@lru_cache(maxsize=64)
def _first_sinusoids(length: int, width: int) -> Tensor:
    return sinusoids(length, width)


class OuterEpsNorm(nn.Module):
    """Layer norm with the small constant outside the root: weight (x - mean) / (std + 1e-6) + bias.

    std is the population's, over the last dimension. (..., d) -> (..., d).
    """

    def __init__(self, width: int, eps: float = 1e-6) -> None:
        super().__init__()
        self.weight, self.bias = nn.Parameter(torch.ones(width)), nn.Parameter(torch.zeros(width))
        self.eps = eps

    def forward(self, x: Tensor) -> Tensor:
        """Normalise (..., d), in the number type of the weights (autocast may give a shorter one)."""
        return cast(Tensor, _OuterEps.apply(x.to(self.weight.dtype), self.weight, self.bias, self.eps))  # type: ignore[no-untyped-call]  # torch's


class _OuterEps(torch.autograd.Function):
    """torch divides by the root of (variance + almost nothing); the rest is a factor, std / (std + eps).

    Going back the factor is taken as constant: off by 1e-6 / std, which no gradient notices.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, bias: Tensor, eps: float) -> Tensor:  # noqa: ANN401 - torch's context
        scaled, mean, inverse = torch.native_layer_norm(x, x.shape[-1:], None, None, 1e-30)
        factor = 1 / (1 + eps * inverse)
        ctx.save_for_backward(x, mean, inverse * factor, weight, bias)
        return torch.addcmul(bias, scaled.mul_(factor), weight)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        x, mean, inverse, weight, bias = ctx.saved_tensors
        need = list(ctx.needs_input_grad[:3])
        back = torch.ops.aten.native_layer_norm_backward
        given = (gradient.contiguous(), x, x.shape[-1:])
        return *back(*given, mean=mean, rstd=inverse, weight=weight, bias=bias, output_mask=need), None


class TKSelfAttention(nn.Module):
    """Multi-head self-attention, eq. 3, whose heads share ``inner`` columns in all; their number divides it.

    Scores are divided by the root of d // h, not of the head's own size, as the published code does.
    """

    def __init__(self, width: int, heads: int, inner: int) -> None:
        super().__init__()
        if heads < 1 or inner % heads:
            raise WrongUse(
                f"{heads} heads cannot share {inner} columns evenly; "
                "choose a number of heads that divides the attention width"
            )
        if width < heads:
            raise WrongUse(
                f"{heads} heads need words of {heads} numbers or more, not {width}; choose fewer heads"
            )
        self.heads, self.deep, self.scale = heads, inner // heads, (width // heads) ** -0.5
        self.project, self.out = nn.Linear(width, 3 * inner), nn.Linear(inner, width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """(n, t, d), additive key mask (n, 1, 1, t), 0 for words and -inf for padding -> (n, t, d)."""
        n, t, _ = x.shape
        queries, keys, values = through(self.project, x).view(n, t, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        mixed = F.scaled_dot_product_attention(queries, keys, values, attn_mask=bias, scale=self.scale)
        return through(self.out, mixed.transpose(1, 2).reshape(n, t, -1))


class TKEncoderLayer(nn.Module):
    """One Transformer layer, both parts with a residual and a norm after it, eq. 2."""

    def __init__(self, width: int, heads: int, inner: int, feed_forward: int, order: Order) -> None:
        super().__init__()
        self.order = order
        self.attention = TKSelfAttention(width, heads, inner)
        self.widen, self.narrow = nn.Linear(width, feed_forward), nn.Linear(feed_forward, width)
        norm: type[OuterEpsNorm | nn.LayerNorm] = OuterEpsNorm if order == "ff-first" else nn.LayerNorm
        self.norm_attention, self.norm_feed = norm(width), norm(width)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        """(n, t, d), additive key mask (n, 1, 1, t), 0 for words and -inf for padding -> (n, t, d)."""
        if self.order == "ff-first":
            return self._attend(self._feed(x), bias)
        return self._feed(self._attend(x, bias))

    def along(self, x: Tensor, ends: Tensor) -> Tensor:
        """The same in training, over tokens end to end: (t, d), where rows end (n + 1,) int64 -> (t, d)."""
        attention = self.attention
        head = train.Head(ends, attention.heads, attention.scale)
        attend = self._weights(attention.project, attention.out, self.norm_attention)
        feed = self._weights(self.widen, self.narrow, self.norm_feed)
        kind = train.NormKind(self.norm_feed.eps, outer=self.order == "ff-first")
        if self.order == "ff-first":
            return compiled.attend(compiled.feed(x, feed, kind), attend, kind, head)
        return compiled.feed(compiled.attend(x, attend, kind, head), feed, kind)

    def alone(self, x: Tensor) -> Tensor:
        """The same of one short text, without gradients: (t, d) -> (t, d)."""
        attention = self.attention
        kind = train.NormKind(self.norm_feed.eps, outer=self.order == "ff-first")
        attend = self._weights(attention.project, attention.out, self.norm_attention)
        feed = self._weights(self.widen, self.narrow, self.norm_feed)
        halves = [(feed, 0), (attend, attention.heads)]
        for weights, heads in halves if self.order == "ff-first" else reversed(halves):
            x = train.half_layer(x, weights, kind, heads, scale=attention.scale)
        return x

    @staticmethod
    def _weights(inward: nn.Linear, outward: nn.Linear, norm: OuterEpsNorm | nn.LayerNorm) -> train.Weights:
        return train.Weights(
            inward.weight, inward.bias, outward.weight, outward.bias, gain=norm.weight, shift=norm.bias
        )

    def _feed(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.norm_feed(through(self.narrow, through(self.widen, x).relu_()).add_(x)))

    def _attend(self, x: Tensor, bias: Tensor) -> Tensor:
        return cast(Tensor, self.norm_attention(self.attention(x, bias).add_(x)))


class TKEncoder(nn.Module):
    """Positions added, then ``layers`` layers: the context() of eq. 1.

    Args:
        inner: Columns that a layer's heads share; the paper's 16 heads of 32 are 16 heads sharing 32.

    Raises WrongUse: sizes that do not fit, or an unknown order.
    """

    def __init__(
        self, width: int, heads: int, inner: int, feed_forward: int, layers: int, order: Order
    ) -> None:
        super().__init__()
        if order not in {"ff-first", "attention-first"}:
            raise WrongUse(f'order="{order}" is not known; choose from: attention-first, ff-first')
        self.layers = nn.ModuleList(
            TKEncoderLayer(width, heads, inner, feed_forward, order=order) for _ in range(layers)
        )

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        """Put words (n, t, d) with mask (n, t), true for words, into context: (n, t, d).

        What padding positions hold afterwards means nothing. A text without any token attends to its padding,
        so that no row is ever divided by zero.
        """
        seen = mask.clone()
        seen[:, 0] |= ~mask.any(1)
        bias = torch.zeros_like(seen, dtype=x.dtype).masked_fill_(~seen, -1e30)[:, None, None, :]
        x = x + sinusoids(x.shape[1], x.shape[2], x.device)
        for layer in self.layers:
            x = layer(x, bias)
        return x

    def goes_along(self, words: Tensor) -> bool:
        """Return whether :meth:`along` can be had for words in these numbers now."""
        return train.fits(words) and all(
            isinstance(layer, TKEncoderLayer) and layer.attention.deep <= train.DEEPEST
            for layer in self.layers
        )

    def alone(self, words: Tensor) -> Tensor:
        """Put the words of one short text into context, without gradients: (t, d) -> (t, d)."""
        x = _first_sinusoids(len(words), words.shape[1]) + words
        for layer in self.layers:
            x = cast(TKEncoderLayer, layer).alone(x)
        return x

    def along(self, words: Tensor, rows: Ragged) -> Tensor:
        """Put words into context in training, rows end to end, no padding: (t, d) -> (t, d).

        Words behind the rows' last are computed too, and mean nothing; the rows' values are not looked at.
        """
        places = F.pad(rows.positions(), (0, len(words) - int(rows.lengths.sum())))
        longest = int(rows.lengths.max()) if len(rows) else 0
        x = sinusoids(max(1, longest), words.shape[1], words.device).index_select(0, places).add_(words)
        for layer in self.layers:
            x = cast(TKEncoderLayer, layer).along(x, rows.offsets)
        return x
