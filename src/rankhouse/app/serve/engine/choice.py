"""The ranker that a request means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rankhouse.app.serve.contracts.errors import UnknownName
from rankhouse.app.serve.engine.served import ServedRanker


def choose(rankers: Mapping[str, Any], name: str | None = None, *, encoder: bool = False) -> ServedRanker:
    """Return the ranker of a name; without one the first, by preference one that reads pairs together.

    Args:
        rankers: The service's by name, the default first.
        name: As a client gave it.
        encoder: Whether it has to give vectors.

    Raises:
        UnknownName: There is none of that name, or none at all.
        NotThisModel: It gives no vectors where they are asked for.
    """
    served: list[ServedRanker] = list(rankers.values())
    if name:
        if name not in rankers:
            raise UnknownName("model", name, rankers, "model")
        chosen: ServedRanker = rankers[name]
    else:
        fitting = [one for one in served if one.is_encoder == encoder]
        if not fitting and (encoder or not served):
            wanted = "a bi-encoder" if encoder else "a ranker"
            raise UnknownName("model", wanted, rankers, "model")
        chosen = (fitting or served)[0]
    if encoder:
        chosen.require_encoder()
    return chosen
