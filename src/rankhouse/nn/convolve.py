"""Wide convolutions over words, max-pooled under masks, without repeating a text for every query token.

A filter of k words is k matrices: each word is multiplied once with each of them ("products"), and a place's
value is the sum of k neighbouring products. Attention that scales words then scales products, so a post is
multiplied once and not once per query token. Paper: Shi et al., NAACL 2019 workshop line (samCNN), eq. 1-4.
Shapes: n pairs, q query tokens, p passage tokens, d width, f filters, k filter length; o = p + k - 1 places.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

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
        flat = self.weight.permute(2, 1, 0).reshape(d, k * f)
        return torch.matmul(words, flat).view(*words.shape[:-1], k, f)

    def pooled(self, words: Tensor, lengths: Tensor) -> Tensor:
        """Convolve words (n, p, d) and take ReLU and the maximum over the true places: (n, f).

        Args:
            words: Word vectors; those beyond a text's length are zero.
            lengths: (n,) int64 true lengths; a text has its length + k - 1 places.
        """
        return pooled_products(self.products(words), self.bias, lengths)


def shift_and_add(products: Tensor) -> Tensor:
    """Sum neighbouring products: (n, p, k, f) -> (n, o, f), all places where a filter touches the text."""
    n, p, k, f = products.shape
    if k == 1:
        return products[:, :, 0]
    places = products.new_zeros(n, p + k - 1, f)
    for r in range(k):
        places[:, k - 1 - r : k - 1 - r + p] += products[:, :, r]
    return places


def _no_place(lengths: Tensor, places: int, k: int) -> Tensor:
    """(n, o) bool, true where a place is beyond a text's length + k - 1."""
    return torch.arange(places, device=lengths.device) >= (lengths + k - 1)[:, None]


def pooled_products(products: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
    """Sum neighbouring products and take ReLU and the maximum over the true places: (n, f).

    Args:
        products: (n, p, k, f), zero beyond a text's length.
        bias: (f,).
        lengths: (n,) int64 true lengths.
    """
    places = shift_and_add(products)
    beyond = _no_place(lengths, places.shape[1], products.shape[2])[:, :, None]
    return (places.masked_fill(beyond, -torch.inf).amax(1) + bias).relu()


def scaled_maxima(products: Tensor, scales: Tensor, bias: Tensor, lengths: Tensor) -> Tensor:
    """Convolve a post once for all query tokens, each scaling the post's words in its own way: (n, q, f).

    Equals, for every query token i, ReLU(max over places of conv(words * scales[:, i, :, None])): the
    position-aware attention of samCNN, eq. 2-4.

    Args:
        products: (n, p, k, f) from :meth:`WideFilters.products`; zero beyond a text's length.
        scales: (n, q, p) cosine of each query token with each word.
        bias: (f,).
        lengths: (n,) int64 true lengths of the posts.
    """
    best = cast(Tensor, _ScaledMaxima.apply(products, scales, lengths))  # type: ignore[no-untyped-call]  # torch's
    return (best + bias).relu()


class _ScaledMaxima(torch.autograd.Function):
    """Remembers which place won; going back, only winners are touched."""

    @staticmethod
    def forward(ctx: Any, products: Tensor, scales: Tensor, lengths: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        n, p, k, f = products.shape
        q = scales.shape[1]
        best = products.new_empty(n, q, f)
        winners = torch.empty(n, q, f, dtype=torch.int64, device=products.device)
        beyond = _no_place(lengths, p + k - 1, k)[:, :, None]
        for i in range(q):
            places = shift_and_add(products * scales[:, i, :, None, None]).masked_fill_(beyond, -torch.inf)
            torch.max(places, dim=1, out=(best[:, i], winners[:, i]))
        ctx.save_for_backward(products, scales, winners)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, None]:  # noqa: ANN401
        products, scales, winners = ctx.saved_tensors
        _, p, k, _ = products.shape
        to_products, to_scales = torch.zeros_like(products), torch.zeros_like(scales)
        for r in range(k):
            j = winners - (k - 1) + r  # (n, q, f): the word whose product r took part in the winning place
            inside = (j >= 0) & (j < p)
            j = j.clamp(0, max(p - 1, 0))
            own = torch.where(inside, gradient, 0)
            part = products[:, :, r]
            to_products[:, :, r].scatter_add_(1, j, own * scales.gather(2, j))
            to_scales.scatter_add_(2, j, own * part.gather(1, j))
        return to_products, to_scales, None


def injected_maxima(words: Tensor, query: Tensor, filters: WideFilters, lengths: Tensor) -> Tensor:
    """Convolve a post with filters that every query token multiplies element by element: (n, q, f).

    Equals, for every query token i, ReLU(max over places of conv(words * query[:, i, None, :])): the
    query-aware attention of samCNN, eq. 1.

    Args:
        words: (n, p, d) the posts' words, zero beyond a text's length.
        query: (n, q, d) the query tokens.
        filters: The shared filters U.
        lengths: (n,) int64 true lengths of the posts.
    """
    applied = _InjectedMaxima.apply(words, query, filters.weight, lengths)  # type: ignore[no-untyped-call]  # torch's
    return (cast(Tensor, applied) + filters.bias).relu()


def following_sums(words: nn.Embedding, layer: nn.Conv1d, ids: Tensor) -> Tensor:
    """Convolve each word with those that follow it, zeros after the end: (n, p, f); for scoring.

    Equals ``layer`` over the words padded on the right, but multiplies each distinct word once.

    Args:
        words: Word vectors; row 0 (padding) is zero.
        layer: Weight (f, d, k) and bias (f,).
        ids: (n, p) int64 word numbers, 0 beyond a text's length.
    """
    f, d, k = layer.weight.shape
    distinct, at = torch.unique(F.pad(ids, (0, k)), return_inverse=True)  # padding is always among them
    table = words(distinct) @ layer.weight.permute(1, 2, 0).reshape(d, k * f)
    index = at[:, : ids.shape[1] + k - 1].unfold(1, k, 1) * k + torch.arange(k, device=ids.device)
    sums = F.embedding_bag(index.reshape(-1, k), table.view(-1, f), mode="sum")
    return sums.view(*ids.shape, f) + cast(Tensor, layer.bias)


class ProductTable:
    """Products of words with filters, each word's computed when it is first met: for scoring, not training.

    Args:
        words: (v, d) word vectors; row 0 (padding) is zero.
        filters: The filters.
        factor: (d,) that every word is multiplied by first, as QAtt does; None for none.

    Attributes:
        rows: How many rows take memory.
    """

    def __init__(self, words: Tensor, filters: WideFilters, factor: Tensor | None = None) -> None:
        f, k, _ = filters.weight.shape
        self.filters, self.factor, self._words = filters, factor, words
        # A processor's memory is only taken for rows that are written, an accelerator's for all.
        self._table = words.new_empty(len(words), k, f)
        self._known = torch.zeros(len(words), dtype=torch.bool, device=words.device)
        self._table[0], self._known[0] = 0, True  # padding also stands beyond both ends of a text
        self.rows = 1 if words.device.type == "cpu" else len(words)

    def maxima(self, ids: Tensor, lengths: Tensor, scales: Tensor | None = None) -> Tensor:
        """Convolve texts and take ReLU and the maximum over true places: (n, q, f), or (n, 1, f).

        Args:
            ids: (n, p) int64 word numbers, 0 beyond a text's length.
            lengths: (n,) int64 true lengths.
            scales: (n, q, p) a factor for each word and query token; None for one sweep without any.
        """
        self._learn(ids)
        f, k, _ = self.filters.weight.shape
        flat = self._table.view(-1, f)
        (n, p), sweeps = ids.shape, 1 if scales is None else scales.shape[1]
        out = flat.new_empty(n, sweeps, f)
        ends = (k - 1, k - 1)
        index = F.pad(ids, ends).unfold(1, k, 1) * k + torch.arange(k, device=ids.device)
        step = max(1, _CHUNK_FLOATS // max(1, (p + k - 1) * f))
        for start in range(0, n, step):
            rows = slice(start, start + step)
            part = index[rows].reshape(-1, k)
            beyond = _no_place(lengths[rows], p + k - 1, k)[:, :, None]
            for i in range(sweeps):
                weights = None
                if scales is not None:
                    weights = F.pad(scales[rows, i], ends).unfold(1, k, 1).reshape(-1, k)
                places = F.embedding_bag(part, flat, mode="sum", per_sample_weights=weights)
                places = places.view(-1, p + k - 1, f).masked_fill_(beyond, -torch.inf)
                out[rows, i] = places.amax(1)
        return (out + self.filters.bias).relu_()

    def _learn(self, ids: Tensor) -> None:
        """Compute the rows of words met for the first time."""
        distinct = torch.unique(ids)
        new = distinct[~self._known[distinct]]
        if len(new):
            words = self._words[new] if self.factor is None else self._words[new] * self.factor
            self._table[new] = self.filters.products(words)
            self._known[new] = True
            self.rows += len(new) if words.device.type == "cpu" else 0


class _InjectedMaxima(torch.autograd.Function):
    """Remembers which place won; going back, one query token's gradients are in memory at a time."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, query: Tensor, weight: Tensor, lengths: Tensor) -> Tensor:  # noqa: ANN401
        f, k, d = weight.shape
        n, p, _ = words.shape
        q = query.shape[1]
        flat = weight.permute(2, 1, 0).reshape(d, k * f)
        best = words.new_empty(n, q, f)
        winners = torch.empty(n, q, f, dtype=torch.int64, device=words.device)
        beyond = _no_place(lengths, p + k - 1, k)[:, :, None]
        for i in range(q):
            products = ((words * query[:, i, None]) @ flat).view(n, p, k, f)
            places = shift_and_add(products).masked_fill_(beyond, -torch.inf)
            torch.max(places, dim=1, out=(best[:, i], winners[:, i]))
        ctx.save_for_backward(words, query, weight, winners)
        return best

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor, None]:  # noqa: ANN401
        words, query, weight, winners = ctx.saved_tensors
        f, k, d = weight.shape
        n, p, _ = words.shape
        flat = weight.permute(2, 1, 0).reshape(d, k * f)
        to_words, to_query = torch.zeros_like(words), torch.zeros_like(query)
        to_flat = torch.zeros_like(flat)
        for i in range(query.shape[1]):
            places = words.new_zeros(n, p + k - 1, f)
            places.scatter_(1, winners[:, i, None], gradient[:, i, None])
            products = torch.cat([places[:, k - 1 - r : k - 1 - r + p] for r in range(k)], dim=2)
            to_scaled = products @ flat.T
            to_words.addcmul_(to_scaled, query[:, i, None])
            to_query[:, i] = (to_scaled * words).sum(1)
            scaled = (words * query[:, i, None]).view(n * p, d)
            to_flat += scaled.T @ products.view(n * p, k * f)
        return to_words, to_query, to_flat.view(d, k, f).permute(2, 1, 0), None
