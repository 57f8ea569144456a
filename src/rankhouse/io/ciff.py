"""CIFF, the format in which search engines exchange inverted indexes: read and written as a stream.

One file, plain or compressed, of protocol buffers with their length before each: a header, the postings
lists, the documents (Lin et al., "Supporting Interoperability Between Open-Source Search Engines with the
Common Index File Format", SIGIR 2020; osirrc/ciff). Each document of a list is written as its distance from
the one before. Some lists are in memory at a time.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData
from rankhouse.io.files import Meter, checked_id, most_bytes, open_bytes, too_long
from rankhouse.io.outputs import writing_bytes

VERSION: Final = 1
_AT_ONCE: Final = 4 << 20
"""Bytes of postings that are decoded together."""
_MOST: Final = 2**31 - 1
_VARINT, _DOUBLE, _BYTES, _FLOAT = 0, 1, 2, 5  # wire types
_POSTING, _DOCUMENT, _COUNT = 0x22, 0x08, 0x10  # tags: a field's number times 8, and its wire type
_WIDTH: Final = 6  # numbers of a posting: tag, length, tag, distance, tag, count
_DAMAGED: Final = "; the file is damaged or no CIFF: export it again"

Fields = dict[int, int | float | bytes]
Numbers = NDArray[np.int64]


class CiffHeader(NamedTuple):
    """Header of a file; an exporter may leave out lists or documents of the whole collection."""

    lists: int
    documents: int
    all_lists: int
    all_documents: int
    tokens: int
    mean_length: float
    description: str


class Lists(NamedTuple):
    """Postings lists: list i has rows and counts [starts[i], starts[i + 1])."""

    terms: list[str]
    starts: Numbers
    rows: Numbers
    counts: Numbers


class Head(NamedTuple):
    """Head of a list: its term, its document frequency, its collection frequency."""

    term: str
    df: int
    cf: int


class CiffDocuments(NamedTuple):
    """The documents by row: their ids, and their lengths."""

    ids: list[str]
    lengths: Numbers


# --- reading ----------------------------------------------------------------------------------------------


class CiffReader:
    """A file that is being read: :attr:`header`, then :meth:`lists`, then :meth:`documents`."""

    def __init__(self, stream: BinaryIO, path: Path) -> None:
        self._stream, self._path, self._most = stream, path, most_bytes()
        self.header = self._header()

    def _header(self) -> CiffHeader:
        what = "the header"
        fields = self._fields(self._message(what), what)
        if (version := self._number(fields, 1, what)) != VERSION:
            raise BadData(f"has version {version}; version {VERSION} of CIFF is read", self._path)
        mean, text = fields.get(7, 0.0), self._text(fields, 8, what)
        lists, documents, all_lists, all_documents = (self._number(fields, n, what) for n in (2, 3, 4, 5))
        tokens = self._number(fields, 6, what, most=2**63 - 1)
        if not isinstance(mean, float):
            raise self._bad(what, "its mean length is no number with fractions")
        sizes = lists, documents, all_lists, all_documents, tokens
        return CiffHeader(*sizes, mean_length=mean, description=text)

    def lists(self) -> Iterator[Lists]:
        """Read all postings lists, some together.

        Raises BadData: the file ends early, a document is not of the file, documents do not ascend, or a
        list's document or collection frequency is not that of its postings.
        """
        heads, parts, size = list[Head](), list[bytes](), 0
        for number in range(1, self.header.lists + 1):
            place = f"postings list {number:,} of {self.header.lists:,}"
            head, postings = self._list(place)
            heads.append(head)
            parts.append(postings)
            size += len(postings)
            if size >= _AT_ONCE or number == self.header.lists:
                yield self._decoded(heads, parts)
                heads, parts, size = [], [], 0

    def documents(self) -> CiffDocuments:
        """Read the documents, and see to it that nothing comes after them.

        Raises BadData: the file ends early or goes on, documents are not in their order, or an id cannot
        stand in a run.
        """
        total, ids, lengths = self.header.documents, list[str](), list[int]()
        for row in range(total):
            what = f"document record {row + 1:,} of {total:,}"
            fields = self._fields(self._message(what), what)
            if (docid := self._number(fields, 1, what)) != row:
                raise self._bad(what, f"its docid is {docid:,}; they count from 0, in their order")
            ids.append(checked_id(self._text(fields, 2, what), self._path))
            lengths.append(self._number(fields, 3, what))
        if self._stream.read(1):
            raise BadData(f"goes on after the last of its {total:,} documents{_DAMAGED}", self._path)
        return CiffDocuments(ids, np.array(lengths, np.int64))

    def _list(self, place: str) -> tuple[Head, bytes]:
        """Read one list: its term, document and collection frequency, and its postings as they are."""
        message = self._message(place)
        end = at = 0
        fields: Fields = {}
        while at < len(message) and message[at] != _POSTING:
            number, value, at = self._field(message, at, place)
            fields[number], end = value, at
        what = f'{place} ("{self._text(fields, 1, place)[:80]}")'
        postings = message[end:]
        if postings[2:3] == bytes([_COUNT]) and postings[1] < _COUNT:  # a first document 0 is not written
            postings = bytes([_POSTING, postings[1] + 2, _DOCUMENT, 0]) + postings[2:]
        term, df, cf = self._text(fields, 1, what), self._number(fields, 2, what), fields.get(3, 0)
        if not term or not isinstance(cf, int):
            raise self._bad(what, "it has no term" if not term else "its collection frequency is no number")
        return Head(term, df, cf), postings

    def _decoded(self, heads: list[Head], parts: list[bytes]) -> Lists:
        """Decode the postings of lists together, and compare them with what the lists say of themselves."""
        table, widths = self._numbers(heads, parts)
        df = np.array([head.df for head in heads], np.int64)
        owner, starts = np.repeat(np.arange(len(heads)), df), np.concatenate([[0], np.cumsum(df)])

        def refuse(bad: NDArray[Any], why: str, of: Numbers = owner) -> None:
            if bad.any():
                raise self._bad(f'the list of "{heads[int(of[bad.argmax()])].term[:80]}"', why)

        gaps, counts = table[:, 3], table[:, 5]
        is_posting = np.equal(table[:, ::2], [_POSTING, _DOCUMENT, _COUNT]).all(axis=1)
        refuse(~is_posting | (table[:, 1] != widths[:, 2:].sum(1)), "a posting is no docid and tf")
        large = np.any((widths[:, 3::2] > 5) | (table[:, 3::2] > _MOST), axis=1)
        refuse(large, "a docid or tf is below 0 or above 2^31; docids must ascend")
        again = gaps == 0
        again[starts[:-1][df > 0]] = False
        refuse(again, "a document stands in it twice")
        refuse(counts == 0, "a tf is 0")
        before = np.concatenate([[0], np.cumsum(gaps)])
        rows, total = before[1:] - np.repeat(before[starts[:-1]], df), self.header.documents
        refuse(rows >= total, f"a docid is beyond the {total:,} documents; they are written as distances")
        held = np.bincount(owner, counts, len(heads)).tolist()
        differs = np.array([head.cf != sum_of for head, sum_of in zip(heads, held, strict=True)])
        refuse(differs, "its collection frequency is not the sum of its tfs", np.arange(len(heads)))
        return Lists([head.term for head in heads], starts, rows, counts)

    def _numbers(self, heads: list[Head], parts: list[bytes]) -> tuple[Numbers, Numbers]:
        """Decode numbers of seven bits a byte: six of each posting, and how many bytes each takes."""
        units = np.frombuffer(b"".join(parts), np.uint8)
        last = np.flatnonzero(units < 128)
        widths = np.diff(last, prepend=-1)
        sizes = np.diff(np.searchsorted(last, np.cumsum([len(part) for part in parts])), prepend=0)
        for head, part, size in zip(heads, parts, sizes.tolist(), strict=True):
            if size != _WIDTH * head.df or part[-1:] >= b"\x80":
                why = f"it holds {size / _WIDTH:g} postings, its document frequency is {head.df:,}"
                raise self._bad(f'the list of "{head.term[:80]}"', why)
        first = last - widths + 1
        shifts = 7 * (np.arange(len(units)) - np.repeat(first, widths))
        bits = (units & 127).astype(np.int64) << np.minimum(shifts, 56)
        values = np.add.reduceat(bits, first) if len(first) else bits
        return values.reshape(-1, _WIDTH), widths.reshape(-1, _WIDTH)

    # --- messages -------------------------------------------------------------------------------------------

    def _message(self, what: str) -> bytes:
        """Read the next message."""
        size = shift = 0
        while True:
            unit = self._stream.read(1)
            if not unit or shift > 63:
                raise self._bad(what, "the file ends before it" if not unit else "its length is no number")
            size |= (unit[0] & 127) << shift
            shift += 7
            if unit[0] < 128:
                break
        if size > self._most:
            raise too_long(what, self._path)
        message = self._stream.read(size)
        if len(message) < size:
            raise self._bad(what, f"the file ends in it, after {len(message):,} of {size:,} bytes")
        return message

    def _fields(self, message: bytes, what: str) -> Fields:
        """Read all fields of a message; of a repeated one the last."""
        fields: Fields = {}
        at = 0
        while at < len(message):
            number, value, at = self._field(message, at, what)
            fields[number] = value
        return fields

    def _field(self, message: bytes, at: int, what: str) -> tuple[int, int | float | bytes, int]:
        """Read a field at a place: its number, its value, and where it ends."""
        try:
            tag, at = _varint(message, at)
            kind = tag & 7
            if kind == _VARINT:
                value, at = _varint(message, at)
                return tag >> 3, value, at
            size = {_DOUBLE: 8, _FLOAT: 4}.get(kind, 0)
            if kind == _BYTES:
                size, at = _varint(message, at)
            if (kind == _BYTES or size) and at + size <= len(message):
                raw = message[at : at + size]
                return tag >> 3, struct.unpack("<d", raw)[0] if kind == _DOUBLE else raw, at + size
        except IndexError:
            pass
        raise self._bad(what, f"it is no protocol buffer from its byte {at:,} on")

    def _number(self, fields: Fields, number: int, what: str, most: int = _MOST) -> int:
        value = fields.get(number, 0)  # zeros are not written
        if not isinstance(value, int) or value > most:
            shown = value - 2**64 if isinstance(value, int) and value >= 2**63 else value
            raise self._bad(
                what, f"its field {number} is {shown!r:.80}; a whole number, 0 or more, is needed"
            )
        return value

    def _text(self, fields: Fields, number: int, what: str) -> str:
        value = fields.get(number, b"")
        try:
            return value.decode() if isinstance(value, bytes) else ""
        except UnicodeDecodeError:
            raise self._bad(what, f"its field {number} is not UTF-8: {value!r:.80}") from None

    def _bad(self, what: str, why: str) -> BadData:
        return BadData(f"{what}: {why}{_DAMAGED}", self._path)


@contextmanager
def reading_ciff(path: Path, meter: Meter | None = None) -> Iterator[CiffReader]:
    """Open a CIFF file, plain, gzip or zstd.

    Raises MissingInput: there is no such file; BadData: it is no CIFF of version 1, damaged, or ends early.
    """
    with open_bytes(path, meter) as stream:
        yield CiffReader(stream, path)


def _varint(message: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        unit = message[at]
        value |= (unit & 127) << shift
        at, shift = at + 1, shift + 7
        if unit < 128:
            return value, at
        if shift > 63:
            raise IndexError


# --- writing ----------------------------------------------------------------------------------------------


def write_ciff(
    path: Path, header: CiffHeader, lists: Iterable[Lists], documents: Iterable[tuple[str, int]]
) -> None:
    """Write a CIFF file, whole or absent, compressed by its suffix; the same content gives the same bytes.

    Args:
        lists: All lists, with rows ascending in each.
        documents: The id and the length of every document, by row.

    Raises OutputFailed: no permission, disk full.
    """
    with writing_bytes(path) as out:
        mean = bytes([7 << 3 | _DOUBLE]) + struct.pack("<d", header.mean_length)
        numbers = enumerate((VERSION, *header[:5]), 1)
        head = b"".join(_numbered(number, value) for number, value in numbers)
        out.write(_delimited(head + mean + _string(8, header.description)))
        for some in lists:
            out.writelines(_encoded(some))
        for row, (doc_id, length) in enumerate(documents):
            out.write(_delimited(_numbered(1, row) + _string(2, doc_id) + _numbered(3, length)))


def _encoded(lists: Lists) -> Iterator[bytes]:
    """Encode lists, a message each."""
    df = np.diff(lists.starts)
    gaps = np.diff(lists.rows, prepend=0)
    firsts = lists.starts[:-1][df > 0]
    gaps[firsts] = lists.rows[firsts]
    gap_bytes, count_bytes = _widths(gaps), _widths(lists.counts)
    sizes = 4 + gap_bytes + count_bytes
    ends = np.concatenate([[0], np.cumsum(sizes)])
    at = ends[:-1]
    out = np.empty(int(ends[-1]), np.uint8)
    out[at], out[at + 1], out[at + 2] = _POSTING, sizes - 2, _DOCUMENT
    _put(out, at + 3, gaps, gap_bytes)
    out[at + 3 + gap_bytes] = _COUNT
    _put(out, at + 4 + gap_bytes, lists.counts, count_bytes)
    cf = np.add.reduceat(np.append(lists.counts, 0), lists.starts[:-1]) * (df > 0)
    postings, edges = out.tobytes(), ends[lists.starts].tolist()
    for number, term in enumerate(lists.terms):
        head = _string(1, term) + _numbered(2, int(df[number])) + _numbered(3, int(cf[number]))
        yield _delimited(head + postings[edges[number] : edges[number + 1]])


def _widths(numbers: Numbers) -> Numbers:
    """Return how many bytes numbers below 2^31 take, seven bits each."""
    return 1 + np.searchsorted([1 << 7, 1 << 14, 1 << 21, 1 << 28], numbers, side="right")


def _put(out: NDArray[np.uint8], at: Numbers, numbers: Numbers, widths: Numbers) -> None:
    """Write numbers, seven bits a byte, at places."""
    for byte in range(int(widths.max(initial=0))):
        some = widths > byte
        more = np.where(widths[some] > byte + 1, 128, 0)
        out[at[some] + byte] = numbers[some] >> 7 * byte & 127 | more


def _number(value: int) -> bytes:
    units = bytearray()
    while value > 127:
        units.append(value & 127 | 128)
        value >>= 7
    units.append(value)
    return bytes(units)


def _numbered(field: int, value: int) -> bytes:
    """Encode a field that is a number; zeros are not written."""
    return bytes([field << 3 | _VARINT]) + _number(value) if value else b""


def _string(field: int, text: str) -> bytes:
    raw = text.encode()
    return bytes([field << 3 | _BYTES]) + _number(len(raw)) + raw if raw else b""


def _delimited(message: bytes) -> bytes:
    return _number(len(message)) + message
