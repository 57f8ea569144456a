"""Why: a score, one document above another, a whole ranking, a move from one system to another."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Annotated, Any, Literal, NamedTuple
from urllib.parse import unquote

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.explanation.contrast import Answer, Contrast, Movement
from rankhouse.explanation.lexical import METHOD as WORDS
from rankhouse.explanation.report import ShownText, ShownWord, View, content_of
from rankhouse.explanation.show import to_markdown
from rankhouse.explanation.units import ordinal
from rankhouse.serve.contracts.requests import deadline_of
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.page.ask import ShownPassage, passages_of
from rankhouse.serve.page.document import place_of
from rankhouse.serve.page.render import Line, address, brief, download, page
from rankhouse.serve.search.passages import PassageFinder
from rankhouse.serve.search.shapes import ExplainBody
from rankhouse.serve.search.why import explain

PATIENCE = 120.0
"""Seconds for an explanation."""
_NEAREST = "nearest vector"
_FUSED = "sum over runs"
_SAID = {"title", "sentence", "turns", "notes", "sections", "table"}
_TITLE = 80
_FILE = re.compile(r"\w\.[a-z]\w*(?:$|#)", re.IGNORECASE)
_NEAR = 200
"""Characters within which a text's next word is looked for."""


class Reason(NamedTuple):
    """A document of an explanation: what it is ranked for, in words, and the passage that was found."""

    document: Document
    standing: str
    passage: ShownPassage | None


class WhyFields(Struct):
    """Question to explain: one document or two, a move from another system, or the top of a ranking."""

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
    answer = explain(service.catalogue, wanted, deadline_of(request, PATIENCE))
    if asked.export != "html":
        text = msgspec.json.encode(answer.to_dict()) if asked.export == "json" else to_markdown(answer)
        return download(f"why.{asked.export}", text)
    columns = [name for name in (wanted.before, wanted.system) if name]
    reasons = _reasons(service, wanted, answer, deadline_of(request, PATIENCE))
    content: dict[str, Any] = content_of(answer) | {
        "index": wanted.index,
        "system": wanted.system,
        "reasons": reasons,
        "back": address("/", query=wanted.query, index=wanted.index, system=columns),
        "turns": _turns(asked.rival[:2], wanted),
    }
    if asked.top:
        content["title"] = f"Why this order: {wanted.system}"
    read = {one.document.id: one.document for one in reasons}
    content["sections"] = [(heading, with_lines(seen, read)) for heading, seen in content["sections"]]
    content["sentence"] = called(content["sentence"], in_words(_told(answer)))
    if service.contents is not None:
        ids = [*(one.doc_id for one in _told(answer)), *asked.rival]
        ids.sort(key=len, reverse=True)  # some begin others
        titles = _titles(service, wanted.index or "", ids)
        content |= {key: called(content[key], titles) for key in ("title", "sentence", "turns")}
        names = {doc_id: unquote(doc_id) for doc_id in ids if "%" in doc_id}
        content |= {key: called(value, names) for key, value in content.items() if key in _SAID}
    return page(request, "why.html.j2", content)


def _titles(service: ServedCollection, index: str, doc_ids: Sequence[str]) -> dict[str, str]:
    """Return titles by document, of files whose title is theirs alone and whose id looks like a file's."""
    documents = service.catalogue.view(index).index.documents
    found = documents.fetch([one for one in dict.fromkeys(doc_ids) if one in documents])
    names = {one.id: ", ".join(filter(None, (one.title, place_of(one)))) for one in found if one.title}
    times = Counter(names.values())
    return {
        doc_id: brief(name, _TITLE)
        for doc_id, name in names.items()
        if times[name] == 1 and _FILE.search(doc_id)
    }


def _told(answer: Answer) -> Iterator[Explanation]:
    """Yield the explanations of the documents in an answer."""
    now = answer.now if isinstance(answer, Movement) else answer
    if isinstance(now, Explanation):
        yield now
    elif now is not None:
        yield from now.sides if isinstance(now, Contrast) else now.documents


def called(value: Any, names: Mapping[str, str]) -> Any:  # noqa: ANN401 - strings, within whatever holds them
    """Return what a page shows with documents called as people call them; texts of documents stay."""
    match value:
        case str():
            for doc_id, name in names.items():
                value = value.replace(doc_id, name)
            return value
        case ShownText():
            return value
        case list() | tuple():
            found = [called(one, names) for one in value]
            return type(value)(*found) if hasattr(value, "_fields") else type(value)(found)
    return value


def _reasons(
    service: ServedCollection, wanted: ExplainBody, answer: Answer, deadline: Deadline
) -> list[Reason]:
    """Return what the documents asked about are ranked for, with their passages."""
    view = service.catalogue.view(wanted.index)
    spec = service.catalogue.system(wanted.system, view.name)
    documents = view.index.documents.fetch([one for one in (wanted.document, wanted.against) if one])
    finder = PassageFinder(service.catalogue, view, spec, wanted.query, deadline=deadline)
    own = {"index": view.name, "query": wanted.query, "system": spec.name}
    standings = {one.doc_id: standing(one) for one in _told(answer)}
    rows = zip(documents, finder.find(documents), strict=True)
    return [
        Reason(one, standings.get(one.id, ""), next(iter(passages_of(one, found, finder, own)), None))
        for one, found in rows
    ]


def standing(one: Explanation) -> str:
    """Say in words what a fusion ranks a document for: "1st for its words, 3rd for its meaning"."""
    said = []
    for part in one.parts if one.method == _FUSED else ():
        what = _kind(part)
        if part.facts.get("rank"):
            what = f"for its {what}" if what else f"in {part.name}"
            said.append(f"{ordinal(int(part.facts['rank']))} {what}")
        elif part.facts.get("weight"):
            said.append(f"not found by {part.name}")
    return ", ".join(said)


def _kind(part: Part) -> str:
    """Return what a run of a fusion ranks for: "meaning", "words", or nothing that is plain."""
    return {_NEAREST: "meaning", WORDS: "words"}.get(part.why.method if part.why else "", "")


def in_words(answers: Iterable[Explanation]) -> dict[str, str]:
    """Return what stands for the runs of a fusion in a sentence, where no two are of one kind."""
    kinds = {part.name: _kind(part) for one in answers if one.method == _FUSED for part in one.parts}
    times = Counter(kinds.values())
    return {f'"{name}"': f"its {kind}" for name, kind in kinds.items() if kind and times[kind] == 1}


def with_lines(shown: View, documents: Mapping[str, Document]) -> View:
    """Begin new lines in the words of texts where the documents do."""
    sides = []
    for side in shown.sides:
        document = documents.get(side.doc_id, Document(side.doc_id, ""))
        read = (one._replace(words=tuple(_in_lines(one.words, document))) for one in side.texts)
        sides.append(side._replace(texts=tuple(read)))
    return shown._replace(sides=tuple(sides))


def _in_lines(words: Sequence[ShownWord], document: Document) -> Iterator[ShownWord]:
    text, ends = document.text, accumulate("".join(word.text.split()) for word in words)
    title = "".join(document.title.split())  # which most rankers read before the text
    above = next((number for number, read in enumerate(ends, 1) if read == title), 0)
    rest = words[above:]
    begin = re.search(r"\s*".join(re.escape(word.text) for word in rest[:5]), text) if rest else None
    at = begin.start() if begin else len(text)
    yield from words[:above]
    for number, word in enumerate(rest):
        place = text.find(word.text, at, at + _NEAR + len(word.text))
        breaks = 2 if above and not number else min(text.count("\n", at, max(at, place)), 2)
        glued = place == at and number > 0
        yield word._replace(text="\n" * breaks + word.text, glued=glued) if breaks or glued else word
        at = place + len(word.text) if place >= 0 else at


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
            (f"{document} alone", address("/why", **own, doc=document)),
            (f"{against} alone", address("/why", **own, doc=against)),
        ]
    turns = [(f"Compare with {one}", address("/why", **own, doc=document, against=one)) for one in rivals]
    if wanted.top is None:
        turns.append(("Why this order", address("/why", **own, top=5)))
    return turns
