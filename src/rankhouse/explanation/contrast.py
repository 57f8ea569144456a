"""Why one document stands above another, why a whole ranking is as it is, and why a document moved."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, ClassVar, Final, NamedTuple

from rankhouse.core.nouns import Query, Ranking
from rankhouse.explanation.answer import (
    Counterfactual,
    Explanation,
    Part,
    brief,
    json_values,
    named_parts,
    number,
)

_ROUNDING: Final = 2e-5
"""Of a score: what vectors in half precision and sums in another order differ by."""


@dataclass(frozen=True)
class Contrast:
    """Why one document stands above another, or below.

    Attributes:
        first: The document asked about.
        second: The document it is compared with.
        parts: What each part adds to the difference, largest first; with ``gap`` they sum to ``score``.
        counterfactual: The least whose removal flips the order.
    """

    kind: ClassVar[str] = "contrast"

    first: Explanation
    second: Explanation
    parts: tuple[Part, ...]
    counterfactual: Counterfactual | None = None
    notes: tuple[str, ...] = ()

    @property
    def sides(self) -> tuple[Explanation, ...]:
        """The explanations that it is made of."""
        return self.first, self.second

    @property
    def query(self) -> Query:
        """The question."""
        return self.first.query

    @property
    def method(self) -> str:
        """Method of both explanations."""
        return self.first.method

    @property
    def unit(self) -> str:
        """Unit of the numbers."""
        return self.first.unit

    @property
    def cost(self) -> int:
        """Pairs scored for both."""
        return self.first.cost + self.second.cost

    @property
    def score(self) -> float:
        """The first document's score minus the second's."""
        return self.first.score - self.second.score

    @property
    def is_rounding(self) -> bool:
        """Whether the difference is no more than what rounding makes of equal scores."""
        return abs(self.score) <= _ROUNDING * max(abs(self.first.score), abs(self.second.score))

    @property
    def gap(self) -> float:
        """The difference minus the sum of the parts."""
        return self.score - math.fsum(part.value for part in self.parts)

    @property
    def exact(self) -> bool:
        """Whether both sides are."""
        return self.first.exact and self.second.exact

    def sentence(self, most: int = 3) -> str:
        """Say it in words, naming so many parts on each side."""
        first, second = self.first.doc_id, self.second.doc_id
        same = brief(number(self.first.score))
        if self.score == 0:
            return f"{first} and {second} have the same score, {same}; ids decide the order."
        if self.is_rounding:
            return f"{first} and {second} have equal scores, {same}: they differ by rounding only."
        place = "above" if self.score > 0 else "below"
        named = named_parts(self.parts, most, falls=self.score < 0)
        return f"{first} is {brief(number(abs(self.score)))} {place} {second}: {named}."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as :meth:`Explanation.to_dict` with "against", "first" and "second"."""
        documents = {"document": self.first.doc_id, "against": self.second.doc_id}
        sides = {"first": self.first.to_dict(), "second": self.second.to_dict()}
        return json_values(self, documents) | sides


def contrast(
    first: Explanation, second: Explanation, counterfactual: Counterfactual | None = None
) -> Contrast:
    """Take one explanation from another: each part is what it gives the first less what it gives the second.

    Swapping the two negates every part. Parts of equal names are compared; a name that one of them lacks
    counts as 0 there.

    Args:
        second: By the same ranker for the same query.
        counterfactual: What would flip their order, where it is known.
    """
    notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
    return Contrast(first, second, _difference(first.parts, second.parts), counterfactual, notes=notes)


def _difference(first: Sequence[Part], second: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts' differences by name, the largest first."""
    names = dict.fromkeys((*(p.name for p in first), *(p.name for p in second)))
    sides = [_by_name(first), _by_name(second)]
    parts = [_minus(name, *(side.get(name) for side in sides)) for name in names]
    return tuple(sorted(parts, key=lambda part: (-abs(part.value), part.name)))


def _by_name(parts: Sequence[Part]) -> dict[str, Part]:
    """Return parts by name; several of one name (a query that says a word twice) become one."""
    table: dict[str, Part] = {}
    for part in parts:
        other = table.get(part.name)
        table[part.name] = (
            part
            if other is None
            else replace(other, value=other.value + part.value, parts=(*other.parts, *part.parts))
        )
    return table


def _minus(name: str, first: Part | None, second: Part | None) -> Part:
    mine, other = (part.value if part else 0.0 for part in (first, second))
    note = f"{brief(number(mine))} against {brief(number(other))}"
    if first and second and first.note == second.note and first.note and not (first.facts or first.parts):
        note = f"{note}; {first.note}"
    finer = _difference(first.parts if first else (), second.parts if second else ())
    return Part(name, mine - other, note, {"first": mine, "second": other}, parts=finer)


class DocumentRank(NamedTuple):
    """Place of a document in a ranking.

    Attributes:
        rank: From 1; 0 where the ranking does not have it.
        score: Its score; 0 where the ranking does not have it.
    """

    run: str
    rank: int
    score: float
    of: int

    @classmethod
    def of_document(cls, run: str, ranking: Ranking, doc_id: str) -> DocumentRank:
        """Look a document up."""
        if doc_id not in ranking.doc_ids:
            return cls(run, 0, 0.0, len(ranking.doc_ids))
        place = ranking.doc_ids.index(doc_id)
        return cls(run, place + 1, float(ranking.scores[place]), len(ranking.doc_ids))

    def sentence(self) -> str:
        """Say it in words."""
        if not self.rank:
            return f"not among the {self.of:,} documents of {self.run}"
        return f"rank {self.rank:,} of {self.of:,} in {self.run} (score {brief(number(self.score))})"


def standing_note(run: str, ranking: Ranking, doc_id: str) -> str:
    """Say where a document stands in a named ranking of a query, and with whom it ties."""
    place = ranking.doc_ids.index(doc_id)
    score = ranking.scores[place]
    ties = [hit.doc_id for hit in ranking if hit.score == score and hit.doc_id != doc_id]
    tied = ""
    if ties:
        named = ", ".join(ties[:3]) + (" ..." if len(ties) > 3 else "")
        tied = f"; it ties with {named}, and ids decide among them, the later in the alphabet first"
    return f"{doc_id} has rank {place + 1:,} of {len(ranking.doc_ids):,} in {run}{tied}."


@dataclass(frozen=True)
class RankingExplanation:
    """Why the first documents of a ranking stand in this order.

    Attributes:
        documents: Why each scores what it scores, best first.
        ranks: The rank of each, from 1.
        titles: The title of each, where they are known; "" for none.
    """

    kind: ClassVar[str] = "ranking"

    query: Query
    run: str
    documents: tuple[Explanation, ...]
    ranks: tuple[int, ...]
    notes: tuple[str, ...] = ()
    titles: tuple[str, ...] = ()

    @cached_property
    def steps(self) -> tuple[Contrast, ...]:
        """Contrasts of each document with the next."""
        return tuple(contrast(first, second) for first, second in pairwise(self.documents))

    @property
    def exact(self) -> bool:
        """Whether all of it is."""
        return all(document.exact for document in self.documents)

    def sentence(self, most: int = 3) -> str:
        """Say in words why the first is the first, naming so many parts on each side."""
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
        overtook: Documents that stood above it and stand below it, by their places before.
        overtaken_by: Documents that stood below it and stand above it, by their places now.
        now: What the later ranking says: of the document, or of it against the one it changed places with.
        then: What the earlier ranking said of the same; None where its model was not named.
    """

    kind: ClassVar[str] = "movement"

    query: Query
    doc_id: str
    before: DocumentRank
    after: DocumentRank
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
        effect = f" It {' and '.join(changes)}." if changes else " It changed places with no document."
        return f"{self._way()}.{effect}"

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
        return {
            "query": self.query._asdict(),
            "document": self.doc_id,
            "sentence": self.sentence(),
            "before": self.before._asdict(),
            "after": self.after._asdict(),
            "overtook": list(self.overtook),
            "overtaken_by": list(self.overtaken_by),
            "now": self.now.to_dict(),
            **({} if self.then is None else {"then": self.then.to_dict()}),
            "notes": list(self.notes),
        }


def changed_places(before: Ranking, after: Ranking, doc_id: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return whom a document overtook, and who overtook it; what a ranking lacks stands below all it has."""
    then, now = (
        dict.fromkeys(ids[: ids.index(doc_id)] if doc_id in ids else ids)
        for ids in (before.doc_ids, after.doc_ids)
    )
    return tuple(other for other in then if other not in now), tuple(one for one in now if one not in then)


Answer = Explanation | Contrast | RankingExplanation | Movement
"""Any answer to "why?"."""
