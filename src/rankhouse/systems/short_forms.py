"""Systems from options: what ``--model A --model B --feedback F --fusion M -k N`` is short for."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from typing import Annotated, Final

from rankhouse.core import notation
from rankhouse.core.arguments import Option, signature_of
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.systems.execution import Execution
from rankhouse.systems.on_record import OnRecord
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import (
    ENCODED,
    FOUND,
    SUM,
    Cut,
    Dense,
    FirstStage,
    Lexical,
    RerankedSystem,
    System,
)

HYBRID: Final = (0.3, 0.7)
"""Weights of words and of vectors in the usual fusion, a sum of z-scores: benchmarks/fusions.py."""
_ENCODED = re.compile(r"\s*(?P<kind>dense|sparse)\s*(?:\((?P<inside>.*)\))?\s*", re.DOTALL)
_FIRST: Final = "|".join((*WEIGHTINGS, *ENCODED, *FUSIONS))
_EXPRESSION: Final = re.compile(rf"\s*(?:\(|[\d.]+\s*\*|(?:{_FIRST})\s*(?:$|[(%+*>]))")
"""How every system begins, and no notation of a ranker: a parenthesis, a weight, a first stage, a fusion."""
_NAMED = re.compile(r",\s*(?=(?:name|vectors)\s*=)")


def is_dense(model: str) -> bool:
    """Return whether a model's notation asks for vectors: ``dense(RANKER)``."""
    match = _ENCODED.fullmatch(model)
    return match is not None and match["kind"] == "dense"


def is_sparse(model: str) -> bool:
    """Return whether a model's notation asks for weights of a sparse encoder: ``sparse(RANKER)``."""
    match = _ENCODED.fullmatch(model)
    return match is not None and match["kind"] == "sparse"


def is_expression(text: str) -> bool:
    """Return whether a text is written as a system, a first stage included, and names no file."""
    return _EXPRESSION.match(text) is not None and not os.path.exists(text)  # noqa: PTH110 - any text


def as_whole(given: object) -> System | None:
    """Return a system, or what a text says that is written as more than a model; else None.

    Raises WrongUse for an expression with a fault.
    """
    if not isinstance(given, str):
        return given if isinstance(given, System) else None
    if not is_expression(given):
        return None
    with suppress(WrongUse):
        if "feedback" not in notation.parse(given).kwargs:
            return None
    from rankhouse.systems.notation import system  # knows everything that ranks

    found: System | None = None
    with suppress(WrongUse) if _ENCODED.fullmatch(given) else nullcontext():  # a ranker without quotes
        found = system(given)
    return (
        None
        if isinstance(found, FirstStage) and not (isinstance(found, Lexical) and found.feedback)
        else found
    )


def refuse_beside(system: System, call: Callable[..., object], **given: object) -> None:
    """Refuse arguments of a call that change nothing, since a system says what ranks: WrongUse names them.

    A value that is the default of the call's own counts as not given.
    """
    usual = {name: one.default for name, one in signature_of(call).parameters.items()}
    idle = [name for name, one in given.items() if type(one) is not type(usual[name]) or one != usual[name]]
    if idle:
        raise WrongUse(
            f"{call.__name__}: {', '.join(idle)}: the system  {system}  says what ranks; say it there, or "
            "leave it out"
        )


def first_stage(model: str, feedback: str = "") -> FirstStage:
    """Return a first stage by its notation; the ranker of ``dense`` or ``sparse`` may stand without quotes.

    Raises WrongUse where there is no such model. ``feedback``, of a lexical one, is in notation; "" for none.
    """
    match = _ENCODED.fullmatch(model)
    if as_whole(model) is not None:
        raise WrongUse(
            f'"{model:.200}": is no first stage, but a whole system; give it as  --system , or in Python as '
            f"rh.system({model[:200]!r})"
        )
    if match is None:
        return Lexical(model, feedback)
    if not (inside := (match["inside"] or "").strip()):
        raise WrongUse(
            f'"{model}": write  {match["kind"]}(RANKER), the ranker being a folder, or a notation such as  '
            'biencoder("DIR")'
        )
    from rankhouse.systems.notation import system  # which most models, being lexical, do not need

    try:
        found = system(model)
    except WrongUse:
        ranker, *rest = _NAMED.split(inside, maxsplit=1)
        found = system(f"{match['kind']}({', '.join([repr(ranker.strip()), *rest])})")
    assert isinstance(found, FirstStage)
    return found


def cut(found: System, k: int) -> System:
    """Return the best k documents of a system; a first stage finds 1,000 anyway."""
    return found if k == FOUND and not found.parts else Cut(found, k)


def joined(parts: Sequence[System], fusion: str = "", weights: Sequence[float] | None = None) -> System:
    """Return one system: the only one, or the fusion of several, "" being the usual one."""
    first, *others = parts
    if not others:
        return first
    if not fusion and weights is None:
        weights = _usual_weights(parts)
    return first.fuse(*others, method=fusion or SUM, weights=weights)


def _usual_weights(parts: Sequence[System]) -> list[float] | None:
    """Return the weights of words and vectors, shared among several of a kind; None where one kind is all."""
    kinds = [type(part.of if isinstance(part, Cut) else part) for part in parts]
    if set(kinds) != {Lexical, Dense}:
        return None
    return [HYBRID[kind is Dense] / kinds.count(kind) for kind in kinds]


def short_form(
    models: Sequence[str],
    feedback: str = "",
    fusion: str = "",
    weights: Sequence[float] | None = None,
    k: int = FOUND,
) -> System:
    """Return the system that several models are: the best of each, fused and cut again.

    Raises WrongUse for an unknown model, feedback or fusion, and for weights that do not fit.

    Args:
        feedback: Of the lexical ones, in notation; "" for none.
        fusion: How several are joined, in notation; "" for the usual fusion.
        weights: One a model; None for equal ones, or those of the usual fusion.
        k: Documents a query, of the fusion and, where that is named, of each model; the usual fusion needs
            the scores of all that they find.
    """
    if fusion not in ("", "rrf"):
        notation.make(fusion, FUSIONS, "method of fusion")  # of one model, too, which is not fused
    each = k if fusion or len(models) == 1 else max(k, FOUND)
    found = [cut(first_stage(model, feedback), each) for model in models]
    return Cut(joined(found, fusion, weights), k) if len(found) > 1 else found[0]


def read_by(
    first: Sequence[System],
    stage: Stage,
    fusion: str = "",
    weights: Sequence[float] | None = None,
    k: int | None = None,
) -> System:
    """Return the system of first stages and a ranker that reads what they find.

    Args:
        fusion: How the first stages and the ranker are joined, in notation; "" for the ranker alone.
        weights: One a first stage, the ranker's last; None for equal ones.
        k: Documents of the first stages' fusion; None for all.
    """
    before = joined(first)
    ranked = RerankedSystem(Cut(before, k) if k and len(first) > 1 else before, stage)
    return joined([*first, ranked], fusion, weights) if fusion else ranked


def asked_form(
    models: Sequence[str],
    feedback: str,
    fusion: str,
    weights: Sequence[float] | None,
    k: int,
    stage: Stage | None,
    record: OnRecord | None = None,
) -> System:
    """Return the system that options of an explanation mean: models or a run, a ranker behind them.

    Args:
        models: First stages, in notation; none for bm25.
        fusion: How models, and the ranker with them, are joined; "" for the usual way, or the ranker alone.
        weights: One a model, the ranker's last.
        record: A run in place of the models, or theirs.
    """
    found = [cut(first_stage(model, feedback), k) for model in models or ("bm25",)]
    if record is not None:
        maker = joined(found) if stage else joined(found, fusion, weights)
        found = [record.made_by(maker) if models else record]
    if stage is not None:
        return read_by(found, stage, fusion, weights)
    return joined(found, fusion, weights)


SystemText = Annotated[
    str | None, Option("\"bm25 % 100 >> crossencoder('DIR')\": what ranks, as one expression.", "source")
]
"""The option of commands that take a system."""


@dataclass(frozen=True, kw_only=True)
class SearchOptions(ComputeOptions):
    """The system, and how many documents it finds."""

    system: SystemText = None
    models: Annotated[
        tuple[str, ...],
        Option(
            "Short for a --system: bm25, ql, jm, impact, dense(RANKER), sparse(RANKER); several are fused.",
            "source",
            flag="--model",
        ),
    ] = ("bm25",)
    feedback: Annotated[str, Option('Expands queries of --model: "rm3(terms=10, docs=10, weight=0.5)".')] = ""
    fusion: Annotated[
        str,
        Option("How several models are fused: rrf, linear ...", default="z-scores, 0.3 words, 0.7 vectors"),
    ] = ""
    k: Annotated[
        int | None, Option("Documents per query.", flag="-k", least=1, default="1000; 10 with --query")
    ] = None

    def best(self, k: int | None = None) -> System:
        """Return the system that finds the best k documents a query, or as many as it says itself."""
        if k is not None and k < 1:
            raise WrongUse(f"k={k}: ask for 1 document or more")
        if self.system is None:
            return short_form(self.models, self.feedback, self.fusion, k=k or FOUND)
        from rankhouse.systems.notation import system  # knows everything that ranks

        return system(self.system) if k is None else system(self.system) % k

    def work(self, index: AnyIndex, queries: Sequence[Query], progress: Progress = ignore) -> Execution:
        """Return what runs systems for these queries, computing as the options say."""
        return Execution(index, queries, self, progress)
