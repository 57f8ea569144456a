"""Shards of corpora: the records of one, in the order of the files, found without reading the rest.

All corpora lie end to end on a line as long as their bytes on disk, and a shard of it is read. A plain file
of one record a line is cut at its bytes: a record belongs to the shard in which its first byte lies. Packed
files, tables and TREC's markup cannot be entered in the middle: where a shard begins or ends within one, its
records are counted first, and the shard has the same share of them as of the bytes.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document
from rankhouse.io import corpora, files
from rankhouse.io.corpora import CORPUS_KINDS, TREC_KINDS, Source, line_reader, records
from rankhouse.io.decoding import each_record
from rankhouse.io.duplicate_ids import Repeats, SeenIds
from rankhouse.io.files import Meter, Skips, begins_array, begun, is_packed, numbered_lines, open_bytes
from rankhouse.io.providers import PUBLIC, count_public, public_documents
from rankhouse.io.readers.tables import is_headed

_PUBLIC_BYTES = 1_024  # what a document of a public collection counts, whose bytes nobody knows


class CorpusFile(NamedTuple):
    """A file (its path and bytes), or a public collection (no path), on the line."""

    source: Source
    path: Path | None
    size: int


class CorpusShards:
    """Corpora that can be read in shards: their files in order, and all their bytes."""

    def __init__(self, sources: Sequence[Source]) -> None:
        self.files = [file for source in sources for file in _files(source)]
        self.total = sum(file.size for file in self.files)
        self.done = 0  # bytes of the shard under way that were read

    def read(self, start: int, stop: int, skips: Skips, repeats: Repeats | None = None) -> Iterator[Document]:
        """Stream the documents of a shard, as :func:`rankhouse.io.corpora.read_sources` does of all.

        Ids that come again in the shard are refused, or as ``repeats`` says.
        """
        at, source = 0, None
        seen = SeenIds()
        for file in self.files:
            first, end = max(0, start - at), min(file.size, stop - at)
            at += file.size
            if first >= end:
                continue
            if source is None or file.source.prefix != source.prefix:
                seen = repeats if repeats is not None else SeenIds(at_once=skips.limit > 0)
            source = file.source
            begin = f"{source.prefix}:" if source.prefix else ""
            if repeats is not None:
                repeats.prefix = begin
            before, meter = self.done, Meter()
            for document in _documents(file, first, end, skips, seen=seen, meter=meter):
                self.done = before + min(meter.bytes, end - first)
                yield document._replace(id=begin + document.id) if begin else document
            self.done = before + end - first


def _files(source: Source) -> Iterator[CorpusFile]:
    if source.path.startswith(PUBLIC):
        yield CorpusFile(source, None, count_public(source.path.removeprefix(PUBLIC)) * _PUBLIC_BYTES)
        return
    for path in corpora.corpus_files(Path(source.path), warns=True):
        with open_bytes(path):  # says what is beside a file that is not there
            yield CorpusFile(source, path, path.stat().st_size)


def _documents(
    file: CorpusFile, first: int, end: int, skips: Skips, seen: SeenIds, meter: Meter
) -> Iterator[Document]:
    if file.path is None:
        name = file.source.path.removeprefix(PUBLIC)
        return islice(public_documents(name), first // _PUBLIC_BYTES, end // _PUBLIC_BYTES)
    numbered = _records(file.path, first, end, file.size, skips=skips, meter=meter)
    return corpora.distinct(numbered, file.path, seen, skips)


def _records(
    path: Path, first: int, end: int, size: int, skips: Skips, meter: Meter
) -> Iterator[tuple[int, Document]]:
    """Stream (line, document) of a file's shard of bytes."""
    if (first, end) == (0, size):
        yield from records(path, skips, meter)
    elif (
        (kind := files.kind_of(path)) in TREC_KINDS
        or kind not in CORPUS_KINDS
        or is_headed(path)
        or begins_array(begun(path)[0])
    ):
        count = sum(1 for _ in records(path, Skips(sys.maxsize), None))
        wanted = _shares(first, end, size, count)
        yield from _numbered(path, wanted, skips, meter, is_last=end == size)
    elif is_packed(path):
        count = sum(1 for _ in numbered_lines(path))
        with closing(numbered_lines(path, meter)) as lines:  # whose file a fault would leave open
            some = islice(lines, *_shares(first, end, size, count))
            yield from each_record(some, path, line_reader(path), skips)
    else:
        yield from each_record(_plain_lines(path, first, end, meter), path, line_reader(path), skips)


def _shares(first: int, end: int, size: int, count: int) -> tuple[int, int]:
    """Return the records, from and to, that have the share of a file which its bytes from and to have."""
    return first * count // size, end * count // size


def _numbered(
    path: Path, wanted: tuple[int, int], skips: Skips, meter: Meter, *, is_last: bool
) -> Iterator[tuple[int, Document]]:
    """Stream some records of a file that is read from its beginning; faults before them are not theirs."""
    first, end = wanted
    if first == end and not is_last:
        return
    own = _OwnSkips(first, skips)
    for one in records(path, own, meter):
        own.number += 1
        if own.number > first:
            yield one
        if own.number == end and not is_last:  # a fault before the next record belongs to the next shard
            return


class _OwnSkips(Skips):
    """Takes faults from a certain record on; those before belong to another shard."""

    def __init__(self, first: int, skips: Skips) -> None:
        super().__init__(skips.limit, skips.seen)
        self.number, self._first = 0, first

    def take(self, fault: BadData) -> None:
        """Take a fault of this shard, see :class:`Skips`."""
        if self.number >= self._first:
            super().take(fault)


class _ShardLine(int):
    """A line's number in a shard; when it is shown, the lines before the shard are counted."""

    _path: Path
    _start: int

    @classmethod
    def of(cls, number: int, path: Path, start: int) -> Self:
        """Name a line by its number, from 1, behind a byte of a file."""
        line = cls(number)
        line._path, line._start = path, start
        return line

    def __str__(self) -> str:
        before, rest = 0, self._start
        with open_bytes(self._path) as stream:
            while rest and (data := stream.read(min(rest, 1 << 20))):
                before, rest = before + data.count(b"\n"), rest - len(data)
        return str(int(self) + before)

    def __format__(self, how: str) -> str:
        return format(str(self), how)


def _plain_lines(path: Path, first: int, end: int, meter: Meter) -> Iterator[tuple[int, bytes]]:
    """Stream the lines of a plain file that begin between two bytes."""
    most, number = files.most_bytes(), 0
    with open_bytes(path, meter) as stream:
        at = first
        if first:
            at = stream.seek(first - 1)
            while (rest := stream.readline(1 << 20)) and not rest.endswith(b"\n"):
                at += len(rest)
            at += len(rest)
        start = at
        while at < end and (raw := stream.readline(most + 1)):
            number, at = number + 1, at + len(raw)
            line = _ShardLine.of(number, path, start) if start else number
            if len(raw) > most:
                raise files.too_long("the line", path, line)
            yield line, (raw if start or number > 1 else raw.removeprefix(b"\xef\xbb\xbf")).rstrip(b"\r\n")
