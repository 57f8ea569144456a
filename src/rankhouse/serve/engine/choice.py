"""A request's choice of the ranker, and of how it reads documents. Imported without torch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from rankhouse.core.notation import make
from rankhouse.serve.errors import Invalid, NotThisModel, UnknownName
from rankhouse.text.split import SPLITTERS, Splitter

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

MOST_OVERLAP: Final = 64
"""Passages that a word may be in, where a request says how documents are cut."""


def asked_split(notation: str) -> Splitter:
    """Return what cuts documents as a request says."""
    split = make(notation, SPLITTERS, "splitter")
    size, stride, most = (getattr(split, name, None) for name in ("size", "stride", "limit"))
    if size and stride and min(size // stride, most or size) > MOST_OVERLAP:
        raise Invalid(
            f"split={notation[:80]}: a word would be in more than {MOST_OVERLAP} passages; choose a stride "
            f"of at least {-(-size // MOST_OVERLAP)}",
            "split",
        )
    return split


def choose(
    rankers: Mapping[str, ServedRanker], name: str | None = None, *, encoder: bool = False
) -> ServedRanker:
    """Return the ranker of a name; without one the first, by preference one that reads pairs together.

    UnknownName: there is none of that name. NotThisModel: it, or every one, gives no vectors, and they are
    needed.
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
