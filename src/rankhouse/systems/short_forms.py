"""Systems from options: what ``--model A --model B --feedback F --fusion M -k N`` is short for."""

from __future__ import annotations

import re
from collections.abc import Sequence

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.systems.notation import system
from rankhouse.systems.system import FOUND, Cut, Dense, Fused, Lexical, System

_DENSE = re.compile(r"\s*dense\s*(?:\((?P<inside>.*)\))?\s*", re.DOTALL)
_NAMED = re.compile(r",\s*(?=(?:name|vectors)\s*=)")


def is_dense(model: str) -> bool:
    """Return whether a model's notation asks for vectors: ``dense(RANKER)``."""
    return _DENSE.fullmatch(model) is not None


def first_stage(model: str, feedback: str = "") -> Lexical | Dense:
    """Return a first stage by its notation; the ranker of ``dense`` may stand without quotes.

    Args:
        feedback: Of a lexical one, in notation; "" for none.

    Raises:
        WrongUse: There is no such model.
    """
    match = _DENSE.fullmatch(model)
    if match is None:
        return Lexical(model, feedback)
    if not (inside := (match["inside"] or "").strip()):
        raise WrongUse(f'"{model}": write  dense(RANKER), the ranker being a folder or  biencoder("DIR")')
    try:
        found = system(model)
    except WrongUse:
        ranker, *rest = _NAMED.split(inside, maxsplit=1)
        found = system(f"dense({', '.join([repr(ranker.strip()), *rest])})")
    assert isinstance(found, Dense)
    return found


def dense_ranker(model: str) -> str:
    """Return the encoder that ``dense(RANKER)`` names."""
    found = first_stage(model)
    return found.ranker if isinstance(found, Dense) else ""


def cut(found: System, k: int) -> System:
    """Return the best k documents of a system; a first stage finds 1,000 anyway."""
    return found if k == FOUND and not found.parts else Cut(found, k)


def short_form(
    models: Sequence[str],
    feedback: str = "",
    fusion: str = "",
    weights: Sequence[float] | None = None,
    k: int = FOUND,
) -> System:
    """Return the system that several models are, the best k of each fused and cut again.

    Args:
        models: One first stage or more, in notation.
        feedback: Of the lexical ones, in notation; "" for none.
        fusion: How several are joined, in notation; "" for rrf.
        weights: One a model; None for equal ones.
        k: Documents a query, of each model and of the fusion.

    Raises:
        WrongUse: An unknown model, feedback or fusion, or weights that do not fit.
    """
    notation.make(fusion or "rrf", FUSIONS, "method of fusion")
    found = [cut(first_stage(model, feedback), k) for model in models]
    if len(found) == 1:
        return found[0]
    shares = None if weights is None else tuple(weights)
    return Cut(Fused(fusion or "rrf", tuple(found), shares), k)
