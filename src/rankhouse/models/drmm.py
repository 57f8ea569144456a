"""DRMM: each query word's histogram of cosines goes through a small network; idf decides who is heard.

Paper: Guo et al., "A Deep Relevance Matching Model for Ad-hoc Retrieval", CIKM 2016, eq. 1-3 (log-count
histograms, term gating by idf). Deviations: the bin of exact matches holds equal words (unknown words equal
nothing), not cosines of 1. Word vectors are not trained, as a histogram has no gradient.
Shapes: n pairs, q query tokens, p passage tokens, d width, b bins.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import Evidence, WordDesign, WordModel, WordReader, embedding
from rankhouse.nn.layers.linear import query_sums, through
from rankhouse.nn.layers.match import shares, word_cosines
from rankhouse.nn.layers.ragged import TwoSided
from rankhouse.text.vocabulary import UNKNOWN


@dataclass(frozen=True)
class DRMMDesign(WordDesign):
    """Settings of ``drmm(...)``.

    Attributes:
        bins: b: b - 1 equal ones from -1 to 1, and one of equal words.
        hidden: Size of the hidden layer of the network over a histogram.
    """

    passage_length: int = 800
    bins: int = 30
    hidden: int = 5

    def __post_init__(self) -> None:
        """Refuse sizes that make no histogram."""
        super().__post_init__()
        if self.bins < 2 or self.hidden < 1:
            raise WrongUse(
                f"bins={self.bins}, hidden={self.hidden}: needs 2 bins and 1 hidden number or more"
            )


class DRMM(WordModel):
    """The model; see the head of this file."""

    family = "drmm"
    designed_by = DRMMDesign
    design: DRMMDesign

    def __init__(self, design: DRMMDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        self.embedding = embedding(table).requires_grad_(False)
        self.hidden, self.out = nn.Linear(design.bins, design.hidden), nn.Linear(design.hidden, 1)
        self.gate = nn.Parameter(torch.ones(()))
        self.register_buffer("idf", torch.from_numpy(reader.vocabulary.idf), persistent=False)

    @torch.no_grad()
    def histograms(self, batch: TwoSided) -> Tensor:
        """Count cosines in bins, ln(1 + count): (n, q, b); eq. 1's LCH."""
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        # Double precision: a cosine at the edge of two bins must fall the same way in every batch.
        match = word_cosines(self.embedding, query, passage, torch.float64)
        last = self.design.bins - 1
        bins = ((match + 1) / 2 * last).long().clamp(0, last - 1)
        same = (query[:, :, None] == passage[:, None, :]) & (query != UNKNOWN)[:, :, None]
        bins = torch.where(same, last, bins)
        counts = self.embedding.weight.new_zeros(*query.shape, self.design.bins)
        seen = batch.passage.mask(at_least=1)[:, None, :].expand_as(match).to(counts.dtype)
        return counts.scatter_add_(2, bins, seen).log1p_()

    def gates(self, batch: TwoSided) -> Tensor:
        """Return how much each query word is heard: (n, q), summing to 1; eq. 3."""
        idf = cast(Tensor, self.idf)[batch.query.pad(at_least=1)]
        return shares(self.gate * idf, batch.query.mask(at_least=1))

    def votes(self, histograms: Tensor) -> Tensor:
        """Return each query word's score before its gate, from histograms (n, q, b): (n, q); eq. 2."""
        return through(self.out, through(self.hidden, histograms).tanh()).tanh().squeeze(2)

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        return query_sums(self.gates(batch) * self.votes(self.histograms(batch)))

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; a part for each query word, they sum to the score."""
        batch = self.encode([pair]).to(self.gate.device)
        query_words = self.reader.words(pair)[0]
        histograms = self.histograms(batch)
        gated = torch.stack([self.gates(batch), self.votes(histograms)], dim=2)
        addends = gated.prod(2)[0].tolist()
        match = word_cosines(self.embedding, batch.query.pad(at_least=1), batch.passage.pad(at_least=1))
        last = self.design.bins - 1
        edges = tuple(f"from {2 * i / last - 1:.2f}" for i in range(last))
        return self.shown(
            pair,
            float(self(batch)),
            {"cosine": match},
            gathered={
                "log histogram": (histograms, (*edges, "same word")),
                "gates and votes": (gated, ("gate", "vote")),
            },
            parts={f"{i} {w}": s for i, (w, s) in enumerate(zip(query_words, addends, strict=False), 1)},
        )
