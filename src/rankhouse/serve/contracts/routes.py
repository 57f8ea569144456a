"""The routes of all contracts that rerankers' and encoders' clients speak, and of their description."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.routing import BaseRoute

import rankhouse
from rankhouse.serve.contracts import shapes
from rankhouse.serve.contracts.openapi import EITHER_REFUSAL, Operation, RouteGroup, document
from rankhouse.serve.contracts.requests import TEXTS, Rankers, decode, given, listed
from rankhouse.serve.contracts.scoring import is_texts, predict, rerank, rerank_texts, score
from rankhouse.serve.contracts.vectors import MOST_TEXTS, embed, embeddings, similarity
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.errors import NotThisModel, TeiError, UnknownName

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

RERANK_PATHS = ("/rerank", "/v1/rerank", "/v2/rerank")
SCORE_PATHS = ("/score", "/v1/score")
EMBEDDING_PATHS = ("/v1/embeddings", "/embeddings")
MODEL_PATHS = ("/v1/models", "/models")

_SCORES_OF_PAIRS = (list[shapes.Prediction], list[list[shapes.Prediction]])
_RERANK = Operation(
    "Rank documents for a query",
    body=(shapes.RerankBody, shapes.TextsBody),
    answer=(shapes.RerankAnswer, list[shapes.TextScore]),
    refusals=EITHER_REFUSAL,
)
_SCORE = Operation("Score pairs of texts", (shapes.ScoreBody, shapes.ScoreQueriesBody), shapes.ScoreAnswer)
_EMBEDDINGS = Operation("Vectors of texts", shapes.EmbeddingBody, shapes.EmbeddingAnswer)
_TEI = partial(Operation, refusals=TeiError)
_ANY_TASK = _TEI(
    "The task that the body means: vectors, similarity, reranking or pairs' scores",
    (shapes.EmbedBody, shapes.SimilarityBody, shapes.TextsBody, shapes.PredictBody),
    (list[list[float]], list[float], list[shapes.TextScore], *_SCORES_OF_PAIRS),
)


class ModelQuery(Struct):
    """Name of the model."""

    model: Annotated[str, Meta(description="name of a ranker of this service")] = ""


def routes(rankers: Rankers) -> list[BaseRoute]:
    """Return the routes of all contracts, and of their description."""
    tags = ("rerank", "vectors", "models", "text-embeddings-inference", "service")
    ranks, vectors, models, tei, service = (RouteGroup(rankers, tag) for tag in tags)
    tokens, cosines = list[list[shapes.TokenPlace]], "Cosines of a sentence to others"
    return [
        *(ranks("POST", path, rerank, _RERANK) for path in RERANK_PATHS),
        *(ranks("POST", path, score, _SCORE) for path in SCORE_PATHS),
        *(vectors("POST", path, embeddings, _EMBEDDINGS) for path in EMBEDDING_PATHS),
        *(models("GET", path, _models, Operation("The models of this service", answer=shapes.ModelList))
          for path in MODEL_PATHS),
        models("GET", "/v1/models/{model:path}", _model,
               Operation("A model of this service", answer=shapes.ModelCard)),
        tei("POST", "/embed", embed, _TEI("Vectors of texts", shapes.EmbedBody, list[list[float]])),
        tei("POST", "/similarity", similarity, _TEI(cosines, shapes.SimilarityBody, list[float])),
        tei("POST", "/predict", predict, _TEI("Scores of pairs", shapes.PredictBody, _SCORES_OF_PAIRS)),
        tei("POST", "/tokenize", _tokenize, _TEI("Tokens of texts", shapes.TokenizeBody, tokens)),
        tei("GET", "/info", _info, _TEI("What a model is", answer=shapes.ModelInfo, query=ModelQuery)),
        tei("POST", "/", _by_task, _ANY_TASK),
        service("GET", "/openapi.json", _openapi, Operation("This description")),
    ]  # fmt: skip


async def _openapi(_rankers: Rankers, request: Request, _asked: None) -> dict[str, Any]:
    return document(request.app.routes, rankhouse.__version__)


async def _models(rankers: Rankers, _request: Request, _asked: None) -> shapes.ModelList:
    return shapes.ModelList([shapes.ModelCard(name, 0) for name in rankers()])


async def _model(rankers: Rankers, request: Request, _asked: None) -> shapes.ModelCard:
    name = request.path_params["model"]
    if name not in rankers():
        raise UnknownName("model", name, rankers(), "model")
    return shapes.ModelCard(name, 0)


async def _by_task(rankers: Rankers, request: Request, _asked: None) -> object:
    """Answer what a body means: texts are ranked, a source sentence compared, pairs scored, else encoded."""
    body = await request.body()
    if is_texts(body):
        return await rerank_texts(rankers, request, decode(body, shapes.TextsBody))
    inputs = given(body, "inputs").get("inputs", b"")
    if inputs[:1] == b"{":
        return await similarity(rankers, request, decode(body, shapes.SimilarityBody))
    is_pairs = inputs[:1] == inputs[1:].lstrip()[:1] == b"["
    has_encoder = any(served.is_encoder for served in rankers().values())
    if is_pairs or (inputs and not has_encoder):
        return await predict(rankers, request, decode(body, shapes.PredictBody))
    return await embed(rankers, request, decode(body, shapes.EmbedBody))


async def _tokenize(
    rankers: Rankers, _request: Request, body: shapes.TokenizeBody
) -> list[list[shapes.TokenPlace]]:
    served = choose(rankers(), body.model)
    special = body.add_special_tokens is not False
    return await TEXTS.call(lambda: [_tokens(served, text, special) for text in listed(body.inputs)])


def _tokens(served: ServedRanker, text: str, special: bool) -> list[shapes.TokenPlace]:
    if served.text_ids is None:
        raise NotThisModel(f'the model "{served.name}" reads words, not tokens', "model")
    return [
        shapes.TokenPlace(
            token.id,
            token.text if token.span is None else text[slice(*token.span)],
            token.special,
            *(token.span or (None, None)),
        )
        for token in served.text_ids.tokens(text, special)
    ]


async def _info(rankers: Rankers, _request: Request, asked: ModelQuery) -> shapes.ModelInfo:
    from rankhouse.serve.engine.documents import MOST_PASSAGES

    served = choose(rankers(), asked.model)
    ranker = served.ranker
    kinds: dict[str, Any] = {"reranker": {"id2label": {"0": "relevant"}, "label2id": {"relevant": 0}}}
    if served.is_encoder:
        kinds = {"embedding": {"pooling": served.require_encoder().model.policy["pooling"]}}
    precision = ranker.compute.precision
    return shapes.ModelInfo(
        model_id=served.name,
        model_sha=served.fingerprint,
        model_dtype={"fp32": "float32", "bf16": "bfloat16"}.get(precision, precision),
        model_type=kinds,
        max_input_length=ranker.max_length,
        max_batch_tokens=served.worker.batch_tokens,
        max_concurrent_requests=512,
        max_client_batch_size=MOST_TEXTS if served.is_encoder else MOST_PASSAGES,
        auto_truncate=True,
        tokenization_workers=served.worker.readers,
        version=rankhouse.__version__,
    )
