"""Answers kept on disk while labelling runs, so that a killed one resumes.

A folder beside the file to be written:

    plan.json      what the answers depend on; another plan starts afresh
    rows.i4        per row of the run: how many pairs it gave; -1 where its document is not there
    marks.u1       per pair: who said yes, as the bits of labels.votes
    scores.f4      per pair: the teacher's score, NaN where it was not asked
    soft.f4        per pair: what each source of soft labels gave, t numbers a pair; empty without them
    done.txt       one line a finished chunk: rows, pairs, and a check number of its bytes

A chunk counts once its line stands in done.txt and its bytes agree with it; what lies behind is cut off.
Not the log of ``index/append_log.py``: there damage is refused, here it only costs the answers from there on.
"""

from __future__ import annotations

import functools
import itertools
import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import warn
from rankhouse.core.nouns import Pair
from rankhouse.core.sampling import Lots, short_lot, smallest
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import writing_failures
from rankhouse.labels.candidates import CandidateRow, Candidates, Negatives
from rankhouse.labels.rules import Places
from rankhouse.labels.votes import POOL, YES, Marks, Votes

VERSION: Final = "1"
_COLUMNS: Final[dict[str, type[np.generic]]] = {
    "rows.i4": np.int32,
    "marks.u1": np.uint8,
    "scores.f4": np.float32,
    "soft.f4": np.float32,
}


class JournalColumns(NamedTuple):
    """Votes on all pairs so far, memory-mapped."""

    rows: NDArray[np.int32]  # (r,) pairs of each row of the run; -1 where its document is not there
    votes: Votes  # of n pairs


class LabelJournal:
    """The folder of one labelling; OutputFailed if it cannot be written."""

    def __init__(self, folder: Path, plan: Mapping[str, str], sources: int = 0) -> None:
        self.folder, self.rows, self.pairs, self._sources = folder, 0, 0, sources
        plan = {"version": VERSION, **plan}
        with writing_failures(folder):
            if folder.is_dir() and (before := self._plan()) != plan:
                self._warn(before, plan)
                shutil.rmtree(folder)
            folder.mkdir(parents=True, exist_ok=True)
            if not (folder / "plan.json").exists():
                (folder / "plan.json").write_bytes(msgspec.json.encode(plan))
            self._recover()

    def _plan(self) -> dict[str, str]:
        path = self.folder / "plan.json"
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, str])
        except (OSError, *UNREADABLE):
            return {}  # damaged, or killed before the plan was written: nothing else can be there

    def _warn(self, before: Mapping[str, str], plan: Mapping[str, str]) -> None:
        if not (self.folder / "done.txt").exists():
            return  # no answers are lost
        changed = [part for part in plan if before.get(part) != plan[part]]
        reason = f"it was made with other inputs ({', '.join(changed)})" if before else "its plan is damaged"
        warn(f"an unfinished labelling stands in {self.folder}, but {reason}; starting afresh", 4)

    def _recover(self) -> None:
        """Find the last chunk that is whole, and cut off what lies behind it."""
        done = self.folder / "done.txt"
        sound = []
        with self._open("rb") as columns:
            for line in done.read_text("ascii", "replace").splitlines() if done.exists() else ():
                parts = line.split()
                if len(parts) != 4 or not all(part.isdecimal() for part in parts[:3]) or parts[3] != "end":
                    break
                rows, pairs, check = map(int, parts[:3])
                sizes = self._sizes(rows, pairs)
                chunk = [column.read(size) for column, size in zip(columns, sizes, strict=True)]
                if check != _check(chunk):
                    break
                sound.append(line)
                self.rows, self.pairs = self.rows + rows, self.pairs + pairs
        for name, size in zip(_COLUMNS, self._sizes(self.rows, self.pairs), strict=True):
            with (self.folder / name).open("r+b") as column:
                column.truncate(size)
        done.write_text("".join(f"{line}\n" for line in sound), "ascii")

    def _sizes(self, rows: int, pairs: int) -> tuple[int, ...]:
        """Return the bytes of each column."""
        return 4 * rows, pairs, 4 * pairs, 4 * pairs * self._sources

    @contextmanager
    def _open(self, mode: Literal["rb", "ab"]) -> Iterator[list[BinaryIO]]:
        """Open the columns together."""
        with ExitStack() as opened:
            columns: list[BinaryIO] = []
            for name in _COLUMNS:
                (self.folder / name).touch()
                columns.append(opened.enter_context((self.folder / name).open(mode)))
            yield columns

    def commit(self, rows: Sequence[int] | NDArray[np.int32], votes: Votes) -> None:
        """Append a chunk; OutputFailed if the disk is full, or the like."""
        numbers = zip((rows, *votes), _COLUMNS.values(), strict=True)
        chunk = [np.asarray(column, kind).tobytes() for column, kind in numbers]
        with writing_failures(self.folder):
            with self._open("ab") as columns:
                for column, content in zip(columns, chunk, strict=True):
                    column.write(content)
            with (self.folder / "done.txt").open("a", encoding="ascii") as done:
                done.write(f"{len(rows)} {len(votes.marks)} {_check(chunk)} end\n")
        self.rows, self.pairs = self.rows + len(rows), self.pairs + len(votes.marks)

    def columns(self) -> JournalColumns:
        """Map everything answered so far into memory."""
        return columns_in(self.folder, self._sources)

    def remove(self) -> None:
        """Delete the folder: the labelling is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)


def columns_in(folder: Path, sources: int = 0) -> JournalColumns:
    """Map everything that a folder holds into memory."""
    rows, marks, scores, soft = (_mapped(folder / name, kind) for name, kind in _COLUMNS.items())
    return JournalColumns(rows, Votes(marks, scores, soft.reshape(len(marks), sources)))


def _mapped(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, kind)
    return np.memmap(path, kind, "r")


def _check(chunk: Sequence[bytes]) -> int:
    return functools.reduce(lambda check, content: zlib.crc32(content, check), chunk, 0)


class PairTable:
    """Pairs, rows and queries of a finished pass 1, by number."""

    def __init__(self, candidates: Candidates, columns: JournalColumns) -> None:
        self.candidates, self.marks = candidates, columns.votes.marks
        sizes = np.maximum(columns.rows, 0).astype(np.int64)
        self.starts = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
        self._queries = list(candidates.run)
        depths = (len(candidates.run[query_id].doc_ids) for query_id in self._queries)
        self._first_rows = np.fromiter(itertools.accumulate(depths, initial=0), np.int64)

    def __iter__(self) -> Iterator[QueryPairs]:
        return map(self._part, range(len(self._queries)))

    def pairs(self, query: QueryPairs, document: int) -> list[Pair]:
        """Fetch and cut one of a query's documents, by its number from 0."""
        row = CandidateRow(self.candidates.queries[query.query_id], query.doc_ids[document], document + 1)
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
    def relevant(self) -> Places:
        """Places of the pairs that the rule calls relevant."""
        return np.flatnonzero(self.marks & YES)

    @property
    def positives(self) -> int:
        """Number of relevant pairs."""
        return len(self.relevant)

    def documents(self, places: Places) -> list[int]:
        """Return the number, from 0, of the document that each of these pairs is of."""
        numbers: list[int] = (np.searchsorted(self.starts, places, side="right") - 1).tolist()
        return numbers


class NegativeSample:
    """The negatives: chosen query by query."""

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
