"""How far long work is, and remarks on the way: one protocol for everything that takes time.

Work anywhere in the package reports with :func:`shown` and :func:`say`; the command line shows bars
(``use``), and without it a line on standard error every half minute says how far the work is.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Protocol

LINE_EVERY = 30.0  # seconds between two lines of progress where no bar can be drawn


class Progress(Protocol):
    """A callback for how far work is: called where it begins, then now and then.

    Work begins at 0, or at what earlier sittings did: the time that is left follows from what came since.

    >>> def show(done, total=None):
    ...     print(f"{done} of {total}" if total else done)
    """

    def __call__(self, done: float, total: int | None = None) -> None:
        """Take how much is done.

        Args:
            done: Documents, queries, steps: what the work is made of; a fraction where one takes long.
            total: How many there are in all; None where it is not known yet.
        """
        ...


def ignore(done: float, total: int | None = None) -> None:
    """Show nothing.

    Args:
        done: How much is done.
        total: Of how much.
    """


def clock(seconds: float) -> str:
    """Write a length of time down: ``41 s``, ``2 min 05 s``, ``1 h 30 min``."""
    whole = round(seconds)
    hours, minutes = whole // 3600, whole % 3600 // 60
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {whole % 60:02} s" if minutes else f"{whole} s"


class Lines:
    """Says every :data:`LINE_EVERY` seconds how far the work is; one thread, which ends with the block.

    What the first call tells was done before: by an earlier sitting, if not 0. The rate is that of the rest.

    Args:
        label: What the work is.
        total: How much there is to do; None where it is not known.
        unit: "bytes" says shares only, anything else counts.
        say: Writes a line.
    """

    def __init__(self, label: str, total: int | None, unit: str, say: Callable[[str], None]) -> None:
        self.label, self.done, self.total, self._unit, self._say = label, 0, total, unit, say
        self._started, self._over = time.monotonic(), threading.Event()
        self._begin: tuple[float, float] | None = None  # done before, and after how many seconds
        self._thread = threading.Thread(target=self._speak, daemon=True)

    def __enter__(self) -> Lines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, done: float, total: int | None) -> None:
        """Take how far the work is; ``total`` is None where it is not known."""
        if self._begin is None or done < self.done or (total and not self.total):  # other work begins
            self._begin = done, time.monotonic() - self._started
        self.done, self.total = int(done), total

    def _speak(self) -> None:
        while not self._over.wait(LINE_EVERY):
            self._say(self.line(time.monotonic() - self._started))

    def line(self, seconds: float) -> str:
        """Write how far the work is after so many seconds, and how long the rest will take at this rate."""
        counted = "" if self._unit == "bytes" else f"{self.done:,}"
        if not self.total:
            so_far = f"{counted} so far" if counted and self.done else "at work"
            return f"{self.label}: {so_far}, {clock(seconds)}"
        share = f"{min(1.0, self.done / self.total):.0%}"
        where = f"{counted} of {self.total:,} ({share})" if counted else share
        before, began = self._begin or (0.0, 0.0)
        new = self.done - before
        left = (seconds - began) * max(0, self.total - self.done) / new if new > 0 else None
        ahead = "" if left is None else f", about {clock(left)} left"
        return f"{self.label}: {where} in {clock(seconds)}{ahead}"


class Display:
    """Shows people progress and remarks: lines on standard error, which may be replaced or absent."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    @contextmanager
    def shown(self, label: str, total: int | None, unit: str) -> Iterator[Progress]:
        """Show how far a block's work is; ``unit`` "bytes" shows shares only, anything else counts."""
        with Lines(label, total, unit, self.say) as lines:

            def show(done: float, total: int | None = total) -> None:
                lines.tell(done, total)

            yield show

    def say(self, text: str) -> None:
        """Show a remark."""
        if sys.stderr is not None:
            sys.stderr.write(f"{text}\n")

    def note(self, text: str) -> None:
        """Show a remark once, however often it is made."""
        if text not in self._noted:
            self._noted.add(text)
            self.say(f"note: {text}")


_display = Display()


def use(display: Display) -> None:
    """Show progress and remarks of this process by another display from now on."""
    global _display  # noqa: PLW0603 - one terminal a process
    _display = display


def shown(label: str, total: int | None, unit: str = "") -> AbstractContextManager[Progress]:
    """Show how far a block's work is, with an estimate of the time that is left.

    Args:
        label: What the work is.
        total: How much there is to do; None where it is not known.
        unit: "bytes" shows shares only, anything else counts.

    >>> with shown("encoding", 2) as show:
    ...     show(1)
    """
    return _display.shown(label, total, unit)


def say(text: str) -> None:
    """Show a remark to the person who runs the work; one that cannot be shown stops nothing."""
    with suppress(OSError):
        _display.say(text)


def note(text: str) -> None:
    """Show a remark once, however often it is made."""
    _display.note(text)
