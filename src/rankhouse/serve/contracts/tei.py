"""What clients of Hugging Face's text-embeddings-inference and of its endpoints ask for, reranking aside."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any

from msgspec import Meta, Raw, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

import rankhouse
from rankhouse.serve.contracts.bodies import Texts, answer, decode, given, listed, read_body
from rankhouse.serve.contracts.errors import Invalid, NotThisModel
from rankhouse.serve.contracts.openapi import TEI_REFUSALS, Operation, Parameter, describe
from rankhouse.serve.contracts.rerank import Direction, TextsBody, TextScore, is_texts, rank_texts, scored
from rankhouse.serve.contracts.vectors import MOST_TEXTS, VectorOptions, side_of, vectors_of, written
from rankhouse.serve.contracts.waiting import in_thread
from rankhouse.serve.engine.choice import choose

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

_WANTED = 'a ranker reads pairs; give ["query", "text"] here'
Rankers = Callable[[], Mapping[str, "ServedRanker"]]
_PAIR = {"type": "array", "items": {"type": "string"}, "minItems": 2, "maxItems": 2}
Pairs = Annotated[
    Any, Meta(extra_json_schema={"anyOf": [_PAIR, {"type": "array", "items": _PAIR, "minItems": 1}]})
]


class EmbedBody(Struct):
    """Texts whose vectors are wanted.

    Attributes:
        inputs: A text or several.
        model: Name of an encoder of this service.
        normalize: Whether vectors are given length 1; true if not said.
        truncate: False refuses texts that do not fit into the model.
        truncation_direction: Texts are cut at the end.
        prompt_name: "query" for queries, for encoders that read them differently.
        dimensions: The first so many numbers of each vector, given length 1.
    """

    inputs: Texts
    model: str | None = None
    normalize: bool | None = None
    truncate: bool | None = None
    truncation_direction: Direction | None = None
    prompt_name: str | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None


class PredictBody(Struct):
    """Pairs of a query and a text to be scored.

    Attributes:
        inputs: A pair, or several.
        model: Name of a ranker of this service.
        raw_scores: Tell the ranker's own numbers instead of probabilities.
        truncate: Not needed: long texts are cut into passages.
    """

    inputs: Pairs
    model: str | None = None
    raw_scores: bool | None = None
    truncate: bool | None = None


class Prediction(Struct):
    """How relevant a text is for a query."""

    score: float
    label: str = "relevant"


class SimilarityInputs(Struct):
    """A sentence, and those it is compared with."""

    source_sentence: str
    sentences: Annotated[list[str], Meta(min_length=1)]


class SimilarityBody(Struct):
    """Sentences to be compared.

    Attributes:
        inputs: What is compared.
        model: Name of an encoder of this service.
        parameters: ``prompt_name`` and ``truncate``, as for vectors.
    """

    inputs: SimilarityInputs
    model: str | None = None
    parameters: dict[str, Any] | None = None


class TokenizeBody(Struct):
    """Texts whose tokens are wanted.

    Attributes:
        inputs: A text or several.
        model: Name of a ranker of this service.
        add_special_tokens: Whether the model's own tokens stand around them; true if not said.
    """

    inputs: Texts
    model: str | None = None
    add_special_tokens: bool | None = None


class TokenPlace(Struct):
    """A token; ``start`` and ``stop`` are code points of the text, null for the model's own tokens."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class ModelInfo(Struct):
    """What a model is."""

    model_id: str
    model_sha: str
    model_dtype: str
    model_type: dict[str, Any]
    max_input_length: int
    max_batch_tokens: int
    max_concurrent_requests: int
    max_client_batch_size: int
    auto_truncate: bool
    tokenization_workers: int
    version: str


def routes(rankers: Rankers) -> list[BaseRoute]:
    """Return the routes of text-embeddings-inference."""

    def described(path: str, task: Callable[..., Any], body: Any, result: Any, summary: str) -> BaseRoute:  # noqa: ANN401
        async def handler(request: Request) -> Response:
            return answer(await task(request, await read_body(request, body), rankers()))

        operation = Operation(summary, body, result, refusals=TEI_REFUSALS, tag="text-embeddings-inference")
        return describe(path, handler, "POST", operation)

    async def root(request: Request) -> Response:
        return await _by_task(request, rankers())

    async def info(request: Request) -> Response:
        return answer(_info(choose(rankers(), request.query_params.get("model"))))

    any_task = Operation(
        "The task that the body means: vectors, similarity, reranking or pairs' scores",
        (EmbedBody, SimilarityBody, TextsBody, PredictBody),
        (list[list[float]], list[float], list[TextScore], list[Prediction], list[list[Prediction]]),
        refusals=TEI_REFUSALS,
        tag="text-embeddings-inference",
    )
    about = Operation(
        "What a model is",
        answer=ModelInfo,
        query=(Parameter("model", description="name of a ranker of this service"),),
        refusals=TEI_REFUSALS,
        tag="text-embeddings-inference",
    )
    predictions = (list[Prediction], list[list[Prediction]])
    return [
        described("/embed", embed, EmbedBody, list[list[float]], "Vectors of texts"),
        described("/similarity", similarity, SimilarityBody, list[float], "Cosines of a sentence to others"),
        described("/predict", predict, PredictBody, predictions, "Scores of pairs"),
        described("/tokenize", tokenize, TokenizeBody, list[list[TokenPlace]], "Tokens of texts"),
        describe("/info", info, "GET", about),
        describe("/", root, "POST", any_task),
    ]


async def embed(request: Request, body: EmbedBody, rankers: Mapping[str, ServedRanker]) -> list[Raw]:
    """Return vectors of texts, each as a list in JSON."""
    served = choose(rankers, body.model, encoder=True)
    normalise, truncate = body.normalize is not False, body.truncate is not False
    options = VectorOptions(side_of(body.prompt_name), body.dimensions, normalise, truncate, "inputs")
    vectors = await vectors_of(request, served, listed(body.inputs), options)
    return await in_thread(lambda: written(vectors.values))


async def similarity(
    request: Request, body: SimilarityBody, rankers: Mapping[str, ServedRanker]
) -> list[float]:
    """Return the cosines of a sentence to others."""
    served = choose(rankers, body.model, encoder=True)
    prompt = (body.parameters or {}).get("prompt_name")
    side = side_of(prompt if isinstance(prompt, str) else None)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    options = VectorOptions(side, normalise=True, field="inputs.sentences")
    vectors = (await vectors_of(request, served, texts, options)).values.astype("float64")
    cosines: list[float] = (vectors[1:] @ vectors[0]).tolist()
    return cosines


async def predict(
    request: Request, body: PredictBody, rankers: Mapping[str, ServedRanker]
) -> list[Prediction] | list[list[Prediction]]:
    """Return the scores of pairs: of one pair a list of one, of several a list of such lists."""
    served = choose(rankers, body.model)
    pairs, is_single = _pairs(body.inputs)
    scores = await scored(request, served, [query for query, _ in pairs], [text for _, text in pairs])
    values = (scores.raw if body.raw_scores else scores.relevance).tolist()
    predictions = [[Prediction(value)] for value in values]
    return predictions[0] if is_single else predictions


async def tokenize(
    request: Request, body: TokenizeBody, rankers: Mapping[str, ServedRanker]
) -> list[list[TokenPlace]]:
    """Return the tokens of texts."""
    del request
    served = choose(rankers, body.model)
    special = body.add_special_tokens is not False
    return await in_thread(lambda: [_tokens(served, text, special) for text in listed(body.inputs)])


def _tokens(served: ServedRanker, text: str, special: bool) -> list[TokenPlace]:
    if served.text_ids is None:
        raise NotThisModel(f'the model "{served.name}" reads words, not tokens', "model")
    return [
        TokenPlace(
            token.id,
            token.text if token.span is None else text[slice(*token.span)],
            token.special,
            *(token.span or (None, None)),
        )
        for token in served.text_ids.tokens(text, special)
    ]


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


async def _by_task(request: Request, rankers: Mapping[str, ServedRanker]) -> Response:
    """Answer what a body means: texts are ranked, a source sentence compared, pairs scored, else encoded."""
    body = await request.body()
    if is_texts(body):
        return await rank_texts(request, decode(body, TextsBody), rankers)
    inputs = given(body, "inputs").get("inputs", b"")
    if inputs[:1] == b"{":
        return answer(await similarity(request, decode(body, SimilarityBody), rankers))
    is_pairs = inputs[:1] == inputs[1:].lstrip()[:1] == b"["
    has_encoder = any(served.is_encoder for served in rankers.values())
    if is_pairs or (inputs and not has_encoder):
        return answer(await predict(request, decode(body, PredictBody), rankers))
    return answer(await embed(request, decode(body, EmbedBody), rankers))


def _info(served: ServedRanker) -> ModelInfo:
    from rankhouse.serve.engine.documents import MOST_PASSAGES

    ranker = served.ranker
    kinds: dict[str, Any] = {"reranker": {"id2label": {"0": "relevant"}, "label2id": {"relevant": 0}}}
    if served.is_encoder:
        kinds = {"embedding": {"pooling": served.require_encoder().model.policy["pooling"]}}
    precision = ranker.compute.precision
    return ModelInfo(
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
