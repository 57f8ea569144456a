"""The application: routes of all rooms of the service, behind its middlewares."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.routing import BaseRoute

from rankhouse.app.serve.host import probes
from rankhouse.app.serve.host.service import Service

ROOMS: tuple[Callable[[Service], list[BaseRoute]], ...] = (probes.routes,)
"""What each room of the service answers; the first route that fits a path wins."""


def build_app(service: Service) -> Starlette:
    """Assemble the application of a service.

    Args:
        service: Its parts; handlers find it as ``request.app.state.service``.
    """
    app = Starlette(routes=[route for room in ROOMS for route in room(service)])
    app.state.service = service
    return app
