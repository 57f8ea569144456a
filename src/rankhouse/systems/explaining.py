"""Why a system ranks as it does: this score, above that document, this ranking, and what moved."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from rankhouse.core.errors import RankhouseError, RankhouseWarning, WrongUse
from rankhouse.core.notation import as_given
from rankhouse.core.nouns import Document, Ranker, Ranking, fingerprint_of
from rankhouse.core.run import Run
from rankhouse.core.scores import base_of, scale_of
from rankhouse.explanation.answer import Counterfactual, Explanation, Part
from rankhouse.explanation.contrast import (
    Answer,
    Contrast,
    DocumentRank,
    Movement,
    RankingExplanation,
    changed_places,
    contrast,
    standing_note,
)
from rankhouse.explanation.lexical import LexicalExplainer
from rankhouse.explanation.methods import ExplainOptions, family_of
from rankhouse.explanation.placeholder import METHOD, placeholder
from rankhouse.index.lexical.search import LexicalOptions
from rankhouse.index.lexical.store import NoTexts
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.index.sharded.vectors import ShardedImpactSearcher
from rankhouse.systems.execution import Execution
from rankhouse.systems.names import unknown
from rankhouse.systems.on_record import OnRecord, agrees, tagged_fingerprint
from rankhouse.systems.stage import Stage
from rankhouse.systems.system import Cut, Dense, FusedSystem, Lexical, RerankedSystem, Sparse, System

TEXTS: Final = OnRecord(Run.of({}), "the texts")
"""Record of a ranker whose documents are in no index."""


@dataclass(frozen=True)
class Question:
    """A question to explain."""

    doc_ids: tuple[str, ...] = ()  # why does the first score what it scores? Several are put in order
    against: str = ""  # the document that the first is compared with; "" for none
    top: int | None = None  # the first so many documents of the ranking instead; None for named ones
    run: OnRecord | None = None  # the run that the system made; None for none
    before: System | None = None  # the run, or the system, where the document stood before; None for none
    options: ExplainOptions = field(default_factory=ExplainOptions)  # how scores of rankers are explained


def ask(work: Execution, system: System, question: Question) -> Answer:
    """Answer a question about documents; ``work`` is the system at work on the one query.

    Raises WrongUse for an unknown document or method, and for a run that another system made.
    """
    why = Explainer(work, question.options)
    if question.run is not None:
        system = why.tied(question.run, system)
    if question.top is not None:
        return why.first(system, question.top)
    doc_id, *others = question.doc_ids
    if question.before is not None:
        return why.moved(system, question.before, doc_id, question.against)
    ranked = not isinstance(_uncut(system), RerankedSystem)  # that would have to read all for a rank
    if question.against:
        return why.above(system, doc_id, question.against, ranked=ranked)
    if others:
        return why.order(system, question.doc_ids)
    return why.score(system, doc_id, ranked=ranked)


def _uncut(system: System) -> System:
    return system.of if isinstance(system, Cut) else system


def _of_one_index(system: System) -> WrongUse:
    return WrongUse(
        f"{system}: only the index that holds what was encoded can say what a score is made of; explain it "
        "with the shard that has the document"
    )


class Explainer:
    """Systems at work on one query, and why they rank as they do."""

    def __init__(self, work: Execution, options: ExplainOptions) -> None:
        self._work, self._options = work, options
        self._documents, [self.query] = work.documents, work.queries
        self._lexical: dict[Lexical, LexicalExplainer] = {}

    # --- the questions

    def score(self, system: System, doc_id: str, *, ranked: bool = True) -> Explanation:
        """Say why a document scores what it scores; ``ranked``: with its rank and its ties."""
        answer = self.explain(system, doc_id)
        if not ranked or doc_id not in (ranking := self.ranking(system)).doc_ids:
            return answer
        return answer.noting(standing_note(self.name(system), ranking, doc_id))

    def above(self, system: System, doc_id: str, against: str, *, ranked: bool = True) -> Contrast:
        """Say why a document stands above another, or below it, and what would reverse them."""
        if doc_id == against:
            raise WrongUse(f"document {doc_id} is compared with itself; name another one")
        first, second = (self.score(system, one, ranked=ranked) for one in (doc_id, against))
        lower, upper = sorted((first, second), key=lambda one: one.score)
        # A number in place of a score follows the lowest score given: no removal gets below it.
        if upper.score == lower.score or METHOD in (upper.method, lower.method):
            return contrast(first, second, None)
        return contrast(first, second, self._flip(system, upper.doc_id, lower))

    def first(self, system: System, most: int) -> RankingExplanation:
        """Say of each of the first documents what separates it from the next."""
        found = self.ranking(system).doc_ids[:most]
        notes = () if found else (f"{self.name(system)} finds no document for this query.",)
        answers = [self.explain(system, doc_id) for doc_id in found]
        return self._ranking_explained(system, answers, notes)

    def order(self, system: System, doc_ids: Sequence[str]) -> RankingExplanation:
        """Order documents by their scores, and say what separates each from the next."""
        answers = sorted((self.explain(system, doc_id) for doc_id in doc_ids), key=lambda one: -one.score)
        return self._ranking_explained(system, answers)

    def _ranking_explained(
        self, system: System, answers: Sequence[Explanation], notes: tuple[str, ...] = ()
    ) -> RankingExplanation:
        places = tuple(range(1, len(answers) + 1))
        titles = tuple(self._title(one.doc_id) for one in answers)
        return RankingExplanation(
            self.query, self.name(system), tuple(answers), places, notes=notes, titles=titles
        )

    def _title(self, doc_id: str) -> str:
        try:
            return self._documents[doc_id].title
        except (KeyError, NoTexts):
            return ""

    def moved(self, now: System, before: System, doc_id: str, against: str = "") -> Movement:
        """Say why a document stands elsewhere than before, by the document that it changed places with.

        Of those it overtook, the one that stood highest is compared; else, of those that overtook it, the one
        that stands highest now; or ``against``.
        """
        earlier, later = self.ranking(before), self.ranking(now)
        overtook, overtaken_by = changed_places(earlier, later, doc_id)
        rival = against or next((other for other in (*overtook, *overtaken_by) if other in later.doc_ids), "")
        then: Explanation | Contrast | None = None
        notes: tuple[str, ...] = ()
        if doc_id in earlier.doc_ids:
            try:
                then = self._why(before, doc_id, rival if rival in earlier.doc_ids else "")
            except RankhouseError as error:
                notes = (f"What {self.name(before)} says is not explained: {error}.",)
        stood, stands = (
            DocumentRank.of_document(self.name(system), ranking, doc_id)
            for system, ranking in ((before, earlier), (now, later))
        )
        return Movement(
            self.query,
            doc_id,
            stood,
            stands,
            overtook=overtook,
            overtaken_by=overtaken_by,
            now=self._why(now, doc_id, rival),
            then=then,
            notes=notes,
        )

    def _why(self, system: System, doc_id: str, rival: str) -> Explanation | Contrast:
        return self.above(system, doc_id, rival) if rival else self.score(system, doc_id)

    # --- each kind of system

    def ranking(self, system: System) -> Ranking:
        """Return the documents of the query, best first."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RankhouseWarning)  # what was lost is a note of its explanation
            return self._work.made(system)[self.query.id]

    def name(self, system: System) -> str:
        """Return what people call a system."""
        match system:
            case Lexical():
                model, feedback = as_given(system.model), as_given(system.feedback)
                return f"{model} with {feedback}" if feedback else model
            case FusedSystem():
                return f"{as_given(system.method)} of {', '.join(map(self.name, system.systems))}"
            case Cut():
                return self.name(system.of)
            case OnRecord():
                return system.label
            case RerankedSystem(stage=Stage(ranker=str(name))):
                return as_given(name)
            case RerankedSystem():
                ranker = self._work.ranker(system.stage)
                return family_of(ranker) or type(ranker).__name__
        return system.given

    def explain(self, system: System, doc_id: str) -> Explanation:
        """Say why a document scores what it scores; WrongUse where there is no such document."""
        match system:
            case Cut():
                return self.explain(system.of, doc_id)
            case FusedSystem():
                return self._fused(system, doc_id)
            case OnRecord(maker=None):
                return self._numbers(system, doc_id)
            case OnRecord(maker=RerankedSystem() as maker):
                return self._reread(system, maker, doc_id)
            case OnRecord(maker=System() as maker):
                return self._compared(system, maker, doc_id)
        document = self._document(doc_id)
        match system:
            case Lexical():
                if system not in self._lexical:
                    options = LexicalOptions(as_given(system.model), as_given(system.feedback))
                    self._lexical[system] = LexicalExplainer(self._work.index, options)
                return self._lexical[system].explain(self.query, doc_id)
            case Dense():
                return self._dense(system, doc_id)
            case Sparse():
                from rankhouse.explanation.stages import explain_impacts

                if isinstance(searcher := self._work.impacts(system), ShardedImpactSearcher):
                    raise _of_one_index(system)
                weigher = self._work.weigher(system, searcher.impacts)
                number = self._work.index.row_of(doc_id)
                return explain_impacts(searcher, weigher, self.query, doc_id, number=number)
            case RerankedSystem():
                return self._reranked(system, document)
        raise TypeError(f"{type(system).__name__} is no kind of system")

    def _dense(self, system: Dense, doc_id: str) -> Explanation:
        from rankhouse.explanation.stages import explain_dense
        from rankhouse.index.dense.vectors import Vectors, vectors_folder

        index = self._work.index
        if isinstance(index, ShardedIndex):
            raise _of_one_index(system)
        vectors = Vectors.open(vectors_folder(index.path, system.name))
        encoder = self._work.encoder(system)
        return explain_dense(index, vectors, encoder, self.query, doc_id=doc_id, options=self._options)

    def _fused(self, system: FusedSystem, doc_id: str) -> Explanation:
        from rankhouse.explanation.stages import explain_fused

        parts: dict[str, System] = {}
        for place, part in enumerate(system.systems, 1):
            name = self.name(part)
            parts[f"{name} ({place})" if name in parts else name] = part
        runs = {name: Run.from_rankings({self.query.id: self.ranking(part)}) for name, part in parts.items()}
        hits = dict.fromkeys(doc for run in runs.values() for doc in run[self.query.id].doc_ids)
        if doc_id not in hits:
            where = f"what {self.name(system)} finds for query {self.query.id}"
            raise unknown("document", doc_id, hits, where)
        whys = {
            name: self.explain(part, doc_id)
            for name, part in parts.items()
            if doc_id in runs[name][self.query.id].doc_ids
        }
        method = as_given(system.method)
        return explain_fused(method, runs, self.query, doc_id, weights=system.weights, whys=whys)

    def _reranked(self, system: RerankedSystem, document: Document) -> Explanation:
        from rankhouse.explanation.stages import explain_reranked

        ranker, plan = self._ranker(system), self._work.plan(system.stage)
        if reason := self._placeholder(system, document):
            ranking = self.ranking(system)
            said = float(ranking.scores[ranking.doc_ids.index(document.id)])
            return self._not_read(document.id, said, reason, ranker)
        return explain_reranked(
            ranker, self.query, document, plan.split, pool=plan.pool, options=self._options
        )

    def _ranker(self, system: RerankedSystem) -> Ranker:
        from rankhouse.systems.reranking import PairwiseSystem

        ranker: Ranker | PairwiseSystem = self._work.ranker(system.stage)
        if isinstance(ranker, PairwiseSystem):
            raise WrongUse(f"{system.stage}: compares passages two by two and is not explained; leave it out")
        return ranker

    def _placeholder(self, system: RerankedSystem, document: Document) -> str:
        """Return why a document's number is no score; "" where it is one, or where it has no number."""
        if system.of is TEXTS:
            return ""
        query_id, before = self.query.id, self.ranking(system.of)
        if document.id not in before.doc_ids:
            return ""
        given = Run.from_rankings({query_id: before})
        plan = self._work.plan(system.stage).seen(given, {query_id: self.query}, self._documents)
        read = plan.read(query_id, before)
        if document.full_text.strip() and document.id in read:
            return ""  # it was read; its rank alone would need all the others
        ranking = self.ranking(system)
        if document.id not in ranking.doc_ids:
            return ""
        now = Run.from_rankings({query_id: ranking})
        return placeholder(now, query_id, document.id, given, depth=plan.depth, document=document, read=read)

    def _flip(self, system: System, doc_id: str, rival: Explanation) -> Counterfactual | None:
        """Return the least of a document whose removal puts it below a rival; None where none is known."""
        match system:
            case Cut():
                return self._flip(system.of, doc_id, rival)
            case OnRecord(maker=System() as maker):
                return self._flip(maker, doc_id, rival)
            case RerankedSystem():
                from rankhouse.explanation.counterfactual import flip

                document, plan = self._document(doc_id), self._work.plan(system.stage)
                lower = (rival.doc_id, rival.score)
                ranker = self._ranker(system)
                return flip(
                    ranker,
                    self.query,
                    document,
                    lower,
                    split=plan.split,
                    pool=plan.pool,
                    options=self._options,
                )
        return None

    def _document(self, doc_id: str) -> Document:
        if doc_id not in self._documents:
            raise unknown("document", doc_id, self._documents, "the index")
        return self._documents[doc_id]

    # --- runs

    def tied(self, given: OnRecord, system: System) -> OnRecord:
        """Return a run tied to the system that made it; WrongUse where its tag names another ranker."""
        maker = _uncut(system)
        if isinstance(maker, RerankedSystem):
            written, own = tagged_fingerprint(given.tag), fingerprint_of(self._ranker(maker))
            if written and written != own[:8]:
                raise WrongUse(
                    f"{given.label} was ordered by a ranker of fingerprint {written}... (tag {given.tag}); "
                    f"the ranker named here has {own or 'none'}. Name the ranker that made the run, or "
                    "rerank again; a run that is only the first stage is given as --first-stage RUN"
                )
        return given.made_by(maker)

    def _numbers(self, given: OnRecord, doc_id: str) -> Explanation:
        said = given.number(self.query, doc_id)
        note = f"Of {given.label} only its numbers are known; name the model that made it to see more."
        return self._told(doc_id, Part(f"number in {given.label}", said), "numbers on record", note=note)

    def _told(self, doc_id: str, part: Part, method: str, *, unit: str = "score", note: str) -> Explanation:
        """Return the explanation of a number that is its only part."""
        answer = Explanation(self.query, doc_id, part.value, method, exact=True, unit=unit, parts=(part,))
        return answer.noting(note)

    def _compared(self, given: OnRecord, maker: System, doc_id: str) -> Explanation:
        said, answer = given.number(self.query, doc_id), self.explain(maker, doc_id)
        if not agrees(answer.score, said):
            raise given.disagreement(said, answer.score, self.name(maker))
        return answer

    def _reread(self, given: OnRecord, maker: RerankedSystem, doc_id: str) -> Explanation:
        """Explain a document of a run that a ranker made, if what it gives now is the run's number."""
        said, score = given.number(self.query, doc_id), self._score(maker, doc_id)
        sure = bool(tagged_fingerprint(given.tag))
        if agrees(score, said):
            return self.explain(maker, doc_id)
        ranker = self._ranker(maker)
        reason = placeholder(given.record, self.query.id, doc_id, document=self._document(doc_id))
        if reason and (sure or self._made(given, maker)):
            return self._not_read(doc_id, said, reason, ranker)
        if sure:
            return self.explain(maker, doc_id).noting(
                f"{given.label} has {said:.6g} for {doc_id}, this ranker now gives {score:.6g}: another "
                "split, pool or precision?"
            )
        mark = fingerprint_of(ranker) or "none"
        raise given.disagreement(said, score, f"{self.name(maker)} (fingerprint {mark})")

    def _made(self, given: OnRecord, maker: RerankedSystem) -> bool:
        """Return whether the ranker gives the first document what the run has."""
        ranking = given.ranking(self.query)
        return agrees(self._score(maker, ranking.doc_ids[0]), float(ranking.scores[0]))

    def _score(self, system: RerankedSystem, doc_id: str) -> float:
        """Return what a ranker gives a document, by the ordinary path."""
        self._document(doc_id)
        alone = OnRecord(Run.of({self.query.id: {doc_id: 0.0}}), doc_id)
        return float(self.ranking(replace(system, of=alone)).scores[0])

    def _not_read(self, doc_id: str, said: float, reason: str, ranker: Ranker) -> Explanation:
        """Return the explanation of a number that is no score."""
        part, unit = Part("placeholder", said, "keeps the document in its place"), base_of(scale_of(ranker))
        answer = self._told(doc_id, part, METHOD, unit=unit, note=reason)
        return replace(answer, ranker=fingerprint_of(ranker))
