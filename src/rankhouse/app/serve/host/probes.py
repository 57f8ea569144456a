"""Probes: whether the process lives, and whether it can take work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route

from rankhouse.app.serve.host.service import Phase, Service

if TYPE_CHECKING:
    from collections.abc import Mapping

PATHS = frozenset({"/healthz", "/readyz"})
"""What may be asked without a key, under any name of the host, and while the service drains."""

_UNCACHED: Mapping[str, str] = {"cache-control": "no-store"}


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the probes.

    Args:
        service: The service they ask.
    """

    async def alive(request: Request) -> Response:
        del request
        return JSONResponse({"status": "ok"}, headers=_UNCACHED)

    async def ready(request: Request) -> Response:
        del request
        is_ready = service.phase is Phase.READY
        return JSONResponse({"status": str(service.phase)}, 200 if is_ready else 503, headers=_UNCACHED)

    return [Route("/healthz", alive), Route("/readyz", ready)]
