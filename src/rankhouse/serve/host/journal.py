"""The journal: a line of JSON a request (access log), and one a judgement, training or wrong key (audit).

The access log never holds questions, texts or keys: paths without their query, sizes, times, names.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
import traceback
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankhouse.core.errors import visible
from rankhouse.io.outputs import writing_failures
from rankhouse.serve.errors import refusal
from rankhouse.serve.host.metrics import ServiceMetrics

_HUNG_UP = 499  # as nginx counts clients that went away


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


class JsonLines:
    """A file that gets lines of JSON; a new one is made where it was moved away (logrotate)."""

    def __init__(self, path: Path | None) -> None:
        self._handler: logging.Handler | None = None
        if path is not None and str(path) == "-":
            self._handler = logging.StreamHandler(sys.stderr)
        elif path is not None:
            with writing_failures(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._handler = logging.handlers.WatchedFileHandler(path, encoding="utf-8")

    def write(self, record: Mapping[str, object]) -> None:
        """Write one line, with the time."""
        if self._handler is not None:
            line = visible(msgspec.json.encode({"time": _now(), **record}).decode())
            self._handler.handle(logging.makeLogRecord({"msg": line}))

    def close(self) -> None:
        """Close the file."""
        if isinstance(self._handler, logging.FileHandler):
            self._handler.close()
        self._handler = None


class Journal:
    """The outermost layer: names each request, counts it, logs it, and turns a fault of ours into a 500."""

    def __init__(self, app: ASGIApp, lines: JsonLines, metrics: ServiceMetrics) -> None:
        self._app, self._lines, self._metrics = app, lines, metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        entry = _LogEntry(scope, send)
        with self._metrics.in_progress():
            try:
                await self._app(scope, receive, entry.send)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is logged and the service goes on
                entry.fault = "".join(traceback.format_exception(error))
                if not entry.status:
                    await refusal(scope, error)(scope, receive, entry.send)
            finally:
                self._note(entry)

    def _note(self, entry: _LogEntry) -> None:
        self._metrics.request(entry.route, entry.method, entry.final_status, entry.seconds)
        if entry.fault:  # before the line that sends an operator to look for it
            sys.stderr.write(f"request {entry.id} failed:\n{entry.fault}")
        self._lines.write(entry.record())


class _LogEntry:
    """What is known of one request."""

    def __init__(self, scope: Scope, send: Send) -> None:
        self._scope, self._send, self._state = scope, send, scope.setdefault("state", {})
        self._begun = time.perf_counter()
        self.status, self._bytes_out, self.fault = 0, 0, ""
        given = Headers(scope=scope).get("x-request-id", "")
        is_sane = 0 < len(given) <= 64 and given.isascii() and given.replace("-", "").isalnum()
        self.id = given if is_sane else uuid.uuid4().hex
        self._state["request_id"] = self.id
        self._state["facts"] = {}

    async def send(self, message: Message) -> None:
        """Send a part of the answer; the first gets the request's id."""
        if message["type"] == "http.response.start":
            self.status = message["status"]
            MutableHeaders(scope=message).setdefault("x-request-id", self.id)
        else:
            self._bytes_out += len(message.get("body", b""))
        await self._send(message)

    @property
    def method(self) -> str:
        """The HTTP method."""
        return str(self._scope["method"])

    @property
    def route(self) -> str:
        """The path of the route that answered, with the names of its parameters; "" if none did."""
        return str(getattr(self._scope.get("route"), "path", ""))

    @property
    def final_status(self) -> int:
        """The status that was sent; 499 for a client that hung up first."""
        return _HUNG_UP if self._state.get("hung_up") else self.status or 500

    @property
    def seconds(self) -> float:
        """How long the request has taken so far."""
        return time.perf_counter() - self._begun

    def record(self) -> dict[str, object]:
        """Return the line of the access log; handlers add to ``request.state.facts``."""
        client, caller = self._scope.get("client"), self._state.get("caller")
        return {
            "id": self.id,
            "client": client[0] if client else "",
            "who": caller.name if caller else "",
            "method": self.method,
            "path": self._scope["path"],
            "status": self.final_status,
            "ms": round(1000 * self.seconds, 1),
            "in": self._state.get("bytes_in", 0),
            "out": self._bytes_out,
            **self._state["facts"],
        }
