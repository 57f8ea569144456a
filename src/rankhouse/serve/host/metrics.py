"""What is counted, for Prometheus; each service has a registry of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from prometheus_client.registry import Collector

if TYPE_CHECKING:
    from rankhouse.serve.engine.jobs import BatchWorker, Times

# When each counter began is half of the page, and nobody asks.
disable_created_metrics()  # type: ignore[no-untyped-call]  # prometheus_client has no type for it

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"})


class ModelMetrics:
    """Counts what models do: the observer of each served ranker's worker."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._stage = Histogram(
            "rankhouse_model_seconds", "Seconds of a piece of work, by where they went.",
            ("model", "stage"), buckets=SECONDS, registry=registry,
        )  # fmt: skip
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
        for stage, seconds in zip(("queue", "tokenise", "compute"), times, strict=True):
            self._stage.labels(model, stage).observe(seconds)


class Queues(Collector):
    """What waits for each model, asked when Prometheus asks."""

    def __init__(self, workers: Callable[[], Iterable[tuple[str, BatchWorker]]]) -> None:
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


class ServiceMetrics:
    """Everything that a service counts."""

    def __init__(self) -> None:
        registry = self.registry = CollectorRegistry()
        self._requests = Counter(
            "rankhouse_requests", "Requests answered.", ("route", "method", "status"), registry=registry
        )
        self._seconds = Histogram(
            "rankhouse_request_seconds", "Seconds from a request's head to the end of its answer.",
            ("route",), buckets=SECONDS, registry=registry,
        )  # fmt: skip
        self._open = Gauge("rankhouse_requests_in_progress", "Requests in progress.", registry=registry)
        self.models = ModelMetrics(registry)
        ProcessCollector(registry=registry)
        PlatformCollector(registry=registry)

    def in_progress(self) -> AbstractContextManager[object]:
        """Count a request as in progress while a block runs."""
        return self._open.track_inprogress()

    def request(self, route: str, method: str, status: int, seconds: float) -> None:
        """Count a request: by its route's path, "" if none fitted, so that foreign paths make no series."""
        self._requests.labels(route or "none", method if method in _METHODS else "other", str(status)).inc()
        self._seconds.labels(route or "none").observe(seconds)
