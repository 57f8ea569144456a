"""Why: a score, one document above another, a whole ranking, a move from one system to another."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import WrongUse
from rankhouse.explanation.report import content_of
from rankhouse.explanation.show import to_markdown
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.render import Line, address, download, exports, page
from rankhouse.serve.search.shapes import ExplainBody
from rankhouse.serve.search.why import explain

PATIENCE = 120.0
"""Seconds for an explanation."""


class WhyFields(Struct):
    """What is explained: one document or two, a move from another system, or the top of a ranking."""

    query: Line = ""
    index: Line = ""
    system: Line = ""
    doc: list[Line] = []
    against: Line = ""
    before: Line = ""
    top: Annotated[int, Meta(ge=1, le=20)] | None = None
    rival: list[Line] = []
    export: Literal["html", "json", "md"] = "html"


def show(service: ServedCollection, request: Request, asked: WhyFields) -> Response:
    """Return the page of an explanation."""
    wanted = _wanted(service, asked)
    answer = explain(service, wanted, deadline_of(request, PATIENCE))
    if asked.export != "html":
        text = msgspec.json.encode(answer.to_dict()) if asked.export == "json" else to_markdown(answer)
        return download(f"why.{asked.export}", text)
    ids = [one for one in (wanted.document, wanted.against) if one]
    columns = [name for name in (wanted.before, wanted.system) if name]
    content = {
        "index": wanted.index,
        "system": wanted.system,
        "documents": service.catalogue.view(wanted.index).index.documents.fetch(ids),
        "back": address("/", query=wanted.query, index=wanted.index, system=columns),
        "turns": _turns(asked.rival[:2], wanted),
        "exports": exports(request, "html", "md", "json"),
    }
    return page(request, "why.html.j2", content_of(answer) | content)


def _wanted(service: ServedCollection, asked: WhyFields) -> ExplainBody:
    ids, against = asked.doc, asked.against
    if len(ids) > 2 or (len(ids) == 2 and against):
        raise WrongUse(f"{len(ids)} documents are selected; select two to compare them")
    if not ids and not asked.top:
        raise WrongUse("no document is selected; select two to compare them")
    view = service.catalogue.view(asked.index)
    return ExplainBody(
        query=asked.query,
        document=ids[0] if ids else "",
        system=service.catalogue.system(asked.system, view.name).name,
        index=view.name,
        against=ids[1] if len(ids) == 2 else against,
        before=asked.before,
        top=asked.top,
    )


def _turns(rivals: list[str], wanted: ExplainBody) -> list[tuple[str, str]]:
    """Return the questions that are near."""
    own = {"index": wanted.index, "system": wanted.system, "query": wanted.query}
    document, against = wanted.document, wanted.against
    if against:
        turned = address("/why", **own, doc=against, against=document, before=wanted.before)
        return [
            ("Swap the two documents", turned),
            (f"Only {document}", address("/why", **own, doc=document)),
            (f"Only {against}", address("/why", **own, doc=against)),
        ]
    turns = [(f"Against {one}", address("/why", **own, doc=document, against=one)) for one in rivals]
    if wanted.top is None:
        turns.append(("The whole ranking", address("/why", **own, top=5)))
    return turns
