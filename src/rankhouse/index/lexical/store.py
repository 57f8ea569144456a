"""The documents of a segment on disk: ids, titles, texts and extra fields; the ids of those that were found.

Texts lie in blocks of about 16 KiB, compressed with zstd and memory-mapped; only the block that is read is
unpacked, and compared with the checksum that zstd keeps at its end. Ids lie in one string with offsets; a
sorted order of them finds a document by its id.
"""

from __future__ import annotations

import sys
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.index.lexical import kernel
from rankhouse.io.checksums import CheckedArray

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

if TYPE_CHECKING:
    from rankhouse.index.index import Index

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd


class NoTexts(WrongUse):
    """An index holds terms only."""


BLOCK_BYTES = 16_384
_KEPT_BYTES = 16 << 20
_HAS_CHECKSUM = 4  # the bit of a frame's descriptor, its fifth byte
_FRAMES: dict[int, int] = {
    zstd.CompressionParameter.compression_level: 3,
    zstd.CompressionParameter.checksum_flag: 1,
}
Bytes = NDArray[np.uint8]

_encode = msgspec.msgpack.Encoder().encode
Stored = tuple[str, str, dict[str, object]]
"""Title, text and extra fields of a document."""
_decode = msgspec.msgpack.Decoder(list[Stored]).decode


class Strings(Sequence[str]):
    """Strings in one memory-mapped blob: string i is blob[offsets[i] : offsets[i + 1]], UTF-8.

    Args:
        chosen: The numbers of those that count; None for all.
    """

    def __init__(
        self,
        blob: CheckedArray[np.uint8],
        offsets: CheckedArray[np.int64],
        chosen: NDArray[np.int64] | None = None,
    ) -> None:
        self.blob, self.offsets, self._chosen = blob, offsets, chosen

    def __len__(self) -> int:
        return len(self.offsets) - 1 if self._chosen is None else len(self._chosen)

    def __getitem__(self, i: int) -> str:  # type: ignore[override]  # one string at a time is all there is
        if i >= len(self):
            raise IndexError(i)
        number = i if self._chosen is None else int(self._chosen[i])
        return str(self.blob.part(*self.offsets.part(number, number + 2)), "utf-8")

    def take(self, rows: NDArray[np.int64]) -> list[str]:
        """Return many strings at once."""
        return kernel.strings(self.blob.unchecked, self.offsets.unchecked, self._checked(rows))

    def heads(self, rows: NDArray[np.int64]) -> NDArray[np.uint64]:
        """Return the first 16 bytes of many strings as numbers in the same order, (rows, 2)."""
        return kernel.prefixes(self.blob.unchecked, self.offsets.unchecked, self._checked(rows))

    def _checked(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        numbers = rows if self._chosen is None else self._chosen[rows]
        if not (self.blob.complete and self.offsets.complete):
            self.offsets.check_many(numbers, numbers + 2)
            ends = self.offsets.unchecked
            self.blob.check_many(ends[numbers].astype(np.int64), ends[numbers + 1].astype(np.int64))
        return numbers

    @staticmethod
    def pack(strings: Iterable[str]) -> tuple[Bytes, NDArray[np.int64]]:
        """Return the blob and the offsets of some strings."""
        raw = [s.encode() for s in strings]
        offsets = np.concatenate([[0], np.cumsum([len(r) for r in raw], dtype=np.int64)]).astype(np.int64)
        return np.frombuffer(b"".join(raw), np.uint8), offsets


class Vocabulary(NamedTuple):
    """The terms of a segment, as ``_kernel.find_terms`` takes them; the order is empty for sorted ones."""

    blob: Bytes
    offsets: NDArray[np.int64]
    order: NDArray[np.int32]
    documents: NDArray[np.integer[Any]]
    occurrences: NDArray[np.integer[Any]]
    highest: NDArray[np.integer[Any]]


FoundTerm = tuple[int, int, int, bytes]
"""Of a term: documents, occurrences, largest count in one, 1 at least, and int32 numbers in the segments."""


def find_terms(vocabularies: list[Vocabulary], terms: list[str]) -> list[FoundTerm]:
    """Find terms in segments and add up what these know of them; number -1 where a segment has none."""
    if kernel.COMPILED:
        return _kernel.find_terms(vocabularies, terms)
    numbers = [[_place_of(term, one) for one in vocabularies] for term in terms]
    found = list[FoundTerm]()
    for places in numbers:
        held = [(one, place) for one, place in zip(vocabularies, places, strict=True) if place >= 0]
        documents = sum(int(one.documents[place]) for one, place in held)
        occurrences = sum(int(one.occurrences[place]) for one, place in held)
        highest = max((int(one.highest[place]) for one, place in held), default=1)
        found.append((documents, occurrences, max(1, highest), np.array(places, np.int32).tobytes()))
    return found


def _place_of(term: str, among: Vocabulary) -> int:
    raw, at, wanted = memoryview(among.blob), among.offsets, term.encode("utf-8", "surrogatepass")
    numbers = memoryview(among.order) if len(among.order) else range(len(at) - 1)
    place = bisect_left(numbers, wanted, key=lambda number: bytes(raw[at[number] : at[number + 1]]))
    number = numbers[place] if place < len(numbers) else -1
    return number if number >= 0 and bytes(raw[at[number] : at[number + 1]]) == wanted else -1


class StoreWriter:
    """Appends documents to an open file, block by block."""

    def __init__(self, out: BinaryIO) -> None:
        self._out, self._pending, self._bytes = out, list[Stored](), 0
        self._compress = zstd.ZstdCompressor(options=_FRAMES).compress
        self._block_rows, self._block_starts = [0], [0]

    def add(self, document: Document) -> None:
        """Append one document."""
        self._append((document.title, document.text, dict(document.extra)))

    def copy(self, texts: Sequence[Stored], packed: memoryview | None = None) -> None:
        """Append documents of another store.

        Args:
            packed: The block of which they are all, which is not packed again if it is one here too.
        """
        if packed is None or self._pending or not _is_one_block(texts):
            for text in texts:
                self._append(text)
        else:
            self._write(packed, len(texts))

    def _append(self, text: Stored) -> None:
        self._pending.append(text)
        self._bytes += _size(text)
        if self._bytes >= BLOCK_BYTES:
            self._flush()

    def finish(self) -> dict[str, NDArray[np.int64]]:
        """Write what is pending; give first row and first byte of every block, each with the end last."""
        if self._pending:
            self._flush()
        return {
            "block_rows": np.array(self._block_rows, np.int64),
            "block_starts": np.array(self._block_starts, np.int64),
        }

    def _flush(self) -> None:
        packed = self._compress(_encode(self._pending), zstd.ZstdCompressor.FLUSH_FRAME)
        self._write(packed, len(self._pending))
        self._pending, self._bytes = [], 0

    def _write(self, packed: bytes | memoryview, documents: int) -> None:
        self._out.write(packed)
        self._block_rows.append(self._block_rows[-1] + documents)
        self._block_starts.append(self._block_starts[-1] + len(packed))


def _size(text: Stored) -> int:
    return len(text[0]) + len(text[1]) + 32


def _is_one_block(texts: Sequence[Stored]) -> bool:
    """Return whether a block that begins with these documents ends with the last of them."""
    whole = sum(map(_size, texts))
    return whole >= BLOCK_BYTES > whole - _size(texts[-1])


class PackedBlock(NamedTuple):
    """A block of a store."""

    first: int
    texts: list[Stored]
    packed: memoryview


class DocumentStore:
    """Reads the documents of one segment.

    Args:
        blocks: Its bytes, memory-mapped.
        block_starts: First byte of every block, and the number of bytes.
        sealed: Whether every block must have a checksum of its own.
    """

    def __init__(
        self,
        path: Path,
        blocks: CheckedArray[np.uint8],
        block_rows: CheckedArray[np.int64],
        block_starts: CheckedArray[np.int64],
        ids: Strings,
        *,
        sealed: bool = True,
    ) -> None:
        self._path, self._blocks, self._ids, self._sealed = path, blocks, ids, sealed
        self._block_rows, self._block_starts = block_rows, block_starts
        self._kept: dict[int, list[Stored]] = {}  # blocks that were unpacked lately
        self._kept_size = 0

    def __getitem__(self, row: int) -> Document:
        rows = memoryview(self._block_rows.whole())
        block = bisect_right(rows, row) - 1
        if (texts := self._kept.get(block)) is None:
            texts = self._read(block)
        title, text, extra = texts[row - rows[block]]
        if extra:
            return Document(self._ids[row], text, title, extra)
        return Document(self._ids[row], text, title)

    def stream(self, start: int, stop: int) -> Iterator[Document]:
        """Read documents in order, each block once."""
        rows = self._block_rows.whole()
        block = int(np.searchsorted(rows, start, side="right")) - 1
        while start < stop:
            first, end = int(rows[block]), min(stop, int(rows[block + 1]))
            ids = self._ids.take(np.arange(start, end, dtype=np.int64))
            texts = self._unpack(block)[0][start - first : end - first]
            for doc_id, (title, text, extra) in zip(ids, texts, strict=True):
                yield Document(doc_id, text, title, extra) if extra else Document(doc_id, text, title)
            start, block = end, block + 1

    def blocks(self) -> Iterator[PackedBlock]:
        """Read all documents block by block."""
        for block, first in enumerate(self._block_rows.whole()[:-1].tolist()):
            packed = self._blocks.part(*self._block_starts.part(block, block + 2))
            yield PackedBlock(first, self._unpack(block)[0], packed)

    def _read(self, block: int) -> list[Stored]:
        """Unpack a block and keep it for those who read of it next; too many, and all are forgotten."""
        texts, size = self._unpack(block)
        if self._kept_size > _KEPT_BYTES:
            self._kept, self._kept_size = {}, 0
        self._kept[block] = texts
        self._kept_size += size
        return texts

    def _unpack(self, block: int) -> tuple[list[Stored], int]:
        """Return the texts of a block, and how many bytes they are."""
        packed = self._blocks.part(*self._block_starts.part(block, block + 2))
        first, end = self._block_rows.part(block, block + 2)
        try:
            if self._sealed and not packed[4] & _HAS_CHECKSUM:
                raise ValueError("it has lost its checksum")
            raw = zstd.decompress(packed)
            documents = _decode(raw)
            if len(documents) != end - first:
                raise ValueError(f"{len(documents)} documents instead of {end - first}")
        except (zstd.ZstdError, msgspec.DecodeError, ValueError, IndexError) as error:
            raise BadIndex(
                f"{self._path}: a block of texts is damaged ({error}); build the index again"
            ) from error
        return documents, len(raw)


# --- the ids of documents that were found: they are read when somebody looks at them ---------------------

Table = NDArray[np.object_]
Codes = NDArray[np.int32]
_AHEAD: Final = 512  # ids that are read together


class IndexIds:
    """The ids of documents of an index, by row; read when somebody asks for them."""

    def __init__(self, index: Index, rows: NDArray[np.int64]) -> None:
        self._index, self._rows = index, rows
        self._read: tuple[int, list[str]] = (0, [])  # the first row of those read last, and their ids

    def names(self, start: int, stop: int) -> list[str]:
        """Read the ids of rows [start, stop), and some behind them, which are often asked for next."""
        first, ids = self._read
        if not first <= start <= stop <= first + len(ids):
            first, ids = self._read = start, self._index.ids(self._rows[start : max(stop, start + _AHEAD)])
        return ids[start - first : stop - first]

    def taken(self, places: NDArray[np.int64]) -> IndexIds:
        """Return the ids of some rows."""
        return IndexIds(self._index, self._rows[places])

    def table(self) -> tuple[Table, Codes]:
        """Read each distinct id once."""
        index = self._index
        rows, where = _distinct(self._rows, len(index))
        ids = np.array(index.ids(rows), dtype=object)
        if len(index.segments) == 1:
            by_id = index.segments[0].by_id(rows)
        else:
            by_id = np.argsort(ids, kind="stable") if len(ids) else np.empty(0, np.int64)
        code = np.empty(len(ids), np.int32)
        code[by_id] = np.arange(len(ids), dtype=np.int32)
        return ids[by_id], code[where]


class KnownIds:
    """Ids that are here already."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    def names(self, start: int, stop: int) -> Sequence[str]:
        """Return the ids of rows [start, stop)."""
        return self._ids[start:stop]

    def taken(self, places: NDArray[np.int64]) -> KnownIds:
        """Return the ids of some rows."""
        return KnownIds([self._ids[place] for place in places.tolist()])

    def table(self) -> tuple[Table, Codes]:
        """Return the distinct ids and the rows' places among them."""
        names = sorted(set(self._ids))
        code = {name: number for number, name in enumerate(names)}
        return np.array(names, dtype=object), np.array([code[name] for name in self._ids], np.int32)


def _distinct(rows: NDArray[np.int64], documents: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows, ascending, and the place of each row among them."""
    if documents > 20 * len(rows):
        return np.unique(rows, return_inverse=True)
    # Many rows of few documents: marking them beats sorting them several times over.
    marked = np.zeros(documents, bool)
    marked[rows] = True
    return np.flatnonzero(marked), (np.cumsum(marked) - 1)[rows]
