"""A request's lifeline: its body is read within bounds, and its work ends when the client has gone.

The body is read whole before a handler runs, so that handlers never wait for a client: too large a one is
refused unread (413), too slow a one ends (408), and all bodies together have a bound too (429). Then the
handler runs beside a watch for the client: who hangs up has the handler cancelled. An answer that has not
begun in time is a 504.
"""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankhouse.serve.contracts.requests import caller_of
from rankhouse.serve.errors import DeadlinePassed, Overloaded, SlowClient, TooLarge, Unready, refusal
from rankhouse.serve.host.gates import LOGIN, LOGOUT, PROBES
from rankhouse.serve.host.service import Phase, Service
from rankhouse.serve.page.render import waiting_page, wants_html

BODIES_AT_ONCE = 4
"""So many bodies of the largest size may be held at once."""
_SESSIONS = (LOGIN, LOGOUT)  # answered while the service starts too
_LARGEST_FORM = 8 << 10  # of the one form that is taken without a key
_LINGER, _LINGER_MOST = 2.0, 20.0
"""Seconds without a byte, and in all, for which a refused body is taken in, so that its sender reads why."""
_HUNG_UP, _LATE, _DONE = "hung up", "late", "done"
"""Why a handler runs no longer."""
_NOT_READY = {
    Phase.STARTING: (
        "the service has begun and still opens its models; ask again in a moment",
        "The service is loading its models and will be ready in a moment.",
    ),
    Phase.DRAINING: (
        "the service is about to end and takes no more work; ask again in a moment",
        "The service is stopping and takes no more requests.",
    ),
}
"""The message for programs, and the one for people."""


@dataclass
class Lifeline:
    """Link between work and the client that waits for it; handlers find it as ``request.state.lifeline``.

    The answer must have begun when :func:`time.monotonic` ``expires``; ``gone`` is set when the client has
    hung up or its time is over, and work in threads looks at it.
    """

    expires: float
    gone: threading.Event = field(default_factory=threading.Event)


class _HungUp(Exception):
    """The client went away before its body was complete."""


class Lifelines:
    """Reads bodies, watches clients, counts what is in progress."""

    def __init__(self, app: ASGIApp, service: Service) -> None:
        self._app, self._service, self._limits = app, service, service.options.limits
        self._held = 0  # bytes of all bodies in progress

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI. Who brings a key while the service starts sees how far it is."""
        phase = self._service.phase
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
        elif phase is not Phase.READY and (phase is not Phase.STARTING or scope["path"] not in _SESSIONS):
            await _unready(scope, self._service)(scope, receive, send)
        else:
            exchange, task = _Exchange(send), asyncio.current_task()
            assert task is not None
            self._service.tasks.add(task)
            try:
                await self._answer(scope, receive, exchange)
            except asyncio.CancelledError:
                if not self._service.is_over:
                    raise
                if not exchange.is_answering:
                    over = Unready("the service ends, and its time to finish requests is over; ask again")
                    await refusal(scope, over, closes=True)(scope, receive, send)
            finally:
                self._service.tasks.discard(task)

    async def _answer(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        state = scope.setdefault("state", {})
        try:
            await self._read(scope, receive, exchange)
            state["bytes_in"] = exchange.length
            await self._run(scope, receive, exchange)
        except (TooLarge, SlowClient, Overloaded) as error:
            await _refuse_unread(refusal(scope, error, closes=True), scope, receive, exchange.send)
        except _HungUp:
            state["hung_up"] = True
        finally:
            self._held -= exchange.length

    async def _read(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        """Read a body, whose bytes count as held."""
        most = min(self._limits.body, _LARGEST_FORM) if scope["path"] == LOGIN else self._limits.body
        declared = Headers(scope=scope).get("content-length", "")
        self._admit(most, int(declared) if declared.isdigit() else 0, 0)
        begun, more, parts = time.monotonic(), True, list[bytes]()
        since, before = begun, 0  # no credit for bytes that came earlier: the last could be an hour late
        while more:
            try:
                async with asyncio.timeout(since + self._limits.patience - time.monotonic()):
                    message = await receive()
            except TimeoutError:
                spent, got = time.monotonic() - begun, exchange.length
                raise SlowClient(f"the body came too slowly: {got:,} bytes in {spent:.0f} s") from None
            if message["type"] == "http.disconnect":
                raise _HungUp
            chunk, more = message.get("body", b""), message.get("more_body", False)
            self._admit(most, exchange.length, len(chunk))
            parts.append(chunk)
            exchange.length += len(chunk)
            self._held += len(chunk)
            if exchange.length - before >= self._limits.slowest * self._limits.patience:
                since, before = time.monotonic(), exchange.length
        exchange.body = b"".join(parts)

    def _admit(self, most: int, before: int, more: int) -> None:
        """Refuse a body of so many bytes, and so many more, where the most is less."""
        if before + more > most:
            raise TooLarge(f"the body is larger than {most:,} bytes, the most that the service accepts")
        if self._held + (more or before) > BODIES_AT_ONCE * self._limits.body:
            raise Overloaded(1.0)

    async def _run(self, scope: Scope, receive: Receive, exchange: _Exchange) -> None:
        """Run the handler beside a watch for the client, and within its time."""
        limit, loop, task = self._limits.request, asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        line = scope["state"]["lifeline"] = Lifeline(time.monotonic() + limit)
        cut = ""

        def cut_off(why: str) -> None:
            nonlocal cut
            if not (cut or exchange.is_complete):  # what a handler does after its answer is no one's wait
                cut = why
                task.cancel()

        watch = asyncio.ensure_future(_hang_up(receive))
        watch.add_done_callback(lambda _: cut_off(_HUNG_UP))
        timer = loop.call_later(limit, lambda: None if exchange.is_answering else cut_off(_LATE))
        try:
            await self._app(scope, exchange.receive, exchange.send)
        except asyncio.CancelledError:
            if not cut or task.cancelling() > 1:
                raise
        finally:
            line.gone.set()
            timer.cancel()
            if cut:
                task.uncancel()
            cut = cut or _DONE
            watch.cancel()
        if cut == _LATE and not exchange.is_answering:
            late = DeadlinePassed(f"no answer within {limit:g} s, the most for a request")
            await refusal(scope, late)(scope, receive, exchange.send)
        elif cut != _DONE:
            scope["state"]["hung_up"] = True


class _Exchange:
    """Receive and send of a handler whose body has been read."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self.body: bytes | None = None
        self.length = 0  # bytes of the body that are held
        self.is_answering = self.is_complete = False

    async def receive(self) -> Message:
        """Return the body, once; who asks again waits for a hang-up, which cancels the handler."""
        if self.body is None:
            await asyncio.get_running_loop().create_future()
        body, self.body = self.body, None
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(self, message: Message) -> None:
        """Send a part of the answer."""
        self.is_answering = True
        self.is_complete = message["type"] == "http.response.body" and not message.get("more_body")
        await self._send(message)


def _unready(scope: Scope, service: Service) -> Response:
    """Refuse a request for now; a browser gets a page, which loads itself again."""
    for_programs, for_people = _NOT_READY[service.phase]
    reading = service.standing if service.phase is Phase.STARTING and service.standing.work else None
    if reading is not None:
        said = service.work.sentence.rstrip(".")
        for_programs = f"the service has begun; {said[0].lower()}{said[1:]}; ask again in a moment"
    response = refusal(scope, Unready(for_programs), closes=True)
    request = Request(scope)
    if scope["method"] != "GET" or not wants_html(request):
        return response
    return waiting_page(response, for_people, reading, caller_of(request))


async def _hang_up(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _refuse_unread(response: Response, scope: Scope, receive: Receive, send: Send) -> None:
    """Send a refusal whole, then take in for a moment what is still on its way, and hang up.

    A connection that is closed on unread bytes is reset, and its client may never see the answer.
    """

    async def send_part(message: Message) -> None:
        await send({**message, "more_body": True} if message["type"] == "http.response.body" else message)

    await response(scope, receive, send_part)
    with suppress(TimeoutError):
        async with asyncio.timeout(_LINGER_MOST):
            more = True
            while more:
                async with asyncio.timeout(_LINGER):
                    message = await receive()
                more = message["type"] == "http.request" and message.get("more_body", False)
    await send({"type": "http.response.body", "body": b""})
