"""Probes: whether the process lives, and whether it can take work."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.serve.contracts.bodies import answer
from rankhouse.serve.contracts.errors import ErrorBody
from rankhouse.serve.contracts.openapi import Operation, describe
from rankhouse.serve.host.service import Phase, Service

PATHS = frozenset({"/healthz", "/readyz"})
"""What may be asked without a key, under any name of the host, and while the service drains."""

_UNCACHED = {"cache-control": "no-store"}


class Standing(msgspec.Struct, frozen=True):
    """Where a service stands: "ok", or for readiness "starting", "ready", "draining", "failed"."""

    status: str


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the probes."""

    async def alive(request: Request) -> Response:
        del request
        return answer(Standing("ok"), headers=_UNCACHED)

    async def ready(request: Request) -> Response:
        del request
        is_ready = service.phase is Phase.READY
        if is_ready and not all(one.worker.alive for one in service.catalogue.rankers.values()):
            return answer(Standing("failed"), 503, _UNCACHED)
        return answer(Standing(str(service.phase)), 200 if is_ready else 503, _UNCACHED)

    lives = Operation("Whether the process lives", answer=Standing, tag="service")
    takes = Operation(
        "Whether the service takes work", answer=Standing, refusals=(ErrorBody, Standing), tag="service"
    )
    return [describe("/healthz", alive, "GET", lives), describe("/readyz", ready, "GET", takes)]
