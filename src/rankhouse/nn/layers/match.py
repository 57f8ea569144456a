"""Match matrices: products and cosines of all word pairs of a query and a passage.

Papers: Xiong et al., SIGIR 2017 (KNRM); Hofstätter et al., TREC 2019 (TK, eq. 4).
Shapes: n pairs, q query tokens, p passage tokens, d width, u distinct words.
"""

from __future__ import annotations

from itertools import pairwise
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from rankhouse.nn import machine
from rankhouse.nn.cpu import train
from rankhouse.nn.cpu.train_words import TextRows
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.linear import multiply, products, query_sums
from rankhouse.nn.machine import multiplies

NORM_EPS = 1e-13
"""Added to a vector's length before dividing; a zero vector then matches nothing, with similarity 0."""


def unit(vectors: Tensor) -> Tensor:
    """Scale vectors (..., d) to length 1; a zero vector stays zero."""
    if torch.is_grad_enabled() and vectors.requires_grad:
        return cast(Tensor, _Unit.apply(vectors))  # type: ignore[no-untyped-call]  # torch's
    length: Tensor = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True)
    return vectors / (length + NORM_EPS)


class _Unit(torch.autograd.Function):
    """Going back takes three walks over the vectors, where the parts on their own take eight."""

    @staticmethod
    def forward(ctx: Any, vectors: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        inverse = (torch.linalg.vector_norm(vectors, dim=-1, keepdim=True) + NORM_EPS).reciprocal_()
        scaled: Tensor = vectors * inverse
        ctx.save_for_backward(scaled, inverse)
        return scaled

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> Tensor:  # noqa: ANN401
        scaled, inverse = ctx.saved_tensors
        along = torch.linalg.vecdot(gradient, scaled).unsqueeze(-1)
        across: Tensor = torch.addcmul(gradient, scaled, along, value=-1).mul_(inverse)
        return across


def dots(query: Tensor, passage: Tensor) -> Tensor:
    """Return all products (n, q, p) of query (n, q, d) and passage (n, p, d)."""
    if not torch.is_grad_enabled() and multiplies(query, passage):
        return _dots_by_query(query, passage)
    return cast(Tensor, _Dots.apply(query, passage))  # type: ignore[no-untyped-call]  # torch's


def _dots_by_query(query: Tensor, passage: Tensor) -> Tensor:
    """Multiply all passages of neighbours with one query at once; each number has the same bits anyhow."""
    n, q, d = query.shape
    if train.fits(query) and machine.TRAIN_SET == "AVX-512":  # elsewhere oneDNN's products are quicker
        table = torch.cat([query.reshape(-1, d), passage.reshape(-1, d)])
        query_at, passage_at = torch.split(torch.arange(len(table)), [n * q, len(table) - n * q])
        return row_dots(table, query_at.view(n, q), passage_at.view(n, -1))
    out = query.new_empty(n, passage.shape[1], q)
    other = (query[1:] != query[:-1]).flatten(1).any(1).nonzero().flatten() + 1
    for start, end in pairwise([0, *other.tolist(), n]):
        block = multiply(passage[start:end].reshape(-1, d), query[start].contiguous())
        out[start:end] = block.view(end - start, -1, q)
    return out.transpose(1, 2).contiguous()


class _Dots(torch.autograd.Function):
    """Gradients are made in the layout that they are wanted in; torch's own are copied into it."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, passage: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        ctx.save_for_backward(query, passage)
        match: Tensor = query @ passage.transpose(1, 2)
        return match

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        query, passage = ctx.saved_tensors
        gradient = gradient.to(query.dtype)
        return gradient @ passage, gradient.transpose(1, 2) @ query


def cosines(query: Tensor, passage: Tensor) -> Tensor:
    """Return the match matrix (n, q, p) of cosines of query (n, q, d) and passage (n, p, d); TK's eq. 4.

    Products are divided by both lengths afterwards, which leaves the wide side (n, p, d) untouched.
    """
    if torch.is_grad_enabled() and (query.requires_grad or passage.requires_grad):
        return cast(Tensor, _Cosines.apply(query, passage))  # type: ignore[no-untyped-call]  # torch's
    return _over_lengths(dots(query, passage), query, passage)[0]


def _over_lengths(match: Tensor, query: Tensor, passage: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Divide products (n, q, p) by lengths: the matrix, and one over all lengths, (n, q, 1) and (n, 1, p)."""
    query_scale = (torch.linalg.vector_norm(query, dim=2) + NORM_EPS).reciprocal_().unsqueeze(2)
    passage_scale = (torch.linalg.vector_norm(passage, dim=2) + NORM_EPS).reciprocal_().unsqueeze(1)
    return match * query_scale * passage_scale, query_scale, passage_scale


class _Cosines(torch.autograd.Function):
    """Going back, each side is walked over twice: a product, and what lies along the vector itself."""

    @staticmethod
    def forward(ctx: Any, query: Tensor, passage: Tensor) -> Tensor:  # noqa: ANN401 - torch's context
        with torch.autocast(query.device.type, enabled=False):
            query32, passage32 = query.float(), passage.float()
            match, query_scale, passage_scale = _over_lengths(
                query32 @ passage32.transpose(1, 2), query32, passage32
            )
        ctx.save_for_backward(query, passage, match, query_scale, passage_scale)
        return match

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor]:  # noqa: ANN401
        query, passage, match, query_scale, passage_scale = ctx.saved_tensors
        query, passage = query.float(), passage.float()
        products = gradient * query_scale * passage_scale
        shared = gradient * match
        to_query, to_passage = products @ passage, products.transpose(1, 2) @ query
        to_query.addcmul_(query, shared.sum(2, keepdim=True) * query_scale.square(), value=-1)
        to_passage.addcmul_(
            passage, (shared.sum(1, keepdim=True) * passage_scale.square()).transpose(1, 2), value=-1
        )
        return to_query, to_passage


def word_cosines(
    words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype = torch.float32
) -> Tensor:
    """Return the match matrix (n, q, p) of plain word vectors, by word numbers (n, q) and (n, p).

    Reranking meets the same words again and again: every distinct query word is matched with every distinct
    passage word once, and the matrix is looked up; query by query where the table would be too large. Row 0
    of the words (padding) is zero.
    """
    if torch.is_grad_enabled():
        return _learned_cosines(words, query, passage, dtype)
    query_words, query_at = torch.unique(query, return_inverse=True)
    passage_words, passage_at = torch.unique(passage, return_inverse=True)
    if len(query_words) * len(passage_words) > 2 * query.shape[1] * passage.numel():
        return _cosines_by_query(words, query, passage, dtype)
    known = products(unit(words(passage_words).to(dtype)), unit(words(query_words).to(dtype))).T
    return known[query_at[:, :, None], passage_at[:, None, :]]


def _cosines_by_query(words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype) -> Tensor:
    """Return the same with a table for each distinct query: never more products than pairs of words."""
    queries, which = torch.unique(query, dim=0, return_inverse=True)
    out = words.weight.new_empty(*query.shape, passage.shape[1], dtype=dtype)
    for i in range(len(queries)):
        at = (which == i).nonzero().flatten()
        out[at] = word_cosines(words, query[at], passage[at], dtype)
    return out


def _learned_cosines(words: nn.Embedding, query: Tensor, passage: Tensor, dtype: torch.dtype) -> Tensor:
    """In training: each distinct word is scaled to length 1 once, and so is its gradient."""
    distinct, at = torch.unique(torch.cat([query.flatten(), passage.flatten()]), return_inverse=True)
    table = unit(words(distinct).to(dtype))
    if train.fits(table):
        parts = at.split([query.numel(), passage.numel()])
        return row_dots(
            table, *(rows.view(ids.shape) for rows, ids in zip(parts, (query, passage), strict=True))
        )
    # index_select and not table[...]: going back, it adds up rows several times as fast
    query_vectors, passage_vectors = (
        table.index_select(0, rows).view(*ids.shape, -1)
        for rows, ids in zip(at.split([query.numel(), passage.numel()]), (query, passage), strict=True)
    )
    return dots(query_vectors, passage_vectors)


def row_dots(table: Tensor, query: Tensor, passage: Tensor) -> Tensor:
    """Return all products (n, q, p) of rows (n, q) and (n, p) of a table (u, d); see ``train.fits``."""
    n, q, p = *query.shape, passage.shape[1]
    return compiled.match(table, TextRows(query, torch.full((n,), q)), TextRows(passage, torch.full((n,), p)))


def shares(values: Tensor, mask: Tensor) -> Tensor:
    """Spread 1 over each query's words by the softmax of values (n, q): (n, q), 0 where mask is false."""
    values = values.masked_fill(~mask, -1e30)
    if torch.is_grad_enabled():
        return values.softmax(1) * mask
    weights = (values - values.amax(1, keepdim=True)).exp() * mask
    return weights / query_sums(weights).clamp_min(1e-30).unsqueeze(1)
