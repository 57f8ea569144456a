"""Index, Queries -> Run: every model, any number of queries over all cores.

Rankings do not depend on the number of threads nor on how documents are cut into segments: statistics are
those of the whole index, and a document's score is the same sum wherever it lies. Equal scores are ordered
by document id, ascending, as Lucene does; in the Run each such score is lowered to the next float32 below
its predecessor's, so that run file and evaluator, who order ties the other way, keep Lucene's ranking.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, Query
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.core.scores import strictly_falling
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.feedback import FEEDBACKS, RM3, Expansion, FeedbackDocument, as_likelihoods
from rankhouse.index.lexical.lengths import DECODED
from rankhouse.index.lexical.term_scores import TermScores
from rankhouse.index.lexical.weighting import WEIGHTINGS, TermCounts


class Hits(NamedTuple):
    """The best documents for a query.

    Attributes:
        rows: Their rows in the whole index, (k,) int64, by score, then by document id, ascending.
        scores: Their raw scores, (k,) float32.
    """

    rows: NDArray[np.int64]
    scores: FloatArray


_NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


class Feedback(NamedTuple):
    """A query after feedback.

    Attributes:
        hits: The feedback documents with their raw scores.
        expansion: Terms, weights, and which of these documents gave them.
    """

    hits: Hits
    expansion: Expansion


class Addend(NamedTuple):
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
    addends: dict[str, Addend]
    prior: float | None
    length: float
    tokens: int


@dataclass(frozen=True)
class LexicalOptions:
    """How to search.

    Attributes:
        model: Notation of the retrieval model: ``bm25(k1=0.9, b=0.4)``, ``ql``, ``jm`` ...
        feedback: Notation of the feedback, ``rm3(terms=10, docs=10, weight=0.5)``, or "" for none.
        k: How many documents a query.
        threads: How many queries at a time, at most one a processor; 0 takes one a processor.
    """

    model: str = "bm25"
    feedback: str = ""
    k: int = 1000
    threads: int = 0


def retrieve(
    index: Index,
    queries: Iterable[Query],
    search: LexicalOptions | None = None,
    progress: Progress | None = None,
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
    search = search or LexicalOptions()
    if search.k < 1:
        raise WrongUse(f"k={search.k}: ask for 1 document or more")
    engine = Retriever(index, search)
    queries = list(queries)
    answers: list[Hits] = []
    processors = os.cpu_count() or 1
    threads = min(search.threads or processors, processors, max(1, len(queries)))
    with _mapping(threads) as mapped:
        for hits in mapped(engine.search, queries):
            answers.append(hits)
            if progress is not None:
                progress(len(answers))
    return _assemble(index, queries, answers)


@contextmanager
def _mapping(threads: int) -> Iterator[Callable[..., Iterable[Hits]]]:
    """Yield what maps with so many threads; a single one is the caller's own, which needs no start."""
    if threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool.map
    finally:  # who interrupts does not wait for the queries to come
        pool.shutdown(cancel_futures=True)


def _assemble(index: Index, queries: list[Query], answers: list[Hits]) -> Run:
    """Put hits into the columns of a Run, decoding each document's id once."""
    offsets = np.cumsum([0, *(len(hits.rows) for hits in answers)])
    rows, where = _distinct(np.concatenate([_NO_HITS.rows, *(h.rows for h in answers)]), len(index))
    ids = np.array(index.ids(rows), dtype=object)
    if len(index.segments) == 1:
        by_id = np.argsort(index.segments[0].columns.id_rank[rows])
    else:
        by_id = np.argsort(ids, kind="stable") if len(ids) else np.empty(0, np.int64)
    code = np.empty(len(ids), np.int32)
    code[by_id] = np.arange(len(ids), dtype=np.int32)
    scores = np.concatenate([_NO_HITS.scores, *(strictly_falling(h.scores) for h in answers)])
    names = {query.id: number for number, query in enumerate(queries)}
    return Run(names, offsets, ids[by_id], code[where], scores)


def _distinct(rows: NDArray[np.int64], documents: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows, ascending, and the place of each row among them."""
    if documents > 20 * len(rows):
        return np.unique(rows, return_inverse=True)
    # Many rows of few documents: marking them beats sorting them several times over.
    marked = np.zeros(documents, bool)
    marked[rows] = True
    return np.flatnonzero(marked), (np.cumsum(marked) - 1)[rows]


class Retriever:
    """One model over one index, ready for queries; safe to share between threads."""

    def __init__(self, index: Index, search: LexicalOptions) -> None:
        self.index, self.k = index, min(search.k, max(1, len(index)))
        self.model = notation.make(search.model, WEIGHTINGS, "model")
        self.feedback = notation.make(search.feedback, FEEDBACKS, "feedback") if search.feedback else None
        self._scores = TermScores(index, self.model)

    def terms(self, text: str) -> dict[str, float]:
        """Return the terms of a query text with their counts."""
        return {term: float(count) for term, count in Counter(self.index.analyzer(text)).items()}

    def search(self, query: Query) -> Hits:
        """Find the best documents for one query, feedback included."""
        terms = self.terms(query.text)
        after = self.after_feedback(terms)
        return self.hits(after.expansion.weights if after else terms, self.k)

    def after_feedback(self, terms: Mapping[str, float]) -> Feedback | None:
        """Expand a query by its first hits; None without feedback, or where there is no hit to read.

        Args:
            terms: The query's terms with their counts.
        """
        if self.feedback is None:
            return None
        first = self.hits(terms, min(self.feedback.docs, max(1, len(self.index))))
        return Feedback(first, self.expand(terms, first, self.feedback)) if len(first.rows) else None

    def expand(self, terms: Mapping[str, float], hits: Hits, feedback: RM3) -> Expansion:
        """Expand a query by feedback from its first hits.

        Args:
            terms: The query's terms with their counts.
            hits: The first documents found.
            feedback: How to expand.
        """
        scores = hits.scores.tolist()
        if self.model.log_scores:
            scores = as_likelihoods(scores)
        documents_read = []
        for score, row in zip(scores, hits.rows.tolist(), strict=True):
            part, there = self.index.place(row)
            documents_read.append(FeedbackDocument(score, part.terms_of(there)))
        documents = self.index.collection.with_text
        limit = documents * feedback.common_share(self.index.analyzer.name, documents)
        return feedback.expand(terms, documents_read, lambda term: self.index.counts(term).documents > limit)

    def hits(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find the best k documents for weighted terms.

        Args:
            weights: Term -> weight.
            k: How many documents.
        """
        ordered = self._scores.ordered(weights)
        of_segments, scores, floor = list[Hits](), _NO_HITS.scores, -math.inf
        for position, part in enumerate(self.index.segments):
            parts = [
                p for t, (w, _) in ordered.items() if (p := self._scores.part(position, t, w)) is not None
            ]
            if parts:
                rows, values = kernel.rank(part.columns, parts, self._scores.prior(part, ordered), k, floor)
                of_segments.append(Hits(rows + self.index.starts[position], values))
                scores = np.concatenate([scores, values])
                if len(scores) >= k:
                    # What lies below k better ones need not be gathered in the segments to come.
                    scores = np.partition(scores, len(scores) - k)[-k:]
                    floor = float(scores[0])
        return self._merge(of_segments, k) if of_segments else _NO_HITS

    def document_score(self, weights: Mapping[str, float], row: int) -> DocumentScore:
        """Score one document, with the addends: the sum that :meth:`hits` computes.

        Args:
            weights: Term -> weight.
            row: The document's row in the whole index.
        """
        segment, there = self.index.place(row)
        position, ordered = self.index.segments.index(segment), self._scores.ordered(weights)
        addends, total = dict[str, Addend](), 0.0
        for term, (boost, counts) in ordered.items():
            tf, value = self._scores.addend(position, there, term, boost)
            addends[term] = Addend(boost, counts, tf, value)
            total += value
        priors = self._scores.prior(segment, ordered)
        prior = None if priors is None else float(priors[there])
        tokens = int(segment.lengths[there])
        length = float(tokens if self.model.exact_lengths else DECODED[segment.columns.codes[there]])
        return DocumentScore(float(np.float32(total + (prior or 0.0))), addends, prior, length, tokens)

    def _merge(self, of_segments: list[Hits], k: int) -> Hits:
        """Join the segments' best, by score, then by document id."""
        if len(of_segments) == 1:
            return of_segments[0]
        scores = np.concatenate([h.scores for h in of_segments])
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        rows = np.concatenate([h.rows for h in of_segments])[order]
        if self.index.in_id_order:
            return Hits(rows[:k], scores[:k])  # the stable sort has left equals in the order of segments
        owner = np.repeat(np.arange(len(of_segments)), [len(h.rows) for h in of_segments])[order]
        # A segment's own equals are in order of id already; only ties across segments have to be sorted.
        is_tie = scores[1:] == scores[:-1]
        group = np.concatenate([[0], np.cumsum(~is_tie)])
        is_mixed = np.zeros(group[-1] + 1, bool)
        is_mixed[group[1:][is_tie & (owner[1:] != owner[:-1])]] = True
        places = np.flatnonzero(is_mixed[group] & (group <= group[min(k, len(group)) - 1]))
        tied = rows[places]
        rows[places] = tied[self.index.by_id(tied, group[places])]
        return Hits(rows[:k], scores[:k])
