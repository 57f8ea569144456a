"""Deadlines of requests, results that are waited for, and those kept for the next request."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from typing import Any, Final, Generic, NamedTuple, Self, TypeVar

from cachetools import LRUCache

from rankhouse.serve.errors import DeadlinePassed

T = TypeVar("T")
K = TypeVar("K")
V = TypeVar("V")


class Deadline(NamedTuple):
    """The moment of ``time.monotonic`` at which clients stop waiting for an answer; None: never."""

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline so many seconds from now; None for none."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds that are left, not below 0; None where there is no end."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at


ENDLESS: Final = Deadline()
"""No deadline."""


def waited(future: Future[T], deadline: Deadline) -> T:
    """Wait for a result; free its work where the time is over."""
    try:
        return future.result(deadline.left)
    except (TimeoutError, CancelledError):
        future.cancel()
        raise DeadlinePassed from None


def fail(future: Future[Any], error: BaseException) -> None:
    """Give a future an error, if anybody still waits for it; one thread at a time."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


def then(future: Future[Any], change: Callable[[Any], T]) -> Future[T]:
    """Return what gets the changed result; cancelling it cancels what it waits for.

    The change is made in the thread that ends the wait, so it must be quick.
    """
    changed: Future[T] = Future()

    def pass_on(done: Future[Any]) -> None:
        if changed.done() or not changed.set_running_or_notify_cancel():
            return
        if done.cancelled():
            changed.set_exception(CancelledError())
        elif (error := done.exception()) is not None:
            changed.set_exception(error)
        else:
            try:
                changed.set_result(change(done.result()))
            except Exception as error:  # noqa: BLE001 - the waiting thread gets it
                changed.set_exception(error)

    changed.add_done_callback(lambda one: future.cancel() if one.cancelled() else None)
    future.add_done_callback(pass_on)
    return changed


class Recent(Generic[K, V]):
    """So many values by key, or values of that size, those used last; safe in many threads."""

    def __init__(self, most: int, size: Callable[[V], float] | None = None) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[K, V] = LRUCache(most, size)

    def get(self, key: K) -> V | None:
        """Return a value; None where it is not among the latest."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value for a while; not one that is larger than all may be."""
        with self._lock, suppress(ValueError):
            self._kept[key] = value
