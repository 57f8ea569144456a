"""Ctrl-C and SIGTERM end a command in good order: what was begun is tidied up, and neither is ever lost."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_AGAIN = 0.02  # seconds after which a signal that fell into a callback is raised again


class Termination(SystemExit):
    """SIGTERM came; cleaned up after as an interrupt is, then the exit code is 143."""

    def __init__(self) -> None:
        super().__init__(128 + signal.SIGTERM)


@contextmanager
def heeded() -> Iterator[None]:
    """Turn SIGTERM into :class:`Termination` while a block runs, whatever a library makes of it.

    Python cannot raise out of a callback (a finaliser, a hook of a C library): it reports the exception and
    drops it. An interrupt that fell into one is sent again a moment later, until it gets through. Other
    libraries raise an exception of their own in its place (Ray's ``get`` and ``wait``: ``SystemExit(1)``); a
    block that ends after SIGTERM came has ended by it.

    Raises:
        Termination: SIGTERM came while the block ran.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    came, timers = False, list[threading.Timer]()

    def terminate(number: int, frame: FrameType | None) -> NoReturn:
        nonlocal came
        del number, frame
        came = True
        raise Termination

    def send_again(lost: sys.UnraisableHookArgs) -> None:
        number = _number_of(lost.exc_type)
        if number is None:
            report(lost)
            return
        timers.append(threading.Timer(_AGAIN, signal.raise_signal, (number,)))
        timers[-1].daemon = True
        timers[-1].start()

    before, report = signal.signal(signal.SIGTERM, terminate), sys.unraisablehook
    sys.unraisablehook = send_again
    try:
        yield
    except Termination:
        raise
    except BaseException as error:
        if came:
            raise Termination from error
        raise
    else:
        if came:
            raise Termination
    finally:
        sys.unraisablehook = report
        for timer in timers:
            timer.cancel()
        signal.signal(signal.SIGTERM, before)


def _number_of(kind: type[BaseException]) -> int | None:
    if issubclass(kind, KeyboardInterrupt):
        return signal.SIGINT
    return signal.SIGTERM if issubclass(kind, Termination) else None
