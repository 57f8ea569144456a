"""Judge: one question, the documents that chosen systems found, one key a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Annotated
from urllib.parse import quote, unquote

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.results import Marks
from rankhouse.serve.contracts.requests import ANYBODY, caller_of, deadline_of
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.store import LONGEST_NAME
from rankhouse.serve.page.pools import JudgingPool, PoolRequest, Pools
from rankhouse.serve.page.render import address, page, parameters
from rankhouse.serve.page.views import Line, wants_html
from rankhouse.serve.search.systems import SystemSpec
from rankhouse.systems.execution import with_snippets
from rankhouse.systems.short_forms import is_dense

DEPTHS = (5, 10, 20, 50)
MOST_SYSTEMS = 12
LONGEST_TEXT = 20_000
PATIENCE = 60.0
"""Seconds for all systems together."""
_COOKIE = "rankhouse-judge"
_A_YEAR = 365 * 24 * 3600
_READ_ONLY = (
    "This service only reads: nothing can be judged. Start it with --judgements FILE to keep judgements."
)

_READ_KEY = "Your key reads only; judging needs one that writes."


@dataclass(frozen=True)
class JudgingTask:
    """What is judged, by whom, and how.

    Attributes:
        query: Id or words of the question, as given; "" for none yet.
        systems: Whose documents are judged, ``depth`` of each.
        blind: Whether systems and ranks are hidden.
    """

    query: str
    judge: str
    index: str
    systems: tuple[str, ...]
    depth: int
    blind: bool

    def address(self, **other: object) -> str:
        """Return the address of this, with something else in places."""
        return address("/judge", **{**self._parameters, **other})

    def pool(self, query: Query) -> PoolRequest:
        """Return the pool that is judged."""
        return PoolRequest(query, self.index, self.systems, self.depth)

    @property
    def fields(self) -> list[tuple[str, str]]:
        """Return it as fields of a form."""
        return parameters(**self._parameters)

    @property
    def _parameters(self) -> dict[str, object]:
        own = asdict(self)
        return {"system" if name == "systems" else name: value for name, value in own.items()}


@dataclass(frozen=True)
class Card:
    """A document to judge.

    Attributes:
        text: The whole text, or what is shown of it.
        grade: What this judge says of it; None for nothing yet.
        found: Which systems found it, at which ranks; nothing when judging blind.
    """

    doc_id: str
    title: str
    snippet: str
    marks: Marks
    text: str
    grade: int | None
    found: Sequence[str] = ()


class JudgeFields(Struct):
    """A question, who judges it, and the pool of which systems; or ``change`` for other ones."""

    query: Line = ""
    judge: Annotated[str, Meta(max_length=LONGEST_NAME)] = ""
    index: Line = ""
    system: Annotated[list[Line], Meta(max_length=MOST_SYSTEMS)] = []
    depth: Annotated[int, Meta(ge=1, le=100)] | None = None
    blind: str = ""
    change: str = ""


class JudgeForm(JudgeFields):
    """A judgement, or ``undo``: ``mark`` is grade, place and document."""

    mark: Annotated[str, Meta(max_length=10_000)] = ""
    undo: str = ""


def show(pools: Pools, service: ServedCollection, request: Request, asked: JudgeFields) -> Response:
    """Return the documents of a question, or the form that chooses one."""
    wanted = _task(service, request, asked)
    store = service.judgements
    if not (wanted.query and wanted.judge) or asked.change or store is None:
        return _choose(service, request, wanted)
    _check_judge(wanted.judge)
    query = service.question(wanted.query)
    pool = pools.of(wanted.pool(query), deadline_of(request, PATIENCE))
    mine = store.qrels_of(wanted.judge)
    cards = _cards(service, mine.get(query.id, {}), query, wanted, pool)
    may_write = caller_of(request).may_write
    content: dict[str, object] = {
        "title": f"Judge: {query.text}",
        "query": query,
        "pool": cards,
        "judge": wanted.judge,
        "labels": store.scale,
        "grade_keys": [(str(value), label) for value, label in store.scale.items()],
        "done": sum(card.grade is not None for card in cards),
        "can_undo": may_write and bool(mine),
        "may_write": may_write,
        "summary": _summary(wanted, cards),
        "notes": (*pool.notes, *(() if may_write else (_READ_KEY,))),
        "kept": wanted.fields,
        "change": wanted.address(change=1),
        "following": _following(service, mine, query, wanted),
        "search": address("/", query=query.text, index=wanted.index, system=wanted.systems[:4]),
        "exports": [("page", wanted.address(export="html")),
                    ("qrels", address("/queries", words=query.id, export="qrels"))],
    }  # fmt: skip
    return _remembering(page(request, "judge.html.j2", content), wanted.judge)


def write(pools: Pools, service: ServedCollection, request: Request, form: JudgeForm) -> Response:
    """Keep what a judge said, or take it back; the page's script gets JSON, a form the page again."""
    store = service.judgements
    if store is None:
        raise WrongUse(_READ_ONLY)
    wanted = _task(service, request, form)
    who = caller_of(request).name
    if form.undo:
        entry = store.undo(wanted.judge)
        if entry is not None:
            service.audit.note("undo", who, judge=wanted.judge, query=entry.query_id, document=entry.doc_id)
        told: dict[str, object] = {"doc": None, "grade": None, "query": ""}
        if entry is not None:
            told = {"doc": entry.doc_id, "grade": entry.grade, "query": entry.query}
            if service.question(wanted.query).id != entry.query_id:
                wanted = replace(wanted, query=entry.query)
        place = 0
    else:
        grade, place, doc_id = _mark(form.mark)
        query = service.question(wanted.query)
        if doc_id not in service.catalogue.view(wanted.index).index.documents:
            raise WrongUse(f'document "{doc_id[:80]}" is not in the index "{wanted.index}"')
        pool = pools.kept(wanted.pool(query))  # no word waits for a model
        showed = list(pool.ranks.get(doc_id, ())) if pool else []
        store.judge(wanted.judge, query.text, doc_id, grade, showed)
        service.audit.note("judge", who, judge=wanted.judge, query=query.id, document=doc_id, grade=grade)
        told = {"doc": doc_id, "grade": grade, "query": query.text}
    if not wants_html(request):
        return JSONResponse({**told, "can_undo": bool(store.qrels_of(wanted.judge))})
    anchor = f"#document-{place + 1}" if place else ""
    return RedirectResponse(wanted.address() + anchor, 303)


def _mark(text: str) -> tuple[int, int, str]:
    """Return grade, place and document of a button."""
    pieces = text.split(" ", 2)
    numbers = "".join(pieces[:2])
    if len(pieces) != 3 or not (numbers.isascii() and all(map(str.isdigit, pieces[:2]))):
        raise WrongUse(f'mark="{text[:40]}": write GRADE PLACE DOCUMENT, like "2 1 doc7"')
    return int(pieces[0][:6]), int(pieces[1][:6]), pieces[2]


def _task(service: ServedCollection, request: Request, asked: JudgeFields) -> JudgingTask:
    view, caller = service.catalogue.view(asked.index), caller_of(request)
    judge = asked.judge or unquote(request.cookies.get(_COOKIE, ""))[:LONGEST_NAME]
    if not judge and caller is not ANYBODY:
        judge = caller.name
    return JudgingTask(
        asked.query,
        judge,
        view.name,
        tuple(asked.system or _usual_pool(service.catalogue.systems(view.name))),
        asked.depth or DEPTHS[1],
        bool(asked.blind) or asked.depth is None,
    )


def _usual_pool(systems: Mapping[str, SystemSpec]) -> list[str]:
    """Return the first model of words and two that read or encode: a pool gains where systems differ."""
    others = [name for name, one in systems.items() if one.ranker or any(map(is_dense, one.models))]
    return list(dict.fromkeys([*[*systems][:1], *others, *systems]))[:3]


def _choose(service: ServedCollection, request: Request, wanted: JudgingTask) -> Response:
    """Return the form that chooses question, name and systems."""
    systems = list(service.catalogue.systems(wanted.index))
    content: dict[str, object] = {
        "title": "Judge",
        "pool": None,
        "notes": () if service.judgements is not None else (_READ_ONLY,),
        "asked": service.question(wanted.query).text if wanted.query else "",
        "questions": service.known_queries()[:500],
        "judge": wanted.judge,
        "indexes": [(name, name) for name in service.catalogue.indexes],
        "index": wanted.index,
        "depth": str(wanted.depth),
        "depths": [(str(n), f"the first {n}") for n in sorted({*DEPTHS, wanted.depth})],
        "systems": list(dict.fromkeys([*systems, *wanted.systems])),
        "chosen": wanted.systems,
        "blind": wanted.blind,
        "exports": [],
    }
    return page(request, "judge.html.j2", content)


def _check_judge(judge: str) -> None:
    if not judge.isprintable():
        raise WrongUse(f"judge {judge!r}: give a name of 1 to {LONGEST_NAME} printable characters")


def _remembering(response: Response, judge: str) -> Response:
    """Let the browser remember who judges here."""
    response.set_cookie(_COOKIE, quote(judge), _A_YEAR, httponly=True, samesite="strict")
    return response


def _summary(wanted: JudgingTask, cards: Sequence[Card]) -> str:
    systems = ", ".join(wanted.systems)
    return f"{len(cards):,} documents: the first {wanted.depth} of {systems}" + (
        ", shuffled" if wanted.blind else ""
    )


def _cards(
    service: ServedCollection, mine: Mapping[str, int], query: Query, wanted: JudgingTask, pool: JudgingPool
) -> list[Card]:
    index = service.catalogue.view(wanted.index).index
    ranking = pool.ranking(query, is_blind=wanted.blind)
    hits = with_snippets(index, query.text, ranking).hits
    documents: Sequence[Document] = index.documents.fetch(ranking.doc_ids)
    return [
        Card(
            hit.doc_id, hit.title, hit.text, hit.marks, _whole(document.text, hit.text), mine.get(hit.doc_id),
            () if wanted.blind else pool.found(hit.doc_id),
        )
        for hit, document in zip(hits, documents, strict=True)
    ]  # fmt: skip


def _whole(text: str, snippet: str) -> str:
    """Return the text below a card, or "" where the snippet says it all."""
    if " ".join(text.split()) == snippet:
        return ""
    return text if len(text) <= LONGEST_TEXT else f"{text[:LONGEST_TEXT]} …"


def _following(service: ServedCollection, mine: Qrels, query: Query, wanted: JudgingTask) -> str:
    """Return the address of the next question that this judge has not begun; "" where there is none."""
    known = service.known_queries()
    ids = [one.id for one in known]
    start = ids.index(query.id) + 1 if query.id in ids else 0
    after = next(
        (one for one in (*known[start:], *known[:start]) if one.id not in mine and one.id != query.id), None
    )
    return wanted.address(query=after.id) if after else ""
