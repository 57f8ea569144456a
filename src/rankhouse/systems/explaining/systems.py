"""Systems that rank and say why: a first stage, a fusion of several, and one whose ranking is on record."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking, Run
from rankhouse.explanation.answer import Counterfactual, Explanation, Part
from rankhouse.explanation.lexical import LexicalExplainer
from rankhouse.explanation.stages import explain_fused
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.index.parts.parted_index import AnyIndex
from rankhouse.ranking.fuse import Fusion
from rankhouse.systems.explaining.names import unknown
from rankhouse.systems.run_tags import USUAL

CLOSE = 1e-3
"""How far a number on record may be from a system's own, as a share of it (of 1 where it is smaller)."""


class System(Protocol):
    """What ranks documents for a query and can say why."""

    @property
    def name(self) -> str:
        """What people call it."""
        ...

    def ranking(self, query: Query) -> Ranking:
        """Return a query's documents, best first."""
        ...

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Say why a document scores what it scores."""
        ...

    def flip(self, query: Query, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Return the least of a document whose removal puts it below a rival; None where none is known."""
        ...

    def recorded(self, given: RunOnRecord) -> System:
        """Return it tied to the run that it made.

        Raises:
            WrongUse: The run says that another one made it.
        """
        ...


class FirstStage:
    """What retrieval has in common: nothing is scored anew, its runs are compared number by number."""

    def flip(self, query: Query, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Return None: no document can be scored anew with something left out.

        Args: as in :meth:`System.flip`.
        """
        del query, doc_id, rival
        return None

    def recorded(self: System, given: RunOnRecord) -> System:
        """Return it tied to a run: the numbers there are compared with its own."""
        return RecordedSystem(given, self)


class IndexStage(FirstStage, ABC):
    """Retrieval from an index, once a query."""

    def __init__(self, index: AnyIndex) -> None:
        self.index = index
        self._rankings: dict[Query, Ranking] = {}

    @property
    @abstractmethod
    def name(self) -> str:
        """What people call it."""

    @abstractmethod
    def _search(self, query: Query) -> Ranking: ...

    @abstractmethod
    def _explain(self, query: Query, doc_id: str) -> Explanation: ...

    def ranking(self, query: Query) -> Ranking:
        """Search, once a query."""
        if query not in self._rankings:
            self._rankings[query] = self._search(query)
        return self._rankings[query]

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Say why a document of the index scores what it scores.

        Args: as in :meth:`System.explain`.

        Raises:
            WrongUse: The index has no such document.
        """
        if doc_id not in self.index.documents:
            raise unknown("document", doc_id, self.index.documents, "the index")
        return self._explain(query, doc_id)


class LexicalSystem(IndexStage):
    """BM25, query likelihood and the like, alone or with feedback.

    Args:
        feedback: In notation; "" for none.
    """

    def __init__(self, index: AnyIndex, model: str, feedback: str = "", k: int = 1000) -> None:
        super().__init__(index)
        self._options = LexicalOptions(model, feedback, k)
        self._explainer = LexicalExplainer(index, self._options)

    @property
    def name(self) -> str:
        """Model and feedback."""
        feedback = self._options.feedback
        return f"{self._options.model} with {feedback}" if feedback else self._options.model

    def _search(self, query: Query) -> Ranking:
        return retrieve(self.index, [query], self._options)[query.id]

    def _explain(self, query: Query, doc_id: str) -> Explanation:
        return self._explainer.explain(query, doc_id)


@dataclass
class FusedSystem(FirstStage):
    """Several systems whose runs are joined.

    Attributes:
        systems: Two or more.
        method: Notation of the fusion.
        fusion: What it makes.
        weights: One a system; None for equal ones.
    """

    systems: Sequence[System]
    method: str
    fusion: Fusion
    weights: tuple[float, ...] | None = None

    @property
    def name(self) -> str:
        """The systems and how they are joined."""
        return f"{self.method} of {', '.join(system.name for system in self.systems)}"

    def _runs(self, query: Query) -> dict[str, Run]:
        """Return the systems' runs of one query, by names that are all different."""
        runs: dict[str, Run] = {}
        for place, system in enumerate(self.systems, 1):
            name = f"{system.name} ({place})" if system.name in runs else system.name
            runs[name] = Run.from_rankings({query.id: system.ranking(query)})
        return runs

    def ranking(self, query: Query) -> Ranking:
        """Rank by every system, and join."""
        return self.fusion([*self._runs(query).values()], self.weights)[query.id]

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Say what each system gives the document, and why.

        Raises:
            WrongUse: No system has the document.
        """
        runs = self._runs(query)
        hits = dict.fromkeys(doc for run in runs.values() for doc in run[query.id].doc_ids)
        if doc_id not in hits:
            raise unknown("document", doc_id, hits, f"what {self.name} finds for query {query.id}")
        whys = {
            name: system.explain(query, doc_id)
            for (name, run), system in zip(runs.items(), self.systems, strict=True)
            if doc_id in run[query.id].doc_ids
        }
        return explain_fused(self.method, runs, query, doc_id, self.weights, whys)


@dataclass(frozen=True)
class RunOnRecord:
    """A run, what it is called, and its tag."""

    run: Run
    label: str
    tag: str = ""

    def ranking(self, query: Query) -> Ranking:
        """Look a query up.

        Raises:
            WrongUse: The run has no such query.
        """
        if query.id not in self.run:
            raise unknown("query", query.id, self.run, self.label)
        return self.run[query.id]

    def number(self, query: Query, doc_id: str) -> float:
        """Return the score of a document.

        Raises:
            WrongUse: The run has no such document for the query.
        """
        ranking = self.ranking(query)
        if doc_id not in ranking.doc_ids:
            raise unknown("document", doc_id, ranking.doc_ids, f"{self.label} for query {query.id}")
        return float(ranking.scores[ranking.doc_ids.index(doc_id)])


@dataclass
class RunSystem(FirstStage):
    """A run of which nothing is known but its numbers."""

    given: RunOnRecord

    @property
    def name(self) -> str:
        """What the run is called."""
        return self.given.label

    def ranking(self, query: Query) -> Ranking:
        """Look the query up."""
        return self.given.ranking(query)

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Return the number on record as it is.

        Args: as in :meth:`System.explain`.

        Raises:
            WrongUse: The run has no such document for the query.
        """
        said = self.given.number(query, doc_id)
        note = f"Of {self.name} only its numbers are known; name the model that made it to see more."
        part = Part(f"number in {self.name}", said)
        return Explanation(query, doc_id, said, "numbers on record", True, "score", (part,), notes=(note,))


@dataclass
class RecordedSystem(RunSystem):
    """A system whose run is at hand: the run's numbers are compared with the system's.

    Attributes:
        given: The run.
        system: What made it.
    """

    system: System

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Explain a document of the run, if its number there is the system's.

        Args: as in :meth:`System.explain`.

        Raises:
            WrongUse: The run has no such document for the query, or its number there is another.
        """
        said = self.given.number(query, doc_id)
        told = self.system.explain(query, doc_id)
        if not agrees(told.score, said):
            raise disagreement(self.given, said, told.score, self.system.name)
        return told

    def flip(self, query: Query, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Ask the system.

        Args: as in :meth:`System.flip`.
        """
        return self.system.flip(query, doc_id, rival)

    def recorded(self, given: RunOnRecord) -> System:
        """Return its system tied to another run."""
        return self.system.recorded(given)


def agrees(score: float, said: float) -> bool:
    """Return whether two numbers are one score, up to rounding."""
    return score == said or abs(score - said) <= CLOSE * max(1.0, abs(score))


def disagreement(given: RunOnRecord, said: float, score: float, system: str) -> WrongUse:
    """Return the error for a run that another system made."""
    tag = f" (tag {given.tag})" if given.tag not in ("", USUAL) else ""
    return WrongUse(
        f"{given.label}{tag} has {said:.6g} where {system} gives {score:.6g}: another system made the run. "
        "Name the model, feedback or ranker that made it, with its --split and --pool; or, if it is the "
        "first stage from which the ranker takes its documents, give it as --first-stage RUN"
    )
