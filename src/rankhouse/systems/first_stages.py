"""The first stages: what finds documents by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

from rankhouse.core import notation
from rankhouse.core.notation import canonical, quote
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.systems.stage import canonical_ranker, without_family, write_ranker
from rankhouse.systems.system import FirstStage


@dataclass(frozen=True, repr=False)
class Lexical(FirstStage):
    """Retrieval by words."""

    model: str = "bm25"  # ``bm25(k1=0.9, b=0.4)``, ``ql``, ``jm`` ...
    feedback: str = ""  # ``rm3(terms=10, docs=10, weight=0.5)``; "" for none

    def __post_init__(self) -> None:
        model, feedback = _canonical(self.model, self.feedback)
        object.__setattr__(self, "model", model)
        object.__setattr__(self, "feedback", feedback)

    def __str__(self) -> str:
        if not self.feedback:
            return self.model
        name, inside = notation.parse(self.model).name, self.model.partition("(")[2][:-1]
        return f"{name}({', '.join(filter(None, [inside, f'feedback={self.feedback}']))})"


@lru_cache(maxsize=64)  # a query asked alone pays for it
def _canonical(model: str, feedback: str) -> tuple[str, str]:
    notation.choose(notation.parse(model).name, {**WEIGHTINGS, **ENCODED}, "model")
    return canonical(model, WEIGHTINGS, "model"), canonical(feedback, FEEDBACKS, "feedback")


@dataclass(frozen=True, repr=False)
class Dense(FirstStage):
    """Retrieval by vectors that ``rankhouse encode`` made."""

    ranker: str  # the encoder: a folder, or ``biencoder("DIR")``
    name: str = "default"  # under which name its vectors were encoded
    vectors: str = "exact"  # "exact", or a FAISS structure that was built: ``flat``, ``sq8``, ``hnsw`` ...

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", canonical_ranker(self.ranker))

    def __str__(self) -> str:
        usual = {"name": "default", "vectors": "exact"}
        named = [
            f"{key}={quote(v)}" for key, default in usual.items() if (v := getattr(self, key)) != default
        ]
        return f"dense({', '.join([write_ranker(self.ranker), *named])})"


@dataclass(frozen=True, repr=False)
class Sparse(FirstStage):
    """Retrieval by the impacts of a sparse encoder, which ``rankhouse encode`` made."""

    ranker: str  # the encoder: a folder or hub name, or ``sparse("DIR", max_length=128)``
    name: str = "default"  # under which name its impacts were encoded

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", without_family(canonical_ranker(self.ranker), "sparse"))

    def __str__(self) -> str:
        named = [f"name={quote(self.name)}"] if self.name != "default" else []
        return f"sparse({', '.join([write_ranker(self.ranker), *named])})"


ENCODED: Final[dict[str, Callable[..., Dense | Sparse]]] = {"dense": Dense, "sparse": Sparse}
"""First stages that search what an encoder made of the documents."""
