"""Calling the program in a forked process: everything is imported once, and each call can be killed."""

from __future__ import annotations

import contextlib
import os
import resource
import select
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

TIMEOUT = 60.0  # seconds after which a call counts as hanging
_MEMORY = 6 << 30
_CRASHES = ("Traceback (most recent call last)", "Exception ignored in", "Fatal Python error")


@dataclass(frozen=True)
class Outcome:
    """How a call ended.

    Attributes:
        code: Exit code; minus the signal's number where one ended it; None where it hung.
        out: Standard output.
        err: Standard error.
        seconds: How long it took.
    """

    code: int | None
    out: str
    err: str
    seconds: float

    @property
    def crash(self) -> str:
        """Return what shows that the program broke down rather than ended: "" where nothing does."""
        if self.code is not None and self.code < 0:
            return f"ended by signal {-self.code}"
        text = self.err + self.out
        lines = [line for line in text.splitlines() if line.strip()]
        return f"traceback: {lines[-1][:200]}" if any(mark in text for mark in _CRASHES) else ""


class Call:
    """A call that is under way.

    Args:
        arguments: The command line after ``rankhouse``.
        folder: Where it runs.
        before: Done in the child before the program starts: hooks, limits.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, before: Callable[[], object] | None = None
    ) -> None:
        self._said = tempfile.TemporaryFile(), tempfile.TemporaryFile()  # read when the call has ended
        self._began = time.perf_counter()
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            _become(list(arguments), folder, [file.fileno() for file in self._said], before)

    def wait(self, timeout: float = TIMEOUT) -> Outcome:
        """Wait for its end; after ``timeout`` seconds the whole group is killed and the code is None."""
        descriptor = os.pidfd_open(self.pid)
        ended = select.select([descriptor], [], [], timeout)[0]
        os.close(descriptor)
        self.kill()  # workers that outlive their parent, or all of a call that hangs
        _, status = os.waitpid(self.pid, 0)
        code = os.waitstatus_to_exitcode(status) if ended else None
        texts = []
        for file in self._said:
            file.seek(0)
            texts.append(file.read(1 << 20).decode(errors="replace"))
            file.close()
        return Outcome(code, texts[0], texts[1], time.perf_counter() - self._began)

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send a signal to the whole group."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, number)


def call(
    arguments: Sequence[str],
    folder: Path,
    timeout: float = TIMEOUT,
    before: Callable[[], object] | None = None,
) -> Outcome:
    """Call the program and wait for its end."""
    return Call(arguments, folder, before).wait(timeout)


def _become(
    arguments: list[str], folder: Path, files: list[int], before: Callable[[], object] | None
) -> None:
    """Be the program, and never come back."""
    code = 70
    try:
        os.setsid()
        os.chdir(folder)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        resource.setrlimit(resource.RLIMIT_DATA, (_MEMORY, _MEMORY))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        signal.signal(signal.SIGINT, signal.default_int_handler)
        from rankhouse.cli.main import main

        sys.argv = ["rankhouse", *arguments]
        if before is not None:
            before()
        main()
        code = 0
    except SystemExit as ended:
        code = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
    except BaseException:  # noqa: BLE001 - a traceback is what is looked for
        traceback.print_exc()
        code = 1
    finally:
        try:
            sys.stdout.flush()
            sys.stderr.flush()
        finally:
            os._exit(code & 255)
