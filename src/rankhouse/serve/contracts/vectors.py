"""Vectors of texts, as the clients of OpenAI, Voyage, Jina, vLLM and Hugging Face ask for them."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from rankhouse.serve.contracts import shapes
from rankhouse.serve.contracts.requests import TEXTS, Rankers, answer, deadline_of, listed
from rankhouse.serve.engine.choice import choose
from rankhouse.serve.errors import Invalid, TooLarge

if TYPE_CHECKING:
    from rankhouse.core.nouns import FloatArray
    from rankhouse.serve.engine.jobs import WorkResult
    from rankhouse.serve.engine.served import ServedRanker, Side

MOST_TEXTS: Final = 50_000
"""Of one request: their vectors are all held at once, and written as text."""


class VectorOptions(NamedTuple):
    """Form of the vectors: the first ``dimensions`` numbers, or all; of length 1 if ``normalise``.

    Texts that are too long are truncated, or refused; messages call the texts by ``field``.
    """

    side: Side = "passage"
    dimensions: int | None = None
    normalise: bool = False
    truncate: bool = True
    field: str = "input"


async def embeddings(rankers: Rankers, request: Request, body: shapes.EmbeddingBody) -> Response:
    """Encode texts, as OpenAI's clients ask."""
    served = choose(rankers(), body.model, encoder=True)
    truncate = body.truncate is not False
    options = VectorOptions(_side_of(body.input_type), body.dimensions, truncate=truncate)
    vectors = await _vectors_of(request, served, listed(body.input), options)
    write: Callable[[FloatArray], list[Any]] = _packed if body.encoding_format == "base64" else _written
    data = [shapes.Embedding(*pair) for pair in enumerate(await TEXTS.call(write, vectors.values))]
    tokens, lost = int(vectors.tokens.sum()), int(vectors.lost.sum())
    headers = {"x-truncated-tokens": str(lost)} if lost else None
    usage = shapes.Usage(tokens, tokens)
    return answer(shapes.EmbeddingAnswer(data, served.name, usage), headers=headers)


async def embed(rankers: Rankers, request: Request, body: shapes.EmbedBody) -> list[msgspec.Raw]:
    """Encode texts, as text-embeddings-inference does: each vector a list in JSON."""
    served = choose(rankers(), body.model, encoder=True)
    normalise, truncate = body.normalize is not False, body.truncate is not False
    options = VectorOptions(_side_of(body.prompt_name), body.dimensions, normalise, truncate, field="inputs")
    vectors = await _vectors_of(request, served, listed(body.inputs), options)
    return await TEXTS.call(_written, vectors.values)


async def similarity(rankers: Rankers, request: Request, body: shapes.SimilarityBody) -> list[float]:
    """Return the cosines of a sentence to others."""
    served = choose(rankers(), body.model, encoder=True)
    prompt = (body.parameters or {}).get("prompt_name")
    side = _side_of(prompt if isinstance(prompt, str) else None)
    texts = [body.inputs.source_sentence, *body.inputs.sentences]
    options = VectorOptions(side, normalise=True, field="inputs.sentences")
    vectors = (await _vectors_of(request, served, texts, options)).values.astype("float64")
    cosines: list[float] = (vectors[1:] @ vectors[0]).tolist()
    return cosines


def _side_of(name: str | None) -> Side:
    """Return the side that a prompt's or an input type's name means: "query..." or anything else."""
    return "query" if name is not None and "query" in name.lower() else "passage"


async def _vectors_of(
    request: Request, served: ServedRanker, texts: Sequence[str], options: VectorOptions
) -> WorkResult:
    if len(texts) > MOST_TEXTS:
        raise TooLarge(
            f"{options.field}: has {len(texts):,} texts; at most {MOST_TEXTS:,} are encoded at once",
            options.field,
        )
    deadline = deadline_of(request)
    result = await TEXTS.result(lambda: served.encode(texts, options.side, deadline))
    return await TEXTS.call(_checked, served, result, options)


def _checked(served: ServedRanker, result: WorkResult, options: VectorOptions) -> WorkResult:
    """Return an encoder's vectors as they are asked for, or refuse what it could not read."""
    import numpy as np

    values = result.values
    if (bad := np.flatnonzero(np.isnan(values.reshape(len(values), -1)).any(1))).size:
        place = f"{options.field}[{bad[0]}]"
        raise Invalid(f'{place}: the model "{served.name}" cannot read it; leave it out', place)
    if not options.truncate and (cut := np.flatnonzero(result.lost)).size:
        place = f"{options.field}[{cut[0]}]"
        raise Invalid(
            f"{place} has {result.lost[cut[0]]} tokens more than the model reads; cut it, or let it be cut "
            'with "truncate": true',
            place,
        )
    if options.dimensions is not None:
        if options.dimensions > values.shape[1]:
            raise Invalid(
                f"dimensions={options.dimensions}: the vectors have {values.shape[1]}", "dimensions"
            )
        values = values[:, : options.dimensions]
    is_unit = served.require_encoder().model.policy["normalised"] and options.dimensions is None
    if (options.normalise and not is_unit) or options.dimensions is not None:
        length = np.linalg.norm(values.astype(np.float64), axis=1, keepdims=True)
        values = (values / np.maximum(length, 1e-12)).astype(np.float32)
    return result._replace(values=values)


def _written(values: FloatArray) -> list[msgspec.Raw]:
    """Return vectors (n, d) as JSON, one by one, so that a thread that writes many lets others work."""
    return [msgspec.Raw(msgspec.json.encode(row.tolist())) for row in values]


def _packed(values: FloatArray) -> list[str]:
    return [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in values]
