"""Queries: what was asked before, how far it is judged, and how far judges agree."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
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
from rankhouse.serve.page.render import address, csv_of, download, page

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
    ("Question", {"words": "ascending", "file": ""}),
    ("Judged", {"many": "descending", "few": "ascending"}),
    ("Relevant", {"relevant": "descending", "scarce": "ascending"}),
    ("Judges", {"judges": "descending", "file": ""}),
)
"""Heads of the list: what a first and a second press order by, and which way that is."""


class QueriesFields(Struct):
    """Choice and order of the questions shown, and the form of the file."""

    show: Literal["all", "judged", "open"] = "all"
    order: Literal["file", "few", "many", "words", "relevant", "scarce", "judges"] = "file"
    words: Annotated[str, Meta(max_length=200)] = ""
    page: Annotated[int, Meta(ge=1)] = 1
    export: Literal["html", "csv", "json", "qrels"] = "html"


def show(service: ServedCollection, request: Request, asked: QueriesFields) -> Response:
    """Return the list of questions."""
    rows, store = rows_of(service), service.judgements
    chosen = _chosen(rows, asked)
    if asked.export != "html":
        return export(service, chosen, asked.export)
    number, last = asked.page, max(1, math.ceil(len(chosen) / _A_PAGE))
    if number > last:
        raise WrongUse(f"page={number}: give a whole number from 1 to {last:,}")
    kept = {"words": asked.words, "show": asked.show}
    near = (("← Previous", number - 1), ("Next →", number + 1))
    heads = []
    for name, ways in _HEADS:
        first, second = ways
        target = address("/queries", **kept, order=second if asked.order == first else first)
        heads.append((name, target, ways.get(asked.order, "")))
    content = {
        "title": "Questions",
        "asked": asked,
        "shows": list(_SHOWS.items()),
        "heads": heads,
        "rows": chosen[(number - 1) * _A_PAGE : number * _A_PAGE],
        "pages": [
            (name, address("/queries", **kept, order=asked.order, page=n))
            for name, n in near
            if 1 <= n <= last
        ],
        "every": rows,
        "judges": judges_table(store) if store is not None and store.judges else None,
    }
    for name, table in (
        ("agreement", agreement_table), ("differing", differing_table), ("comments", comments_table),
    ):  # fmt: skip
        content[name] = None if store is None else table(store)
    return page(request, "queries.html.j2", content)


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


def _chosen(rows: Sequence[QuestionRow], asked: QueriesFields) -> list[QuestionRow]:
    wanted, shown = asked.words.casefold(), asked.show
    chosen = [
        row
        for row in rows
        if (shown == "all" or bool(row.judged) == (shown == "judged"))
        and (wanted in row.text.casefold() or wanted in row.id.casefold())
    ]
    key = _ORDERS[asked.order]
    return chosen if key is None else sorted(chosen, key=key)


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
    return Table(("Question", "Document", "First judge", "Second judge"), tuple(rows)) if rows else None


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
