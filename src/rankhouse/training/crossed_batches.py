"""Batches in which every query stands beside every passage, for teachers that score them all at little cost.

A bi-encoder's scores of g queries and s passages are one product of vectors that it encoded before, and a
pupil that reads the two sides apart (TK) puts each passage into context once for all queries. So a step
compares g * s pairs at the cost of g + s texts. Some queries bring passages from their candidates; queries
whose own documents these are, join them.
Shapes: g queries, s passages.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.sampling import generator
from rankhouse.core.scores import numbers_only, one_each
from rankhouse.training.examples import Examples
from rankhouse.training.groups import BatchSource, Groups, Shape, TextBatch, read_texts
from rankhouse.training.negatives import RELEVANT, IntArray
from rankhouse.training.soft_batches import SoftBatches
from rankhouse.training.soft_losses import SoftLoss


class CrossedBatches(BatchSource):
    """All batches of a training on crossed pairs, epoch by epoch.

    A batch begins with some queries, each of which brings ``count`` of its candidates, and a relevant passage
    first if it has one. Of the queries to which one of these passages is relevant, one a passage joins them.

    Raises:
        BadData: No query has two candidates that the teacher tells apart.
        WrongUse: There is no teacher, or the loss looks at one pair at a time.
    """

    def __init__(self, examples: Examples, shape: Shape, loss: SoftLoss) -> None:
        if examples.teacher is None:
            raise WrongUse("crossed=True: pairs that nobody scored before are learned, so give a teacher")
        if loss.least < 2 or shape.count < 1:
            raise WrongUse(
                "crossed=True compares passages of a query: take another loss, and count=1 or more"
            )
        self.examples, self.shape, self._teacher = examples, shape, examples.teacher
        self._targets = SoftBatches(examples, shape, loss).targets
        query = examples.query
        self._begins = np.flatnonzero(np.bincount(query, minlength=len(examples.queries)) > 1)
        self._starts = np.searchsorted(query, np.arange(len(examples.queries) + 1))
        relevant = np.flatnonzero(examples.label == RELEVANT)
        order = np.argsort(examples.item[relevant], kind="stable")
        self._asked_items, self._asking = examples.item[relevant][order], query[relevant][order]

    @property
    def per_epoch(self) -> int:
        """How many batches an epoch has."""
        return -(-len(self._begins) // self.shape.batch)

    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""
        rng = generator(self.shape.seed, number)
        queries = rng.permutation(self._begins)
        for start in range(0, len(queries), self.shape.batch):
            yield self._batch(queries[start : start + self.shape.batch], rng)

    def _batch(self, begin: IntArray, rng: np.random.Generator) -> Groups:
        items = np.concatenate([self._candidates(query, rng) for query in begin.tolist()])
        items = items[np.sort(np.unique(items, return_index=True)[1])]
        first, last = (np.searchsorted(self._asked_items, items, side) for side in ("left", "right"))
        asked = np.flatnonzero(last > first)
        joining = self._asking[rng.integers(first[asked], last[asked])] if len(asked) else begin[:0]
        queries = np.array(list(dict.fromkeys([*begin.tolist(), *joining.tolist()])), np.int64)
        grid = np.meshgrid(queries, items, indexing="ij")
        return Groups(grid[0], grid[1], np.zeros_like(grid[0]))

    def _candidates(self, query: int, rng: np.random.Generator) -> IntArray:
        """Draw items of a query, a relevant one among them."""
        rows = np.arange(self._starts[query], self._starts[query + 1])
        relevant = rows[self.examples.label[rows] == RELEVANT]
        drawn = rng.permutation(rows)[: self.shape.count]
        items: IntArray = self.examples.item[np.concatenate([relevant[:1], drawn])]
        return items

    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch and ask the teacher; a query beside a blank text is left out."""
        pairs, kept = read_texts(self.examples, groups)
        scores = numbers_only(one_each(len(pairs), self._teacher.score(pairs)), pairs)
        shape = len(kept), groups.item.shape[1]
        return TextBatch(pairs, np.zeros(shape, np.float32), self._targets(scores.reshape(shape)))
