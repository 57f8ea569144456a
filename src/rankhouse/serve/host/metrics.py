"""What is counted, for Prometheus; each service has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

# When each counter began is half of the page, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client has no type for it

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Times(Protocol):
    """Where the time of a piece of work went, in seconds."""

    @property
    def queued(self) -> float:
        """Waiting."""
        ...

    @property
    def reading(self) -> float:
        """Texts made ids."""
        ...

    @property
    def computing(self) -> float:
        """Batches that held some of it."""
        ...


class Queue(Protocol):
    """What waits for a model."""

    @property
    def waiting_tokens(self) -> int:
        """Tokens not begun."""
        ...

    @property
    def waiting_jobs(self) -> int:
        """Pieces of work not finished."""
        ...

    @property
    def rate(self) -> float:
        """Tokens computed a second, lately."""
        ...


class HttpMetrics:
    """Counts requests."""

    def __init__(self, registry: CollectorRegistry) -> None:
        labels = ("route", "method", "status")
        self._requests = Counter("rankhouse_requests", "Requests answered.", labels, registry=registry)
        self._seconds = Histogram(
            "rankhouse_request_seconds", "Seconds from a request's head to the end of its answer.",
            ("route",), buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._open = Gauge("rankhouse_requests_in_progress", "Requests in progress.", registry=registry)

    def in_progress(self) -> AbstractContextManager[object]:
        """Count a request as in progress while a block runs."""
        return self._open.track_inprogress()

    def note(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request.

        Args:
            route: The path of its route; "" if none fitted, so that foreign paths make no series.
            status: Of the answer; 499 for a client that hung up.
        """
        known = method if method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} else "other"
        self._requests.labels(route or "none", known, str(status)).inc()
        self._seconds.labels(route or "none").observe(seconds)


class ModelMetrics:
    """Counts what models do; each served ranker's worker tells it."""

    def __init__(self, registry: CollectorRegistry) -> None:
        seconds = Histogram(
            "rankhouse_model_seconds", "Seconds of a piece of work, by where they went.",
            ("model", "stage"), buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._stage = seconds.labels
        self._batch_seconds = Histogram(
            "rankhouse_batch_seconds", "Seconds of a batch.", ("model",), buckets=SECONDS, registry=registry
        )
        self._rows = Histogram(
            "rankhouse_batch_passages", "Passages or texts of a batch.",
            ("model",), buckets=[2**i for i in range(12)], registry=registry,
        )  # fmt: skip
        self._tokens = Histogram(
            "rankhouse_batch_tokens", "Tokens of a batch.",
            ("model",), buckets=[2**i for i in range(6, 18)], registry=registry,
        )  # fmt: skip
        self._lost = Counter(
            "rankhouse_truncated_tokens", "Tokens that did not fit.", ("model",), registry=registry
        )

    def batch(self, model: str, rows: int, tokens: int, lost: int, seconds: float) -> None:
        """Count a batch."""
        self._rows.labels(model).observe(rows)
        self._tokens.labels(model).observe(tokens)
        self._batch_seconds.labels(model).observe(seconds)
        self._lost.labels(model).inc(lost)

    def job(self, model: str, times: Times) -> None:
        """Count a piece of work that is finished."""
        self._stage(model, "queue").observe(times.queued)
        self._stage(model, "tokenise").observe(times.reading)
        self._stage(model, "compute").observe(times.computing)


class Queues(Collector):
    """What waits for each model, asked when Prometheus asks."""

    def __init__(self, workers: Callable[[], Iterable[tuple[str, Queue]]]) -> None:
        self._workers = workers

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Return the gauges."""
        tokens = GaugeMetricFamily("rankhouse_queue_tokens", "Tokens that wait.", labels=["model"])
        jobs = GaugeMetricFamily("rankhouse_queue_requests", "Pieces of work that wait.", labels=["model"])
        rate = GaugeMetricFamily("rankhouse_tokens_per_second", "Tokens computed, lately.", labels=["model"])
        for name, worker in self._workers():
            tokens.add_metric([name], worker.waiting_tokens)
            jobs.add_metric([name], worker.waiting_jobs)
            rate.add_metric([name], worker.rate)
        yield from (tokens, jobs, rate)


class Metrics:
    """All that a service counts.

    Attributes:
        registry: Where it is counted; rooms of the service add their own collectors.
        http: Requests.
        models: What rankers do.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http = HttpMetrics(self.registry)
        self.models = ModelMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)


def routes(metrics: Metrics) -> list[BaseRoute]:
    """Return the route that Prometheus reads."""

    async def exposition(request: Request) -> Response:
        del request
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", exposition)]
