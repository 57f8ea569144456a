"""Connections that stand still are closed: heads that do not come, or do not end, and answers not taken."""

from __future__ import annotations

import asyncio
from collections import deque
from http import HTTPStatus
from typing import ClassVar

from starlette.exceptions import HTTPException
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from rankhouse.serve.errors import refusal

LARGEST_HEAD = 64 << 10
MOST_IDLE = 1_000
"""Connections on which nothing is being asked; one more, and the one that rests longest is closed."""

_TOO_LARGE = (
    f"the address and the headers of a request are longer than {LARGEST_HEAD:,} bytes; send long texts in a "
    "body, by POST"
)
_NO_REQUEST = (
    "this is no HTTP request, or its address is longer than 65,535 bytes; send long texts in a body, by POST"
)
_NOBODY = {"type": "http", "path": "/search", "headers": [], "query_string": b""}


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience; bodies have theirs in ``lifeline.py``.

    ``patience`` is the time in seconds for a head to come, or for some of a waiting answer to be taken;
    ``idle`` has the connections on which nothing is being asked, the one that rests longest first.
    """

    patience = 20.0
    idle: ClassVar[dict[PatientProtocol, None]] = {}
    _head: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None
    _moves = False  # whether the bytes at hand belong to a body, or end a head
    _standing = 0  # bytes that came since something moved

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._asked = deque[RequestResponseCycle]()  # uvicorn itself knows of the latest only
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first of a further request begin the wait for the rest of its head."""
        if self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        self._moves = False
        super().data_received(data)
        self._standing = 0 if self._moves else self._standing + len(data)
        if self._standing > LARGEST_HEAD and not self.transport.is_closing():
            self._refuse(431, _TOO_LARGE)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._moves = True
        self._stop_waiting()
        super().on_headers_complete()
        while self._asked and self._asked[0].response_complete:
            self._asked.popleft()
        self._asked.append(self.cycle)

    def on_body(self, body: bytes) -> None:
        """Take a part of the body."""
        self._moves = True
        super().on_body(body)

    def on_response_complete(self) -> None:
        """Rest until the next request, unless it is there already."""
        super().on_response_complete()
        if self.cycle.response_complete and not self.transport.is_closing():
            self._rest()

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it comes."""
        super().pause_writing()
        self._answer = self.loop.call_later(self.patience, self._abort)

    def resume_writing(self) -> None:
        """The client has taken what was waiting."""
        super().resume_writing()
        if self._answer is not None:
            self._answer.cancel()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing more."""
        self._stop_waiting()
        if self._answer is not None:
            self._answer.cancel()
        self._hang_up()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """Refuse what is no request; earlier requests of the connection get no answer."""
        del msg  # uvicorn's, which is no JSON
        self._refuse(400, _NO_REQUEST)

    def _refuse(self, status: int, why: str) -> None:
        answer = refusal(_NOBODY, HTTPException(status, why), closes=True)
        head = b"".join(b"%b: %b\r\n" % header for header in answer.raw_headers)
        first = f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n".encode()
        self.transport.write(first + head + b"\r\n" + bytes(answer.body))
        self.transport.close()
        self._hang_up()

    def _hang_up(self) -> None:
        """Tell every request of this connection that nobody takes its answer, or it would fail to send it."""
        for cycle in self._asked:
            cycle.disconnected = True
            cycle.message_event.set()
        self._asked.clear()

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.patience, self._abort)
        self._rest()

    def _rest(self) -> None:
        self.idle.setdefault(self)
        if len(self.idle) > MOST_IDLE:
            next(iter(self.idle)).transport.abort()

    def _stop_waiting(self) -> None:
        self.idle.pop(self, None)
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _abort(self) -> None:
        self.transport.abort()
