"""KNRM and Conv-KNRM: cosine match matrices, pooled by kernels, weighed by one line.

KNRM matches plain word vectors. Paper: Xiong et al., "End-to-End Neural Ad-hoc Ranking with Kernel Pooling",
SIGIR 2017, eq. 1-6. Conv-KNRM matches n-grams made by convolution, every query n-gram length with every
passage n-gram length. Paper: Dai et al., "Convolutional Neural Networks for Soft-Matching N-Grams in Ad-hoc
Search", WSDM 2018, eq. 1-7. Deviations, with the TK authors' code: no tanh and no bias at the end; logs are
multiplied by 0.01; the first kernel (exact match) has width 1e-4, of Conv-KNRM 1e-3; an n-gram that hangs
over the end of its text counts like any other. Shapes: n pairs, q query tokens, p passage tokens, d width,
f filters, k kernels, m n-gram lengths.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.arguments import check_least
from rankhouse.core.nouns import FloatArray, Pair, PassageRows
from rankhouse.models.precomputing import STORED_BUDGET, KernelModel
from rankhouse.models.word_models import Evidence, WordDesign, WordReader, array, embedding
from rankhouse.nn.cpu import train
from rankhouse.nn.cpu.train_words import TextRows
from rankhouse.nn.layers import compiled
from rankhouse.nn.layers.convolve import following_sums
from rankhouse.nn.layers.kernel_pooling import Kernels, log_counts, soft_counts
from rankhouse.nn.layers.linear import affine, through
from rankhouse.nn.layers.match import NORM_EPS, dots, unit, word_cosines
from rankhouse.nn.layers.ragged import Ragged, TwoSided, within_budget

LOG_FACTOR = 0.01
FIRST_SPREAD = 0.014
KNRM_EXACT_WIDTH = 1e-4


def _features(counts: Tensor, query_mask: Tensor) -> Tensor:
    """Turn soft counts (n, q, k) into the features that are weighed, (n, k); eq. 4 of both papers."""
    return log_counts(counts, query_mask) * LOG_FACTOR


def _all_features(counts: Tensor, query_mask: Tensor) -> Tensor:
    """Turn soft counts (n, m, q, m, k) into features, (n, m * m * k), the query's n-gram lengths first."""
    n, m = counts.shape[:2]
    features = _features(counts.flatten(3).flatten(0, 1), query_mask.repeat_interleave(m, dim=0))
    return features.reshape(n, m * features.shape[1])


@dataclass(frozen=True)
class KNRMDesign(WordDesign):
    """Settings of ``knrm(...)``; KNRM has no sizes of its own."""


class KNRM(KernelModel):
    """The model; see the head of this file."""

    family = "knrm"
    designed_by = KNRMDesign
    design: KNRMDesign

    def __init__(self, design: KNRMDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        self.embedding = embedding(table)
        self.kernels = Kernels.usual(KNRM_EXACT_WIDTH)
        self.weight = nn.Linear(len(self.kernels), 1, bias=False)
        nn.init.uniform_(self.weight.weight, -FIRST_SPREAD, FIRST_SPREAD)

    def match(self, batch: TwoSided) -> Tensor:
        """Return the cosines of all word pairs, (n, q, p)."""
        return word_cosines(self.embedding, batch.query.pad(at_least=1), batch.passage.pad(at_least=1))

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        counts = soft_counts(self.match(batch), batch.passage.mask(at_least=1), self.kernels)
        return through(self.weight, _features(counts, batch.query.mask(at_least=1))).squeeze(1)

    @property
    def id_format(self) -> str:
        """A word has the same vector everywhere, so that its number is all there is to store."""
        return "uint16" if len(self.reader.vocabulary) <= 2**16 else "uint32"

    @torch.inference_mode()
    def score_stored(self, query: str, rows: PassageRows) -> FloatArray:
        """Score n passages by their words' numbers: (n,) float32, the bits that their texts give."""
        n, asked = len(rows.lengths), self.reader.rows([query], self.design.query_length)
        passages = Ragged(
            torch.from_numpy(rows.values[:, 0].astype(np.int64)), torch.from_numpy(rows.lengths)
        )
        queries = Ragged(asked.values.repeat(n), asked.lengths.repeat(n))
        batch, scores = TwoSided(queries, passages, torch.zeros(n)), torch.empty(n)
        for some in within_budget(batch.lengths, STORED_BUDGET):
            scores[some] = self(batch.take(some).to(self.weight.weight.device)).cpu()
        return array(scores)

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; a part a kernel, they sum to the score."""
        batch = self.encode([pair]).to(self.weight.weight.device)
        match = self.match(batch)
        counts = soft_counts(match, batch.passage.mask(at_least=1), self.kernels)
        features = _features(counts, batch.query.mask(at_least=1))
        names = tuple(f"{centre:g}" for centre in self.kernels.centres)
        shares = (features[0] * self.weight.weight[0]).tolist()
        return self.shown(
            pair,
            float(through(self.weight, features)),
            {"cosine": match},
            gathered={"kernel sums": (counts, names)},
            parts={f"log {name}": share for name, share in zip(names, shares, strict=True)},
        )


CONV_EXACT_WIDTH = 1e-3


@dataclass(frozen=True)
class ConvKNRMDesign(WordDesign):
    """Settings of ``conv_knrm(...)``.

    Attributes:
        grams: Longest n-gram; 3 matches lengths 1, 2 and 3 with each other.
        filters: Width of an n-gram's vector.
    """

    grams: int = 3
    filters: int = 128

    def __post_init__(self) -> None:
        """Refuse sizes below 1."""
        super().__post_init__()
        check_least(self, 1, "grams", "filters")


class ConvKNRM(KernelModel):
    """The model; see the head of this file."""

    family = "conv_knrm"
    designed_by = ConvKNRMDesign
    design: ConvKNRMDesign

    def __init__(self, design: ConvKNRMDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        self.embedding = embedding(table)
        lengths = range(1, design.grams + 1)
        self.convolutions = nn.ModuleList(nn.Conv1d(table.shape[1], design.filters, m) for m in lengths)
        self.kernels = Kernels.usual(CONV_EXACT_WIDTH)
        self.weight = nn.Linear(len(self.kernels) * design.grams**2, 1, bias=False)
        nn.init.uniform_(self.weight.weight, -FIRST_SPREAD, FIRST_SPREAD)

    def grams(self, side: Ragged) -> list[Tensor]:
        """Make the unit vectors of all n-grams that begin at each token: m tensors (n, t, f)."""
        ids = side.pad(at_least=1)
        layers = [cast(nn.Conv1d, layer) for layer in self.convolutions]
        if not torch.is_grad_enabled():
            return [unit(following_sums(self.embedding, layer, ids).relu_()) for layer in layers]
        words = self.embedding(ids).transpose(1, 2)
        maps = (layer(F.pad(words, (0, i))).relu() for i, layer in enumerate(layers))
        return [unit(grams.transpose(1, 2)) for grams in maps]

    def matches(self, batch: TwoSided) -> dict[str, Tensor]:
        """Return a match matrix (n, q, p) a pair of lengths; "2-3": query 2-grams, passage 3-grams."""
        query, passage = self.grams(batch.query), self.grams(batch.passage)
        return {
            f"{i}-{j}": dots(query_grams, passage_grams)
            for i, query_grams in enumerate(query, 1)
            for j, passage_grams in enumerate(passage, 1)
        }

    @property
    def stored_shape(self) -> tuple[int, int]:
        """A vector for each length of the n-grams that begin at a word."""
        return self.design.grams, self.design.filters

    def stored_vectors(self, rows: Ragged) -> Tensor:
        """Make the unit vectors of all n-grams: (n, m, t, f)."""
        return torch.stack(self.grams(rows), 1)

    def count_weights(self) -> tuple[Tensor, Tensor]:
        """Return the layer's weights, for logarithms in base 2: (m, m, k) each, the second zeros."""
        m = self.design.grams
        weights = self.weight.weight.view(m, m, -1).transpose(0, 1) * (LOG_FACTOR * math.log(2))
        return weights, torch.zeros_like(weights)

    def _compiled(self, batch: TwoSided) -> tuple[Tensor, Tensor]:
        """Match and count by the compiled loops: each distinct word is multiplied once, all lengths at once.

        Returns:
            Similarities (n, m, q, m, p), soft counts (n, m, q, m, k); lengths of the query's n-grams first.
        """
        sides, m = (batch.query, batch.passage), len(self.convolutions)
        distinct, at = torch.unique(torch.cat([side.values for side in sides]), return_inverse=True)
        words = self.embedding(F.pad(distinct, (0, train.rounded(len(distinct) + 1) - len(distinct))))
        layers = [cast(nn.Conv1d, layer) for layer in self.convolutions]
        weight = torch.cat([layer.weight.permute(2, 0, 1).flatten(0, 1) for layer in layers])
        products = affine(words, weight).view(len(words), -1, self.design.filters)
        rows = at.split([len(side.values) for side in sides])
        asked, said = compiled.grams(
            products,
            torch.stack([cast(Tensor, layer.bias) for layer in layers]),
            tuple(
                TextRows(Ragged(own, side.lengths).pad(at_least=1), side.lengths)
                for own, side in zip(rows, sides, strict=True)
            ),
            NORM_EPS,
        )
        match = dots(asked.flatten(1, 2), said.flatten(1, 2))  # (n, m * q, m * p)
        n, _, q, p = *asked.shape[:3], said.shape[2]
        counts = compiled.pool(match.view(n, m * q * m, p), batch.passage.lengths, tuple(self.kernels))
        return match.view(n, m, q, m, p), counts.view(n, m, q, m, -1)

    def pooled(self, batch: TwoSided) -> dict[str, tuple[Tensor, Tensor]]:
        """Return similarities (n, q, p) and soft counts (n, q, k) of each pair of lengths, as in ``forward``.

        Names are those of :meth:`matches`.
        """
        if train.fits(self.embedding.weight):
            match, counts = self._compiled(batch)
            m = range(self.design.grams)
            return {f"{i + 1}-{j + 1}": (match[:, i, :, j], counts[:, i, :, j]) for i in m for j in m}
        passage_mask = batch.passage.mask(at_least=1)
        return {
            name: (match, soft_counts(match, passage_mask, self.kernels))
            for name, match in self.matches(batch).items()
        }

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        if train.fits(self.embedding.weight):
            features = _all_features(self._compiled(batch)[1], batch.query.mask(at_least=1))
            return through(self.weight, features).squeeze(1)
        query_mask = batch.query.mask(at_least=1)
        features = torch.cat([_features(counts, query_mask) for _, counts in self.pooled(batch).values()], 1)
        return through(self.weight, features).squeeze(1)

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; a part for each pair of lengths, they sum to the score."""
        batch = self.encode([pair]).to(self.weight.weight.device)
        query_mask = batch.query.mask(at_least=1)
        matches, sums, parts = {}, {}, {}
        names = tuple(f"{centre:g}" for centre in self.kernels.centres)
        for (name, (match, counts)), weight in zip(
            self.pooled(batch).items(), self.weight.weight.view(-1, len(names)), strict=True
        ):
            matches[f"cosine {name}"] = match
            sums[f"kernel sums {name}"] = counts, names
            parts[f"grams {name}"] = float((_features(counts, query_mask)[0] * weight).sum())
        return self.shown(pair, float(self(batch)), matches, gathered=sums, parts=parts)
