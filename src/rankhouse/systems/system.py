"""A system that ranks, as one value: first stages, fusion, cuts, rerankers, and how they are written.

Python's operators and the text mean the same:

| written | what it is |
|---|---|
| ``bm25(k1=0.9, feedback=rm3)`` | retrieval by words |
| ``dense("DIR", name="x")``, ``sparse("DIR")`` | by vectors, by learned weights of words |
| ``a + 0.7 * b`` | weighted sum of z-scores |
| ``rrf(a, b)``, ``linear(a, b, weights=[0.3, 0.7])`` | any fusion by its name |
| ``a % 100`` | the best 100 documents a query |
| ``a >> crossencoder("DIR", depth=50)`` | a ranker reads what comes in |
| ``a >> see(keep=0.5) >> crossencoder("DIR")`` | it reads the half that ``a`` and the words put first |
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from rankhouse.core import notation
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import canonical, quote, write_value
from rankhouse.core.nouns import Query, Ranker, Ranking, SearchResult
from rankhouse.core.progress import shown
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.systems.stage import (
    STAGE_OPTIONS,
    Stage,
    as_stage,
    canonical_fusion,
    canonical_ranker,
    without_family,
    write_number,
    write_ranker,
)

if TYPE_CHECKING:
    from rankhouse.core.run import Run
    from rankhouse.explanation.report import ExplainResult
    from rankhouse.index.sharded.sharded_index import AnyIndex
    from rankhouse.io.files import PathLike
    from rankhouse.io.inputs import QueriesLike

FOUND: Final = 1000
"""Documents a query that a first stage finds where no cut stands right behind it."""
SUM: Final = 'linear("z-score")'
"""The fusion that ``+`` means."""
_MOST: Final = 2**31 - 1


class System:
    """A system that ranks the documents of an index, written as an expression; a frozen value.

    >>> import rankhouse as rh
    >>> texts = {"pilots": "Pilots steer ships.", "locks": "Locks lift ships.", "moon": "The moon pulls."}
    >>> index = rh.Index.build([rh.Document(*one) for one in texts.items()], "i")
    >>> hybrid = (rh.system("bm25") + 0.5 * rh.system("ql")) % 2
    >>> print(hybrid)
    (bm25 + 0.5 * ql) % 2
    >>> hybrid == rh.system("(bm25 + 0.5 * ql) % 2")
    True
    >>> hybrid.rank("who steers ships?", index).doc_ids
    ('pilots', 'locks')
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[System, ...]:
        """The systems that it is made of, left to right; none of a first stage."""
        return ()

    def __repr__(self) -> str:
        return f"<System {self}>"

    def walk(self) -> Iterator[System]:
        """Yield the system and all that it is made of, what comes first in the ranking last."""
        yield self
        for part in self.parts:
            yield from part.walk()

    @checked
    def run(self, queries: QueriesLike, index: AnyIndex | PathLike) -> Run:
        """Rank the documents for many queries.

        Args:
            queries: A file, queries, or query id -> text.
            index: The index, several opened as one, or a folder.

        Raises:
            WrongUse, MissingExtra: The index, or what is installed, lacks what a stage needs.
        """
        from rankhouse.io.inputs import as_queries

        with shown("searching", None, "work") as show:
            found: Run = _load("execution").Execution(index, as_queries(queries), progress=show).run(self)
        return found

    @checked
    def rank(self, query: str | Query, index: AnyIndex | PathLike) -> Ranking:
        """Rank the documents for one query.

        Args:
            query: The question.
            index: As for :meth:`run`.
        """
        asked = query if isinstance(query, Query) else Query("query", query)
        return self.run([asked], index)[asked.id]

    @checked
    def search(self, query: str, index: AnyIndex | PathLike, k: int = 10) -> SearchResult:
        """Answer one question: the best documents with titles and snippets.

        Args:
            query: The question.
            index: As for :meth:`run`.
            k: Number of documents.
        """
        work = _load("execution").Execution(index, [Query("query", query)])
        found: SearchResult = _load("execution").with_snippets(work.index, query, work.run(self % k)["query"])
        return found

    @checked
    def explain(
        self,
        query: str | Query,
        doc: str,
        against: str = "",
        *,
        index: AnyIndex | PathLike,
        method: str = "",
        unit: str = "",
        passes: int = 1024,
    ) -> ExplainResult:
        """Say why a document scores what it scores, or why it stands above another.

        Args:
            query: The question.
            doc: The document's id.
            against: The id of the document to compare with; "" for none.
            index: As for :meth:`run`.
            method: "removal", "shapley" or "gradients"; "" for what suits the ranker.
            unit: "sentence" or "word": what is left out at a time.
            passes: Most pairs scored for one document.
        """
        from rankhouse.explanation.methods import ExplainOptions
        from rankhouse.explanation.report import ExplainResult
        from rankhouse.systems.names import with_words

        asked = with_words(query if isinstance(query, Query) else Query("query", query))
        explaining, work = _load("explaining"), _load("execution").Execution(index, [asked])
        question = explaining.Question((doc,), against, options=ExplainOptions(method, unit, passes))
        return ExplainResult(explaining.ask(work, self, question))

    def __rshift__(self, ranker: object) -> Reranked:
        return Reranked(self, as_stage(ranker))

    def rerank(self, ranker: str | os.PathLike[str] | Ranker, **options: Any) -> Reranked:  # noqa: ANN401
        """Return the system whose documents a ranker then reads: ``>>`` with the options of its stage.

        Args:
            ranker: A ranker, its notation or its folder.
            options: ``split``, ``pool``, ``depth``, ``tail``, ``precision``, ``stored``, ``see``: of a stage.
        """
        stage = as_stage(ranker)
        if unknown := [name for name in options if name not in STAGE_OPTIONS]:
            notation.choose(unknown[0], dict.fromkeys(STAGE_OPTIONS), "option of a reranking stage")
        return Reranked(self, replace(stage, **options))

    def fuse(self, *others: System, method: str = "rrf", weights: Sequence[float] | None = None) -> Fused:
        """Return the fusion of this system and others: ``rrf(a, b)`` and the like.

        Args:
            others: One or more.
            method: In notation: ``rrf(k=60)``, ``linear("min-max")``, ``combsum``, ``combmnz``.
            weights: One a system, this one's first; equal if not given.

        Raises:
            WrongUse: An unknown method, or weights that do not fit.
        """
        return Fused(method, (self, *others), None if weights is None else tuple(weights))

    def __mod__(self, k: object) -> System:
        if type(k) is not int or not 1 <= k <= _MOST:
            raise WrongUse(f"% is followed by {write_value(k):.40}; keep 1 to {_MOST:,} documents per query")
        if isinstance(self, Fused) and len(self.parts) == 1:  # 0.7 * a % 50 weighs what is left of a
            return replace(self, systems=(self.parts[0] % k,))
        return Cut(self.of, min(self.k, k)) if isinstance(self, Cut) else Cut(self, k)

    def __mul__(self, weight: object) -> System:
        if isinstance(weight, bool) or not isinstance(weight, int | float):
            return NotImplemented
        return _sum([(float(weight) * own, part) for own, part in self._terms()])

    __rmul__ = __mul__

    def __add__(self, other: object) -> System:
        if not isinstance(other, System):
            return NotImplemented
        return _sum([*self._terms(), *other._terms()])

    def _terms(self) -> list[tuple[float, System]]:
        return [(1.0, self)]


class FirstStage(System):
    """A system that finds documents by itself; 1,000 a query, or as many as a cut right behind it says."""


@dataclass(frozen=True, repr=False)
class Lexical(FirstStage):
    """Retrieval by words."""

    model: str = "bm25"  # ``bm25(k1=0.9, b=0.4)``, ``ql``, ``jm`` ...
    feedback: str = ""  # ``rm3(terms=10, docs=10, weight=0.5)``; "" for none

    def __post_init__(self) -> None:
        for name, written in zip(("model", "feedback"), _canonical(self.model, self.feedback), strict=True):
            object.__setattr__(self, name, written)

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
class _Encoded(FirstStage):
    """Retrieval by what ``rankhouse encode`` made."""

    ranker: str  # the encoder: a folder or hub name, or its notation, ``sparse("DIR", max_length=128)``
    name: str = "default"  # under which name the documents were encoded

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", canonical_ranker(self.ranker))

    def __str__(self) -> str:
        given = [(one.name, getattr(self, one.name), one.default) for one in fields(self)[1:]]
        named = [f"{name}={quote(value)}" for name, value, usual in given if value != usual]
        return f"{type(self).__name__.lower()}({', '.join([write_ranker(self.ranker), *named])})"


@dataclass(frozen=True, repr=False)
class Dense(_Encoded):
    """Retrieval by vectors."""

    vectors: str = "exact"  # "exact", or a FAISS structure that was built: ``flat``, ``sq8``, ``hnsw`` ...


@dataclass(frozen=True, repr=False)
class Sparse(_Encoded):
    """Retrieval by the impacts of a sparse encoder."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", without_family(canonical_ranker(self.ranker), "sparse"))


ENCODED: Final[dict[str, Callable[..., Dense | Sparse]]] = {"dense": Dense, "sparse": Sparse}
"""First stages that search what an encoder made of the documents."""


@dataclass(frozen=True, repr=False)
class Fused(System):
    """Several systems whose rankings become one."""

    method: str  # in notation: ``rrf(k=60)``, ``linear("z-score")``, ``combsum``, ``combmnz``
    systems: tuple[System, ...]  # two or more; one with a weight that is still to be added to others
    weights: tuple[float, ...] | None = None  # one a system; None for equal ones

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", canonical_fusion(self.method))
        given, count = self.weights, len(self.systems)
        if count < (1 if self.is_sum else 2):
            raise WrongUse(f"{self.method} of {count}: a fusion needs two systems or more")
        for part in self.systems:
            whole(part)
        if given is None:
            return
        if len(given) != count:
            names = ", ".join(map(str, self.systems))
            raise WrongUse(f"{len(given)} weights for {count} systems ({names}); give one each")
        if not all(math.isfinite(w) and w >= 0 for w in given) or not (any(given) or count == 1):
            raise WrongUse(f"weights {', '.join(f'{w:g}' for w in given)}: give 0 or more, and not all 0")
        object.__setattr__(self, "weights", tuple(map(float, given)))

    @property
    def parts(self) -> tuple[System, ...]:
        """The systems."""
        return self.systems

    @property
    def is_sum(self) -> bool:
        """Whether it is a weighted sum."""
        return self.method == SUM and self.weights is not None

    @property
    def is_plain_sum(self) -> bool:
        """Whether ``+`` and ``*`` can write it: they would merge a sum among the systems into this one."""
        return self.is_sum and not any(isinstance(part, Fused) and part.is_sum for part in self.systems)

    def _terms(self) -> list[tuple[float, System]]:
        return list(zip(self.weights or (), self.systems, strict=True)) if self.is_sum else super()._terms()

    def __str__(self) -> str:
        if self.is_plain_sum:
            return " + ".join(
                _part(p, 2) if w == 1 else f"{write_number(w)} * {_part(p, 3)}" for w, p in self._terms()
            )
        spec = notation.parse(self.method)
        named = dict(zip(("norm",), spec.args, strict=False)) | dict(spec.kwargs)
        words = [str(part) for part in self.systems]
        if self.weights is not None:
            words.append(f"weights=[{', '.join(map(write_number, self.weights))}]")
        return f"{spec.name}({', '.join([*words, *(f'{k}={write_value(v)}' for k, v in named.items())])})"


@dataclass(frozen=True, repr=False)
class _After(System):
    """A step after the rankings of one system."""

    of: System

    def __post_init__(self) -> None:
        whole(self.of)

    @property
    def parts(self) -> tuple[System, ...]:
        """The system before it."""
        return (self.of,)


@dataclass(frozen=True, repr=False)
class Cut(_After):
    """The best ``k`` documents a query of a system; a first stage then finds so many."""

    k: int

    def __str__(self) -> str:
        return f"{_part(self.of, 3)} % {self.k}"


@dataclass(frozen=True, repr=False)
class Reranked(_After):
    """A system whose documents a ranker reads and reorders."""

    stage: Stage

    def __str__(self) -> str:
        return f"{self.of} >> {self.stage}"


def whole(system: System) -> System:
    """Return a system that can rank by itself; WrongUse for a weight with one system only."""
    if isinstance(system, Fused) and len(system.systems) == 1:
        raise WrongUse(
            f"{system}: a weight says how much a system counts in a sum; add another to it, like  "
            f"{system} + bm25 , or leave the weight out (and put the sum in parentheses)"
        )
    return system


def _sum(terms: list[tuple[float, System]]) -> System:
    if len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    weights, systems = zip(*terms, strict=True)
    return Fused(SUM, systems, weights)


def _load(module: str) -> Any:  # noqa: ANN401 - a module
    """Import what puts systems to work, which itself knows all kinds of systems, when it is used."""
    return import_module(f"rankhouse.systems.{module}")


def _part(part: System, least: int) -> str:
    """Write a part, in parentheses where its operator binds less than the one around it."""
    match part:
        case Reranked():
            binds = 0
        case Fused() if part.is_plain_sum:
            binds = 1 if len(part.systems) > 1 else 2
        case Cut():
            binds = 2
        case _:
            binds = 3
    return str(part) if binds >= least else f"({part})"
