"""Vectors of texts: what the contracts of OpenAI and Hugging Face share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

import msgspec
from starlette.requests import Request

from rankhouse.serve.contracts.errors import Invalid, TooLarge
from rankhouse.serve.contracts.waiting import deadline_of, in_thread, outcome

if TYPE_CHECKING:
    from rankhouse.core.nouns import FloatArray
    from rankhouse.serve.engine.jobs import Outcome
    from rankhouse.serve.engine.served import ServedRanker, Side

MOST_TEXTS: Final = 50_000
"""Of one request: their vectors are all held at once, and written as text."""


class VectorOptions(NamedTuple):
    """What vectors are asked for.

    Attributes:
        side: "query" or "passage": some encoders read them differently.
        dimensions: The first so many numbers of each, then given length 1; None for all.
        normalise: Whether they are given length 1.
        truncate: Whether what does not fit into the model is cut off; else it is refused.
        field: What the texts are called, for messages.
    """

    side: Side = "passage"
    dimensions: int | None = None
    normalise: bool = False
    truncate: bool = True
    field: str = "input"


class Vectors(NamedTuple):
    """Vectors of n texts.

    Attributes:
        values: (n, d) float32.
        tokens: Tokens computed.
        lost: Tokens that did not fit.
    """

    values: FloatArray
    tokens: int
    lost: int


def side_of(name: str | None) -> Side:
    """Return the side that a prompt's or an input type's name means: "query..." or anything else."""
    return "query" if name is not None and "query" in name.lower() else "passage"


async def vectors_of(
    request: Request, served: ServedRanker, texts: Sequence[str], options: VectorOptions
) -> Vectors:
    """Return the vectors of n texts.

    Args:
        request: The request; its time and its client's patience bound the work.

    Raises:
        TooLarge: There are too many texts.
        Invalid: A text is too long, where nothing may be cut off, or cannot be read; names it. More
            dimensions than there are.
    """
    if len(texts) > MOST_TEXTS:
        raise TooLarge(
            f"{options.field}: has {len(texts):,} texts; at most {MOST_TEXTS:,} are encoded at once",
            options.field,
        )
    deadline = deadline_of(request)
    result = await outcome(lambda: served.encode(texts, options.side, deadline))
    return await in_thread(lambda: _checked(served, result, options))


def written(values: FloatArray) -> list[msgspec.Raw]:
    """Return vectors (n, d) as JSON, one by one, so that a thread that writes many lets others work."""
    return [msgspec.Raw(msgspec.json.encode(row.tolist())) for row in values]


def _checked(served: ServedRanker, result: Outcome, options: VectorOptions) -> Vectors:
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
    return Vectors(values, int(result.tokens.sum()), int(result.lost.sum()))
