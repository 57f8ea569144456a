"""PACRR: square convolutions over the match matrix find n-gram matches; each query word keeps its best k.

Papers: Hui et al., "PACRR: A Position-Aware Neural IR Model for Relevance Matching", EMNLP 2017, sec. 3
(aggregate="query": all words' best matches go through one network); McDonald et al., "Deep Relevance Ranking
Using Enhanced Document-Query Interactions", EMNLP 2018, sec. 3.2 (aggregate="terms", PACRR-DRMM: each
word's best matches go through the same small network, the votes are added under DRMM's idf gates).
Deviations: networks of dense layers instead of PACRR's LSTM (as McDonald et al.); rows beyond the true query
are zero and matches beyond the true passage are never chosen, so padding changes nothing; the gates' form
is DRMM's. Shapes: n pairs, q query tokens, p passage tokens, d width, f filters, m features a query word.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import cast

import torch
from torch import Tensor, nn

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import Evidence, WordDesign, WordModel, WordReader, embedding
from rankhouse.nn.layers.convolve import over_matrices
from rankhouse.nn.layers.linear import query_sums, through, two_hidden_layers
from rankhouse.nn.layers.match import cosines, shares, word_cosines
from rankhouse.nn.layers.ragged import TwoSided


@dataclass(frozen=True)
class PACRRDesign(WordDesign):
    """Settings of ``pacrr(...)`` and ``pacrr_drmm(...)``.

    Attributes:
        aggregate: "query" (PACRR) or "terms" (PACRR-DRMM).
        grams: Longest n-gram looked for; squares of 2 to ``grams`` words, besides single words.
        filters: f, filters of each square.
        best: k, matches kept of each query word and n-gram length.
        hidden: Size of both hidden layers.
        tune_vectors: Whether word vectors are trained; the papers leave them as they are.
    """

    passage_length: int = 800
    aggregate: str = "query"
    grams: int = 3
    filters: int = 32
    best: int = 2
    hidden: int = 32
    tune_vectors: bool = False

    def __post_init__(self) -> None:
        """Refuse an unknown aggregate and sizes below 1."""
        super().__post_init__()
        if self.aggregate not in {"query", "terms"}:
            raise WrongUse(f'aggregate="{self.aggregate}" is not known; choose from: query, terms')
        check_least(self, 1, "grams", "filters", "best", "hidden")

    @property
    def features(self) -> int:
        """m: best matches of every n-gram length, and the word's share of idf."""
        return self.grams * self.best + 1


class PACRR(WordModel):
    """The model; see the head of this file."""

    family = "pacrr"
    designed_by = PACRRDesign
    design: PACRRDesign

    def __init__(self, design: PACRRDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        if design.aggregate == "terms":
            self.family = "pacrr_drmm"
            self.policy = {**self.policy, "family": self.family}
        self.embedding = embedding(table).requires_grad_(design.tune_vectors)
        sizes = range(2, design.grams + 1)
        self.squares = nn.ModuleList(nn.Conv2d(1, design.filters, size) for size in sizes)
        rows = design.query_length if design.aggregate == "query" else 1
        self.network = two_hidden_layers(rows * design.features, design.hidden)
        self.gate = nn.Parameter(torch.ones(())) if design.aggregate == "terms" else None
        self.register_buffer("idf", torch.from_numpy(reader.vocabulary.idf), persistent=False)

    def match(self, batch: TwoSided) -> Tensor:
        """Return the cosines of all word pairs, (n, q, p); zero for padding."""
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        if self.design.tune_vectors and torch.is_grad_enabled():
            return cosines(self.embedding(query), self.embedding(passage))
        with torch.no_grad():
            return word_cosines(self.embedding, query, passage)

    def features(self, batch: TwoSided, match: Tensor) -> Tensor:
        """Return what each query word found: best matches of each n-gram length and its idf, (n, q, m)."""
        query_mask, passage_mask = batch.query.mask(at_least=1), batch.passage.mask(at_least=1)
        maps = [match]
        for size, square in enumerate(self.squares, 2):
            wide = nn.functional.pad(match[:, None], (0, size - 1, 0, size - 1))
            maps.append(over_matrices(cast(nn.Conv2d, square), wide).amax(1).relu())
        best = [self._best(each, passage_mask) for each in maps]
        idf = cast(Tensor, self.idf)[batch.query.pad(at_least=1)]
        return torch.cat([*best, shares(idf, query_mask).unsqueeze(2)], dim=2) * query_mask.unsqueeze(2)

    def _best(self, values: Tensor, passage_mask: Tensor) -> Tensor:
        """(n, q, p) -> (n, q, k), best first; zero where the passage has fewer than k words."""
        most = self.design.best
        values = values.masked_fill(~passage_mask[:, None, :], -torch.inf)
        top = values.topk(min(most, values.shape[2]), dim=2).values
        top = nn.functional.pad(top, (0, most - top.shape[2]), value=-torch.inf)
        return top.masked_fill(top == -torch.inf, 0.0)

    def gates(self, batch: TwoSided) -> Tensor:
        """Return how much PACRR-DRMM hears each query word: (n, q), summing to 1."""
        idf = cast(Tensor, self.idf)[batch.query.pad(at_least=1)]
        return shares(cast(Tensor, self.gate) * idf, batch.query.mask(at_least=1))

    def votes(self, features: Tensor) -> Tensor:
        """Return PACRR-DRMM's vote of each query word before its gate: (n, q, m) -> (n, q)."""
        return self._weigh(features).squeeze(2)

    def _weigh(self, features: Tensor) -> Tensor:
        """Go through the network: (..., m) -> (..., 1)."""
        for layer in self.network:
            features = through(layer, features) if isinstance(layer, nn.Linear) else layer(features)
        return features

    def score_features(self, batch: TwoSided, features: Tensor) -> Tensor:
        """Score features (n, q, m): (n,)."""
        if self.gate is not None:
            return query_sums(self.gates(batch) * self.votes(features))
        rows = nn.functional.pad(features, (0, 0, 0, self.design.query_length - features.shape[1]))
        return self._weigh(rows.flatten(1)).squeeze(1)

    def forward(self, batch: TwoSided) -> Tensor:
        """Score n pairs: (n,)."""
        return self.score_features(batch, self.features(batch, self.match(batch)))

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; only PACRR-DRMM's votes sum to the score."""
        batch = self.encode([pair]).to(self.embedding.weight.device)
        match = self.match(batch)
        features = self.features(batch, match)
        score = float(self.score_features(batch, features))
        sizes, best = range(1, self.design.grams + 1), range(1, self.design.best + 1)
        columns = (*(f"{size}-gram, best {i}" for size in sizes for i in best), "idf share")
        gathered: dict[str, tuple[Tensor, tuple[str, ...]]] = {"best matches": (features, columns)}
        parts = {"score": score}
        if self.gate is not None:
            gated = torch.stack([self.gates(batch), self.votes(features)], dim=2)
            gathered["gates and votes"] = gated, ("gate", "vote")
            addends = zip(self.reader.words(pair)[0], gated.prod(2)[0].tolist(), strict=False)
            parts = {f"{i} {word}": addend for i, (word, addend) in enumerate(addends, 1)}
        return self.shown(pair, score, {"cosine": match}, gathered=gathered, parts=parts)
