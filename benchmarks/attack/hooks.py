"""What a child process does to itself: ends at its nth change of the file system, or has no room to write."""

from __future__ import annotations

import os
import resource
import signal
import sys
from collections.abc import Callable
from pathlib import Path

_CHANGES = {"os.rename", "os.remove", "os.mkdir", "os.rmdir", "os.truncate", "os.link", "os.symlink"}
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC


def _changes(event: str, arguments: tuple[object, ...]) -> bool:
    if event != "open":
        return event in _CHANGES
    flags = arguments[2] if len(arguments) > 2 else 0
    inside = not str(arguments[0]).startswith(("/dev/", "/proc/"))
    return isinstance(flags, int) and bool(flags & _WRITING) and inside and isinstance(arguments[0], str)


def counting(count_file: Path) -> Callable[[], None]:
    """Return what makes a child count its changes: a byte in ``count_file`` for each."""

    def begin() -> None:
        descriptor = os.open(count_file, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if _changes(event, arguments):
                os.write(descriptor, b".")

        sys.addaudithook(hook)

    return begin


def ending_at(nth: int, number: int = signal.SIGKILL, *, after: bool = False) -> Callable[[], None]:
    """Return what sends a child a signal just before its nth change, or right ``after`` it.

    Only the process itself counts, not its workers.
    """

    def begin() -> None:
        left, own, due = [nth], os.getpid(), [False]

        def hook(event: str, arguments: tuple[object, ...]) -> None:
            if os.getpid() != own:
                return
            if due[0]:
                due[0] = False
                os.kill(own, number)
            if _changes(event, arguments):
                left[0] -= 1
                if left[0] == 0:
                    due[0] = after
                    if not after:
                        os.kill(own, number)

        sys.addaudithook(hook)

    return begin


def at_most(size: int) -> Callable[[], None]:
    """Return what keeps a child from writing files longer than ``size`` bytes."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
