"""The files of a folder: which changed since last time, the documents they hold, and what is left out.

A file is one document, its id the path in the folder, or several: pages, slides, messages, each with its
place behind the path.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count, islice
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import quote

import msgspec

from rankhouse.core.errors import BadData, BadIndex, MissingInput, RankhouseError, WrongUse, encodable
from rankhouse.core.nouns import Document
from rankhouse.core.progress import clock
from rankhouse.index.lexical import manifest
from rankhouse.io.corpora import read_documents
from rankhouse.io.decoding import read_cache
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import Meter, Skips
from rankhouse.io.outputs import write_json
from rankhouse.io.readers.kinds import CORPUS, FileKind, kind_at
from rankhouse.io.readers.parts import LONGEST_TITLE, FilePart, file_title
from rankhouse.io.readers.process import ReadAhead

STATE = ".rankhouse"
ENCODING = "encoding"
LOADING = "loading"
READING = "reading"
"""Names of work on a folder: making vectors, opening the encoder, reading all files for the first time."""
READERS = 7
"""Version of the readers that made an index: a higher number has every file read again."""
_MOST_NAMES = 2_000  # of files that are left out for one reason


def id_of(path: Path, folder: Path) -> str:
    """Return a file's id: its path in the folder; white space, controls, percent signs as %20 ...."""
    inside = path.relative_to(folder).as_posix()
    return encodable(re.sub(r"[\s%\x00-\x1f\x7f-\x9f]", lambda sign: quote(sign[0]), inside))


_KEPT = {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
"""Bytes of a file's name that are not UTF-8 -> private characters, which JSON can hold."""
_NAMES = {private: byte for byte, private in _KEPT.items()}


class FileState(msgspec.Struct, frozen=True):
    """A file as it was read: bytes, when it changed last in nanoseconds, hash of its content.

    Programs set ``mtime`` as they like; ``ctime`` is the system's own.
    """

    size: int
    mtime: int
    digest: str
    ctime: int = 0


class Remade(msgspec.Struct):
    """A record read from a file that can be made again: empty where there is none, or none to be read."""

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it."""
        return read_cache(path, cls) or cls()


class FolderState(Remade):
    """Sources of an index: its fingerprint, files by path, vectors' encoder, and which readers."""

    index: str = ""
    files: dict[str, FileState] = {}
    encoder: str = ""
    readers: int = 0

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read it; the names of files may hold any bytes."""
        state = super().load(path)
        files = {name.translate(_NAMES): one for name, one in state.files.items()}
        return msgspec.structs.replace(state, files=files)

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        files = {name.translate(_KEPT): one for name, one in self.files.items()}
        write_json(path, msgspec.structs.replace(self, files=files))


class FolderProgress(Remade):
    """Work in progress on a folder: its name, "" for none, its share from 0 to 1, and its message.

    Of the remarks, ``said`` in number, ``remarks`` are the last. While files are read for the first time,
    ``files`` of ``of_files`` are read, which have ``size`` bytes together; 0 while they are looked for.
    """

    work: str = ""
    share: float = 0.0
    seconds_left: float | None = None
    said: int = 0
    remarks: tuple[str, ...] = ()
    files: int = 0
    of_files: int = 0
    size: int = 0

    def sentence(self, *, by_meaning: bool) -> str:
        """Say it to the person who searches; ``by_meaning`` whether that is possible already."""
        if not self.work:
            return ""
        if self.work == LOADING:
            return "Search by meaning is starting. Until then, search is by words."
        left = "" if self.seconds_left is None else f", about {clock(self.seconds_left)} left"
        share = f"{self.share:.0%}"
        if self.work == READING:
            return f"Files are being read: {share}{left}." if self.of_files else "Files are being looked for."
        if self.work != ENCODING:
            return f"Files have changed and are being indexed: {share}{left}."
        if by_meaning:
            return f"New text is being read for search by meaning: {share}{left}."
        return (
            f"Search by meaning is being prepared: {share} of the text is read{left}. "
            "Until then, search is by words."
        )


class LeftOut(msgspec.Struct):
    """Files of a folder that are not read, by the reason: how many, and the names of the first ones."""

    counts: dict[str, int] = {}
    names: dict[str, list[str]] = {}

    def add(self, reason: str, name: str) -> None:
        """Note a file or folder."""
        self.counts[reason] = self.counts.get(reason, 0) + 1
        names = self.names.setdefault(reason, [])
        if len(names) < _MOST_NAMES:
            names.append(encodable(name))

    def __str__(self) -> str:
        shown = (
            f"{reason}: {count:,}"
            for reason, count in sorted(self.counts.items(), key=lambda one: -one[1])
            if reason != "hidden"
        )
        return ", ".join(islice(shown, 12))


class FileFacts(msgspec.Struct, frozen=True, array_like=True):
    """Facts about a file: its kind, how many documents it holds, its bytes, and what is wrong with it."""

    kind: str
    documents: int
    size: int
    fault: str = ""


class FolderContents(Remade):
    """Files of a folder that are indexed, and those left out, for people to look at."""

    files: dict[str, FileFacts] = {}
    left: LeftOut = msgspec.field(default_factory=LeftOut)


class Changes(NamedTuple):
    """Changes of a folder's files, by path within it."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __str__(self) -> str:
        parts = ((self.added, "new"), (self.changed, "changed"), (self.removed, "removed"))
        return ", ".join(f"{len(paths):,} {what}" for paths, what in parts if paths) or "nothing changed"


def check_folder(folder: Path) -> None:
    """Raise what is wrong with a path that is to be a folder of files."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise MissingInput(f"{folder}: {what}; name the one that holds your files")
    if (folder / manifest.FILE).is_file():
        with suppress(BadIndex):
            manifest.load(folder, older=True)
            raise WrongUse(f"{folder}: is an index; serve it with  rankhouse serve {folder}")


def compare(before: Mapping[str, FileState], now: Mapping[str, FileState]) -> Changes:
    """Say what changed between two looks at a folder."""
    both = before.keys() & now.keys()
    return Changes(
        sorted(now.keys() - both),
        sorted(name for name in both if before[name].digest != now[name].digest),
        sorted(before.keys() - both),
    )


class _Faults(Skips):
    """Skips any number of faulty records and keeps the first."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def take(self, fault: BadData) -> None:
        """Count a fault."""
        self.count += 1
        if not self.seen:
            self.seen.append(fault)


@dataclass
class FolderReader:
    """Reads documents and notes what could not be read.

    Ids that come again are skipped, by ``repeats``; ``faults`` has a line for each thing that is wrong with a
    file, ``facts`` what became of each.
    """

    folder: Path
    repeats: Repeats = field(default_factory=lambda: Repeats("first"))
    meter: Meter = field(default_factory=Meter)
    faults: list[str] = field(default_factory=list)
    facts: dict[str, FileFacts] = field(default_factory=dict)

    @property
    def files(self) -> int:
        """Number of files that held a document."""
        return sum(one.documents > 0 for one in self.facts.values())

    def documents(self, names: list[str]) -> Iterator[Document]:
        """Stream the documents of files; a file that cannot be read is noted and skipped."""
        planned = [(name, self.folder / name, *_kind_and_size(self.folder / name)) for name in names]
        apart = [(path, kind.reader) for _, path, kind, _ in planned if kind is not CORPUS]
        with ReadAhead(apart) as ahead:
            numbers, read = count(0), 0
            for name, path, kind, size in planned:
                held, faults = 0, len(self.faults)
                try:
                    of_file = self._records(path)
                    if kind is not CORPUS:
                        of_file = self._parts(path, ahead.parts(next(numbers)))
                    for document in of_file:
                        held += 1
                        yield document
                except (RankhouseError, OSError) as error:
                    self.faults.append(str(error))
                except Exception as error:  # noqa: BLE001 - one odd file is not to stop all others
                    self.faults.append(f"{path}: cannot be read ({type(error).__name__}: {error})")
                said = " ".join(self.faults[faults:]).removeprefix(f"{path}: ").removeprefix(f"{path}, ")
                self.facts[encodable(name)] = FileFacts(kind.name, held, size, encodable(said))
                self.meter.bytes = read = read + size  # a faulty file counts as well

    def _parts(self, path: Path, parts: Iterator[FilePart]) -> Iterator[Document]:
        """Stream a file's parts, which are documents."""
        base, held = id_of(path, self.folder), 0
        named = encodable(file_title(path))
        for part in parts:
            held += 1
            title = part.title[:LONGEST_TITLE] or named
            document = Document(base, part.text, title)
            if part.key:
                extra = {"file": base, "place": part.place}
                document = Document(f"{base}#{part.key}", part.text, title, extra)
            if self.repeats.takes(document, path, 1):
                yield document
        if not held:
            raise BadData("holds no text", path)

    def _records(self, path: Path) -> Iterator[Document]:
        """Stream the documents of a corpus file."""
        faults = _Faults()
        try:
            yield from read_documents(path, faults, self.repeats, self.meter)
        finally:
            if faults.count:
                records = (
                    f"{faults.count:,} records are no documents, the first: " if faults.count > 1 else ""
                )
                self.faults.append(f"{records}{faults.seen[0]}")


def _kind_and_size(path: Path) -> tuple[FileKind, int]:
    """Return how a file is read, and its bytes; one that is gone is missed when it is read."""
    try:
        stat = path.stat()
        return kind_at(path, stat.st_size, stat.st_mtime_ns) or CORPUS, stat.st_size
    except OSError:
        return CORPUS, 0
