"""Searching, documents and explanations as JSON: by POST, and by GET for an address bar."""

from __future__ import annotations

from functools import partial
from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute

from rankhouse.serve.contracts.openapi import Operation, RouteGroup
from rankhouse.serve.contracts.requests import Threads, deadline_of
from rankhouse.serve.search import shapes
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.why import explain

_THREADS: Final = Threads("search")
_SEARCH = partial(Operation, "Search an index", answer=shapes.SearchResponse)
_WHY = partial(Operation, "Say why a document stands where it stands", answer=shapes.ExplainResponse)
_READ = Operation("Read a document", answer=shapes.DocumentResponse, query=shapes.DocumentQuery)
_SYSTEMS = Operation("List the systems of an index", answer=list[shapes.SystemInfo], query=shapes.IndexQuery)


def routes(catalogue: Catalogue) -> list[BaseRoute]:
    """Return the routes of searching."""
    work, wait = RouteGroup(catalogue, "search", _THREADS), RouteGroup(catalogue, "search")
    return [
        wait("POST", "/search", _searched, _SEARCH(body=shapes.SearchBody)),
        wait("GET", "/search", _searched, _SEARCH(query=shapes.SearchBody)),
        wait("POST", "/explain", _explained, _WHY(body=shapes.ExplainBody)),
        wait("GET", "/explain", _explained, _WHY(query=shapes.ExplainBody)),
        work("GET", "/documents/{index}/{id:path}", _document, _READ),
        work("GET", "/api/indexes", _indexes, Operation("List the indexes", answer=list[shapes.IndexInfo])),
        work("GET", "/api/systems", _systems, _SYSTEMS),
    ]


async def _searched(
    catalogue: Catalogue, request: Request, asked: shapes.SearchBody
) -> shapes.SearchResponse:
    return await _THREADS.call(search, catalogue, asked, deadline_of(request, asked.deadline_s))


async def _explained(
    catalogue: Catalogue, request: Request, asked: shapes.ExplainBody
) -> shapes.ExplainResponse:
    why = await _THREADS.call(explain, catalogue, asked, deadline_of(request, asked.deadline_s))
    return shapes.ExplainResponse(why.kind, why.sentence(), why.to_dict())


def _document(catalogue: Catalogue, request: Request, asked: shapes.DocumentQuery) -> shapes.DocumentResponse:
    view, document = read_document(catalogue, request.path_params["index"], request.path_params["id"])
    extra = dict(document.extra)
    response = shapes.DocumentResponse(view.name, document.id, document.title, document.text, extra=extra)
    if asked.query:
        shaded = passages_with_scores(
            catalogue, view, document, asked.query, system=asked.system, deadline=deadline_of(request)
        )
        response.passages, response.unit = shaded.passages, shaded.unit
    return response


def _indexes(catalogue: Catalogue, _request: Request, _asked: None) -> list[shapes.IndexInfo]:
    views = [catalogue.view(name) for name in catalogue.indexes]
    return [
        shapes.IndexInfo(
            one.name, len(one.index), one.index.analyzer.name, one.index.fingerprint,
            systems=list(catalogue.systems(one.name)),
        )
        for one in views
    ]  # fmt: skip


def _systems(catalogue: Catalogue, _request: Request, asked: shapes.IndexQuery) -> list[shapes.SystemInfo]:
    view = catalogue.view(asked.index)
    usual = catalogue.default(view).name
    return [
        shapes.SystemInfo(one.name, one.description or one.system.given, one.ranker, one.name == usual)
        for one in catalogue.systems(view).values()
    ]
