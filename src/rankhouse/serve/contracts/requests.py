"""A request as its handler sees it: who asks, until when; and the threads in which its work is done."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

from starlette.requests import Request

from rankhouse.serve.engine.waiting import Deadline

T = TypeVar("T")


@dataclass(frozen=True)
class Caller:
    """Who asks, as logs name them, and whether they may change anything."""

    name: str
    may_write: bool = True


ANYBODY = Caller("anybody")
"""Who asks where there are no keys."""


def caller_of(request: Request) -> Caller:
    """Return who asks, as the key gate found out."""
    caller: Caller = getattr(request.state, "caller", ANYBODY)
    return caller


class ClientDeadline(Deadline):
    """A deadline that has also passed when the client has hung up."""

    gone: threading.Event

    @property
    def passed(self) -> bool:
        """Whether nobody waits any more."""
        return self.gone.is_set() or super().passed


def deadline_of(request: Request, seconds: float | None = None) -> Deadline:
    """Return when nobody waits for an answer any more: its time is over, or the client gone.

    The time is the seconds that the client asks for, and at most what the service gives a request.
    """
    lifeline = getattr(request.state, "lifeline", None)
    ends = (None if lifeline is None else lifeline.expires, Deadline.after(seconds).at)
    deadline = ClientDeadline(min((moment for moment in ends if moment is not None), default=None))
    deadline.gone = threading.Event() if lifeline is None else lifeline.gone
    return deadline


class Threads:
    """Threads for the work of a group of handlers, so many at a time; more work waits for its turn."""

    def __init__(self, name: str, most: int = 64) -> None:
        self._pool = ThreadPoolExecutor(most, name)

    async def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Return what a function returns; a handler whose client hangs up does not wait for it."""
        return await asyncio.get_running_loop().run_in_executor(self._pool, partial(work, *arguments))

    async def result(self, start: Callable[[], Future[T]]) -> T:
        """Return the result of work that a thread begins; a hang-up cancels it."""
        starting = asyncio.get_running_loop().run_in_executor(self._pool, start)
        try:
            future = await asyncio.shield(starting)
        except asyncio.CancelledError:
            starting.add_done_callback(_cancel)
            raise
        return await asyncio.wrap_future(future)


def _cancel(starting: asyncio.Future[Future[T]]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()


TEXTS: Final = Threads("texts", 8)
"""Split and tokenise texts; slow work there delays only its own kind."""
