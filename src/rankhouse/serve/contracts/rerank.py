"""Reranking for every client: one path, two bodies.

A body with ``documents`` (Cohere, Jina, Voyage, vLLM, Infinity, LiteLLM) is answered with an object that all
of them read; one with ``texts`` (Hugging Face's text-embeddings-inference) with a bare list. Documents may be
as long and as many as memory holds: they are cut into passages and pooled.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.serve.contracts.bodies import answer, decode, given
from rankhouse.serve.contracts.errors import Invalid, speak_tei
from rankhouse.serve.contracts.openapi import EITHER_REFUSAL, Operation, describe
from rankhouse.serve.contracts.waiting import deadline_of, in_thread, outcome
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.engine.options import ReadingOptions

if TYPE_CHECKING:
    from rankhouse.serve.engine.documents import DocumentRequest, DocumentScores, PassageSpan
    from rankhouse.serve.engine.served import Reading, ServedRanker

RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
_SPAN_THRESHOLD = 0.1
READ_AS_USUAL = ReadingOptions()
_MANY = 200  # documents whose scores are pooled, and told, in a thread

Count = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Direction = Literal["left", "right", "Left", "Right"]


_TEXT = {"properties": {"text": {"type": "string"}}, "required": ["text"]}
DocumentObject = Annotated[dict[str, Any], Meta(extra_json_schema=_TEXT)]


class SpanOptions(Struct):
    """Which passages of a document are told.

    Attributes:
        mode: "enabled" tells them.
        threshold: Least relevance of a passage.
        max_spans: How many at most.
    """

    mode: str | None = "enabled"
    threshold: float | None = None
    max_spans: Count | None = None


class RerankBody(Struct):
    """Documents to be ranked for a query; all but ``query`` and ``documents`` may be left out or null.

    Attributes:
        query: The question.
        documents: Texts, or objects whose ``rank_fields`` are read, or "text" where they have none of them.
        model: Name of a ranker of this service.
        top_n: How many of the best are told; 0 for all.
        top_k: The same.
        return_documents: Whether the texts are sent back.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        rank_fields: Fields of documents that are read.
        max_tokens_per_doc: Tokens of a document that are read; all of them if not said.
        max_chunks_per_doc: Passages of a document that are read; all of them if not said.
        relevant_spans: Whether the best passages of a document are told.
        split: How documents are cut, in rankhouse's notation; the ranker's own if not said.
        pool: How passages' scores become a document's; the ranker's own if not said.
    """

    query: str
    documents: Annotated[list[str | DocumentObject], Meta(min_length=1)]
    model: str | None = None
    top_n: Count | None = None
    top_k: Count | None = None
    return_documents: bool | None = None
    raw_scores: bool | None = None
    rank_fields: list[str] | None = None
    max_tokens_per_doc: Positive | None = None
    max_chunks_per_doc: Positive | None = None
    relevant_spans: SpanOptions | None = None
    split: str | None = None
    pool: str | None = None


class TextsBody(Struct):
    """Texts to be ranked for a query, as text-embeddings-inference reads them.

    Attributes:
        query: The question.
        texts: What is ranked.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        return_text: Whether the texts are sent back.
        truncate: Not needed: long texts are cut into passages.
        truncation_direction: Not needed.
    """

    query: str
    texts: Annotated[list[str], Meta(min_length=1)]
    model: str | None = None
    raw_scores: bool | None = None
    return_text: bool | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None


class RelevantSpan(Struct):
    """A passage of a document as given: code points, half open."""

    start: int
    end: int
    score: float


class RerankResult(Struct, omit_defaults=True):
    """One document of the ranking."""

    index: int
    relevance_score: float
    document: dict[str, Any] | None = None
    relevant_spans: list[RelevantSpan] | None = None


class Usage(Struct):
    """Tokens computed."""

    prompt_tokens: int
    total_tokens: int


class ApiVersion(Struct):
    """Of Cohere's contract."""

    version: str


class BilledUnits(Struct):
    """Cohere's unit: a query with up to 100 documents."""

    search_units: int


class TokenCounts(Struct):
    """Tokens read and written."""

    input_tokens: int
    output_tokens: int


class RerankMeta(Struct):
    """What else there is to know: ``warnings`` say what was shortened or could not be read."""

    api_version: ApiVersion
    billed_units: BilledUnits
    tokens: TokenCounts
    warnings: list[str]


class RerankAnswer(Struct):
    """A ranking; ``data`` is the same list as ``results``."""

    id: str
    object: str
    model: str
    results: list[RerankResult]
    data: list[RerankResult]
    usage: Usage
    meta: RerankMeta


class TextScore(Struct, omit_defaults=True):
    """One text of the ranking."""

    index: int
    score: float
    text: str | None = None


def routes(rankers: Callable[[], Mapping[str, ServedRanker]]) -> list[BaseRoute]:
    """Return the routes of reranking."""

    async def rerank(request: Request) -> Response:
        body = await request.body()
        if is_texts(body):
            speak_tei(request)
            return await rank_texts(request, decode(body, TextsBody), rankers())
        return await _rank_documents(request, decode(body, RerankBody), rankers())

    operation = Operation(
        "Rank documents for a query",
        body=(RerankBody, TextsBody),
        answer=(RerankAnswer, list[TextScore]),
        refusals=EITHER_REFUSAL,
        tag="rerank",
    )
    return [describe(path, rerank, "POST", operation) for path in RERANK_PATHS]


def is_texts(body: bytes) -> bool:
    """Return whether a body is one of ``texts`` and not of ``documents``."""
    return b'"texts"' in body and given(body, "texts", "documents").keys() == {"texts"}


async def scored(
    request: Request,
    served: ServedRanker,
    query: str | Sequence[str],
    texts: Sequence[str],
    options: ReadingOptions = READ_AS_USUAL,
) -> DocumentScores:
    """Return the scores of documents for a query, once they are computed.

    Args:
        request: The request; its time and its client's patience bound the work.
    """
    deadline, made = deadline_of(request), list["DocumentRequest"]()

    def start() -> Future[Reading]:
        from rankhouse.serve.engine.documents import DocumentRequest, reading_plan

        made.append(DocumentRequest(served, query, texts, reading_plan(served, options), deadline))
        return made[0].future

    reading = await outcome(start)
    if len(texts) > _MANY:
        return await in_thread(lambda: made[0].scores(reading))
    return made[0].scores(reading)


async def rank_texts(request: Request, body: TextsBody, rankers: Mapping[str, ServedRanker]) -> Response:
    """Answer as text-embeddings-inference does: all texts, best first."""
    served = choose(rankers, body.model)
    scores = await scored(request, served, body.query, body.texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    texts = body.texts if body.return_text else [None] * len(body.texts)
    return answer([TextScore(place, values[place], texts[place]) for place in scores.order])


async def _rank_documents(
    request: Request, body: RerankBody, rankers: Mapping[str, ServedRanker]
) -> Response:
    served = choose(rankers, body.model)
    texts = [_text_of(place, one, body.rank_fields) for place, one in enumerate(body.documents)]
    options = ReadingOptions(
        body.split or "", body.pool or "", body.max_tokens_per_doc, body.max_chunks_per_doc
    )
    scores = await scored(request, served, body.query, texts, options)

    def ranked() -> Response:
        results = _results(served, body, texts, scores)
        return answer(_enveloped(served.name, request.url.path, results, scores, len(texts)))

    return await in_thread(ranked) if body.relevant_spans or len(texts) > _MANY else ranked()


def _results(
    served: ServedRanker, body: RerankBody, texts: Sequence[str], scores: DocumentScores
) -> list[RerankResult]:
    top = body.top_n or body.top_k or len(texts)
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    spans = body.relevant_spans
    with_spans = spans is not None and (spans.mode or "enabled").lower() == "enabled"
    return [
        RerankResult(
            place,
            values[place],
            _sent_back(body.documents[place], texts[place]) if body.return_documents else None,
            _told(served, scores, place, spans) if spans is not None and with_spans else None,
        )
        for place in scores.order[:top]
    ]


def _text_of(place: int, document: str | dict[str, Any], fields: Sequence[str] | None) -> str:
    """Return what is read of a document.

    Args:
        fields: The fields that are read of an object; None for "text".
    """
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


def _told(
    served: ServedRanker, scores: DocumentScores, place: int, options: SpanOptions
) -> list[RelevantSpan]:
    threshold = options.threshold
    if threshold is None and served.gives_probabilities:
        threshold = _SPAN_THRESHOLD
    spans: list[PassageSpan] = scores.spans(place, threshold, options.max_spans)
    return [RelevantSpan(*span) for span in spans]


def _enveloped(
    model: str, path: str, results: list[RerankResult], scores: DocumentScores, documents: int
) -> RerankAnswer:
    version = "2" if path.startswith("/v2") else "1"
    meta = RerankMeta(
        ApiVersion(version),
        BilledUnits(-(-documents // 100)),
        TokenCounts(scores.tokens, 0),
        scores.warnings,
    )
    usage = Usage(scores.tokens, scores.tokens)
    return RerankAnswer(uuid.uuid4().hex, "list", model, results, results, usage, meta)
