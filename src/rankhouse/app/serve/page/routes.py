"""The routes of the page."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from starlette.routing import BaseRoute

from rankhouse.app.serve.page import ask, document, judge, queries, runs, train, why
from rankhouse.app.serve.page.asked import view
from rankhouse.app.serve.page.render import static_routes

if TYPE_CHECKING:
    from rankhouse.app.serve.host.service import Service


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of the page.

    Args:
        service: What is served.
    """
    return [
        view("/", partial(ask.show, service)),
        view("/why", partial(why.show, service)),
        view("/document", partial(document.show, service)),
        view("/judge", partial(judge.show, service), partial(judge.write, service)),
        view("/queries", partial(queries.show, service)),
        view("/runs", partial(runs.show, service)),
        view("/train", partial(train.show, service), partial(train.write, service)),
        *static_routes(),
    ]
