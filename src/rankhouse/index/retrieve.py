"""Index, Queries -> Run: every model, any number of queries over all cores.

Rankings do not depend on the number of threads nor on how documents are cut into segments: statistics are
those of the whole index, and a document's score is the same sum wherever it lies. Equal scores are ordered
by document id, ascending, as Lucene does; in the Run each such score is lowered to the next float32 below
its predecessor's, so that run file and evaluator, who order ties the other way, keep Lucene's ranking.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Query
from rankhouse.core.run import Run
from rankhouse.index import kernel
from rankhouse.index.catalogue import Index
from rankhouse.index.feedback import FEEDBACKS, RM3, FeedbackDocument, as_likelihoods
from rankhouse.index.kernel import Part
from rankhouse.index.lengths import DECODED
from rankhouse.index.segment import Segment
from rankhouse.index.weigh import WEIGHTINGS, Collection, TermCounts

# A table of scores [tf][length code] is made for a term unless its largest count is above this.
LARGEST_TABLE_TF = 255

Hit = tuple[str, float, Segment, int]
"""Document id, raw score, and where the document lies."""


@dataclass(frozen=True)
class Search:
    """How to search.

    Attributes:
        model: Notation of the retrieval model: ``bm25(k1=0.9, b=0.4)``, ``ql``, ``jm`` ...
        feedback: Notation of the feedback, ``rm3(terms=10, docs=10, weight=0.5)``, or "" for none.
        k: How many documents a query.
        threads: How many queries at a time; 0 takes one a processor.
    """

    model: str = "bm25"
    feedback: str = ""
    k: int = 1000
    threads: int = 0


def retrieve(
    index: Index,
    queries: Iterable[Query],
    search: Search | None = None,
    progress: Callable[[int], None] | None = None,
) -> Run:
    """Rank an index's documents for queries.

    Args:
        index: The index.
        queries: The queries; one that shares no term with the index gets an empty ranking.
        search: Model, feedback, depth, threads.
        progress: Told how many queries are done.

    Raises:
        WrongUse: Unknown model or feedback, or a bad argument of theirs.
    """
    search = search or Search()
    if search.k < 1:
        raise WrongUse(f"k={search.k}: ask for 1 document or more")
    engine = Retriever(index, search)
    queries = list(queries)
    done: list[tuple[list[str], FloatArray]] = []
    threads = min(search.threads or os.cpu_count() or 1, max(1, len(queries)))
    with ThreadPoolExecutor(threads) as pool:
        for count, ranking in enumerate(pool.map(engine.ranking, queries), 1):
            done.append(ranking)
            if progress is not None:
                progress(count)
    return Run.from_columns([q.id for q in queries], [ids for ids, _ in done], [s for _, s in done])


class Retriever:
    """One model over one index, ready for queries; safe to share between threads."""

    def __init__(self, index: Index, search: Search) -> None:
        self.index, self.k = index, search.k
        self.model = notation.make(search.model, WEIGHTINGS, "model")
        self.feedback = notation.make(search.feedback, FEEDBACKS, "feedback") if search.feedback else None
        self._lengths = {id(part): part.lengths.astype(np.float64) for part in self._exact_segments()}

    def _exact_segments(self) -> list[Segment]:
        return self.index.segments if self.model.exact_lengths else []

    def terms(self, text: str) -> dict[str, float]:
        """Give the terms of a query text with their counts."""
        return {term: float(count) for term, count in Counter(self.index.analyzer(text)).items()}

    def ranking(self, query: Query) -> tuple[list[str], FloatArray]:
        """Rank the documents for one query: ids and strictly falling scores."""
        terms = self.terms(query.text)
        hits = self.hits(terms, self.k if self.feedback is None else self.feedback.docs)
        if self.feedback is not None and hits:
            hits = self.hits(self.expand(terms, hits, self.feedback), self.k)
        return [hit[0] for hit in hits], strictly_falling(np.array([hit[1] for hit in hits], np.float32))

    def expand(self, terms: Mapping[str, float], hits: list[Hit], feedback: RM3) -> dict[str, float]:
        """Expand a query by feedback from its first hits."""
        scores = [score for _, score, _, _ in hits]
        if self.model.log_scores:
            scores = as_likelihoods(scores)
        found = [
            FeedbackDocument(score, part.terms_of(row))
            for score, (_, _, part, row) in zip(scores, hits, strict=True)
        ]
        documents = self.index.collection.with_text
        share = feedback.common_share(self.index.analyzer.name, documents)
        return feedback.expand(terms, found, lambda t: self.index.counts(t).documents / documents > share)

    def hits(self, weights: Mapping[str, float], k: int) -> list[Hit]:
        """Find the best k documents for weighted terms, by score, then by document id ascending."""
        known = {t: (w, counts) for t, w in weights.items() if (counts := self.index.counts(t)).documents}
        if self.model.mean and known:
            total = sum(w for w, _ in known.values())
            known = {t: (w / total, counts) for t, (w, counts) in known.items()}
        # One order for the sums, whatever order the words came in: equal queries get equal bits.
        ordered = dict(sorted(known.items()))
        found: list[Hit] = []
        for position, part in enumerate(self.index.segments):
            parts = [
                p for t, (w, c) in ordered.items() if (p := self._part(part, position, t, w, c)) is not None
            ]
            if parts:
                rows, scores = kernel.rank(part.columns, parts, self._prior(part, ordered), k)
                ids = [part.ids[row] for row in rows.tolist()]
                found += zip(ids, scores.tolist(), [part] * len(ids), rows.tolist(), strict=True)
        if len(self.index.segments) > 1:
            found.sort(key=lambda hit: (-hit[1], hit[0]))
        return found[:k]

    def _part(
        self, segment: Segment, position: int, term: str, boost: float, counts: TermCounts
    ) -> Part | None:
        number = self.index.numbers(term)[position]
        if number < 0:
            return None
        first, end = segment.span(number)
        highest = segment.highest_tf(number)
        statistics: Collection = self.index.collection
        if not self.model.exact_lengths and highest <= LARGEST_TABLE_TF:
            tf = np.arange(highest + 1)[:, None]
            lengths = DECODED[None, : segment.length_codes]
            return Part(first, end, _float32(self.model.term(tf, lengths, counts, statistics, boost)))
        rows = segment.columns.rows[first:end]
        exact = self._lengths.get(id(segment))
        length = DECODED[segment.columns.codes[rows]] if exact is None else exact[rows]
        scores = self.model.term(segment.columns.tfs[first:end], length, counts, statistics, boost)
        return Part(first, end, None, _float32(scores))

    def _prior(
        self, segment: Segment, terms: Mapping[str, tuple[float, TermCounts]]
    ) -> NDArray[np.float64] | None:
        if self.model.prior is None:
            return None
        weights = list(terms.values())
        prior = self.model.prior(self._lengths[id(segment)], weights, self.index.collection)
        return np.ascontiguousarray(prior, np.float64)


def _float32(scores: NDArray[Any]) -> NDArray[np.float32]:
    return np.ascontiguousarray(scores, np.float32)


def strictly_falling(scores: FloatArray) -> FloatArray:
    """Lower each score that does not lie below its predecessor to the next float32 below that one.

    Float32 numbers of one sign are ordered as their bits are, so on the bits (negative numbers mirrored)
    "one below the predecessor" is a running minimum.
    """
    if len(scores) < 2 or (scores[1:] < scores[:-1]).all():
        return scores
    bits = scores.view(np.int32).astype(np.int64)
    place = np.arange(len(scores))
    ordered = np.minimum.accumulate(np.where(bits < 0, -(bits & 0x7FFFFFFF), bits) + place) - place
    return np.where(ordered < 0, -ordered | 0x80000000, ordered).astype(np.uint32).view(np.float32)
