"""Scored pairs -> batches: pairs of one query with a teacher's scores, which are learned themselves.

The scores are those of a PAIRS file, or a teacher gives them batch by batch.
Shapes: g lists (crossed: queries) of s pairs (passages) each.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import chain, count, islice

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Pair
from rankhouse.core.sampling import generator
from rankhouse.core.scores import scale_of
from rankhouse.training import distillation
from rankhouse.training.batches import (
    Batches,
    BatchSource,
    BatchTask,
    Groups,
    Kind,
    TextBatch,
    check_count,
    read_texts,
)
from rankhouse.training.examples import RELEVANT, Examples, IntArray
from rankhouse.training.settings import Settings


class SoftBatches(BatchSource):
    """All batches of a training on scores, epoch by epoch.

    Pairs without a score are scored by the examples' teacher when they are needed, or left out without one.
    Every scored pair comes once an epoch, in lists of pairs of its query; a query with fewer pairs than a
    list is long has some of them twice. Queries with one pair are left out unless the loss is pointwise.

    A list is 1 + count pairs long, for pointwise losses 1.

    Raises BadData: no pair has a score, or no query has two that differ.
    """

    def __init__(self, examples: Examples, kind: Kind, settings: Settings) -> None:
        super().__init__(examples, kind, settings)
        examples.check_scale()
        self._teacher = teacher = examples.teacher
        loss = distillation.soft_loss(settings.loss)
        self.size = 1 if loss.least == 1 else max(2, 1 + settings.count)
        n = len(examples)
        self._scores = np.full(n, np.nan, np.float32) if examples.score is None else examples.score.copy()
        rows = np.arange(n) if teacher is not None else np.flatnonzero(~np.isnan(self._scores))
        per_query = np.bincount(examples.query[rows], minlength=len(examples.queries))
        if self.size > 1:
            check_count(settings.count, int(per_query.max(initial=0)))
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
        self.targets = distillation.Targets(known)
        self.targets = distillation.targets_for(loss, known, self._measured())

    def _measured(self) -> distillation.TeacherScores:
        """Return scored pairs to measure by: all, or those of some queries, which the teacher reads now."""
        rows, query = self._rows, self.examples.query
        if self._teacher is not None:
            queries, sizes = np.unique(query[rows], return_counts=True)
            order = generator(self.settings.seed, 0, 1).permutation(len(queries))
            enough = 1 + int(np.searchsorted(np.cumsum(sizes[order]), 4096))  # of about so many pairs
            rows = rows[np.isin(query[rows], queries[order[:enough]])]
            self.read(self._groups(rows[:, None]))
        rows = rows[~np.isnan(self._scores[rows])]  # blank ones are not asked about
        return distillation.TeacherScores(query[rows], self._scores[rows], self.examples.label[rows])

    @cached_property
    def per_epoch(self) -> int:
        """Number of batches of an epoch."""
        _, pairs = np.unique(self.examples.query[self._rows], return_counts=True)
        return -(-int((-(-pairs // self.size)).sum()) // self._lists_a_batch)

    @property
    def _lists_a_batch(self) -> int:
        return max(1, self.settings.batch // self.size) if self.kind == "points" else self.settings.batch

    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""
        lists = self._lists(generator(self.settings.seed, number))
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
            self._scores[rows[fresh]] = distillation.ask_teacher(
                self._teacher, [pairs[place] for place in fresh.tolist()]
            )


class CrossedBatches(BatchSource):
    """All batches of a training on crossed pairs, epoch by epoch.

    A batch begins with some queries, each of which brings ``count`` of its candidates, and a relevant passage
    first if it has one. Of the queries to which one of these passages is relevant, one a passage joins them.

    Raises BadData: no query has two candidates that the teacher tells apart; WrongUse: there is no teacher,
    or the loss looks at one pair at a time.
    """

    def __init__(self, examples: Examples, kind: Kind, settings: Settings) -> None:
        super().__init__(examples, kind, settings)
        if examples.teacher is None:
            raise WrongUse("crossed=True: pairs that nobody scored before are learned, so give a teacher")
        if distillation.soft_loss(settings.loss).least < 2 or settings.count < 1:
            raise WrongUse(
                "crossed=True compares passages of a query: take another loss, and count=1 or more"
            )
        self._teacher = examples.teacher
        self._targets = SoftBatches(examples, kind, settings).targets
        query = examples.query
        self._begins = np.flatnonzero(np.bincount(query, minlength=len(examples.queries)) > 1)
        self.per_epoch = -(-len(self._begins) // settings.batch)
        self._starts = np.searchsorted(query, np.arange(len(examples.queries) + 1))
        relevant = np.flatnonzero(examples.label == RELEVANT)
        order = np.argsort(examples.item[relevant], kind="stable")
        self._asked_items, self._asking = examples.item[relevant][order], query[relevant][order]

    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""
        rng = generator(self.settings.seed, number)
        queries = rng.permutation(self._begins)
        for start in range(0, len(queries), self.settings.batch):
            yield self._batch(queries[start : start + self.settings.batch], rng)

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
        drawn = rng.permutation(rows)[: self.settings.count]
        items: IntArray = self.examples.item[np.concatenate([relevant[:1], drawn])]
        return items

    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch and ask the teacher; a query beside a blank text is left out."""
        pairs, kept = read_texts(self.examples, groups)
        scores = distillation.ask_teacher(self._teacher, pairs)
        shape = len(kept), groups.item.shape[1]
        return TextBatch(pairs, np.zeros(shape, np.float32), self._targets(scores.reshape(shape)))


class MixedBatches:
    """Batches on scores, each beside one on judgements; an epoch is one of the batches on scores."""

    def __init__(self, soft: SoftBatches | CrossedBatches, judged: Batches) -> None:
        self.soft, self.judged, self._share = soft, judged, soft.settings.judged
        self.examples, self.kind, self.per_epoch = soft.examples, soft.kind, soft.per_epoch
        self.settings, self.rule = soft.settings, soft.rule
        self.without_relevant, self.without_negatives = judged.without_relevant, judged.without_negatives
        self.false_negatives, self.negatives = judged.false_negatives, judged.negatives

    def plan(self, number: int) -> Iterator[list[BatchTask]]:
        """Plan an epoch as steps, each of two tasks: a batch on scores and one on judgements."""
        first, size = number * self.soft.per_epoch, max(1, self.judged.per_epoch)
        epochs = (self.judged.epoch(first // size + more) for more in count())
        judged = islice(chain.from_iterable(epochs), first % size, None)
        for soft, hard in zip(self.soft.epoch(number), judged, strict=False):
            yield [
                BatchTask(self.soft.read, soft, 1 - self._share),
                BatchTask(self.judged.read, hard, self._share),
            ]


AnyBatches = Batches | SoftBatches | CrossedBatches | MixedBatches


def batches_for(examples: Examples, kind: Kind, settings: Settings) -> AnyBatches:
    """Return the batches that a training takes: on labels, on a teacher's scores, or on both.

    Raises BadData: nothing to learn from; WrongUse: a teacher without a loss that learns from it.
    """
    if not settings.loss:
        if examples.teacher is not None and not settings.denoise:
            raise WrongUse('a teacher\'s scores are learned by a loss: give loss="margin-mse" or another one')
        return _judged(examples, kind, settings)
    source = CrossedBatches if settings.crossed else SoftBatches
    soft = source(examples, kind, settings)
    return MixedBatches(soft, _judged(examples, kind, settings)) if settings.judged else soft


def _judged(examples: Examples, kind: Kind, settings: Settings) -> Batches:
    """Return batches on labels, without false negatives if that is wanted."""
    if not settings.denoise:
        return Batches(examples, kind, settings)
    done = distillation.denoise(
        examples, notation.make(settings.denoise, distillation.DENOISERS, "bound of negatives")
    )
    batches = Batches(done.examples, kind, settings)
    batches.false_negatives, batches.negatives = done.removed, done.negatives
    return batches
