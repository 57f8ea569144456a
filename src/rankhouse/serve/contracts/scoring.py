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

from rankhouse.core.scores import is_probable
from rankhouse.serve.contracts import shapes
from rankhouse.serve.contracts.requests import TEXTS, Rankers, answer, deadline_of, decode, given, listed
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.errors import Invalid, speak_tei

if TYPE_CHECKING:
    from rankhouse.serve.engine.documents import DocumentRequest, DocumentScores
    from rankhouse.serve.engine.served import PairScores, ServedRanker

_SPAN_THRESHOLD = 0.1
_MANY = 200  # documents whose scores are pooled and written in a thread
_AS_THE_RANKER_READS = shapes.RerankBody("", [])
_WANTED = 'a ranker reads pairs; give ["query", "text"] here'


async def rerank(rankers: Rankers, request: Request, _asked: None) -> object:
    """Rank documents, or texts, for a query."""
    body = await request.body()
    if is_texts(body):
        speak_tei(request)
        return await rerank_texts(rankers, request, decode(body, shapes.TextsBody))
    return await _rerank_documents(rankers, request, decode(body, shapes.RerankBody))


def is_texts(body: bytes) -> bool:
    """Return whether a body is one of ``texts`` and not of ``documents``."""
    return b'"texts"' in body and given(body, "texts", "documents").keys() == {"texts"}


async def rerank_texts(rankers: Rankers, request: Request, body: shapes.TextsBody) -> list[shapes.TextScore]:
    """Rank as text-embeddings-inference does: all texts, best first."""
    scores = await _scored(request, choose(rankers(), body.model), body.query, body.texts)
    values = scores.values(raw=body.raw_scores)
    texts = body.texts if body.return_text else [None] * len(body.texts)
    return [shapes.TextScore(place, values[place], texts[place]) for place in scores.order]


async def score(rankers: Rankers, request: Request, _asked: None) -> shapes.ScoreAnswer:
    """Score pairs of texts, in the order given."""
    content = await request.body()
    is_queries = b'"queries"' in content and given(content, "queries")
    body = decode(content, shapes.ScoreQueriesBody if is_queries else shapes.ScoreBody)
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
    data = [shapes.PairScore(*pair) for pair in enumerate(scores.values(raw=body.raw_scores))]
    return shapes.ScoreAnswer(
        uuid.uuid4().hex, int(time.time()), served.name, data,
        usage=shapes.Usage(scores.tokens, scores.tokens), warnings=scores.warnings,
    )  # fmt: skip


async def predict(
    rankers: Rankers, request: Request, body: shapes.PredictBody
) -> list[shapes.Prediction] | list[list[shapes.Prediction]]:
    """Score pairs: one pair gets a list of one, several a list of such lists."""
    pairs, is_single = _pairs(body.inputs)
    queries, texts = [query for query, _ in pairs], [text for _, text in pairs]
    scores = await _scored(request, choose(rankers(), body.model), queries, texts)
    predictions = [[shapes.Prediction(value)] for value in scores.values(raw=body.raw_scores)]
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
    how: shapes.RerankBody = _AS_THE_RANKER_READS,
) -> DocumentScores:
    """Return the scores of documents for a query, or for one query each, once they are computed."""
    deadline, made = deadline_of(request), list["DocumentRequest"]()

    def start() -> Future[PairScores]:
        from rankhouse.serve.engine.documents import DocumentRequest, ReadingPlan

        most = how.max_tokens_per_doc, how.max_chunks_per_doc
        plan = ReadingPlan.of(served, how.split or "", how.pool or "", *most)
        made.append(DocumentRequest(served, query, texts, plan, deadline=deadline))
        return made[0].future

    reading = await TEXTS.result(start)
    if len(texts) > _MANY:
        return await TEXTS.call(made[0].scores, reading)
    return made[0].scores(reading)


async def _rerank_documents(rankers: Rankers, request: Request, body: shapes.RerankBody) -> Response:
    served = choose(rankers(), body.model)
    texts = [_text_of(place, one, body.rank_fields) for place, one in enumerate(body.documents)]
    scores = await _scored(request, served, body.query, texts, how=body)

    def ranked() -> Response:
        results = _results(served, body, texts, scores)
        version = "2" if request.url.path.startswith("/v2") else "1"
        tokens, units = shapes.TokenCounts(scores.tokens, 0), shapes.BilledUnits(-(-len(texts) // 100))
        meta = shapes.RerankMeta(shapes.ApiVersion(version), units, tokens, scores.warnings)
        usage, name = shapes.Usage(scores.tokens, scores.tokens), uuid.uuid4().hex
        return answer(
            shapes.RerankAnswer(name, "list", served.name, results, data=results, usage=usage, meta=meta)
        )

    return await TEXTS.call(ranked) if body.relevant_spans or len(texts) > _MANY else ranked()


def _results(
    served: ServedRanker, body: shapes.RerankBody, texts: Sequence[str], scores: DocumentScores
) -> list[shapes.RerankResult]:
    values, wanted = scores.values(raw=body.raw_scores), body.relevant_spans
    results = []
    for place in scores.order[: body.top_n or body.top_k or len(texts)]:
        result = shapes.RerankResult(place, values[place])
        if body.return_documents:
            sent = body.documents[place]
            result.document = {"text": texts[place]}
            if isinstance(sent, dict) and "text" in sent:
                result.document = sent
        if wanted is not None and (wanted.mode or "enabled").lower() == "enabled":
            threshold = wanted.threshold
            if threshold is None and is_probable(served.scale):
                threshold = _SPAN_THRESHOLD
            spans = scores.spans(place, threshold, wanted.max_spans)
            result.relevant_spans = [shapes.RelevantSpan(*span) for span in spans]
        results.append(result)
    return results


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
