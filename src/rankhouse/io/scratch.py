"""Scratch folders beside what is written: hidden, locked while their writer lives, tidied up after it."""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from filelock import BaseFileLock

SCRATCH: Final = ".part"
REPLACED: Final = "replaced"
"""Name, in a scratch folder, of what is being replaced."""
_ALIVE = "alive"


@contextmanager
def scratch_folder(target: Path) -> Iterator[Path]:
    """Make a hidden folder beside the target for as long as the block runs, marked as in use."""
    target.parent.mkdir(parents=True, exist_ok=True)
    _tidy(target.parent, _prefix(target))
    held: list[tuple[Path, BaseFileLock]] = []
    try:
        with _undisturbed():  # a signal that comes meanwhile is raised when there is something to tidy up
            held.append(_marked_scratch(target))
        yield held[0][0]
    finally:
        with _undisturbed():
            for scratch, lock in held:
                with suppress(OSError):
                    lock.release()
                shutil.rmtree(scratch, ignore_errors=True)


def _marked_scratch(target: Path) -> tuple[Path, BaseFileLock]:
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=_prefix(target), suffix=SCRATCH, dir=target.parent))
        with suppress(FileNotFoundError):  # tidied up by another writer between the two calls
            lock = try_lock(scratch / _ALIVE)
            if lock is not None and scratch.exists():
                return scratch, lock


def try_lock(path: Path) -> BaseFileLock | None:
    """Take the lock on a file without waiting, and return it; None where somebody else holds it."""
    from filelock import FileLock, Timeout  # noqa: PLC0415 - slow to load, and most commands only read

    lock = FileLock(path, blocking=False, thread_local=False)  # another thread may let go of it
    try:
        lock.acquire()
    except Timeout:
        return None
    return lock


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Hold Ctrl-C and SIGTERM back while a block tidies up; they take effect right after it."""
    if threading.current_thread() is not threading.main_thread():
        yield  # signals are handled by the main thread alone
        return
    came: list[int] = []
    before = {
        number: signal.signal(number, lambda number, _: came.append(number))
        for number in (signal.SIGINT, signal.SIGTERM)
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
        if came:
            signal.raise_signal(came[0])


def recover(path: Path) -> bool:
    """Bring back a folder that a writer killed between two renames left without a name: is it there now?"""
    if not path.exists():
        tidy_beside(path)
    return path.exists()


def tidy_beside(path: Path) -> None:
    """Remove what writers of a path that no longer live left beside it, as far as that is allowed."""
    if path.parent.is_dir():
        with suppress(OSError):
            _tidy(path.parent, _prefix(path))


def tidy(folder: Path) -> None:
    """Remove what writers that no longer live left anywhere below a folder."""
    for base, names, _ in os.walk(folder):
        if any(name.endswith(SCRATCH) for name in names):
            _tidy(Path(base), ".")


def _tidy(parent: Path, prefix: str) -> None:
    """Remove the scratch folders of writers that no longer live: their locks went with them."""
    with os.scandir(parent) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(SCRATCH)]
    for scratch in map(Path, left):
        try:
            lock = try_lock(scratch / _ALIVE)
        except OSError:
            continue
        if lock is None:
            continue
        if (scratch / REPLACED).exists():  # killed between two renames: the new folder, or else the old one
            fresh = [entry for entry in scratch.iterdir() if entry.name not in (REPLACED, _ALIVE)]
            target = parent / (fresh[0].name if fresh else scratch.name[1:].rsplit(".", 2)[0])
            if not target.exists():
                (fresh or [scratch / REPLACED])[0].rename(target)
        lock.release()
        shutil.rmtree(scratch, ignore_errors=True)


def _prefix(target: Path) -> str:
    return f".{target.name[:60]}."
