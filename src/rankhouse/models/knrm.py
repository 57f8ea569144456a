"""KNRM: a cosine match matrix of plain word vectors, pooled by kernels, weighed by one line.

Paper: Xiong et al., "End-to-End Neural Ad-hoc Ranking with Kernel Pooling", SIGIR 2017, eq. 1-6.
Deviations, with the TK authors' code: no tanh and no bias at the end; logs are multiplied by 0.01; the first
kernel (exact match) has width 1e-4. Shapes: n pairs, q query tokens, p passage tokens, d width, k kernels.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import Evidence, WordDesign, WordModel, WordReader, embedding
from rankhouse.nn.layers.kernel_pooling import Kernels, log_counts, soft_counts
from rankhouse.nn.layers.linear import through
from rankhouse.nn.layers.match import word_cosines
from rankhouse.nn.layers.ragged import TwoSided

LOG_FACTOR = 0.01
FIRST_SPREAD = 0.014
EXACT_WIDTH = 1e-4


@dataclass(frozen=True)
class KNRMDesign(WordDesign):
    """What ``knrm(...)`` accepts; KNRM has no sizes of its own."""


class KNRM(WordModel):
    """The model; see the head of this file."""

    family = "knrm"
    designed_by = KNRMDesign
    design: KNRMDesign

    def __init__(self, design: KNRMDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        self.embedding = embedding(table)
        self.kernels = Kernels.usual(EXACT_WIDTH)
        self.weight = nn.Linear(len(self.kernels), 1, bias=False)
        nn.init.uniform_(self.weight.weight, -FIRST_SPREAD, FIRST_SPREAD)

    def match(self, batch: TwoSided) -> Tensor:
        """Return the cosines of all word pairs, (n, q, p)."""
        return word_cosines(self.embedding, batch.query.pad(at_least=1), batch.passage.pad(at_least=1))

    def features(self, counts: Tensor, query_mask: Tensor) -> Tensor:
        """Turn soft counts (n, q, k) into the features that are weighed, (n, k); eq. 4."""
        return log_counts(counts, query_mask) * LOG_FACTOR

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        counts = soft_counts(self.match(batch), batch.passage.mask(at_least=1), self.kernels)
        return through(self.weight, self.features(counts, batch.query.mask(at_least=1))).squeeze(1)

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; a part a kernel, they sum to the score."""
        batch = self.encode([pair]).to(self.weight.weight.device)
        match = self.match(batch)
        counts = soft_counts(match, batch.passage.mask(at_least=1), self.kernels)
        features = self.features(counts, batch.query.mask(at_least=1))
        names = tuple(f"{centre:g}" for centre in self.kernels.centres)
        shares = (features[0] * self.weight.weight[0]).tolist()
        return self.shown(
            pair,
            float(through(self.weight, features)),
            {"cosine": match},
            gathered={"kernel sums": (counts, names)},
            parts={f"log {name}": share for name, share in zip(names, shares, strict=True)},
        )
