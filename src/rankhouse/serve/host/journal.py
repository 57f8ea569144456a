"""Log of requests: a line of JSON each (the access log), and counts for Prometheus.

The access log never holds questions, texts or keys: paths without their query, sizes, times, names. Each
service has a registry of counts of its own.
"""

from __future__ import annotations

import logging
import logging.handlers
import sys
import time
import traceback
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from rankhouse.core import progress
from rankhouse.core.errors import visible
from rankhouse.io.outputs import append_whole, writing_failures
from rankhouse.serve.errors import refusal
from rankhouse.serve.search.catalogue import Catalogue

if TYPE_CHECKING:
    from rankhouse.serve.engine.jobs import Times


# When each counter began is half of the page, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client has no type for it

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})
_HUNG_UP = 499  # as nginx counts clients that went away


class Queues(Collector):
    """Length of each model's queue, asked when Prometheus asks."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges."""
        tokens = GaugeMetricFamily("rankhouse_queue_tokens", "Tokens that wait.", labels=["model"])
        jobs = GaugeMetricFamily("rankhouse_queue_requests", "Pieces of work that wait.", labels=["model"])
        rate = GaugeMetricFamily("rankhouse_tokens_per_second", "Tokens computed, lately.", labels=["model"])
        for name, ranker in self._catalogue.rankers.items():
            worker = ranker.worker
            tokens.add_metric([name], worker.waiting_tokens)
            jobs.add_metric([name], worker.waiting_jobs)
            rate.add_metric([name], worker.rate)
        yield from (tokens, jobs, rate)


class ServiceMetrics:
    """Everything that a service counts; it observes the workers of its models."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        count, measure = partial(Counter, registry=registry), partial(Histogram, registry=registry)
        self._requests = count("rankhouse_requests", "Requests answered.", ("route", "method", "status"))
        self._seconds = measure(
            "rankhouse_request_seconds", "Seconds from a request's head to the end of its answer.",
            ("route",), buckets=SECONDS,
        )  # fmt: skip
        self.open = Gauge("rankhouse_requests_in_progress", "Requests in progress.", registry=registry)
        self._stage = measure(
            "rankhouse_model_seconds", "Seconds of a piece of work, by where they went.",
            ("model", "stage"), buckets=SECONDS,
        )  # fmt: skip
        self._batch_seconds = measure(
            "rankhouse_batch_seconds", "Seconds of a batch.", ("model",), buckets=SECONDS
        )
        self._rows = measure(
            "rankhouse_batch_passages", "Passages or texts of a batch.",
            ("model",), buckets=[2**i for i in range(12)],
        )  # fmt: skip
        self._tokens = measure(
            "rankhouse_batch_tokens", "Tokens of a batch.", ("model",), buckets=[2**i for i in range(6, 18)]
        )
        self._lost = count("rankhouse_truncated_tokens", "Tokens that did not fit.", ("model",))
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def batch(self, model: str, rows: int, tokens: int, lost: int, seconds: float) -> None:
        """Count a batch of a model."""
        self._rows.labels(model).observe(rows)
        self._tokens.labels(model).observe(tokens)
        self._batch_seconds.labels(model).observe(seconds)
        self._lost.labels(model).inc(lost)

    def job(self, model: str, times: Times) -> None:
        """Count a piece of work that is finished."""
        for stage, seconds in zip(("queue", "tokenise", "compute"), times, strict=True):
            self._stage.labels(model, stage).observe(seconds)

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request: by its route's path, "" if none fitted, so that foreign paths make no series."""
        self._requests.labels(route or "none", method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route or "none").observe(seconds)


class _WholeLines(logging.handlers.WatchedFileHandler):
    """A file whose lines are whole or absent, however full the disk is."""

    def emit(self, record: logging.LogRecord) -> None:
        """Append a line, or raise an OSError."""
        self.reopenIfNeeded()
        if self.stream is not None:
            append_whole(self.stream.fileno(), f"{record.getMessage()}\n".encode(), synced=False)


class JsonLines:
    """A file that gets lines of JSON; a new one is made where it was moved away (logrotate).

    Where it cannot be written, lines are left out, and one message says so.
    """

    def __init__(self, path: Path | None) -> None:
        self._handler: logging.Handler | None = None
        self._path, self._fails = path, False
        if path is not None and str(path) == "-":
            self._handler = logging.StreamHandler(sys.stderr)
        elif path is not None:
            with writing_failures(path):
                path.parent.mkdir(parents=True, exist_ok=True)
                self._handler = _WholeLines(path, encoding="utf-8")

    @property
    def are_kept(self) -> bool:
        """Whether lines are written anywhere."""
        return self._handler is not None

    def write(self, record: Mapping[str, object]) -> None:
        """Write one line, with the time."""
        if self._handler is not None:
            now = datetime.now(UTC).isoformat(timespec="milliseconds")
            line = visible(msgspec.json.encode({"time": now, **record}).decode())
            try:
                self._handler.handle(logging.makeLogRecord({"msg": line}))
                self._fails = False
            except OSError as error:
                if not self._fails:
                    progress.say(f"{self._path}: cannot be written ({error}); requests are not logged")
                self._fails = True

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
        with self._metrics.open.track_inprogress():
            try:
                await self._app(scope, receive, entry.send)
            except Exception as error:  # noqa: BLE001 - whatever it is, it is logged and the service goes on
                entry.fault = "".join(traceback.format_exception(error))
                if not entry.status:
                    await refusal(scope, error)(scope, receive, entry.send)
            finally:
                self._metrics.request(entry.route, entry.method, entry.final_status, entry.seconds)
                if entry.fault:  # before the line that sends an operator to look for it
                    progress.say(f"request {entry.id} failed:\n{entry.fault}")
                if self._lines.are_kept:
                    self._lines.write(entry.record())


class _LogEntry:
    """Facts about one request."""

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
        """Seconds that the request has taken so far."""
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
