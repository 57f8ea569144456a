"""Why: a score, one document above another, a whole ranking, a move from one system to another."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import WrongUse
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.report import content_of
from rankhouse.explanation.show import to_markdown
from rankhouse.serve.page import asked
from rankhouse.serve.page.render import address, download, exports, page
from rankhouse.serve.search.asking import client_deadline
from rankhouse.serve.search.why import ExplainRequest, explain

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

LONGEST_ID = 2_000
PATIENCE = 120.0
"""Seconds for an explanation."""


def show(service: Service, request: Request) -> Response:
    """Return the page of an explanation; two documents are held against each other.

    Args:
        request: Index, system, query; ``doc`` once or twice, ``against``, ``before``; or ``top``.

    Raises:
        RankhouseError: A parameter that is not accepted, or an unknown name.
    """
    wanted = _asked(service, request)
    answer = explain(service, wanted, client_deadline(request, PATIENCE))
    if request.query_params.get("export", "html") != "html":
        return export(answer, asked.one_of(request.query_params, "export", ("json", "md")))
    ids = [one for one in (wanted.doc_id, wanted.against) if one]
    view = service.catalogue.view(wanted.index)
    content = {
        "index": wanted.index,
        "system": wanted.system,
        "documents": view.index.documents.fetch(ids),
        "back": address("/", query=wanted.query, index=wanted.index, system=_columns(wanted)),
        "turns": _turns(request, wanted),
        "exports": exports(request, "html", "md", "json"),
    }
    return page(request, "why.html.j2", content_of(answer) | content)


def _asked(service: Service, request: Request) -> ExplainRequest:
    fields = request.query_params
    query, top = asked.words(fields, "query"), asked.number(fields, "top", 0, 1, 20)
    ids = asked.several(fields, "doc", 100, "documents")
    against = asked.words(fields, "against", LONGEST_ID)
    if len(ids) > 2 or (len(ids) == 2 and against):
        raise WrongUse(f"{len(ids)} documents were ticked; tick two, and ask what separates them")
    if not ids and not top:
        raise WrongUse("no document was ticked; tick two, and ask what separates them")
    view = service.catalogue.view(asked.words(fields, "index"))
    spec = service.catalogue.system(asked.words(fields, "system"), view.name)
    return ExplainRequest(
        query,
        ids[0] if ids else "",
        spec.name,
        view.name,
        ids[1] if len(ids) == 2 else against,
        asked.words(fields, "before"),
        top or None,
    )


def _columns(wanted: ExplainRequest) -> list[str]:
    return [name for name in (wanted.before, wanted.system) if name]


def _turns(request: Request, wanted: ExplainRequest) -> list[tuple[str, str]]:
    """Return the questions that are near."""
    own = {"index": wanted.index, "system": wanted.system, "query": wanted.query}
    if wanted.against:
        turned = address("/why", **own, doc=wanted.against, against=wanted.doc_id, before=wanted.before)
        return [
            ("The other way round", turned),
            (f"Only {wanted.doc_id}", address("/why", **own, doc=wanted.doc_id)),
            (f"Only {wanted.against}", address("/why", **own, doc=wanted.against)),
        ]
    rivals = request.query_params.getlist("rival")[:2]
    turns = [(f"Against {one}", address("/why", **own, doc=wanted.doc_id, against=one)) for one in rivals]
    if wanted.top is None:
        turns.append(("The whole ranking", address("/why", **own, top=5)))
    return turns


def export(answer: Answer, kind: str) -> Response:
    """Return an explanation as a file.

    Args:
        kind: "json" or "md".
    """
    text = msgspec.json.encode(answer.to_dict()) if kind == "json" else to_markdown(answer)
    return download(f"why.{kind}", text)
