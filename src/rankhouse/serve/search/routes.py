"""Searching, documents and explanations as JSON: by POST, and by GET for whoever has an address bar only."""

from __future__ import annotations

from typing import TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.explanation.contrast import Answer
from rankhouse.serve.contracts.bodies import answer, from_query, read_body
from rankhouse.serve.contracts.openapi import Operation, describe
from rankhouse.serve.contracts.requests import Threads, deadline_of
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.search.answer import SearchAnswer, Searching, SearchRequest, search
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.shapes import (
    EXPLAINING,
    READING,
    SEARCHING,
    DocumentPassage,
    DocumentQuery,
    DocumentResponse,
    ExplainBody,
    ExplainResponse,
    IndexInfo,
    SearchBody,
    SearchHit,
    SearchResponse,
    SystemInfo,
)
from rankhouse.serve.search.why import PASSES, ExplainRequest, explain

T = TypeVar("T")


def routes(service: Searching) -> list[BaseRoute]:
    """Return the routes of searching."""
    threads = Threads("search")

    async def searched(request: Request) -> Response:
        body = await _asked(request, SearchBody)
        wanted = SearchRequest(
            body.query, body.system or "", body.index or "", body.k or 10,
            body.snippets is not False, body.deadline_s, body.spec(), body.partial,
        )  # fmt: skip
        deadline = deadline_of(request, body.deadline_s)
        return answer(_search_response(await threads.call(search, service, wanted, deadline)))

    async def explained(request: Request) -> Response:
        body = await _asked(request, ExplainBody)
        wanted = ExplainRequest(
            body.query, body.document or "", body.system or "", body.index or "", body.against or "",
            body.before or "", body.top, body.method or "", body.unit or "", body.passes or PASSES,
            body.deadline_s, body.spec(),
        )  # fmt: skip
        told = await threads.call(explain, service, wanted, deadline_of(request, body.deadline_s))
        return answer(explain_response(told))

    async def document(request: Request) -> Response:
        index, doc_id = request.path_params["index"], request.path_params["id"]
        asked = from_query(request.query_params, DocumentQuery)
        deadline = deadline_of(request)
        return answer(await threads.call(_document, service, (index, doc_id), asked, deadline))

    async def indexes(request: Request) -> Response:  # noqa: ARG001 - as starlette calls handlers
        return answer(await threads.call(_indexes, service))

    async def systems(request: Request) -> Response:
        index = request.query_params.get("index", "")
        found = await threads.call(service.catalogue.systems, index)
        return answer([SystemInfo(one.name, one.described(), one.ranker) for one in found.values()])

    by_body = Operation("Search an index", SearchBody, SearchResponse, tag="search")
    by_address = Operation("Search an index", answer=SearchResponse, query=SEARCHING, tag="search")
    why = Operation("Say why a document stands where it stands", ExplainBody, ExplainResponse, tag="search")
    why_by_address = Operation(why.summary, answer=ExplainResponse, query=EXPLAINING, tag="search")
    reading = Operation("Read a document", answer=DocumentResponse, query=READING, tag="search")
    of_index = Operation(
        "List the systems of an index", answer=list[SystemInfo], query=SEARCHING[2:3], tag="search"
    )
    return [
        describe("/search", searched, "POST", by_body),
        describe("/search", searched, "GET", by_address),
        describe("/explain", explained, "POST", why),
        describe("/explain", explained, "GET", why_by_address),
        describe("/documents/{index}/{id:path}", document, "GET", reading),
        describe(
            "/api/indexes",
            indexes,
            "GET",
            Operation("List the indexes", answer=list[IndexInfo], tag="search"),
        ),
        describe("/api/systems", systems, "GET", of_index),
    ]


async def _asked(request: Request, kind: type[T]) -> T:
    """Return what is asked, by a body or by an address."""
    if request.method == "POST":
        return await read_body(request, kind)
    return from_query(request.query_params, kind)


def _search_response(told: SearchAnswer) -> SearchResponse:
    hits = [
        SearchHit(hit.rank, hit.doc_id, hit.score, hit.title, hit.snippet, hit.marks, hit.before)
        for hit in told.hits
    ]
    return SearchResponse(
        told.index,
        told.system,
        told.query,
        hits,
        told.found,
        told.seconds,
        told.degraded,
        list(told.warnings),
    )


def explain_response(told: Answer) -> ExplainResponse:
    """Return an answer to "why?" as JSON."""
    kinds = {"Explanation": "explanation", "Contrast": "contrast", "Movement": "movement"}
    return ExplainResponse(kinds.get(type(told).__name__, "ranking"), told.sentence(), told.to_dict())


def _document(
    service: Searching, place: tuple[str, str], asked: DocumentQuery, deadline: Deadline
) -> DocumentResponse:
    view, document = read_document(service, *place)
    extra = dict(document.extra)
    told = DocumentResponse(view.name, document.id, document.title, document.text, extra)
    if asked.query:
        shaded = passages_with_scores(
            service, view.name, document.id, asked.query, asked.system or "", deadline
        )
        told.passages = [DocumentPassage(*passage) for passage in shaded.passages]
        told.unit = shaded.unit
    return told


def _indexes(service: Searching) -> list[IndexInfo]:
    views = [service.catalogue.view(name) for name in service.catalogue.indexes]
    return [
        IndexInfo(
            view.name, len(view.index), view.index.analyzer.name, view.index.fingerprint,
            list(service.catalogue.systems(view.name)),
        )
        for view in views
    ]  # fmt: skip
