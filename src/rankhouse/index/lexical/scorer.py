"""The scores of one index's documents for weighted terms: best k, or one document with what it is made of.

A document's score is the same sum wherever it lies: terms in one order, statistics those of all documents
that are ranked together, float32 a term, added in float64.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray
from rankhouse.index.index import Index
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.lengths import DECODED
from rankhouse.index.lexical.term_scores import TermScores, Weighted
from rankhouse.index.lexical.weighting import Collection, TermCounts, Weighting


class Hits(NamedTuple):
    """The best documents for a query.

    Attributes:
        rows: Their rows among all documents, (k,) int64, by score, then by document id, ascending.
        scores: Their raw scores, (k,) float32.
        ids: Their ids, where these came with them: from parts of an index that may lie elsewhere.
    """

    rows: NDArray[np.int64]
    scores: FloatArray
    ids: tuple[str, ...] = ()


NO_HITS = Hits(np.empty(0, np.int64), np.empty(0, np.float32))


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


class Scorer:
    """One model over the documents of one index; safe to share between threads.

    Args:
        collection: Statistics of all documents that are ranked; the index may hold a part of them.
    """

    def __init__(self, index: Index, model: Weighting, collection: Collection) -> None:
        self._index, self._model = index, model
        self._scores = TermScores(index, model, collection)

    def hits(self, terms: Weighted, k: int) -> Hits:
        """Find the best k documents for weighted terms; rows are those of the index."""
        of_segments, scores, floor = list[Hits](), NO_HITS.scores, -math.inf
        for position, segment in enumerate(self._index.segments):
            parts = [
                p for t, (w, c) in terms.items() if (p := self._scores.part(position, t, w, c)) is not None
            ]
            if parts:
                rows, values = kernel.rank(
                    segment.columns, parts, self._scores.prior(segment, terms), k, floor
                )
                of_segments.append(Hits(rows + self._index.starts[position], values))
                scores = np.concatenate([scores, values])
                if len(scores) >= k:
                    # What lies below k better ones need not be gathered in the segments to come.
                    scores = np.partition(scores, len(scores) - k)[-k:]
                    floor = float(scores[0])
        return self._merge(of_segments, k) if of_segments else NO_HITS

    def document_score(self, terms: Weighted, row: int) -> DocumentScore:
        """Score one document, with the addends: the sum that :meth:`hits` computes."""
        segment, there = self._index.place(row)
        position = self._index.segments.index(segment)
        addends, total = dict[str, Addend](), 0.0
        for term, (boost, counts) in terms.items():
            part = self._scores.part(position, term, boost, counts)
            tf, value = self._scores.addend(position, there, part)
            addends[term] = Addend(boost, counts, tf, value)
            total += value
        priors = self._scores.prior(segment, terms)
        prior = None if priors is None else float(priors[there])
        tokens = int(segment.lengths[there])
        length = float(tokens if self._model.exact_lengths else DECODED[segment.columns.codes[there]])
        return DocumentScore(float(np.float32(total + (prior or 0.0))), addends, prior, length, tokens)

    def _merge(self, of_segments: list[Hits], k: int) -> Hits:
        """Join the segments' best, by score, then by document id."""
        if len(of_segments) == 1:
            return of_segments[0]
        scores = np.concatenate([h.scores for h in of_segments])
        order = np.argsort(-scores, kind="stable")
        scores = scores[order]
        rows = np.concatenate([h.rows for h in of_segments])[order]
        if self._index.in_id_order:
            return Hits(rows[:k], scores[:k])  # the stable sort has left equals in the order of segments
        owner = np.repeat(np.arange(len(of_segments)), [len(h.rows) for h in of_segments])[order]
        # A segment's own equals are in order of id already; only ties across segments have to be sorted.
        is_tie = scores[1:] == scores[:-1]
        group = np.concatenate([[0], np.cumsum(~is_tie)])
        is_mixed = np.zeros(group[-1] + 1, bool)
        is_mixed[group[1:][is_tie & (owner[1:] != owner[:-1])]] = True
        places = np.flatnonzero(is_mixed[group] & (group <= group[min(k, len(group)) - 1]))
        tied = rows[places]
        rows[places] = tied[self._index.by_id(tied, group[places])]
        return Hits(rows[:k], scores[:k])
