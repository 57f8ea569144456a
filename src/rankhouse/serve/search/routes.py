"""Searching, documents and explanations as JSON: by POST, and by GET for an address bar."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.routing import BaseRoute

from rankhouse.explanation.contrast import Answer
from rankhouse.serve.contracts.openapi import Operation, RouteGroup
from rankhouse.serve.contracts.requests import Threads, deadline_of
from rankhouse.serve.search.answer import Searching, search
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.shapes import (
    DocumentQuery,
    DocumentResponse,
    ExplainBody,
    ExplainResponse,
    IndexInfo,
    IndexQuery,
    SearchBody,
    SearchResponse,
    SystemInfo,
)
from rankhouse.serve.search.why import explain

_THREADS: Final = Threads("search")
_SEARCH, _WHY = "Search an index", "Say why a document stands where it stands"


def routes(service: Searching) -> list[BaseRoute]:
    """Return the routes of searching."""
    work, wait = RouteGroup(service, "search", _THREADS), RouteGroup(service, "search")
    return [
        wait("POST", "/search", _searched, Operation(_SEARCH, SearchBody, SearchResponse)),
        wait("GET", "/search", _searched, Operation(_SEARCH, answer=SearchResponse, query=SearchBody)),
        wait("POST", "/explain", _explained, Operation(_WHY, ExplainBody, ExplainResponse)),
        wait("GET", "/explain", _explained, Operation(_WHY, answer=ExplainResponse, query=ExplainBody)),
        work("GET", "/documents/{index}/{id:path}", _document,
             Operation("Read a document", answer=DocumentResponse, query=DocumentQuery)),
        work("GET", "/api/indexes", _indexes, Operation("List the indexes", answer=list[IndexInfo])),
        work("GET", "/api/systems", _systems,
             Operation("List the systems of an index", answer=list[SystemInfo], query=IndexQuery)),
    ]  # fmt: skip


async def _searched(service: Searching, request: Request, asked: SearchBody) -> SearchResponse:
    return await _THREADS.call(search, service, asked, deadline_of(request, asked.deadline_s))


async def _explained(service: Searching, request: Request, asked: ExplainBody) -> ExplainResponse:
    deadline = deadline_of(request, asked.deadline_s)
    return explain_response(await _THREADS.call(explain, service, asked, deadline))


def explain_response(told: Answer) -> ExplainResponse:
    """Return an answer to "why?" as JSON."""
    kinds = {"Explanation": "explanation", "Contrast": "contrast", "Movement": "movement"}
    return ExplainResponse(kinds.get(type(told).__name__, "ranking"), told.sentence(), told.to_dict())


def _document(service: Searching, request: Request, asked: DocumentQuery) -> DocumentResponse:
    view, document = read_document(service, request.path_params["index"], request.path_params["id"])
    extra = dict(document.extra)
    told = DocumentResponse(view.name, document.id, document.title, document.text, extra=extra)
    if asked.query:
        shaded = passages_with_scores(
            service, view, document, asked.query, system=asked.system, deadline=deadline_of(request)
        )
        told.passages, told.unit = shaded.passages, shaded.unit
    return told


def _indexes(service: Searching, _request: Request, _asked: None) -> list[IndexInfo]:
    views = [service.catalogue.view(name) for name in service.catalogue.indexes]
    return [
        IndexInfo(
            view.name,
            documents=len(view.index),
            analyzer=view.index.analyzer.name,
            fingerprint=view.index.fingerprint,
            systems=list(service.catalogue.systems(view.name)),
        )
        for view in views
    ]


def _systems(service: Searching, _request: Request, asked: IndexQuery) -> list[SystemInfo]:
    found = service.catalogue.systems(asked.index).values()
    return [SystemInfo(one.name, one.description or str(one.system), one.ranker) for one in found]
