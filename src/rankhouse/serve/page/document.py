"""A document: its text, and for a question its passages shaded by how well they answer it.

A long text is shown in pieces, the piece first in which the passage stands that was asked for; "Earlier" and
"Later" lead to the others, "Whole text" to all of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, groupby, pairwise
from typing import Annotated, NamedTuple

from markupsafe import Markup
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.nouns import Document, Marks
from rankhouse.core.progress import counted
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.extract import BLANK_LINE, HERE, PIECE, form_of, is_code, pieces, rendered
from rankhouse.serve.page.render import Line, address, is_saved, page
from rankhouse.serve.search.documents import passages_with_scores, read_document
from rankhouse.serve.search.passages import content_words
from rankhouse.serve.search.shapes import DocumentPassage
from rankhouse.text.words import Span

LONGEST_TEXT = 400_000
PATIENCE = 60.0
AROUND = 1_200
"""Characters that are shown before and after the passage, at least."""
RENDERED_WITHIN = 5.0
"""Seconds after which the rest of a long text is shown as it is written."""
_PARSED_AT_ONCE = 12  # pieces of Markdown
Place = Annotated[int, Meta(ge=0)]


class ShownSection(NamedTuple):
    """A section of the text: lines or code in one passage, or a block of Markdown, whose ``html`` is not "".

    ``passage`` is the best one that holds it, ``is_first`` whether it is the first section of that,
    ``is_here`` whether it is of the passage that was asked for: then ``marks`` are the words to highlight. Of
    a list or a table, only the items and rows of that passage have the class "here", in the ``html``.
    """

    passage: DocumentPassage | None
    is_first: bool
    text: str
    is_code: bool
    is_here: bool
    html: Markup | str
    marks: Marks = ()


class DocumentFields(Struct):
    """A document; a question and a system, by which its passages are shaded; the place that is shown."""

    doc: Line = ""
    index: Line = ""
    query: Line = ""
    system: Line = ""
    start: Place | None = None
    end: Place | None = None
    at: Place | None = None
    whole: bool = False


def show(service: ServedCollection, request: Request, asked: DocumentFields) -> Response:
    """Return the page of a document."""
    view, document = read_document(service.catalogue, asked.index, asked.doc)
    parts = pieces(document.text, form_of(document))
    found = (asked.start or 0, asked.end) if asked.end else None
    seen, shaded = _seen(parts, asked, found), None
    if asked.query:
        within = seen if found or asked.at is not None else None
        deadline = deadline_of(request, PATIENCE)
        shaded = passages_with_scores(
            service.catalogue,
            view,
            document,
            asked.query,
            system=asked.system,
            deadline=deadline,
            within=within,
        )
        if shaded.best and within is None:
            first = shaded.best.start  # what has no sentences can be one passage of many pages
            seen = _seen(parts, asked, (first, min(shaded.best.end, first + PIECE)))
    passages = shaded.passages if shaded else ()
    best = shaded.best.number if shaded and shaded.best and len(passages) > 1 else 0
    words = dict.fromkeys(content_words(view.index, asked.query), 1.0)

    def mark(text: str) -> Marks:
        return tuple((start, end) for start, end, _ in view.index.analyzer.matches(text, words))

    is_cut = asked.whole and len(document.text) > LONGEST_TEXT
    cut = f"The first {LONGEST_TEXT:,} of {len(document.text):,} characters are shown."
    shown = _anchored(sections(document, seen, found, passages, links=not is_saved(request), mark=mark))
    is_late = form_of(document) != "plain" and not all(one.html for one in shown)
    late = "This text takes too long to format, so the rest of it is shown as it was written."
    return page(request, "document.html.j2", {
        "title": ", ".join(filter(None, (document.title or asked.doc, place_of(document)))),
        "name": document.title or asked.doc,
        "in_file": place_of(document),
        "doc_id": asked.doc,
        "index": view.name,
        "length": counted(len(document.text.split()), "word"),
        "query": asked.query,
        "shaded": shaded,
        "sections": shown,
        "best": best,
        "place": "here" if found else f"passage-{best}" if best else "",
        "parts": _neighbours(parts, seen, asked),
        "notes": [cut] * is_cut + [late] * is_late,
    })  # fmt: skip


def place_of(document: Document) -> str:
    """Return where a document is in its file, like "page 12"; "" for one that is no part of a file."""
    file, place = document.extra.get("file"), document.extra.get("place")
    return place if isinstance(place, str) and document.id.startswith(f"{file}#") else ""


def _seen(parts: Sequence[Span], asked: DocumentFields, found: Span | None) -> Span:
    """Return which characters of a text are shown: the pieces around a place, the first, or all."""
    if asked.whole:
        return 0, min(parts[-1][1], LONGEST_TEXT)
    low, high = (found[0] - AROUND, found[1] + AROUND) if found else (0, 1)
    if asked.at is not None:
        low, high = asked.at, asked.at + 1
    inside = [part for part in parts if part[0] < high and part[1] > low] or parts[-1:]
    return inside[0][0], inside[-1][1]


def _neighbours(parts: Sequence[Span], seen: Span, asked: DocumentFields) -> dict[str, object]:
    """Return where this piece stands among the pieces, and the addresses of its neighbours."""
    if len(parts) == 1 or asked.whole:
        return {}
    first = next(number for number, part in enumerate(parts) if part[0] == seen[0])
    last = next(number for number, part in enumerate(parts) if part[1] == seen[1])
    own: dict[str, object] = {
        "doc": asked.doc, "index": asked.index, "query": asked.query, "system": asked.system,
        "start": asked.start, "end": asked.end,
    }  # fmt: skip
    which = f"Part {first + 1}" if first == last else f"Parts {first + 1} to {last + 1}"
    return {
        "place": f"{which} of {len(parts)}",
        "earlier": address("/document", **own, at=str(parts[first - 1][0])) if first else "",
        "later": address("/document", **own, at=parts[last + 1][0]) if last + 1 < len(parts) else "",
        "whole": address("/document", **own, whole=True) + ("#here" if asked.end else ""),
    }


def sections(
    document: Document,
    seen: Span,
    found: Span | None,
    passages: Sequence[DocumentPassage] = (),
    *,
    links: bool = True,
    mark: Callable[[str], Marks] = lambda _: (),
    until: Deadline | None = None,
) -> Iterator[ShownSection]:
    """Yield what is shown of a text, section by section: its part ``seen``, in which ``found`` is marked.

    Markup that is not rendered by a deadline, after ``RENDERED_WITHIN`` seconds if none is given, is shown as
    it is written, like code.
    """
    numbered = set[int]()
    blocks: Iterable[tuple[int, int, Markup | None, bool]]
    if form_of(document) != "plain":
        until = until or Deadline.after(RENDERED_WITHIN)
        blocks = _rendered_until(until, document, seen, found, links=links, mark=mark)
    else:
        spans = (code_spans(document.text, *span) for span in lines_of(passages, seen, found))
        blocks = ((a, b, None, code) for a, b, code in chain.from_iterable(spans))
    for start, end, html, code in blocks:
        text = document.text[start:end]
        if (text if html is None else html).strip():
            best, is_here = _best(passages, start, end), _is_here(start, end, found)
            yield ShownSection(
                best,
                best is not None and best.number not in numbered,
                text=text,
                is_code=code,
                is_here=is_here and HERE not in (html or ""),
                html=html or "",
                marks=mark(text) if is_here and html is None else (),
            )
            numbered |= {best.number} if best else set()


def _rendered_until(
    until: Deadline,
    document: Document,
    seen: Span,
    found: Span | None,
    *,
    links: bool,
    mark: Callable[[str], Marks],
) -> Iterator[tuple[int, int, Markup | None, bool]]:
    """Yield the blocks of markup, part by part, each in a time that is bounded; late parts as code."""
    form = form_of(document)
    parts = [(seen[0] + a, seen[0] + b) for a, b in pieces(document.text[slice(*seen)], form)]
    for part in parts if form == "restructured" or len(parts) > _PARSED_AT_ONCE else [seen]:
        if until.passed:
            yield *part, None, True
        else:
            yield from _rendered_within(document, part, found, links=links, mark=mark)


def _rendered_within(
    document: Document, part: Span, found: Span | None, *, links: bool, mark: Callable[[str], Marks]
) -> Iterator[tuple[int, int, Markup, bool]]:
    """Yield where the blocks of a part of a text stand, what they look like, and that none is code."""
    low, high = part
    within = (
        (max(found[0] - low, 0), found[1] - low) if found and low < found[1] and found[0] < high else None
    )
    shown = rendered(
        document.text[low:high], form_of(document), links=links, found=within, mark=mark, whole=document.text
    )
    return ((low + start, low + end, html, False) for start, end, html in shown)


def code_spans(text: str, start: int, end: int) -> Iterator[tuple[int, int, bool]]:
    """Cut a part of a plain text where code begins and ends: paragraphs that are none, and those that are."""
    ends = [*(match.end() for match in BLANK_LINE.finditer(text, start, end)), end]
    parts = ((a, b, is_code(text[a:b])) for a, b in pairwise([start, *ends]) if a < b)
    for code, group in groupby(parts, lambda part: part[2]):
        first, *others = group
        yield first[0], others[-1][1] if others else first[1], code


def _anchored(shown: Iterable[ShownSection]) -> list[ShownSection]:
    """Name the item or row that was asked for, so that links find it, unless a whole section is before it."""
    found = list(shown)
    first = next((place for place, one in enumerate(found) if one.is_here or HERE in one.html), None)
    if first is not None and not found[first].is_here:
        html = str(found[first].html).replace(HERE, f'{HERE} id="here"', 1)
        found[first] = found[first]._replace(html=Markup(html))  # noqa: S704 - the renderer escaped texts
    return found


def lines_of(passages: Sequence[DocumentPassage], seen: Span, found: Span | None) -> Iterator[Span]:
    """Cut a plain text where another passage is the best, and around the place that was asked for."""
    edges = {*seen, *(found or ()), *(edge for one in passages for edge in (one.start, one.end))}
    inside = sorted(edge for edge in edges if seen[0] <= edge <= seen[1])

    def kind(part: Span) -> tuple[object, ...]:
        return _best(passages, *part), _is_here(*part, found)

    for _, group in groupby(pairwise(inside), kind):
        (start, end), *others = group
        yield start, others[-1][1] if others else end


def _best(passages: Sequence[DocumentPassage], start: int, end: int) -> DocumentPassage | None:
    over = (one for one in passages if one.start < end and one.end > start)
    return max(over, key=lambda one: one.score, default=None)


def _is_here(start: int, end: int, found: Span | None) -> bool:
    return found is not None and start < found[1] and end > found[0]
