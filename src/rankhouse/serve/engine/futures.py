"""Results that are waited for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from typing import Any, TypeVar

from rankhouse.serve.contracts.errors import DeadlinePassed
from rankhouse.serve.engine.deadline import Deadline

T = TypeVar("T")


def waited(future: Future[T], deadline: Deadline) -> T:
    """Wait for a result; free its work where the time is over.

    Raises:
        DeadlinePassed: The time is over.
    """
    try:
        return future.result(deadline.left)
    except (TimeoutError, CancelledError):
        future.cancel()
        raise DeadlinePassed from None


def fail(future: Future[Any], error: BaseException) -> None:
    """Tell whoever waits, if anybody still does, that no result comes; one thread at a time."""
    if not future.done() and future.set_running_or_notify_cancel():
        future.set_exception(error)


def then(future: Future[Any], change: Callable[[Any], T]) -> Future[T]:
    """Return what gets the changed result; cancelling it cancels what it waits for.

    Args:
        change: Makes the result; called in the thread that ends the wait, so it must be quick.
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
            except Exception as error:  # noqa: BLE001 - whoever waits is told
                changed.set_exception(error)

    changed.add_done_callback(lambda one: future.cancel() if one.cancelled() else None)
    future.add_done_callback(pass_on)
    return changed
