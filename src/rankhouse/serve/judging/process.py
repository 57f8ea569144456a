"""A module of this program in a process of its own, beside the service, which it does not outlive.

The service holds one end of a pipe, the command the other: however the service ends, the pipe does too.
"""

from __future__ import annotations

import os
import runpy
import signal
import subprocess
import sys
import threading
import weakref
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

_TAIL: Final = 4_000


def started(arguments: Sequence[str], said: Path, module: str = "rankhouse") -> subprocess.Popen[bytes]:
    """Start a module, behind the service in the line for the processor and out of Ctrl-C's reach."""
    theirs, ours = os.pipe()
    try:
        with said.open("wb") as out:
            process = subprocess.Popen(  # noqa: S603 - this very program
                [sys.executable, "-m", __name__, module, *arguments], env={**os.environ, "COLUMNS": "1000"},
                stdin=theirs, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip
    except BaseException:
        os.close(ours)
        raise
    finally:
        os.close(theirs)
    weakref.finalize(process, os.close, ours)
    with suppress(OSError, AttributeError):
        os.setpriority(os.PRIO_PROCESS, process.pid, 10)
    return process


def last_words(said: Path) -> str:
    """Return the end of what a command said: its error, where there is one."""
    with suppress(OSError):
        lines = said.read_text("utf-8", "replace")[-_TAIL:].strip().splitlines()
        found = [number for number, line in enumerate(lines) if line.startswith("rankhouse:")]
        return "\n".join(lines[found[-1] :] if found else lines[-5:]).removeprefix("rankhouse: ")
    return ""


def _end_with_the_service() -> None:
    os.read(0, 1)  # nothing is ever written
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    runpy.run_module(sys.argv.pop(1), run_name="__main__", alter_sys=True)
