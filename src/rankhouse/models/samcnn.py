"""samCNN: a Siamese convolution over words, with every query word sweeping the post in its own way.

Paper: Shi, Rao, Lin, "Simple Attention-Based Representation Learning for Ranking Short Social Media Posts",
NAACL 2019, eq. 1-4. Deviations, with the authors' code: filters reach over both ends (p + k - 1 places); the
"MLP" after pooling is one line; the last hidden layer has batch norm and tanh; attention has filters of its
own. Unlike their code, padding is masked everywhere, so a post's score does not depend on its batch.
Shapes: n pairs, q query tokens, p post tokens, d width, f filters, k filter length, h hidden.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, cast
from zlib import crc32

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.word_models import (
    Evidence,
    TwoClassModel,
    WordDesign,
    WordReader,
    begin,
    design_from,
    embedding,
    seeded,
)
from rankhouse.nn.cpu import train
from rankhouse.nn.layers.convolve import ProductTable, WideFilters
from rankhouse.nn.layers.linear import Linear, query_sums, through
from rankhouse.nn.layers.match import cosines, row_dots, unit, word_cosines
from rankhouse.nn.layers.ragged import TwoSided
from rankhouse.nn.machine import Compute
from rankhouse.text.vectors import like_the_known
from rankhouse.text.vocabulary import UNKNOWN, Vocabulary

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


Attention = Literal["query", "position"] | None


@dataclass(frozen=True)
class SamCNNDesign(WordDesign):
    """Settings of ``samcnn(...)``; the defaults are the paper's (table 2), but for unknown words and case.

    Attributes:
        attention: None (BiCNN), "query" (QAtt) or "position" (PAtt).
        filters: f.
        filter_length: k, in words.
        hidden: h, size of a text's vector.
        final: Size of the last hidden layer.
        dropout: Share of numbers dropped in training.
        class_weights: Weights of not relevant and relevant posts in the loss; () for the same.
        unknown: Rows that words outside the vocabulary share, each word always the same one; with 1 all are
            one word, as in the paper.
        importance: How query words are weighed in the mean of their sweeps: "equal" or "idf".
        overlap: Tell the last line how much of the query the post holds: the share of its words, and the mean
            of their best cosines, each once equally weighed and once by idf.
    """

    words: str = "whitespace(lower=True)"
    min_count: int = 1
    attention: Attention = "position"
    filters: int = 250
    filter_length: int = 2
    hidden: int = 200
    final: int = 100
    dropout: float = 0.5
    class_weights: tuple[float, ...] = ()
    unknown: int = 4096
    importance: Literal["equal", "idf"] = "equal"
    overlap: bool = False

    def __post_init__(self) -> None:
        """Take lists as tuples; refuse unknown attention and sizes that make no layer."""
        super().__post_init__()
        object.__setattr__(self, "class_weights", tuple(self.class_weights))
        if len(self.class_weights) not in {0, 2} or any(weight <= 0 for weight in self.class_weights):
            raise WrongUse(
                f"class_weights={list(self.class_weights)}: give two numbers above 0, for not relevant and "
                "relevant posts, or none"
            )
        if self.attention not in {None, "query", "position"}:
            raise WrongUse(
                f'attention="{self.attention}" is not known; choose from: None, "query", "position"'
            )
        if self.importance not in {"equal", "idf"}:
            raise WrongUse(f'importance="{self.importance}" is not known; choose from: "equal", "idf"')
        check_least(self, 1, "filters", "filter_length", "hidden", "final", "unknown")
        if not 0 <= self.dropout < 1:
            raise WrongUse(f"dropout={self.dropout}: must be 0 or more and below 1")

    def fresh(self, texts: Iterable[str], seed: int = 0) -> SamCNN:
        """Start a model to be trained."""
        reader, table = begin(self, texts, seed)
        more = (self.unknown - 1, table.shape[1])
        drawn = like_the_known(np.random.default_rng((seed, 1)), more, table[UNKNOWN:])
        with seeded(seed):
            return SamCNN(self, PostReader(self, reader.vocabulary), np.concatenate([table, drawn]))


class PostReader(WordReader):
    """Reads words that the vocabulary lacks as one of several unknown words, chosen by the word itself.

    So a name that was never seen in training still matches itself, and hardly anything else: which one of
    ``unknown`` rows it gets depends on its letters only (CRC-32 of its UTF-8 bytes).
    """

    def __init__(self, design: SamCNNDesign, vocabulary: Vocabulary) -> None:
        super().__init__(design, vocabulary)
        self.unknown = design.unknown

    def __len__(self) -> int:
        """Number of rows of the word table."""
        return len(self.vocabulary) + self.unknown - 1

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return each word's number; unknown words have 1 and those behind the vocabulary."""
        numbers = self.vocabulary.ids(words)
        if self.unknown > 1:
            for at, number in enumerate(numbers):
                if number == UNKNOWN and (row := crc32(words[at].encode()) % self.unknown):
                    numbers[at] = len(self.vocabulary) + row - 1
        return numbers


class PostEncoder(nn.Module):
    """Filters over words and the line after pooling: maxima (..., f) -> (..., h)."""

    def __init__(self, width: int, design: SamCNNDesign) -> None:
        super().__init__()
        self.filters = WideFilters(width, design.filters, design.filter_length)
        self.hidden = nn.Linear(design.filters, design.hidden)
        self.dropout = nn.Dropout(design.dropout)

    def forward(self, maxima: Tensor) -> Tensor:
        """(..., f) -> (..., h)."""
        return through(self.hidden, self.dropout(maxima))


class SamCNN(TwoClassModel):
    """The model; its score is the logarithm of the probability of relevance. See the head of this file."""

    family = "samcnn"
    designed_by = SamCNNDesign
    design: SamCNNDesign

    def __init__(self, design: SamCNNDesign, reader: WordReader, table: FloatArray) -> None:
        super().__init__(design, reader, table.shape[1])
        width = table.shape[1]
        self.embedding = embedding(table)
        self.text = PostEncoder(width, design)
        self.attended = PostEncoder(width, design) if design.attention else None
        sides = 3 if design.attention else 2
        self.final = nn.Linear(sides * design.hidden, design.final)
        self.norm = nn.BatchNorm1d(design.final)
        self.dropout = nn.Dropout(design.dropout)
        self.overlap = nn.BatchNorm1d(4) if design.overlap else None
        self.decide = nn.Linear(design.final + (4 if design.overlap else 0), 2)
        idf = reader.vocabulary.idf
        idf = np.concatenate([idf, np.full(len(table) - len(idf), idf[UNKNOWN])])
        self.register_buffer("idf", torch.from_numpy(idf), persistent=False)

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> SamCNN:
        """Make the model of a bundle, weights apart."""
        design = design_from(SamCNNDesign, policy)
        reader = PostReader(design, WordReader.rebuild(design, assets).vocabulary)
        return cls(design, reader, np.zeros((len(reader), policy["width"]), np.float32))

    def _vectors(self, batch: TwoSided, words: DistinctWords | ProductCache) -> list[Tensor]:
        """General sentence encoder: query and post vectors, (n, h) each."""
        sides, filters = (batch.query, batch.passage), self.text.filters
        padded = [side.pad(at_least=1) for side in sides]
        if isinstance(words, DistinctWords):  # each distinct word is multiplied once for both sides
            longest = max(ids.shape[1] for ids in padded)
            ids = torch.cat([F.pad(each, (0, longest - each.shape[1])) for each in padded])
            lengths = torch.cat([side.lengths for side in sides])
            maxima = list(filters.maxima(words.vectors, words.places(ids)[:, None], lengths).chunk(2))
        else:
            table = words.table("text", filters)
            maxima = [table.maxima(ids, side.lengths) for ids, side in zip(padded, sides, strict=True)]
        return [self.text(each[:, 0]) for each in maxima]

    def attended_maxima(self, batch: TwoSided, words: DistinctWords | ProductCache | None = None) -> Tensor:
        """Let every query token sweep the post: maxima (n, q, f), zero for padding of the query.

        Raises:
            WrongUse: The model has no attention.
        """
        if self.attended is None:
            raise WrongUse("this samCNN has attention=None: no query word sweeps the post")
        words = words or self._words(batch)
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        filters, lengths = self.attended.filters, batch.passage.lengths
        if self.design.attention == "position":
            scales = words.cosines(query, passage)
            if isinstance(words, DistinctWords):
                at = words.places(passage)[:, None]
                maxima = filters.maxima(words.vectors, at, lengths, scales)
            else:
                maxima = words.table("attended", filters).maxima(passage, lengths, scales)
        elif isinstance(words, DistinctWords):
            maxima = filters.met(words.vectors, words.places(query), words.places(passage), lengths)
        else:
            maxima = self._injected(query, passage, lengths, words)
        return maxima * batch.query.mask(at_least=1).unsqueeze(2)

    def _injected(self, query: Tensor, passage: Tensor, lengths: Tensor, cache: ProductCache) -> Tensor:
        """QAtt in scoring: each distinct query word meets each distinct word of its posts once."""
        filters = cast(PostEncoder, self.attended).filters
        out = self.embedding.weight.new_zeros(*query.shape, filters.weight.shape[0])
        for token in torch.unique(query[query != 0]).tolist():
            at, column = torch.nonzero(query == token, as_tuple=True)
            table = cache.table(token, filters, self.embedding.weight[token])
            out[at, column] = table.maxima(passage[at], lengths[at])[:, 0]
        return out

    def _words(self, batch: TwoSided) -> DistinctWords | ProductCache:
        """Return the batch's words as training needs them, or a cache to score with."""
        return (
            DistinctWords(self.embedding, batch) if torch.is_grad_enabled() else ProductCache(self.embedding)
        )

    def features(self, batch: TwoSided, words: DistinctWords | ProductCache | None = None) -> Tensor:
        """Return query vector, post vector and, with attention, the mean over query tokens: (n, 2h or 3h)."""
        words = words or self._words(batch)
        parts = self._vectors(batch, words)
        if self.attended is not None:
            weights = self._importance(batch.query.pad(at_least=1), self.design.importance == "idf")
            parts.append(query_sums(self.attended(self.attended_maxima(batch, words)) * weights.unsqueeze(2)))
        return torch.cat(parts, dim=1)

    def _importance(self, query: Tensor, by_idf: bool) -> Tensor:
        """Weigh the words of queries (n, q): they sum to 1, or to 0 where there is no word; padding has 0."""
        weights = cast(Tensor, self.idf)[query] if by_idf else (query != 0).to(self.decide.weight.dtype)
        return weights / query_sums(weights).clamp_min(1e-6).unsqueeze(1)

    def _overlap(self, batch: TwoSided, words: DistinctWords | ProductCache) -> Tensor:
        """Return how much of each query its post holds: (n, 4).

        The share of the query's words, and the mean of their best cosines, each once equally weighed and once
        by idf.
        """
        query, passage = batch.query.pad(at_least=1), batch.passage.pad(at_least=1)
        there = (passage != 0)[:, None]
        held = ((query[:, :, None] == passage[:, None, :]) & there).any(2)
        best = words.cosines(query, passage).masked_fill(~there, -1).amax(2) * there.any(2)
        weights = [self._importance(query, by_idf) for by_idf in (False, True)]
        return torch.stack([query_sums(each * weight) for each in (held, best) for weight in weights], dim=1)

    def log_probabilities(self, batch: TwoSided, cache: ProductCache | None = None) -> Tensor:
        """Return the logarithms of P(not relevant) and P(relevant): (n, 2)."""
        words = cache or self._words(batch)
        hidden = self.dropout(self.hidden_state(batch, words))
        if self.overlap is not None:
            hidden = torch.cat([hidden, self._normalised(self.overlap, self._overlap(batch, words))], dim=1)
        return through(self.decide, hidden).log_softmax(1)

    def hidden_state(self, batch: TwoSided, words: DistinctWords | ProductCache | None = None) -> Tensor:
        """Return what the last hidden layer gives for n pairs, the paper's o: (n, final)."""
        features = self.features(batch, words or self._words(batch))
        return self._normalised(self.norm, through(self.final, features)).tanh()

    def _normalised(self, norm: nn.BatchNorm1d, rows: Tensor) -> Tensor:
        """Normalise rows by their batch in training; else, and for one row, which has no variance, by all."""
        if self.training and len(rows) > 1:
            return cast(Tensor, norm(rows))
        mean, variance = norm.running_mean, norm.running_var
        return F.batch_norm(rows, mean, variance, norm.weight, bias=norm.bias, eps=norm.eps)

    def loss(self, batch: TwoSided, labels: Tensor, weights: Tensor | None = None) -> Tensor:
        """Return the negative log likelihood of points (g, 1) labelled 0 or 1."""
        if weights is None:
            weights = torch.tensor(self.design.class_weights or (1.0, 1.0), device=labels.device)
        return super().loss(batch, labels, weights)

    def scorer(self, compute: Compute) -> Callable[[TwoSided], Tensor]:
        """Return ``forward`` on this device, in fp32, remembering what each word's filters gave."""
        model = self.eval().to(compute.device)
        cache = ProductCache(model.embedding)

        def score(batch: TwoSided) -> Tensor:
            cache.shrink()
            return model.log_probabilities(batch.to(compute.device), cache)[:, 1]

        return score

    @torch.inference_mode()
    def evidence(self, pair: Pair) -> Evidence:
        """Show what one pair's score is made of; the last layers mix the parts, so they do not sum to it."""
        training = self.training
        self.eval()
        batch = self.encode([pair]).to(self.decide.weight.device)
        log_no, log_yes = self.log_probabilities(batch)[0].tolist()
        cosine = word_cosines(self.embedding, batch.query.pad(at_least=1), batch.passage.pad(at_least=1))
        gathered = {}
        if self.attended is not None:
            maxima = self.attended_maxima(batch)
            gathered = {"filter maxima": (maxima, [str(one) for one in range(maxima.shape[2])])}
        parts = {"log P(relevant)": log_yes, "log P(not relevant)": log_no}
        self.train(training)
        return self.shown(pair, log_yes, {"cosine": cosine}, gathered=gathered, parts=parts, additive=False)
