"""A document: its text, and for a question its passages shaded by how well they answer it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.render import Line, address, exports, page
from rankhouse.serve.search.documents import ShadedDocument, passages_with_scores, read_document

LONGEST_TEXT = 400_000
PATIENCE = 60.0


class ShownPassage(NamedTuple):
    """A section of the text in one passage.

    Attributes:
        number: Of the best passage that holds it; 0 where none does.
        is_first: Whether it is the first section of that passage.
        share: Where the passage's score lies between the document's lowest, 0, and highest, 100.
    """

    number: int
    is_first: bool
    score: str
    share: int
    text: str


class DocumentFields(Struct):
    """A document; and a question and a system, by which its passages are shaded."""

    doc: Line = ""
    index: Line = ""
    query: Line = ""
    system: Line = ""


def show(service: ServedCollection, request: Request, asked: DocumentFields) -> Response:
    """Return the page of a document."""
    query, doc_id = asked.query, asked.doc
    view, document = read_document(service, asked.index, doc_id)
    notes = []
    if len(document.text) > LONGEST_TEXT:
        notes.append(f"The first {LONGEST_TEXT:,} of {len(document.text):,} characters are shown.")
    content: dict[str, object] = {
        "title": document.title or doc_id,
        "name": document.title or doc_id,
        "doc_id": doc_id,
        "index": view.name,
        "length": f"{len(document.text.split()):,} words",
        "query": query,
        "text": document.text[:LONGEST_TEXT],
        "passages": (), "best": 0, "legend": "", "notes": notes,
        "exports": exports(request, "html"),
    }  # fmt: skip
    if query:
        shaded = passages_with_scores(
            service, view.name, doc_id, query, system=asked.system, deadline=deadline_of(request, PATIENCE)
        )
        own = {"index": view.name, "query": query, "system": shaded.system}
        content |= {
            "passages": list(_passages(shaded)),
            "best": shaded.best.number if shaded.best and len(shaded.passages) > 1 else 0,
            "legend": f"Passages by {shaded.split}, scored by {shaded.scorer} ({shaded.unit}): the stronger "
                      "the shade, the better the passage.",
            "back": address("/", **own),
            "why": address("/why", **own, doc=doc_id),
        }  # fmt: skip
    return page(request, "document.html.j2", content)


def _passages(shaded: ShadedDocument) -> Iterator[ShownPassage]:
    scores = {one.number: f"{one.score:.4f}" for one in shaded.passages}
    seen, room = set[int](), LONGEST_TEXT
    for stretch in shaded.stretches:
        if not stretch.text.strip() or room <= 0:
            continue
        share = round(100 * stretch.share) if len(shaded.passages) > 1 else 0
        text = stretch.text.strip("\n")[:room]
        room -= len(text)
        is_first = bool(stretch.passage) and stretch.passage not in seen
        yield ShownPassage(stretch.passage, is_first, scores.get(stretch.passage, ""), share, text=text)
        seen.add(stretch.passage)
