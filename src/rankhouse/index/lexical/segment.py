"""A segment: an immutable folder of arrays over consecutive documents.

    terms.bin, terms_at, terms_order    the terms, those in most documents first; their numbers by name
    lists.bin, lists_at                 the terms' packed postings (``_postings.h``)
    frequencies, occurrences, highest_tf   of each term: documents, occurrences, largest count in a document
    areas.bin                           bounds of the frequent terms, for every 64 documents
    lengths, codes                      true length and Lucene's one-byte length of each document
    forward.bin, forward_at             document -> terms, for feedback
    ids.bin, ids_at, id_order, id_rank  document ids and their order; the last two where they are not sorted
    store.bin, block_rows, block_starts the texts; none of an index made from a CIFF file
    dead-N                              the rows that were deleted, the only file that comes later

Files are ``.npy`` (arrays, opened memory-mapped) and ``.bin`` (bytes), little-endian. Deleted documents stay
in the arrays until the next append merges the segment; everything here that takes or gives a row counts the
others only, as if the segment had been built without them.
"""

from __future__ import annotations

import shutil
from bisect import bisect_left
from collections.abc import Iterator
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import Document
from rankhouse.index.lexical import packing
from rankhouse.index.lexical.kernel import Bytes, Forward, Int32s, Int64s, scatter, tally
from rankhouse.index.lexical.manifest import DEAD, OPTIONAL, REBUILD, check_files, map_file
from rankhouse.index.lexical.packing import AREA
from rankhouse.index.lexical.store import DocumentStore, NoTexts, Strings, Vocabulary
from rankhouse.io.checksums import CheckedArray, FileSum

# Lucene's one-byte document length, SmallFloat.intToByte4: a length below 24 is its own code; above, what
# exceeds 24 is coded by an exponent and three bits after the leading one. Exact to 40, then rounded down.
_FREE: Final = 24  # the codes left over once the largest 32-bit length has one


def _decode(code: int) -> int:
    if code < _FREE:
        return code
    rest = code - _FREE
    exponent, mantissa = rest >> 3, rest & 7
    return _FREE + (mantissa if exponent == 0 else (mantissa | 8) << (exponent - 1))


DECODED: NDArray[np.float64] = np.array([_decode(code) for code in range(256)], np.float64)
"""Length that each of the 256 codes stands for."""


def codes_of(lengths: Int32s) -> Bytes:
    """Code true lengths, (rows,) -> (rows,), each by the largest code that does not exceed it."""
    return (np.searchsorted(DECODED, lengths, side="right") - 1).astype(np.uint8)


_NONE: Int32s = np.empty(0, np.int32)


class TermLists:
    """Terms with packed postings in a folder; arrays stay on disk until touched.

    Attributes:
        rows: How many documents the postings are of.
        scores: Whether a posting has a score; else it has a count.
        again: What is to be done about a damaged file.

    Raises BadIndex: a file is missing, has another size, or (small files) another checksum.
    """

    scores, again = False, REBUILD
    rows: int

    def __init__(self, folder: Path, sums: dict[str, FileSum]) -> None:
        check_files(folder, sums, whole=False, again=self.again)
        self.folder, self._sums = folder, sums
        self._lists, self._areas = self._map("lists.bin"), self._map("areas.bin")
        self._lists_at, self._frequencies = self._map("lists_at.npy"), self._map("frequencies.npy")

    def _map(self, name: str) -> CheckedArray[Any]:
        """Map a file; where it is large, with the guard that compares its blocks."""
        return map_file(self.folder / name, self._sums.get(name), self.again)

    @property
    def is_checked(self) -> bool:
        """Whether all lists were compared, so that each may be read."""
        return self._lists.complete and self._areas.complete

    def check_lists(self, numbers: NDArray[np.integer[Any]]) -> None:
        """See to it that the lists of terms may be read; -1 stands for none."""
        held = numbers[numbers >= 0].astype(np.int64)
        ends = self._lists_at.whole()
        self._lists.check_many(ends[held].astype(np.int64), ends[held + 1].astype(np.int64))
        size = 4 * -(-self.rows // AREA)
        frequent = held[held < len(self._areas) // size] if size else held[:0]
        self._areas.check_many(frequent * size, (frequent + 1) * size)

    def frequency(self, number: int) -> int:
        """Count the documents that hold a term."""
        return int(self._frequencies.item(number))

    def postings(self, number: int) -> tuple[Int32s, NDArray[Any]]:
        """Return the rows of a term's documents, and its count, or score, in each."""
        start, n = int(self._lists_at.item(number)), self.frequency(number)
        return packing.unpack(self._lists.unchecked[start:], n, scores=self.scores)

    def opened(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays of lists that the compiled kernel keeps open."""
        areas = self._areas.unchecked.view("<u2")
        return self._lists.unchecked, self._lists_at.whole(), self._frequencies.whole(), areas


class Segment(TermLists):
    """A segment opened for reading.

    Attributes:
        documents: How many it has, deleted ones left out.
        terms: The terms, by number.
        has_fields: Whether titles are counted apart, so that the rest is the text's.
        dead: The rows of deleted documents among all, ascending, (n,) int32.
        ids: Ids of the documents.
    """

    def __init__(self, folder: Path, sums: dict[str, FileSum]) -> None:
        super().__init__(folder, sums)
        self._lengths, self._codes = self._map("lengths.npy"), self._map("codes.npy")
        self.rows = len(self._lengths)
        self.terms = Strings(self._map("terms.bin"), self._map("terms_at.npy"))
        self._order = self._map("terms_order.npy")
        self._occurrences, self._highest = self._map("occurrences.npy"), self._map("highest_tf.npy")
        self._forward, self._forward_at = self._map("forward.bin"), self._map("forward_at.npy")
        is_sorted = "id_order.npy" not in sums
        self._id_order, self._id_rank = (
            CheckedArray(_NONE) if is_sorted else self._map(f"{name}.npy") for name in OPTIONAL
        )
        marked = next((name for name in sums if name.startswith(DEAD)), "")
        self.dead: Int32s = self._map(marked).whole() if marked else _NONE
        self.documents = self.rows - len(self.dead)
        every = Strings(self._map("ids.bin"), self._map("ids_at.npy"))
        self.ids, self._every_id = Strings(every.blob, every.offsets, self._alive), every
        self._store = self._mapped_store(sums) if "store.bin" in sums else None
        self.has_fields = "title_tfs.npy" in sums

    def _mapped_store(self, sums: dict[str, FileSum]) -> DocumentStore:
        store, blocks = self._map("store.bin"), (self._map("block_rows.npy"), self._map("block_starts.npy"))
        # Since there are checksums of blocks, the blocks of texts have their own, which are cheaper.
        sealed = bool(sums["store.bin"].blocks)
        unchecked = CheckedArray(store.unchecked) if sealed else store
        return DocumentStore(self.folder / "store.bin", unchecked, *blocks, self._every_id, sealed=sealed)

    @property
    def has_texts(self) -> bool:
        """Whether the texts are here, too."""
        return self._store is not None

    @property
    def store(self) -> DocumentStore:
        """The texts. Raises NoTexts: the index was made from a CIFF file."""
        if self._store is None:
            raise NoTexts(
                f"{self.folder.parent.parent}: was made from a CIFF file, which holds terms and no texts: "
                "it can be searched and exported; to read, rerank, encode or merge texts, index the corpus"
            )
        return self._store

    @cached_property
    def _alive(self) -> Int64s | None:
        """The rows that were not deleted, among all; None where none was."""
        if not len(self.dead):
            return None
        return np.delete(np.arange(self.rows), self.dead)

    def among_all(self, rows: Int64s) -> Int64s:
        """Return rows among all documents, deleted ones included."""
        return rows if self._alive is None else self._alive[rows]

    def among_alive(self, rows: Int64s) -> Int64s:
        """Return rows, given among all documents, none of them deleted."""
        return rows - np.searchsorted(self.dead, rows) if len(self.dead) else rows

    @cached_property
    def lengths(self) -> Int32s:
        """True length of every document, in tokens."""
        lengths = self._lengths.whole()
        return lengths if self._alive is None else lengths[self._alive]

    @cached_property
    def codes(self) -> Bytes:
        """Lucene's one-byte length of every document."""
        codes = self._codes.whole()
        return codes if self._alive is None else codes[self._alive]

    @cached_property
    def length_codes(self) -> int:
        """Number of length codes that a score table needs: the highest one in use, plus one."""
        return int(self._codes.whole().max(initial=0)) + 1

    # --- terms --------------------------------------------------------------------------------------------

    @cached_property
    def vocabulary(self) -> Vocabulary:
        """The terms and their counts, deleted documents left out, but for the largest count of one."""
        documents, occurrences = self._frequencies.whole(), self._occurrences.whole()
        if len(self.dead):
            documents, occurrences = documents - self._gone[0], occurrences - self._gone[1]
        blob, at = self.terms.blob.whole(), self.terms.offsets.whole()
        counts = {"documents": documents, "occurrences": occurrences, "highest": self._highest.whole()}
        return Vocabulary(blob, at, self._order.whole(), **counts)

    @cached_property
    def _gone(self) -> tuple[Int64s, Int64s]:
        """Documents and occurrences that each term lost with deleted documents."""
        bags, terms = self.bags_among_all(self.dead.astype(np.int64)), len(self.terms)
        return tally(bags.terms, terms), tally(bags.terms, terms, bags.tfs)

    def names(self) -> list[str]:
        """List the terms that documents hold."""
        names = list(self.terms)
        if not len(self.dead):
            return names
        held = self.vocabulary.documents.tolist()
        return [name for name, n in zip(names, held, strict=True) if n]

    @cached_property
    def title_lengths(self) -> Int32s:
        """True length of every document's title, deleted ones included."""
        return self._map("title_lengths.npy").whole()

    @cached_property
    def _title_tfs(self) -> tuple[CheckedArray[Any], Int64s]:
        """The counts in titles, list after list, and where each list begins."""
        return self._map("title_tfs.npy"), np.cumsum([0, *self._frequencies.whole().tolist()])

    def title_counts(self, number: int) -> NDArray[Any]:
        """Return a term's count in the title of each document of its list."""
        counts, at = self._title_tfs
        return counts[at[number] : at[number + 1]]

    def title_bags_among_all(self, rows: Int64s) -> NDArray[Any]:
        """Return the counts in titles of the terms that :meth:`bags_among_all` gives of ascending rows."""
        ends, terms, _ = self.bags_among_all(np.arange(self.rows))
        entries = Forward(ends, terms, np.arange(len(terms), dtype=np.uint32))
        places = scatter(entries, len(self.terms)).payload
        tfs = self._title_tfs[0].whole()
        counts, takes = np.empty_like(tfs), np.zeros(self.rows, bool)
        counts[places], takes[rows] = tfs, True
        return np.asarray(counts[np.repeat(takes, np.diff(ends))])

    # --- documents ----------------------------------------------------------------------------------------

    def find_document(self, doc_id: str) -> int:
        """Find the row of a document id; -1 when the segment does not have it."""
        ids, order = self._every_id, self._id_order if len(self._id_order) else None
        place = bisect_left(
            range(self.rows), doc_id, key=lambda i: ids[i if order is None else order.item(i)]
        )
        if place == self.rows:
            return -1
        row = place if order is None else int(order.item(place))
        return self.living_row(row) if ids[row] == doc_id else -1

    def living_row(self, row: int) -> int:
        """Return the row of a document, given among all, among those that were not deleted; -1 if it was."""
        if not len(self.dead):
            return row
        before = int(np.searchsorted(self.dead, row))
        return -1 if before < len(self.dead) and self.dead[before] == row else row - before

    @property
    def ids_are_checked(self) -> bool:
        """Whether all ids, and their order, were compared, so that :attr:`id_table` costs nothing."""
        ids = self._every_id
        return ids.blob.complete and ids.offsets.complete and self._id_order.complete

    @cached_property
    def id_table(self) -> Vocabulary:
        """The ids of all documents as the kernel finds strings; the counts of such strings mean nothing."""
        blob, at, order = self._every_id.blob.whole(), self._every_id.offsets.whole(), self._id_order.whole()
        return Vocabulary(blob, at, order, *[self._codes.whole()] * 3)

    def edges(self) -> tuple[str, str]:
        """Return the first and the last document id, in their order."""
        ends = (0, self.rows - 1)
        if len(self._id_order):
            ends = tuple(self._id_order.item(end) for end in ends)
        return self._every_id[ends[0]], self._every_id[ends[1]]

    def by_id(self, rows: Int64s) -> Int64s:
        """Sort rows by document id: their places, (n,)."""
        some = self.among_all(rows)
        return np.argsort(self._id_rank[some] if len(self._id_rank) else some)

    def bags(self, rows: Int64s) -> Forward:
        """Return the distinct terms of some documents, sorted, and how often each occurs."""
        return self.bags_among_all(self.among_all(rows))

    def bags_among_all(self, rows: Int64s) -> Forward:
        """Return what :meth:`bags` does, of rows among all documents."""
        at = self._forward_at.whole()
        self._forward.check_many(at[rows].astype(np.int64), at[rows + 1].astype(np.int64))
        return packing.unpack_forward(self._forward.unchecked, at, rows)

    def terms_of_all(self, rows: Int64s) -> list[list[tuple[str, int]]]:
        """List the terms of several documents with their counts."""
        bags = self.bags(rows)
        numbers, where = np.unique(bags.terms, return_inverse=True)
        names = np.array(self.terms.take(numbers.astype(np.int64)), object)[where].tolist()
        entries = list(zip(names, bags.tfs.tolist(), strict=True))
        return [entries[start:end] for start, end in pairwise(bags.ends.tolist())]

    def terms_of(self, row: int) -> list[tuple[str, int]]:
        """List the terms of a document with their counts."""
        return self.terms_of_all(np.array([row]))[0]

    def document(self, row: int) -> Document:
        """Fetch a document's text."""
        return self.store[row if self._alive is None else int(self._alive[row])]

    def stream(self, start: int, stop: int) -> Iterator[Document]:
        """Read documents in order, each block of texts once."""
        if self._alive is None:
            yield from self.store.stream(start, stop)
        elif start < stop:
            first, last = int(self._alive[start]), int(self._alive[stop - 1])
            dead = set(self.dead.tolist())
            for row, document in enumerate(self.store.stream(first, last + 1), first):
                if row not in dead:
                    yield document

    # --- what ranking needs -------------------------------------------------------------------------------

    @property
    def length_codes_among_all(self) -> Bytes:
        """Lucene's one-byte length of every document, deleted ones included."""
        return self._codes.whole()

    def opened_with(self, codes: Bytes) -> tuple[NDArray[Any], ...]:
        """Return the arrays that the compiled kernel keeps open; only lists that were found may be read."""
        dead = np.zeros(-(-self.rows // 8) if len(self.dead) else 0, np.uint8)
        np.bitwise_or.at(dead, self.dead >> 3, np.left_shift(1, self.dead & 7).astype(np.uint8))
        ids = (self._every_id.blob.unchecked, self._every_id.offsets.whole())
        arrays = (self._lengths, self._id_rank, self._id_order)
        return *self.opened(), codes, *(array.whole() for array in arrays), dead, *ids

    def lengths_among_all(self, *, exact: bool) -> NDArray[Any]:
        """Return the length of every document, deleted ones included: the true one, or that of its code."""
        return self._lengths.whole() if exact else DECODED[self._codes.whole()]

    def id_rank(self) -> Int32s:
        """Return the place of every document, deleted ones included, in the order of ids."""
        return self._id_rank.whole() if len(self._id_rank) else np.arange(self.rows, dtype=np.int32)

    def ids_among_all(self, rows: Int64s) -> list[str]:
        """Return the ids of rows among all documents."""
        return self._every_id.take(rows)

    def copy_arrays(self, folder: Path) -> None:
        """Copy what a folder does not have: the arrays, to a segment that has its own copy of the texts.

        Raises BadIndex: a file is not what was written.
        """
        for name, expected in self._sums.items():
            if not (copy := folder / name).exists():
                shutil.copyfile(self.folder / name, copy)
                check_files(folder, {name: expected}, whole=True)

    def check_ids(self) -> None:
        """See to it that all ids are as they were written."""
        self._every_id.blob.whole()
