"""What runs in a worker of the cluster: opens the job once, then does one slice after another."""

from __future__ import annotations

import errno
import os
import shutil
import tempfile
import time
import traceback
import warnings
from contextlib import ExitStack
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

import rankhouse.core.errors as house
from rankhouse.cluster.ray_beacon import sees
from rankhouse.core.errors import OutputFailed, RankhouseError, RankhouseWarning, WrongUse
from rankhouse.io.locks import only_writer
from rankhouse.jobs.jobs import Job, Survey, Worker, make_part, part_of, unpack
from rankhouse.jobs.parts import Found
from rankhouse.jobs.slices import Slice

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
_PATIENCE = 60  # seconds in which the worker of one who died has to let go of a part


class Outcome(NamedTuple):
    """How a worker's work ended.

    Attributes:
        state: "done"; "full", if the worker's disk is; "failed", if the work itself did.
        message: What the error said.
        kind: Class of the error.
        trace: Where it came from, for errors that are nobody's on purpose.
        shared: Whether the worker sees the folder of parts.
        files: Name and size of what has to be sent, of a part written elsewhere.
        found: What the worker found to depend on: the ranker's weights, the precision it computes in.
        warned: Warnings on the way.
    """

    state: Literal["done", "full", "failed"]
    message: str = ""
    kind: str = ""
    trace: str = ""
    shared: bool = True
    files: tuple[tuple[str, int], ...] = ()
    found: Found = MappingProxyType({})
    warned: tuple[str, ...] = ()

    def error(self) -> Exception:
        """Return the error as the command itself would have raised it."""
        known = getattr(house, self.kind, None)
        if isinstance(known, type) and issubclass(known, RankhouseError):
            error = known.__new__(known)
            Exception.__init__(error, self.message)
            return error
        if self.kind in {"MemoryError", "OutOfMemoryError"}:
            return MemoryError(self.message)
        if self.kind in {"OSError", "FileNotFoundError", "PermissionError"}:
            return RankhouseError(self.message)
        return RuntimeError(f"{self.kind} in a worker: {self.message}\n{self.trace}")


def ended_by(error: BaseException) -> Outcome:
    """Return the outcome of work that an exception ended."""
    cause = error.__cause__ if isinstance(error, OutputFailed) else error
    full = isinstance(cause, OSError) and (cause.errno in _FULL or "requested" in str(cause))
    kind = type(error).__name__
    return Outcome("full" if full else "failed", str(error), kind, "".join(traceback.format_exception(error)))


class Setup(NamedTuple):
    """What a worker has to know before its first slice.

    Attributes:
        command: Whose job is done.
        options: Of the job, remote files by their URLs; each machine fetches what it needs.
        survey: Of the job, so that inputs are read once and not by every worker.
        parts: Folder of parts, as the one who asks sees it.
        token: See :func:`~rankhouse.cluster.ray_beacon.beacon`.
        home: The working folder of the one who asks; relative paths begin there, where it is to be seen.
    """

    command: str
    options: dict[str, Any]
    survey: Survey
    parts: Path
    token: str
    home: Path


class SliceWorker:
    """Does slices of one job."""

    def __init__(self, setup: Setup) -> None:
        self._setup, self._parts, self._shared = setup, setup.parts, False
        self._job: Job | None = None
        self._worker: Worker | None = None
        self._fraction = 0.0

    def open(self) -> Outcome:
        """Load what the job needs; say whether the folder of parts is to be seen from here."""
        setup = self._setup
        try:
            if setup.home.is_dir():
                os.chdir(setup.home)
            self._shared = sees(self._parts, setup.token)
            if not self._shared:
                self._parts = Path(tempfile.mkdtemp(prefix="rankhouse."))
            self._job = unpack(setup.command, setup.options)
            self._worker = self._job.open()
        except Exception as error:  # noqa: BLE001 - told to the one who asked
            return ended_by(error)
        return Outcome("done", shared=self._shared, found=dict(self._worker.found))

    def run(self, one: Slice) -> Outcome:
        """Do one slice; its part is in the folder of parts, or waits here to be sent."""
        self._fraction = 0.0
        folder = part_folder(self._parts, one)
        with warnings.catch_warnings(record=True) as caught, ExitStack() as stack:
            warnings.simplefilter("always", RankhouseWarning)
            try:
                wait_for(folder, stack)
                self._make(folder, one)
            except Exception as error:  # noqa: BLE001 - told to the one who asked
                return ended_by(error)
        told = tuple(str(w.message) for w in caught if issubclass(w.category, RankhouseWarning))
        return Outcome("done", shared=self._shared, files=() if self._shared else _sizes(folder), warned=told)

    def _make(self, folder: Path, one: Slice) -> None:
        worker, job = self._worker, self._job
        assert worker is not None
        assert job is not None
        wanted = part_of(job, self._setup.survey, one)
        make_part(folder, wanted, lambda: worker, self._note)

    def piece(self, one: Slice, name: str, start: int, size: int) -> bytes:
        """Return a piece of a file of a part.

        Args:
            size: Its most bytes.
        """
        with (part_folder(self._parts, one) / name).open("rb") as file:
            file.seek(start)
            return file.read(size)

    def forget(self, one: Slice) -> None:
        """Remove a part that was sent."""
        shutil.rmtree(part_folder(self._parts, one), ignore_errors=True)

    def fraction(self) -> float:
        """Return how much of the slice at work is done."""
        return self._fraction

    def _note(self, done: float, total: int | None = None) -> None:
        self._fraction = min(1.0, done / total) if total else 0.0


def wait_for(folder: Path, stack: ExitStack) -> None:
    """Take the lock of a part, which the worker of one who died may hold for some moments more."""
    for _ in range(_PATIENCE):
        try:
            stack.enter_context(only_writer(folder))
        except WrongUse:
            time.sleep(1)
        else:
            return
    stack.enter_context(only_writer(folder))


def part_folder(parts: Path, one: Slice) -> Path:
    """Return where the part of a slice stands."""
    return parts / f"{one.start:012}-{one.stop:012}"


def _sizes(folder: Path) -> tuple[tuple[str, int], ...]:
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return tuple((str(path.relative_to(folder)), path.stat().st_size) for path in files)
