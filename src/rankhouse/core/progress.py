"""Progress of long work, and remarks on the way: one protocol for everything that takes time.

Work anywhere in the package reports with :func:`shown` and :func:`say`; the command line shows bars
(``use``), and without it a line on standard error every half minute says how far the work is. A program
listens instead (``heard_by``), and RANKHOUSE_PROGRESS=0 shows nothing.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from contextvars import ContextVar
from typing import Final, NamedTuple, Protocol

UNCOUNTED = ("bytes", "words", "work")  # units of which only the share is shown
LINE_EVERY = 30.0  # seconds between two lines of progress where no bar can be drawn
_LINGER = 1.0  # seconds that the thread which says them waits for other work


class Progress(Protocol):
    """A callback for how far work is: called where it begins, then now and then.

    Work begins at 0, or at what earlier runs did: the time that is left follows from what came since.

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


class ProgressReport(NamedTuple):
    """Progress of work, for a program.

    Attributes:
        label: What the work is: "encoding", "training".
        done: How much is done.
        total: Of how much; None where it is not known yet.
        unit: What is counted: "documents", "queries", "steps" ...
        seconds_left: An estimate by the rate so far; None where there is none yet.
    """

    label: str
    done: float
    total: int | None
    unit: str
    seconds_left: float | None


OnProgress = Callable[[ProgressReport], object]
OnStep = Callable[[Mapping[str, object]], object]
_listeners: ContextVar[tuple[OnProgress | None, OnStep | None]] = ContextVar(
    "listeners", default=(None, None)
)


_share: ContextVar[Callable[[float], object]] = ContextVar("share", default=lambda _: None)


def share(done: float) -> None:
    """Tell how much of the work of a call, such as a ranker's, is done: 0 to 1."""
    _share.get()(done)


@contextmanager
def part(begin: float, end: float, hear: Callable[[float], object] | None = None) -> Iterator[None]:
    """Let what calls in a block tell count as the part from ``begin`` to ``end`` of the work around it.

    Args:
        hear: Takes how far the work is; None passes it on to who waits for the work around the block.
    """
    outer = hear or _share.get()
    token = _share.set(lambda done: outer(begin + done * (end - begin)))
    try:
        yield
    finally:
        _share.reset(token)


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


def counted(number: int, noun: str, plural: str = "") -> str:
    """Return a number of things in words: "1 document", "2,000 documents"."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


LOST: Final = ("truncated", "tokens_lost", "query_tokens_lost")
"""Names of what rankers count of what they did not read."""
CUT_SMALLER: Final = "cut smaller passages with --split"


def unread_tokens(lost: int, of_queries: int, advice: str = CUT_SMALLER) -> str:
    """Say how many tokens were not read, and what to do: --split shortens passages, not queries."""
    said = [advice] if lost > of_queries else []
    if of_queries:
        share = f"{of_queries:,} of them" if said else "all"
        said.append(f"{share} of queries: shorten these, or give a larger query_length or max_length")
    return f"{lost:,} tokens were not read ({'; '.join(said)})"


class _Speaker:
    """One thread that says every :data:`LINE_EVERY` seconds how far each work is; without work it ends."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Begin without a thread: a forked process has none of its parent's."""
        self._turn = threading.Condition()
        self._running: dict[Lines, float] = {}  # the time at which the next line is due
        self._wake, self._alive = 0.0, False

    def add(self, lines: Lines) -> None:
        """Begin to say how far some work is."""
        with self._turn:
            self._running[lines] = due = time.monotonic() + LINE_EVERY
            if not self._alive:
                self._wake = due
                with suppress(RuntimeError):  # no thread more can begin: the work goes on without lines
                    threading.Thread(target=self._speak, daemon=True).start()
                    self._alive = True
            elif due < self._wake:
                self._turn.notify()

    def remove(self, lines: Lines) -> None:
        """Say nothing more of some work; a line that is being written is written first."""
        with self._turn:
            is_own = self._running.pop(lines, None) is not None
        if is_own:  # else it began before this process was forked, perhaps while a line was written
            lines.end()

    def _speak(self) -> None:
        while works := self._due():
            for lines in works:  # other work begins and ends meanwhile, though nobody reads standard error
                with suppress(Exception):  # standard error may be closed, or anything a program puts there
                    lines.speak()

    def _due(self) -> list[Lines]:
        """Wait for work of which a line is due; none where there is no work any more."""
        with self._turn:
            while True:
                self._wake = min([*self._running.values(), time.monotonic() + _LINGER])
                self._turn.wait(max(0.0, self._wake - time.monotonic()))
                now = time.monotonic()
                if works := [lines for lines, due in self._running.items() if due <= now]:
                    self._running |= dict.fromkeys(works, now + LINE_EVERY)
                if works or not self._running:
                    self._alive = bool(works)
                    return works


_speaker = _Speaker()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_speaker.reset)


class Lines:
    """Says every :data:`LINE_EVERY` seconds of a block how far its work is.

    What the first call tells was done before: by an earlier run, if not 0. The rate is that of the rest.

    Args:
        label: What the work is.
        total: How much there is to do; None where it is not known.
        unit: "bytes" says shares only, anything else counts.
        say: Writes a line.
    """

    def __init__(self, label: str, total: int | None, unit: str, say: Callable[[str], None]) -> None:
        self.label, self.done, self.total, self._unit, self._say = label, 0, total, unit, say
        self._planned, self._started = total, time.monotonic()
        self._begin: tuple[float, float] | None = None  # done before, and after how many seconds
        self._speaking, self._is_over = threading.Lock(), False

    def __enter__(self) -> Lines:
        _speaker.add(self)
        return self

    def __exit__(self, *_: object) -> None:
        _speaker.remove(self)

    def __call__(self, done: float, total: int | None = None) -> None:
        """Take how far the work is; ``total`` where it is another than was planned."""
        total = self._planned if total is None else total
        if self._begin is None or done < self.done or (total and not self.total):  # other work begins
            self._begin = done, time.monotonic() - self._started
        self.done, self.total = int(done), total

    def speak(self) -> None:
        """Say how far the work is, unless it is over."""
        with self._speaking:
            if not self._is_over:
                self._say(self.line(self.seconds))

    def end(self) -> None:
        """Say nothing more; a line that is being written is written first."""
        with self._speaking:
            self._is_over = True

    def line(self, seconds: float) -> str:
        """Write how far the work is after so many seconds, and how long the rest will take at this rate."""
        counted = "" if self._unit in UNCOUNTED else f"{self.done:,}"
        if not self.total:
            so_far = f"{counted} so far" if counted and self.done else "at work"
            return f"{self.label}: {so_far}, {clock(seconds)}"
        share = f"{min(1.0, self.done / self.total):.0%}"
        where = f"{counted} of {self.total:,} ({share})" if counted else share
        left = self.left(seconds)
        ahead = "" if left is None else f", about {clock(left)} left"
        return f"{self.label}: {where} in {clock(seconds)}{ahead}"

    def left(self, seconds: float) -> float | None:
        """Return how many seconds the rest takes at the rate so far; None where nothing says so yet."""
        before, began = self._begin or (0.0, 0.0)
        new = self.done - before
        return (seconds - began) * max(0, self.total - self.done) / new if self.total and new > 0 else None

    @property
    def seconds(self) -> float:
        """Seconds of work so far."""
        return time.monotonic() - self._started


class Display:
    """Shows people progress and remarks: lines on standard error, which may be replaced or absent."""

    def __init__(self) -> None:
        self._noted: set[str] = set()

    @contextmanager
    def shown(self, label: str, total: int | None, unit: str) -> Iterator[Progress]:
        """Show how far a block's work is; ``unit`` "bytes" shows shares only, anything else counts."""
        with Lines(label, total, unit, self.say) as show:
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
_is_on = os.environ.get("RANKHOUSE_PROGRESS", "").lower() not in ("0", "off", "no", "false")


def use(display: Display, *, instead: bool = True) -> None:
    """Show progress and remarks of this process by another display from now on.

    Args:
        instead: Also where another one than the usual was chosen before.
    """
    global _display  # noqa: PLW0603 - one terminal a process
    if instead or type(_display) is Display:
        _display = display


def switch(on: bool) -> None:
    """Show progress of this process, or none; remarks are shown all the same."""
    global _is_on  # noqa: PLW0603 - one terminal a process
    _is_on = on


@contextmanager
def heard_by(on_progress: OnProgress | None, on_step: OnStep | None = None) -> Iterator[None]:
    """Let a program hear how far the work of a block is; nothing is shown then.

    Args:
        on_progress: Takes reports; None: progress is shown.
        on_step: Takes what a training logs.
    """
    token = _listeners.set((on_progress, on_step))
    try:
        yield
    finally:
        _listeners.reset(token)


def logged(entry: Mapping[str, object]) -> None:
    """Tell a program that listens what a training has just logged."""
    if (on_step := _listeners.get()[1]) is not None:
        on_step(dict(entry))


@contextmanager
def shown(label: str, total: int | None, unit: str = "") -> Iterator[Progress]:
    """Show how far a block's work is, with an estimate of the time that is left.

    Args:
        label: What the work is.
        total: How much there is to do; None where it is not known.
        unit: "bytes" shows shares only, anything else counts.

    >>> with shown("encoding", 2) as show:
    ...     show(1)
    """
    if (on_progress := _listeners.get()[0]) is not None:
        lines = Lines(label, total, unit, say)

        def report(done: float, total: int | None = None) -> None:
            lines(done, total)
            left = lines.left(lines.seconds)
            on_progress(ProgressReport(label, done, lines.total, unit, seconds_left=left))

        yield report
    elif _is_on:
        with _display.shown(label, total, unit) as show:
            yield show
    else:
        yield ignore


def stages(stack: ExitStack) -> Callable[[str], Progress]:
    """Return what begins to show a part of the work, and ends the part before."""
    part = stack.enter_context(ExitStack())

    def show(label: str) -> Progress:
        part.close()
        return part.enter_context(shown(label, None))

    return show


def say(text: str) -> None:
    """Show a remark to the person who runs the work; one that cannot be shown stops nothing."""
    with suppress(OSError):
        _display.say(text)


def note(text: str) -> None:
    """Show a remark once, however often it is made."""
    _display.note(text)
