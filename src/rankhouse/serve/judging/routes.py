"""Questions, judgements, comparisons and trainings as JSON, under ``/api``; the page has its own forms."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Meta, Struct, convert, field, structs, to_builtins
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from rankhouse.io.trec import qrels_rows
from rankhouse.serve.contracts.openapi import Operation, RouteGroup
from rankhouse.serve.contracts.requests import Threads, caller_of, deadline_of
from rankhouse.serve.errors import Forbidden, Invalid
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import (
    AgreementInfo,
    CompareRequest,
    CompareResponse,
    agreements,
    compare_runs,
)
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.judging.store import LONGEST_NAME, MOST_SYSTEMS, JudgementStore
from rankhouse.serve.judging.training import Epochs, Rate, Seed, TrainingJob, TrainingRequest
from rankhouse.serve.search.documents import read_document
from rankhouse.serve.search.shapes import IndexQuery, Words

Name = Annotated[str, Meta(min_length=1, max_length=LONGEST_NAME)]
Id = Annotated[str, Meta(min_length=1, max_length=1_000)]


class QueryInfo(Struct):
    """A question and how far it is judged.

    Attributes:
        id: Its id.
        text: Its words.
        judged: Documents that are judged for it.
        relevant: How many of them are relevant.
    """

    id: str
    text: str
    judged: int
    relevant: int


class JudgementBody(Struct):
    """A judge's judgement of a document.

    Attributes:
        query: The question's text, or the id of one that is known.
        document: The document.
        grade: One of the scale's; null takes an earlier word back.
        judge: The judge; the caller, by the name of the key, if not said.
        index: Name of the index that holds the document.
        systems: Those that showed it.
    """

    query: Words
    document: Id
    grade: Annotated[int, Meta(ge=-100, le=100)] | None
    judge: Name | None = None
    index: str | None = None
    systems: Annotated[list[str], Meta(max_length=MOST_SYSTEMS)] | None = None


class UndoBody(Struct):
    """The judge whose last judgement is undone.

    Attributes:
        judge: The judge; the caller, by the name of the key, if not said.
    """

    judge: Name | None = None


class JudgementInfo(Struct):
    """One word of a judge, as the log has it.

    Attributes:
        number: Of the line in the log.
        time: When, in UTC.
        judge: Who.
        query_id: Of which question.
        query: Its text.
        document: Of which document.
        grade: The grade that counts now; null for none.
        undoes: Number of the line that was taken back; 0 for none.
    """

    number: int
    time: str
    judge: str
    query_id: str
    query: str
    doc_id: str = field(name="document")
    grade: int | None
    undoes: int


class UndoneResponse(Struct):
    """The judgement that was undone.

    Attributes:
        undone: The line that does it; null where nothing is left to take back.
    """

    undone: JudgementInfo | None


class JudgedQueryParameters(Struct):
    """The question."""

    query: Annotated[Words, Meta(description="The question's text, or its id.")]


class QrelsParameters(Struct):
    """The judge of the judgements."""

    judge: Annotated[str, Meta(description="Only what this judge says.")] = ""


class JudgedQuery(Struct):
    """Grades of one question.

    Attributes:
        query_id: Its id.
        query: Its text.
        scale: Grade -> what it is called.
        grades: Document -> judge -> grade.
        merged: Document -> the one grade of the qrels.
    """

    query_id: str
    query: str
    scale: dict[int, str]
    grades: dict[str, dict[str, int]]
    merged: dict[str, int]


class TrainingBody(Struct):
    """Settings of a training.

    Attributes:
        name: Name of the new ranker: letters, digits, points, - and _.
        start: A ranker of the service to go on with, or a family to begin with; knrm if not said.
        index: Name of the index.
        first_stage: Name of the system that finds what it learns to order; bm25 if not said.
        epochs: How often it sees all judgements; the family's usual number if not said.
        rate: Learning rate; the family's if not said.
        seed: Of all that is drawn.
    """

    name: Name
    start: str | None = None
    index: str | None = None
    first_stage: str | None = None
    epochs: Epochs | None = None
    rate: Rate | None = None
    seed: Seed | None = None


class TrainingInfo(Struct):
    """A training.

    Attributes:
        name: Of the new ranker.
        start: The ranker it began with.
        state: running, done, failed or cancelled.
        begun: When, in UTC.
        queries: Questions it learned from.
        held_out: Questions it was chosen by.
        fault: Why it failed.
        log: Losses by step, and validations.
        warnings: Warnings for users of the ranker.
    """

    name: str
    start: str
    state: str
    begun: str
    queries: int
    held_out: int
    fault: str
    log: list[dict[str, Any]]
    warnings: list[str]


def routes(service: ServedCollection) -> list[BaseRoute]:
    """Return the routes of questions, judgements, comparisons and trainings."""
    judge, compare, train = (RouteGroup(service, tag, Threads(tag)) for tag in ("judge", "compare", "train"))
    return [
        judge("GET", "/api/queries", _queries, Operation("List the questions", answer=list[QueryInfo])),
        judge("GET", "/api/judgements", _judged,
              Operation("What is judged for a question", answer=JudgedQuery, query=JudgedQueryParameters)),
        judge("POST", "/api/judgements", _judge, Operation("Judge a document", JudgementBody, JudgementInfo)),
        judge("POST", "/api/judgements/undo", _undo,
              Operation("Take a judge's last word back", UndoBody, UndoneResponse)),
        judge("GET", "/api/judgements/qrels", _qrels,
              Operation("The judgements as TREC qrels", query=QrelsParameters, media="text/plain")),
        judge("GET", "/api/judgements/agreement", lambda service, *_: agreements(_store(service)),
              Operation("How far judges agree", answer=list[AgreementInfo])),
        compare("GET", "/api/compare", lambda service, _, asked: compare_runs(service, asked)[0],
                Operation("Compare runs and systems", answer=CompareResponse, query=CompareRequest)),
        compare("GET", "/api/runs/{name:path}", _run,
                Operation("A run, or a system's over all questions, as TREC has it", query=IndexQuery,
                          media="text/plain")),
        train("GET", "/api/trainings", lambda *_: [_info(job) for job in service.training.jobs()],
              Operation("List the trainings", answer=list[TrainingInfo])),
        train("POST", "/api/trainings", _begin,
              Operation("Train a ranker", TrainingBody, TrainingInfo, status=201)),
        train("GET", "/api/trainings/{name}",
              lambda _, request, __: _info(service.training.job(request.path_params["name"])),
              Operation("A training and its curve", answer=TrainingInfo)),
        train("DELETE", "/api/trainings/{name}", _cancel,
              Operation("End a training", answer=TrainingInfo)),
    ]  # fmt: skip


def _store(service: ServedCollection) -> JudgementStore:
    if service.judgements is None:
        raise Forbidden("this service only reads; start it with --judgements FILE to keep judgements")
    return service.judgements


def _queries(service: ServedCollection, _request: Request, _asked: None) -> list[QueryInfo]:
    judged = service.known_qrels()
    counts = {q: (len(said), sum(grade > 0 for grade in said.values())) for q, said in judged.items()}
    return [QueryInfo(one.id, one.text, *counts.get(one.id, (0, 0))) for one in service.known_queries()]


def _text(service: ServedCollection, asked: str) -> str:
    """Return the words of a question that is named by its id or its words."""
    return next((query.text for query in service.known_queries() if query.id == asked), asked)


def _judged(service: ServedCollection, _request: Request, asked: JudgedQueryParameters) -> JudgedQuery:
    if not asked.query.strip():
        raise Invalid("query: is missing or empty; give a question's text or its id", "query")
    store, text = _store(service), _text(service, asked.query)
    query_id = store.query_id(text)
    scale, merged = dict(store.scale), service.known_grades(query_id)
    return JudgedQuery(query_id, text, scale, store.grades(text), merged=merged)


def _judge(service: ServedCollection, request: Request, body: JudgementBody) -> JudgementInfo:
    store, who = _store(service), caller_of(request).name
    judge = body.judge or who
    _, document = read_document(service.catalogue, body.index or "", body.document)
    text, systems = _text(service, body.query), body.systems or ()
    entry = store.judge(judge, text, document.id, body.grade, systems=systems)
    service.note("judge", entry, who)
    return convert(entry, JudgementInfo, from_attributes=True)


def _undo(service: ServedCollection, request: Request, body: UndoBody) -> UndoneResponse:
    who = caller_of(request).name
    entry = service.undo(_store(service), body.judge or who, who)
    return UndoneResponse(convert(entry, JudgementInfo | None, from_attributes=True))


def _qrels(service: ServedCollection, _request: Request, asked: QrelsParameters) -> Response:
    said = _store(service).qrels_of(asked.judge) if asked.judge else service.known_qrels()
    return PlainTextResponse("".join(qrels_rows(said)).encode("utf-8", "replace"))


def _run(service: ServedCollection, request: Request, asked: IndexQuery) -> Response:
    """Return a run as TREC has it; that of a system is waited for."""
    name, patience = request.path_params["name"], min(20.0, deadline_of(request).left or 20.0)
    run = service.run(name, service.known_queries(), asked.index, patience)
    return PlainTextResponse(trec_run(run, name).encode("utf-8", "replace"))


def _begin(service: ServedCollection, request: Request, body: TrainingBody) -> TrainingInfo:
    wanted = {name: value for name, value in structs.asdict(body).items() if value}
    return _info(service.training.begin(TrainingRequest(**wanted), caller_of(request).name))


def _cancel(service: ServedCollection, request: Request, _asked: None) -> TrainingInfo:
    return _info(service.training.cancel(request.path_params["name"], caller_of(request).name))


def _info(job: TrainingJob) -> TrainingInfo:
    name, start = job.request.name, job.request.start
    return TrainingInfo(
        name, start, job.state, job.begun,
        queries=len(job.queries), held_out=job.held_out, fault=job.fault,
        log=[to_builtins(entry) for entry in job.log], warnings=list(job.warnings),
    )  # fmt: skip
