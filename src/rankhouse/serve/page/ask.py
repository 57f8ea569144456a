"""Ask: one question, one to four systems side by side, what moved between them, and passages as hits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Annotated, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import asdict, replace
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.core.progress import counted
from rankhouse.core.run import Run
from rankhouse.index.lexical.store import NoTexts
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.page.document import place_of
from rankhouse.serve.page.extract import Block, extract
from rankhouse.serve.page.render import Line, address, brief, csv_of, download, fault_page, page
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.passages import SHOWN, FoundPassages, PassageFinder, words_nowhere
from rankhouse.serve.search.shapes import SearchBody, SearchResponse

MOST_SYSTEMS = 4
DEPTHS = (10, 20, 50, 100)
PATIENCE = 20.0
"""Seconds that a system may take before its first stage's order is shown."""
_EXAMPLES = 8
_BRIEF = 110
"""Characters of a document's further passages."""
_LONGEST_TITLE = 200
_NOTHING = "nothing was found"


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
    if len(asked.system) > MOST_SYSTEMS:
        raise WrongUse(f"{len(asked.system)} systems were chosen; choose at most {MOST_SYSTEMS}")
    usual, time = service.catalogue.default(view).name, service.catalogue.reading_times.get(view.name)
    chosen = asked.system or [usual]
    content: dict[str, object] = {
        "title": query or f"Search {'your files' if service.contents else 'this collection'}",
        "query": query,
        "systems": list(dict.fromkeys([*systems, *chosen])),
        "chosen": chosen,
        "live": chosen == [usual],
        "default": time.sentence if time else "",
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
        apart = not (is_page and service.catalogue.of_folder)
        bodies = [
            SearchBody(query=query, system=name, index=view.name, k=k, snippets=not is_page, copies=apart)
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
        "places": {one: hit.rank for hit in columns[0].answer.hits for one in (hit.doc_id, *hit.copies)},
        "grades": service.known_grades(service.question(query).id),
    }
    return page(request, "ask.html.j2", content)


def export(service: ServedCollection, query: str, answers: Sequence[SearchResponse], kind: str) -> Response:
    """Return answers as a file: "json", "csv" or "run"."""
    content: str | bytes = ""
    if kind == "json":
        records = [asdict(one) | {"hits": [asdict(hit) for hit in one.hits]} for one in answers]
        content = msgspec.json.encode(records)
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


# --- hits, with the passages that were found ---------------------------------------------------------------


class ShownPassage(NamedTuple):
    """A passage of a hit: the address of its place in the document, and what is shown of it."""

    address: str
    blocks: Sequence[Block]


class ShownAnswer(NamedTuple):
    """An answer without what is no answer to the question; the ranks of its hits are those of what is left.

    ``passages``, ``names`` (titles or ids) and ``places`` (in a file of several documents) are by document
    id. ``nowhere`` are the words of the question, where no document has any; ``by_meaning`` says whether the
    system has vectors: then every document is found, which says nothing. ``has_texts`` says whether there is
    anything to read: an index of another engine's terms has ids only.
    """

    answer: SearchResponse
    passages: Mapping[str, Sequence[ShownPassage]] = MappingProxyType({})
    nowhere: Sequence[str] = ()
    by_meaning: bool = False
    names: Mapping[str, Block] = MappingProxyType({})
    places: Mapping[str, str] = MappingProxyType({})
    has_texts: bool = True

    @property
    def doc_ids(self) -> set[str]:
        """The documents of its hits, copies included."""
        return {one for hit in self.answer.hits for one in (hit.doc_id, *hit.copies)}


def shown(service: ServedCollection, answer: SearchResponse, deadline: Deadline) -> ShownAnswer:
    """Find the passages of an answer, and leave out what has nothing to do with the question."""
    view = service.catalogue.view(answer.index)
    try:
        documents = view.index.documents.fetch([hit.doc_id for hit in answer.hits])
        nowhere = words_nowhere(view.index, answer.query)
        spec = service.catalogue.system(answer.system, view.name)
        finder = PassageFinder(service.catalogue, view, spec, answer.query, deadline=deadline)
    except RankhouseError as error:  # a part of the index went away: the ranking is there all the same
        return ShownAnswer(answer, has_texts=not isinstance(error, NoTexts))
    found = dict(zip((one.id for one in documents), finder.find(documents), strict=True))
    near = (hit for hit in answer.hits if not finder.is_far(found[hit.doc_id]))
    hits = tuple(replace(hit, rank=rank) for rank, hit in enumerate(near, 1))
    kept = {hit.doc_id for hit in hits}
    own = {"index": view.name, "query": answer.query, "system": answer.system}
    passages = {one.id: passages_of(one, found[one.id], finder, own) for one in documents if one.id in kept}
    warnings = tuple(one for one in answer.warnings if not (nowhere and one.startswith(_NOTHING)))
    found_now = answer.found if len(hits) == len(answer.hits) else len(hits)
    return ShownAnswer(
        replace(answer, hits=hits, warnings=warnings, found=found_now),
        passages,
        nowhere,
        finder.by_meaning,
        names={one.id: _name_of(one, finder) for one in documents},
        places={one.id: place for one in documents if (place := place_of(one))},
    )


def _name_of(document: Document, finder: PassageFinder) -> Block:
    """Return a document's title, or its id, with the question's words in it."""
    name = brief(document.title or document.id, _LONGEST_TITLE)
    words = finder.analyzer.matches(name, finder.weights) if document.title else ()
    return Block(name, marks=tuple((start, end) for start, end, _ in words))


def passages_of(
    document: Document, found: FoundPassages, finder: PassageFinder, own: Mapping[str, str]
) -> list[ShownPassage]:
    """Return what is shown of a document's passages: much of the first, a line of the others."""
    passages = []
    for number, (start, end) in enumerate(found.spans or [(0, 0)]):
        most = _BRIEF if number else SHOWN
        blocks = extract(document, (start, end or 2 * SHOWN), finder.weights, finder.analyzer, most=most)
        target = address("/document", **own, doc=document.id, start=start if end else "", end=end or "")
        if blocks:
            passages.append(ShownPassage(target + "#here" * bool(end), blocks))
    return passages
