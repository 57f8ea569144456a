"""One writer at a time: the lock that every output takes, and the one message of the second writer.

A lock is a hidden file beside its target, ``.NAME.lock``. The operating system lets go of it however the
process ends, so a killed writer blocks nobody; who ends well removes the file while still holding it, which
``filelock`` notices (a lock on a name that is gone counts for nothing).
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.errors import WrongUse
from rankhouse.io.outputs import real_path, writing_failures
from rankhouse.io.scratch import try_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock

_SUFFIX = ".lock"
_guard = threading.Lock()
_held: dict[Path, int] = {}  # target -> the thread that writes it; the same thread may come again


@contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold the lock of an output (a file or a folder, there or not) while the block runs.

    Parent folders are made; links are followed, so every name of an output has one lock. The thread that
    holds a lock may take it again, so a command and the function it calls may both ask for it. Raises
    WrongUse where another process or thread is writing, OutputFailed where nothing may be written.
    """
    target, me = real_path(target), threading.get_ident()
    with _guard:
        holder = _held.get(target)
        if holder is None:
            _held[target] = me
    if holder is not None:
        if holder != me:
            raise _busy(target)
        yield
        return
    try:
        with writing_failures(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = _acquired(lock_of(target), target)
        try:
            yield
        finally:
            _release(lock)
    finally:
        with _guard:
            del _held[target]


def lock_of(target: Path) -> Path:
    """Return where the lock of a target stands."""
    return target.with_name(f".{target.name[:200]}{_SUFFIX}")


def refuse_if_written(folder: Path) -> None:
    """Refuse to replace a folder while another process writes something inside it."""
    for path in folder.rglob(f".*{_SUFFIX}"):
        _release(_acquired(path, path.with_name(path.name[1 : -len(_SUFFIX)])))


def _acquired(path: Path, target: Path) -> BaseFileLock:
    if (lock := try_lock(path)) is None:
        raise _busy(target)
    return lock


def _release(lock: BaseFileLock) -> None:
    with suppress(OSError):  # systems that keep an open file's name: the next writer takes the file over
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def _busy(target: Path) -> WrongUse:
    return WrongUse(f"{target}: another process is writing it; wait for it, stop it, or name another output")
