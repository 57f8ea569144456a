"""What a batch is: its shape, the groups that it plans, its texts, and what every source of batches does.

Shapes: g groups, s group size, n = g * s pairs, row-major.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Literal, NamedTuple

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Pair, Passage
from rankhouse.training.examples import Examples
from rankhouse.training.negatives import NEGATIVES, IntArray, Negatives
from rankhouse.training.settings import Settings

Kind = Literal["points", "contrasts", "positives"]


class Groups(NamedTuple):
    """A batch before its texts are read: (g, s) each."""

    query: IntArray
    item: IntArray
    label: IntArray


class TextBatch(NamedTuple):
    """A batch with its texts: n = g * s pairs, row-major.

    Attributes:
        pairs: n of them.
        labels: (g, s) of 0 and 1.
        targets: (g, s), a teacher's scores as a soft loss compares them; None: the labels are learned.
    """

    pairs: list[Pair]
    labels: FloatArray
    targets: FloatArray | None = None


class Task(NamedTuple):
    """Part of a step: groups, what reads their texts, and what their loss counts."""

    read: Callable[[Groups], TextBatch]
    groups: Groups
    weight: float = 1.0


@dataclass(frozen=True)
class Shape:
    """What batches look like.

    Attributes:
        kind: What the family learns from.
        negatives: Which passages may stand as not relevant.
        batch: Groups in a batch (for points: pairs).
        count: Negatives drawn for a relevant pair; 0: see :class:`~rankhouse.training.batches.Batches`.
        by_query: Points of one query form a batch, in chunks of this many; 0: queries are mixed.
        seed: Of all that is drawn.
        transitive: Relevance is sameness: what relevant pairs join, also by way of others, is one product,
            and a batch of positives holds a product once.
    """

    kind: Kind
    negatives: Negatives
    batch: int = 32
    count: int = 1
    by_query: int = 0
    seed: int = 0
    transitive: bool = False

    def __post_init__(self) -> None:
        if self.kind == "contrasts" and self.count < 1:
            raise WrongUse("count=0: a contrast needs 1 negative or more beside the relevant pair")
        if self.kind == "points" and self.count == 0 and self.negatives.anywhere:
            raise WrongUse(
                'negatives="random" are drawn for relevant pairs: say how many with count=1 or more'
            )
        if self.by_query and self.kind != "points":
            raise WrongUse(f'by_query={self.by_query}: only "points" are learned by query, not "{self.kind}"')


def shape_of(kind: Kind, settings: Settings) -> Shape:
    """Return the shape of batches of a kind that settings ask for."""
    return Shape(
        kind=kind,
        negatives=notation.make(settings.negatives, NEGATIVES, "source of negatives"),
        batch=settings.batch,
        count=settings.count,
        by_query=settings.by_query,
        seed=settings.seed,
        transitive=settings.transitive,
    )


class BatchSource(ABC):
    """All batches of a training, epoch by epoch.

    Attributes:
        without_relevant: Queries that have no relevant passage.
        without_negatives: Relevant pairs left out because their query has no negative.
        false_negatives: Negatives left out because a teacher likes them too much.
        negatives: How many there were before.
    """

    without_relevant = without_negatives = false_negatives = negatives = 0

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""

    @abstractmethod
    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch; groups in which one is blank are left out."""

    def plan(self, number: int) -> Iterator[list[Task]]:
        """Plan an epoch as steps, each of one task: the batch."""
        return ([Task(self.read, groups)] for groups in self.epoch(number))


def read_texts(examples: Examples, groups: Groups) -> tuple[list[Pair], list[int]]:
    """Read the pairs of groups (g, s), row after row, and which rows they are; blank ones are left out."""
    items, at = np.unique(groups.item, return_inverse=True)
    passages = examples.fetch(items.tolist())
    at = at.reshape(groups.item.shape)
    pairs: list[Pair] = []
    rows = []
    for row in range(len(groups.query)):
        group = [
            Pair(examples.queries[query], passages[place])
            for query, place in zip(groups.query[row], at[row], strict=True)
        ]
        if all(query.text.strip() and _said(passage) for query, passage in group):
            pairs += group
            rows.append(row)
    return pairs, rows


def _said(passage: Passage) -> bool:
    return bool(passage.text.strip())
