"""Why a whole ranking is as it is, and why a document moved between two."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Explanation
from rankhouse.explanation.contrast import Contrast, contrast
from rankhouse.explanation.numbers import brief, number


class Standing(NamedTuple):
    """Where a document stands in a ranking.

    Attributes:
        run: What the ranking is called.
        rank: From 1; 0 where the ranking does not have it.
        score: Its score; 0 where the ranking does not have it.
        of: How many documents the ranking has.
    """

    run: str
    rank: int
    score: float
    of: int

    @classmethod
    def of_document(cls, run: str, ranking: Ranking, doc_id: str) -> Standing:
        """Look a document up.

        Args:
            run: What the ranking is called.
            ranking: A query's documents.
            doc_id: The document.
        """
        if doc_id not in ranking.doc_ids:
            return cls(run, 0, 0.0, len(ranking.doc_ids))
        place = ranking.doc_ids.index(doc_id)
        return cls(run, place + 1, float(ranking.scores[place]), len(ranking.doc_ids))

    def sentence(self) -> str:
        """Say it in words."""
        if not self.rank:
            return f"not among the {self.of:,} documents of {self.run}"
        return f"rank {self.rank:,} of {self.of:,} in {self.run} (score {brief(number(self.score))})"


@dataclass(frozen=True)
class RankingExplanation:
    """Why the first documents of a ranking stand in this order.

    Attributes:
        query: The question.
        run: What the ranking is called.
        documents: Why each scores what it scores, best first.
        ranks: The rank of each, from 1.
        notes: What a reader has to know.
    """

    query: Query
    run: str
    documents: tuple[Explanation, ...]
    ranks: tuple[int, ...]
    notes: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> tuple[Contrast, ...]:
        """What separates each document from the next."""
        return tuple(contrast(first, second) for first, second in pairwise(self.documents))

    @property
    def exact(self) -> bool:
        """Whether all of it is."""
        return all(document.exact for document in self.documents)

    def sentence(self, most: int = 3) -> str:
        """Say in words why the first is the first.

        Args:
            most: How many parts are named on each side.
        """
        if self.steps:
            return self.steps[0].sentence(most)
        return self.documents[0].sentence(most) if self.documents else "The ranking has no documents."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: each document's explanation with its rank, and the steps between them."""
        ranked = zip(self.ranks, self.documents, strict=True)
        steps = [
            {key: value for key, value in step.to_dict().items() if key not in {"first", "second", "query"}}
            for step in self.steps
        ]
        return {
            "query": self.query._asdict(),
            "run": self.run,
            "sentence": self.sentence(),
            "documents": [{"rank": rank} | document.to_dict() for rank, document in ranked],
            "steps": steps,
            "notes": list(self.notes),
        }


@dataclass(frozen=True)
class Movement:
    """Why a document stands elsewhere in one ranking than in another.

    Attributes:
        query: The question.
        doc_id: The document.
        before: Where it stood.
        after: Where it stands.
        overtook: Documents that stood above it and stand below it, by their places before.
        overtaken_by: Documents that stood below it and stand above it, by their places now.
        now: What the later ranking says: of the document, or of it against the one it changed places with.
        then: What the earlier ranking said of the same; None where its model was not named.
        notes: What a reader has to know.
    """

    query: Query
    doc_id: str
    before: Standing
    after: Standing
    overtook: tuple[str, ...]
    overtaken_by: tuple[str, ...]
    now: Explanation | Contrast
    then: Explanation | Contrast | None = None
    notes: tuple[str, ...] = ()

    def sentence(self) -> str:
        """Say in words where it was, where it is, and with whom it changed places."""
        changes = [
            f"{word} {', '.join(ids[:3])}{f' and {len(ids) - 3:,} more' if len(ids) > 3 else ''}"
            for word, ids in (("overtook", self.overtook), ("was overtaken by", self.overtaken_by))
            if ids
        ]
        told = f" It {' and '.join(changes)}." if changes else " It changed places with no document."
        return f"{self._way()}.{told}"

    def _way(self) -> str:
        """Say from where to where it went."""
        before, after = self.before, self.after
        if not (before.rank and after.rank):
            return f"{self.doc_id}: {before.sentence()}, then {after.sentence()}"
        if before.rank == after.rank:
            return f"{self.doc_id} kept its rank: {before.sentence()}, {after.sentence()}"
        way = "rose" if after.rank < before.rank else "fell"
        return f"{self.doc_id} {way} from {before.sentence()} to {after.sentence()}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: both standings, the documents it changed places with, now and then."""
        then = None if self.then is None else self.then.to_dict()
        return {
            "query": self.query._asdict(),
            "document": self.doc_id,
            "sentence": self.sentence(),
            "before": self.before._asdict(),
            "after": self.after._asdict(),
            "overtook": list(self.overtook),
            "overtaken_by": list(self.overtaken_by),
            "now": self.now.to_dict(),
            **({} if then is None else {"then": then}),
            "notes": list(self.notes),
        }


def changed_places(before: Ranking, after: Ranking, doc_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return whom a document overtook, and who overtook it; what a ranking lacks stands below all it has.

    Args:
        before: The earlier ranking.
        after: The later one.
        doc_id: The document.
    """
    above_before, above_after = _above(before, doc_id), _above(after, doc_id)
    then, now = set(above_before), set(above_after)
    return (
        tuple(other for other in above_before if other not in now),
        tuple(other for other in above_after if other not in then),
    )


def _above(ranking: Ranking, doc_id: str) -> Sequence[str]:
    ids = ranking.doc_ids
    return ids[: ids.index(doc_id)] if doc_id in ids else ids


Answer = Explanation | Contrast | RankingExplanation | Movement
"""Whatever "why?" is answered with."""
