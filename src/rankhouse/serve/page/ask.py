"""Ask: one question, one to four systems side by side, and what moved between them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.progress import counted
from rankhouse.core.run import Run
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.page.hits import shown
from rankhouse.serve.page.render import Line, csv_of, download, fault_page, page
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import SearchBody, SearchResponse

MOST_SYSTEMS = 4
DEPTHS = (10, 20, 50, 100)
PATIENCE = 20.0
"""Seconds that a system may take before its first stage's order is shown."""
_EXAMPLES = 8


class AskFields(Struct):
    """A question, how many documents of which systems are shown, and as what file."""

    query: Line = ""
    index: Line = ""
    k: Annotated[int, Meta(ge=1, le=1000)] = DEPTHS[0]
    system: list[str] = []
    export: Literal["html", "json", "csv", "run"] = "html"


def show(service: ServedCollection, request: Request, asked: AskFields) -> Response:
    """Return the page of a question, or an empty form."""
    query, k = asked.query, asked.k
    view = service.catalogue.view(asked.index)
    systems = service.catalogue.systems(view.name)
    chosen = asked.system or [usual_system(systems)]
    if len(chosen) > MOST_SYSTEMS:
        raise WrongUse(f"{len(chosen)} systems were chosen; choose at most {MOST_SYSTEMS}")
    content: dict[str, object] = {
        "title": query or "Ask your collection",
        "query": query,
        "systems": list(dict.fromkeys([*systems, *chosen])),
        "chosen": chosen,
        "index": view.name,
        "depths": sorted({*DEPTHS, k}),
        "k": k,
        "facts": f"{view.name}: {counted(len(view.index.documents), 'document')}",
        "examples": () if query else service.known_queries()[:_EXAMPLES],
        "columns": (), "fault": "", "labels": service.scale,
    }  # fmt: skip
    if not query:
        return page(request, "ask.html.j2", content)
    try:
        deadline, is_page = deadline_of(request, PATIENCE), asked.export == "html"
        bodies = [
            SearchBody(query=query, system=name, index=view.name, k=k, snippets=not is_page)
            for name in chosen
        ]
        answers = [search(service.catalogue, one, deadline) for one in bodies]
    except RankhouseError as error:  # the form stays, with what is wrong
        content["fault"] = str(error)
        return page(request, "ask.html.j2", content, fault_page(request, error).status_code)
    if asked.export != "html":
        return export(service, query, answers, asked.export)
    columns = [shown(service, answer, deadline) for answer in answers]
    content |= {
        "columns": columns,
        "places": {hit.doc_id: hit.rank for hit in columns[0].answer.hits},
        "grades": service.known_grades(service.question(query).id),
    }
    return page(request, "ask.html.j2", content)


def usual_system(systems: Iterable[str]) -> str:
    """Return the system that is chosen to begin with: the best of the quick ones."""
    names = list(systems)
    return next((name for name in names if name.startswith("hybrid")), names[0])


def export(service: ServedCollection, query: str, answers: Sequence[SearchResponse], kind: str) -> Response:
    """Return answers as a file: "json", "csv" or "run"."""
    content: str | bytes = ""
    if kind == "json":
        told = [asdict(one) | {"hits": [asdict(hit) for hit in one.hits]} for one in answers]
        content = msgspec.json.encode(told)
    elif kind == "run":
        query_id = service.question(query).id
        runs = [(one.system, {hit.doc_id: hit.score for hit in one.hits}) for one in answers]
        content = "".join(trec_run(Run.of({query_id: scores}), system) for system, scores in runs)
    else:
        head = ("system", "rank", "id", "score", "title", "snippet")
        hits = ((one.system, hit) for one in answers for hit in one.hits)
        rows = ((system, h.rank, h.doc_id, h.score, h.title, h.snippet) for system, h in hits)
        content = csv_of(head, rows)
    return download(f"search.{kind}", content)
