"""The worker of a job: opens it once, then makes one shard after another."""

from __future__ import annotations

import os
import secrets
import shutil
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rankhouse.core.errors import RankhouseWarning, WrongUse
from rankhouse.io.outputs import only_writer, replacing_folder, writing_failures
from rankhouse.jobs.jobs import Job, Survey, make_shard, manifest_of, unpack
from rankhouse.jobs.shards import Shard

_BEACON: Final = ".here"
_PATIENCE: Final = 60  # seconds in which the worker of a driver that died has to let go of a shard


class WorkerResult(NamedTuple):
    """A shard that was made."""

    files: Mapping[str, Any] | None  # path -> content; None where it stands in the driver's folder already
    warned: tuple[str, ...]  # warnings on the way


class JobSetup(NamedTuple):
    """Settings that a worker needs before its first shard."""

    command: str
    options: dict[str, Any]  # remote files by their URLs; each machine fetches what it needs
    survey: Survey  # so that inputs are read once and not by every worker
    shards: Path  # the driver's folder of shards
    token: str  # see beacon
    home: Path  # the driver's working folder; relative paths begin there, where it is to be seen


class JobWorker:
    """Makes shards of one job: in the driver's folder, or in one of its own where it does not see that."""

    def __init__(self, setup: JobSetup) -> None:
        if setup.home.is_dir():
            os.chdir(setup.home)
        self._survey, self._fraction = setup.survey, 0.0
        self._is_shared = sees(setup.shards, setup.token)
        self._shards = setup.shards if self._is_shared else Path(tempfile.mkdtemp(prefix="rankhouse."))
        self._job: Job = unpack(setup.command, setup.options)
        self._worker = self._job.open()

    @property
    def found(self) -> dict[str, str]:
        """Facts that the result depends on, known only now: the ranker's weights, the precision."""
        return dict(self._worker.found)

    def run(self, shard: Shard) -> WorkerResult:
        """Make a shard."""
        self._fraction = 0.0
        folder = shard_folder(self._shards, shard)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", RankhouseWarning)
            with locked(folder):
                self._make(folder, shard)
        warned = tuple(str(w.message) for w in caught if issubclass(w.category, RankhouseWarning))
        return WorkerResult(None if self._is_shared else _taken(folder), warned)

    def _make(self, folder: Path, shard: Shard) -> None:  # what tests of a sick worker replace
        make_shard(folder, manifest_of(self._job, self._survey, shard), lambda: self._worker, self._note)

    def fraction(self) -> float:
        """Return how much of the shard at work is done."""
        return self._fraction

    def _note(self, done: float, total: int | None = None) -> None:
        self._fraction = min(1.0, done / total) if total else 0.0


@contextmanager
def beacon(folder: Path) -> Iterator[str]:
    """Keep a file in a folder while the block runs, by which other machines know that they see it.

    Yields the content of the file, for :func:`sees`.
    """
    token = secrets.token_hex(16)
    with writing_failures(folder):
        (folder / _BEACON).write_text(token)
    try:
        yield token
    finally:
        with suppress(OSError):
            (folder / _BEACON).unlink()


def sees(folder: Path, token: str) -> bool:
    """Return whether a folder of this name is, here, the one that holds the driver's file."""
    with suppress(OSError):
        return (folder / _BEACON).read_text() == token
    return False


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a shard, which the worker of a driver that died may have for some moments more."""
    with ExitStack() as stack:
        for attempt in range(_PATIENCE + 1):
            try:
                stack.enter_context(only_writer(folder))
                break
            except WrongUse:
                if attempt == _PATIENCE:
                    raise
            time.sleep(1)
        yield


def shard_folder(shards: Path, shard: Shard) -> Path:
    """Return where a shard stands."""
    return shards / f"{shard.start:012}-{shard.stop:012}"


def _taken(folder: Path) -> dict[str, Any]:
    """Read a shard's files, as arrays of bytes, which Ray's object store does not copy; then remove it."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    content = {path.relative_to(folder).as_posix(): np.fromfile(path, np.uint8) for path in files}
    shutil.rmtree(folder)
    return content


def write_shard(folder: Path, files: Mapping[str, Any]) -> None:
    """Write a shard that came through Ray's object store; whole or absent."""
    with replacing_folder(folder, lambda _: ()) as scratch:
        for name, content in files.items():
            path = scratch / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
