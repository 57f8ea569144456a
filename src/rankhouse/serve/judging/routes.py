"""Questions, judgements, comparisons and trainings as JSON, under ``/api``; the page has its own forms."""

from __future__ import annotations

from functools import partial

import msgspec
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute

from rankhouse.io.trec import qrels_rows
from rankhouse.serve.contracts.openapi import Method, Operation, Work, described
from rankhouse.serve.contracts.requests import Threads, caller_of, deadline_of
from rankhouse.serve.errors import Forbidden, Invalid, Unready
from rankhouse.serve.judging.agreement import AgreementInfo, agreements
from rankhouse.serve.judging.collection import ServedCollection
from rankhouse.serve.judging.compare import CompareRequest, CompareResponse, compare_runs
from rankhouse.serve.judging.runs import trec_run
from rankhouse.serve.judging.shapes import (
    JudgedQuery,
    JudgedQueryParameters,
    JudgementBody,
    JudgementInfo,
    QrelsParameters,
    QueryInfo,
    RunParameters,
    TrainingBody,
    TrainingInfo,
    UndoBody,
    UndoneResponse,
)
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.judging.training import TrainingJob
from rankhouse.serve.search.documents import read_document

_JUDGE, _COMPARE, _TRAIN = (partial(Operation, tag=tag) for tag in ("judge", "compare", "train"))
_TEXT = "text/plain"


def routes(service: ServedCollection) -> list[BaseRoute]:
    """Return the routes of questions, judgements, comparisons and trainings."""
    judging, comparing, training = (Threads(name) for name in ("judging", "comparing", "training"))

    def at(method: Method, path: str, work: Work, operation: Operation, threads: Threads) -> BaseRoute:
        return described(method, path, partial(work, service), operation, threads)

    return [
        at("GET", "/api/queries", _queries, _JUDGE("List the questions", answer=list[QueryInfo]), judging),
        at("GET", "/api/judgements", _judged,
           _JUDGE("What is judged for a question", answer=JudgedQuery, query=JudgedQueryParameters), judging),
        at("POST", "/api/judgements", _judge,
           _JUDGE("Judge a document", JudgementBody, JudgementInfo), judging),
        at("POST", "/api/judgements/undo", _undo,
           _JUDGE("Take a judge's last word back", UndoBody, UndoneResponse), judging),
        at("GET", "/api/judgements/qrels", _qrels,
           _JUDGE("The judgements as TREC qrels", query=QrelsParameters, media=_TEXT), judging),
        at("GET", "/api/judgements/agreement", _agreement,
           _JUDGE("How far judges agree", answer=list[AgreementInfo]), judging),
        at("GET", "/api/compare", _compare,
           _COMPARE("Compare runs and systems", answer=CompareResponse, query=CompareRequest), comparing),
        at("GET", "/api/runs/{name:path}", _run,
           _COMPARE("A run, or a system's over all questions, as TREC has it", query=RunParameters,
                    media=_TEXT), comparing),
        at("GET", "/api/trainings", _trainings,
           _TRAIN("List the trainings", answer=list[TrainingInfo]), training),
        at("POST", "/api/trainings", _begin,
           _TRAIN("Train a ranker", TrainingBody, TrainingInfo, statuses=(201,)), training),
        at("GET", "/api/trainings/{name}", _training,
           _TRAIN("A training and its curve", answer=TrainingInfo), training),
        at("DELETE", "/api/trainings/{name}", _cancel,
           _TRAIN("End a training", answer=TrainingInfo), training),
    ]  # fmt: skip


def _store(service: ServedCollection) -> JudgementStore:
    if service.judgements is None:
        raise Forbidden("this service only reads; start it with --judgements FILE to keep judgements")
    return service.judgements


def _queries(service: ServedCollection, request: Request, asked: None) -> list[QueryInfo]:
    del request, asked
    judged = service.known_qrels()
    counts = {q: (len(said), sum(grade > 0 for grade in said.values())) for q, said in judged.items()}
    return [QueryInfo(one.id, one.text, *counts.get(one.id, (0, 0))) for one in service.known_queries()]


def _text(service: ServedCollection, asked: str) -> str:
    """Return the words of a question that is named by its id or its words."""
    return next((query.text for query in service.known_queries() if query.id == asked), asked)


def _judged(service: ServedCollection, request: Request, asked: JudgedQueryParameters) -> JudgedQuery:
    del request
    if not asked.query.strip():
        raise Invalid("query: is missing or empty; give a question's text or its id", "query")
    store, text = _store(service), _text(service, asked.query)
    query_id = store.query_id(text)
    return JudgedQuery(query_id, text, dict(store.scale), store.grades(text), service.known_grades(query_id))


def _judge(service: ServedCollection, request: Request, body: JudgementBody) -> JudgementInfo:
    store, who = _store(service), caller_of(request).name
    judge = body.judge or who
    _, document = read_document(service, body.index or "", body.document)
    entry = store.judge(judge, _text(service, body.query), document.id, body.grade, body.systems or ())
    facts = {"judge": judge, "query": entry.query_id, "document": entry.doc_id, "grade": entry.grade}
    service.audit.note("judge", who, **facts)
    return JudgementInfo.of(entry)


def _undo(service: ServedCollection, request: Request, body: UndoBody) -> UndoneResponse:
    who = caller_of(request).name
    judge = body.judge or who
    entry = _store(service).undo(judge)
    if entry is None:
        return UndoneResponse(None)
    service.audit.note("undo", who, judge=judge, query=entry.query_id, document=entry.doc_id)
    return UndoneResponse(JudgementInfo.of(entry))


def _qrels(service: ServedCollection, request: Request, asked: QrelsParameters) -> Response:
    del request
    said = _store(service).qrels_of(asked.judge) if asked.judge else service.known_qrels()
    return PlainTextResponse("".join(qrels_rows(said)).encode("utf-8", "replace"))


def _agreement(service: ServedCollection, request: Request, asked: None) -> list[AgreementInfo]:
    del request, asked
    return agreements(_store(service))


def _compare(service: ServedCollection, request: Request, asked: CompareRequest) -> CompareResponse:
    del request
    return CompareResponse.of(compare_runs(service, asked))


def _run(service: ServedCollection, request: Request, asked: RunParameters) -> Response:
    """Return a run as TREC has it; that of a system is waited for."""
    name, patience = request.path_params["name"], min(20.0, deadline_of(request).left or 20.0)
    run = service.runs.get(name)
    if run is None:
        progress = service.system_runs.finished(name, service.known_queries(), asked.index, patience)
        if progress.run is None:
            how_far = progress.fault or f"{progress.done:,} of {progress.total:,} questions are asked"
            raise Unready(f"the run of {name} is not there yet: {how_far}; ask again in a moment")
        run = progress.run
    return PlainTextResponse(trec_run(run, name).encode("utf-8", "replace"))


def _trainings(service: ServedCollection, request: Request, asked: None) -> list[TrainingInfo]:
    del request, asked
    return [_info(job) for job in service.training.jobs()]


def _training(service: ServedCollection, request: Request, asked: None) -> TrainingInfo:
    del asked
    return _info(service.training.job(request.path_params["name"]))


def _begin(service: ServedCollection, request: Request, body: TrainingBody) -> TrainingInfo:
    wanted = body.request()
    job = service.training.begin(wanted)
    service.audit.record("train", caller_of(request).name, name=wanted.name, start=wanted.start)
    return _info(job)


def _cancel(service: ServedCollection, request: Request, asked: None) -> TrainingInfo:
    del asked
    name = request.path_params["name"]
    job = service.training.cancel(name)
    service.audit.record("cancel", caller_of(request).name, name=name)
    return _info(job)


def _info(job: TrainingJob) -> TrainingInfo:
    asked = job.request
    return TrainingInfo(
        asked.name, asked.start, job.state, job.begun, len(job.queries), job.held_out, job.fault,
        [msgspec.to_builtins(entry) for entry in job.log], list(job.warnings),
    )  # fmt: skip
