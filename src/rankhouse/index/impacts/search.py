"""Impacts, queries -> Run: the exact dot products, by the kernel of the lexical index.

A document's score is the sum of the products of its weights and the query's, each exact, added in float64 in
the order of the words and rounded to float32 once; it does not depend on threads, parts or pruning. Only
documents that share a word with the query are found. Equal scores are ordered by document id, ascending, and
lowered in the Run, as those of words are (``lexical/search.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import cached_property, partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, Self

import numpy as np

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import FloatArray, Query, by_id
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.index.impacts.impacts import PackedImpacts, QueryWeigher
from rankhouse.index.lexical import kernel, scorer
from rankhouse.index.lexical.kernel import Float64s, Int32s, Int64s, TermScores
from rankhouse.index.lexical.scorer import Hits
from rankhouse.index.lexical.search import in_groups, run_of, share_of
from rankhouse.index.lexical.store import KnownIds

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

if TYPE_CHECKING:
    import scipy.sparse


_IMPACT: Final = 4
"""The kernel's form of a score that is a query's weight times that of a posting."""
_WEIGHED_AT_ONCE: Final = 4_096
_PRUNED_WORDS: Final = 8
"""Most words a query, on average, of queries that are pruned: of many, few bounds exclude anything."""


class CoveringImpacts(Protocol):
    """Impacts of a collection, which know their encoder."""

    def __len__(self) -> int: ...

    def require_encoder(self, encoder: QueryWeigher) -> Self:
        """Refuse (BadIndex) queries that another encoder weighs than the documents'."""
        ...


class ImpactSource(Protocol):
    """Search by impacts: an index, or several as one."""

    @property
    def impacts(self) -> CoveringImpacts:
        """The impacts."""
        ...

    def best(self, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        """Find the best k documents for each of q queries, whose weights of words are (q, v) float32."""
        ...

    def ids_of(self, answers: Sequence[Hits]) -> KnownIds:
        """Return the ids of all hits."""
        ...

    def together(self, queries: int, threads: int) -> int:
        """Return how many of so many queries each of so many threads best asks at once."""
        ...


class ImpactSearcher:
    """Finds the best documents by their impacts; safe to share between threads.

    Attributes:
        postings: How many postings the words of the queries so far have, and how many were unpacked; counted
            by the compiled kernel.
    """

    together = staticmethod(share_of)

    def __init__(self, packed: PackedImpacts) -> None:
        self.packed, self.impacts = packed, packed.impacts
        self.postings = np.zeros(2, np.int64)

    @cached_property
    def _opened(self) -> object:
        """The impacts as the kernel keeps them open."""
        packed, ones = self.packed, np.ones(256, np.float32)
        facts = (_IMPACT, False, 1, packed.in_id_order)
        return _kernel.open_model(packed.opened, *facts, ones, ones, np.zeros(256), b"")

    def best(self, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        """Find the best k documents for each of q queries, whose weights of words are (q, v) float32."""
        parts = [weights[start : start + 64] for start in range(0, weights.shape[0], 64)]
        find = self._found if kernel.COMPILED else self._added_up
        return list(chain.from_iterable(find(part, k) for part in parts))

    def ids_of(self, answers: Sequence[Hits]) -> KnownIds:
        """Return the ids of all hits."""
        rows = np.concatenate([np.empty(0, np.int64), *(hits.rows for hits in answers)])
        return KnownIds(self.impacts.ids.take(rows))

    def _found(self, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        queries, n = weights.shape[0], weights.nnz
        rows, scores = np.empty(queries * k, np.int64), np.empty(queries * k, np.float32)
        counts, terms = np.empty(queries, np.int64), kernel.term_records(self.packed.find(weights.indices), 1)
        pruning = 0 if scorer.PRUNING == 1 and n > _PRUNED_WORDS * queries else scorer.PRUNING
        asked = (weights.indptr[1:].astype(np.int64), terms.view(np.uint8), weights.data.astype(np.float64))
        arrays = (*asked, None, None, None, None, rows, scores, counts, None)
        done = _kernel.rank(self._opened, pruning, k, 0, {}, None, arrays)
        self.postings += done or (0, 0)
        ends = zip(range(0, len(rows), k), counts.tolist(), strict=True)
        return [Hits(rows[start : start + found], scores[start : start + found]) for start, found in ends]

    def _added_up(self, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        """Find the same without a compiler: all postings are added up."""
        none, hits = np.empty(0, np.int32), list[Hits]()
        for start, end in zip(weights.indptr[:-1], weights.indptr[1:], strict=True):
            numbers = self.packed.find(weights.indices[start:end])
            asked = zip(numbers.tolist(), weights.data[start:end].astype(np.float64), strict=True)
            terms = [self._of_word(lists, weight) for lists, weight in asked]
            rows, scores = kernel.rank(terms, None, self.packed.id_rank, none, k=k)
            hits.append(Hits(rows.astype(np.int64), scores))
        return hits

    def _of_word(self, lists: Sequence[int], weight: float) -> TermScores:
        rows, values = list[Int32s](), list[Float64s]()
        for part, number in zip(self.packed.parts, lists, strict=True):
            if number >= 0:
                some, impacts = part.postings(number)
                rows.append(some + np.int32(part.first))
                values.append(weight * impacts.astype(np.float64))
        return TermScores(np.concatenate([np.empty(0, np.int32), *rows]), np.concatenate([[], *values]))


def search_impacts(
    searcher: ImpactSource,
    encoder: QueryWeigher,
    queries: Iterable[Query],
    k: int = 1000,
    threads: int = 0,
    progress: Progress | None = None,
) -> Run:
    """Rank documents by their impacts for queries.

    Args:
        encoder: What weighs queries: the encoder that made the impacts, or its table.
        queries: One without text gets an empty ranking.
        threads: As for a search by words.

    Raises WrongUse: k is below 1; DuplicateId: two queries have one id; BadIndex: the impacts were made by
    another encoder; BadModel: the encoder gave something that is no finite (n, v) matrix.
    """
    if k < 1:
        raise WrongUse(f"k={k}: ask for 1 document or more")
    impacts = searcher.impacts.require_encoder(encoder)
    k, tell = min(k, max(1, len(impacts))), progress or ignore
    asked = list(by_id(queries).values())
    answers = list[Hits]()
    for start in range(0, len(asked), _WEIGHED_AT_ONCE):
        some = asked[start : start + _WEIGHED_AT_ONCE]
        find = partial(_best_of, searcher, weigh_queries(encoder, some), k)
        for hits in in_groups(find, range(len(some)), searcher.together, threads):
            answers += hits
            tell(len(answers), len(asked))
    return run_of(asked, answers, searcher.ids_of(answers))


def _best_of(
    searcher: ImpactSource, weights: scipy.sparse.csr_array, k: int, rows: Sequence[int]
) -> list[Hits]:
    return searcher.best(weights[rows[0] : rows[-1] + 1], k)


def weigh_queries(encoder: QueryWeigher, queries: Sequence[Query]) -> scipy.sparse.csr_array:
    """Weigh the words of queries, (q, v), the words of each ascending; none for one without text.

    Raises BadModel: the encoder gave something that is no finite (q, v) matrix.
    """
    import scipy.sparse  # noqa: PLC0415 - slow to import, and most commands need none

    with_text = [place for place, query in enumerate(queries) if query.text.strip()]
    given = scipy.sparse.csr_array((len(with_text), encoder.vocabulary), dtype=np.float32)
    if with_text:
        given = scipy.sparse.csr_array(encoder.query_weights([queries[place].text for place in with_text]))
    if tuple(given.shape) != (len(with_text), encoder.vocabulary) or not np.isfinite(given.data).all():
        raise BadModel(
            f"the encoder gave weights of shape {given.shape} for {len(with_text)} queries; finite ones of "
            f"shape ({len(with_text)}, {encoder.vocabulary}) are needed"
        )
    given.sum_duplicates()
    given.eliminate_zeros()
    counts = np.zeros(len(queries), np.int64)
    counts[with_text] = np.diff(given.indptr)
    ends = np.concatenate([[0], np.cumsum(counts)])
    return scipy.sparse.csr_array((given.data, given.indices, ends), shape=(len(queries), encoder.vocabulary))


def impact_addends(
    searcher: ImpactSearcher, weights: scipy.sparse.csr_array, number: int
) -> tuple[Int64s, Float64s, FloatArray, float]:
    """Return what a document's score for one query, weights (1, v), is made of.

    Returns:
        The words that both have, what each adds, the document's weight of each, and the score.
    """
    held, impacts = searcher.impacts.of(number)
    words, ours, theirs = np.intersect1d(weights.indices, held, assume_unique=True, return_indices=True)
    values = weights.data[ours].astype(np.float64) * impacts[theirs].astype(np.float64)
    return words.astype(np.int64), values, impacts[theirs], float(np.float32(sum(values.tolist(), 0.0)))
