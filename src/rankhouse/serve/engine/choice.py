"""The ranker that a request means."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankhouse.serve.contracts.errors import NotThisModel, UnknownName

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker


def choose(
    rankers: Mapping[str, ServedRanker], name: str | None = None, *, encoder: bool = False
) -> ServedRanker:
    """Return the ranker of a name; without one the first, by preference one that reads pairs together.

    Args:
        rankers: The service's by name, the default first.
        name: As a client gave it; "" and None for the default.

    Raises:
        UnknownName: There is none of that name.
        NotThisModel: It gives no vectors where they are asked for, or there is none that could.
    """
    served = list(rankers.values())
    if name:
        if name not in rankers:
            raise UnknownName("model", name, rankers, "model")
        chosen = rankers[name]
    else:
        fitting = [one for one in served if one.is_encoder == encoder]
        if not fitting and (encoder or not served):
            wanted = "model that gives vectors" if encoder else "ranker"
            raise NotThisModel(f"this service has no {wanted}; start it with  --ranker NAME=RANKER", "model")
        chosen = (fitting or served)[0]
    if encoder:
        chosen.require_encoder()
    return chosen
