"""Scores of pairs in the order given, as vLLM's clients ask for them."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.serve.contracts.bodies import Texts, answer, decode, given, listed
from rankhouse.serve.contracts.errors import Invalid
from rankhouse.serve.contracts.openapi import Operation, describe
from rankhouse.serve.contracts.rerank import Usage, scored
from rankhouse.serve.engine.choice import choose

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

SCORE_PATHS = ("/score", "/v1/score")


class ScoreBody(Struct):
    """Pairs to be scored: one text against one or many, or as many against as many.

    Attributes:
        text_1: The query, or one for each text.
        text_2: What is scored.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
    """

    text_1: Texts
    text_2: Texts
    model: str | None = None
    raw_scores: bool | None = None


class ScoreQueriesBody(Struct):
    """The same under other names.

    Attributes:
        queries: The query, or one for each document.
        documents: What is scored.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
    """

    queries: Texts
    documents: Texts
    model: str | None = None
    raw_scores: bool | None = None


class PairScore(Struct):
    """The score of one pair."""

    index: int
    score: float
    object: str = "score"


class ScoreAnswer(Struct):
    """Scores in the order of the pairs."""

    id: str
    created: int
    model: str
    data: list[PairScore]
    usage: Usage
    warnings: list[str]
    object: str = "list"


def routes(rankers: Callable[[], Mapping[str, ServedRanker]]) -> list[BaseRoute]:
    """Return the routes of scoring."""

    async def score(request: Request) -> Response:
        body = _body(await request.body())
        served = choose(rankers(), body.model)
        query, texts = _pairs(body)
        scores = await scored(request, served, query, texts)
        values = (scores.raw if body.raw_scores else scores.relevance).tolist()
        data = [PairScore(place, value) for place, value in enumerate(values)]
        usage = Usage(scores.tokens, scores.tokens)
        return answer(
            ScoreAnswer(uuid.uuid4().hex, int(time.time()), served.name, data, usage, scores.warnings)
        )

    operation = Operation(
        "Score pairs of texts", body=(ScoreBody, ScoreQueriesBody), answer=ScoreAnswer, tag="rerank"
    )
    return [describe(path, score, "POST", operation) for path in SCORE_PATHS]


def _body(body: bytes) -> ScoreBody:
    if b'"queries"' in body and given(body, "queries"):
        other = decode(body, ScoreQueriesBody)
        return ScoreBody(other.queries, other.documents, other.model, other.raw_scores)
    return decode(body, ScoreBody)


def _pairs(body: ScoreBody) -> tuple[str | list[str], list[str]]:
    query, texts = body.text_1, listed(body.text_2)
    if isinstance(query, list) and len(query) == 1:
        query = query[0]
    if isinstance(query, list) and len(query) != len(texts):
        raise Invalid(
            f"text_1 has {len(query)} texts and text_2 {len(texts)}: give one query for all, or one each",
            "text_1",
        )
    return query, texts
