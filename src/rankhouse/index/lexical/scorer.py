"""The scores of one index's documents for weighted terms: best k, or one document with what it is made of.

A document's score is the same sum wherever it lies: terms in one order, statistics those of all documents
that are ranked together, of which the index may hold a part, float32 a term, added in float64. The compiled
kernel ranks for many queries in one call; it gets numbers a term, and numbers or tables a model, from here.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray, Ranking
from rankhouse.index.index import KNOWN_TERMS, Index, Term
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Float32s, Float64s, Int32s, Int64s, TermScores
from rankhouse.index.lexical.segment import DECODED, Segment
from rankhouse.index.lexical.store import Vocabulary
from rankhouse.index.lexical.weighting import Collection, FieldCounts, Ratio, Sum, TermCounts, Weighting

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

Arrays = tuple[NDArray[Any] | None, ...]
"""Of a search, in the order of ``_kernel.rank``; None for what is not given or not asked for."""
Learning = tuple[list[Vocabulary], Callable[[int, int], float]] | tuple[None, None]
"""Vocabularies with new terms, and the fact of a term by documents and occurrences; None for none."""
Weighted = Mapping[str, tuple[float, TermCounts]]
"""The terms of a query in the order of the sum, with their weights as they are scored and their counts."""
Counted = list[str]
"""The terms of a query in the order of the sum, each as often as it occurs there, which is its weight."""
Asked = Sequence[Weighted] | Sequence[Counted]

LARGEST_TABLE_TF: Final = 255
"""Highest count up to which a term has a table of scores [tf][length code]; above, each posting is scored."""
_LARGEST_RISE: Final = 4095
_AT_ONCE: Final = 1 << 20
"""Hits that one call of the kernel may give."""
_FORMS: Final = {Ratio: 0, Sum: 1, type(None): 2}
PRUNING = 1
"""Pruning of documents that cannot be among the best: 0 never, 1 where it is worth it, 2 always."""


class Hits(NamedTuple):
    """The best documents for a query."""

    rows: Int64s  # their rows among all documents, (k,) int64, by score, then by document id, ascending
    scores: FloatArray  # their raw scores, (k,) float32
    # their ids, where these came with them: from shards of an index that may lie elsewhere
    ids: tuple[str, ...] = ()


NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


class TermAddend(NamedTuple):
    """One query term's share of one document's score."""

    boost: float  # the term's weight as it is scored
    counts: TermCounts  # of the term, in the whole index
    tf: int  # its occurrences in the document
    value: float  # what it adds; the engine's own float32 number
    joined: float  # the count that is scored: ``tf``, or as the model joins those of title and text


class DocumentScore(NamedTuple):
    """One document's score, added up as a search does, whether a search would return it or not."""

    score: float  # the float32 sum
    addends: dict[str, TermAddend]  # by term: those that the index has, in the order of the sum
    prior: float | None  # what the document gets besides them; None where the model has no prior
    length: float  # its length as it is scored: Lucene's, one byte, or the true one
    tokens: int  # its true length


Known = dict[str, tuple[TermCounts, bytes]]
"""Terms with their counts and records, as the kernel takes them; empty where no document holds the term."""
_HEAD = struct.Struct("<di")  # a record before the numbers


def _padded(record: bytes) -> bytes:
    """Fill a record up to where its table begins."""
    return record + bytes(-len(record) % 8)


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
        self._known: Known = {}
        self._is_plain = not (model.form is None or model.prior or model.mean or model.asked)
        self._table = lru_cache(maxsize=4096)(self._make_table)
        self._scored = lru_cache(maxsize=256)(self._score_postings)
        self.postings = [0, 0]

    def hits(self, queries: Sequence[Weighted], k: int, *, every: bool = False) -> list[Hits]:
        """Find the best k documents with any term of each query, or every one, by rows of the index."""
        if not kernel.COMPILED:
            return [self._rank_plainly(terms, k, every=every) for terms in queries]
        return self._rank(list(queries), k, every=every)

    def best(self, queries: Iterable[Counted], k: int) -> list[Hits] | None:
        """Find the best k documents for each query by the index's counts; None where weights are needed."""
        fits = kernel.COMPILED and self._is_plain
        return self._rank(list(queries), k, every=False) if fits else None

    def ranking(self, terms: Counted, k: int) -> Ranking | None:
        """Rank the best k documents for one query in one compiled call; None where that takes more."""
        index, known = self._index, self._known
        if not kernel.COMPILED or not self._is_plain or not index.has_ids_at_hand(k):
            return None
        learn = self._learning if len(known) <= KNOWN_TERMS and index.is_checked else (None, None)
        if (found := _kernel.rank_one(self._opened, PRUNING, k, known, terms, *learn)) is None:
            return None
        ids, scores, postings, unpacked = found
        self.postings = [self.postings[0] + postings, self.postings[1] + unpacked]
        return Ranking(ids, np.frombuffer(scores, np.float32))

    def counted(self, terms: Weighted, k: int, *, every: bool = False) -> tuple[Hits, int]:
        """Find the best k documents for one query, k may be 0, and count all that match."""
        if not kernel.COMPILED:
            hits = self._rank_plainly(terms, len(self._index), every=every)
            return Hits(hits.rows[:k], hits.scores[:k]), len(hits.rows)
        matches, hits = np.empty(1, np.int64), NO_HITS
        if k:
            [hits] = self._rank([terms], k, every=every, matches=matches)
        else:
            self._ask([terms], (PRUNING, 0, every), (None, None, None, matches))
        return hits, int(matches[0])

    # --- by the compiled kernel -----------------------------------------------------------------------------

    def _rank(self, queries: Asked, k: int, *, every: bool, matches: Int64s | None = None) -> list[Hits]:
        many, most = len(queries), max(1, _AT_ONCE // k)
        if many > most:
            parts = [queries[start : start + most] for start in range(0, many, most)]
            return [hits for part in parts for hits in self._rank(part, k, every=every)]
        rows, scores = np.empty(many * k, np.int64), np.empty(many * k, np.float32)
        counts = np.empty(many, np.int64)
        self._ask(queries, (PRUNING, k, every), (rows, scores, counts, matches))
        rows = self._index.among_alive(rows)
        if many == 1:
            n = counts.item()
            return [Hits(rows[:n], scores[:n])]
        ends = zip(range(0, many * k, k), counts.tolist(), strict=True)
        return [Hits(rows[start : start + n], scores[start : start + n]) for start, n in ends]

    def _ask(self, queries: Asked, options: tuple[int, int, int], found: Arrays) -> None:
        """Have the kernel answer queries."""
        arrays = (None, None, None, self._priors(queries), None, None, None, *found)
        if self._model.form is not None and (
            self._searched(options, self._known, queries, arrays)
            or self._searched(options, self._learn(queries), queries, arrays)
        ):
            return
        queries = [self._weighted(terms) if isinstance(terms, list) else terms for terms in queries]
        # A table holds the weight of its term: queries with equal ones are answered together.
        asked: dict[str, tuple[float, TermCounts]] = {}
        alike = all(asked.setdefault(t, one) == one for terms in queries for t, one in terms.items())
        parts = [queries] if alike else [[terms] for terms in queries]
        none = [None] * len(parts)
        split = (none if array is None else np.array_split(array, len(parts)) for array in arrays)
        for some, own in zip(parts, zip(*split, strict=True), strict=True):
            known, lists = self._tables(some)
            if not self._searched(options, known, some, (*own[:4], *lists, *own[7:])):
                raise RuntimeError(f"the kernel does not know the terms it was given: {list(asked)}")

    def _searched(self, options: tuple[int, int, int], known: Known, queries: Asked, arrays: Arrays) -> bool:
        """Return whether the kernel knows the terms, and so has filled the arrays."""
        done = _kernel.rank(self._opened, *options, known, queries, arrays)
        if done is None:
            return False
        self.postings = [self.postings[0] + done[0], self.postings[1] + done[1]]
        return True

    @cached_property
    def _opened(self) -> object:
        """The model as the kernel keeps it open."""
        index, facts = self._index, (_FORMS[type(self._model.form)], self._model.exact_lengths)
        return _kernel.open_model(
            index.opened, *facts, self._length_codes, index.in_id_order, *self._by_length
        )

    @cached_property
    def _learning(self) -> Learning:
        """Vocabularies with new terms for the kernel, and each term's fact; none if records have tables."""
        form, collection = self._model.form, self._collection
        if not isinstance(form, Ratio):
            return None, None
        vocabularies = [segment.vocabulary for segment in self._index.segments]
        return vocabularies, lambda *counts: form.fact(TermCounts(*counts), collection)

    @cached_property
    def _length_codes(self) -> int:
        return max(segment.length_codes for segment in self._index.segments)

    @cached_property
    def _by_length(self) -> tuple[bytes, ...]:
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
        return by_length.tobytes(), by_code.tobytes(), fall.tobytes(), prior.tobytes()

    def _weighted(self, terms: Counted) -> Weighted:
        """Return the terms that documents hold, with their weights and counts."""
        table = self._index.look_up(terms)
        counted = ((t, float(n), table[t].counts) for t, n in Counter(terms).items())
        return {term: (weight, counts) for term, weight, counts in counted if counts.documents}

    def _learn(self, queries: Asked) -> Known:
        """Return what is known of terms, of which those that are new are looked up all at once."""
        known = self._known if len(self._known) <= KNOWN_TERMS else {}
        table, fresh = self._index.look_up(chain.from_iterable(queries)), dict[str, TermCounts]()
        for terms in queries:
            if isinstance(terms, list):
                fresh |= {t: table[t].counts for t in terms if t not in known}
            else:
                fresh |= {t: counts for t, (_, counts) in terms.items() if known.get(t, (None,))[0] != counts}
        known.update(self._records(fresh, table))
        self._known = known
        return known

    def _records(self, fresh: Mapping[str, TermCounts], table: Mapping[str, Term]) -> Known:
        """Return the records of terms, but for those whose scores the kernel has no formula for."""
        form, collection = self._model.form, self._collection
        records, held = Known(), dict[str, TermCounts]()
        for term, counts in fresh.items():
            _, highest, packed = table[term]
            if not counts.documents:
                records[term] = counts, b""
            elif isinstance(form, Ratio):
                records[term] = counts, _HEAD.pack(form.fact(counts, collection), highest) + packed
            elif isinstance(form, Sum) and highest <= _LARGEST_RISE:
                held[term] = counts
        if isinstance(form, Sum):
            sizes = np.array([table[term].highest + 1 for term in held], np.int64)
            ends = np.cumsum(sizes)
            tf = np.arange(sizes.sum()) - np.repeat(ends - sizes, sizes)
            p = np.repeat([form.probability(counts, collection) for counts in held.values()], sizes)
            rises = np.asarray(form.rise(tf, p), np.float64)
            for (term, counts), n, end in zip(held.items(), sizes, ends, strict=True):
                head = _HEAD.pack(0, table[term].highest) + table[term].packed
                records[term] = counts, _padded(head) + rises[end - n : end].tobytes()
        return records

    def _tables(self, queries: Sequence[Weighted]) -> tuple[Known, tuple[Int64s, Int32s, Float32s]]:
        """Make records with tables where the kernel has no formula, and score postings where none fits."""
        has_formula = self._model.form is not None
        known, own = self._learn(queries) if has_formula else {}, Known()
        every = [(term, *one) for terms in queries for term, one in terms.items()]
        table, given, lists = self._index.look_up(term for term, _, _ in every), 0, list[int]()
        rows, scores = [np.empty(0, np.int32)], [np.empty(0, np.float32)]
        for place, (term, boost, counts) in enumerate(every):
            if term in known:
                own[term] = known[term]
                continue
            highest, packed = table[term].highest, table[term].packed
            if has_formula or highest > LARGEST_TABLE_TF or self._model.joined is not None:
                own[term] = counts, _HEAD.pack(0, -1) + packed
                for position, number in enumerate(table[term].numbers):
                    if number < 0:
                        continue
                    some = self._scored(position, number, boost, counts)
                    lists += [place, position, given, given + len(some.rows)]
                    given += len(some.rows)
                    rows.append(some.rows)
                    scores.append(some.values.astype(np.float32))
            elif term not in own:
                head = _padded(_HEAD.pack(0, highest) + packed)
                own[term] = counts, head + self._table(highest, boost, counts)
        return own, (np.array(lists, np.int64), np.concatenate(rows), np.concatenate(scores))

    def _make_table(self, highest: int, boost: float, counts: TermCounts) -> bytes:
        """Score every count up to a highest, at every length code in use: (counts x codes,) float32."""
        tf, lengths = np.arange(highest + 1)[:, None], DECODED[None, : self._length_codes]
        scores = self._model.term(tf, lengths, counts, collection=self._collection, boost=boost)
        return np.asarray(scores, np.float32).tobytes()

    def _priors(self, queries: Asked) -> Float64s | None:
        """Return the two numbers of the prior of each query, (queries, 2); None without a prior."""
        if (prior := self._model.prior) is None:
            return None
        weighted = cast(Sequence[Weighted], queries)  # a model with a prior needs weights
        parts = [prior.parts(list(terms.values()), self._collection) for terms in weighted]
        return np.array(parts, np.float64)

    # --- by numpy -------------------------------------------------------------------------------------------

    def _score_postings(self, position: int, number: int, boost: float, counts: TermCounts) -> TermScores:
        """Score a term's postings in one segment."""
        segment = self._index.segments[position]
        rows, tf = self._postings(segment, number)
        length = segment.lengths_among_all(exact=self._model.exact_lengths)[rows]
        scores = self._model.term(tf, length.astype(np.float64), counts, self._collection, boost=boost)
        return TermScores(rows, scores.astype(np.float32).astype(np.float64))

    def _postings(self, segment: Segment, number: int) -> tuple[Int32s, NDArray[Any]]:
        """Return the rows of a term's documents, and its count in each, of several fields as joined."""
        rows, tf = segment.postings(number)
        if self._model.joined is None:
            return rows, tf
        every, titles = segment.lengths_among_all(exact=True)[rows], segment.title_lengths[rows]
        title = segment.title_counts(number)
        fields = [part.astype(np.float64) for part in (title, tf - title, titles, every - titles)]
        return rows, self._model.joined(FieldCounts(*fields), self._collection)

    def _rank_plainly(self, terms: Weighted, k: int, *, every: bool) -> Hits:
        """Find the best k documents by adding up all postings."""
        table = self._index.look_up(terms)
        of_segments = list[Hits]()
        for position, segment in enumerate(self._index.segments):
            numbers = [(t, table[t].numbers[position]) for t in terms]
            scored = [self._scored(position, number, *terms[t]) for t, number in numbers if number >= 0]
            if len(scored) >= (len(numbers) if every else 1) > 0:
                lengths = segment.lengths_among_all(exact=self._model.exact_lengths)
                prior = self._prior(lengths, terms)
                rows, scores = kernel.rank(scored, prior, segment.id_rank(), segment.dead, k=k, every=every)
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
            tf = joined = held.get(term, 0)
            value = 0.0
            if tf:
                if model.joined is not None:
                    number = self._index.look_up((term,))[term].numbers[self._index.segments.index(segment)]
                    rows, counted = self._postings(segment, number)
                    [joined] = counted[rows == segment.among_all(np.array([there]))].tolist()
                [score] = model.term(np.array([joined]), length, counts, self._collection, boost=boost)
                value = float(np.float32(score))
            addends[term] = TermAddend(boost, counts, tf, value=value, joined=joined)
            total += value
        prior = None if (priors := self._prior(length, terms)) is None else float(priors[0])
        score = float(np.float32(total + (prior or 0.0)))
        return DocumentScore(score, addends, prior, float(length[0]), tokens=tokens)
