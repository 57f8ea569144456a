"""A ranker at work behind something, and how it and all other parts of an expression are written."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final, cast

from rankhouse.core import notation
from rankhouse.core.arguments import check_whole, fault, settled, signature_of
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import Notation, Spec, as_given, canonical, quote, write_spec, write_value
from rankhouse.core.nouns import Ranker
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import ReadingOptions
from rankhouse.ranking.see import check_keep
from rankhouse.text.split import SPLITTERS

DEFAULT: Final = "default"
"""The ranker that stands for the best at hand."""


class Live:
    """A ranker that is an object of this process, equal to itself only."""

    __slots__ = ("ranker",)

    def __init__(self, ranker: Ranker) -> None:
        self.ranker = ranker

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Live) and self.ranker is other.ranker

    def __hash__(self) -> int:
        return id(self.ranker)

    def __str__(self) -> str:
        return f"<ranker {type(self.ranker).__name__}>"


@dataclass(frozen=True)
class Stage(ReadingOptions):
    """A ranker at work behind something: what it reads, and what becomes of it."""

    ranker: str | Live  # a folder, a notation, ``default``; or an object
    depth: int | None = None  # documents a query that are read; None for all that come in, and 50 for duot5
    precision: str = ""  # "fp32", "bf16", "int8"; "" for what is asked of the whole

    def __post_init__(self) -> None:
        if isinstance(self.ranker, str):
            if not self.ranker.strip():
                raise WrongUse("the ranker's name is empty; give a folder or a notation")
            object.__setattr__(self, "ranker", canonical_ranker(self.ranker))
        object.__setattr__(self, "split", canonical(self.split, SPLITTERS, "splitter"))
        object.__setattr__(self, "pool", canonical(self.pool, POOLS, "pool"))
        if self.depth is not None:
            check_whole("a reranking stage", 0, depth=self.depth)
        notation.choose(self.tail, {"keep": 0, "drop": 0}, "treatment of the documents below the depth")
        notation.choose(self.precision, dict.fromkeys(("", "auto", "fp32", "bf16", "int8")), "precision")
        object.__setattr__(self, "see", check_keep(self.see))
        if wrong := fault(ReadingOptions, (), self.reading):
            raise WrongUse(wrong)

    @property
    def reading(self) -> dict[str, Any]:
        """The reading options, by name."""
        return {name: getattr(self, name) for name in _READING}

    def __str__(self) -> str:
        return self.text(str)

    def text(self, wording: Callable[[str], str]) -> str:
        """Write the stage, its notations as ``str`` or :func:`~rankhouse.core.notation.as_given` has them."""
        if self.see != 1:
            return f"see(keep={write_number(self.see)}) >> {replace(self, see=1.0).text(wording)}"
        options = [(name, getattr(self, name)) for name in STAGE_OPTIONS]
        given = [
            f"{name}={wording(value) if name in STAGE_NOTATIONS else write_value(value)}"
            for name, value in options
            if value != getattr(Stage, name)
        ]
        if isinstance(self.ranker, Live):
            return f"{self.ranker}({', '.join(given)})" if given else str(self.ranker)
        own = write_ranker(wording(self.ranker))
        if not given:
            return own
        if not own.endswith(")"):
            return f"open({', '.join([own, *given])})"
        return f"{own[:-1]}{', ' * (own[-2] != '(')}{', '.join(given)})"


_READING: Final = tuple(ReadingOptions.__dataclass_fields__)
STAGE_OPTIONS: Final = tuple(dict.fromkeys(("split", "pool", "depth", "tail", "precision", *_READING)))
"""The options of a stage, in the order in which they are written."""
STAGE_NOTATIONS: Final = ("split", "pool")
PAIRWISE_OPTIONS: Final = ("aggregate", "passages")
"""Options of rankers that compare, beside those of their checkpoints."""


def canonical_fusion(text: str) -> str:
    """Return the notation of a fusion, its normalisation first and without a name, the rest with names."""
    usual = canonical(text, FUSIONS, "method of fusion")
    given = notation.parse(as_given(text))
    bound = signature_of(FUSIONS[given.name]).bind(*given.args, **given.kwargs).arguments
    return Notation(_norm_first(notation.parse(usual)), _norm_first(Spec(given.name, (), bound)))


def _norm_first(spec: Spec) -> str:
    given = dict(spec.kwargs)
    return write_spec(spec.name, [given.pop("normalise")] if "normalise" in given else [], given)


def write_fusion(method: str, systems: Sequence[str], weights: Sequence[float] | None) -> str:
    """Write a fusion of systems that are written already."""
    spec = notation.parse(method)
    named = dict(zip(("norm",), spec.args, strict=False)) | dict(spec.kwargs)
    shares = [] if weights is None else [f"weights=[{', '.join(map(write_number, weights))}]"]
    words = [*systems, *shares, *(f"{key}={write_value(value)}" for key, value in named.items())]
    return f"{spec.name}({', '.join(words)})"


def write_number(weight: float) -> str:
    """Write a weight, whole ones without a point."""
    return str(int(weight)) if weight.is_integer() and weight < 1e15 else repr(weight)


def canonical_ranker(text: str) -> str:
    """Return a ranker's notation written in one way; a folder's name as it is."""
    with suppress(WrongUse):
        if text.rstrip().endswith(")") and is_ranker((spec := notation.parse(as_given(text))).name):
            return Notation(_settled(spec), write_spec(*spec))
    return text


def _settled(spec: Spec) -> str:
    from rankhouse.models.families import arguments_of  # which most first stages do not need

    own = dict(spec.kwargs)
    others = {name: own.pop(name) for name in PAIRWISE_OPTIONS if name in own}
    if isinstance(passages := others.get("passages"), str):
        others["passages"] = canonical_ranker(passages)
    if (own or spec.args[1:]) and (signature := arguments_of(spec.name)) is not None:
        with suppress(TypeError):  # what it does not take is refused when it is opened
            args, own = settled(signature, spec.args, own)
            return write_spec(spec.name, args, own | others)
    return write_spec(*spec)


def is_ranker(name: str) -> bool:
    """Return whether a call of this name is a ranker: a published family, or ``open``."""
    from rankhouse.models.families import is_published

    return name == "open" or is_published(name)


def without_family(text: str, family: str) -> str:
    """Return the folder or name in a notation of a family that says nothing else: ``sparse("DIR")``."""
    if isinstance(text, Notation):
        return Notation(without_family(str(text), family), without_family(text.given, family))
    with suppress(WrongUse):
        if text.endswith(")") and (spec := notation.parse(text)).name == family and not spec.kwargs:
            return str(spec.args[0]) if len(spec.args) == 1 else text
    return text


def write_ranker(text: str) -> str:
    """Write a ranker where an expression names one: a call as it is, a folder in quotes."""
    if text == DEFAULT:
        return text
    with suppress(WrongUse):
        if text.endswith(")") and is_ranker(notation.parse(text).name):
            return text
    return quote(text)


def as_stage(given: object) -> Stage:
    """Return a ranker as a stage: of an object, a folder or a notation; WrongUse for anything else."""
    if isinstance(given, Stage):
        return given
    if isinstance(given, str):
        from rankhouse.systems.notation import read_stage  # reads systems too

        return read_stage(given)
    if isinstance(given, os.PathLike):
        return Stage(str(given))
    if isinstance(given, type) or not any(
        callable(getattr(given, name, None)) for name in ("score", "preferences")
    ):
        raise WrongUse(
            f">> is followed by {given!s:.60} ({type(given).__name__}); give a ranker: an object with "
            "score(pairs), a folder, or a notation"
        )
    return Stage(Live(cast(Ranker, given)))
