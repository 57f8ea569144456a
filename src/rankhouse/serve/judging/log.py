"""Files that judging appends to, a line of JSON each: the log of judgements, and the audit.

The log is the one truth: on disk before anybody is answered, and the qrels file beside it is made from it. A
last line that a kill cut off was never answered and is taken away; anything else that is no line of such a
log is damage and refused. The audit has a line for each judgement, training, sign-in or wrong key.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import BadData, OutputFailed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import append_whole, writing_failures

IMPORTED: Final = "(file)"
"""The judge of what stood in the qrels file before anybody judged here; no person can have this name."""


class JudgementEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One line: what a judge said of a document, or took back. ``number`` counts lines from 1.

    Attributes:
        grade: The grade given; None takes an earlier word back and says nothing.
        systems: Those that showed the document.
        undoes: Number of the line that is taken back; 0 for none.
        comment: The judge's comment on the document; "" removes a comment, None says nothing about it.
    """

    number: int
    time: str
    judge: str
    query_id: str
    doc_id: str
    grade: int | None
    query: str = ""
    systems: tuple[str, ...] = ()
    undoes: int = 0
    comment: str | None = None


_decode = msgspec.json.Decoder(JudgementEntry).decode


class JudgementLog:
    """Appends entries to a file; opened by one process at a time (its caller holds the lock).

    ``entries`` is what stood in the file when it was opened. BadData: a line in the middle is none of such a
    log. OutputFailed: the file cannot be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        with writing_failures(path):
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
            _sync_folder(path.parent)
        try:
            content = path.read_bytes()
            whole = content.rfind(b"\n") + 1
            if whole < len(content):  # what a kill left of a last one
                with writing_failures(path):
                    os.ftruncate(self._file, whole)
                    os.fsync(self._file)
            self.entries = list(read_entries(content[:whole], path))
        except BaseException:
            os.close(self._file)
            raise

    def append(self, *entries: JudgementEntry) -> None:
        """Append lines; when this returns, they are on disk. OutputFailed says that nothing was appended."""
        content = b"".join(msgspec.json.encode(entry) + b"\n" for entry in entries)
        with writing_failures(self.path):
            append_whole(self._file, content)

    def close(self) -> None:
        """Close the file."""
        os.close(self._file)


def read_entries(content: bytes, path: Path) -> Iterator[JudgementEntry]:
    """Read a log's whole lines; BadData names the line that is none of such a log."""
    for number, line in enumerate(content.splitlines(), 1):
        try:
            entry = _decode(line)
        except UNREADABLE as error:
            raise BadData(
                f"is no line of a log of judgements ({error}); put the file back from a copy, or move it "
                "away to begin again with what the qrels file beside it holds",
                path,
                number,
            ) from error
        if entry.number != number:
            raise BadData(f"a log's lines are numbered from 1; this one says {entry.number}", path, number)
        yield entry


def _sync_folder(folder: Path) -> None:
    """Put a new file's name on disk too, where the system can do that."""
    try:
        handle = os.open(folder, os.O_RDONLY)
    except OSError:  # Windows opens no folders
        return
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


class Audit:
    """Audit of who did what: judged, undid, trained, signed in, or gave a wrong key.

    Each line is on the disk before the deed is answered.
    """

    def __init__(self, path: Path | None) -> None:
        self._path, self._guard = path, threading.Lock()
        if path is not None:
            with writing_failures(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                os.close(os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600))

    def record(self, deed: str, who: str, **facts: object) -> None:
        """Write one line."""
        if self._path is None:
            return
        now = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = msgspec.json.encode({"time": now, "deed": deed, "who": who, **facts}) + b"\n"
        with self._guard, writing_failures(self._path):
            number = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
            try:
                append_whole(number, line)
            finally:
                os.close(number)

    def note(self, deed: str, who: str, **facts: object) -> None:
        """Write a line of what is done and kept elsewhere; a full disk is reported to the operator only."""
        try:
            self.record(deed, who, **facts)
        except OutputFailed as error:
            progress.say(f"no audit line of {deed} by {who}: {error}")
