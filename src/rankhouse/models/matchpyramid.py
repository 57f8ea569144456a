"""MatchPyramid: the match matrix read as a picture: convolution, pooling to a fixed grid, a small network.

Paper: Pang et al., "A Study of MatchPyramid Models on Ad-hoc Retrieval", 2016, sec. 2 (one convolution,
dynamic pooling to a grid, dense layers). Deviation: pictures of different size share a batch, each pooled by
its own true size; where a text has fewer words than the grid has cells, cells share words.
Shapes: n pairs, q query tokens, p passage tokens, d width, f filters, r x c grid.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import Evidence, WordDesign, WordModel, WordReader, embedding
from rankhouse.nn.layers.convolve import over_matrices
from rankhouse.nn.layers.linear import through
from rankhouse.nn.layers.match import dots, word_cosines
from rankhouse.nn.layers.ragged import TwoSided


@dataclass(frozen=True)
class MatchPyramidDesign(WordDesign):
    """Settings of ``matchpyramid(...)``.

    Attributes:
        similarity: "cosine", "dot" or "indicator" (1 for equal words, the paper's simplest picture).
        filters: f.
        square: Height and width of a filter, odd.
        rows: r, cells along the query.
        columns: c, cells along the passage.
        hidden: Size of the hidden layer.
    """

    passage_length: int = 500
    similarity: str = "cosine"
    filters: int = 8
    square: int = 3
    rows: int = 3
    columns: int = 10
    hidden: int = 32

    def __post_init__(self) -> None:
        """Refuse an unknown similarity and sizes that make no picture."""
        super().__post_init__()
        if self.similarity not in {"cosine", "dot", "indicator"}:
            raise WrongUse(
                f'similarity="{self.similarity}" is not known; choose from: cosine, dot, indicator'
            )
        check_least(self, 1, "filters", "square", "rows", "columns", "hidden")
        if self.square % 2 == 0:
            raise WrongUse(f"square={self.square}: must be odd, so that a filter has a middle")


class MatchPyramid(WordModel):
    """The model; see the head of this file."""

    family = "matchpyramid"
    designed_by = MatchPyramidDesign
    design: MatchPyramidDesign

    def __init__(self, design: MatchPyramidDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        self.embedding = embedding(table)
        self.picture = nn.Conv2d(1, design.filters, design.square, padding=design.square // 2)
        self.hidden = nn.Linear(design.filters * design.rows * design.columns, design.hidden)
        self.out = nn.Linear(design.hidden, 1)

    def match(self, batch: TwoSided) -> Tensor:
        """Return the similarities of all word pairs, (n, q, p); zero for padding."""
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        if self.design.similarity == "indicator":
            same = (query[:, :, None] == passage[:, None, :]) & (query != 0)[:, :, None]
            return same.to(self.out.weight.dtype)
        if self.design.similarity == "dot":
            return dots(self.embedding(query), self.embedding(passage))
        return word_cosines(self.embedding, query, passage)

    def grid(self, batch: TwoSided, match: Tensor) -> Tensor:
        """Convolve the picture and pool it to the grid: (n, f, r, c); zero for an empty text."""
        seen = (
            batch.query.mask(at_least=1)[:, None, :, None] & batch.passage.mask(at_least=1)[:, None, None, :]
        )
        picture = over_matrices(self.picture, match[:, None]).relu() * seen
        across = _pool(picture, batch.passage.lengths, self.design.columns)
        return _pool(across.transpose(2, 3), batch.query.lengths, self.design.rows).transpose(2, 3)

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        grid = self.grid(batch, self.match(batch))
        return through(self.out, through(self.hidden, grid.flatten(1)).relu()).squeeze(1)

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; the dense layers mix the cells, so they do not sum to it."""
        batch = self.encode([pair]).to(self.out.weight.device)
        match = self.match(batch)
        cells = self.grid(batch, match)[0].amax(0)
        parts = {
            f"cell {i + 1},{j + 1}": float(cells[i, j])
            for i in range(self.design.rows)
            for j in range(self.design.columns)
        }
        return self.shown(
            pair, float(self(batch)), {self.design.similarity: match}, parts=parts, additive=False
        )


def _pool(values: Tensor, lengths: Tensor, cells: int) -> Tensor:
    """Take the maximum of ``cells`` even spans of every row's true length: (..., t) -> (..., cells).

    Args:
        lengths: (n,) int64 true lengths along t.
        cells: Spans; cell i spans from floor(i l / cells) to ceil((i + 1) l / cells).
    """
    at = torch.arange(values.shape[3], device=values.device)
    pooled = []
    for i in range(cells):
        first, end = i * lengths // cells, -(-(i + 1) * lengths // cells)
        inside = (at >= first[:, None]) & (at < end[:, None])
        pooled.append((values * inside[:, None, None, :]).amax(3))
    return torch.stack(pooled, dim=3)
