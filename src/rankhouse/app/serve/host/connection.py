"""Connections that stand still are closed: heads that do not come, answers that are not taken."""

from __future__ import annotations

import asyncio

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class PatientProtocol(HttpToolsProtocol):
    """uvicorn's protocol, with an end to its patience; bodies have theirs in ``lifeline.py``.

    Attributes:
        patience: Seconds in which a head must have come, or some of a waiting answer be taken.
    """

    patience = 20.0
    _head: asyncio.TimerHandle | None = None
    _answer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._await_head()

    def data_received(self, data: bytes) -> None:
        """Take bytes; the first of a further request begin the wait for the rest of its head."""
        if self._head is None and (self.cycle is None or self.cycle.response_complete):
            self._await_head()
        super().data_received(data)

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._stop_waiting()
        super().on_headers_complete()

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
        super().connection_lost(exc)

    def _await_head(self) -> None:
        self._head = self.loop.call_later(self.patience, self._abort)

    def _stop_waiting(self) -> None:
        if self._head is not None:
            self._head.cancel()
            self._head = None

    def _abort(self) -> None:
        if not self.transport.is_closing() or self.flow.write_paused:
            self.transport.abort()
