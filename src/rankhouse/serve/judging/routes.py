"""Questions, judgements, comparisons and trainings as JSON, under ``/api``; the page has its own forms."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, NoReturn

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from rankhouse.io.trec import qrels_rows
from rankhouse.serve.contracts.bodies import answer, read_body
from rankhouse.serve.contracts.errors import Forbidden, Invalid, Unready
from rankhouse.serve.contracts.openapi import Operation, Parameter, describe
from rankhouse.serve.host.keys import caller_of
from rankhouse.serve.judging.agreement import agreements
from rankhouse.serve.judging.compare import MOST_COMPARED, CompareRequest, compare_runs
from rankhouse.serve.judging.known import known_grades, known_qrels, known_queries
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.judging.shapes import (
    AgreementInfo,
    CompareQuery,
    CompareResponse,
    JudgedQuery,
    JudgementBody,
    JudgementInfo,
    QueryInfo,
    TrainingBody,
    TrainingInfo,
    UndoBody,
    UndoneResponse,
)
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import TrainingJob
from rankhouse.serve.search.asking import Threads, client_deadline, from_query
from rankhouse.serve.search.documents import read_document

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

_QUERY = Parameter("query", str, "The question's text, or its id.", required=True)
_JUDGE = Parameter("judge", str, "Only what this judge says.")
_COMPARE = (
    Parameter("name", Annotated[list[str], Meta(min_length=1, max_length=MOST_COMPARED)],
              "Runs and systems, the baseline first; once for each.", required=True),
    Parameter("measures", str, "In ir_measures' notation."),
    Parameter("test", str, "randomization or t."),
    Parameter("correction", str, "holm, bonferroni or none."),
    Parameter("index", str, "Name of what systems search."),
    Parameter("against", str, "What is held against the baseline question by question."),
)  # fmt: skip


def routes(service: Service) -> list[BaseRoute]:
    """Return the routes of questions, judgements, comparisons and trainings."""
    return [*_judging(service), *_comparing(service), *_training(service)]


def _judging(service: Service) -> list[BaseRoute]:
    threads = Threads()

    async def queries(request: Request) -> Response:  # noqa: ARG001 - as starlette calls handlers
        return answer(await threads.call(_queries, service))

    async def judgements(request: Request) -> Response:
        asked = request.query_params.get("query", "")
        if not asked.strip():
            raise Invalid("query: is missing or empty; give a question's text or its id", "query")
        return answer(await threads.call(_judged, service, asked))

    async def judge(request: Request) -> Response:
        body = await read_body(request, JudgementBody)
        return answer(await threads.call(_judge, service, body, caller_of(request).name))

    async def undo(request: Request) -> Response:
        body = await read_body(request, UndoBody)
        return answer(await threads.call(_undo, service, body, caller_of(request).name))

    async def qrels(request: Request) -> Response:
        told = await threads.call(_qrels, service, request.query_params.get("judge", ""))
        return PlainTextResponse(told.encode("utf-8", "replace"))

    async def agreement(request: Request) -> Response:  # noqa: ARG001
        found = await threads.call(agreements, _store(service))
        return answer([AgreementInfo.of(one) for one in found])

    tag = "judge"
    return [
        describe("/api/queries", queries, "GET",
                 Operation("List the questions", answer=list[QueryInfo], tag=tag)),
        describe("/api/judgements", judgements, "GET",
                 Operation("What is judged for a question", answer=JudgedQuery, query=(_QUERY,), tag=tag)),
        describe("/api/judgements", judge, "POST",
                 Operation("Judge a document", JudgementBody, JudgementInfo, tag=tag)),
        describe("/api/judgements/undo", undo, "POST",
                 Operation("Take a judge's last word back", UndoBody, UndoneResponse, tag=tag)),
        describe("/api/judgements/qrels", qrels, "GET",
                 Operation("The judgements as TREC qrels", query=(_JUDGE,), media="text/plain", tag=tag)),
        describe("/api/judgements/agreement", agreement, "GET",
                 Operation("How far judges agree", answer=list[AgreementInfo], tag=tag)),
    ]  # fmt: skip


def _comparing(service: Service) -> list[BaseRoute]:
    threads = Threads()

    async def compared(request: Request) -> Response:
        asked = from_query(request.query_params, CompareQuery)
        wanted = CompareRequest(tuple(asked.name), asked.measures, asked.test, asked.correction, asked.index)
        return answer(CompareResponse.of(await threads.call(compare_runs, service, wanted, asked.against)))

    async def run(request: Request) -> Response:
        name, index = request.path_params["name"], request.query_params.get("index", "")
        left = client_deadline(request).left
        told = await threads.call(_run, service, name, index, min(20.0, left or 20.0))
        return PlainTextResponse(told.encode("utf-8", "replace"))

    tag = "compare"
    return [
        describe("/api/compare", compared, "GET",
                 Operation("Compare runs and systems", answer=CompareResponse, query=_COMPARE, tag=tag)),
        describe("/api/runs/{name:path}", run, "GET",
                 Operation("A run, or a system's over all questions, as TREC has it", query=_COMPARE[4:5],
                           media="text/plain", tag=tag)),
    ]  # fmt: skip


def _training(service: Service) -> list[BaseRoute]:
    threads = Threads()

    async def trainings(request: Request) -> Response:  # noqa: ARG001
        return answer([_info(job) for job in await threads.call(service.training.jobs)])

    async def training(request: Request) -> Response:
        return answer(_info(await threads.call(service.training.job, request.path_params["name"])))

    async def begin(request: Request) -> Response:
        wanted = (await read_body(request, TrainingBody)).request()
        job = await threads.call(service.training.begin, wanted)
        service.audit.record("train", caller_of(request).name, name=wanted.name, start=wanted.start)
        return answer(_info(job), 201)

    async def cancel(request: Request) -> Response:
        name = request.path_params["name"]
        job = await threads.call(service.training.cancel, name)
        service.audit.record("cancel", caller_of(request).name, name=name)
        return answer(_info(job))

    tag = "train"
    return [
        describe("/api/trainings", trainings, "GET",
                 Operation("List the trainings", answer=list[TrainingInfo], tag=tag)),
        describe("/api/trainings", begin, "POST",
                 Operation("Train a ranker", TrainingBody, TrainingInfo, statuses=(201,), tag=tag)),
        describe("/api/trainings/{name}", training, "GET",
                 Operation("A training and its curve", answer=TrainingInfo, tag=tag)),
        describe("/api/trainings/{name}", cancel, "DELETE",
                 Operation("End a training", answer=TrainingInfo, tag=tag)),
    ]  # fmt: skip


def _store(service: Service) -> JudgementStore:
    if service.judgements is None:
        _refuse_reading()
    return service.judgements


def _refuse_reading() -> NoReturn:
    raise Forbidden("this service only reads; start it with --judgements FILE to keep judgements")


def _queries(service: Service) -> list[QueryInfo]:
    judged = known_qrels(service)
    counts = {q: (len(said), sum(grade > 0 for grade in said.values())) for q, said in judged.items()}
    return [QueryInfo(one.id, one.text, *counts.get(one.id, (0, 0))) for one in known_queries(service)]


def _text(service: Service, asked: str) -> str:
    """Return the words of a question that is named by its id or its words."""
    return next((query.text for query in known_queries(service) if query.id == asked), asked)


def _judged(service: Service, asked: str) -> JudgedQuery:
    store = _store(service)
    text = _text(service, asked)
    query_id = store.query_id(text)
    merged = known_grades(service, query_id)
    return JudgedQuery(query_id, text, dict(store.scale), store.grades(text), merged)


def _judge(service: Service, body: JudgementBody, who: str) -> JudgementInfo:
    store, judge = _store(service), body.judge or who
    _, document = read_document(service, body.index or "", body.document)
    entry = store.judge(judge, _text(service, body.query), document.id, body.grade, body.systems or ())
    facts = {"judge": judge, "query": entry.query_id, "document": entry.doc_id, "grade": entry.grade}
    service.audit.note("judge", who, **facts)
    return JudgementInfo.of(entry)


def _undo(service: Service, body: UndoBody, who: str) -> UndoneResponse:
    judge = body.judge or who
    entry = _store(service).undo(judge)
    if entry is None:
        return UndoneResponse(None)
    service.audit.note("undo", who, judge=judge, query=entry.query_id, document=entry.doc_id)
    return UndoneResponse(JudgementInfo.of(entry))


def _qrels(service: Service, judge: str) -> str:
    return "".join(qrels_rows(_store(service).qrels_of(judge) if judge else known_qrels(service)))


def _run(service: Service, name: str, index: str, patience: float) -> str:
    """Return a run as TREC has it; that of a system is waited for."""
    run = service.runs.get(name)
    if run is None:
        progress = service.system_runs.finished(name, known_queries(service), index, patience)
        if progress.run is None:
            how_far = progress.fault or f"{progress.done:,} of {progress.total:,} questions are asked"
            raise Unready(f"the run of {name} is not there yet: {how_far}; ask again in a moment")
        run = progress.run
    return trec_run(run, name)


def _info(job: TrainingJob) -> TrainingInfo:
    asked = job.request
    return TrainingInfo(
        asked.name, asked.start, job.state, job.begun, len(job.queries), job.held_out, job.fault,
        [msgspec.to_builtins(entry) for entry in job.log], list(job.warnings),
    )  # fmt: skip
