"""Keep a served folder's index and vectors up to its files, in a process beside the service.

    python -m rankhouse.serve.folder.keeping FOLDER CHOICE [ENCODER VERSION]

It stands behind the service in the line for the processor. How far it is stands in
FOLDER/.rankhouse/progress.json, for the terminal and the page.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import RankhouseError
from rankhouse.core.progress import Progress
from rankhouse.io.outputs import write_json
from rankhouse.io.scratch import try_lock
from rankhouse.serve.folder.choice import FolderChoice
from rankhouse.serve.folder.files import FolderProgress
from rankhouse.serve.folder.prepare import (
    KEEPER_LOCK,
    EncoderAtHand,
    Interrupted,
    Place,
    encode_folder,
    index_folder,
    is_current,
)

PAUSE = 2.0
"""Seconds between two looks at a folder's files, at least."""
_ENCODED = 15.0  # seconds of encoding between two looks, at least
_TIMES = 4  # and so many times the seconds of indexing
_SHARE = 50  # part of the time that may go into looking
_AGAIN = 15.0  # seconds until what failed is tried again
_WRITE_EVERY = 0.5  # seconds
_MOST_REMARKS = 100


class _File(progress.Display):
    """Shows progress and remarks in a file."""

    def __init__(self, place: Place) -> None:
        super().__init__()
        self._place, self._remarks, self._written = place, list[str](), 0.0
        self._write()

    def _write(self, work: str = "", share: float = 0.0, left: float | None = None) -> None:
        state = FolderProgress(
            work, share, left, said=len(self._remarks), remarks=tuple(self._remarks[-_MOST_REMARKS:])
        )
        with suppress(RankhouseError):  # a full disk is met by the work itself
            write_json(self._place.progress, state)
        self._written = time.monotonic()

    @contextmanager
    def shown(self, label: str, total: int | None, unit: str) -> Iterator[Progress]:
        del unit
        begun: list[tuple[float, float]] = []

        def show(done: float, total: int | None = total) -> None:
            now = time.monotonic()
            if not begun:  # what an earlier process did tells nothing of the rate
                begun.append((done, now))
            first, began = begun[0]
            if total and now > self._written + _WRITE_EVERY:
                left = (now - began) * (total - done) / (done - first) if done > first else None
                self._write(label, min(1.0, done / total), left)

        self._write(label)
        try:
            yield show
        finally:
            self._write()

    def say(self, text: str) -> None:
        if text not in self._remarks[-_MOST_REMARKS:]:
            self._remarks.append(text)
            self._write()

    note = say


def keep(place: Place, encoder: EncoderAtHand | None) -> None:
    """Encode what is not encoded yet and look for changes, until the process ends."""
    is_done, fault = False, ""
    while True:
        began = time.monotonic()
        try:
            is_new = not is_current(place)
            pause = max(PAUSE, _SHARE * (time.monotonic() - began))
            if is_new:
                index_folder(place, encoder)
            if encoder is not None and (is_new or not is_done):
                encode_folder(
                    place, encoder, _changes(place, max(_ENCODED, _TIMES * (time.monotonic() - began)))
                )
            is_done, fault = True, ""
        except Interrupted:
            is_done, pause = False, 0
        except (
            RankhouseError,
            OSError,
        ) as error:  # a file half written, all gone, no room: it is tried again
            is_done, pause = False, _AGAIN
            if str(error) != fault:
                fault = str(error)
                progress.say(f"{fault}; what was indexed before is still served")
        time.sleep(pause)


def _changes(place: Place, every: float) -> Callable[[], bool]:
    """Return what says whether files have changed; it looks every so many seconds from the first call."""
    due = 0.0

    def are_there() -> bool:
        nonlocal due
        began, is_new = time.monotonic(), False
        if began < due:
            return False
        if due:
            is_new = not is_current(place)
        due = time.monotonic() + max(every, _SHARE * (time.monotonic() - began))
        return is_new

    return are_there


if __name__ == "__main__":
    folder, choice, *given = sys.argv[1:]
    there = Place(Path(folder), msgspec.json.decode(choice, type=FolderChoice))
    while (lock := try_lock(there.state / KEEPER_LOCK)) is None:  # that of a service which was killed
        time.sleep(PAUSE)
    with lock:
        progress.use(_File(there))
        keep(there, EncoderAtHand(*given) if given else None)
