"""Index, Queries -> Run: every model, any number of queries over all cores.

Rankings do not depend on the number of threads nor on how documents are cut into segments, or into indexes
that are searched as one: statistics are those of all documents, and a document's score is the same sum
wherever it lies. Equal scores are ordered
by document id, ascending, as Lucene does; in the Run each such score is lowered to the next float32 below
its predecessor's, so that run file and evaluator, who order ties the other way, keep Lucene's ranking.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from itertools import chain
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranking
from rankhouse.core.progress import Progress
from rankhouse.core.run import RowIds, Run
from rankhouse.core.scores import strictly_falling
from rankhouse.index.index import Index
from rankhouse.index.lexical.feedback import FEEDBACKS, RM3, Expansion, FeedbackDocument, as_likelihoods
from rankhouse.index.lexical.kernel import Int64s
from rankhouse.index.lexical.scorer import NO_HITS, Counted, DocumentScore, Hits, Scorer, Weighted
from rankhouse.index.lexical.store import IndexIds, KnownIds
from rankhouse.index.lexical.weighting import WEIGHTINGS, Collection, TermCounts, Weighting

if TYPE_CHECKING:
    from rankhouse.text.analyze import Analyzer

_AT_ONCE: Final = 64
"""Queries that one call of the kernel answers at most; another thread waits for none of them."""
_FEW: Final = 100  # documents whose ids are read at once
_SCORERS: Final = 16
"""Models whose numbers an index keeps; then all are forgotten."""


class SearchSource(Protocol):
    """Documents that are ranked together, wherever they lie."""

    @property
    def analyzer(self) -> Analyzer:
        """The analyzer of their texts and of queries."""

    @property
    def collection(self) -> Collection:
        """Statistics of all of them."""

    def together(self, queries: int, threads: int) -> int:
        """Return how many of so many queries each of so many threads best asks together."""

    def counts(self, term: str) -> TermCounts:
        """Count the documents that hold a term, and its occurrences."""

    def look_up(self, terms: Iterable[str]) -> None:
        """Prepare for being asked for the counts of many terms."""

    def hits(self, model: Weighting, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents for each of several queries."""

    def best(self, model: Weighting, queries: Iterable[Counted], k: int) -> list[Hits] | None:
        """Find the same for queries whose terms weigh as they are counted; None where that takes more."""

    def document_score(self, model: Weighting, terms: Weighted, row: int) -> DocumentScore:
        """Score one document, with what its score is made of."""

    def terms_of(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of each of several documents, with their counts."""

    def ids_of(self, answers: Sequence[Hits]) -> RowIds:
        """Return the ids of all hits."""


class IndexSource:
    """The documents of one index."""

    def __init__(self, index: Index) -> None:
        self._index = index
        self.analyzer, self.collection, self.counts = index.analyzer, index.collection, index.counts
        self._scorers: dict[str, Scorer] = {}

    def together(self, queries: int, threads: int) -> int:
        """Return some of them."""
        return share_of(queries, threads)

    def look_up(self, terms: Iterable[str]) -> None:
        """Find terms, all at once."""
        self._index.look_up(terms)

    def scorer(self, model: Weighting) -> Scorer:
        """Return what scores with a model; made once."""
        if (scorer := self._scorers.get(model.notation)) is None:
            if len(self._scorers) == _SCORERS:
                self._scorers = {}
            scorer = self._scorers[model.notation] = Scorer(self._index, model, self.collection)
        return scorer

    def hits(self, model: Weighting, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents for each query."""
        return self.scorer(model).hits(queries, k)

    def best(self, model: Weighting, queries: Iterable[Counted], k: int) -> list[Hits] | None:
        """Find the same for terms that weigh as they are counted; None where that takes more."""
        return self.scorer(model).best(queries, k)

    def document_score(self, model: Weighting, terms: Weighted, row: int) -> DocumentScore:
        """Score one document."""
        return self.scorer(model).document_score(terms, row)

    def terms_of(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of each of several documents, with their counts."""
        return terms_of(self._index, rows)

    def ids_of(self, answers: Sequence[Hits]) -> RowIds:
        """Return the ids of all hits, which are read when somebody asks for them."""
        rows = [hits.rows for hits in answers]
        return IndexIds(self._index, rows[0] if len(rows) == 1 else np.concatenate([NO_HITS.rows, *rows]))


def source_of(index: Index) -> IndexSource:
    """Return what searches an index, which keeps it, and so the terms and models of queries before."""
    if not isinstance(index.source, IndexSource):
        index.source = IndexSource(index)
    return index.source


def terms_of(index: Index, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
    """List the terms of documents of an index, with their counts."""
    some = np.asarray(rows, np.int64)
    owner = np.searchsorted(index.starts, some, side="right") - 1
    listed: list[list[tuple[str, int]]] = [[] for _ in some]
    for number in np.unique(owner).tolist():
        mine = np.flatnonzero(owner == number)
        lists = index.segments[number].terms_of_all(some[mine] - index.starts[number])
        for place, terms in zip(mine.tolist(), lists, strict=True):
            listed[place] = terms
    return listed


T = TypeVar("T")


class Feedback(NamedTuple):
    """A query after feedback."""

    hits: Hits
    expansion: Expansion


@dataclass(frozen=True)
class LexicalOptions:
    """Options of a search.

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
    index: Index | SearchSource,
    queries: Iterable[Query],
    search: LexicalOptions | None = None,
    progress: Progress | None = None,
) -> Run:
    """Rank documents for queries.

    Args:
        index: The index, or several that are searched as one.
        queries: The queries; one that shares no term with the index gets an empty ranking.
        search: Model, feedback, depth, threads.
        progress: Progress callback, in queries.

    Raises:
        WrongUse: Unknown model or feedback, or a bad argument of theirs.
    """
    search = search or LexicalOptions()
    if search.k < 1:
        raise WrongUse(f"k={search.k}: ask for 1 document or more")
    engine = Retriever(index, search)
    queries = list(queries)
    if len(queries) == 1 and engine.k <= _FEW and (found := engine.at_once(queries[0])) is not None:
        if progress is not None:
            progress(1)
        return Run.pending({queries[0].id: 0}, _ends(len(found)), found.scores, KnownIds(found.doc_ids))
    answers: list[Hits] = []
    for hits in in_groups(engine.search_all, queries, engine.source.together, search.threads):
        answers += hits
        if progress is not None:
            progress(len(answers))
    return run_of(queries, answers, engine.source.ids_of(answers))


@lru_cache(maxsize=16)
def _ends(rows: int) -> Int64s:
    return np.array([0, rows])


def run_of(queries: Sequence[Query], answers: Sequence[Hits], ids: RowIds) -> Run:
    """Return the run of hits in the order of the queries; equal scores are lowered, see above."""
    if len(answers) == 1:
        scores = answers[0].scores
        return Run.pending({queries[0].id: 0}, _ends(len(scores)), strictly_falling(scores), ids)
    offsets = np.cumsum([0, *(len(hits.rows) for hits in answers)])
    scores = np.concatenate([NO_HITS.scores, *(hits.scores for hits in answers)])
    names = {query.id: number for number, query in enumerate(queries)}
    return Run.pending(names, offsets, strictly_falling(scores, offsets), ids)


def share_of(queries: int, threads: int) -> int:
    """Return how many of so many queries each of so many threads best asks a kernel of this machine together.

    Some: a small search costs little more than handing it over, of large ones none waits.
    """
    return max(1, min(_AT_ONCE, queries // (4 * threads)))


def in_groups(
    work: Callable[[Sequence[T]], list[Hits]],
    items: Sequence[T],
    together: Callable[[int, int], int],
    threads: int = 0,
) -> Iterator[list[Hits]]:
    """Yield what work makes of groups of items, in their order.

    Args:
        together: (number of items, threads) -> items of a group.
        threads: Groups at a time, at most one a processor; 0 takes one a processor.
    """
    if len(items) == 1:
        yield work(items)
        return
    processors = os.cpu_count() or 1
    threads = min(threads or processors, processors, max(1, len(items)))
    groups = list(_groups(items, together(len(items), threads)))
    with _mapping(min(threads, max(1, len(groups)))) as mapped:
        yield from mapped(work, groups)


@contextmanager
def _mapping(threads: int) -> Iterator[Callable[..., Iterable[list[Hits]]]]:
    """Yield what maps with so many threads; a single one is the caller's own, which needs no start."""
    if threads == 1:
        yield map
        return
    pool = ThreadPoolExecutor(threads)
    try:
        yield pool.map
    finally:  # who interrupts does not wait for the queries to come
        pool.shutdown(cancel_futures=True)


def _groups(items: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    return (items[start : start + size] for start in range(0, len(items), size))


@lru_cache(maxsize=64)
def _model(written: str) -> Weighting:
    return notation.make(written, WEIGHTINGS, "model")


@lru_cache(maxsize=64)
def _feedback(written: str) -> RM3:
    return notation.make(written, FEEDBACKS, "feedback")


class Retriever:
    """One model over the documents of an index, or of several; safe to share between threads.

    Raises:
        WrongUse: Unknown model or feedback, or a bad argument of theirs.
    """

    def __init__(self, index: Index | SearchSource, search: LexicalOptions) -> None:
        self.source = source_of(index) if isinstance(index, Index) else index
        self.k = min(search.k, max(1, self.source.collection.documents))
        self.model = _model(search.model)
        self._analyzed = self.source.analyzer.content if self.model.content else self.source.analyzer
        self.feedback = _feedback(search.feedback) if search.feedback else None
        collection = self.source.collection
        if self.model.joined is not None and collection.with_fields < collection.documents:
            raise WrongUse(
                f"{search.model}: needs an index that counts the terms of titles and texts apart; build it "
                'with  rankhouse index --field title,text, or Index.build(..., field="title,text")'
            )
        if self.feedback is not None and self.model.asked is not None:
            raise WrongUse(
                f"{search.model} weighs the query's terms itself, and feedback would be weighed twice: leave "
                'feedback out, or query="bm25"'
            )

    def terms(self, text: str) -> dict[str, float]:
        """Return the terms of a query text with their counts."""
        return {term: float(count) for term, count in Counter(self._analyzed(text)).items()}

    def search_all(self, queries: Sequence[Query]) -> list[Hits]:
        """Find the best documents for each of several queries, feedback included."""
        if self.feedback is None:
            counted = (sorted(self._analyzed(query.text)) for query in queries)  # if it can use them
            if (found := self.source.best(self.model, counted, self.k)) is not None:
                return found
        asked = [self.terms(query.text) for query in queries]
        if self.feedback is not None:
            after = self._after_feedback(asked, self.feedback)
            asked = [new.expansion.weights if new else old for old, new in zip(asked, after, strict=True)]
        return self._hits(asked, self.k)

    def ranking(self, query: Query) -> Ranking:
        """Rank documents for one query: what :func:`run_of` makes of it, at less cost."""
        if (found := self.at_once(query)) is not None:
            return found
        answers = self.search_all([query])
        return run_of([query], answers, self.source.ids_of(answers))[query.id]

    def at_once(self, query: Query) -> Ranking | None:
        """Rank documents for one query in one compiled call; None where that takes more."""
        if self.feedback is not None or not isinstance(self.source, IndexSource):
            return None
        return self.source.scorer(self.model).ranking(sorted(self._analyzed(query.text)), self.k)

    def after_feedback(self, terms: Mapping[str, float]) -> Feedback | None:
        """Expand a query by its first hits; None without feedback, or where there is no hit to read."""
        return None if self.feedback is None else self._after_feedback([terms], self.feedback)[0]

    def _after_feedback(self, asked: Sequence[Mapping[str, float]], feedback: RM3) -> list[Feedback | None]:
        """Expand several queries together; None where there is no hit to read."""
        found = self._hits(asked, min(feedback.docs, max(1, self.source.collection.documents)))
        documents = self._read(found, feedback)
        return [
            Feedback(hits, self._expand(terms, some, feedback)) if some else None
            for terms, hits, some in zip(asked, found, documents, strict=True)
        ]

    def expand(self, terms: Mapping[str, float], hits: Hits, feedback: RM3) -> Expansion:
        """Expand a query by feedback from its first hits."""
        [documents] = self._read([hits], feedback)
        return self._expand(terms, documents, feedback)

    def _read(self, found: Sequence[Hits], feedback: RM3) -> list[list[FeedbackDocument]]:
        """Read the feedback documents of several queries, weighed by their scores."""
        read = iter(self.source.terms_of([row for hits in found for row in hits.rows.tolist()]))
        documents = []
        for hits in found:
            scores = hits.scores.tolist()
            if self.model.log_scores:
                scores = as_likelihoods(scores)
            documents.append([FeedbackDocument(score, feedback.ranked(next(read))) for score in scores])
        self.source.look_up(
            term for one in chain.from_iterable(documents) for term in feedback.frequent(one.terms)
        )
        return documents

    def _expand(
        self, terms: Mapping[str, float], documents: Sequence[FeedbackDocument], feedback: RM3
    ) -> Expansion:
        with_text = self.source.collection.with_text
        limit = with_text * feedback.common_share(self.source.analyzer.name, with_text)
        return feedback.expand(terms, documents, lambda term: self.source.counts(term).documents > limit)

    def hits(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find the best k documents for weighted terms."""
        return self._hits([weights], k)[0]

    def _hits(self, asked: Sequence[Mapping[str, float]], k: int) -> list[Hits]:
        self.source.look_up(chain.from_iterable(asked))
        return self.source.hits(self.model, [self.weighted(weights) for weights in asked], k)

    def weighted(self, weights: Mapping[str, float]) -> Weighted:
        """Return the terms that documents hold, with their weights as they are scored and their counts."""
        known = {t: (w, counts) for t, w in weights.items() if (counts := self.source.counts(t)).documents}
        if self.model.asked is not None:
            boosts = self.model.asked(known, self.source.collection)
            known = {t: (boosts[t], counts) for t, (_, counts) in known.items()}
        if self.model.mean and known:
            total = sum(w for w, _ in known.values())
            known = {t: (w / total, counts) for t, (w, counts) in known.items()}
        # One order for the sums, whatever order the words came in: equal queries get equal bits.
        return dict(sorted(known.items()))

    def document_score(self, weights: Mapping[str, float], row: int) -> DocumentScore:
        """Score one document, with the addends: the sum that :meth:`hits` computes."""
        return self.source.document_score(self.model, self.weighted(weights), row)
