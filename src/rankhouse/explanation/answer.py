"""The one shape of every answer to "why?": addends of a score, how exact they are, and what was read.

An :class:`Explanation` says why one document scores what it scores; taken from another's it is a
:class:`~rankhouse.explanation.contrast.Contrast`. Both print as text, are shown as a page, and become JSON.
Numbers have the same digits in sentences, tables and pages.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from rankhouse.core.nouns import FloatArray, Query

if TYPE_CHECKING:
    from rankhouse.explanation.contrast import Contrast


def signed(value: float) -> str:
    """Write an addend: its sign, and four digits after the point or, where it is small, two that count."""
    if value == 0:
        return "0"
    return f"{value:+.4f}" if abs(value) >= 0.01 else f"{value:+#.2g}"


def number(value: float) -> str:
    """Write a score: four digits after the point or, where it is small, four that count."""
    return f"{value:.4f}" if value == 0 or abs(value) >= 0.1 else f"{value:#.4g}"


def brief(written: str) -> str:
    """Return a written number as a sentence says it, without zeros at its end."""
    return written.rstrip("0").rstrip(".") if "." in written and "e" not in written else written


_LISTED = 5  # of what is removed
_QUOTED = 50  # characters of a sentence that another one quotes
_UNQUOTED = {"rest": "the rest", "no words": "the start without words"}  # parts that no text gave


@dataclass(frozen=True)
class Part:
    """One addend of a score.

    Attributes:
        name: Its source: a word, "ships × sail", "sentence 3", a first stage's name. Parts of two
            documents are compared by their names, so the same thing has the same name in both.
        value: What it adds, in the unit of its explanation.
        note: A line for people: "tf 2, in 31 documents", or why nothing was added.
        facts: The numbers that ``value`` was computed from, by their names in the formula.
        parts: Finer addends, which sum to ``value``; may be empty.
        why: The explanation of the stage whose score went in, in a unit of its own.
    """

    name: str
    value: float
    note: str = ""
    facts: Mapping[str, float] = field(default_factory=dict)
    parts: tuple[Part, ...] = ()
    why: Explanation | None = None

    def __post_init__(self) -> None:
        """Keep Python's own numbers: what was summed in NumPy is no value of JSON."""
        object.__setattr__(self, "value", float(self.value))
        facts = {name: fact if isinstance(fact, int) else float(fact) for name, fact in self.facts.items()}
        object.__setattr__(self, "facts", facts)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values; what is empty is left out."""
        rest: dict[str, Any] = {"note": self.note, "facts": self.facts}
        rest["parts"] = [part.to_dict() for part in self.parts]
        rest["why"] = self.why.to_dict() if self.why else None
        return {"name": self.name, "value": self.value} | _filled(rest)


class Word(NamedTuple):
    """A word, or a longer stretch, of a text as the ranker read it.

    Attributes:
        value: What it adds to the score; None where nothing can be said of it alone.
        match: The query word that it matches best, or "".
        similarity: How well it matches that word, from -1 to 1; 0 without one.
        read: Whether the ranker saw it; words beyond a limit are listed and not read.
    """

    text: str
    value: float | None = None
    match: str = ""
    similarity: float = 0.0
    read: bool = True


class ReadText(NamedTuple):
    """A passage as a ranker read it.

    Attributes:
        index: Its place in the document, from 0.
        unit: "word" or "sentence".
        name: What it is called beside others: "passage 3", "title"; may be empty.
        value: What the passage as a whole scores; None where it has no score of its own.
    """

    index: int  # type: ignore[assignment]  # hides tuple.index, which no one asks of a text
    words: tuple[Word, ...]
    unit: str = "word"
    name: str = ""
    value: float | None = None


class Grid(NamedTuple):
    """Numbers behind an answer that are looked at as a table or heat map.

    Attributes:
        name: "cosines", "kernel shares" ...
        rows: The r row names.
        columns: The c column names.
        values: (r, c).
    """

    name: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: FloatArray

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return self._asdict() | {"values": self.values.tolist()}


@dataclass(frozen=True)
class Counterfactual:
    """The least that would have to go for the order to flip.

    Attributes:
        removed: The texts of its units, in reading order.
        places: (passage index, place in the passage's units) of each.
        unit: "word" or "sentence".
        after: Its score without them, by the ordinary path.
        rival: The document that then stands above it.
        minimal: Whether no smaller choice of units does it: all were tried.
    """

    doc_id: str
    removed: tuple[str, ...]
    places: tuple[tuple[int, int], ...]
    unit: str
    before: float
    after: float
    rival: str
    rival_score: float
    minimal: bool

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values."""
        return dict(vars(self)) | {"removed": list(self.removed), "places": [list(p) for p in self.places]}

    def sentence(self) -> str:
        """Say it in words."""
        shown = [
            f'"{text if len(text) <= _QUOTED else text[: _QUOTED - 1].rstrip() + "…"}"'
            for text in self.removed
        ]
        if len(shown) > _LISTED:
            shown = [*shown[:_LISTED], f"{len(shown) - _LISTED:,} more"]
        *others, last = shown
        named = f"{', '.join(others)} and {last}" if others else last
        after, before, rival = (brief(number(value)) for value in (self.after, self.before, self.rival_score))
        least = "" if self.minimal else " (perhaps not the least: not every choice was tried)"
        return (
            f"Without the {self._units()} {named}, {self.doc_id} would score {after} instead of {before} "
            f"and stand below {self.rival} ({rival}){least}."
        )

    def _units(self) -> str:
        """Say what is removed: words, neighbours of them that go together, or sentences."""
        several = len(self.removed) > 1
        if self.unit == "word" and any(len(text.split()) > 1 for text in self.removed):
            return f"{len(self.removed):,} stretches of words" if several else "words"
        return f"{len(self.removed):,} {self.unit}s" if several else self.unit


@dataclass(frozen=True)
class Explanation:
    """Why a document scores what it scores for a query.

    Attributes:
        method: How it is explained: "term weights", "kernel shares", "sentence removal" ...
        exact: Whether the parts are the score's own addends, up to rounding, not an estimate.
        unit: What the numbers are: "bm25", "logit", "probability", "similarity" ...
        parts: The addends; with ``gap`` they sum to ``score``.
        cost: Pairs scored to find the parts, beyond the score itself; 0 where they were read off.
        counterfactual: The least whose removal flips an order; None where none was sought or found.
        texts: What was read, passage by passage, for looking at.
        query_words: The query as the ranker read it.
        notes: What a reader has to know: words not read, ties, a placeholder instead of a score.
        ranker: Fingerprint of what scored; "" for none.
    """

    kind: ClassVar[str] = "explanation"

    query: Query
    doc_id: str
    score: float
    method: str
    exact: bool
    unit: str
    parts: tuple[Part, ...]
    cost: int = 0
    counterfactual: Counterfactual | None = None
    texts: tuple[ReadText, ...] = ()
    query_words: tuple[str, ...] = ()
    grids: tuple[Grid, ...] = ()
    notes: tuple[str, ...] = ()
    ranker: str = field(default="", repr=False)

    @property
    def sides(self) -> tuple[Explanation, ...]:
        """The explanations that it is made of: itself."""
        return (self,)

    @property
    def gap(self) -> float:
        """The score minus the sum of the parts: rounding where they are exact."""
        return self.score - math.fsum(part.value for part in self.parts)

    def noting(self, *notes: str) -> Explanation:
        """Return it with more notes."""
        return replace(self, notes=(*self.notes, *notes))

    def sentence(self, most: int = 3) -> str:
        """Say it in words, naming so many parts on each side."""
        unit = f" ({self.unit})" if self.unit != "score" else ""
        return f"{self.doc_id} scores {brief(number(self.score))}{unit}: {named_parts(self.parts, most)}."

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values: query, document, score, method, exact, unit, parts, gap, cost and the rest."""
        rest = {
            "query_words": list(self.query_words),
            "texts": [text._asdict() | {"words": [w._asdict() for w in text.words]} for text in self.texts],
            "grids": [grid.to_dict() for grid in self.grids],
            "ranker": self.ranker,
        }
        return json_values(self, {"document": self.doc_id}) | _filled(rest)


def json_values(answer: Explanation | Contrast, documents: Mapping[str, str]) -> dict[str, Any]:
    """Return what explanations and contrasts have in common, as JSON values."""
    flip = answer.counterfactual.to_dict() if answer.counterfactual else None
    values = {
        "query": answer.query._asdict(),
        **documents,
        "score": answer.score,
        "method": answer.method,
        "exact": answer.exact,
        "unit": answer.unit,
        "parts": [part.to_dict() for part in answer.parts],
        "gap": answer.gap,
        "cost": answer.cost,
    }
    return values | _filled(
        {"notes": list(answer.notes), "sentence": answer.sentence(), "counterfactual": flip}
    )


def _filled(values: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value}


def named_parts(parts: Sequence[Part], most: int, *, falls: bool = False) -> str:
    """Name the parts that count most on each side: first those that make the number what it is.

    Args:
        falls: Whether the number is what takes away from it.
    """
    falling = sorted((part for part in parts if part.value), key=lambda part: (-abs(part.value), part.name))
    up = [part for part in falling if part.value > 0][:most]
    down = [part for part in falling if part.value < 0][:most]
    named = (*down, *up) if falls else (*up, *down)
    text = ", ".join(f"{_quoted(part.name)} {brief(signed(part.value))}" for part in named)
    left = len(falling) - len(up) - len(down)
    return (text or "nothing adds to it") + (f", and {left} more" if left else "")


def _quoted(name: str) -> str:
    """Quote a part's name; of what was left out the text only, and a long one without its end."""
    unit, colon, text = name.partition(": ")
    if unit not in ("sentence", "word") or not colon:
        return _UNQUOTED.get(name, f'"{name}"')
    text = text if len(text) <= _QUOTED else f"{text[: _QUOTED - 1].rstrip(' …')}…"
    return f'the {unit} "{text}"'
