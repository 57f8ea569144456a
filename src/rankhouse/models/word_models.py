"""What the word-level families share: fresh starts, losses, and evidence; reading is in word_reading.py.

These are bricks handed to a family (TK, KNRM, samCNN ...), each of which is its own ``torch.nn.Module``.
Shapes: n pairs, q query tokens, p passage tokens, d width, v vocabulary, g groups of s pairs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.models.contract import Objective, plain_scorer
from rankhouse.models.word_reading import Reading, WordReader, design_from, policy_of
from rankhouse.nn.compute import Compute
from rankhouse.nn.layers.ragged import TwoSided
from rankhouse.text.vectors import Missing, StartTable, like_the_known, random_table, start_table
from rankhouse.text.vocabulary import Vocabulary
from rankhouse.text.words import splitter

BATCH_TOKENS = 8_192
"""Words scored at once."""


def begin(
    reading: Reading, texts: Iterable[str], seed: int, missing: Missing = like_the_known
) -> tuple[WordReader, FloatArray]:
    """Count the vocabulary of a collection and start its vectors: (reader, table (v, d)).

    Raises:
        BadData: No word is frequent enough, or the vectors fit none of them.
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
    """What the word-level families have in common; a family adds its layers, ``forward`` and ``evidence``."""

    family: str
    objective: Objective = "contrasts"
    batch_tokens = BATCH_TOKENS
    scale = "score"
    designed_by: type[Reading]

    def __init__(self, design: Reading, reader: WordReader, width: int) -> None:
        super().__init__()
        self.design, self.reader = design, reader
        self.policy = policy_of(self.family, design, width)

    @classmethod
    def fresh(cls, design: Reading, texts: Iterable[str], seed: int) -> Self:
        """Count a vocabulary over texts, start its vectors and draw the weights: a model to be trained.

        Raises:
            BadData: No word is frequent enough, or the vectors fit none of them.
        """
        reader, table = begin(design, texts, seed)
        with seeded(seed):
            return cls(design, reader, table)  # type: ignore[arg-type]  # every family takes these three

    @classmethod
    def rebuild(cls, policy: Mapping[str, Any], assets: Mapping[str, bytes]) -> Self:
        """Make the model of a bundle, weights apart. Args: as in :meth:`Model.rebuild`."""
        design = design_from(cls.designed_by, policy)
        reader = WordReader.rebuild(design, assets)
        return cls(design, reader, blank_table(reader, policy["width"]))  # type: ignore[arg-type]  # likewise

    def assets(self) -> Mapping[str, bytes]:
        """Return the vocabulary's file."""
        return self.reader.assets()

    def encode(self, pairs: Sequence[Pair]) -> TwoSided:
        """Turn n pairs into word numbers."""
        return self.reader.encode(pairs)

    def loss(self, batch: TwoSided, labels: Tensor) -> Tensor:
        """Return the hinge loss with margin 1 of contrasts (g, s)."""
        return hinge(self(batch), labels)

    def scorer(self, compute: Compute) -> Callable[[TwoSided], Tensor]:
        """Return ``forward`` on this device, in fp32."""
        return plain_scorer(self, compute)


def hinge(scores: Tensor, labels: Tensor, margin: float = 1.0) -> Tensor:
    """Return the mean of max(0, margin - relevant + other) over all contrasts of g groups.

    Args:
        labels: (g, s); only its shape is used.

    Raises:
        WrongUse: Groups of one pair: there is nothing to contrast.
    """
    if labels.ndim != 2 or labels.shape[1] < 2:
        raise WrongUse(
            f"labels of shape {tuple(labels.shape)}: contrasts need groups of 2 pairs or more, relevant first"
        )
    grouped = scores.view(labels.shape)
    return F.relu(margin - grouped[:, :1] + grouped[:, 1:]).mean()


@dataclass(frozen=True)
class Evidence:
    """Why a pair got its score: what matched, what each query word gathered, what each part gave.

    Attributes:
        query_words: The q words the model saw.
        passage_words: The p words it saw.
        score: The pair's score.
        matches: Name -> (q, p) similarities.
        gathered: Name -> (q, m) what each query word gathered (kernel sums, best matches, histogram ...).
        columns: Name -> the m column names of ``gathered``.
        parts: Name -> number; in the order they are worth reading.
        additive: Whether ``parts`` sum to ``score``.
    """

    query_words: tuple[str, ...]
    passage_words: tuple[str, ...]
    score: float
    matches: Mapping[str, FloatArray] = field(default_factory=dict)
    gathered: Mapping[str, FloatArray] = field(default_factory=dict)
    columns: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    parts: Mapping[str, float] = field(default_factory=dict)
    additive: bool = True


def array(tensor: Tensor) -> FloatArray:
    """Return a tensor as a float32 array on the processor."""
    return tensor.detach().float().cpu().numpy()


def on_distinct(ids: Tensor, compute: Callable[[Tensor], Tensor]) -> Tensor:
    """Compute rows (n, t) of ids once each: reranking asks the same query again and again.

    Args:
        ids: (n, t) int64.
    """
    distinct, back = torch.unique(ids, dim=0, return_inverse=True)
    if len(distinct) == len(ids):
        return compute(ids)
    return compute(distinct)[back]
