"""What is counted, for Prometheus; each service has a registry of its own."""

from __future__ import annotations

from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.platform_collector import PlatformCollector
from prometheus_client.process_collector import ProcessCollector
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class HttpMetrics:
    """Counts requests.

    Args:
        registry: Where they are counted.
    """

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
            method: GET, POST ...
            status: Of the answer; 499 for a client that hung up.
            seconds: How long it took.
        """
        known = method if method in {"GET", "HEAD", "POST", "PUT", "DELETE", "PATCH", "OPTIONS"} else "other"
        self._requests.labels(route or "none", known, str(status)).inc()
        self._seconds.labels(route or "none").observe(seconds)


class Metrics:
    """All that a service counts.

    Attributes:
        registry: Where it is counted; rooms of the service add their own collectors.
        http: Requests.
    """

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.http = HttpMetrics(self.registry)
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)


def routes(metrics: Metrics) -> list[BaseRoute]:
    """Return the route that Prometheus reads."""

    async def exposition(request: Request) -> Response:
        del request
        return Response(generate_latest(metrics.registry), media_type=CONTENT_TYPE_LATEST)

    return [Route("/metrics", exposition)]
