"""Systems: what ranks, put together from models, rankers and a fusion, under a name that people choose by."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.systems.execution import costly
from rankhouse.systems.notation import system
from rankhouse.systems.short_forms import joined
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import FOUND, Cut, Dense, FusedSystem, Lexical, RerankedSystem, Sparse, System

MOST_STAGES = 9
"""Stages that search or read in a system that comes with a request."""
READ = 100
"""Documents a query that a ranker reads, unless its system says otherwise."""


@dataclass(frozen=True)
class NamedSystem:
    """A system under the name that people choose it by; it calls rankers by their names in the service.

    ``description`` is "" for what the expression says.
    """

    name: str
    system: System
    description: str = ""

    @cached_property
    def ranker(self) -> str:
        """Name of the ranker that reads last; "" where none does."""
        return next(
            (str(part.stage.ranker) for part in self.system.walk() if isinstance(part, RerankedSystem)), ""
        )

    @cached_property
    def rankers(self) -> tuple[str, ...]:
        """Names of the rankers of the service that it needs: encoders, then those that read."""
        parts = list(self.system.walk())
        encoders = [part.ranker for part in parts if isinstance(part, Dense | Sparse)]
        return (*encoders, *(str(part.stage.ranker) for part in parts if isinstance(part, RerankedSystem)))


def asked_system(text: str) -> NamedSystem:
    """Read a system that came with a request; WrongUse if it is none, or too much work for one question."""
    found = system(text)
    stages = set(costly(found))
    deepest = max((part.k for part in found.walk() if isinstance(part, Cut)), default=0)
    if len(stages) > MOST_STAGES or deepest > FOUND:
        raise WrongUse(
            f"the system has {len(stages)} stages and finds up to {deepest:,} documents; ask for at most "
            f"{MOST_STAGES} stages and {FOUND:,} documents, or have it served: rankhouse serve --system"
        )
    return NamedSystem(text, found)


def with_names(system: System, names: Mapping[str, str]) -> System:
    """Return a system that calls its rankers by other names; one without another name keeps its own."""

    def named(part: System) -> System:
        match part:
            case Dense() | Sparse():
                return replace(part, ranker=names.get(part.ranker, part.ranker))
            case RerankedSystem() if (spec := str(part.stage.ranker)) in names:
                return replace(part, stage=replace(part.stage, ranker=names[spec]))
        return part

    return _mapped(system, named)


def with_words(system: System, words: str) -> System:
    """Return a system in which ``bm25``, as a mere name, stands for other words: ``bm25(k1=2, b=1)``."""

    def worded(part: System) -> System:
        if isinstance(part, Lexical) and notation.as_given(part.model) == "bm25":
            return replace(part, model=words)
        return part

    return _mapped(system, worded)


def _mapped(system: System, change: Callable[[System], System]) -> System:
    """Return a system whose parts, then itself, are changed."""
    match system:
        case FusedSystem():
            system = replace(system, systems=tuple(_mapped(part, change) for part in system.systems))
        case Cut() | RerankedSystem():
            system = replace(system, of=_mapped(system.of, change))
    return change(system)


def of_content(words: str) -> str:
    """Return a bm25 that leaves out the function words of questions.

    Alone, it finds more; beside vectors, the mean over collections is the same (``benchmarks/fusions.py``).
    """
    found = notation.parse(words)
    return notation.write(found.name, *found.args, **found.kwargs, query="content")


@lru_cache(maxsize=16)
def usual_systems(
    encoded: tuple[tuple[str, str], ...],
    rankers: tuple[str, ...],
    words: str = "bm25",
    beside_vectors: str = "bm25",
) -> dict[str, NamedSystem]:
    """Return the systems of an index, of encoders with the names of their vectors, and rankers of texts.

    ``words`` is the bm25 that finds documents, ``beside_vectors`` the one in hybrid systems.
    """
    bm25 = Lexical(words)
    systems = [
        NamedSystem("bm25", bm25, "" if words == "bm25" else words),
        NamedSystem("bm25+rm3", Lexical(words, "rm3"), f"{words} with rm3"),
        NamedSystem("ql", Lexical("ql")),
    ]
    for encoder, vectors in encoded:
        named = {} if vectors == "default" else {"name": vectors}
        dense, text = Dense(encoder, vectors), notation.write("dense", encoder, **named)
        suffix = f":{encoder}" if len(encoded) > 1 else ""
        systems.append(NamedSystem(f"dense{suffix}", dense, text))
        hybrid = Cut(joined([Lexical(beside_vectors), dense]), FOUND)
        label = f"{beside_vectors} and {text}, joined by z-scores"
        systems.append(NamedSystem(f"hybrid{suffix}", hybrid, label))
    hybrids = [one for one in systems if one.name.startswith("hybrid")]
    for ranker in rankers:
        read, text = (
            RerankedSystem(bm25, Stage(ranker, depth=READ)),
            f"{ranker} reads the first {READ} of bm25",
        )
        systems.append(NamedSystem(ranker, read, text))
        systems.append(NamedSystem(f"{ranker}+bm25", bm25.fuse(read), f"{text}; both joined by rrf"))
        for one in hybrids[:1]:
            over = RerankedSystem(one.system, Stage(ranker, depth=READ))
            text = f"{ranker} reads the first {READ} of {one.name}"
            systems.append(NamedSystem(over_hybrid(ranker), over, text))
    return {one.name: one for one in systems}


def over_hybrid(ranker: str) -> str:
    """Return the name of the system in which a ranker reads what words and vectors find."""
    return f"hybrid>>{ranker}"
