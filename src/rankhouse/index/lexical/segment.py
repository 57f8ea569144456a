"""A segment: an immutable folder of arrays over consecutive documents.

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

import io
import shutil
from bisect import bisect_left
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.kernel import Forward, Postings, RankColumns, invert, scatter, tally
from rankhouse.index.lexical.store import DocumentStore, Strings, find_id, id_orders
from rankhouse.io.checksums import BLOCK, CheckedArray, FileSum, Guard, differs, file_sum

# Lucene's one-byte document length, SmallFloat.intToByte4: a length below 24 is its own code; above, what
# exceeds 24 is coded by an exponent and three bits after the leading one. Exact to 40, then rounded down.
_FREE = 24  # the codes left over once the largest 32-bit length has one


def _decode(code: int) -> int:
    if code < _FREE:
        return code
    rest = code - _FREE
    exponent, mantissa = rest >> 3, rest & 7
    return _FREE + (mantissa if exponent == 0 else (mantissa | 8) << (exponent - 1))


DECODED: NDArray[np.float64] = np.array([_decode(code) for code in range(256)], np.float64)
"""Length that each of the 256 codes stands for."""


def codes_of(lengths: NDArray[np.int32]) -> NDArray[np.uint8]:
    """Code true lengths, (rows,) -> (rows,), each by the largest code that does not exceed it."""
    return (np.searchsorted(DECODED, lengths, side="right") - 1).astype(np.uint8)


_COUNTS = ("|u1", "<u2", "<u4")
# The types an array may have; a damaged header cannot make another array of a file's bytes.
ARRAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("terms_at", "postings_at", "term_occurrences", "forward_at", "ids_at"), ("<i8",)),
    **dict.fromkeys(("block_rows", "block_starts"), ("<i8",)),
    **dict.fromkeys(("rows", "lengths", "forward_terms", "id_order", "id_rank"), ("<i4",)),
    **dict.fromkeys(("tfs", "highest_tf", "forward_tfs"), _COUNTS),
    "codes": ("|u1",),
}
BLOBS = ("terms", "ids", "store")
# Small files are compared whole when opened, large ones block by block as they are read (`verify`: whole).
CHECKED_AT_OPEN = BLOCK


def write_arrays(
    folder: Path, ids: list[str], terms: list[str], tokens: NDArray[np.int32], lengths: NDArray[np.int32]
) -> None:
    """Write everything of a segment but its store.

    Args:
        tokens: Term numbers of all documents, one after the other; overwritten.
    """
    # Strings sort by code point, which is the order of their UTF-8 bytes too.
    order = sorted(range(len(terms)), key=terms.__getitem__)
    sorted_number = np.empty(len(terms), np.int32)
    sorted_number[order] = np.arange(len(terms), dtype=np.int32)
    for start in range(0, len(tokens), 1 << 20):
        # In blocks, since numpy looks up by copies of the numbers in 8 bytes each.
        tokens[start : start + (1 << 20)] = sorted_number[tokens[start : start + (1 << 20)]]
    _save(folder, term_occurrences=tally(tokens, len(terms)))
    forward = invert(tokens, lengths, len(terms))
    _write_counted(folder, ids, [terms[i] for i in order], forward, lengths=lengths)


def write_joint_arrays(
    folder: Path, ids: list[str], terms: list[str], forward: Forward, lengths: NDArray[np.int32]
) -> None:
    """Write what :func:`write_arrays` writes, where the terms of all documents are counted already."""
    _save(folder, term_occurrences=tally(forward.terms, len(terms), forward.tfs))
    _write_counted(folder, ids, terms, forward, lengths=lengths)


def _write_counted(
    folder: Path, ids: list[str], terms: list[str], forward: Forward, lengths: NDArray[np.int32]
) -> None:
    _save(folder, forward_at=forward.ends, forward_terms=forward.terms, forward_tfs=forward.tfs)
    _write_postings(folder, scatter(forward, len(terms)))
    _write_strings(folder, "terms", terms)
    _write_strings(folder, "ids", ids)
    id_order, id_rank = id_orders(ids)
    _save(folder, id_order=id_order, id_rank=id_rank, lengths=lengths, codes=codes_of(lengths))


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


class Segment:
    """A segment opened for reading; arrays stay on disk until touched.

    Raises:
        BadIndex: A file is missing, has another size, or (small files) another checksum.
    """

    def __init__(self, folder: Path, sums: dict[str, FileSum]) -> None:
        self.folder, self._sums = folder, sums
        for name, expected in sums.items():
            _check_file(folder / name, expected, whole=expected.bytes <= CHECKED_AT_OPEN)
        self._arrays: dict[str, CheckedArray[Any]] = {name: self._map(f"{name}.npy") for name in ARRAYS}
        blobs = {name: self._map(f"{name}.bin") for name in BLOBS}
        arrays = self._arrays
        self.documents = len(arrays["lengths"])
        self.terms = Strings(blobs["terms"], arrays["terms_at"])
        self.ids = Strings(blobs["ids"], arrays["ids_at"])
        store, blocks = blobs["store"], (arrays["block_rows"], arrays["block_starts"])
        # Since there are checksums of blocks, the blocks of texts have their own, which are cheaper.
        sealed = bool(sums["store.bin"].blocks)
        self.store = DocumentStore(
            folder / "store.bin",
            CheckedArray(store.unchecked) if sealed else store,
            *blocks,
            self.ids,
            sealed=sealed,
        )

    def _map(self, name: str) -> CheckedArray[Any]:
        """Map a file; where it is large, with the guard that compares its blocks."""
        path = self.folder / name
        expected = self._sums.get(name)
        if expected is None:
            raise BadIndex(f"{path}: is not named in the manifest; the index is damaged, build it again")
        try:
            content: NDArray[np.uint8] = (
                np.asarray(np.memmap(path, np.uint8, "r")) if expected.bytes else np.empty(0, np.uint8)
            )
            array, offset = _array_in(name, content)
        except (OSError, ValueError, EOFError) as error:
            raise BadIndex(
                f"{path}: cannot be opened as an array ({error}); build the index again"
            ) from error
        if expected.bytes <= CHECKED_AT_OPEN:
            return CheckedArray(array)
        return CheckedArray(array, Guard(content, expected, lambda: _damaged(path)), offset)

    @cached_property
    def columns(self) -> RankColumns:
        """What ranking needs: of the postings only spans that :meth:`span` gave may be read."""
        rows, tfs = (self._arrays[name].unchecked for name in ("rows", "tfs"))
        return RankColumns(
            rows, tfs, *(self._arrays[name].whole() for name in ("codes", "id_rank", "id_order"))
        )

    @property
    def lengths(self) -> NDArray[np.int32]:
        """True length of every document, in tokens."""
        return self._arrays["lengths"].whole()

    def find_term(self, term: str) -> int:
        """Find a term's number by bisection; -1 when the segment does not have it."""
        raw = term.encode()
        place = bisect_left(range(len(self.terms)), raw, key=self.terms.raw)
        return place if place < len(self.terms) and self.terms.raw(place) == raw else -1

    def span(self, number: int) -> tuple[int, int]:
        """Return the first and the end position of a term's postings, which may be read then."""
        first, end = self._arrays["postings_at"].part(number, number + 2)
        for name in ("rows", "tfs"):
            self._arrays[name].check(first, end)
        return first, end

    def frequency(self, number: int) -> int:
        """Count the documents of this segment that hold a term."""
        first, end = self._arrays["postings_at"].part(number, number + 2)
        return int(end - first)

    def occurrences(self, number: int) -> int:
        """Count a term's occurrences in this segment."""
        return int(self._arrays["term_occurrences"].item(number))

    def highest_tf(self, number: int) -> int:
        """Return the largest count of a term in one document of this segment."""
        return int(self._arrays["highest_tf"].item(number))

    def find_document(self, doc_id: str) -> int:
        """Find the row of a document id; -1 when the segment does not have it."""
        return find_id(doc_id, self.ids, self._arrays["id_order"])

    def edges(self) -> tuple[str, str]:
        """Return the first and the last document id, in their order."""
        order = self._arrays["id_order"]
        return self.ids[order.item(0)], self.ids[order.item(len(order) - 1)]

    def terms_of(self, row: int) -> list[tuple[str, int]]:
        """List the terms of a document with their counts."""
        span = slice(*self._arrays["forward_at"].part(row, row + 2))
        names = self.terms.take(self._arrays["forward_terms"][span].astype(np.int64))
        return list(zip(names, self._arrays["forward_tfs"][span].tolist(), strict=True))

    def bags(self, rows: NDArray[np.int64]) -> Forward:
        """Return the distinct terms of some documents, and how often each occurs."""
        first, end = int(rows[0]), int(rows[-1]) + 1
        ends = self._arrays["forward_at"][first : end + 1]
        span = slice(int(ends[0]), int(ends[-1]))
        terms, tfs = self._arrays["forward_terms"][span], self._arrays["forward_tfs"][span]
        if end - first > len(rows):
            wanted = np.zeros(end - first, bool)
            wanted[rows - first] = True
            entries = np.repeat(wanted, np.diff(ends))
            ends = np.concatenate([[0], np.cumsum(np.diff(ends)[wanted])])
            terms, tfs = terms[entries], tfs[entries]
        return Forward(ends - ends[0], terms, tfs)

    def copy_arrays(self, folder: Path) -> None:
        """Copy what a folder does not have: the arrays, to a segment that has its own copy of the texts.

        Raises:
            BadIndex: A file is not what was written.
        """
        for name, expected in self._sums.items():
            if not (copy := folder / name).exists():
                shutil.copyfile(self.folder / name, copy)
                _check_file(copy, expected, whole=True)

    def document(self, row: int) -> Document:
        """Fetch a document's text."""
        return self.store[row]

    @cached_property
    def length_codes(self) -> int:
        """How many length codes a score table needs: the highest one in use, plus one."""
        return int(self.columns.codes.max(initial=0)) + 1


def _array_in(name: str, content: NDArray[np.uint8]) -> tuple[NDArray[Any], int]:
    """Find the array in a file's bytes, and where it begins."""
    if not name.endswith(".npy"):
        return content, 0
    head = io.BytesIO(bytes(content[:256]))
    version = np.lib.format.read_magic(head)
    shape, _, kind = np.lib.format.read_array_header_1_0(head)
    size = kind.itemsize * (shape[0] if len(shape) == 1 else -1)
    if version != (1, 0) or kind.str not in ARRAYS[name.removesuffix(".npy")]:
        raise ValueError(f"it holds {kind.str} in version {version}")
    if head.tell() + size != len(content):
        raise ValueError(f"it is of shape {shape}, which does not fill its {len(content):,} bytes")
    return content[head.tell() :].view(kind), head.tell()


def _damaged(path: Path) -> BadIndex:
    return BadIndex(
        f"{path}: does not have the content it was written with; the index is damaged, build it again"
    )


def _check_file(path: Path, expected: FileSum, *, whole: bool) -> None:
    try:
        actual = file_sum(path) if whole else FileSum(path.stat().st_size, expected.crc32)
    except OSError as error:
        raise BadIndex(
            f"{path}: is missing or cannot be read ({error.strerror}); build the index again"
        ) from error
    if what := differs(actual, expected):
        raise BadIndex(f"{path}: {what}; the index is damaged, build it again")


def verify(folder: Path, sums: dict[str, FileSum]) -> None:
    """Read every file of a segment whole and compare it with the manifest.

    Raises:
        BadIndex: One of them differs.
    """
    for name, expected in sums.items():
        _check_file(folder / name, expected, whole=True)
