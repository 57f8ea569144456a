"""Run: what a system says. Columns sorted once, so that ranker, run file and evaluator agree."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from html import escape
from itertools import islice
from numbers import Real
from typing import TYPE_CHECKING, Any, Final, Protocol, cast, overload

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.core.frames import SHOWN, columns_of, frame, html_table, more
from rankhouse.core.nouns import FloatArray, Ranking

if TYPE_CHECKING:
    import pandas as pd

IntArray = NDArray[np.int64]
INFINITE_FROM: Final = 2.0**128 - 2.0**103  # what 32 bits round to infinity
TOO_LARGE: Final = "is beyond 3.4e+38, the largest of 32 bits; divide all scores by the same number"


class UnknownQuery(WrongUse, KeyError):
    """A query that a run does not have; a ``KeyError`` too, as of any mapping."""

    __str__ = WrongUse.__str__

    def __init__(self, query_id: object, known: Iterable[str]) -> None:
        hint = "" if isinstance(query_id, str) else ", which are strings; run[:10] is the run of the first 10"
        super().__init__(
            f"run[{query_id!r:.60}]: the run has no such query; its ids: {name_few(known)}{hint}"
        )


class RowIds(Protocol):
    """The document ids of the rows of a run, wherever they lie."""

    def names(self, start: int, stop: int) -> Sequence[str]:
        """Return the ids of rows [start, stop)."""
        ...

    def taken(self, places: IntArray) -> RowIds:
        """Return the ids of some rows, in this order."""
        ...

    def table(self) -> tuple[NDArray[np.object_], NDArray[np.int32]]:
        """Return the distinct ids, sorted, and the place of each row's id among them."""
        ...


class Run(Mapping[str, Ranking]):
    """Immutable mapping of query id to Ranking, in the order the queries were given.

    >>> import rankhouse as rh
    >>> run = rh.Run.of({"q": {"a": 1.0, "b": 2.0}})
    >>> run.top(1).to_dict()
    {'q': {'b': 2.0}}

    Equal scores are ordered by document id, descending, as trec_eval does. Kept as columns: one table of
    distinct document ids, sorted, and per row a 4-byte code into it and a 4-byte score. A query may have
    no documents at all. Build one with :meth:`of`, :meth:`from_rankings` or :meth:`from_columns`.
    """

    __slots__ = ("_ids", "_offsets", "_queries", "_read", "_scores")

    def __init__(
        self,
        queries: Mapping[str, int],
        offsets: IntArray,
        table: NDArray[np.object_],
        codes: NDArray[np.int32],
        scores: FloatArray,
    ) -> None:
        self._queries, self._offsets, self._scores = dict(queries), offsets, scores
        self._read: tuple[NDArray[np.object_], NDArray[np.int32]] | None = (table, codes)
        self._ids: RowIds | None = None
        for column in (offsets, table, codes, scores):
            column.flags.writeable = False

    @classmethod
    def pending(cls, queries: Mapping[str, int], offsets: IntArray, scores: FloatArray, ids: RowIds) -> Run:
        """Build a run whose document ids are read when somebody asks for them.

        Args:
            queries: Query id -> its place.
            offsets: Where the rows of each begin and those of the last end, (queries + 1,).
            scores: Of every row, strictly falling within a query.
            ids: Of every row.
        """
        run = cls.__new__(cls)  # a query asked alone pays for each step
        run._queries, run._offsets, run._scores = dict(queries), offsets, scores  # noqa: SLF001 - its own
        run._read, run._ids = None, ids  # noqa: SLF001 - its own
        offsets.flags.writeable = scores.flags.writeable = False
        return run

    def __reduce__(self) -> tuple[object, ...]:
        return Run, (self._queries, self._offsets, self._table, self._codes, self._scores)

    @property
    def _columns(self) -> tuple[NDArray[np.object_], NDArray[np.int32]]:
        """The distinct document ids, sorted, and the place of each row's id among them."""
        if self._read is None:
            assert self._ids is not None
            self._read = self._ids.table()
        return self._read

    @property
    def _table(self) -> NDArray[np.object_]:
        return self._columns[0]

    @property
    def _codes(self) -> NDArray[np.int32]:
        return self._columns[1]

    @classmethod
    def of(
        cls, rows: Iterable[tuple[str, str, float]] | Mapping[str, Mapping[str, float]] | pd.DataFrame
    ) -> Run:
        """Build from rows in any order, from what :meth:`to_dict` gives, or from a data frame.

        Args:
            rows: (query id, document id, score) each, such as ir_measures.ScoredDoc; query id -> document id
                -> score; or a DataFrame with columns query_id, doc_id and score, or PyTerrier's qid, docno.

        Raises:
            WrongUse: A data frame without these columns.
            BadData: As in :meth:`from_rankings`, or a query or a document given twice.
        """
        if isinstance(rows, Mapping):
            return cls.from_rankings(rows)
        if hasattr(rows, "columns"):
            table = cast("pd.DataFrame", rows)
            rows = columns_of(table, ("query_id", "qid"), ("doc_id", "docno"), ("score",))
        documents: dict[str, list[str]] = {}
        scores: dict[str, list[float]] = {}
        for query_id, doc_id, score in triples("run", rows, "a score"):
            documents.setdefault(query_id, []).append(doc_id)
            scores.setdefault(query_id, []).append(score)
        columns = [_narrow(row) for row in scores.values()]
        return cls.from_columns(list(documents), list(documents.values()), columns)

    @classmethod
    def from_rankings(cls, rankings: Mapping[str, Ranking | Mapping[str, float]]) -> Run:
        """Build from query id to Ranking, or to a mapping of document id to score.

        Raises:
            BadData: An id that is not a string, a score that is not a number, a row that is neither.
        """
        query_ids, documents, scores = [], [], []
        for query_id, ranking in rankings.items():
            check_row("run", query_id, ranking)
            if isinstance(ranking, Ranking):
                ids, values = ranking.doc_ids, _narrow(ranking.scores)
            else:
                if wrong := [score for score in ranking.values() if not _is_number(score)]:
                    raise BadData(f'run, query "{query_id}": the score {wrong[0]!r:.60} is not a number')
                ids, values = tuple(ranking), _narrow(list(ranking.values()))
            query_ids.append(query_id)
            documents.append(ids)
            scores.append(values)
        return cls.from_columns(query_ids, documents, scores)

    @classmethod
    def from_columns(
        cls, query_ids: Sequence[str], documents: Sequence[Sequence[str]], scores: Sequence[FloatArray]
    ) -> Run:
        """Build from columns with one entry for each query.

        Args:
            query_ids: The queries, in order.
            documents: For each, its k document ids, in any order.
            scores: For each, their (k,) scores.

        Raises:
            WrongUse: Columns of different lengths.
            BadData: A query given twice, or a score that is not a number.
        """
        if not len(query_ids) == len(documents) == len(scores):
            raise WrongUse(
                f"{len(query_ids)} query ids, {len(documents)} lists of documents and {len(scores)} arrays "
                "of scores were given; a run needs one of each for every query"
            )
        if len(set(query_ids)) != len(query_ids):
            repeated = next(q for q in query_ids if list(query_ids).count(q) > 1)
            raise BadData(f'query "{repeated}" is given twice; a run holds one ranking per query')
        codes: dict[str, int] = {}
        rows = [codes.setdefault(d, len(codes)) for ids in documents for d in ids]
        sizes = [len(ids) for ids in documents]
        values = _narrow(np.concatenate([np.empty(0, np.float32), *scores]))
        if len(values) != len(rows):
            raise WrongUse(f"{len(rows)} documents but {len(values)} scores; each document needs one score")
        return cls._sort(
            {q: i for i, q in enumerate(query_ids)},
            np.repeat(np.arange(len(sizes)), sizes),
            list(codes),
            np.array(rows, dtype=np.int64),
            scores=values,
        )

    @classmethod
    def _sort(
        cls, queries: Mapping[str, int], query: IntArray, table: list[str], code: IntArray, scores: FloatArray
    ) -> Run:
        """Check and sort raw columns: query (r,), code (r,) into the unsorted table, scores (r,)."""
        names = list(queries)
        if (bad := np.flatnonzero(np.isnan(scores))).size:
            row = bad[0]
            raise BadData(
                f'the score of document "{table[code[row]]}" for query "{names[query[row]]}" is not '
                "a number; a run needs finite or infinite scores, never NaN"
            )
        ids = np.array(table, dtype=object)
        by_id = np.argsort(ids, kind="stable") if table else np.empty(0, np.int64)
        rank = np.empty(len(table), np.int64)
        rank[by_id] = np.arange(len(table))
        code = rank[code]
        order = np.lexsort((-code, -scores, query))
        query, code, scores = query[order], code[order], scores[order]
        _refuse_repeats(names, ids[by_id], query, code)
        offsets = np.searchsorted(query, np.arange(len(queries) + 1))
        return cls(queries, offsets, ids[by_id], code.astype(np.int32), scores=scores)

    @overload
    def __getitem__(self, query_id: str) -> Ranking: ...
    @overload
    def __getitem__(self, query_id: slice) -> Run: ...
    def __getitem__(self, query_id: str | slice) -> Ranking | Run:
        if isinstance(query_id, slice):
            return self.restrict(list(self)[query_id])
        if (row := self._queries.get(query_id)) is None:
            raise UnknownQuery(query_id, self._queries)
        start, stop = self._offsets[row : row + 2].tolist()  # numpy's own numbers take longer
        span = slice(start, stop)
        if self._read is None and self._ids is not None:
            return Ranking(tuple(self._ids.names(start, stop)), self._scores[span])
        return Ranking(tuple(self._table[self._codes[span]]), self._scores[span])

    def __iter__(self) -> Iterator[str]:
        return iter(self._queries)

    def __len__(self) -> int:
        return len(self._queries)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Run):
            return NotImplemented
        return (
            self._queries.keys() == other._queries.keys()
            and len(self._scores) == len(other._scores)
            and all(self[q].doc_ids == other[q].doc_ids for q in self)
            and all(np.array_equal(self[q].scores, other[q].scores) for q in self)
        )

    __hash__ = None  # type: ignore[assignment]

    def __contains__(self, query_id: object) -> bool:
        return query_id in self._queries

    def __repr__(self) -> str:
        return f"<Run of {len(self):,} queries, {self.rows:,} rows, {len(self._table):,} documents>"

    @property
    def rows(self) -> int:
        """Number of (query, document) rows."""
        return len(self._scores)

    @property
    def nbytes(self) -> int:
        """Bytes the columns take, without the strings of the id table."""
        return sum(c.nbytes for c in (self._offsets, self._table, self._codes, self._scores))

    def __str__(self) -> str:
        heads = {query_id: self[query_id].doc_ids for query_id in list(self)[:10]}
        shown = [f"{q}: {', '.join(ids[:5])}{' ...' if len(ids) > 5 else ''}" for q, ids in heads.items()]
        more = [f"... and {len(self) - 10:,} queries more"] if len(self) > 10 else []
        return "\n".join([repr(self), *shown, *more])

    def to_dict(self) -> dict[str, dict[str, float]]:
        """Return query id -> document id -> score, best first."""
        return {query_id: self[query_id].to_dict() for query_id in self}

    def to_frame(self) -> pd.DataFrame:
        """Return one row a document: query_id, doc_id, rank, score (needs pandas)."""
        columns = ("query_id", "doc_id", "rank", "score")
        return frame([dict(zip(columns, row, strict=True)) for row in self._rows()], columns)

    def _rows(self) -> Iterator[tuple[str, str, int, float]]:
        for query_id in self:
            for rank, (doc_id, score) in enumerate(self[query_id].to_dict().items(), 1):
                yield query_id, doc_id, rank, score

    def _repr_html_(self) -> str:
        rows = [(escape(q), escape(d), str(r), f"{s:.4f}") for q, d, r, s in islice(self._rows(), SHOWN)]
        table = html_table(("query", "document", "rank", "score"), rows, (True, True, False, False))
        return f"<p>{escape(repr(self))}</p>{table}{more(self.rows - SHOWN)}"

    def top(self, k: int) -> Run:
        """Keep the best k documents of every query."""
        if k < 0:
            raise WrongUse(f"top({k}): a run can keep 0 or more documents per query")
        return self._taken(list(self._queries), np.minimum(np.diff(self._offsets), k))

    def restrict(self, query_ids: Iterable[str]) -> Run:
        """Keep only these queries, in the order given; unknown ids are skipped."""
        return self._taken(
            [q for q in dict.fromkeys(query_ids) if q in self._queries], np.diff(self._offsets)
        )

    def _taken(self, query_ids: list[str], sizes: IntArray) -> Run:
        """Keep these queries; of each the best documents, as many as stand in its place in sizes."""
        places = np.array([self._queries[q] for q in query_ids], np.int64)
        sizes = sizes[places]
        offsets = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        rows = np.repeat(self._offsets[places] - offsets[:-1], sizes) + np.arange(offsets[-1])
        queries, scores = {q: i for i, q in enumerate(query_ids)}, self._scores[rows]
        if self._read is None and self._ids is not None:
            return Run.pending(queries, offsets, scores, self._ids.taken(rows))
        return Run(queries, offsets, self._table, self._codes[rows], scores=scores)


def triples(name: str, rows: Iterable[Sequence[Any]], number: str) -> Iterator[tuple[str, str, Any]]:
    """Yield (query id, document id, number) of the rows of a run or of judgements; what follows is left out.

    Args:
        name: "run" or "qrels", for the message.
        number: What the third column is called.

    Raises:
        BadData: Another row.
    """
    for place, row in enumerate(rows):
        if not (
            isinstance(row, Sequence)
            and len(row) >= 3
            and isinstance(row[0], str)
            and isinstance(row[1], str)
        ):
            raise BadData(
                f"{name}, row {place:,}: {row!r:.80} is not (query id, document id, {number}), ids as strings"
            )
        if not _is_number(row[2]):
            raise BadData(f'{name}, query "{row[0]}": {number} of "{row[1]}" is {row[2]!r:.60}, no number')
        yield row[0], row[1], row[2]


def check_row(name: str, query_id: object, row: object) -> None:
    """Check that a row of a run or of judgements maps document ids to something.

    Args:
        name: "run" or "qrels", for the message.
        query_id: What should be a query's id.
        row: What should be its mapping, or its ranking.

    Raises:
        BadData: An id is not a string, or the row is no mapping.
    """
    if not isinstance(query_id, str):
        raise BadData(
            f"{name}: the query id {query_id!r:.60} is of type {type(query_id).__name__}; ids are strings"
        )
    if not isinstance(row, Mapping | Ranking):
        raise BadData(f'{name}, query "{query_id}": {row!r:.60} is no mapping of document ids to numbers')
    ids = row.doc_ids if isinstance(row, Ranking) else row
    if wrong := [doc_id for doc_id in ids if not isinstance(doc_id, str)]:
        raise BadData(
            f'{name}, query "{query_id}": the document id {wrong[0]!r:.60} is no string; ids are strings'
        )


def _narrow(scores: Sequence[float] | FloatArray) -> FloatArray:
    """Return scores in 32 bits; refuse one that would become infinite there, and equal to others."""
    if isinstance(scores, np.ndarray) and scores.dtype == np.float32:
        return scores
    try:
        wide = np.asarray(scores, np.float64)
    except OverflowError:  # a whole number of hundreds of digits
        raise BadData(f"a score {TOO_LARGE}") from None
    with np.errstate(over="ignore"):
        values = wide.astype(np.float32)
    if (lost := wide[np.isinf(values) & np.isfinite(wide)]).size:
        raise BadData(f"the score {lost[0]} {TOO_LARGE}")
    return values


def _is_number(score: object) -> bool:
    return isinstance(score, (float, Real))  # most are floats, and Real is slow to ask


def _refuse_repeats(names: list[str], table: NDArray[np.object_], query: IntArray, code: IntArray) -> None:
    """Raise if one query holds one document twice; columns are sorted by query, not by code."""
    key = np.sort(query * max(1, len(table)) + code)
    if (repeats := np.flatnonzero(key[1:] == key[:-1])).size:
        row, column = divmod(int(key[repeats[0]]), max(1, len(table)))
        raise BadData(
            f'query "{names[row]}" holds document "{table[column]}" twice; '
            "a ranking may hold a document once (rankhouse doctor RUN lists them all)"
        )
