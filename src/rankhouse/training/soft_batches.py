"""Scored pairs -> batches: lists of pairs of one query with a teacher's scores, which are learned themselves.

The scores are those of a PAIRS file, or a teacher gives them batch by batch.
Shapes: g lists of s pairs each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property

import numpy as np

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Pair
from rankhouse.core.sampling import generator
from rankhouse.core.scores import numbers_only, one_each, scale_of
from rankhouse.training.examples import Examples
from rankhouse.training.groups import BatchSource, Groups, Shape, TextBatch, read_texts
from rankhouse.training.negatives import RELEVANT, IntArray
from rankhouse.training.soft_losses import SoftLoss
from rankhouse.training.soft_targets import ScoredPairs, Targets, targets_for

_MEASURED = 4096
"""Pairs that a teacher is asked about to see how large its scores are."""


class SoftBatches(BatchSource):
    """All batches of a training on scores, epoch by epoch.

    Pairs without a score are scored by the examples' teacher when they are needed, or left out without one.
    Every scored pair comes once an epoch, in lists of pairs of its query; a query with fewer pairs than a
    list is long has some of them twice. Queries with one pair are left out unless the loss is pointwise.

    Args:
        shape: Its batch, count and seed; a list is 1 + count pairs long, for pointwise losses 1.

    Attributes:
        targets: How scores become targets.

    Raises:
        BadData: No pair has a score, or no query has two that differ.
    """

    def __init__(self, examples: Examples, shape: Shape, loss: SoftLoss) -> None:
        examples.check_scale()
        teacher = examples.teacher
        self.examples, self._teacher = examples, teacher
        self.size = 1 if loss.least == 1 else max(2, 1 + shape.count)
        self.shape = shape
        n = len(examples)
        self._scores = np.full(n, np.nan, np.float32) if examples.score is None else examples.score.copy()
        rows = np.arange(n) if teacher is not None else np.flatnonzero(~np.isnan(self._scores))
        per_query = np.bincount(examples.query[rows], minlength=len(examples.queries))
        self._rows = rows[per_query[examples.query[rows]] >= loss.least]
        if not len(self._rows):
            raise BadData(
                f"none of the {len(examples.queries):,} queries has {loss.least} pairs with a score, so "
                "there is nothing to learn; write them with  rankhouse label --scores  or give a teacher"
            )
        known = scale_of(teacher) if teacher is not None else examples.scale
        if teacher is not None and examples.score is not None and known != examples.scale:
            raise BadData(
                f'the pairs have scores on the scale "{examples.scale}", the teacher gives "{known}"; label '
                "all with one, or leave the teacher out"
            )
        self.targets = Targets(known)
        self.targets = targets_for(loss, known, self._measured())

    def _measured(self) -> ScoredPairs:
        """Return scored pairs to measure by: all, or those of some queries, which the teacher reads now."""
        rows, query = self._rows, self.examples.query
        if self._teacher is not None:
            queries, sizes = np.unique(query[rows], return_counts=True)
            order = generator(self.shape.seed, 0, 1).permutation(len(queries))
            enough = 1 + int(np.searchsorted(np.cumsum(sizes[order]), _MEASURED))
            rows = rows[np.isin(query[rows], queries[order[:enough]])]
            self.read(self._groups(rows[:, None]))
        rows = rows[~np.isnan(self._scores[rows])]  # blank ones are not asked about
        return ScoredPairs(query[rows], self._scores[rows], self.examples.label[rows])

    @cached_property
    def per_epoch(self) -> int:
        """How many batches an epoch has."""
        _, pairs = np.unique(self.examples.query[self._rows], return_counts=True)
        return -(-int((-(-pairs // self.size)).sum()) // self._lists_a_batch)

    @property
    def _lists_a_batch(self) -> int:
        return max(1, self.shape.batch // self.size) if self.shape.kind == "points" else self.shape.batch

    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""
        lists = self._lists(generator(self.shape.seed, number))
        for start in range(0, len(lists), self._lists_a_batch):
            yield self._groups(lists[start : start + self._lists_a_batch])

    def _lists(self, rng: np.random.Generator) -> IntArray:
        """Cut the shuffled pairs of every query into lists of rows, in random order: (l, s)."""
        rows = rng.permutation(self._rows)
        rows = rows[np.argsort(self.examples.query[rows], kind="stable")]
        starts = np.flatnonzero(np.diff(self.examples.query[rows], prepend=-1))
        lists = [
            np.resize(some, (-(-len(some) // self.size), self.size))  # begins again where pairs run out
            for some in np.split(rows, starts[1:])
        ]
        return rng.permutation(np.concatenate(lists))

    def _groups(self, rows: IntArray) -> Groups:
        """Return the groups of these rows (g, s); in place of labels they carry the rows."""
        return Groups(self.examples.query[rows], self.examples.item[rows], rows)

    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch and its scores; lists in which a text is blank are left out."""
        pairs, kept = read_texts(self.examples, groups)
        rows = groups.label[kept]
        self._ask(pairs, rows.ravel())
        labels = (self.examples.label[rows] == RELEVANT).astype(np.float32)
        return TextBatch(pairs, labels, self.targets(self._scores[rows]))

    def _ask(self, pairs: Sequence[Pair], rows: IntArray) -> None:
        """Have the teacher score what has no score yet."""
        fresh = np.flatnonzero(np.isnan(self._scores[rows]))
        if self._teacher is not None and len(fresh):
            some = [pairs[place] for place in fresh.tolist()]
            self._scores[rows[fresh]] = numbers_only(one_each(len(some), self._teacher.score(some)), some)
