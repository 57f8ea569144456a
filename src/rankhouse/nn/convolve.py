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
    if torch.is_grad_enabled() and (products.requires_grad or scales.requires_grad):
        best = cast(Tensor, _ScaledMaxima.apply(products, scales, lengths))  # type: ignore[no-untyped-call]  # torch's
    else:
        best = _scaled_maxima(products, scales, lengths)
    return (best + bias).relu()


def _scaled_maxima(products: Tensor, scales: Tensor, lengths: Tensor) -> Tensor:
    """Maxima only, a few posts at a time, so that what is worked on stays in the processor's cache."""
    n, p, k, f = products.shape
    out = products.new_empty(n, scales.shape[1], f)
    step = max(1, _CHUNK_FLOATS // max(1, (p + k) * f))
    for start in range(0, n, step):
        rows = slice(start, start + step)
        part, beyond = products[rows], _no_place(lengths[rows], p + k - 1, k)[:, :, None]
        penalty = torch.zeros_like(beyond, dtype=part.dtype).masked_fill_(beyond, -torch.inf)
        places = part.new_empty(len(part), p + k - 1, f)
        for i in range(scales.shape[1]):
            places.copy_(penalty.expand_as(places))
            for r in range(k):
                inside = places[:, k - 1 - r : k - 1 - r + p]
                inside.addcmul_(part[:, :, r], scales[rows, i, :, None])
            torch.amax(places, 1, out=out[rows, i])
    return out


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
    if torch.is_grad_enabled():
        applied = _InjectedMaxima.apply(words, query, filters.weight, lengths)  # type: ignore[no-untyped-call]  # torch's
        best = cast(Tensor, applied)
    else:
        best, _ = _injected(words, query, filters.weight, lengths, remember=False)
    return (best + filters.bias).relu()


def injected_maxima_of_words(
    words: Tensor, at: Tensor, query: Tensor, filters: WideFilters, lengths: Tensor
) -> Tensor:
    """Do :func:`injected_maxima` for n posts and one query, each distinct word once: (n, q, f).

    Args:
        words: (u, d) the distinct words of all posts, padding (zeros) among them.
        at: (n, p) int64 which of them stands where.
        query: (q, d) the query's tokens.
        filters: The shared filters U.
        lengths: (n,) int64 true lengths of the posts.
    """
    f, k, _ = filters.weight.shape
    step = max(1, _CHUNK_FLOATS // max(1, at.shape[1] * k * f))
    out = words.new_empty(len(at), len(query), f)
    for i, token in enumerate(query):
        table = filters.products(words * token).flatten(1)
        for start in range(0, len(at), step):
            rows = slice(start, start + step)
            products = F.embedding(at[rows], table).view(-1, at.shape[1], k, f)
            out[rows, i] = pooled_products(products, filters.bias, lengths[rows])
    return out


def _injected(
    words: Tensor, query: Tensor, weight: Tensor, lengths: Tensor, remember: bool
) -> tuple[Tensor, Tensor]:
    """Give the maxima (n, q, f) and, if asked, the places (n, q, f) that won."""
    f, k, d = weight.shape
    n, p, _ = words.shape
    q = query.shape[1]
    flat = weight.permute(2, 1, 0).reshape(d, k * f)
    best = words.new_empty(n, q, f)
    winners = torch.zeros((n, q, f) if remember else (0, q, f), dtype=torch.int64, device=words.device)
    beyond = _no_place(lengths, p + k - 1, k)[:, :, None]
    for i in range(q):
        products = ((words * query[:, i, None]) @ flat).view(n, p, k, f)
        places = shift_and_add(products).masked_fill(beyond, -torch.inf)
        if remember:
            torch.max(places, dim=1, out=(best[:, i], winners[:, i]))
        else:
            best[:, i] = places.amax(1)
    return best, winners


class _InjectedMaxima(torch.autograd.Function):
    """Remembers which place won; going back, one query token's gradients are in memory at a time."""

    @staticmethod
    def forward(ctx: Any, words: Tensor, query: Tensor, weight: Tensor, lengths: Tensor) -> Tensor:  # noqa: ANN401
        best, winners = _injected(words, query, weight, lengths, remember=True)
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
