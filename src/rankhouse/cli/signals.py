"""Ctrl-C and SIGTERM end a command in good order: what was begun is tidied up, and neither is ever lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_AGAIN = 0.02  # seconds after which a signal that fell into a callback is raised anew


class Termination(SystemExit):
    """SIGTERM came; cleaned up after as an interrupt is, then the exit code is 143."""


def _terminate(number: int, frame: FrameType | None) -> NoReturn:
    del frame
    raise Termination(128 + number)


@contextmanager
def heeded() -> Iterator[None]:
    """Turn SIGTERM into :class:`Termination`, and raise again what a callback swallowed, while a block runs.

    Python cannot raise out of a callback (a finaliser, a hook of a C library): it reports the exception and
    drops it. An interrupt that fell into one is sent anew a moment later, until it gets through.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before, report = signal.signal(signal.SIGTERM, _terminate), sys.unraisablehook

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        number = _number_of(lost.exc_type)
        if number is None:
            report(lost)
            return
        again = threading.Timer(_AGAIN, signal.raise_signal, (number,))
        again.daemon = True
        again.start()

    sys.unraisablehook = send_again
    try:
        yield
    finally:
        sys.unraisablehook = report
        signal.signal(signal.SIGTERM, before)


def _number_of(kind: type[BaseException]) -> int | None:
    if issubclass(kind, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if issubclass(kind, Termination) else None
