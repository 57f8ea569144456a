"""Systems: what ranks, put together from models, rankers and a fusion, under a name that people choose by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Self

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.ranking.fuse import FUSIONS
from rankhouse.systems.execution import costly
from rankhouse.systems.notation import system
from rankhouse.systems.short_forms import cut, first_stage, read_by, short_form
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import FOUND, Cut, Dense, Fused, Lexical, Reranked, System

MOST_STAGES = 9
"""Stages that search or read in a system that comes with a request."""
READ = 100
"""Documents a query that a ranker reads, unless its system says otherwise."""


@dataclass(frozen=True)
class SystemSpec:
    """What ranks.

    The models find documents; several are joined by the fusion. A ranker reads the first ``depth`` of what
    they find. Where a fusion is named beside a ranker, the models and the ranker are joined by it.

    Attributes:
        models: First stages, in notation; ``dense(NAME)`` names an encoder of the service.
        feedback: Of the lexical models, in notation; "" for none.
        fusion: How they are joined, in notation; "" for rrf, and for a ranker alone.
        weights: One a model, the ranker's last; None for equal ones.
        ranker: Name of a ranker of the service; "" for none.
        depth: Documents a query that the ranker reads.
        split: How it cuts documents, in notation; "" for what is stored for it, else its own way.
        pool: What makes one score of passages, in notation; "" likewise.
        expression: The system itself, where it was written as an expression; None builds it of the above.
    """

    name: str
    models: tuple[str, ...] = ("bm25",)
    feedback: str = ""
    fusion: str = ""
    weights: tuple[float, ...] | None = None
    ranker: str = ""
    depth: int = READ
    split: str = ""
    pool: str = ""
    expression: System | None = None

    @classmethod
    def of(cls, name: str, expression: System) -> Self:
        """Name a system that was written as an expression."""
        stages = [part.stage.ranker for part in expression.walk() if isinstance(part, Reranked)]
        first = tuple(str(part) for part in expression.walk() if isinstance(part, Lexical | Dense))
        return cls(name, first, ranker=str(stages[0]) if stages else "", expression=expression)

    @cached_property
    def system(self) -> System:
        """What ranks; WrongUse for an unknown model, feedback, fusion or weights that do not fit."""
        if self.expression is not None:
            return self.expression
        if not self.ranker:
            return short_form(self.models, self.feedback, self.fusion, self.weights, k=FOUND)
        notation.make(self.fusion or "rrf", FUSIONS, "method of fusion")
        found: list[System] = [cut(first_stage(model, self.feedback), FOUND) for model in self.models]
        stage = Stage(self.ranker, self.split, self.pool, self.depth)
        return read_by(found, stage, self.fusion, self.weights, k=FOUND)

    @property
    def rankers(self) -> tuple[str, ...]:
        """Names of the rankers of the service that it needs: encoders, then the one that reads."""
        parts = list(self.system.walk())
        encoders = [part.ranker for part in parts if isinstance(part, Dense)]
        return (*encoders, *(str(part.stage.ranker) for part in parts if isinstance(part, Reranked)))

    def described(self) -> str:
        """Return in one line what it does."""
        if self.expression is not None:
            return str(self.expression)
        found = " and ".join(self.models) + (f" with {self.feedback}" if self.feedback else "")
        if not self.ranker:
            return f"{found}, joined by {self.fusion or 'rrf'}" if len(self.models) > 1 else found
        read = f"{self.ranker} reads the first {self.depth} of {found}"
        return f"{read}; both joined by {self.fusion}" if self.fusion else read


def asked_system(text: str) -> SystemSpec:
    """Read a system that came with a request; WrongUse if it is none, or too much work for one question."""
    found = system(text)
    stages = set(costly(found))
    deepest = max((part.k for part in found.walk() if isinstance(part, Cut)), default=0)
    if len(stages) > MOST_STAGES or deepest > FOUND:
        raise WrongUse(
            f"the system has {len(stages)} stages and finds up to {deepest:,} documents; ask for at most "
            f"{MOST_STAGES} stages and {FOUND:,} documents, or have it served: rankhouse serve --system"
        )
    return SystemSpec.of(text, found)


def with_names(system: System, names: Mapping[str, str]) -> System:
    """Return a system that calls its rankers by other names; one without another name keeps its own."""
    match system:
        case Dense():
            return replace(system, ranker=names.get(system.ranker, system.ranker))
        case Fused():
            return replace(system, systems=tuple(with_names(part, names) for part in system.systems))
        case Cut():
            return replace(system, of=with_names(system.of, names))
        case Reranked():
            spec = str(system.stage.ranker)
            stage = replace(system.stage, ranker=names[spec]) if spec in names else system.stage
            return replace(system, of=with_names(system.of, names), stage=stage)
    return system


def usual_systems(encoded: Mapping[str, str], rankers: Iterable[str]) -> dict[str, SystemSpec]:
    """Return the systems that a service offers for an index, by name."""
    systems = [
        SystemSpec("bm25"),
        SystemSpec("bm25+rm3", feedback="rm3"),
        SystemSpec("ql", ("ql",)),
    ]
    for encoder, vectors in encoded.items():
        named = {} if vectors == "default" else {"name": vectors}
        model, suffix = notation.write("dense", encoder, **named), f":{encoder}" if len(encoded) > 1 else ""
        systems.append(SystemSpec(f"dense{suffix}", (model,)))
        systems.append(SystemSpec(f"hybrid{suffix}", ("bm25", model), fusion="rrf"))
    for ranker in rankers:
        systems.append(SystemSpec(ranker, ranker=ranker))
        systems.append(SystemSpec(f"{ranker}+bm25", ranker=ranker, fusion="rrf"))
    return {system.name: system for system in systems}
