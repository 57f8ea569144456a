"""Finding pairs again: where those of each row and each query lie in a journal's columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import numpy as np

from rankhouse.core.nouns import Pair
from rankhouse.core.sampling import Lots, short_lot, smallest
from rankhouse.labels.candidates import Candidates, Row
from rankhouse.labels.journal import Columns
from rankhouse.labels.negative_sampling import Negatives
from rankhouse.labels.teacher_scores import Places
from rankhouse.labels.votes import POOL, YES, Marks


class PairTable:
    """Pairs, rows and queries of a finished pass 1, by number.

    Args:
        columns: What it left; r rows, n pairs.
    """

    def __init__(self, candidates: Candidates, columns: Columns) -> None:
        self.candidates, self.marks = candidates, columns.marks
        sizes = np.maximum(columns.rows, 0).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._queries = list(candidates.run)
        depths = (len(candidates.run[query_id].doc_ids) for query_id in self._queries)
        self._first_rows = np.fromiter(itertools.accumulate(depths, initial=0), np.int64)

    def __iter__(self) -> Iterator[QueryPairs]:
        return map(self._part, range(len(self._queries)))

    def pairs(self, query: QueryPairs, document: int) -> list[Pair]:
        """Fetch and cut one of a query's documents, by its number from 0."""
        row = Row(self.candidates.queries[query.query_id], query.doc_ids[document], document + 1)
        return self.candidates.pairs(row)

    def pair(self, place: int) -> Pair:
        """Fetch one pair with its text."""
        row = int(np.searchsorted(self.starts, place, side="right")) - 1
        # A query without documents has no rows: of equal first rows the last one is the query's.
        number = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        document = row - int(self._first_rows[number])
        return self.pairs(self._part(number), document)[place - int(self.starts[row])]

    def _part(self, number: int) -> QueryPairs:
        first, last = self._first_rows[number : number + 2].tolist()
        return QueryPairs(self, self._queries[number], first, last)


class QueryPairs:
    """One query's share of the columns, with m pairs.

    Attributes:
        query_id: The query.
        doc_ids: Its documents.
        starts: (documents + 1,) place of each document's first pair in the query.
        begin: Place of its first pair in the columns.
        marks: (m,) what was said.
    """

    def __init__(self, table: PairTable, query_id: str, first: int, last: int) -> None:
        self.query_id, self.doc_ids = query_id, table.candidates.run[query_id].doc_ids
        self.begin, end = int(table.starts[first]), int(table.starts[last])
        self.starts = table.starts[first : last + 1] - self.begin
        self.marks: Marks = np.asarray(table.marks[self.begin : end])

    @property
    def positives(self) -> int:
        """How many of its pairs the rule calls relevant."""
        return int(np.count_nonzero(self.marks & YES))

    @property
    def relevant(self) -> Places:
        """Places of the pairs that the rule calls relevant."""
        return np.flatnonzero(self.marks & YES)

    def documents(self, places: Places) -> list[int]:
        """Return the number, from 0, of the document that each of these pairs is of."""
        numbers: list[int] = (np.searchsorted(self.starts, places, side="right") - 1).tolist()
        return numbers


class NegativeSample:
    """The negatives: chosen query by query.

    Attributes:
        count: How many there are so far.
        pool: Among how many they were chosen.
        short: How many were wanted and not there.
    """

    def __init__(self, table: PairTable, how: Negatives) -> None:
        self._how = how
        self.count = self.pool = self.short = 0
        together = (how.kind, how.scope) == ("random", "collection")
        self._limit = self._common_limit(table) if together else None

    def places(self, query: QueryPairs) -> list[int]:
        """Choose one query's negatives: their places among its pairs, in order."""
        candidates = self._candidates(query)
        self.pool += len(candidates)
        chosen = np.arange(len(candidates))
        if self._how.kind == "random" and self._limit is not None:
            chosen = np.flatnonzero(self._lots(query, candidates) < self._limit)
        elif self._how.kind == "random":
            chosen = self._drawn(query, candidates)
            self.short += self._how.per * query.positives - len(chosen)
        self.count += len(chosen)
        places: list[int] = candidates[chosen].tolist()
        return places

    def _drawn(self, query: QueryPairs, candidates: Places) -> Places:
        """Draw for all relevant pairs of a query together, or for those of each document by itself."""
        if not query.positives:
            return candidates[:0]
        lots = self._lots(query, candidates)
        if self._how.scope == "query":
            return smallest(lots, self._how.per * query.positives)
        own = np.array(query.documents(candidates), np.int64)
        documents, relevant = np.unique(query.documents(query.relevant), return_counts=True)
        drawn = [candidates[:0]]
        for document, count in zip(documents.tolist(), relevant.tolist(), strict=True):
            beside = np.flatnonzero(own == document)
            drawn.append(beside[smallest(lots[beside], self._how.per * count)])
        return np.concatenate(drawn)

    def _candidates(self, query: QueryPairs) -> Places:
        places = np.flatnonzero(query.marks & POOL)
        allowed = [self._how.allows(document + 1) for document in query.documents(places)]
        return places[np.array(allowed, np.bool_)]

    def _lots(self, query: QueryPairs, places: Places) -> Lots:
        drawn = [
            short_lot(
                self._how.seed, query.query_id, query.doc_ids[document], place - int(query.starts[document])
            )
            for place, document in zip(places.tolist(), query.documents(places), strict=True)
        ]
        return np.array(drawn, np.uint64)

    def _common_limit(self, table: PairTable) -> int:
        """Find below which lot a pair wins when all queries draw together; 8 bytes for each of the pool."""
        lots = np.concatenate([self._lots(query, self._candidates(query)) for query in table])
        wanted = self._how.per * sum(query.positives for query in table)
        self.short = max(0, wanted - len(lots))
        return int(np.partition(lots, wanted)[wanted]) if wanted < len(lots) else 1 << 64
