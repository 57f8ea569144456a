"""Reranking and scores of pairs, for every client.

One path reranks two kinds of body: ``documents`` (Cohere, Jina, Voyage, vLLM, Infinity, LiteLLM) are answered
with an object that all of these read, ``texts`` (Hugging Face's text-embeddings-inference) with a bare list.
Documents may be as long and as many as memory holds: they are split into passages, whose scores are pooled.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from starlette.requests import Request
from starlette.responses import Response

from rankhouse.serve.contracts.requests import TEXTS, Rankers, answer, deadline_of, decode, given, listed
from rankhouse.serve.contracts.shapes import (
    ApiVersion,
    BilledUnits,
    PairScore,
    PredictBody,
    Prediction,
    RelevantSpan,
    RerankAnswer,
    RerankBody,
    RerankMeta,
    RerankResult,
    ScoreAnswer,
    ScoreBody,
    ScoreQueriesBody,
    SpanOptions,
    TextsBody,
    TextScore,
    TokenCounts,
    Usage,
)
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.errors import Invalid, speak_tei

if TYPE_CHECKING:
    from rankhouse.serve.engine.documents import DocumentRequest, DocumentScores
    from rankhouse.serve.engine.served import PairScores, ServedRanker

_SPAN_THRESHOLD = 0.1
_MANY = 200  # documents whose scores are pooled and written in a thread
_WANTED = 'a ranker reads pairs; give ["query", "text"] here'


async def rerank(rankers: Rankers, request: Request, _asked: None) -> object:
    """Rank documents, or texts, for a query."""
    body = await request.body()
    if is_texts(body):
        speak_tei(request)
        return await rerank_texts(rankers, request, decode(body, TextsBody))
    return await _rerank_documents(rankers, request, decode(body, RerankBody))


def is_texts(body: bytes) -> bool:
    """Return whether a body is one of ``texts`` and not of ``documents``."""
    return b'"texts"' in body and given(body, "texts", "documents").keys() == {"texts"}


async def rerank_texts(rankers: Rankers, request: Request, body: TextsBody) -> list[TextScore]:
    """Rank as text-embeddings-inference does: all texts, best first."""
    scores = await _scored(request, choose(rankers(), body.model), body.query, body.texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    texts = body.texts if body.return_text else [None] * len(body.texts)
    return [TextScore(place, values[place], texts[place]) for place in scores.order]


async def score(rankers: Rankers, request: Request, _asked: None) -> ScoreAnswer:
    """Score pairs of texts, in the order given."""
    content = await request.body()
    if b'"queries"' in content and given(content, "queries"):
        other = decode(content, ScoreQueriesBody)
        body = ScoreBody(other.queries, other.documents, other.model, other.raw_scores)
    else:
        body = decode(content, ScoreBody)
    served, texts = choose(rankers(), body.model), listed(body.text_2)
    query = body.text_1
    if isinstance(query, list) and len(query) == 1:
        query = query[0]
    if isinstance(query, list) and len(query) != len(texts):
        raise Invalid(
            f"text_1 has {len(query)} texts and text_2 {len(texts)}: give one query for all, or one each",
            "text_1",
        )
    scores = await _scored(request, served, query, texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    data = [PairScore(place, value) for place, value in enumerate(values)]
    usage = Usage(scores.tokens, scores.tokens)
    return ScoreAnswer(
        uuid.uuid4().hex, int(time.time()), served.name, data, usage=usage, warnings=scores.warnings
    )


async def predict(
    rankers: Rankers, request: Request, body: PredictBody
) -> list[Prediction] | list[list[Prediction]]:
    """Score pairs: one pair gets a list of one, several a list of such lists."""
    pairs, is_single = _pairs(body.inputs)
    queries, texts = [query for query, _ in pairs], [text for _, text in pairs]
    scores = await _scored(request, choose(rankers(), body.model), queries, texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    predictions = [[Prediction(value)] for value in values]
    return predictions[0] if is_single else predictions


def _pairs(inputs: object) -> tuple[list[tuple[str, str]], bool]:
    """Return pairs, and whether it was a single one: ["q", "d"], or [["q", "d"], ...]."""
    if not isinstance(inputs, list) or not inputs:
        raise Invalid(f"inputs: {_WANTED}, or a list of such pairs", "inputs")
    is_single = isinstance(inputs[0], str)
    pairs = []
    for place, pair in enumerate([inputs] if is_single else inputs):
        match pair:
            case [str(query), str(text)]:
                pairs.append((query, text))
            case _:
                name = "inputs" if is_single else f"inputs[{place}]"
                raise Invalid(f"{name}: {_WANTED}", name)
    return pairs, is_single


async def _scored(
    request: Request,
    served: ServedRanker,
    query: str | Sequence[str],
    texts: Sequence[str],
    body: RerankBody | None = None,
) -> DocumentScores:
    """Return the scores of documents for a query, or for one query each, once they are computed.

    They are read as the body says, or as the ranker reads them.
    """
    deadline, made = deadline_of(request), list["DocumentRequest"]()

    def start() -> Future[PairScores]:
        from rankhouse.serve.engine.documents import DocumentRequest, reading_plan

        if body is None:
            plan = reading_plan(served)
        else:
            tokens, passages = body.max_tokens_per_doc, body.max_chunks_per_doc
            plan = reading_plan(served, body.split, body.pool, most_tokens=tokens, most_passages=passages)
        made.append(DocumentRequest(served, query, texts, plan, deadline=deadline))
        return made[0].future

    reading = await TEXTS.result(start)
    if len(texts) > _MANY:
        return await TEXTS.call(made[0].scores, reading)
    return made[0].scores(reading)


async def _rerank_documents(rankers: Rankers, request: Request, body: RerankBody) -> Response:
    served = choose(rankers(), body.model)
    texts = [_text_of(place, one, body.rank_fields) for place, one in enumerate(body.documents)]
    scores = await _scored(request, served, body.query, texts, body=body)

    def ranked() -> Response:
        results = _results(served, body, texts, scores)
        version = "2" if request.url.path.startswith("/v2") else "1"
        tokens, units = TokenCounts(scores.tokens, 0), BilledUnits(-(-len(texts) // 100))
        meta = RerankMeta(ApiVersion(version), units, tokens, scores.warnings)
        usage, name = Usage(scores.tokens, scores.tokens), uuid.uuid4().hex
        return answer(RerankAnswer(name, "list", served.name, results, data=results, usage=usage, meta=meta))

    return await TEXTS.call(ranked) if body.relevant_spans or len(texts) > _MANY else ranked()


def _results(
    served: ServedRanker, body: RerankBody, texts: Sequence[str], scores: DocumentScores
) -> list[RerankResult]:
    top = body.top_n or body.top_k or len(texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    spans = body.relevant_spans
    if spans is not None and (spans.mode or "enabled").lower() != "enabled":
        spans = None
    return [
        RerankResult(
            place,
            values[place],
            _sent_back(body.documents[place], texts[place]) if body.return_documents else None,
            None if spans is None else _spans(served, scores, place, spans),
        )
        for place in scores.order[:top]
    ]


def _text_of(place: int, document: str | dict[str, Any], fields: Sequence[str] | None) -> str:
    """Return what is read of a document: of an object the given fields, or else "text"."""
    if isinstance(document, str):
        return document
    for names in (fields or (), ("text",)):
        texts = [document[name] for name in names if document.get(name) is not None]
        if texts and all(isinstance(text, str) for text in texts):
            return "\n".join(texts)
    wanted = " or ".join(f'"{name}"' for name in dict.fromkeys((*(fields or ()), "text")))
    raise Invalid(
        f"documents[{place}]: expected a text, or an object with {wanted} as a text; it has "
        f"{', '.join(sorted(map(repr, document)))[:200] or 'nothing'}",
        f"documents[{place}]",
    )


def _sent_back(document: str | dict[str, Any], text: str) -> dict[str, Any]:
    return document if isinstance(document, dict) and "text" in document else {"text": text}


def _spans(
    served: ServedRanker, scores: DocumentScores, place: int, options: SpanOptions
) -> list[RelevantSpan]:
    threshold = options.threshold
    if threshold is None and served.gives_probabilities:
        threshold = _SPAN_THRESHOLD
    return [RelevantSpan(*span) for span in scores.spans(place, threshold, options.max_spans)]
