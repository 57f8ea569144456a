"""The routes of the page."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route

from rankhouse.serve.contracts.requests import Threads, answer
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page import ask, collection, document, files, judge, queries, runs, train, why
from rankhouse.serve.page.judge import Pools
from rankhouse.serve.page.render import FormWork, page, static_routes, view

Show = Callable[[ServedCollection, Request, Any], Response]


def routes(service: ServedCollection) -> list[BaseRoute]:
    """Return the routes of the page."""
    pools, threads = Pools(service.catalogue), Threads("page")

    def at(path: str, fields: type[Struct], show: Show, form: FormWork | None = None) -> BaseRoute:
        return view(path, threads, fields, partial(_if_searchable, service, show), form=form)

    judging = FormWork(judge.JudgeForm, partial(judge.write, pools, service))
    return [
        at("/", ask.AskFields, ask.show),
        at("/why", why.WhyFields, why.show),
        at("/document", document.DocumentFields, document.show),
        at("/judge", judge.JudgeFields, partial(judge.show, pools), judging),
        at("/queries", queries.QueriesFields, queries.show),
        at("/runs", runs.RunsFields, runs.show),
        at("/train", Struct, train.show, FormWork(train.TrainForm, partial(train.write, service))),
        at("/collection", collection.CollectionFields, collection.show),
        at("/files", files.FilesFields, files.show),
        Route("/work", partial(_work, service)),
        *static_routes(),
    ]


async def _work(service: ServedCollection, _request: Request) -> Response:
    """Answer the page's script, which asks how far the work beside is."""
    return answer(service.work._asdict(), headers={"cache-control": "no-store"})


def _if_searchable(service: ServedCollection, show: Show, request: Request, asked: Struct) -> Response:
    """Return a page, or where there is no index what there is instead."""
    if service.catalogue.indexes:
        return show(service, request, asked)
    content = {"title": "Reranking", "rankers": list(service.catalogue.rankers)}
    return page(request, "rerank_only.html.j2", content)
