"""A ranker with its passages and pool, as a system that says why."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Self

from rankhouse.core.errors import RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query, Ranker, fingerprint_of
from rankhouse.core.run import Ranking, Run
from rankhouse.core.scores import base_of, scale_of
from rankhouse.explanation.answer import Counterfactual, Explanation, Part
from rankhouse.explanation.counterfactual import flip
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.placeholder import METHOD, placeholder
from rankhouse.explanation.stages import explain_reranked
from rankhouse.ranking.rerank import rerank
from rankhouse.ranking.rerank_plan import Plan
from rankhouse.systems.explaining.names import unknown
from rankhouse.systems.explaining.systems import RecordedSystem, RunOnRecord, System, agrees, disagreement
from rankhouse.systems.run_tags import tagged_fingerprint


@dataclass
class RerankSystem:
    """A ranker that reads a first stage's documents.

    Attributes:
        ranker: What scores.
        name: What people call it.
        documents: The documents by id.
        plan: Split, pool, depth.
        options: How its scores are explained.
        first: What finds the documents; None where they are named one by one.
    """

    ranker: Ranker
    name: str
    documents: Mapping[str, Document]
    plan: Plan
    options: ExplainOptions
    first: System | None = None
    _rankings: dict[Query, Ranking] = field(default_factory=dict, repr=False)

    def ranking(self, query: Query) -> Ranking:
        """Rerank what the first stage finds, once a query.

        Raises:
            WrongUse: There is no first stage.
        """
        if self.first is None:
            raise WrongUse(f"{self.name} ranks nothing by itself; name a first stage, or the documents")
        if query not in self._rankings:
            self._rankings[query] = self._reranked(query, self.first.ranking(query))
        return self._rankings[query]

    def knowing(self, query: Query, ranking: Ranking) -> Self:
        """Return it with a ranking that it made before, so that it need not be made again."""
        return replace(self, _rankings={**self._rankings, query: ranking})

    def _reranked(self, query: Query, ranking: Ranking) -> Ranking:
        run = Run.from_rankings({query.id: ranking})
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankhouseWarning)  # what was lost is a note of its explanation
            return rerank(self.ranker, run, [query], self.documents, self.plan)[query.id]

    def score(self, query: Query, doc_id: str) -> float:
        """Return what the ranker gives a document, by the ordinary path."""
        self._document(doc_id)
        return float(self._reranked(query, Run.of({"q": {doc_id: 0.0}})["q"]).scores[0])

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Say which passage made the score, and what in it.

        Args: as in :meth:`System.explain`.

        Raises:
            WrongUse: There is no such document.
        """
        document = self._document(doc_id)
        if reason := self._placeholder(query, document):
            ranking = self.ranking(query)
            said = float(ranking.scores[ranking.doc_ids.index(doc_id)])
            return not_read(query, doc_id, said, reason, self.ranker)
        return explain_reranked(self.ranker, query, document, self.plan.split, self.plan.pool, self.options)

    def _placeholder(self, query: Query, document: Document) -> str:
        """Return why a document's number is no score; "" where it is one, or where it has no number."""
        if self.first is None or document.id not in self.first.ranking(query).doc_ids:
            return ""
        first, ranked = ({query.id: one.ranking(query)} for one in (self.first, self))
        runs = Run.from_rankings(ranked), Run.from_rankings(first)
        if document.id not in runs[0][query.id].doc_ids:
            return ""
        return placeholder(runs[0], query.id, document.id, runs[1], self.plan.depth, document)

    def flip(self, query: Query, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Find the least of a document whose removal puts it below a rival.

        Args: as in :meth:`System.flip`.
        """
        document = self._document(doc_id)
        plan = self.plan
        rival_score = (rival.doc_id, rival.score)
        return flip(self.ranker, query, document, rival_score, plan.split, plan.pool, self.options)

    def recorded(self, given: RunOnRecord) -> System:
        """Return it tied to the run that it ordered.

        Raises:
            WrongUse: The run's tag names another ranker; both fingerprints are told.
        """
        written, own = tagged_fingerprint(given.tag), fingerprint_of(self.ranker)
        if written and written != own[:8]:
            raise WrongUse(
                f"{given.label} was ordered by a ranker of fingerprint {written}... (tag {given.tag}); "
                f"the ranker named here has {own or 'none'}. Name the ranker that made the run, or rerank "
                "anew; a run that is only the first stage is given as --first-stage RUN"
            )
        return RecordedReranker(given, self, sure=bool(written))

    def _document(self, doc_id: str) -> Document:
        if doc_id not in self.documents:
            raise unknown("document", doc_id, self.documents, "the index")
        return self.documents[doc_id]


@dataclass
class RecordedReranker(RecordedSystem):
    """A ranker whose run is at hand: what it gives is compared with the run's numbers before it is explained.

    Attributes:
        given: The run.
        system: The ranker.
        sure: Whether the run's tag names this very ranker.
    """

    system: RerankSystem
    sure: bool = False

    def explain(self, query: Query, doc_id: str) -> Explanation:
        """Explain a document of the run, if the run is the ranker's.

        Args: as in :meth:`System.explain`.

        Raises:
            WrongUse: The run has no such document for the query, or another ranker ordered it.
        """
        said = self.given.number(query, doc_id)
        score = self.system.score(query, doc_id)
        if agrees(score, said):
            return self.system.explain(query, doc_id)
        reason = placeholder(self.given.run, query.id, doc_id, document=self.system.documents[doc_id])
        if reason and (self.sure or self._made(query)):
            return not_read(query, doc_id, said, reason, self.system.ranker)
        if self.sure:
            return self.system.explain(query, doc_id).noting(
                f"{self.name} has {said:.6g} for {doc_id}, this ranker now gives {score:.6g}: another split, "
                "pool or precision?"
            )
        mark = fingerprint_of(self.system.ranker) or "none"
        raise disagreement(self.given, said, score, f"{self.system.name} (fingerprint {mark})")

    def _made(self, query: Query) -> bool:
        """Return whether the ranker gives the first document what the run has."""
        ranking = self.ranking(query)
        return agrees(self.system.score(query, ranking.doc_ids[0]), float(ranking.scores[0]))


def not_read(query: Query, doc_id: str, said: float, reason: str, ranker: Ranker) -> Explanation:
    """Return the explanation of a number that is no score."""
    part = Part("placeholder", said, "keeps the document in its place")
    marks = fingerprint_of(ranker)
    unit = base_of(scale_of(ranker))
    return Explanation(query, doc_id, said, METHOD, True, unit, (part,), notes=(reason,), ranker=marks)
