"""A system that ranks, as one value: first stages, fusion, cuts, rerankers, and how they are written."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from numbers import Integral, Real
from typing import TYPE_CHECKING, Any, Final, NoReturn

from rankhouse.core import notation
from rankhouse.core.arguments import checked
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import as_given, canonical, quote, write_value
from rankhouse.core.nouns import Query, Ranker, Ranking, SearchResult
from rankhouse.core.progress import shown
from rankhouse.index.lexical.feedback import FEEDBACKS
from rankhouse.index.lexical.weighting import WEIGHTINGS
from rankhouse.io.files import PathLike, wrong_kind
from rankhouse.systems.stage import (
    STAGE_OPTIONS,
    Stage,
    as_stage,
    canonical_fusion,
    canonical_ranker,
    without_family,
    write_fusion,
    write_number,
    write_ranker,
)

if TYPE_CHECKING:
    from rankhouse.core.run import Run
    from rankhouse.explanation.report import ExplainResult
    from rankhouse.index.sharded.sharded_index import AnyIndex
    from rankhouse.io.inputs import QueriesLike

FOUND: Final = 1000
"""Documents a query that a first stage finds where no cut stands right behind it."""
SUM: Final = 'linear("z-score")'
"""The fusion that ``+`` means."""
_MOST, _MOST_TERMS = 2**31 - 1, 500


class System:
    """A system that ranks the documents of an index, written as an expression; a frozen value.

    >>> import rankhouse as rh
    >>> texts = {"pilots": "Pilots steer ships.", "locks": "Locks lift ships.", "moon": "The moon pulls."}
    >>> index = rh.Index.build([rh.Document(*one) for one in texts.items()], "i")
    >>> hybrid = (rh.system("bm25") + 0.5 * rh.system("ql")) % 2
    >>> print(hybrid)
    (bm25 + 0.5 * ql) % 2
    >>> hybrid.rank("who steers ships?", index).doc_ids
    ('pilots', 'locks')
    """

    __slots__ = ()

    @property
    def parts(self) -> tuple[System, ...]:
        """The systems that it is made of, left to right; none of a first stage."""
        return ()

    __array_ufunc__ = None  # numpy's numbers leave it to __rmul__ to weigh a system

    def __str__(self) -> str:
        return _written(self, str)

    @property
    def given(self) -> str:
        """The expression with models, fusions and rankers as they were given, which is what is recorded."""
        return _written(self, as_given)

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

        Raises WrongUse, MissingExtra: the index, or what is installed, lacks what a stage needs.
        """
        from rankhouse.io.inputs import as_queries
        from rankhouse.systems.execution import Execution  # knows all kinds of systems, as below

        with shown("searching", None, "work") as show:
            return Execution(index, as_queries(queries), progress=show).run(self)

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
        """Answer one question by the best documents, with titles and snippets.

        Args:
            query: The question.
            index: As for :meth:`run`.
            k: Number of documents.
        """
        from rankhouse.systems.execution import Execution, with_snippets

        work = Execution(index, [Query("query", query)])
        return with_snippets(work.index, query, work.run(self % k)["query"])

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
        from rankhouse.systems.execution import Execution
        from rankhouse.systems.explaining import Question, ask
        from rankhouse.systems.names import with_words

        asked = with_words(query if isinstance(query, Query) else Query("query", query))
        question = Question((doc,), against, options=ExplainOptions(method, unit, passes))
        return ExplainResult(ask(Execution(index, [asked]), self, question))

    def __rshift__(self, ranker: object) -> RerankedSystem:
        return RerankedSystem(self, as_stage(ranker))

    def rerank(self, ranker: str | os.PathLike[str] | Ranker, **options: Any) -> RerankedSystem:  # noqa: ANN401
        """Return the system whose documents a ranker reads: ``>>`` with options.

        Args:
            ranker: A folder, a notation, or an object.
            options: Of the stage: ``depth``, ``split``, ``pool`` and the like; WrongUse for others.
        """
        stage = as_stage(ranker)
        if unknown := [name for name in options if name not in STAGE_OPTIONS]:
            notation.choose(unknown[0], dict.fromkeys(STAGE_OPTIONS), "option of a reranking stage")
        return RerankedSystem(self, replace(stage, **options))

    def fuse(self, *others: System, method: str = "rrf", weights: Sequence[float] | None = None) -> System:
        """Return the fusion of this system and others, ``rrf(a, b)``; WrongUse for what does not fit.

        Args:
            others: One or more.
            method: In notation: ``rrf(k=60)``, ``linear("min-max")``, ``combsum``, ``combmnz``.
            weights: One a system, this one's first; equal if not given.
        """
        return FusedSystem(method, (self, *others), None if weights is None else tuple(weights))

    def __mod__(self, number: object) -> System:
        k = int(number) if not isinstance(number, bool) and isinstance(number, Integral) else 0
        if not 1 <= k <= _MOST:
            raise WrongUse(f"% {write_value(number)[:40]}: keep 1 to {_MOST:,} documents per query")
        if isinstance(self, FusedSystem) and len(self.parts) == 1:  # 0.7 * a % 50 weighs what is left of a
            return replace(self, systems=(self.parts[0] % k,))
        return Cut(self.of, min(self.k, k)) if isinstance(self, Cut) else Cut(self, k)

    def __mul__(self, weight: object) -> System:
        if isinstance(weight, bool) or not isinstance(weight, Real):
            return NotImplemented
        return _sum([(float(weight) * own, part) for own, part in _terms(self)])

    __rmul__ = __mul__

    def __add__(self, other: object) -> System:
        return total([self, other]) if isinstance(other, System) else NotImplemented


class FirstStage(System):
    """A system that finds documents by itself; 1,000 a query, or as many as a cut right behind it says."""


@dataclass(frozen=True, repr=False)
class Lexical(FirstStage):
    """Retrieval by words."""

    model: str = "bm25"  # ``bm25(k1=0.9, b=0.4)``, ``ql``, ``jm`` ...
    feedback: str = ""  # ``rm3(terms=10, docs=10, weight=0.5)``; "" for none

    def __post_init__(self) -> None:
        written = _canonical(as_given(self.model), as_given(self.feedback))
        for name, text in zip(("model", "feedback"), written, strict=True):
            object.__setattr__(self, name, text)


@lru_cache(maxsize=64)  # a query asked alone pays for it
def _canonical(model: str, feedback: str) -> tuple[str, str]:
    notation.choose(notation.parse(model).name, {**WEIGHTINGS, **ENCODED}, "model")
    return canonical(model, WEIGHTINGS, "model"), canonical(feedback, FEEDBACKS, "feedback")


@dataclass(frozen=True, repr=False)
class _EncodedStage(FirstStage):
    """Retrieval by what ``rankhouse encode`` made."""

    ranker: str  # the encoder: a folder or hub name, or its notation, ``sparse("DIR", max_length=128)``
    name: str = "default"  # under which name the documents were encoded

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", canonical_ranker(self.ranker))


@dataclass(frozen=True, repr=False)
class Dense(_EncodedStage):
    """Retrieval by vectors."""

    vectors: str = "exact"  # "exact", or a FAISS structure that was built: ``flat``, ``sq8``, ``hnsw`` ...


@dataclass(frozen=True, repr=False)
class Sparse(_EncodedStage):
    """Retrieval by the impacts of a sparse encoder."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "ranker", without_family(canonical_ranker(self.ranker), "sparse"))


ENCODED: Final[dict[str, Callable[..., Dense | Sparse]]] = {"dense": Dense, "sparse": Sparse}
"""First stages that search what an encoder made of the documents."""


@dataclass(frozen=True, repr=False)
class FusedSystem(System):
    """Several systems whose rankings become one."""

    method: str  # in notation: ``rrf(k=60)``, ``linear("z-score")``, ``combsum``, ``combmnz``
    systems: tuple[System, ...]  # two or more; one with a weight that is still to be added to others
    weights: tuple[float, ...] | None = None  # one a system; None for equal ones

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", canonical_fusion(self.method))
        given, count = self.weights, len(self.systems)
        if count < 2 - self.is_sum:
            raise WrongUse(f"{self.method} of {count}: a fusion needs two systems or more")
        for part in self.systems:
            whole(part)
        if given is None:
            return
        if len(given) != count:
            names = ", ".join(map(str, self.systems))
            raise WrongUse(f"{len(given)} weights for {count} systems ({names}); give one each")
        if not all(math.isfinite(w) and w >= 0 for w in given) or not (any(given) or self.is_sum):
            _refuse(given)
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
        return self.is_sum and not any(isinstance(part, FusedSystem) and part.is_sum for part in self.systems)


@dataclass(frozen=True, repr=False)
class _After(System):
    """A step after the rankings of one system."""

    of: System

    def __post_init__(self) -> None:
        whole(self.of)

    @property
    def parts(self) -> tuple[System, ...]:
        return (self.of,)


@dataclass(frozen=True, repr=False)
class Cut(_After):
    """The best ``k`` documents a query of a system; a first stage then finds so many."""

    k: int


@dataclass(frozen=True, repr=False)
class RerankedSystem(_After):
    """A system whose documents a ranker reads and reorders."""

    stage: Stage


def whole(system: System) -> System:
    """Return a system that can rank by itself; WrongUse for one system with a weight, and weights of 0."""
    if not isinstance(system, System):
        raise wrong_kind("a system", system, f'a System, such as rh.system("{str(system)[:20]}")')
    if isinstance(system, FusedSystem) and len(system.systems) == 1:
        raise WrongUse(
            f"{system}: a weight says how much a system counts in a sum; add another to it, like  "
            f"{system} + bm25 , or leave the weight out (and put the sum in parentheses)"
        )
    if isinstance(system, FusedSystem) and not any(system.weights or (1,)):
        _refuse(system.weights or ())
    return system


def _refuse(weights: Sequence[float]) -> NoReturn:
    raise WrongUse(f"weights {', '.join(f'{w:g}' for w in weights):.200}: give 0 or more, and not all 0")


def total(systems: Sequence[System]) -> System:
    """Return the sum of systems, each of which may be a sum; WrongUse for one of too many terms."""
    return _sum([term for system in systems for term in _terms(system)])


def _terms(system: System) -> list[tuple[float, System]]:
    if isinstance(system, FusedSystem) and system.is_sum:
        return list(zip(system.weights or (), system.systems, strict=True))
    return [(1.0, system)]


def _sum(terms: list[tuple[float, System]]) -> System:
    if len(terms) == 1 and terms[0][0] == 1:
        return terms[0][1]
    if len(terms) > _MOST_TERMS:
        raise WrongUse(f"a sum of {len(terms):,} systems; {_MOST_TERMS} at most are added")
    weights, systems = zip(*terms, strict=True)
    return FusedSystem(SUM, systems, weights)


def _written(system: System, wording: Callable[[str], str]) -> str:
    match system:
        case Lexical():
            model, feedback = wording(system.model), wording(system.feedback)
            name, inside = notation.parse(model).name, model.partition("(")[2][:-1]
            words = ", ".join(filter(None, [inside, f"feedback={feedback}"]))
            return f"{name}({words})" if feedback else model
        case Dense() | Sparse():
            others = [(one, str(getattr(system, one.name))) for one in fields(system)[1:]]
            named = [f"{one.name}={quote(value)}" for one, value in others if value != one.default]
            words = ", ".join([write_ranker(wording(system.ranker)), *named])
            return f"{type(system).__name__.lower()}({words})"
        case FusedSystem():
            return _fusion_written(system, wording)
        case Cut():
            return f"{_part(system.of, 3, wording)} % {system.k}"
        case RerankedSystem():
            return f"{_written(system.of, wording)} >> {system.stage.text(wording)}"
    return str(system)  # a run, which has a text of its own


def _fusion_written(system: FusedSystem, wording: Callable[[str], str]) -> str:
    method = wording(system.method)
    if system.is_plain_sum and method == SUM:
        parts = [(w, _part(part, 2 if w == 1 else 3, wording)) for w, part in _terms(system)]
        return " + ".join(text if w == 1 else f"{write_number(w)} * {text}" for w, text in parts)
    return write_fusion(method, [_written(part, wording) for part in system.systems], system.weights)


def _part(part: System, least: int, wording: Callable[[str], str]) -> str:
    """Write a part, in parentheses where its operator binds less than the one around it."""
    if isinstance(part, FusedSystem) and part.is_plain_sum:
        binds = 1 if len(part.systems) > 1 else 2
    else:
        binds = {RerankedSystem: 0, Cut: 2}.get(type(part), 3)
    return _written(part, wording) if binds >= least else f"({_written(part, wording)})"
