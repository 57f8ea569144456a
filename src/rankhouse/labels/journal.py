"""Answers kept on disk while labelling runs, so that a killed one goes on where it was.

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

import shutil
import warnings
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import RankhouseWarning
from rankhouse.core.nouns import FloatArray
from rankhouse.io.outputs import writing_failures
from rankhouse.labels.votes import Votes

VERSION: Final = "1"
_COLUMNS: Final[dict[str, type[np.generic]]] = {
    "rows.i4": np.int32,
    "marks.u1": np.uint8,
    "scores.f4": np.float32,
    "soft.f4": np.float32,
}


class Columns(NamedTuple):
    """What was said of all pairs so far, memory-mapped.

    Attributes:
        rows: (r,) pairs of each row of the run; -1 where its document is not there.
        marks: (n,) bits.
        scores: (n,) the teacher's scores, NaN where it was not asked.
        soft: (n, t) what each source of soft labels gave, NaN where it gave none.
    """

    rows: NDArray[np.int32]
    marks: NDArray[np.uint8]
    scores: FloatArray
    soft: FloatArray = np.empty((0, 0), np.float32)

    @property
    def votes(self) -> Votes:
        """Marks and scores."""
        return Votes(self.marks, self.scores, self.soft)


class Journal:
    """The folder of one labelling.

    Args:
        folder: Where; made if it is not there.

    Attributes:
        rows: Rows answered so far.
        pairs: Pairs answered so far.

    Raises:
        OutputFailed: The folder cannot be written.
    """

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
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return {}  # damaged, or killed before the plan was written: nothing else can be there

    def _warn(self, before: Mapping[str, str], plan: Mapping[str, str]) -> None:
        if not (self.folder / "done.txt").exists():
            return  # nothing is lost
        changed = [part for part in plan if before.get(part) != plan[part]]
        reason = f"it was made with other inputs ({', '.join(changed)})" if before else "its plan is damaged"
        warnings.warn(
            f"an unfinished labelling stands in {self.folder}, but {reason}; starting afresh",
            RankhouseWarning,
            stacklevel=4,
        )

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
                sizes = (4 * rows, pairs, 4 * pairs, 4 * pairs * self._sources)
                chunk = [column.read(size) for column, size in zip(columns, sizes, strict=True)]
                if check != _check(chunk):
                    break
                sound.append(line)
                self.rows, self.pairs = self.rows + rows, self.pairs + pairs
        for name, kind in _COLUMNS.items():
            with (self.folder / name).open("r+b") as column:
                column.truncate(self._entries(name) * np.dtype(kind).itemsize)
        done.write_text("".join(f"{line}\n" for line in sound), "ascii")

    def _entries(self, name: str) -> int:
        """Return how many numbers a column has so far."""
        if name == "rows.i4":
            return self.rows
        return self.pairs * (self._sources if name == "soft.f4" else 1)

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
        """Append a chunk.

        Args:
            rows: Pairs of each row; -1 where its document is not there.

        Raises:
            OutputFailed: The disk is full, or the like.
        """
        marks, scores, soft = votes
        numbers: list[NDArray[Any]] = [
            np.asarray(rows, np.int32),
            marks,
            scores.astype(np.float32),
            soft.astype(np.float32),
        ]
        chunk = [column.tobytes() for column in numbers]
        with writing_failures(self.folder):
            with self._open("ab") as columns:
                for column, content in zip(columns, chunk, strict=True):
                    column.write(content)
            with (self.folder / "done.txt").open("a", encoding="ascii") as done:
                done.write(f"{len(rows)} {len(marks)} {_check(chunk)} end\n")
        self.rows, self.pairs = self.rows + len(rows), self.pairs + len(marks)

    def columns(self) -> Columns:
        """Map everything answered so far into memory."""
        return columns_in(self.folder, self._sources)

    def remove(self) -> None:
        """Delete the folder: the labelling is finished."""
        shutil.rmtree(self.folder, ignore_errors=True)


def columns_in(folder: Path, sources: int = 0) -> Columns:
    """Map everything that a folder holds into memory."""
    rows, marks, scores, soft = (_mapped(folder / name, kind) for name, kind in _COLUMNS.items())
    return Columns(rows, marks, scores, soft.reshape(len(marks), sources))


def _mapped(path: Path, kind: type[np.generic]) -> NDArray[Any]:
    if not path.stat().st_size:  # an empty file cannot be mapped
        return np.empty(0, kind)
    return np.memmap(path, kind, "r")


def _check(chunk: Sequence[bytes]) -> int:
    check = 0
    for content in chunk:
        check = zlib.crc32(content, check)
    return check
