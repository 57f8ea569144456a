"""Vectors and models as OpenAI's clients ask for them; Voyage's, Jina's and vLLM's ask in the same way."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Annotated, Any, Literal

from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import BaseRoute

from rankhouse.serve.contracts.bodies import Texts, answer, listed, read_body
from rankhouse.serve.contracts.errors import UnknownName
from rankhouse.serve.contracts.openapi import Operation, describe
from rankhouse.serve.contracts.rerank import Usage
from rankhouse.serve.contracts.vectors import VectorOptions, side_of, vectors_of, written
from rankhouse.serve.contracts.waiting import in_thread
from rankhouse.serve.engine.choice import choose

if TYPE_CHECKING:
    from rankhouse.core.nouns import FloatArray
    from rankhouse.serve.engine.served import ServedRanker

EMBEDDING_PATHS = ("/v1/embeddings", "/embeddings")
MODEL_PATHS = ("/v1/models", "/models")


class EmbeddingBody(Struct):
    """Texts whose vectors are wanted.

    Attributes:
        input: A text or several; token numbers are another model's, so they are not accepted.
        model: Name of an encoder of this service.
        encoding_format: "float", or "base64" for little-endian float32.
        dimensions: The first so many numbers of each vector, given length 1.
        input_type: "query" or "document", for encoders that read them differently.
        truncate: False refuses texts that do not fit into the model.
    """

    input: Texts
    model: str | None = None
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: Annotated[int, Meta(ge=1)] | None = None
    input_type: str | None = None
    truncate: bool | None = None


class Embedding(Struct):
    """The vector of one text."""

    index: int
    embedding: list[float] | str
    object: str = "embedding"


class EmbeddingAnswer(Struct):
    """Vectors in the order of the texts."""

    data: list[Embedding]
    model: str
    usage: Usage
    object: str = "list"


class ModelCard(Struct):
    """A model of this service."""

    id: str
    created: int
    object: str = "model"
    owned_by: str = "rankhouse"


class ModelList(Struct):
    """The models of this service."""

    data: list[ModelCard]
    object: str = "list"


def routes(rankers: Callable[[], Mapping[str, ServedRanker]]) -> list[BaseRoute]:
    """Return the routes of embeddings and models."""

    async def embed(request: Request) -> Response:
        body = await read_body(request, EmbeddingBody)
        served = choose(rankers(), body.model, encoder=True)
        options = VectorOptions(
            side_of(body.input_type), body.dimensions, truncate=body.truncate is not False
        )
        vectors = await vectors_of(request, served, listed(body.input), options)
        write: Callable[[FloatArray], list[Any]] = _packed if body.encoding_format == "base64" else written
        rows = await in_thread(lambda: write(vectors.values))
        data = [Embedding(place, row) for place, row in enumerate(rows)]
        usage = Usage(vectors.tokens, vectors.tokens)
        headers = {"x-truncated-tokens": str(vectors.lost)} if vectors.lost else None
        return answer(EmbeddingAnswer(data, served.name, usage), headers=headers)

    async def models(request: Request) -> Response:
        del request
        return answer(ModelList([ModelCard(name, 0) for name in rankers()]))

    async def model(request: Request) -> Response:
        name = request.path_params["model"]
        if name not in rankers():
            raise UnknownName("model", name, rankers(), "model")
        return answer(ModelCard(name, 0))

    embedding = Operation("Vectors of texts", EmbeddingBody, EmbeddingAnswer, tag="vectors")
    listing = Operation("The models of this service", answer=ModelList, tag="models")
    card = Operation("A model of this service", answer=ModelCard, tag="models")
    return [
        *(describe(path, embed, "POST", embedding) for path in EMBEDDING_PATHS),
        *(describe(path, models, "GET", listing) for path in MODEL_PATHS),
        describe("/v1/models/{model:path}", model, "GET", card),
    ]


def _packed(values: FloatArray) -> list[str]:
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in values]
