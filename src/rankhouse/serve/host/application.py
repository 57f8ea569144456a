"""The application: routes of all rooms of the service, behind its layers."""

from __future__ import annotations

from collections.abc import Callable

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import BaseRoute

from rankhouse.serve.contracts import errors
from rankhouse.serve.contracts.routes import routes as contract_routes
from rankhouse.serve.host import login, metrics, probes
from rankhouse.serve.host.gates import HostGate, KeyGate, OriginGate, SecurityHeaders
from rankhouse.serve.host.journal import Journal
from rankhouse.serve.host.lifeline import Lifelines
from rankhouse.serve.host.service import Service
from rankhouse.serve.judging.routes import routes as judging_routes
from rankhouse.serve.page.faults import handlers
from rankhouse.serve.page.routes import routes as page_routes
from rankhouse.serve.search.routes import routes as search_routes


def _own_routes(service: Service) -> list[BaseRoute]:
    return [
        *probes.routes(service),
        *metrics.routes(service.metrics),
        *login.routes(service.keys, service.audit),
    ]


ROOMS: tuple[Callable[[Service], list[BaseRoute]], ...] = (
    _own_routes,
    contract_routes,
    search_routes,
    judging_routes,
    page_routes,
)
"""What each room of the service answers; the first route that fits a path wins."""


def build_app(service: Service) -> Starlette:
    """Assemble the application of a service.

    Args:
        service: Its parts; handlers find it as ``request.app.state.service``.
    """
    options = service.options
    layers = [
        Middleware(Journal, service.access_log, service.metrics.http),
        Middleware(SecurityHeaders),
        Middleware(HostGate, options.host, options.allow_hosts),
        Middleware(OriginGate, options.allow_hosts),
        Middleware(KeyGate, service.keys),
        Middleware(Lifelines, service),
    ]
    routes = [route for room in ROOMS for route in room(service)]
    app = Starlette(routes=routes, middleware=layers, exception_handlers=handlers(errors.handlers()))
    app.state.service = service
    return app
