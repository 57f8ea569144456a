"""MP-HCNN: words, character trigrams and URLs, each compared at every layer of a stack of convolutions.

Paper: Rao et al., "Multi-Perspective Relevance Matching with Hierarchical ConvNets for Social Media Search",
AAAI 2019: hierarchical representation, semantic and idf-weighted matching, evidence from query-post words,
query-post characters and query-URL characters. Built from its description; what it leaves open is settled in
docs/mp-hcnn.md: shared filters for both sides of an input, places that keep the text's length (zeros after
its end), trigrams weighed by their own idf, links found in the post's text. Padding is masked everywhere.
Shapes: n pairs, q query units, p post units, d width, f filters, l layers; units are words or trigrams.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import (
    Evidence,
    TwoClassModel,
    WordDesign,
    WordReader,
    begin,
    blank_table,
    design_from,
    embedding,
    seeded,
)
from rankhouse.nn.layers.convolve import convolved
from rankhouse.nn.layers.linear import row_sums, through
from rankhouse.nn.layers.match import dots
from rankhouse.nn.layers.ragged import Ragged, TwoSided
from rankhouse.text.vectors import random_table, uniform
from rankhouse.text.vocabulary import Tally, Vocabulary

_LINK = re.compile(r"https?://(\S+)", re.IGNORECASE)
_TRIGRAMS_FILE = "trigrams.json"
_UNKNOWN_BOUND = 0.05


def trigrams(text: str) -> list[str]:
    """Return the character trigrams of a text in lower case, its words joined by single spaces."""
    line = f" {' '.join(text.lower().split())} "
    return [line[i : i + 3] for i in range(len(line) - 2)]


def links(text: str) -> str:
    """Return the links of a post without their protocol, joined by spaces; "" where there are none."""
    return " ".join(_LINK.findall(text))


@dataclass(frozen=True)
class MPHCNNDesign(WordDesign):
    """Settings of ``mp_hcnn(...)``.

    Attributes:
        layers: l, convolutions on top of each other; layer i sees i + 1 neighbouring units.
        filters: f of every layer.
        filter_length: Units a filter spans.
        trigram_width: Width of a trigram's vector.
        query_trigrams: Query trigrams kept.
        post_trigrams: Post and link trigrams kept, each.
        hidden: Size of the hidden layer over all evidence.
        dropout: Share of numbers dropped in training.
    """

    words: str = "whitespace(lower=True)"
    min_count: int = 1
    query_length: int = 12
    passage_length: int = 60
    layers: int = 4
    filters: int = 128
    filter_length: int = 2
    trigram_width: int = 100
    query_trigrams: int = 60
    post_trigrams: int = 200
    hidden: int = 150
    dropout: float = 0.3

    def __post_init__(self) -> None:
        """Refuse sizes that make no layer."""
        super().__post_init__()
        check_least(self, 1, "layers", "filters", "filter_length", "trigram_width")
        check_least(self, 1, "query_trigrams", "post_trigrams")
        if self.hidden < 1 or not 0 <= self.dropout < 1:
            raise WrongUse(f"hidden={self.hidden}, dropout={self.dropout}: needs 1 or more, and 0 to below 1")

    def fresh(self, texts: Iterable[str], seed: int = 0) -> MPHCNN:
        """Start a model to be trained."""
        tally = Tally()

        def noted() -> Iterator[str]:
            for text in texts:
                tally.add(trigrams(text))
                yield text

        reader, table = begin(self, noted(), seed, uniform(_UNKNOWN_BOUND))
        grams = tally.vocabulary(self.min_count)
        with seeded(seed):
            start = random_table(grams, self.trigram_width, seed)
            return MPHCNN(self, reader, grams, table, gram_table=start.table)


@dataclass(frozen=True)
class ThreeInputs:
    """A batch of n pairs as words and as trigrams.

    Attributes:
        words: Query and post as word numbers.
        characters: Query and post as trigram numbers.
        links: n rows of trigram numbers of the post's links.
    """

    words: TwoSided
    characters: TwoSided
    links: Ragged

    @classmethod
    def join(cls, parts: Sequence[ThreeInputs]) -> ThreeInputs:
        """Put the pairs of several batches into one, in this order."""
        words = TwoSided.join([p.words for p in parts])
        characters = TwoSided.join([p.characters for p in parts])
        return cls(words, characters, Ragged.join([p.links for p in parts]))

    def __len__(self) -> int:
        return len(self.words)

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: units of all inputs together."""
        return self.words.lengths + self.characters.lengths + self.links.lengths

    @property
    def lost(self) -> Tensor:
        """(n,) int64: words that did not fit."""
        return self.words.lost

    @property
    def query_lost(self) -> Tensor | None:
        """(n,) int64: the query's among them."""
        return self.words.query_lost

    def take(self, rows: Tensor) -> ThreeInputs:
        """Return these rows, (m,) int64, in this order."""
        return ThreeInputs(self.words.take(rows), self.characters.take(rows), self.links.take(rows))

    def to(self, device: torch.device) -> ThreeInputs:
        """Move to a device."""
        return ThreeInputs(self.words.to(device), self.characters.to(device), self.links.to(device))


class Hierarchy(nn.Module):
    """A stack of convolutions over one kind of unit, and what both sides have in common at each layer."""

    def __init__(self, table: FloatArray, idf: FloatArray, design: MPHCNNDesign, most: int) -> None:
        super().__init__()
        self.embedding, self.most = embedding(table), most
        widths = [table.shape[1], *[design.filters] * design.layers]
        self.layers = nn.ModuleList(nn.Conv1d(a, b, design.filter_length) for a, b in pairwise(widths))
        self.register_buffer("idf", torch.from_numpy(idf), persistent=False)

    @property
    def features(self) -> int:
        """Numbers that one comparison gives: maximum and mean of every query unit at every layer."""
        return 2 * self.most * len(self.layers)

    def climb(self, side: Ragged) -> list[Tensor]:
        """Return what each layer makes of a side: l tensors (n, t, f), zero beyond a text's length."""
        mask = side.mask(at_least=1)[:, :, None]
        levels = [self.embedding(side.pad(at_least=1))]
        for layer in self.layers:
            levels.append(convolved(cast(nn.Conv1d, layer), levels[-1]).relu() * mask)
        return levels[1:]

    def compare(self, query: Ragged, post: Ragged) -> tuple[Tensor, list[Tensor]]:
        """Compare both sides layer by layer.

        Returns:
            (n, features) idf-weighted maxima and means of each query unit, zero beyond its side's length;
            and the l matrices (n, q, p) they come from, each row spread to sum to 1 over the post.
        """
        query_mask, post_mask = query.mask(at_least=1), post.mask(at_least=1)
        idf = cast(Tensor, self.idf)[query.pad(at_least=1)] * query_mask
        there = post_mask.any(1)[:, None, None]
        pools, matrices = [], []
        for left, right in zip(self.climb(query), self.climb(post), strict=True):
            raw = dots(left, right).masked_fill(~post_mask[:, None, :], -1e30)
            spread = _softmax(raw) * post_mask[:, None, :] * there
            means = row_sums(raw * post_mask[:, None, :]) / post_mask.sum(1).clamp_min(1)[:, None]
            pooled = torch.stack([spread.amax(2) * idf, means.tanh() * idf], dim=2)  # (n, q, 2)
            pools.append(F.pad(pooled, (0, 0, 0, self.most - pooled.shape[1])).flatten(1))
            matrices.append(spread)
        return torch.cat(pools, dim=1), matrices


class MPHCNN(TwoClassModel):
    """The model; its score is the logarithm of the probability of relevance. See the head of this file."""

    family = "mp_hcnn"
    designed_by = MPHCNNDesign
    design: MPHCNNDesign

    def __init__(
        self,
        design: MPHCNNDesign,
        reader: WordReader,
        grams: Vocabulary,
        table: FloatArray,
        gram_table: FloatArray,
    ) -> None:
        super().__init__(design, reader, table.shape[1])
        self.grams = grams
        self.words = Hierarchy(table, reader.vocabulary.idf, design, design.query_length)
        self.characters = Hierarchy(gram_table, grams.idf, design, design.query_trigrams)
        evidence = self.words.features + 2 * self.characters.features
        self.hidden = nn.Linear(evidence, design.hidden)
        self.dropout = nn.Dropout(design.dropout)
        self.decide = nn.Linear(design.hidden, 2)

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> MPHCNN:
        """Make the model of a bundle, weights apart."""
        design = design_from(MPHCNNDesign, policy)
        reader = WordReader.rebuild(design, assets)
        if _TRIGRAMS_FILE not in assets:
            raise BadModel(
                f"the model has no {_TRIGRAMS_FILE} (it has {sorted(assets)}); copy it whole again"
            )
        grams = Vocabulary.from_json(assets[_TRIGRAMS_FILE], _TRIGRAMS_FILE)
        blank = np.zeros((len(grams), design.trigram_width), np.float32)
        return cls(design, reader, grams, blank_table(reader, policy["width"]), gram_table=blank)

    def assets(self) -> Mapping[str, bytes]:
        """Return the files of both vocabularies."""
        return {**self.reader.assets(), _TRIGRAMS_FILE: self.grams.to_json()}

    def _characters(self, texts: Sequence[str], most: int) -> Ragged:
        known: dict[str, list[int]] = {}
        for text in texts:
            if text not in known:
                known[text] = self.grams.ids(trigrams(text)[:most]) if text.strip() else []
        return Ragged.of([known[text] for text in texts])

    def encode(self, pairs: Sequence[Pair]) -> ThreeInputs:  # type: ignore[override]  # a batch of its own kind
        """Turn n pairs into word and trigram numbers; links are taken from the post's text."""
        words = self.reader.encode(pairs)
        posts = [pair.passage.text for pair in pairs]
        design = self.design
        characters = TwoSided(
            self._characters([pair.query.text for pair in pairs], design.query_trigrams),
            self._characters(posts, design.post_trigrams),
            torch.zeros_like(words.lost),
        )
        return ThreeInputs(
            words, characters, self._characters([links(post) for post in posts], design.post_trigrams)
        )

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of a post are read as words, trigrams or links; None: all of them."""
        text = pair.passage.text
        as_words = self.reader.characters_read(text)
        if as_words is None:
            return None
        ends = [0]  # in the text, of every character that trigrams see
        for word in re.finditer(r"\S+", text):
            ends += [*range(word.start() + 1, word.end() + 1), word.end()]
        as_trigrams = ends[min(self.design.post_trigrams + 1, len(ends) - 1)]
        as_links = max((link.end() for link in _LINK.finditer(text)), default=0)
        most = max(as_words, as_trigrams, as_links)
        return most if most < ends[-1] else None

    def compare(self, batch: ThreeInputs) -> dict[str, tuple[Tensor, list[Tensor]]]:
        """Compare query and post as words and characters, and query and links (``Hierarchy.compare``)."""
        characters = batch.characters
        return {
            "words": self.words.compare(batch.words.query, batch.words.passage),
            "characters": self.characters.compare(characters.query, characters.passage),
            "links": self.characters.compare(characters.query, batch.links),
        }

    def log_probabilities(self, batch: ThreeInputs) -> Tensor:
        """Return the logarithms of P(not relevant) and P(relevant): (n, 2)."""
        evidence = torch.cat([features for features, _ in self.compare(batch).values()], dim=1)
        hidden = self.dropout(through(self.hidden, evidence).relu())
        return through(self.decide, hidden).log_softmax(1)

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; the last layers mix the parts, so they do not sum to it."""
        training = self.training
        self.eval()
        batch = self.encode([pair]).to(self.decide.weight.device)
        log_no, log_yes = self.log_probabilities(batch)[0].tolist()
        compared = self.compare(batch)
        matches = {f"words, layer {i}": matrix for i, matrix in enumerate(compared["words"][1], 1)}
        parts = {"log P(relevant)": log_yes, "log P(not relevant)": log_no}
        parts |= {f"evidence of {name}": float(each[0].sum()) for name, each in compared.items()}
        self.train(training)
        return self.shown(pair, log_yes, matches, parts=parts, additive=False)


def _softmax(raw: Tensor) -> Tensor:
    """Spread 1 over the last dimension; without gradients, what is masked changes no bit."""
    if torch.is_grad_enabled():
        return raw.softmax(2)
    weights = (raw - raw.amax(2, keepdim=True)).exp()
    return weights / row_sums(weights).unsqueeze(2)
