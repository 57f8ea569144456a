"""Searching, documents and explanations as JSON: by POST, and by GET for whoever has an address bar only."""

from __future__ import annotations

from functools import partial

from starlette.requests import Request
from starlette.routing import BaseRoute

from rankhouse.explanation.contrast import Answer
from rankhouse.serve.contracts.openapi import Operation, described
from rankhouse.serve.contracts.requests import Threads, deadline_of
from rankhouse.serve.search.answer import Searching, search
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.shapes import (
    EXPLAINING,
    SEARCHING,
    DocumentQuery,
    DocumentResponse,
    ExplainBody,
    ExplainResponse,
    IndexInfo,
    SearchBody,
    SearchResponse,
    SystemInfo,
    SystemsQuery,
)
from rankhouse.serve.search.why import explain

_SEARCH = partial(Operation, "Search an index", answer=SearchResponse, tag="search")
_WHY = partial(Operation, "Say why a document stands where it stands", answer=ExplainResponse, tag="search")
_READ = Operation("Read a document", answer=DocumentResponse, query=DocumentQuery, tag="search")
_INDEXES = Operation("List the indexes", answer=list[IndexInfo], tag="search")
_SYSTEMS = Operation(
    "List the systems of an index", answer=list[SystemInfo], query=SystemsQuery, tag="search"
)


def routes(service: Searching) -> list[BaseRoute]:
    """Return the routes of searching."""
    threads = Threads("search")

    async def searched(request: Request, asked: SearchBody) -> SearchResponse:
        return await threads.call(search, service, asked, deadline_of(request, asked.deadline_s))

    async def explained(request: Request, asked: ExplainBody) -> ExplainResponse:
        deadline = deadline_of(request, asked.deadline_s)
        return explain_response(await threads.call(explain, service, asked, deadline))

    return [
        described("POST", "/search", searched, _SEARCH(body=SearchBody)),
        described("GET", "/search", searched, _SEARCH(query=SEARCHING, reads=SearchBody)),
        described("POST", "/explain", explained, _WHY(body=ExplainBody)),
        described("GET", "/explain", explained, _WHY(query=EXPLAINING, reads=ExplainBody)),
        described("GET", "/documents/{index}/{id:path}", partial(_document, service), _READ, threads),
        described("GET", "/api/indexes", partial(_indexes, service), _INDEXES, threads),
        described("GET", "/api/systems", partial(_systems, service), _SYSTEMS, threads),
    ]


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
            service, view.name, document.id, asked.query, system=asked.system, deadline=deadline_of(request)
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


def _systems(service: Searching, _request: Request, asked: SystemsQuery) -> list[SystemInfo]:
    found = service.catalogue.systems(asked.index).values()
    return [SystemInfo(one.name, one.described(), one.ranker) for one in found]
