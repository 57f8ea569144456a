"""Wide convolutions over words, max-pooled under masks, without repeating a text for every query token.

A filter of k words is k matrices: each word is multiplied once with each of them ("products"), and a place's
value is the sum of k neighbouring products. Attention that scales words then scales products, so a post is
multiplied once and not once per query token; and as posts repeat words, each distinct word of a batch is
multiplied once. Paper: Shi et al., NAACL 2019 (samCNN), eq. 1-4.
Shapes: n pairs, q query tokens, p passage tokens, d width, f filters, k filter length, u rows of products,
s sweeps over a text; o = p + k - 1 places.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.cpu import train, train_words
from rankhouse.nn.cpu.train_words import TextRows
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.linear import Linear, missing, products
from rankhouse.nn.machine import Compute, multiplies

_CHUNK_FLOATS = 1 << 20


class WideFilters(nn.Module):
    """f filters of k words: weight (f, k, d), bias (f,); started as PyTorch starts a convolution."""

    def __init__(self, width: int, filters: int, length: int) -> None:
        super().__init__()
        bound = (width * length) ** -0.5
        self.weight = nn.Parameter(torch.empty(filters, length, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(filters).uniform_(-bound, bound))

    def products(self, words: Tensor) -> Tensor:
        """Multiply words (..., d) with every filter row: (..., k, f)."""
        f, k, d = self.weight.shape
        if not torch.is_grad_enabled():
            by_place = self.weight.transpose(0, 1).reshape(k * f, d)
            return products(words.reshape(-1, d), by_place).view(*words.shape[:-1], k, f)
        flat = self.weight.permute(2, 1, 0).reshape(d, k * f)
        return torch.matmul(words, flat).view(*words.shape[:-1], k, f)

    def laid_out(self) -> Linear:
        """Return :meth:`products` as a layer whose weights are laid out once: (t, d) -> (t, k * f)."""
        by_place = self.weight.transpose(0, 1).flatten(0, 1)
        return Linear(by_place, None, Compute(device=by_place.device))

    def maxima(self, words: Tensor, index: Tensor, lengths: Tensor, scales: Tensor | None = None) -> Tensor:
        """Convolve texts and take ReLU and the maximum over their true places: (n, s, f).

        A text's own length + k - 1 places are true, so what stands beyond its end is never read. With
        ``scales`` (n, s, p) this is the position-aware attention of samCNN, eq. 2-4: ReLU(max over places of
        conv(words * scales[:, i, :, None])) for every sweep i. The query-aware one, eq. 1, has rows of words
        multiplied by query tokens, and a row of numbers for every query token.

        Args:
            words: (u, d) distinct words; row 0 is zero.
            index: (n, s, p) int64 rows of ``words``, 0 beyond a text's length; with scales s may be 1.
            lengths: (n,) int64 true lengths.
            scales: (n, s, p) what each word is multiplied by in each sweep; None for 1.
        """
        n, sweeps, p = index.shape
        if train.fits(words, self.weight) and (scales is None or sweeps == 1):
            texts = TextRows(index.reshape(-1, p), lengths.repeat_interleave(sweeps))
            best = compiled.sweep(words, self.weight, texts, scales)
            best = best if scales is not None else best.view(n, sweeps, -1)
        else:
            products = self.products(words).to(self.bias.dtype)  # autocast multiplies in a shorter one
            best = cast(Tensor, _Maxima.apply(products, index, lengths, scales))  # type: ignore[no-untyped-call]  # torch's
        return (best + self.bias).relu()

    def met(self, words: Tensor, query: Tensor, passage: Tensor, lengths: Tensor) -> Tensor:
        """Convolve each post once for every query token, its words multiplied by the token; eq. 1: (n, q, f).

        Args as in :meth:`maxima`, but for query (n, q) and passage (n, p) int64 rows of ``words``, 0 for
        padding.
        """
        n, q = query.shape
        if not train.fits(words, self.weight):
            return self.maxima(*_meetings(words, query, passage), lengths)
        at, column = torch.nonzero(query, as_tuple=True)  # padding meets nothing
        texts = TextRows(passage[at], lengths[at])
        maxima = compiled.sweep(words, self.weight, texts, left=query[at, column])[:, 0]
        nothing = self.bias.relu().expand(n, q, -1)
        return nothing.index_put((at, column), (maxima + self.bias).relu())


def _meetings(words: Tensor, query: Tensor, passage: Tensor) -> tuple[Tensor, Tensor]:
    """Multiply every query token with every word of its post, element by element.

    Gives (m, d) products of distinct pairs of words, row 0 zero, and (n, q, p) the rows of each pair.
    """
    said = passage[:, None, :]
    keys = (query[:, :, None] * len(words) + said) * (said > 0)
    distinct, index = torch.unique(F.pad(keys.flatten(), (1, 0)), return_inverse=True)
    left = torch.div(distinct, len(words), rounding_mode="floor")
    products = F.embedding(left, words) * F.embedding(distinct % len(words), words)
    return products, index[1:].view(keys.shape)


def _no_place(lengths: Tensor, places: int, k: int) -> Tensor:
    """(n, o) bool, true where a place is beyond a text's length + k - 1."""
    return torch.arange(places, device=lengths.device) >= (lengths + k - 1)[:, None]


def _sweep(
    products: Tensor, index: Tensor, lengths: Tensor, scales: Tensor | None, winners: Tensor | None = None
) -> Tensor:
    """Sum neighbouring products and take the maximum over true places: (n, s, f), -inf without any.

    Index (n, 1 or s, p), scales (n, s, p); the winning places are written into ``winners`` (n, s, f) int64.
    """
    _, k, f = products.shape
    flat, ends = products.view(-1, f), (k - 1, k - 1)
    n, sweeps, p = index.shape if scales is None else scales.shape
    best = flat.new_empty(n, sweeps, f)
    rows = F.pad(index, ends).unfold(2, k, 1) * k + torch.arange(k, device=index.device)  # (n, s, o, k)
    factors = None if scales is None else F.pad(scales, ends).unfold(2, k, 1)
    step = max(1, _CHUNK_FLOATS // ((p + k - 1) * f))
    for start in range(0, n, step):
        part = slice(start, start + step)
        beyond = _no_place(lengths[part], p + k - 1, k)[:, :, None]
        for i in range(sweeps):
            at = rows[part, min(i, index.shape[1] - 1)].reshape(-1, k)
            weights = None if factors is None else factors[part, i].reshape(-1, k)
            places = F.embedding_bag(at, flat, mode="sum", per_sample_weights=weights)
            places = places.view(-1, p + k - 1, f).masked_fill_(beyond, -torch.inf)
            if winners is None:
                best[part, i] = places.amax(1)
            else:
                best[part, i], winners[part, i] = places.max(1)
    return best


class _Maxima(torch.autograd.Function):
    """Remembers which place won; going back, only the words of winning places are touched."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, index: Tensor, lengths: Tensor, scales: Tensor | None) -> Tensor:  # noqa: ANN401 - torch's context
        n, sweeps, _ = index.shape if scales is None else scales.shape
        winners = index.new_empty(n, sweeps, products.shape[2])
        best = _sweep(products, index, lengths, scales, winners=winners)
        ctx.save_for_backward(products, index, winners, scales)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, Tensor | None]:  # noqa: ANN401
        products, index, winners, scales = ctx.saved_tensors
        _, k, f = products.shape
        n, sweeps, _ = winners.shape
        ends = (k - 1, k - 1)
        padded = F.pad(index, ends).expand(n, sweeps, -1)
        factors = None if scales is None else F.pad(scales, ends)
        to_products, to_factors = torch.zeros_like(products), None
        if factors is not None and ctx.needs_input_grad[3]:
            to_factors = torch.zeros_like(factors)
        for r in range(k):
            word = winners + r  # place i holds words i - k + 1 to i, and k - 1 zeros stand before the first
            row = padded.gather(2, word).view(-1, f)
            own = gradient if factors is None else gradient * factors.gather(2, word)
            to_products[:, r].scatter_add_(0, row, own.reshape(-1, f))
            if to_factors is not None:
                part = products[:, r].gather(0, row).view_as(gradient)
                to_factors.scatter_add_(2, word, gradient * part)
        to_scales = None if to_factors is None else to_factors[:, :, k - 1 : to_factors.shape[2] - k + 1]
        return to_products, None, None, to_scales


def following_sums(words: nn.Embedding, layer: nn.Conv1d, ids: Tensor) -> Tensor:
    """Convolve each word with those that follow it, zeros after the end: (n, p) -> (n, p, f); for scoring.

    Equals ``layer`` over the words padded on the right (number 0, a row of zeros), but multiplies each
    distinct word once.
    """
    f, d, k = layer.weight.shape
    distinct, at = torch.unique(F.pad(ids, (0, k)), return_inverse=True)  # padding is always among them
    table = products(words(distinct), layer.weight.permute(2, 0, 1).reshape(k * f, d))
    index = at[:, : ids.shape[1] + k - 1].unfold(1, k, 1) * k + torch.arange(k, device=ids.device)
    sums = F.embedding_bag(index.reshape(-1, k), table.view(-1, f), mode="sum")
    return sums.view(*ids.shape, f) + cast(Tensor, layer.bias)


def convolved(layer: nn.Conv1d, x: Tensor) -> Tensor:
    """Convolve each place with those that follow it, zeros after the end: (n, t, d) -> (n, t, f).

    Without gradients each place is a sum of k products in order, so that its bits depend on k places only.
    """
    f, d, k = layer.weight.shape
    if torch.is_grad_enabled():
        return cast(Tensor, layer(F.pad(x.transpose(1, 2), (0, k - 1))).transpose(1, 2))
    n, t, _ = x.shape
    parts = products(x.reshape(n * t, d), layer.weight.permute(2, 0, 1).reshape(k * f, d)).view(n, t, k, f)
    out = parts[:, :, 0] + cast(Tensor, layer.bias)
    for j in range(1, min(k, t)):
        out[:, : t - j] += parts[:, j:, j]
    return out


def over_matrices(layer: nn.Conv2d, x: Tensor) -> Tensor:
    """Convolve matrices: (n, 1, q, p) -> (n, f, q', p').

    oneDNN's convolution adds in one order with AVX-512 only. Elsewhere, without gradients, each window is a
    row of a product, whose bits depend on the window only.
    """
    if torch.is_grad_enabled() or machine.has_avx512() or not multiplies(x, layer.weight):
        return cast(Tensor, layer(x))
    f, _, height, width = layer.weight.shape
    down, across = cast("tuple[int, int]", layer.padding)
    windows = F.pad(x[:, 0], (across, across, down, down)).unfold(1, height, 1).unfold(2, width, 1)
    rows = windows.reshape(-1, height * width)
    return (
        products(rows, layer.weight.view(f, -1), layer.bias).view(*windows.shape[:3], f).permute(0, 3, 1, 2)
    )


class ProductTable:
    """Products of words with filters, each word's computed when it is first met: for scoring, not training.

    Args:
        words: (v, d) word vectors; row 0 (padding) is zero.
        factor: (d,) that every word is multiplied by first, as QAtt does; None for none.
        multiply: The filters laid out, where several tables share them; None: done here.

    Attributes:
        rows: How many rows take memory.
    """

    def __init__(
        self,
        words: Tensor,
        filters: WideFilters,
        factor: Tensor | None = None,
        multiply: Linear | None = None,
    ) -> None:
        f, k, _ = filters.weight.shape
        self.filters, self.factor, self._words = filters, factor, words
        self._multiply = multiply or filters.laid_out()
        # A processor's memory is only taken for rows that are written, an accelerator's for all.
        self._table = words.new_empty(len(words), k, f)
        self._known = torch.zeros(len(words), dtype=torch.bool, device=words.device)
        self._table[0], self._known[0] = 0, True  # padding also stands beyond both ends of a text
        self.rows = 1 if words.device.type == "cpu" else len(words)

    def maxima(self, ids: Tensor, lengths: Tensor, scales: Tensor | None = None) -> Tensor:
        """Convolve texts (n, p) and take ReLU and the maximum over true places: (n, q, f), or (n, 1, f).

        Numbers beyond a text's true length are 0; scales (n, q, p) are a factor for each word and query
        token.
        """
        self._learn(ids)
        n, sweeps = len(ids), 1 if scales is None else scales.shape[1]
        if train.fits(self._table):
            texts = TextRows(ids.contiguous(), lengths)
            scales = None if scales is None else scales.contiguous()
            best, _ = train_words.sweep(self._table.flatten(1), texts, self._table.shape[1], scales)
        else:
            best = _sweep(self._table, ids[:, None], lengths, scales)
        return (best.view(n, sweeps, self._table.shape[2]) + self.filters.bias).relu_()

    def _learn(self, ids: Tensor) -> None:
        """Compute the rows of words met for the first time."""
        distinct = torch.unique(ids)
        new = distinct[~self._known[distinct]]
        if len(new):
            words = self._words[F.pad(new, (0, missing(len(new))))]  # rows of zeros behind them
            products = self._multiply(words if self.factor is None else words.mul_(self.factor))
            self._table[new] = products[: len(new)].view(-1, *self._table.shape[1:])
            self._known[new] = True
            self.rows += len(new) if words.device.type == "cpu" else 0
