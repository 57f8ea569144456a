"""The four questions: why this score, why above that one, why this ranking, why did it move."""

from __future__ import annotations

from collections.abc import Sequence

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Counterfactual, Explanation
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
from rankhouse.explanation.placeholder import METHOD
from rankhouse.systems.explaining.systems import System


def why_score(system: System, query: Query, doc_id: str, *, ranked: bool = True) -> Explanation:
    """Say why a document scores what it scores.

    Args:
        ranked: Whether its rank and its ties are told too; a system that reranks has to read them all for it.

    Raises:
        WrongUse: There is no such document.
    """
    told = system.explain(query, doc_id)
    if not ranked or doc_id not in (ranking := system.ranking(query)).doc_ids:
        return told
    return told.noting(standing_note(system.name, ranking, doc_id))


def why_above(system: System, query: Query, doc_id: str, against: str, *, ranked: bool = True) -> Contrast:
    """Say why a document stands above another, or below it, and what would turn them round.

    Raises:
        WrongUse: There is no such document, or both are the same.
    """
    if doc_id == against:
        raise WrongUse(f"document {doc_id} is held against itself; name another one")
    first, second = (why_score(system, query, one, ranked=ranked) for one in (doc_id, against))
    return contrast(first, second, _turned(system, query, first, second))


def _turned(system: System, query: Query, *two: Explanation) -> Counterfactual | None:
    """Return what would turn two documents round; None where both are equal, or one was not read.

    A number that stands in place of a score follows the lowest score given: no removal gets below it.
    """
    lower, upper = sorted(two, key=lambda one: one.score)
    if upper.score == lower.score or METHOD in (upper.method, lower.method):
        return None
    return system.flip(query, upper.doc_id, lower)


def why_ranking(system: System, query: Query, most: int) -> RankingExplanation:
    """Say of each of the first documents what separates it from the next."""
    ranking = system.ranking(query)
    found = ranking.doc_ids[:most]
    notes = () if found else (f"{system.name} finds no document for this query.",)
    told = tuple(system.explain(query, doc_id) for doc_id in found)
    return RankingExplanation(query, system.name, told, tuple(range(1, len(found) + 1)), notes)


def why_order(system: System, query: Query, doc_ids: Sequence[str]) -> RankingExplanation:
    """Order documents by their scores, and say what separates each from the next."""
    told = sorted((system.explain(query, doc_id) for doc_id in doc_ids), key=lambda one: -one.score)
    return RankingExplanation(query, system.name, tuple(told), tuple(range(1, len(told) + 1)))


def why_documents(
    system: System, query: Query, doc_ids: Sequence[str], against: str = "", *, ranked: bool = False
) -> Answer:
    """Answer for the documents that are named: against a rival, in order, or one by itself.

    Args:
        against: The rival of the first; "" for none.
    """
    if against:
        return why_above(system, query, doc_ids[0], against, ranked=ranked)
    if len(doc_ids) > 1:
        return why_order(system, query, doc_ids)
    return why_score(system, query, doc_ids[0], ranked=ranked)


def why_moved(
    now: System, before: System, query: Query, doc_id: str, against: str = "", *, asked: bool = True
) -> Movement:
    """Say why a document stands elsewhere than before, by the document that it changed places with.

    Of those it overtook, the one that stood highest is compared; else, of those that overtook it, the one
    that stands highest now.

    Args:
        against: The document to compare with; "" chooses it.
        asked: Whether ``before`` can say why; else only its ranking is known.
    """
    earlier, later = before.ranking(query), now.ranking(query)
    overtook, overtaken_by = changed_places(earlier, later, doc_id)
    rival = against or next((other for other in (*overtook, *overtaken_by) if other in later.doc_ids), "")
    then: Explanation | Contrast | None = None
    notes: tuple[str, ...] = ()
    if asked and doc_id in earlier.doc_ids:
        try:
            then = _why(before, query, doc_id, rival if rival in earlier.doc_ids else "")
        except RankhouseError as error:
            notes = (f"What {before.name} says is not explained: {error}.",)
    return Movement(
        query,
        doc_id,
        _standing(before, earlier, doc_id),
        _standing(now, later, doc_id),
        overtook,
        overtaken_by,
        _why(now, query, doc_id, rival),
        then,
        notes,
    )


def _why(system: System, query: Query, doc_id: str, rival: str) -> Explanation | Contrast:
    return why_above(system, query, doc_id, rival) if rival else why_score(system, query, doc_id)


def _standing(system: System, ranking: Ranking, doc_id: str) -> DocumentRank:
    return DocumentRank.of_document(system.name, ranking, doc_id)
