"""The files of a folder: which can be read, which changed since last time, and the documents they hold."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import msgspec

from rankhouse.core.errors import BadData, MissingInput, RankhouseError
from rankhouse.core.nouns import Document
from rankhouse.io.corpora import CORPUS_KINDS, read_documents
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import Meter, Skips, kind_of
from rankhouse.io.outputs import write_json
from rankhouse.serve.folder.texts import TEXT_KINDS, id_of, is_text, text_document

KINDS = (*TEXT_KINDS, *CORPUS_KINDS)
STATE = ".rankhouse"


class FileState(msgspec.Struct, frozen=True):
    """A file as it was read: bytes, when it changed last in nanoseconds, hash of its content."""

    size: int
    mtime: int
    digest: str


class FolderState(msgspec.Struct, frozen=True):
    """What an index was made from: its fingerprint, files by path within the folder, vectors' encoder."""

    index: str = ""
    files: dict[str, FileState] = {}
    encoder: str = ""

    @classmethod
    def load(cls, path: Path) -> FolderState:
        """Read it; an empty one where there is none, or none that can be read."""
        try:
            return msgspec.json.decode(path.read_bytes(), type=cls)
        except (OSError, msgspec.DecodeError):
            return cls()

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        write_json(path, self)


class Changes(NamedTuple):
    """What became of a folder's files, by path within it."""

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


def look(folder: Path, before: Mapping[str, FileState]) -> tuple[dict[str, FileState], Counter[str]]:
    """Look at a folder's files; only those whose size or time is another are read.

    Returns the files by path within the folder, in order of path, and how many there are of each other kind.
    """
    check_folder(folder)
    files, others = dict[str, FileState](), Counter[str]()
    for path in _walk(folder):
        if kind_of(path) not in KINDS:
            others[path.suffix.lower() or "without an ending"] += 1
            continue
        name = path.relative_to(folder).as_posix()
        try:
            stat = path.stat()
            known = before.get(name)
            if known is None or (known.size, known.mtime) != (stat.st_size, stat.st_mtime_ns):
                known = FileState(stat.st_size, stat.st_mtime_ns, _digest(path))
        except OSError:
            others["unreadable"] += 1
            continue
        files[name] = known
    return files, others


def _walk(folder: Path) -> Iterator[Path]:
    for base, folders, names in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        for name in sorted(names):
            path = Path(base) / name
            if not name.startswith(".") and path.is_file():
                yield path


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()


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

    Attributes:
        repeats: Skips ids that come again.
        faults: What is to be said of a file, a line each.
        files: How many files held a document.
    """

    folder: Path
    repeats: Repeats = field(default_factory=lambda: Repeats("first"))
    meter: Meter = field(default_factory=Meter)
    faults: list[str] = field(default_factory=list)
    files: int = 0

    def documents(self, names: list[str]) -> Iterator[Document]:
        """Stream the documents of files; a file that cannot be read is noted and skipped."""
        for name in names:
            count = 0
            for document in self._of_file(self.folder / name):
                count += 1
                yield document
            self.files += count > 0

    def _of_file(self, path: Path) -> Iterator[Document]:
        faults = _Faults()
        try:
            if is_text(path):
                document = text_document(path, id_of(path, self.folder))
                self.meter.bytes += path.stat().st_size
                if self.repeats.takes(document, path, 1):
                    yield document
            else:
                yield from read_documents(path, faults, self.repeats, self.meter)
        except (RankhouseError, OSError) as error:
            self.faults.append(str(error))
        if faults.count:
            records = f"{faults.count:,} records are no documents, the first: " if faults.count > 1 else ""
            self.faults.append(f"{records}{faults.seen[0]}")
