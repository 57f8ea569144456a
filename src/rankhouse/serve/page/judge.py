"""Judge: one question, the documents that chosen systems found, one key a document."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import TYPE_CHECKING
from urllib.parse import quote, unquote

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.results import Marks
from rankhouse.serve.host.keys import caller_of
from rankhouse.serve.judging.known import known_queries
from rankhouse.serve.judging.store import LONGEST_NAME
from rankhouse.serve.page import asked
from rankhouse.serve.page.faults import wants_html
from rankhouse.serve.page.pools import Pool, Pools
from rankhouse.serve.page.questions import question_of
from rankhouse.serve.page.render import address, page, parameters
from rankhouse.serve.search.asking import client_deadline
from rankhouse.systems.execution import with_snippets
from rankhouse.systems.short_forms import is_dense

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service
    from rankhouse.serve.search.systems import SystemSpec

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
        judge: Who judges.
        index: Name of what is searched.
        systems: Whose documents are judged.
        depth: How many of each.
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
        doc_id: Its id.
        title: Its title, or "".
        snippet: The stretch of its text that answers best.
        marks: (start, end) of the words to highlight there.
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
    found: Sequence[str] = field(default_factory=tuple)


def show(service: Service, pools: Pools, request: Request) -> Response:
    """Return the documents of a question, or the form that chooses one.

    Raises:
        RankhouseError: A parameter that is not accepted, or a search that fails.
    """
    wanted = _asked(service, request, request.query_params)
    store = service.judgements
    if not (wanted.query and wanted.judge) or "change" in request.query_params or store is None:
        return _choose(service, request, wanted)
    _check_judge(wanted.judge)
    query = question_of(service, wanted.query)
    deadline = client_deadline(request, PATIENCE)
    pool = pools.of(query, wanted.index, wanted.systems, wanted.depth, deadline)
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


def write(service: Service, pools: Pools, request: Request, form: asked.Fields) -> Response:
    """Keep what a judge said, or take it back; the page's script gets JSON, a form the page again.

    Args:
        form: Question, judge, and ``mark`` (grade, place, document) or ``undo``.

    Raises:
        RankhouseError: A field that is not accepted, or a file that cannot be written.
    """
    store = service.judgements
    if store is None:
        raise WrongUse(_READ_ONLY)
    wanted = _asked(service, request, form)
    who = caller_of(request).name
    if form.get("undo"):
        entry = store.undo(wanted.judge)
        if entry is not None:
            service.audit.note("undo", who, judge=wanted.judge, query=entry.query_id, document=entry.doc_id)
        told: dict[str, object] = {"doc": None, "grade": None, "query": ""}
        if entry is not None:
            told = {"doc": entry.doc_id, "grade": entry.grade, "query": entry.query}
            wanted = (
                wanted if _same(service, wanted.query, entry.query_id) else replace(wanted, query=entry.query)
            )
        place = 0
    else:
        grade, place, doc_id = _mark(form.get("mark", ""))
        query = question_of(service, wanted.query)
        if doc_id not in service.catalogue.view(wanted.index).index.documents:
            raise WrongUse(f'document "{doc_id[:80]}" is not in the index "{wanted.index}"')
        pool = pools.kept(query, wanted.index, wanted.systems, wanted.depth)  # no word waits for a model
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
    if (
        len(pieces) != 3
        or not (numbers.isascii() and all(map(str.isdigit, pieces[:2])))
        or len(text) > 10_000
    ):
        raise WrongUse(f'mark="{text[:40]}": write GRADE PLACE DOCUMENT, like "2 1 doc7"')
    return int(pieces[0][:6]), int(pieces[1][:6]), pieces[2]


def _same(service: Service, query: str, query_id: str) -> bool:
    return question_of(service, query).id == query_id


def _asked(service: Service, request: Request, fields: asked.Fields) -> JudgingTask:
    view = service.catalogue.view(asked.words(fields, "index"))
    systems = asked.several(fields, "system", MOST_SYSTEMS, "systems")
    judge = asked.words(fields, "judge", LONGEST_NAME) or unquote(request.cookies.get(_COOKIE, ""))
    if not judge and service.keys is not None:
        judge = caller_of(request).name
    is_new = "query" not in fields or "depth" not in fields
    return JudgingTask(
        asked.words(fields, "query"),
        judge,
        view.name,
        tuple(systems or _usual_pool(service.catalogue.systems(view.name))),
        asked.number(fields, "depth", DEPTHS[1], 1, 100),
        bool(fields.get("blind")) or is_new,
    )


def _usual_pool(systems: Mapping[str, SystemSpec]) -> list[str]:
    """Return the first model of words and two that read or encode: a pool gains where systems differ."""
    others = [name for name, one in systems.items() if one.ranker or any(map(is_dense, one.models))]
    return list(dict.fromkeys([*[*systems][:1], *others, *systems]))[:3]


def _choose(service: Service, request: Request, wanted: JudgingTask) -> Response:
    """Return the form that chooses question, name and systems."""
    systems = list(service.catalogue.systems(wanted.index))
    content: dict[str, object] = {
        "title": "Judge",
        "pool": None,
        "notes": () if service.judgements is not None else (_READ_ONLY,),
        "asked": question_of(service, wanted.query).text if wanted.query else "",
        "questions": known_queries(service)[:500],
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
    service: Service, mine: Mapping[str, int], query: Query, wanted: JudgingTask, pool: Pool
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


def _following(service: Service, mine: Qrels, query: Query, wanted: JudgingTask) -> str:
    """Return the address of the next question that this judge has not begun; "" where there is none."""
    known = known_queries(service)
    ids = [one.id for one in known]
    start = ids.index(query.id) + 1 if query.id in ids else 0
    after = next(
        (one for one in (*known[start:], *known[:start]) if one.id not in mine and one.id != query.id), None
    )
    return wanted.address(query=after.id) if after else ""
