"""A segment: an immutable folder of arrays over a stretch of the collection.

    terms.blob, terms_at         the distinct terms, sorted by their UTF-8 bytes
    postings_at, rows, tfs       term -> documents, ascending, and counts
    term_occurrences             occurrences of each term
    highest_tf                   largest count of each term
    lengths, codes               true length and Lucene's one-byte length of each document
    forward_at, forward_terms, forward_tfs   document -> terms, for feedback
    ids.blob, ids_at, id_order, id_rank      document ids and their sorted order
    store.zst, block_rows, block_starts      the texts

Files are ``.npy`` (arrays, opened memory-mapped) and ``.bin`` (bytes).
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.core.nouns import Document
from rankhouse.index.kernel import Columns, Forward, Postings, invert, scatter, tally
from rankhouse.index.lengths import codes_of
from rankhouse.index.store import Store, Strings, find_id, id_orders

ARRAYS = (
    *("terms_at", "postings_at", "rows", "tfs", "term_occurrences", "highest_tf", "lengths", "codes"),
    *("forward_at", "forward_terms", "forward_tfs", "ids_at", "id_order", "id_rank"),
    *("block_rows", "block_starts"),
)
BLOBS = ("terms", "ids", "store")
# Small files are checked byte by byte when opened, large ones by their size (and whole by `verify`).
CHECKED_AT_OPEN = 65_536


class FileSum(NamedTuple):
    """Size and CRC-32 of one file."""

    bytes: int
    crc32: int


def write_arrays(
    folder: Path, ids: list[str], terms: list[str], tokens: NDArray[np.int32], lengths: NDArray[np.int32]
) -> None:
    """Write everything of a segment but its store.

    Args:
        folder: The segment's folder.
        ids: Document ids, row by row.
        terms: The distinct terms, in the order of their numbers.
        tokens: Term numbers of all documents, one after the other; overwritten.
        lengths: How many tokens each document has.
    """
    # Strings sort by code point, which is the order of their UTF-8 bytes too.
    order = sorted(range(len(terms)), key=terms.__getitem__)
    sorted_number = np.empty(len(terms), np.int32)
    sorted_number[order] = np.arange(len(terms), dtype=np.int32)
    for start in range(0, len(tokens), 1 << 20):
        # In stretches, since numpy looks up by copies of the numbers in 8 bytes each.
        tokens[start : start + (1 << 20)] = sorted_number[tokens[start : start + (1 << 20)]]
    _save(folder, term_occurrences=tally(tokens, len(terms)))
    forward = invert(tokens, lengths, len(terms))
    _write_forward(folder, forward)
    _write_postings(folder, scatter(forward, len(terms)))
    _write_strings(folder, "terms", [terms[i] for i in order])
    _write_strings(folder, "ids", ids)
    id_order, id_rank = id_orders(ids)
    _save(folder, id_order=id_order, id_rank=id_rank, lengths=lengths, codes=codes_of(lengths))


def _write_forward(folder: Path, forward: Forward) -> None:
    _save(folder, forward_at=forward.ends, forward_terms=forward.terms, forward_tfs=forward.tfs)


def _write_postings(folder: Path, postings: Postings) -> None:
    starts, terms = postings.starts, len(postings.starts) - 1
    highest = np.maximum.reduceat(postings.tfs, starts[:-1]) if terms else np.empty(0, np.uint8)
    _save(folder, postings_at=starts, rows=postings.rows, tfs=postings.tfs)
    _save(folder, highest_tf=highest)


def _write_strings(folder: Path, name: str, strings: list[str]) -> None:
    blob, offsets = Strings.pack(strings)
    (folder / f"{name}.bin").write_bytes(blob.tobytes())
    _save(folder, **{f"{name}_at": offsets})


def _save(folder: Path, **arrays: NDArray[Any]) -> None:
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array, allow_pickle=False)


def sums_of(folder: Path) -> dict[str, FileSum]:
    """Measure every file of a segment, reading each once."""
    return {path.name: file_sum(path) for path in sorted(folder.iterdir())}


def file_sum(path: Path) -> FileSum:
    """Give the size and CRC-32 of a file."""
    size = crc = 0
    with path.open("rb") as stream:
        while chunk := stream.read(1 << 20):
            size, crc = size + len(chunk), zlib.crc32(chunk, crc)
    return FileSum(size, crc)


class Segment:
    """A segment opened for reading; arrays stay on disk until touched.

    Args:
        folder: The segment's folder.
        sums: Size and checksum of each file, from the manifest.

    Raises:
        BadIndex: A file is missing, has another size, or (small files) another checksum.
    """

    def __init__(self, folder: Path, sums: dict[str, FileSum]) -> None:
        self.folder = folder
        for name, expected in sums.items():
            _check_file(folder / name, expected, whole=expected.bytes <= CHECKED_AT_OPEN)
        arrays = {name: self._map(f"{name}.npy") for name in ARRAYS}
        blobs = {name: self._map(f"{name}.bin") for name in BLOBS}
        self.lengths: NDArray[np.int32] = arrays["lengths"]
        self.documents = len(self.lengths)
        self.terms = Strings(blobs["terms"], arrays["terms_at"])
        self.ids = Strings(blobs["ids"], arrays["ids_at"])
        self.store = Store(
            folder / "store.bin", blobs["store"], arrays["block_rows"], arrays["block_starts"], self.ids
        )
        self.columns = Columns(
            arrays["rows"], arrays["tfs"], arrays["codes"], arrays["id_rank"], arrays["id_order"]
        )
        self._postings_at = memoryview(arrays["postings_at"])
        self._highest_tf = memoryview(arrays["highest_tf"])
        self._occurrences = memoryview(arrays["term_occurrences"])
        self._forward = Forward(arrays["forward_at"], arrays["forward_terms"], arrays["forward_tfs"])

    def _map(self, name: str) -> NDArray[Any]:
        path = self.folder / name
        try:
            if name.endswith(".npy"):
                mapped = np.load(path, mmap_mode="r", allow_pickle=False)
            elif path.stat().st_size == 0:
                return np.empty(0, np.uint8)
            else:
                mapped = np.memmap(path, np.uint8, "r")
        except (OSError, ValueError, EOFError) as error:
            raise BadIndex(
                f"{path}: cannot be opened as an array ({error}); build the index again"
            ) from error
        # A plain array over the same pages: memmap's own slicing is several times slower.
        return np.asarray(mapped)

    def find_term(self, term: str) -> int:
        """Find a term's number by bisection; -1 when the segment does not have it."""
        raw = term.encode()
        place = bisect_left(range(len(self.terms)), raw, key=self.terms.raw)
        return place if place < len(self.terms) and self.terms.raw(place) == raw else -1

    def span(self, number: int) -> tuple[int, int]:
        """Give the first and the end position of a term's postings."""
        return self._postings_at[number], self._postings_at[number + 1]

    def occurrences(self, number: int) -> int:
        """Count a term's occurrences in this segment."""
        return self._occurrences[number]

    def highest_tf(self, number: int) -> int:
        """Give the largest count of a term in one document of this segment."""
        return self._highest_tf[number]

    def find_document(self, doc_id: str) -> int:
        """Find the row of a document id; -1 when the segment does not have it."""
        return find_id(doc_id, self.ids, self.columns.id_order)

    def terms_of(self, row: int) -> list[tuple[str, int]]:
        """List the terms of a document with their counts."""
        span = slice(self._forward.ends[row], self._forward.ends[row + 1])
        names = self.terms.take(self._forward.terms[span].astype(np.int64))
        return list(zip(names, self._forward.tfs[span].tolist(), strict=True))

    def document(self, row: int) -> Document:
        """Fetch a document's text."""
        return self.store[row]

    @cached_property
    def length_codes(self) -> int:
        """How many length codes a score table needs: the highest one in use, plus one."""
        return int(self.columns.codes.max(initial=0)) + 1


def _check_file(path: Path, expected: FileSum, *, whole: bool) -> None:
    try:
        found = file_sum(path) if whole else FileSum(path.stat().st_size, expected.crc32)
    except OSError as error:
        raise BadIndex(
            f"{path}: is missing or cannot be read ({error.strerror}); build the index again"
        ) from error
    if found != expected:
        what = (
            f"has {found.bytes:,} bytes where the manifest says {expected.bytes:,}"
            if found.bytes != expected.bytes
            else "does not have the content it was written with"
        )
        raise BadIndex(f"{path}: {what}; the index is damaged, build it again")


def verify(folder: Path, sums: dict[str, FileSum]) -> None:
    """Read every file of a segment whole and compare it with the manifest.

    Raises:
        BadIndex: One of them differs.
    """
    for name, expected in sums.items():
        _check_file(folder / name, expected, whole=True)
