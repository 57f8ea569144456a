"""Queries: what was asked before, how far it is judged, and how far judges agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.core.errors import WrongUse
from rankhouse.io.trec import qrels_rows
from rankhouse.page.tables import Table
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import agreements, differences
from rankhouse.serve.judging.log import IMPORTED
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.page.render import address, csv_of, download, exports, page

_A_PAGE = 100
_DIFFERENCES = 50
_SHOWS = {"all": "All", "judged": "Judged", "open": "Not judged"}


class QuestionRow(NamedTuple):
    """A question and how far it is judged."""

    id: str
    text: str
    judged: int
    relevant: int
    judges: tuple[str, ...]


_ORDERS: dict[str, Callable[[QuestionRow], Any] | None] = {
    "file": None,
    "few": lambda row: row.judged,
    "many": lambda row: -row.judged,
    "words": lambda row: row.text.casefold(),
    "relevant": lambda row: -row.relevant,
    "scarce": lambda row: row.relevant,
    "judges": lambda row: (-len(row.judges), row.judges),
}
_HEADS = (
    ("Question", ("words", "file"), "ascending"),
    ("Judged", ("many", "few"), "descending"),
    ("Relevant", ("relevant", "scarce"), "descending"),
    ("Judges", ("judges", "file"), "descending"),
)
"""Heads of the list: what a first and a second press order by, and how the first is called."""
_OTHER = {"few": "ascending", "scarce": "ascending"}


class QueriesFields(Struct):
    """Which questions are shown, in which order, and as what file."""

    show: Literal["all", "judged", "open"] = "all"
    order: Literal["file", "few", "many", "words", "relevant", "scarce", "judges"] = "file"
    words: Annotated[str, Meta(max_length=200)] = ""
    page: Annotated[int, Meta(ge=1)] = 1
    export: Literal["html", "csv", "json", "qrels"] = "html"


def show(service: ServedCollection, request: Request, asked: QueriesFields) -> Response:
    """Return the list of questions."""
    shown, order, words, number = asked.show, asked.order, asked.words, asked.page
    rows = rows_of(service)
    chosen = _chosen(rows, shown, order, words)
    if asked.export != "html":
        return export(service, chosen, asked.export)
    last = max(1, math.ceil(len(chosen) / _A_PAGE))
    if number > last:
        raise WrongUse(f"page={number}: give a whole number from 1 to {last:,}")
    store = service.judgements
    return page(
        request,
        "queries.html.j2",
        {
            "title": "Queries",
            "summary": _summary(rows),
            "words": words, "show": shown, "shows": list(_SHOWS.items()), "order": order,
            "heads": _heads(order, {"words": words, "show": shown}),
            "rows": chosen[(number - 1) * _A_PAGE : number * _A_PAGE],
            "pages": _pages(number, last, {"words": words, "show": shown, "order": order}),
            "has_any": bool(rows),
            "judges": judges_table(store) if store is not None and store.judges else None,
            "agreement": agreement_table(store) if store is not None else None,
            "differing": differing_table(store) if store is not None else None,
            "comments": comments_table(store) if store is not None else None,
            "exports": exports(request, "html", "csv", "json", "qrels"),
        },
    )  # fmt: skip


def rows_of(service: ServedCollection) -> list[QuestionRow]:
    """Return every question with its counts."""
    grades, judges = service.known_qrels(), dict[str, dict[str, None]]()
    for entry in service.judgements.entries if service.judgements is not None else ():
        if entry.judge != IMPORTED:
            judges.setdefault(entry.query_id, {})[entry.judge] = None
    texts = {query.id: query.text for query in service.known_queries()}
    rows = []
    for query_id in dict.fromkeys([*texts, *grades]):
        said = grades.get(query_id, {}).values()
        counts = len(said), sum(grade > 0 for grade in said)
        rows.append(QuestionRow(query_id, texts.get(query_id, ""), *counts, tuple(judges.get(query_id, ()))))
    return rows


def _chosen(rows: Sequence[QuestionRow], shown: str, order: str, words: str) -> list[QuestionRow]:
    wanted = words.casefold()
    chosen = [
        row
        for row in rows
        if (shown == "all" or bool(row.judged) == (shown == "judged"))
        and (wanted in row.text.casefold() or wanted in row.id.casefold())
    ]
    key = _ORDERS[order]
    return chosen if key is None else sorted(chosen, key=key)


def _summary(rows: Sequence[QuestionRow]) -> str:
    some = sum(1 for row in rows if row.judged)
    pairs, relevant = sum(row.judged for row in rows), sum(row.relevant for row in rows)
    questions, judgements = "question" + "s" * (len(rows) != 1), "judgement" + "s" * (pairs != 1)
    return f"{len(rows):,} {questions}, {some:,} with {pairs:,} {judgements}, {relevant:,} of them relevant."


def _heads(order: str, kept: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """Return each head of the list: its name, the address that orders by it, and how it orders now."""
    heads = []
    for name, (first, second), way in _HEADS:
        target = address("/queries", **kept, order=second if order == first else first)
        heads.append(
            (name, target, way if order == first else _OTHER.get(order, "") if order == second else "")
        )
    return heads


def _pages(number: int, last: int, kept: dict[str, str]) -> list[tuple[str, str]]:
    near = (("← Previous", number - 1), ("Next →", number + 1))
    return [(name, address("/queries", **kept, page=n)) for name, n in near if 1 <= n <= last]


def judges_table(store: JudgementStore) -> Table:
    """Return how much each judge said."""
    rows = []
    for judge in store.judges:
        said = store.qrels_of(judge)
        grades = [grade for of_query in said.values() for grade in of_query.values()]
        counts = (f"{grades.count(value):,}" for value in store.scale)
        rows.append((judge, f"{len(said):,}", f"{len(grades):,}", *counts))
    named = (f"{value} {label}" for value, label in store.scale.items())
    return Table(("Judge", "Questions", "Documents", *named), tuple(rows))


def agreement_table(store: JudgementStore) -> Table | None:
    """Return how far every two judges agree; None where no two judged the same document."""
    rows = []
    for one in agreements(store):
        kappas = _kappa(one.kappa), _kappa(one.weighted)
        rows.append((f"{one.first}, {one.second}", f"{one.pairs:,}", f"{one.same:.0%}", *kappas))
    legend = (
        "For documents that both judged: the share with the same grade, and Cohen's kappa, the agreement "
        "beyond chance (1 is perfect, 0 is chance); weighted kappa weighs a difference by its square."
    )
    head = ("Judges", "Documents", "Same grade", "Kappa", "Weighted kappa")
    return Table(head, tuple(rows), legend=legend) if rows else None


def differing_table(store: JudgementStore) -> Table | None:
    """Return the documents that judges grade differently, the furthest apart first; None without any."""
    texts = {query.id: query.text for query in store.queries}
    rows = [
        (texts.get(one.query_id) or one.query_id, one.doc_id, f"{a} {one.first}", f"{b} {one.second}")
        for a, b in combinations(store.judges, 2)
        for one in differences(store.qrels_of(a), store.qrels_of(b))[:_DIFFERENCES]
    ]
    return Table(("Question", "Document", "One judge", "The other"), tuple(rows)) if rows else None


def comments_table(store: JudgementStore) -> Table | None:
    """Return what judges remarked on documents; None without any."""
    texts = {entry.query_id: entry.query for entry in store.entries if entry.query}
    rows = tuple((texts.get(query, query), doc, judge, text) for (query, doc), judge, text in store.comments)
    return Table(("Question", "Document", "Judge", "Comment"), rows) if rows else None


def _kappa(value: float | None) -> str:
    return "–" if value is None or math.isnan(value) else f"{value:.2f}"


def export(service: ServedCollection, rows: Sequence[QuestionRow], kind: str) -> Response:
    """Return the questions, or their judgements, as a file: "csv", "json" or "qrels"."""
    if kind == "qrels":
        grades = service.known_qrels()
        text = "".join(qrels_rows({row.id: grades.get(row.id, {}) for row in rows}))
    elif kind == "csv":
        text = csv_of(QuestionRow._fields, ([*row[:4], " ".join(row.judges)] for row in rows))
    else:
        text = msgspec.json.encode([row._asdict() for row in rows]).decode()
    return download(f"queries.{kind}", text)
