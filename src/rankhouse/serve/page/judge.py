"""Judge: one question, the documents that chosen systems found, one key a document.

A pool holds the documents that several systems found for a question, each once; kept while it is judged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, NamedTuple
from urllib.parse import quote, unquote

from msgspec import Meta, Struct, structs
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Marks, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.sampling import order
from rankhouse.serve.contracts.requests import ANYBODY, caller_of, deadline_of
from rankhouse.serve.engine.waiting import Deadline, Recent
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.log import JudgementEntry
from rankhouse.serve.judging.store import LONGEST_NAME, JudgementStore
from rankhouse.serve.page.document import ShownSection, sections
from rankhouse.serve.page.extract import block_end, block_start, form_of
from rankhouse.serve.page.render import Line, address, page, parameters, wants_html
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.passages import PassageFinder
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.serve.search.systems import NamedSystem
from rankhouse.text.snippets import bounds
from rankhouse.text.words import Span

KEPT_POOLS = 256
"""Pools that are kept, those used last."""
DEPTHS = (5, 10, 20, 50)
MOST_SYSTEMS = 12
PATIENCE = 60.0
"""Seconds for all systems together."""
_COOKIE = "rankhouse-judge"
_A_YEAR = 365 * 24 * 3600
_SHOWN, _MORE = (200, 400), (2_500, 5_000)
"""Characters before and after the best passage of a long text."""
_READ_ONLY = "This service is read-only. To keep judgements, start it with --judgements FILE."

_READ_KEY = "Your key can read but not judge. Sign in with a key that can write."


class JudgingPool(NamedTuple):
    """Documents that systems found: those found early by many first, and their ranks by system."""

    doc_ids: Sequence[str]
    ranks: Mapping[str, Mapping[str, int]]
    notes: Sequence[str]


class Pools:
    """The pools of a service."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._kept: Recent[tuple[object, ...], JudgingPool] = Recent(KEPT_POOLS)

    def kept(self, query: Query, wanted: JudgeFields) -> JudgingPool | None:
        """Return a pool that was asked for before; None where nobody has, or long ago."""
        return self._kept.get(self._key(query, wanted))

    def of(self, query: Query, wanted: JudgeFields, deadline: Deadline) -> JudgingPool:
        """Return what systems find; asked once, unless one of them was not in time."""
        if (kept := self.kept(query, wanted)) is not None:
            return kept
        ranks, notes, is_whole = dict[str, dict[str, int]](), dict[str, None](), True
        for name in wanted.system:
            asked = SearchBody(
                query=query.text, system=name, index=wanted.index, k=wanted.depth, snippets=False
            )
            answer = search(self._catalogue, asked, deadline)
            for hit in answer.hits:
                ranks.setdefault(hit.doc_id, {})[answer.system] = hit.rank
            notes |= dict.fromkeys(f"{name}: {note}" for note in (answer.degraded, *answer.warnings) if note)
            is_whole = is_whole and not answer.degraded
        best = sorted(ranks, key=lambda doc: (min(ranks[doc].values()), -len(ranks[doc]), doc))
        pool = JudgingPool(best, ranks, list(notes))
        if is_whole:
            self._kept.put(self._key(query, wanted), pool)
        return pool

    def _key(self, query: Query, wanted: JudgeFields) -> tuple[object, ...]:
        """Return what a pool depends on."""
        view = self._catalogue.view(wanted.index)
        specs = tuple(self._catalogue.system(name, view.name) for name in wanted.system)
        return view.index.fingerprint, specs, query.text, wanted.depth


class CardText(NamedTuple):
    """A part of a text, its best passage marked, and whether there is text before and after it."""

    sections: Sequence[ShownSection]
    begins_within: bool
    ends_within: bool


class Card(NamedTuple):
    """A document to judge, and what this judge says of it.

    ``shown`` is its best passage and some text around it, ``more`` has more around it, None where ``shown``
    is all of the text. The ``length`` is in words; ``address`` leads to the document, at its passage.
    """

    doc_id: str
    title: str
    shown: CardText
    more: CardText | None
    address: str
    length: int
    grade: int | None
    comment: str


class JudgeFields(Struct):
    """A question, by its id or words, who judges it, and the pool of which systems, ``depth`` of each.

    ``blind`` hides systems and ranks; ``change`` asks for other systems.
    """

    query: Line = ""
    judge: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    index: Line = ""
    system: Annotated[list[Line], Meta(max_length=MOST_SYSTEMS)] = []
    depth: Annotated[int, Meta(ge=1, le=100)] | None = None
    blind: str = ""
    change: str = ""

    @property
    def kept(self) -> dict[str, object]:
        """State of the page, as parameters of an address or fields of a form."""
        names = ("query", "judge", "index", "system", "depth", "blind")
        return {name: getattr(self, name) for name in names}

    def address(self, **other: object) -> str:
        """Return the address of this, with something else in places."""
        return address("/judge", **{**self.kept, **other})


class JudgeForm(JudgeFields):
    """A judgement, a comment, or ``undo``.

    ``mark`` is grade, place and document, ``version`` what the page knew; ``on`` is what ``comment`` is on.
    """

    mark: Annotated[str, Meta(max_length=10_000)] = ""
    comment: Annotated[str, Meta(max_length=10_000)] = ""
    on: Annotated[str, Meta(max_length=10_000)] = ""
    undo: str = ""
    version: Annotated[int, Meta(ge=0)] | None = None


def show(pools: Pools, service: ServedCollection, request: Request, asked: JudgeFields) -> Response:
    """Return the documents of a question, or the form that chooses one."""
    wanted = _task(service, request, asked)
    store = service.judgements
    if not (wanted.query and wanted.judge) or asked.change or store is None:
        return _choose(service, request, wanted)
    if not wanted.judge.isprintable():
        raise WrongUse(f"judge {wanted.judge!r}: give a name of 1 to {LONGEST_NAME} printable characters")
    query = service.question(wanted.query)
    deadline = deadline_of(request, PATIENCE)
    pool = pools.of(query, wanted, deadline)
    version, mine, may_write = store.version, store.qrels_of(wanted.judge), caller_of(request).may_write
    said = mine.get(query.id, {}), store.comments_of(wanted.judge, query.id)
    content = {
        "title": f"Judge: {query.text}",
        "query": query,
        "wanted": wanted,
        "pool": _cards(service, query, wanted, pool, said=said, deadline=deadline),
        "ranks": {} if wanted.blind else pool.ranks,
        "labels": store.scale,
        "grade_keys": [(str(value), label) for value, label in store.scale.items()],
        "can_undo": may_write and bool(mine),
        "may_write": may_write,
        "notes": [*pool.notes, *([] if may_write else [_READ_KEY])],
        "kept": parameters(**wanted.kept, version=str(version)),
        "following": _following(service, mine, query),
    }
    response = page(request, "judge.html.j2", content)
    response.set_cookie(_COOKIE, quote(wanted.judge), _A_YEAR, httponly=True, samesite="strict")
    return response


def write(pools: Pools, service: ServedCollection, request: Request, form: JudgeForm) -> Response:
    """Keep what a judge said, or take it back; the page's script gets JSON, a form the page again."""
    store = service.judgements
    if store is None:
        raise WrongUse(_READ_ONLY)
    wanted = _task(service, request, form)
    who, place, query = caller_of(request).name, 0, service.question(wanted.query)
    if form.undo:
        entry = service.undo(store, wanted.judge, who)
        if entry is not None and query.id != entry.query_id:
            wanted = structs.replace(wanted, query=entry.query)
    else:
        grade, place, doc_id = _mark(f"0 {form.on}" if form.on else form.mark)
        if doc_id not in service.catalogue.view(wanted.index).index.documents:
            raise WrongUse(f'document "{doc_id[:80]}" is not in the index "{wanted.index}"')
        if form.on:
            entry = store.comment(wanted.judge, query.text, doc_id, form.comment)
        else:
            pool = pools.kept(query, wanted)  # no word waits for a model
            showed = list(pool.ranks.get(doc_id, ())) if pool else []
            entry = store.judge(wanted.judge, query.text, doc_id, grade, systems=showed, version=form.version)
        service.note("comment" if form.on else "judge", entry, who)
    if not wants_html(request):
        return JSONResponse({**_told(store, entry), "can_undo": bool(store.qrels_of(wanted.judge))})
    anchor = f"#document-{place + (not form.on)}" if place else ""
    return RedirectResponse(wanted.address() + anchor, 303)


def _told(store: JudgementStore, entry: JudgementEntry | None) -> dict[str, object]:
    """Return what the page's script is answered."""
    if entry is None:
        return {"doc": None, "grade": None, "query": "", "version": None, "comment": ""}
    comment = store.comments_of(entry.judge, entry.query_id).get(entry.doc_id, "")
    fields = {"doc": entry.doc_id, "grade": entry.grade, "query": entry.query, "version": entry.number}
    return {**fields, "comment": comment}


def _mark(text: str) -> tuple[int, int, str]:
    """Return grade, place and document of a button."""
    pieces = text.split(" ", 2)
    numbers = "".join(pieces[:2])
    if len(pieces) != 3 or not (numbers.isascii() and all(map(str.isdigit, pieces[:2]))):
        raise WrongUse(f'mark="{text[:40]}": write GRADE PLACE DOCUMENT, like "2 1 doc7"')
    return int(pieces[0][:6]), int(pieces[1][:6]), pieces[2]


def _task(service: ServedCollection, request: Request, asked: JudgeFields) -> JudgeFields:
    """Return what is judged, with all that the address leaves out."""
    view, caller = service.catalogue.view(asked.index), caller_of(request)
    judge = asked.judge or unquote(request.cookies.get(_COOKIE, ""))[:LONGEST_NAME]
    if not judge and caller is not ANYBODY:
        judge = caller.name
    return structs.replace(
        asked,
        judge=judge,
        index=view.name,
        system=asked.system or _usual_pool(service.catalogue.systems(view.name)),
        depth=asked.depth or DEPTHS[1],
        blind="1" if asked.blind or asked.depth is None else "",
    )


def _usual_pool(systems: Mapping[str, NamedSystem]) -> list[str]:
    """Return the first model of words and two that read or encode: a pool gains where systems differ."""
    others = [name for name, one in systems.items() if one.rankers]
    return list(dict.fromkeys([*[*systems][:1], *others, *systems]))[:3]


def _choose(service: ServedCollection, request: Request, wanted: JudgeFields) -> Response:
    """Return the form that chooses question, name and systems."""
    may_judge, judged = service.judgements is not None, service.known_qrels()
    questions = service.known_queries()
    content = {
        "title": "Judge search results",
        "pool": None,
        "wanted": wanted,
        "notes": [] if may_judge else [_READ_ONLY],
        "asked": service.question(wanted.query).text if wanted.query else "",
        "questions": questions[:500],
        "open": [one for one in questions if not judged.get(one.id)][:8] if may_judge else [],
        "depths": [(n, f"top {n}") for n in sorted({*DEPTHS, wanted.depth or DEPTHS[1]})],
        "systems": list(dict.fromkeys([*service.catalogue.systems(wanted.index), *wanted.system])),
    }
    return page(request, "judge.html.j2", content)


def _cards(
    service: ServedCollection, query: Query, wanted: JudgeFields, pool: JudgingPool,
    *, said: tuple[Mapping[str, int], Mapping[str, str]], deadline: Deadline,
) -> list[Card]:  # fmt: skip
    """Return the documents of a pool in the order in which they are judged, with what the judge said."""
    (grades, comments), view = said, service.catalogue.view(wanted.index)
    doc_ids = list(pool.doc_ids)
    if wanted.blind:
        doc_ids.sort(key=lambda doc: order(0, f"{query.id}\t{doc}"))
    hybrid = next((name for name in wanted.system if name.startswith("hybrid")), wanted.system[0])
    spec = service.catalogue.system(hybrid, view.name)
    finder = PassageFinder(service.catalogue, view, spec, query.text, deadline=deadline)
    documents = view.index.documents.fetch(doc_ids)

    def mark(text: str) -> Marks:
        return tuple((a, b) for a, b, _ in finder.analyzer.matches(text, finder.weights))

    def card_text(document: Document, best: Span | None, around: Span) -> CardText:
        first, end = _around(document, best, around)
        shown = sections(document, (first, end), best, links=False, mark=mark)
        return CardText(list(shown), first > 0, end < len(document.text))

    cards = []
    for document, found in zip(documents, finder.find(documents), strict=True):
        best, doc = next(iter(found.spans), None), document.id
        start, end = best or ("", "")
        shown = card_text(document, best, _SHOWN)
        is_cut = shown.begins_within or shown.ends_within
        cards.append(
            Card(
                doc,
                document.title,
                shown,
                more=card_text(document, best, _MORE) if is_cut else None,
                address=address("/document", doc=doc, index=view.name, start=start, end=end)
                + "#here" * (best is not None),
                length=len(document.text.split()),
                grade=grades.get(doc),
                comment=comments.get(doc, ""),
            )
        )
    return cards


def _around(document: Document, found: Span | None, around: Span) -> Span:
    """Return which part of a text is shown: all, or its best passage and about so much before and after."""
    text, (before, after) = document.text, around
    if len(text) <= before + after:
        return 0, len(text)
    first, last = found or (0, 0)
    low, high = max(0, first - before), min(len(text), last + after)
    if (form := form_of(document)) != "plain":
        return block_start(text, low, form), block_end(text, high, form)
    return bounds(text, low, high)


def _following(service: ServedCollection, mine: Qrels, query: Query) -> Query | None:
    """Return the next question that this judge has not begun."""
    known = service.known_queries()
    ids = [one.id for one in known]
    start = ids.index(query.id) + 1 if query.id in ids else 0
    around = (*known[start:], *known[:start])
    return next((one for one in around if one.id not in mine and one.id != query.id), None)
