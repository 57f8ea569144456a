"""The words of a batch for samCNN: distinct ones while training, tables of products while scoring.

Shapes: n pairs, q query tokens, p post tokens, d width, u distinct words.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.nn.cpu import train
from rankhouse.nn.layers.convolve import ProductTable, WideFilters
from rankhouse.nn.layers.linear import Linear
from rankhouse.nn.layers.match import cosines, row_dots, unit, word_cosines
from rankhouse.nn.layers.ragged import TwoSided

_MOST_CACHED = 1 << 27  # floats


class DistinctWords:
    """The distinct words of a batch: whatever is computed word by word is computed once for each.

    Attributes:
        vectors: (u, d); row 0 is padding, zero, and so are the last ones.
    """

    def __init__(self, words: nn.Embedding, batch: TwoSided) -> None:
        zero = batch.query.values.new_zeros(1)
        self._ids = torch.unique(torch.cat([zero, batch.query.values, batch.passage.values]))
        filled = train.rounded(len(self._ids)) - len(self._ids)
        self.vectors: Tensor = words(F.pad(self._ids, (0, filled)))  # rows of zeros behind them

    @cached_property
    def _units(self) -> Tensor:
        return unit(self.vectors)

    def cosines(self, query: Tensor, passage: Tensor) -> Tensor:
        """Return the match matrix (n, q, p) of word numbers."""
        if train.fits(self.vectors):
            return row_dots(self._units, self.places(query), self.places(passage))
        query_vectors, passage_vectors = (
            F.embedding(self.places(ids), self.vectors) for ids in (query, passage)
        )
        return cosines(query_vectors, passage_vectors)

    def places(self, ids: Tensor) -> Tensor:
        """Return the rows of ``vectors`` where these words stand, of the same shape."""
        return torch.searchsorted(self._ids, ids)


class ProductCache:
    """Tables of products that scoring has made so far, up to a limit of floats."""

    def __init__(self, words: nn.Embedding) -> None:
        self.words, self.tables = words, dict[str | int, ProductTable]()
        self._laid_out: dict[WideFilters, Linear] = {}

    def cosines(self, query: Tensor, passage: Tensor) -> Tensor:
        """Return the match matrix (n, q, p) of word numbers."""
        return word_cosines(self.words, query, passage)

    def table(self, name: str | int, filters: WideFilters, factor: Tensor | None = None) -> ProductTable:
        """Return the table of this name, made if it is new.

        Args:
            factor: (d,) that every word is multiplied by first; None for none.
        """
        table = self.tables.get(name)  # several threads score: another one may add tables, or clear them
        if table is None:
            if filters not in self._laid_out:
                self._laid_out[filters] = filters.laid_out()
            shared = self._laid_out[filters]
            made = ProductTable(self.words.weight.detach(), filters, factor, shared)
            table = self.tables.setdefault(name, made)
        return table

    def shrink(self) -> None:
        """Forget everything once it takes more than the limit; it is computed again as needed."""
        floats = sum(t.rows * t.filters.weight[:, :, 0].numel() for t in list(self.tables.values()))
        if floats > _MOST_CACHED:
            self.tables.clear()
