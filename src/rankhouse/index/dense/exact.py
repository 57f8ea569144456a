"""Exact search among vectors: every row is compared, in blocks, and the best k documents are kept.

All rows are compared by float32 matrix products: quick, but in the last digits dependent on how many queries
and rows are multiplied at once. What could be among the best by the error bound of such a product is then
compared again, row by row, in float64. So the score of a query and a document is always the same float32,
whatever else is searched with it, and so is the choice at k.

Scores: the dot product, the cosine, or minus the squared Euclidean distance; a document has the score of its
best passage. Equal scores are ordered by document id, descending, as in every Run, at the cut as well.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Encoder, FloatArray, Query, by_id
from rankhouse.core.progress import Progress
from rankhouse.core.run import Run
from rankhouse.index.dense.vectors import Vectors, VectorsState, unit_length

Rows = NDArray[np.int64]
Doubles = NDArray[np.float64]

QUERIES_AT_ONCE: Final = 64
ENCODED_AT_ONCE: Final = 4_096  # queries; the encoder sorts what it is given by length
BLOCK_BYTES: Final = 16 << 20  # of float32 rows compared at once
_GATHERED: Final = 2_048  # rows compared again at once
_UNIT: Final = 2.0**-24  # rounding of float32


class Neighbours(NamedTuple):
    """The documents nearest to a point, best first: their ids and scores (k,)."""

    ids: Sequence[str]
    scores: FloatArray


class SearchedVectors(Protocol):
    """Vectors to be searched: :class:`Vectors`, or those of several indexes."""

    @property
    def state(self) -> VectorsState:
        """Their number, and how they were made."""
        ...

    def require_encoder(self, encoder: Encoder) -> object:
        """Make sure queries will be encoded by what encoded the documents."""
        ...


class Searcher(Protocol):
    """Nearest-neighbour search: :class:`ExactSearcher`, or a structure of ``faiss.py``."""

    @property
    def vectors(self) -> SearchedVectors:
        """Vectors to be searched."""
        ...

    def best(self, points: FloatArray, k: int) -> list[Neighbours]:
        """Find the best k documents for each of q points (q, d)."""
        ...


def search(
    searcher: Searcher,
    encoder: Encoder,
    queries: Iterable[Query],
    k: int = 1000,
    progress: Progress | None = None,
) -> Run:
    """Rank documents by their vectors for queries.

    Args:
        searcher: ``ExactSearcher(vectors)`` or a FAISS structure.
        encoder: The encoder that made the vectors.
        queries: The queries; one without text gets an empty ranking.
        k: How many documents a query.
        progress: Progress callback.

    Raises:
        WrongUse: k is below 1.
        DuplicateId: Two queries have one id.
        BadIndex: The vectors were made by another encoder.
        BadModel: The encoder gave something that is no finite (n, d) array.
    """
    if k < 1:
        raise WrongUse(f"k={k}: ask for 1 document or more")
    k = min(k, max(1, searcher.vectors.state.documents))
    searcher.vectors.require_encoder(encoder)
    table = by_id(queries)
    rankings = dict.fromkeys(table, Neighbours([], np.empty(0, np.float32)))
    with_text = [query for query in table.values() if query.text.strip()]
    for start in range(0, len(with_text), QUERIES_AT_ONCE):
        some, place = with_text[start : start + QUERIES_AT_ONCE], start % ENCODED_AT_ONCE
        if not place:
            encoded = encode_queries(searcher.vectors, encoder, with_text[start : start + ENCODED_AT_ONCE])
        points = encoded[place : place + len(some)]
        for query, best in zip(some, searcher.best(points, k), strict=True):
            rankings[query.id] = best
        if progress is not None:
            progress(start + len(some), len(with_text))
    return Run.from_columns(
        list(rankings), [d for d, _ in rankings.values()], [s for _, s in rankings.values()]
    )


def encode_queries(vectors: SearchedVectors, encoder: Encoder, queries: Sequence[Query]) -> FloatArray:
    """Encode queries (q, d), checked, of length 1 where the similarity is the cosine.

    Raises:
        BadModel: They are no finite (q, d) array.
    """
    points = np.asarray(encoder.encode_queries([query.text for query in queries]), np.float32)
    state = vectors.state
    if state.rows and points.shape != (len(queries), state.dimension):
        raise BadModel(
            f"the encoder gave an array of shape {points.shape} for {len(queries)} queries; "
            f"({len(queries)}, {state.dimension}) is needed"
        )
    if not np.isfinite(points).all():
        query = queries[int(np.argmin(np.isfinite(points).all(axis=1)))]
        raise BadModel(f'the vector of query "{query.id}" is not finite; the encoder\'s weights are damaged')
    return unit_length(points) if state.similarity == "cosine" else points


class ExactSearcher:
    """Compares every row. Needs no structure and no memory beyond a block."""

    def __init__(self, vectors: Vectors, block_bytes: int = BLOCK_BYTES) -> None:
        self.vectors = vectors
        self._block = max(1, block_bytes // (4 * max(1, vectors.dimension)))

    def best(self, points: FloatArray, k: int) -> list[Neighbours]:
        """Find the best k documents for each of q points (q, d)."""
        rows, owners = self.vectors.rows, self.vectors.owners
        best = [_Best(self.vectors, point, k, self._block) for point in points]
        for start in range(0, len(rows), self._block):
            block = np.asarray(rows[start : start + self._block], np.float32)
            approximate = self._compare(points, block)
            documents = owners[start : start + self._block]
            for one, scores in zip(best, approximate, strict=True):
                one.offer(start, documents, scores)
        return [one.finish() for one in best]

    def _compare(self, points: FloatArray, block: FloatArray) -> FloatArray:
        """Return rough scores (q, n) of a block (n, d); l2 without the query's own square."""
        scores: FloatArray = points @ block.T
        if self.vectors.state.similarity == "l2":
            scores *= 2
            scores -= np.einsum("nd,nd->n", block, block)
        return scores


class _Best:
    """The rows that may hold the best k documents for one point, so far.

    A document among the best k has a row whose rough score is at most twice the error bound below the k-th
    best document's rough score; all such rows are kept.
    """

    def __init__(self, vectors: Vectors, point: FloatArray, k: int, block: int) -> None:
        self._vectors, self._point, self._k = vectors, point, k
        self._slack = 2 * error_bound(vectors, point)
        self._most = 4 * k + block
        self._cut = -np.inf
        self._rows: list[Rows] = []
        self._scores: list[FloatArray] = []
        self._kept = 0

    def offer(self, start: int, owners: NDArray[np.uint32], scores: FloatArray) -> None:
        """Take what may matter of a block that begins at a row: owners (n,), rough scores (n,)."""
        places = np.flatnonzero(scores >= self._cut - self._slack)
        if len(places) > self._k:
            self._raise_cut(owners[places], scores[places])
            places = places[scores[places] >= self._cut - self._slack]
        if len(places):
            self._rows.append(start + places)
            self._scores.append(scores[places])
            self._kept += len(places)
        if self._kept > self._most:
            self._shrink()

    def _raise_cut(self, owners: NDArray[np.uint32], scores: FloatArray) -> None:
        """Let the cut rise to the k-th best document's score, if there are so many documents."""
        if self._vectors.passages:
            _, scores = best_of_each(owners, scores)
        if len(scores) >= self._k:
            self._cut = max(self._cut, float(np.partition(scores, -self._k)[-self._k]))

    def _shrink(self) -> None:
        rows, scores = np.concatenate(self._rows), np.concatenate(self._scores)
        self._raise_cut(self._vectors.owners[rows], scores)
        near = scores >= self._cut - self._slack
        rows, scores = rows[near], scores[near]
        if 2 * len(rows) > self._most:
            # Very many rows almost equal: settle it now, so that memory stays bounded.
            scores = rescore(self._vectors, self._point, rows)
            documents, _ = _best_documents(self._vectors, rows, scores, self._k)
            among = np.isin(self._vectors.owners[rows], documents)
            best = _best_rows(self._vectors.owners[rows[among]], scores[among])
            rows, scores = rows[among][best], self._rough(scores[among][best])
        self._rows, self._scores, self._kept = [rows], [scores], len(rows)

    def _rough(self, exact: FloatArray) -> FloatArray:
        """Put exact scores on the scale of the rough ones: l2 without the query's own square."""
        if self._vectors.state.similarity != "l2":
            return exact
        return exact + np.float32(np.square(self._point, dtype=np.float64).sum())

    def finish(self) -> Neighbours:
        """Compare what is left again, exactly, and give the best k."""
        rows = np.concatenate([np.empty(0, np.int64), *self._rows])
        return settle(self._vectors, rows, rescore(self._vectors, self._point, rows), self._k)


def error_bound(vectors: Vectors, point: FloatArray) -> float:
    """Bound how far a float32 score may be from the true one, whatever the order of its d additions."""
    length = float(np.sqrt(np.square(point, dtype=np.float64).sum()))
    longest = vectors.state.largest_norm
    product = length * longest
    if vectors.state.similarity == "l2":
        product = (length + longest) ** 2
    return (vectors.dimension + 8) * _UNIT * product


def rescore(vectors: Vectors, point: FloatArray, rows: Rows) -> FloatArray:
    """Compare a point (d,) with rows (n,), each by itself, in float64: (n,) float32."""
    scores = np.empty(len(rows), np.float32)
    wide = point.astype(np.float64)
    for part in _parts(len(rows)):
        block = vectors.rows[rows[part]].astype(np.float64)
        if vectors.state.similarity == "l2":
            scores[part] = -np.square(block - wide).sum(axis=1)
        else:
            scores[part] = (block * wide).sum(axis=1)
    return scores


def _parts(n: int) -> Iterator[slice]:
    return (slice(start, start + _GATHERED) for start in range(0, n, _GATHERED))


def settle(vectors: Vectors, rows: Rows, scores: FloatArray, k: int) -> Neighbours:
    """Pool rows (n,) with exact scores (n,) to documents and give the best k, ties by id descending."""
    documents, best = _best_documents(vectors, rows, scores, k)
    return Neighbours(vectors.ids.take(documents), best)


def _best_documents(vectors: Vectors, rows: Rows, scores: FloatArray, k: int) -> tuple[Rows, FloatArray]:
    documents, best = best_of_each(vectors.owners[rows], scores)
    if len(best) > k:
        cut = np.partition(best, -k)[-k]
        sure, level = np.flatnonzero(best > cut), np.flatnonzero(best == cut)
        by_id = sorted(level.tolist(), key=lambda place: vectors.ids[int(documents[place])], reverse=True)
        chosen = np.concatenate([sure, np.array(by_id[: k - len(sure)], np.int64)])
        documents, best = documents[chosen], best[chosen]
    order = np.argsort(-best, kind="stable")
    return documents[order].astype(np.int64), best[order]


def best_of_each(owners: NDArray[Any], scores: FloatArray) -> tuple[NDArray[Any], FloatArray]:
    """Return the distinct owners of rows (n,) and the best score of each."""
    places = _best_rows(owners, scores)
    return owners[places], scores[places]


def _best_rows(owners: NDArray[Any], scores: FloatArray) -> Rows:
    """Return the place of each owner's best row, owners ascending."""
    if not len(owners):
        return np.empty(0, np.int64)
    order = np.lexsort((scores, owners))
    last = np.flatnonzero(np.append(np.diff(owners[order].astype(np.int64)) != 0, True))
    return order[last]
