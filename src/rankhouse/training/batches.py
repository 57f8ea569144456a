"""Labelled examples -> batches: what is put before a model at once, the same for the same seed and epoch.

Points: pairs with label 0 or 1, (g, 1). Contrasts: a relevant pair and ``count`` others of its query,
(g, 1 + count), relevant first. Positives: relevant pairs, each other's contrast, (g, 1 + count) with hard
negatives behind. Plans are numbers only; texts are read batch by batch.
Shapes: g groups, s group size, n = g * s pairs, row-major.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterator
from functools import cached_property
from typing import Literal, NamedTuple

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray, Pair
from rankhouse.core.sampling import generator
from rankhouse.evaluation.folds import products
from rankhouse.training.examples import NEGATIVES, RELEVANT, UNJUDGED, Examples, IntArray, NegativeRule
from rankhouse.training.settings import Settings

Kind = Literal["points", "contrasts", "positives"]


class Groups(NamedTuple):
    """A batch before its texts are read: (g, s) each."""

    query: IntArray
    item: IntArray
    label: IntArray

    def points(self) -> Groups:
        """Return (g * s, 1) points, relevant and other ones taking turns."""
        return Groups(*(column.reshape(-1, 1) for column in self))

    def take(self, rows: IntArray | slice) -> Groups:
        """Return some of the groups."""
        return Groups(*(column[rows] for column in self))


class TextBatch(NamedTuple):
    """A batch with its texts: n = g * s pairs, row-major."""

    pairs: list[Pair]
    labels: FloatArray  # (g, s) of 0 and 1
    # (g, s), a teacher's scores as a soft loss compares them; None: the labels are learned
    targets: FloatArray | None = None


class BatchTask(NamedTuple):
    """Part of a step: groups, what reads their texts, and what their loss counts."""

    read: Callable[[Groups], TextBatch]
    groups: Groups
    weight: float = 1.0


class BatchSource(ABC):
    """All batches of a training, epoch by epoch.

    Attributes:
        without_relevant: Queries that have no relevant passage.
        without_negatives: Relevant pairs left out because their query has no negative.
        false_negatives: Negatives left out because a teacher likes them too much.
        negatives: How many there were before.
        rule: Rule of the passages that may stand as not relevant.

    Raises WrongUse: settings with which batches of this kind cannot be made.
    """

    without_relevant = without_negatives = false_negatives = negatives = 0

    def __init__(self, examples: Examples, kind: Kind, settings: Settings) -> None:
        self.examples, self.kind, self.settings = examples, kind, settings
        self.rule: NegativeRule = notation.make(settings.negatives, NEGATIVES, "source of negatives")
        if kind == "contrasts" and settings.count < 1:
            raise WrongUse("count=0: a contrast needs 1 negative or more beside the relevant pair")
        if kind == "points" and settings.count == 0 and self.rule.anywhere:
            raise WrongUse(
                'negatives="random" are drawn for relevant pairs: say how many with count=1 or more'
            )
        if settings.by_query and kind != "points":
            raise WrongUse(f'by_query={settings.by_query}: only "points" are learned by query, not "{kind}"')

    @abstractmethod
    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""

    @abstractmethod
    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch; groups in which one is blank are left out."""

    def plan(self, number: int) -> Iterator[list[BatchTask]]:
        """Plan an epoch as steps, each of one task: the batch."""
        return ([BatchTask(self.read, groups)] for groups in self.epoch(number))


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
        if all(query.text.strip() and passage.text.strip() for query, passage in group):
            pairs += group
            rows.append(row)
    return pairs, rows


def check_count(count: int, most: int) -> None:
    """Refuse to draw far more passages for a query than any has; a few too many are drawn again."""
    if count > max(most, 1_000):
        raise WrongUse(
            f"count={count}: no query has more than {most:,} passages to draw, and a step would hold "
            f"{count:,} for each relevant one; give count={max(1, most)} or less"
        )


class Batches(BatchSource):
    """Batches on labels.

    With ``count`` 0, points take every relevant pair and every pair that ``negatives`` names once an epoch,
    as they are; else each relevant pair comes once with ``count`` negatives drawn for it, which balances the
    classes. Positives in one batch never share a query, and none is of a document relevant to another's
    query, since each serves as the others' negative.

    Raises BadData: nothing to learn from: no relevant pair, or none that has a negative.
    """

    def __init__(self, examples: Examples, kind: Kind, settings: Settings) -> None:
        super().__init__(examples, kind, settings)
        relevant = examples.label == RELEVANT
        drawable = self.rule.among(examples.label, examples.rank)
        queries = np.arange(len(examples.queries) + 1)
        self._drawable = np.flatnonzero(drawable)
        self._starts = np.searchsorted(examples.query[self._drawable], queries)
        documents = int(examples.document.max(initial=0)) + 1
        keys = examples.query * documents + examples.document[examples.item]
        self._documents, self._relevant_keys = documents, np.unique(keys[relevant])
        positives = np.flatnonzero(relevant)
        self.without_relevant = len(examples.queries) - len(np.unique(examples.query[positives]))
        needs = settings.count > 0 and not self.rule.anywhere
        has = (np.diff(self._starts) > 0)[examples.query[positives]] | (not needs)
        self.without_negatives = int((~has).sum())
        self._positives = positives[has]
        most = len(self._pool) if self.rule.anywhere else int(np.diff(self._starts).max(initial=0))
        check_count(settings.count, most)
        self._all = np.flatnonzero(relevant | drawable)
        self._refuse_one_class(relevant, drawable)

    def _refuse_one_class(self, relevant: np.ndarray, drawable: np.ndarray) -> None:
        judged = int((self.examples.label != UNJUDGED).sum())
        if not judged and self.examples.score is not None:
            raise BadData(
                "the pairs have scores and no labels; learn the scores, with  --loss margin-mse  or  "
                "--loss listwise-kl, or give each pair a label"
            )
        if not relevant.any():
            raise BadData(
                f"all {judged:,} labels say not relevant, so there is nothing to learn; give pairs of both "
                "kinds, or lower the grade that counts as relevant"
            )
        wants_negatives = self.kind != "positives" or self.settings.count > 0
        if not wants_negatives or self.rule.anywhere:
            return
        if not drawable.any():
            raise BadData(
                f"all {int(relevant.sum()):,} labelled pairs are relevant, and the rule for negatives finds "
                'no others; give judged negatives or a run, or negatives="random"'
            )
        if not len(self._positives):
            raise BadData(
                "no query has both a relevant pair and a negative, so there is no contrast to learn; "
                'give a deeper run, or negatives="random"'
            )

    @cached_property
    def per_epoch(self) -> int:
        """Number of batches of an epoch (for positives: of the first one)."""
        return sum(1 for _ in self.epoch(0))

    def epoch(self, number: int) -> Iterator[Groups]:
        """Plan an epoch: the same batches whenever asked with the same seed and number."""
        rng = generator(self.settings.seed, number)
        if self.settings.by_query:
            return self._by_query(rng)
        if self.kind == "positives":
            return self._positive_batches(rng)
        if self.kind == "points" and self.settings.count == 0:
            return self._mixed(rng)
        return self._drawn(rng)

    def read(self, groups: Groups) -> TextBatch:
        """Read the texts of a batch; groups in which a query or passage is blank are left out."""
        pairs, rows = read_texts(self.examples, groups)
        return TextBatch(pairs, groups.label[rows].astype(np.float32))

    def _mixed(self, rng: np.random.Generator) -> Iterator[Groups]:
        """Every labelled pair once."""
        rows = rng.permutation(self._all)
        for start in range(0, len(rows), self.settings.batch):
            yield self._as_points(rows[start : start + self.settings.batch])

    def _by_query(self, rng: np.random.Generator) -> Iterator[Groups]:
        """All pairs of a query together, in chunks; queries in random order."""
        count = self.settings.count
        rows = self._positives if count else self._all
        starts = np.searchsorted(self.examples.query[rows], np.arange(len(self.examples.queries) + 1))
        for query in rng.permutation(np.flatnonzero(np.diff(starts))):
            own = rows[starts[query] : starts[query + 1]]
            groups = self._with_negatives(own, rng).points() if count else self._as_points(own)
            order = rng.permutation(len(groups.query))
            for start in range(0, len(order), self.settings.by_query):
                yield groups.take(order[start : start + self.settings.by_query])

    def _drawn(self, rng: np.random.Generator) -> Iterator[Groups]:
        """Relevant pairs in random order, each with negatives drawn for it."""
        rows = rng.permutation(self._positives)
        points = self.kind == "points"
        size = max(1, self.settings.batch // (1 + self.settings.count)) if points else self.settings.batch
        for start in range(0, len(rows), size):
            groups = self._with_negatives(rows[start : start + size], rng)
            if len(groups.query):
                yield groups.points() if points else groups

    def _positive_batches(self, rng: np.random.Generator) -> Iterator[Groups]:
        """Relevant pairs that can serve as each other's negatives."""
        waiting = deque(rng.permutation(self._positives).tolist())
        while waiting:
            batch = self._compatible(waiting)
            groups = self._with_negatives(np.array(batch), rng)
            least = 1 if self.settings.count else 2  # one alone has no contrast
            if len(groups.query) >= least:
                yield groups

    def _compatible(self, waiting: deque[int]) -> list[int]:
        """Take the next relevant pairs off the queue; those that would be false negatives wait."""
        batch: list[int] = []
        queries: set[int] = set()
        documents: set[int] = set()
        passed: list[int] = []
        while waiting and len(batch) < self.settings.batch and len(passed) < 20 * self.settings.batch:
            row = waiting.popleft()
            query = int(self.examples.query[row])
            document = int(self.examples.document[self.examples.item[row]])
            asked, relevant = self._relevance
            if self._same[query] & queries or asked[document] & queries or relevant[query] & documents:
                passed.append(row)
                continue
            batch.append(row)
            queries.add(query)
            documents.add(document)
        waiting.extendleft(reversed(passed))
        return batch

    @cached_property
    def _same(self) -> dict[int, set[int]]:
        """Query -> the queries of its product, itself among them."""
        if not self.settings.transitive:
            return {query: {query} for query in range(len(self.examples.queries))}
        asked = self._relevance[1].items()
        joined = products({str(query): map(str, documents) for query, documents in asked})
        together = [set(map(int, queries)) for queries in joined]
        return {query: queries for queries in together for query in queries}

    @cached_property
    def _relevance(self) -> tuple[dict[int, set[int]], dict[int, set[int]]]:
        """Document -> queries it is relevant to; query -> its relevant documents."""
        asked: dict[int, set[int]] = {}
        relevant: dict[int, set[int]] = {}
        for key in self._relevant_keys.tolist():
            query, document = divmod(key, self._documents)
            asked.setdefault(document, set()).add(query)
            relevant.setdefault(query, set()).add(document)
        return asked, relevant

    def _with_negatives(self, rows: IntArray, rng: np.random.Generator) -> Groups:
        """Put ``count`` negatives behind each of b relevant pairs: (b, 1 + count)."""
        drawn = self._anywhere(rows, rng) if self.rule.anywhere else self._own(rows, rng)
        complete = (drawn >= 0).all(axis=1)
        items = np.column_stack([self.examples.item[rows], drawn])[complete]
        query = np.repeat(self.examples.query[rows][complete, None], items.shape[1], axis=1)
        label = np.zeros_like(items)
        label[:, 0] = 1
        return Groups(query, items, label)

    def _own(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw items of the same query, (b, count); different ones as long as there are enough."""
        query, count = self.examples.query[rows], self.settings.count
        start, size = self._starts[query], np.diff(self._starts)[query]
        if count <= 1:
            places = (rng.random((len(rows), count)) * size[:, None]).astype(np.int64)
        else:
            chosen = [rng.choice(n, count, replace=bool(n < count), shuffle=True) for n in size.tolist()]
            places = np.array(chosen, np.int64).reshape(len(rows), count)
        return self.examples.item[self._drawable[start[:, None] + places]] if count else places

    def _anywhere(self, rows: IntArray, rng: np.random.Generator) -> IntArray:
        """Draw any items, (b, count), of documents not relevant to the query; -1 where none was found."""
        pool = self._pool
        query = np.repeat(self.examples.query[rows][:, None], self.settings.count, axis=1)
        drawn = np.full(query.shape, -1, np.int64)
        for _ in range(50):
            missing = np.flatnonzero(drawn.ravel() < 0)
            if not len(missing):
                break
            items = pool[rng.integers(len(pool), size=len(missing))]
            keys = query.ravel()[missing] * self._documents + self.examples.document[items]
            places = np.minimum(np.searchsorted(self._relevant_keys, keys), len(self._relevant_keys) - 1)
            fits = self._relevant_keys[places] != keys
            drawn.ravel()[missing[fits]] = items[fits]
        return drawn

    @cached_property
    def _pool(self) -> IntArray:
        return np.unique(self.examples.item)

    def _as_points(self, rows: IntArray) -> Groups:
        examples = self.examples
        label = (examples.label[rows] == RELEVANT).astype(np.int64)
        return Groups(examples.query[rows, None], examples.item[rows, None], label[:, None])
