"""Why one document stands above another: the difference of two explanations, part by part."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from rankhouse.core.nouns import Query
from rankhouse.explanation.answer import Counterfactual, Explanation, Part, in_words, named_parts
from rankhouse.explanation.numbers import brief, number


@dataclass(frozen=True)
class Contrast:
    """Why one document stands above another, or below.

    Attributes:
        first: The document asked about.
        second: The document it is held against.
        parts: What each part adds to the difference, largest first; with ``gap`` they sum to ``score``.
        counterfactual: The least whose removal flips the order.
        notes: What a reader has to know.
    """

    first: Explanation
    second: Explanation
    parts: tuple[Part, ...]
    counterfactual: Counterfactual | None = None
    notes: tuple[str, ...] = ()

    @property
    def query(self) -> Query:
        """The question."""
        return self.first.query

    @property
    def method(self) -> str:
        """How both are explained."""
        return self.first.method

    @property
    def cost(self) -> int:
        """Pairs scored for both."""
        return self.first.cost + self.second.cost

    @property
    def score(self) -> float:
        """The first document's score minus the second's."""
        return self.first.score - self.second.score

    @property
    def gap(self) -> float:
        """What the parts leave of the difference."""
        return self.score - math.fsum(part.value for part in self.parts)

    @property
    def exact(self) -> bool:
        """Whether both sides are."""
        return self.first.exact and self.second.exact

    def sentence(self, most: int = 3) -> str:
        """Say it in words.

        Args:
            most: How many parts are named on each side.
        """
        first, second = self.first.doc_id, self.second.doc_id
        if self.score == 0:
            same = brief(number(self.first.score))
            return f"{first} and {second} have the same score, {same}; ids decide the order."
        place = "above" if self.score > 0 else "below"
        named = named_parts(self.parts, most, falls=self.score < 0)
        return f"{first} is {brief(number(abs(self.score)))} {place} {second}: {named}."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as :meth:`Explanation.to_dict` with "against", "first" and "second"."""
        told = {
            "query": self.query._asdict(),
            "document": self.first.doc_id,
            "against": self.second.doc_id,
            "score": self.score,
            "method": self.method,
            "exact": self.exact,
            "unit": self.first.unit,
            "parts": [part.to_dict() for part in self.parts],
            "gap": self.gap,
            "cost": self.cost,
        }
        told |= in_words(self.sentence(), self.notes, self.counterfactual)
        return told | {"first": self.first.to_dict(), "second": self.second.to_dict()}


def contrast(
    first: Explanation, second: Explanation, counterfactual: Counterfactual | None = None
) -> Contrast:
    """Take one explanation from another: each part is what it gives the first less what it gives the second.

    Swapping the two negates every part. Parts of equal names are compared; a name that one of them lacks
    counts as 0 there.

    Args:
        first: Of the document asked about.
        second: Of the other, by the same ranker for the same query.
        counterfactual: What would flip their order, where it is known.
    """
    notes = tuple(dict.fromkeys((*first.notes, *second.notes)))
    return Contrast(first, second, _difference(first.parts, second.parts), counterfactual, notes)


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
    return Part(name, mine - other, note, {"first": mine, "second": other}, finer)
