"""Work of a handler that runs elsewhere: in a thread, then in a model's queue; a hang-up frees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, TypeVar

from starlette.requests import Request

from rankhouse.serve.engine.deadline import Deadline

T = TypeVar("T")

_THREADS: Final = ThreadPoolExecutor(8, "request")
"""Cuts and tokenises texts; what takes long there delays others of its kind only."""


def deadline_of(request: Request) -> Deadline:
    """Return when nobody waits for a request's answer any more."""
    lifeline = getattr(request.state, "lifeline", None)
    return Deadline(None if lifeline is None else lifeline.expires)


async def in_thread(run: Callable[[], T]) -> T:
    """Return what a function returns, called in a thread of the service's own."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, run)


async def outcome(start: Callable[[], Future[T]]) -> T:
    """Return the result of work that is begun in a thread; whoever hangs up frees it.

    Args:
        start: Begins the work; called in a thread.
    """
    starting = asyncio.get_running_loop().run_in_executor(_THREADS, start)
    try:
        future = await asyncio.shield(starting)
    except asyncio.CancelledError:
        starting.add_done_callback(_free)
        raise
    return await asyncio.wrap_future(future)


def _free(starting: asyncio.Future[Future[T]]) -> None:
    if not starting.cancelled() and starting.exception() is None:
        starting.result().cancel()
