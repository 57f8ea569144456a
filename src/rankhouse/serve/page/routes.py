"""The routes of the page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.serve.page import ask, document, judge, queries, runs, train, why
from rankhouse.serve.page.asked import Show, Write, view
from rankhouse.serve.page.pools import Pools
from rankhouse.serve.page.render import page, static_routes
from rankhouse.serve.search.asking import Threads

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the page."""
    pools, threads = Pools(service), Threads()

    def at(path: str, show: Show, write: Write | None = None) -> BaseRoute:
        return view(path, threads, partial(_if_searchable, service, show), write)

    return [
        at("/", partial(ask.show, service)),
        at("/why", partial(why.show, service)),
        at("/document", partial(document.show, service)),
        at("/judge", partial(judge.show, service, pools), partial(judge.write, service, pools)),
        at("/queries", partial(queries.show, service)),
        at("/runs", partial(runs.show, service)),
        at("/train", partial(train.show, service), partial(train.write, service)),
        *static_routes(),
    ]


def _if_searchable(service: Service, show: Show, request: Request) -> Response:
    """Return a page, or where there is no index what there is instead."""
    if service.catalogue.indexes:
        return show(request)
    return page(
        request, "rerank_only.html.j2", {"title": "Reranking", "rankers": list(service.catalogue.rankers)}
    )
