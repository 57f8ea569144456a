"""Ask: one question, one to four systems side by side, and what moved between them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.progress import counted
from rankhouse.core.results import Ranking
from rankhouse.core.run import Run
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.page.hits import ShownAnswer, ShownPassage, shown
from rankhouse.serve.page.render import Line, address, csv_of, download, exports, fault_page, page
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.shapes import SearchBody, SearchHit, SearchResponse

MOST_SYSTEMS = 4
DEPTHS = (10, 20, 50, 100)
PATIENCE = 20.0
"""Seconds that a system may take before its first stage's order is shown."""
_EXAMPLES = 8


class Move(NamedTuple):
    """Where a document stands beside the first column: "up", "down", "same" or "new"."""

    kind: str
    text: str
    said: str


class ShownHit(NamedTuple):
    """A document of a column, with its movement, grade, neighbours, passages, and where in its file it is."""

    hit: SearchHit
    move: Move | None
    grade: int | None
    beside: tuple[str, ...]
    passages: Sequence[ShownPassage] = ()
    place: str = ""


class SystemColumn(NamedTuple):
    """A system's answer; ``gone`` are documents of the first column that are not here.

    Attributes:
        before: A sentence that stands before the hits; "" for none.
    """

    system: str
    summary: str
    hits: Sequence[ShownHit] = ()
    gone: Sequence[SearchHit] = ()
    notes: Sequence[str] = ()
    before: str = ""


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
    chosen = asked.system or _usual(systems)
    if len(chosen) > MOST_SYSTEMS:
        raise WrongUse(f"{len(chosen)} systems were chosen; choose at most {MOST_SYSTEMS}")
    content: dict[str, object] = {
        "title": query or "Ask your collection",
        "query": query,
        "systems": list(dict.fromkeys([*systems, *chosen])),
        "chosen": chosen,
        "index": view.name,
        "indexes": [(name, name) for name in service.catalogue.indexes],
        "depths": [(str(n), str(n)) for n in sorted({*DEPTHS, k})],
        "k": str(k),
        "facts": f"{view.name}: {counted(len(view.index.documents), 'document')}",
        "columns": [], "examples": [], "exports": [], "fault": "", "labels": service.scale,
    }  # fmt: skip
    if not query:
        content["examples"] = service.known_queries()[:_EXAMPLES]
        return page(request, "ask.html.j2", content)
    try:
        deadline, is_page = deadline_of(request, PATIENCE), asked.export == "html"
        bodies = [
            SearchBody(query=query, system=name, index=view.name, k=k, snippets=not is_page)
            for name in chosen
        ]
        answers = [search(service, one, deadline) for one in bodies]
    except RankhouseError as error:  # the form stays, with what is wrong
        failed = fault_page(request, error)
        content["fault"] = str(error)
        return page(request, "ask.html.j2", content, failed.status_code)
    if asked.export != "html":
        return export(service, query, answers, asked.export)
    seen = [shown(service, answer, deadline) for answer in answers]
    content["columns"] = columns(seen, service.known_grades(service.question(query).id))
    content["exports"] = exports(request, "html", "csv", "json") + _files(request, chosen)
    return page(request, "ask.html.j2", content)


def _usual(systems: Mapping[str, object]) -> list[str]:
    """Return the system that is chosen to begin with: the best of the quick ones."""
    names = list(systems)
    return [next((name for name in names if name.startswith("hybrid")), names[0])]


def columns(seen: Sequence[ShownAnswer], grades: Mapping[str, int]) -> list[SystemColumn]:
    """Return answers as columns, each compared with the first."""
    first = seen[0].answer
    places = {hit.doc_id: hit.rank for hit in first.hits}

    def row(number: int, hit: SearchHit, one: ShownAnswer) -> ShownHit:
        near = one.answer.hits[max(0, number - 1) : number + 2]
        beside = tuple(other.doc_id for other in near if other is not hit)
        move = None if one is seen[0] else _move(hit, places, first.system)
        passages, place = one.passages.get(hit.doc_id, ()), one.places.get(hit.doc_id, "")
        return ShownHit(hit, move, grades.get(hit.doc_id), beside, passages=passages, place=place)

    return [
        SystemColumn(
            one.answer.system,
            " · ".join(filter(None, (one.summary, f"{one.answer.seconds * 1000:,.0f} ms"))),
            hits=[row(number, hit, one) for number, hit in enumerate(one.answer.hits)],
            gone=_gone(first, one.answer),
            notes=tuple(filter(None, (one.answer.degraded, *one.answer.warnings))),
            before=one.before,
        )
        for one in seen
    ]


def _move(hit: SearchHit, places: Mapping[str, int], system: str) -> Move:
    before = places.get(hit.doc_id)
    if before is None:
        return Move("new", "new", f"new, not shown by {system}")
    step = before - hit.rank
    if not step:
        return Move("same", "=", f"at the same rank as in {system}")
    kind, arrow = ("up", "↑") if step > 0 else ("down", "↓")
    return Move(kind, f"{arrow}{abs(step)}", f"{kind} {abs(step)} from rank {before} of {system}")


def _gone(first: SearchResponse, answer: SearchResponse) -> list[SearchHit]:
    here = {hit.doc_id for hit in answer.hits}
    return [hit for hit in first.hits if hit.doc_id not in here]


def _files(request: Request, chosen: Sequence[str]) -> list[tuple[str, str]]:
    given = request.query_params.multi_items()
    rest = [(name, value) for name, value in given if name not in ("export", "system")]
    return [(f"run of {name}", address("/", *rest, system=name, export="run")) for name in chosen]


def export(service: ServedCollection, query: str, answers: Sequence[SearchResponse], kind: str) -> Response:
    """Return answers as a file: "json", "csv" or "run"."""
    if kind == "json":
        asdict = msgspec.structs.asdict
        told = [asdict(one) | {"hits": [asdict(hit) for hit in one.hits]} for one in answers]
        for one in told:
            one["found"] = one.pop("found")  # last, as always in this file
        content = msgspec.json.encode(told).decode()
    elif kind == "run":
        query_id, content = service.question(query).id, ""
        for answer in answers:
            scores = np.array([hit.score for hit in answer.hits], np.float32)
            ranking = Ranking(tuple(hit.doc_id for hit in answer.hits), scores)
            content += trec_run(Run.from_rankings({query_id: ranking}), answer.system)
    else:
        rows = [
            (answer.system, h.rank, h.doc_id, h.score, h.title, h.snippet)
            for answer in answers
            for h in answer.hits
        ]
        content = csv_of(("system", "rank", "id", "score", "title", "snippet"), rows)
    return download(f"search.{kind}", content)
