"""Requests over HTTP as calls in threads: parameters converted, work freed when nobody waits for it."""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar, cast

import anyio
import msgspec
from anyio import to_thread
from starlette.datastructures import QueryParams
from starlette.requests import Request

from rankhouse.serve.contracts.errors import Invalid
from rankhouse.serve.contracts.waiting import deadline_of
from rankhouse.serve.engine.deadline import Deadline

T = TypeVar("T")

AT_ONCE: Final = 64
"""Requests that search, explain or judge at a time; what is more waits for its turn."""


class ClientDeadline(Deadline):
    """A deadline that has also passed when the client has hung up.

    Attributes:
        gone: Set when it has.
    """

    gone: threading.Event

    @property
    def passed(self) -> bool:
        """Whether nobody waits any more."""
        return self.gone.is_set() or super().passed


def client_deadline(request: Request, seconds: float | None = None) -> Deadline:
    """Return when nobody waits for an answer any more: its time is over, or the client gone.

    Args:
        seconds: What it asks for; None for as long as the service gives it.
    """
    ends = [moment for moment in (deadline_of(request).at, Deadline.after(seconds).at) if moment is not None]
    deadline = ClientDeadline(min(ends, default=None))
    lifeline = getattr(request.state, "lifeline", None)
    deadline.gone = threading.Event() if lifeline is None else lifeline.gone
    return deadline


class Threads:
    """The threads in which a room's handlers work, so many at a time."""

    def __init__(self, at_once: int = AT_ONCE) -> None:
        self._at_once = at_once
        self._limiter: anyio.CapacityLimiter | None = None

    async def call(self, work: Callable[..., T], *arguments: object) -> T:
        """Return what a function returns; who hangs up does not wait for it."""
        if self._limiter is None:  # made in the event loop that it belongs to
            self._limiter = anyio.CapacityLimiter(self._at_once)
        return await to_thread.run_sync(
            partial(work, *arguments), abandon_on_cancel=True, limiter=self._limiter
        )


def from_query(params: QueryParams, kind: type[T]) -> T:
    """Turn parameters of an address into a type; empty ones count as not given.

    Args:
        params: The parameters; a field that holds a list takes all of its name.

    Raises:
        Invalid: One is missing, or of the wrong type or value; names it.
    """
    fields = msgspec.structs.fields(cast(type[msgspec.Struct], kind))
    lists = {field.encode_name for field in fields if "list[" in str(field.type)}
    given: dict[str, object] = {}
    for name in params:
        values = [value for value in params.getlist(name) if value]
        if values:
            given[name] = values if name in lists else values[-1]
    try:
        return msgspec.convert(given, kind, strict=False)
    except msgspec.ValidationError as error:
        reason, _, place = str(error).partition(" - at `$.")
        where = place.rstrip("`") or None
        reason = reason[:1].lower() + reason[1:]
        raise Invalid(f"{where}: {reason}" if where else reason, where) from None
