"""The application: the routes of all groups behind the layers that guard them, and the host's own routes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

import msgspec
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Route, Router
from starlette.types import Receive, Scope, Send

from rankhouse.serve import errors
from rankhouse.serve.contracts.openapi import Operation, RouteGroup
from rankhouse.serve.contracts.requests import Threads, answer
from rankhouse.serve.contracts.routes import routes as contract_routes
from rankhouse.serve.host import gates
from rankhouse.serve.host.gates import LOGIN, LOGOUT, Gate
from rankhouse.serve.host.journal import Journal
from rankhouse.serve.host.lifeline import Lifelines
from rankhouse.serve.host.service import Phase, Service
from rankhouse.serve.judging.routes import routes as judging_routes
from rankhouse.serve.page.render import error_page, read_form, sign_in_page
from rankhouse.serve.page.routes import routes as page_routes
from rankhouse.serve.search.routes import routes as search_routes

_THREADS = Threads("sign-in", 4)
_UNCACHED = {"cache-control": "no-store"}
_WAIT = 0.5  # seconds before a wrong key is answered


def build_app(service: Service) -> Starlette:
    """Assemble the application of a service; handlers find it as ``request.app.state.service``."""
    options = service.options
    layers = [
        Middleware(Journal, service.access_log, service.metrics),
        Middleware(gates.SecurityHeaders),
        Middleware(Gate, gates.foreign_host(options.host, options.allow_hosts)),
        Middleware(Gate, gates.foreign_page(options.allow_hosts)),
        Middleware(Gate, gates.keyless(service.keys)),
        Middleware(Lifelines, service),
    ]
    routes = [route for group in GROUPS for route in group(service)]
    app = Starlette(middleware=layers, exception_handlers=errors.handlers(error_page))
    app.router = RouterByPath(routes)
    app.state.service = service
    return app


class RouterByPath(Router):
    """Starlette's router, which for a path without parameters tries only the routes that fit it."""

    def __init__(self, routes: list[BaseRoute]) -> None:
        super().__init__(routes)
        known = [route for route in routes if isinstance(route, Route)]
        self._routers = {
            path: Router([route for route in known if route.path_regex.match(path)])
            for path in {route.path for route in known if not route.param_convertors}
        }

    async def app(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; see ASGI."""
        router = self._routers.get(scope.get("path", ""))
        await (super().app if router is None else router.app)(scope, receive, send)


class Standing(msgspec.Struct, frozen=True, omit_defaults=True):
    """State of a service: "ok", or for readiness "starting", "ready", "draining", "failed".

    ``work`` says what is still to come of a folder, "" for nothing.
    """

    status: str
    work: str = ""


def own_routes(service: Service) -> list[BaseRoute]:
    """Return the routes of probes, of what Prometheus reads, and of signing in and out."""
    group = RouteGroup(service, "service")
    lives = Operation("Whether the process lives", answer=Standing)
    takes = Operation(
        "Whether the service takes work", answer=Standing, refusals=(errors.ErrorBody, Standing)
    )
    return [
        group("GET", "/healthz", _alive, lives),
        group("GET", "/readyz", _ready, takes),
        Route("/metrics", partial(_metrics, service)),
        Route(LOGIN, partial(_sign_in, service, asyncio.Lock()), methods=["GET", "POST"]),
        Route(LOGOUT, partial(_sign_out, service), methods=["POST"]),
    ]


async def _alive(_service: Service, _request: Request, _asked: None) -> Response:
    return answer(Standing("ok"), headers=_UNCACHED)


async def _ready(service: Service, _request: Request, _asked: None) -> Response:
    is_ready = service.phase is Phase.READY
    if is_ready and not all(one.worker.alive for one in service.catalogue.rankers.values()):
        return answer(Standing("failed"), 503, _UNCACHED)
    work = "" if service.phase is Phase.DRAINING else service.work.sentence
    return answer(Standing(str(service.phase), work), 200 if is_ready else 503, _UNCACHED)


async def _metrics(service: Service, _request: Request) -> Response:
    return Response(generate_latest(service.metrics.registry), media_type=CONTENT_TYPE_LATEST)


async def _sign_in(service: Service, guard: asyncio.Lock, request: Request) -> Response:
    """Take a key once; a cookie stands for it from then on. The guard allows one guess at a time."""
    if (keys := service.keys) is None:
        return RedirectResponse("/", 303)
    if request.method != "POST":
        return sign_in_page(LOGIN, _inside(request.query_params.get("next", "")))
    given = await read_form(request)
    there, caller = _inside(given.get("next", "")), keys.caller(given.get("key", ""))
    client, audit = request.client.host if request.client else "", service.audit
    if caller is None:
        async with guard:
            await asyncio.sleep(_WAIT)
        await _THREADS.call(partial(audit.record, "refused", "nobody", client=client))
        return sign_in_page(LOGIN, there, "That key is not valid.")
    await _THREADS.call(partial(audit.record, "sign in", caller.name, client=client))
    response = RedirectResponse(there, 303)
    response.set_cookie(
        keys.cookie, keys.session(caller), gates.SESSION_SECONDS,
        httponly=True, samesite="strict", secure=request.url.scheme == "https",
    )  # fmt: skip
    return response


async def _sign_out(service: Service, _request: Request) -> Response:
    response = RedirectResponse(LOGIN, 303)
    if service.keys is not None:
        response.delete_cookie(service.keys.cookie, httponly=True, samesite="strict")
    return response


def _inside(there: str) -> str:
    """Return a path of this service; anything else, another site above all, becomes the first page."""
    try:
        parts = urlsplit(there)
    except ValueError:
        return "/"
    is_path = there.startswith("/") and not there.startswith(("//", "/\\")) and there.isprintable()
    return there if is_path and not parts.netloc and not parts.scheme else "/"


GROUPS: tuple[Callable[[Service], list[BaseRoute]], ...] = (
    own_routes,
    lambda service: contract_routes(lambda: service.catalogue.rankers),
    lambda service: search_routes(service.catalogue),
    judging_routes,
    page_routes,
)
"""The routes of each group; the first route that fits a path wins."""
