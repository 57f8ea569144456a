"""Shared parts of the word-level families: how they read text, fresh starts, losses, and evidence.

Each family (TK, KNRM, samCNN ...) is its own ``torch.nn.Module``.
Shapes: n pairs, q query tokens, p passage tokens, d width, v vocabulary, g groups of s pairs.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from types import MappingProxyType
from typing import Any, ClassVar, Self, TypeVar

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.contract import Model, Objective, plain_scorer
from rankhouse.nn.layers.ragged import Ragged, TwoSided
from rankhouse.nn.machine import Compute
from rankhouse.text.vectors import Missing, StartTable, like_the_known, random_table, start_table
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter

VOCABULARY_FILE = "vocabulary.json"
_NOTHING: Mapping[str, Any] = MappingProxyType({})
_START_ONLY = ("vectors", "min_count", "start")
_LARGEST = 1_000_000  # of any size that a design names
_CROSSED = 4  # pairs a distinct text, from which on it pays to look for equal ones


@dataclass(frozen=True)
class WordDesign:
    """Settings of a word-level family: reading, start of word vectors; families add their own sizes."""

    vectors: str = ""  # source of start vectors (see ``text.vectors.start_table``); "" draws them all
    words: str = "blingfire"  # notation of the word splitter
    min_count: int = 5  # rarer words become the one unknown word
    query_length: int = 30  # query tokens kept
    passage_length: int = 200  # passage tokens kept
    width: int = 300  # d, where ``vectors`` is ""
    model: ClassVar[type[WordModel]]

    def __post_init__(self) -> None:
        """Refuse sizes below 1, sizes that no machine holds, and unknown word splitters."""
        check_least(self, 1, "min_count", "query_length", "passage_length", "width")
        for name, size in asdict(self).items():
            if isinstance(size, int) and size > _LARGEST:
                raise WrongUse(f"{name}={size}: must be at most {_LARGEST:,}")
        splitter(self.words)

    def fresh(self, texts: Iterable[str], seed: int = 0) -> Model[Any]:
        """Count a vocabulary over texts, start its vectors and draw the weights: a model to be trained.

        Raises BadData: no word is frequent enough, or the vectors fit none of them.
        """
        reader, table = begin(self, texts, seed)
        with seeded(seed):
            return self.model(self, reader, table)  # type: ignore[arg-type]  # every family takes these three


D = TypeVar("D", bound=WordDesign)


def policy_of(family: str, design: WordDesign, width: int) -> Mapping[str, Any]:
    """Return everything besides weights and vocabulary that changes a score, as JSON values."""
    held = {name: value for name, value in asdict(design).items() if name not in _START_ONLY}
    jsonable = {name: list(value) if isinstance(value, tuple) else value for name, value in held.items()}
    return jsonable | {
        "family": family,
        "width": width,
        "max_length": design.query_length + design.passage_length,
    }


def design_from(design: type[D], policy: Mapping[str, Any]) -> D:
    """Make a design again from its policy.

    Raises BadModel: the policy lacks a setting or has one that this version does not know.
    """
    accepted = {f.name for f in fields(design)}
    given = {name: value for name, value in policy.items() if name not in {"family", "max_length"}}
    if not given.keys() <= accepted or not accepted <= given.keys() | set(_START_ONLY):
        raise BadModel(
            f"the model's policy has {sorted(given)}, this version needs "
            f"{sorted(accepted - set(_START_ONLY))}; use the version that wrote the model, or train it again"
        )
    as_fields: dict[str, Any] = {
        name: tuple(value) if isinstance(value, list) else value for name, value in given.items()
    }
    try:
        return design(**as_fields)
    except (TypeError, WrongUse) as error:
        raise BadModel(f"the model's policy cannot be used ({error}); train the model again") from error


class WordReader:
    """Reads pairs as word numbers; safe in a thread, as nothing in it changes."""

    def __init__(self, reading: WordDesign, vocabulary: Vocabulary) -> None:
        self.reading, self.vocabulary = reading, vocabulary
        self.split = splitter(reading.words)

    def words(self, pair: Pair) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the words of both sides that the model sees, as it sees them."""
        query, passage = self.split(pair.query.text), self.split(pair.passage.text)
        return tuple(query[: self.reading.query_length]), tuple(passage[: self.reading.passage_length])

    def characters_read(self, text: str) -> int | None:
        """Return how many characters of a passage, from its beginning, are read; None: all of them.

        The beginning ends between two words, and reads as the whole does.
        """
        words, limit = self.split(text), self.reading.passage_length
        if len(words) <= limit:
            return None
        ends = [match.end() for match in re.finditer(r"\S+", text)]
        at = bisect_left(ends, limit, key=lambda end: len(self.split(text[:end])))
        while at < len(ends) and self.split(text[: ends[at]])[:limit] != words[:limit]:
            at += 1  # what follows a word may change how it is split
        return ends[at] if at + 1 < len(ends) else None

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return each word's number."""
        return self.vocabulary.ids(words)

    def encode(self, pairs: Sequence[Pair]) -> TwoSided:
        """Turn n pairs into word numbers, each side cut to its length; the cut is counted in ``lost``."""
        texts: dict[str, list[int]] = {}
        query_rows, passage_rows, query_lost, lost = [], [], [], []
        for query, passage in pairs:
            for text in (query.text, passage.text):
                if text not in texts:
                    texts[text] = self.ids(self.split(text))
            query_ids, passage_ids = texts[query.text], texts[passage.text]
            query_rows.append(query_ids[: self.reading.query_length])
            passage_rows.append(passage_ids[: self.reading.passage_length])
            query_lost.append(len(query_ids) - len(query_rows[-1]))
            lost.append(query_lost[-1] + len(passage_ids) - len(passage_rows[-1]))
        # In training on crossed pairs, each passage stands beside every query of the batch.
        crossed = len(texts) <= len(pairs) // _CROSSED
        cut, query_cut = torch.tensor([lost, query_lost], dtype=torch.int64)
        return TwoSided(
            Ragged.of(query_rows), Ragged.of(passage_rows), cut, crossed=crossed, query_lost=query_cut
        )

    def rows(self, texts: Sequence[str], limit: int) -> Ragged:
        """Turn texts into word numbers, at most ``limit`` each."""
        return Ragged.of([self.ids(self.split(text))[:limit] for text in texts])

    def assets(self) -> dict[str, bytes]:
        """Return the vocabulary's file."""
        return {VOCABULARY_FILE: self.vocabulary.to_json()}

    @classmethod
    def rebuild(cls, reading: WordDesign, assets: Mapping[str, bytes]) -> WordReader:
        """Make a reader from its design and files; BadModel if the vocabulary's file is missing."""
        if VOCABULARY_FILE not in assets:
            raise BadModel(
                f"the model has no {VOCABULARY_FILE} (it has {sorted(assets)}); copy it whole again"
            )
        return cls(reading, Vocabulary.from_json(assets[VOCABULARY_FILE], VOCABULARY_FILE))


BATCH_TOKENS = 8_192
"""Words scored at once."""


def begin(
    reading: WordDesign, texts: Iterable[str], seed: int, missing: Missing = like_the_known
) -> tuple[WordReader, FloatArray]:
    """Count the vocabulary of a collection and start its vectors: (reader, table (v, d)).

    Raises BadData: no word is frequent enough, or the vectors fit none of them.
    """
    split = splitter(reading.words)
    vocabulary = Vocabulary.count((split(text) for text in texts), reading.min_count)
    start: StartTable
    if reading.vectors:
        start = start_table(reading.vectors, vocabulary, seed, missing)
    else:
        start = random_table(vocabulary, reading.width, seed)
    return WordReader(reading, vocabulary), start.table


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Draw fresh weights from this seed; the process's own random state is put back."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        yield


def embedding(table: FloatArray) -> nn.Embedding:
    """Make the trained word table from start rows (v, d); row 0 stays zero."""
    layer = nn.Embedding(table.shape[0], table.shape[1], padding_idx=0)
    with torch.no_grad():
        layer.weight.copy_(torch.from_numpy(table))
        layer.weight[0] = 0
    return layer


def blank_table(reader: WordReader, width: int) -> FloatArray:
    """Return a zero table of the right shape, to be filled with saved weights."""
    return np.zeros((len(reader.vocabulary), width), np.float32)


class WordModel(nn.Module):
    """Base of the word-level families; a family adds its layers, ``forward`` and ``evidence``."""

    family: str
    objective: Objective = "contrasts"
    batch_tokens = BATCH_TOKENS
    scale = "score"
    reads_words = True
    designed_by: type[WordDesign]

    def __init__(self, design: WordDesign, reader: WordReader, width: int) -> None:
        super().__init__()
        self.design, self.reader = design, reader
        self.policy = policy_of(self.family, design, width)

    def __init_subclass__(cls) -> None:
        if "designed_by" in vars(cls):
            cls.designed_by.model = cls

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart."""
        design = design_from(cls.designed_by, policy)
        reader = WordReader.rebuild(design, assets)
        return cls(design, reader, blank_table(reader, policy["width"]))  # type: ignore[arg-type]  # as in fresh

    def assets(self) -> Mapping[str, bytes]:
        """Return the vocabulary's file."""
        return self.reader.assets()

    def encode(self, pairs: Sequence[Pair]) -> TwoSided:
        """Turn n pairs into word numbers."""
        return self.reader.encode(pairs)

    def characters_read(self, pair: Pair) -> int | None:
        """Return how many characters of the passage are read; None: all of them."""
        return self.reader.characters_read(pair.passage.text)

    def loss(self, batch: TwoSided, labels: Tensor) -> Tensor:
        """Return the hinge loss with margin 1 of contrasts (g, s)."""
        return hinge(self(batch), labels)

    def scorer(self, compute: Compute) -> Callable[[TwoSided], Tensor]:
        """Return ``forward`` on this device, in fp32."""
        return plain_scorer(self, compute)

    def shown(
        self,
        pair: Pair,
        score: float,
        matches: Mapping[str, Tensor],
        *,
        gathered: Mapping[str, tuple[Tensor, Sequence[str]]] = _NOTHING,
        parts: Mapping[str, float],
        additive: bool = True,
    ) -> Evidence:
        """Return the evidence of one pair, without padding.

        Args:
            matches: Name -> (1, q, p) similarities.
            gathered: Name -> (1, q, m) what each query word gathered, and the names of the m columns.
        """
        words = query_words, passage_words = self.reader.words(pair)
        q, p = len(query_words), len(passage_words)
        return Evidence(
            *words,
            score,
            {name: array(match[0, :q, :p]) for name, match in matches.items()},
            gathered={name: array(values[0, :q]) for name, (values, _) in gathered.items()},
            columns={name: tuple(columns) for name, (_, columns) in gathered.items()},
            parts=parts,
            additive=additive,
        )


class TwoClassModel(WordModel):
    """A word-level family that tells relevant from not relevant; a score is the logarithm of P(relevant)."""

    objective: Objective = "points"
    scale = "logprob"

    def log_probabilities(self, batch: Any) -> Tensor:  # noqa: ANN401  # the family's own kind of batch
        """Return the logarithms of P(not relevant) and P(relevant): (n, 2)."""
        raise NotImplementedError

    def forward(self, batch: Any) -> Tensor:  # noqa: ANN401  # as above
        """Score n pairs: (n,), the logarithm of P(relevant)."""
        return self.log_probabilities(batch)[:, 1]

    def log_odds(self, batch: Any) -> Tensor:  # noqa: ANN401  # as above
        """Return log P(relevant) / P(not relevant), (n,)."""
        no, yes = self.log_probabilities(batch).unbind(1)
        return yes - no

    def loss(self, batch: Any, labels: Tensor, weights: Tensor | None = None) -> Tensor:  # noqa: ANN401
        """Return the negative log likelihood of points (g, 1) labelled 0 or 1, classes weighed by (2,)."""
        return F.nll_loss(self.log_probabilities(batch), labels.flatten().long(), weights)


def hinge(scores: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean of max(0, margin - relevant + other) over all contrasts of g groups.

    Raises WrongUse: groups of one pair: there is nothing to contrast.
    """
    if labels.ndim != 2 or labels.shape[1] < 2:
        raise WrongUse(
            f"labels of shape {tuple(labels.shape)}: contrasts need groups of 2 pairs or more, relevant first"
        )
    grouped = scores.view(labels.shape)
    return F.relu(margin - grouped[:, :1] + grouped[:, 1:]).mean()


@dataclass(frozen=True)
class Evidence:
    """Why a pair got its score: what matched, what each query word gathered, what each part gave."""

    query_words: tuple[str, ...]  # the q words the model saw
    passage_words: tuple[str, ...]  # the p words it saw
    score: float  # the pair's score
    matches: Mapping[str, FloatArray] = field(default_factory=dict)  # name -> (q, p) similarities
    # name -> (q, m) what each query word gathered (kernel sums, best matches, histogram ...)
    gathered: Mapping[str, FloatArray] = field(default_factory=dict)
    # name -> the m column names of ``gathered``
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    # name -> number; in the order they are worth reading
    parts: Mapping[str, float] = field(default_factory=dict)
    additive: bool = True  # whether ``parts`` sum to ``score``


def array(tensor: Tensor) -> FloatArray:
    """Return a tensor as a float32 array on the processor."""
    return tensor.detach().float().cpu().numpy()


def on_distinct(ids: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute rows (n, t) of ids once each: reranking asks the same query again and again."""
    distinct, back = torch.unique(ids, dim=0, return_inverse=True)
    if len(distinct) == len(ids):
        return compute(ids)
    return compute(distinct)[back]
