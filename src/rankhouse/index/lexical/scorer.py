"""The scores of one index's documents for weighted terms: best k, or one document with what it is made of.

A document's score is the same sum wherever it lies: terms in one order, statistics those of all documents
that are ranked together, of which the index may hold a part, float32 a term, added in float64. The compiled
kernel ranks for many queries in one call; it gets numbers a term, and numbers or tables a model, from here.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray
from rankhouse.index.index import Index, TermTable
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Float32s, Float64s, Int64s, TermScores
from rankhouse.index.lexical.segment import DECODED
from rankhouse.index.lexical.weighting import Collection, Ratio, Sum, TermCounts, Weighting

Weighted = Mapping[str, tuple[float, TermCounts]]
"""The terms of a query in the order of the sum, with their weights as they are scored and their counts."""

LARGEST_TABLE_TF: Final = 255
"""Highest count up to which a term has a table of scores [tf][length code]; above, each posting is scored."""
_LARGEST_RISE: Final = 4095
_AT_ONCE: Final = 1 << 20
"""Hits that one call of the kernel may give."""
_FORMS: Final = {Ratio: 0, Sum: 1, type(None): 2}
PRUNING = 1
"""What cannot be among the best is left out: 0 never, 1 where it is worth it, 2 always."""


class Hits(NamedTuple):
    """The best documents for a query.

    Attributes:
        rows: Their rows among all documents, (k,) int64, by score, then by document id, ascending.
        scores: Their raw scores, (k,) float32.
        ids: Their ids, where these came with them: from parts of an index that may lie elsewhere.
    """

    rows: Int64s
    scores: FloatArray
    ids: tuple[str, ...] = ()


NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


class TermAddend(NamedTuple):
    """What one term of a query adds to one document's score.

    Attributes:
        boost: The term's weight as it is scored.
        counts: Of the term, in the whole index.
        tf: Its occurrences in the document.
        value: What it adds; the engine's own float32 number.
    """

    boost: float
    counts: TermCounts
    tf: int
    value: float


class DocumentScore(NamedTuple):
    """One document's score, added up as a search does, whether a search would return it or not.

    Attributes:
        score: The float32 sum.
        addends: By term: those that the index has, in the order of the sum.
        prior: What the document gets besides them; None where the model has no prior.
        length: Its length as it is scored: Lucene's, one byte, or the true one.
        tokens: Its true length.
    """

    score: float
    addends: dict[str, TermAddend]
    prior: float | None
    length: float
    tokens: int


class _Facts:
    """One model's numbers for the terms of a table, by slot; they grow with it."""

    def __init__(self, table: TermTable) -> None:
        self.table = table
        self.counts: list[TermCounts | None] = []
        self.facts = np.zeros(256)  # a number that the weight is multiplied with
        self.at = np.full(256, -1, np.int64)  # where the term's rises begin
        self.rises, self.filled = np.zeros(4096), 0


class Scorer:
    """One model over the documents of one index; safe to share between threads.

    Args:
        collection: Statistics of all documents that are ranked; the index may hold a part of them.

    Attributes:
        postings: How many postings the terms of the queries so far have, and how many were unpacked; counted
            by the compiled kernel.
    """

    def __init__(self, index: Index, model: Weighting, collection: Collection) -> None:
        self._index, self._model, self._collection = index, model, collection
        self._lock = threading.Lock()
        self._facts = _Facts(index.look_up(()))
        self._table = lru_cache(maxsize=4096)(self._make_table)
        self._scored = lru_cache(maxsize=256)(self._score_postings)
        self.postings = np.zeros(2, np.int64)

    def hits(self, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents for weighted terms of each query; rows are those of the index."""
        if not kernel.COMPILED:
            return [self._rank_plainly(terms, k) for terms in queries]
        size = max(1, _AT_ONCE // k)
        parts = (queries[start : start + size] for start in range(0, len(queries), size))
        return [hits for part in parts for hits in self._rank(part, k)]

    # --- by the compiled kernel -----------------------------------------------------------------------------

    def _rank(self, queries: Sequence[Weighted], k: int) -> Iterator[Hits]:
        table = self._index.look_up(term for terms in queries for term in terms)
        facts = self._known(table, queries)
        slots = np.array([table.slots[term] for terms in queries for term in terms], np.int64)
        weights = np.array([weight for terms in queries for weight, _ in terms.values()], np.float64)
        ends = np.cumsum([len(terms) for terms in queries])
        numbers, highest = table.numbers[slots], table.highest[slots]
        tables, at, given = self._tables(queries, numbers, highest, facts.at[slots])
        rows, scores = np.empty(len(queries) * k, np.int64), np.empty(len(queries) * k, np.float32)
        counts, form = np.empty(len(queries), np.int64), _FORMS[type(self._model.form)]
        self.postings += kernel.search(
            self._index.opened,
            (form, PRUNING, self._model.exact_lengths, self._length_codes, k, self._index.in_id_order),
            (
                *self._by_length,
                *(facts.rises, tables, ends, numbers, highest, weights, facts.facts[slots], at),
                *(self._priors(queries), *given, rows, scores, counts),
            ),
        )
        rows = self._index.among_alive(rows)
        for start, n in zip(range(0, len(rows), k), counts.tolist(), strict=True):
            yield Hits(rows[start : start + n], scores[start : start + n])

    @cached_property
    def _length_codes(self) -> int:
        return max(segment.length_codes for segment in self._index.segments)

    @cached_property
    def _by_length(self) -> tuple[Float32s, Float32s, Float64s, Float64s]:
        """Return the model's tables by length: two of the ratio, the fall, the prior."""
        model, lengths = self._model, DECODED
        if model.exact_lengths:
            longest = max(int(s.lengths_among_all(exact=True).max(initial=0)) for s in self._index.segments)
            lengths = np.arange(longest + 1, dtype=np.float64)
        one, fall, prior = np.ones(1, np.float32), np.zeros(len(lengths)), np.empty(0)
        by_length = by_code = np.broadcast_to(one, 256)
        if isinstance(model.form, Ratio):
            by_length, by_code = (model.form.by_length(some, self._collection) for some in (lengths, DECODED))
        if isinstance(model.form, Sum) and model.form.fall is not None:
            fall = model.form.fall(lengths)
        if model.prior is not None:
            prior = model.prior.norm(lengths)
        return tuple(map(np.ascontiguousarray, (by_length, by_code, fall, prior)))  # type: ignore[return-value]

    def _known(self, table: TermTable, queries: Sequence[Weighted]) -> _Facts:
        """Return the model's facts about the terms of queries, all of those that are new computed at once."""
        facts, slots = self._facts, table.slots
        if facts.table is not table:
            facts = self._facts = _Facts(table)
        if len(table.counts) > len(facts.facts):
            with self._lock:
                more = 2 * len(table.counts) - len(facts.facts)
                # In this order: a search in another thread that sees longer facts finds as many places.
                facts.at = np.pad(facts.at, (0, more), constant_values=-1)
                facts.facts = np.pad(facts.facts, (0, more))
        known, n = facts.counts, len(facts.counts)
        fresh = {
            slot: counts
            for terms in queries
            for term, (_, counts) in terms.items()
            if (slot := slots[term]) >= n or (known[slot] is not counts and known[slot] != counts)
        }
        if fresh and self._model.form is not None:
            with self._lock:
                self._learn(facts, fresh)
        return facts

    def _learn(self, facts: _Facts, fresh: Mapping[int, TermCounts]) -> None:
        form, collection, size = self._model.form, self._collection, len(facts.table.counts)
        facts.counts += [None] * (size - len(facts.counts))
        slots, counts = list(fresh), list(fresh.values())
        if isinstance(form, Ratio):
            facts.facts[slots] = [form.fact(one, collection) for one in counts]
        elif isinstance(form, Sum):
            sizes = np.minimum(facts.table.highest[slots], _LARGEST_RISE).astype(np.int64) + 1
            starts = facts.filled + np.cumsum(sizes) - sizes
            tf = np.arange(int(sizes.sum())) - np.repeat(starts - facts.filled, sizes)
            p = np.repeat([form.probability(one, collection) for one in counts], sizes)
            end = facts.filled + len(tf)
            if end > len(facts.rises):
                facts.rises = np.pad(facts.rises, (0, end))
            facts.rises[facts.filled : end] = form.rise(tf, p)
            facts.at[slots], facts.filled = starts, end
        for slot, one in fresh.items():
            facts.counts[slot] = one

    def _tables(
        self, queries: Sequence[Weighted], numbers: NDArray[np.int32], highest: NDArray[np.int32], at: Int64s
    ) -> tuple[Float32s, Int64s, tuple[Int64s, NDArray[np.int32], Float32s]]:
        """Return tables where the kernel has no formula, and scores of postings where no table fits."""
        limit = _LARGEST_RISE if isinstance(self._model.form, Sum) else LARGEST_TABLE_TF
        large = highest > limit if not isinstance(self._model.form, Ratio) else np.zeros(len(highest), bool)
        tables, lists, rows, scores = list[Float32s](), list[int](), list[Any](), list[Float32s]()
        filled = 0
        if self._model.form is None or large.any():
            every = (one for terms in queries for one in terms.values())
            for place, (boost, counts) in enumerate(every):
                if large[place]:
                    highest[place], at[place] = 0, -1
                    for position in np.flatnonzero(numbers[place] >= 0).tolist():
                        some = self._scored(position, int(numbers[place, position]), boost, counts)
                        start = sum(map(len, rows))
                        lists += [place, position, start, start + len(some.rows)]
                        rows.append(some.rows)
                        scores.append(some.values.astype(np.float32))
                elif self._model.form is None:
                    tables.append(self._table(int(highest[place]), boost, counts))
                    at[place], filled = filled, filled + len(tables[-1])
        empty, none = np.empty(0, np.float32), np.empty(0, np.int32)
        given = np.array(lists, np.int64), np.concatenate([none, *rows]), np.concatenate([empty, *scores])
        return np.concatenate([empty, *tables]), at, given

    def _make_table(self, highest: int, boost: float, counts: TermCounts) -> Float32s:
        """Score every count up to a highest, at every length code in use: (counts x codes,)."""
        tf, lengths = np.arange(highest + 1)[:, None], DECODED[None, : self._length_codes]
        scores = self._model.term(tf, lengths, counts, collection=self._collection, boost=boost)
        return np.ascontiguousarray(scores, np.float32).ravel()

    def _priors(self, queries: Sequence[Weighted]) -> Float64s:
        """Return the two numbers of the prior of each query, (queries x 2,)."""
        priors = np.zeros((len(queries), 2))
        if self._model.prior is not None:
            priors[:] = [self._model.prior.parts(list(terms.values()), self._collection) for terms in queries]
        return priors

    # --- by numpy -------------------------------------------------------------------------------------------

    def _score_postings(self, position: int, number: int, boost: float, counts: TermCounts) -> TermScores:
        """Score a term's postings in one segment."""
        segment = self._index.segments[position]
        rows, tf = segment.postings(number)
        length = segment.lengths_among_all(exact=self._model.exact_lengths)[rows]
        scores = self._model.term(tf, length.astype(np.float64), counts, self._collection, boost=boost)
        return TermScores(rows, scores.astype(np.float32).astype(np.float64))

    def _rank_plainly(self, terms: Weighted, k: int) -> Hits:
        """Find the best k documents by adding up all postings."""
        table = self._index.look_up(terms)
        of_segments = list[Hits]()
        for position, segment in enumerate(self._index.segments):
            numbers = [(t, int(table.numbers[table.slots[t], position])) for t in terms]
            scored = [self._scored(position, number, *terms[t]) for t, number in numbers if number >= 0]
            if scored:
                lengths = segment.lengths_among_all(exact=self._model.exact_lengths)
                prior = self._prior(lengths, terms)
                rows, scores = kernel.rank(scored, prior, segment.id_rank(), segment.dead, k=k)
                alive = segment.among_alive(rows.astype(np.int64))
                of_segments.append(Hits(alive + self._index.starts[position], scores))
        return self._merge(of_segments, k)

    def _prior(self, lengths: NDArray[Any], terms: Weighted) -> Float64s | None:
        if self._model.prior is None:
            return None
        return self._model.prior(lengths.astype(np.float64), list(terms.values()), self._collection)

    def _merge(self, of_segments: list[Hits], k: int) -> Hits:
        """Join the segments' best, by score, then by document id."""
        if len(of_segments) < 2:
            return of_segments[0] if of_segments else NO_HITS
        rows = np.concatenate([h.rows for h in of_segments])
        scores = np.concatenate([h.scores for h in of_segments])
        distinct, group = np.unique(-scores, return_inverse=True)
        order = self._index.by_id(rows, group)[:k]
        return Hits(rows[order], -distinct[group[order]])

    # --- one document ---------------------------------------------------------------------------------------

    def document_score(self, terms: Weighted, row: int) -> DocumentScore:
        """Score one document, with the addends: the sum that :meth:`hits` computes."""
        segment, there = self._index.place(row)
        held, model = dict(segment.terms_of(there)), self._model
        tokens = int(segment.lengths[there])
        length = np.array([tokens if model.exact_lengths else DECODED[segment.codes[there]]], np.float64)
        addends, total = dict[str, TermAddend](), 0.0
        for term, (boost, counts) in terms.items():
            tf, value = held.get(term, 0), 0.0
            if tf:
                [score] = model.term(np.array([tf]), length, counts, self._collection, boost=boost)
                value = float(np.float32(score))
            addends[term] = TermAddend(boost, counts, tf, value)
            total += value
        prior = None if (priors := self._prior(length, terms)) is None else float(priors[0])
        score = float(np.float32(total + (prior or 0.0)))
        return DocumentScore(score, addends, prior, float(length[0]), tokens=tokens)
