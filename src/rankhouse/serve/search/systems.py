"""Systems: what ranks, put together from models, rankers and a fusion, under a name that people choose by."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from rankhouse.core import notation
from rankhouse.systems.short_forms import dense_ranker, is_dense

FOUND = 1000
"""Documents a query that each first stage finds, as ``rankhouse search`` does by default."""
READ = 100
"""Documents a query that a ranker reads, unless its system says otherwise."""


@dataclass(frozen=True)
class SystemSpec:
    """What ranks.

    The models find documents; several are joined by the fusion. A ranker reads the first ``depth`` of what
    they find. Where a fusion is named beside a ranker, the models and the ranker are joined by it.

    Attributes:
        name: What people choose it by.
        models: First stages, in notation; ``dense(NAME)`` names an encoder of the service.
        feedback: Of the lexical models, in notation; "" for none.
        fusion: How they are joined, in notation; "" for rrf, and for a ranker alone.
        weights: One a model, the ranker's last; None for equal ones.
        ranker: Name of a ranker of the service; "" for none.
        depth: Documents a query that the ranker reads.
        split: How it cuts documents, in notation; "" for what is stored for it, else its own way.
        pool: What makes one score of passages, in notation; "" likewise.
        k: Documents a query that each model finds.
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
    k: int = FOUND

    @property
    def rankers(self) -> tuple[str, ...]:
        """Names of the rankers of the service that it needs: encoders, then the one that reads."""
        encoders = (dense_ranker(model) for model in self.models if is_dense(model))
        return (*encoders, *filter(None, [self.ranker]))

    @property
    def joins_ranker(self) -> bool:
        """Whether the ranker's scores are one part of a fusion, beside the models'."""
        return bool(self.ranker and self.fusion)

    def described(self) -> str:
        """Return in one line what it does."""
        found = " and ".join(self.models) + (f" with {self.feedback}" if self.feedback else "")
        if not self.ranker:
            return f"{found}, joined by {self.fusion or 'rrf'}" if len(self.models) > 1 else found
        read = f"{self.ranker} reads the first {self.depth} of {found}"
        return f"{read}; both joined by {self.fusion}" if self.fusion else read


def dense_notation(ranker: str, vectors: str = "default") -> str:
    """Return the notation of dense search by an encoder of the service."""
    named = {} if vectors == "default" else {"name": vectors}
    return notation.write("dense", ranker, **named)


def usual_systems(encoded: Mapping[str, str], rankers: Iterable[str]) -> dict[str, SystemSpec]:
    """Return the systems that a service offers for an index, by name."""
    systems = [
        SystemSpec("bm25"),
        SystemSpec("bm25+rm3", feedback="rm3"),
        SystemSpec("ql", ("ql",)),
    ]
    for encoder, vectors in encoded.items():
        model, suffix = dense_notation(encoder, vectors), f":{encoder}" if len(encoded) > 1 else ""
        systems.append(SystemSpec(f"dense{suffix}", (model,)))
        systems.append(SystemSpec(f"hybrid{suffix}", ("bm25", model), fusion="rrf"))
    for ranker in rankers:
        systems.append(SystemSpec(ranker, ranker=ranker))
        systems.append(SystemSpec(f"{ranker}+bm25", ranker=ranker, fusion="rrf"))
    return {system.name: system for system in systems}
