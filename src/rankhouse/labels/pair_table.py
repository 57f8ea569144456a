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


class Layout:
    """Pairs, rows and queries of a finished pass 1, by number.

    Args:
        found: The candidates the pass went through.
        columns: What it left; r rows, n pairs.
    """

    def __init__(self, found: Candidates, columns: Columns) -> None:
        self.found, self.marks = found, columns.marks
        sizes = np.maximum(columns.rows, 0).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._queries = list(found.run)
        depths = (len(found.run[query_id].doc_ids) for query_id in self._queries)
        self._first_rows = np.fromiter(itertools.accumulate(depths, initial=0), np.int64)

    def __iter__(self) -> Iterator[Part]:
        return map(self._part, range(len(self._queries)))

    def pairs(self, part: Part, document: int) -> list[Pair]:
        """Fetch and cut one of a query's documents, by its number from 0."""
        row = Row(self.found.queries[part.query_id], part.doc_ids[document], document + 1)
        return self.found.pairs(row)

    def pair(self, place: int) -> Pair:
        """Fetch one pair with its text."""
        row = int(np.searchsorted(self.starts, place, side="right")) - 1
        # A query without documents has no rows: of equal first rows the last one is the query's.
        number = int(np.searchsorted(self._first_rows, row, side="right")) - 1
        document = row - int(self._first_rows[number])
        return self.pairs(self._part(number), document)[place - int(self.starts[row])]

    def _part(self, number: int) -> Part:
        first, last = self._first_rows[number : number + 2].tolist()
        return Part(self, self._queries[number], first, last)


class Part:
    """One query's share of the columns, with m pairs.

    Attributes:
        query_id: The query.
        doc_ids: Its documents.
        starts: (documents + 1,) place of each document's first pair in the query.
        begin: Place of its first pair in the columns.
        marks: (m,) what was said.
    """

    def __init__(self, layout: Layout, query_id: str, first: int, last: int) -> None:
        self.query_id, self.doc_ids = query_id, layout.found.run[query_id].doc_ids
        self.begin, end = int(layout.starts[first]), int(layout.starts[last])
        self.starts = layout.starts[first : last + 1] - self.begin
        self.marks: Marks = np.asarray(layout.marks[self.begin : end])

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
        found: list[int] = (np.searchsorted(self.starts, places, side="right") - 1).tolist()
        return found


class Choice:
    """The negatives: chosen query by query.

    Args:
        layout: The pairs.
        how: The rule of choice.

    Attributes:
        count: How many there are so far.
        pool: Among how many they were chosen.
        short: How many were wanted and not there.
    """

    def __init__(self, layout: Layout, how: Negatives) -> None:
        self._how = how
        self.count = self.pool = self.short = 0
        together = (how.kind, how.scope) == ("random", "collection")
        self._limit = self._common_limit(layout) if together else None

    def places(self, part: Part) -> list[int]:
        """Choose one query's negatives; gives their places among its pairs, in order."""
        candidates = self._candidates(part)
        self.pool += len(candidates)
        chosen = np.arange(len(candidates))
        if self._how.kind == "random" and self._limit is not None:
            chosen = np.flatnonzero(self._lots(part, candidates) < self._limit)
        elif self._how.kind == "random":
            chosen = self._drawn(part, candidates)
            self.short += self._how.per * part.positives - len(chosen)
        self.count += len(chosen)
        places: list[int] = candidates[chosen].tolist()
        return places

    def _drawn(self, part: Part, candidates: Places) -> Places:
        """Draw for all relevant pairs of a query together, or for those of each document by itself."""
        if not part.positives:
            return candidates[:0]
        lots = self._lots(part, candidates)
        if self._how.scope == "query":
            return smallest(lots, self._how.per * part.positives)
        own = np.array(part.documents(candidates), np.int64)
        documents, relevant = np.unique(part.documents(part.relevant), return_counts=True)
        drawn = [candidates[:0]]
        for document, count in zip(documents.tolist(), relevant.tolist(), strict=True):
            beside = np.flatnonzero(own == document)
            drawn.append(beside[smallest(lots[beside], self._how.per * count)])
        return np.concatenate(drawn)

    def _candidates(self, part: Part) -> Places:
        places = np.flatnonzero(part.marks & POOL)
        allowed = [self._how.allows(document + 1) for document in part.documents(places)]
        return places[np.array(allowed, np.bool_)]

    def _lots(self, part: Part, places: Places) -> Lots:
        drawn = [
            short_lot(
                self._how.seed, part.query_id, part.doc_ids[document], place - int(part.starts[document])
            )
            for place, document in zip(places.tolist(), part.documents(places), strict=True)
        ]
        return np.array(drawn, np.uint64)

    def _common_limit(self, layout: Layout) -> int:
        """Find below which lot a pair wins when all queries draw together; 8 bytes for each of the pool."""
        lots = np.concatenate([self._lots(part, self._candidates(part)) for part in layout])
        wanted = self._how.per * sum(part.positives for part in layout)
        self.short = max(0, wanted - len(lots))
        return int(np.partition(lots, wanted)[wanted]) if wanted < len(lots) else 1 << 64
