"""Answers as a page shows them: bars of parts, words with their colours, grids as heat maps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import accumulate, chain
from typing import NamedTuple

from rankhouse.explanation.answer import (
    Counterfactual,
    Explanation,
    Grid,
    Part,
    ReadText,
    Word,
    brief,
    number,
    signed,
)
from rankhouse.explanation.contrast import Contrast
from rankhouse.explanation.show import inner_contrasts, largest_value, method_line, notes_of

MOST_WORDS = 5_000
MOST_PASSAGES = 30
MOST_PARTS = 40
MOST_COLUMNS = 60


class Bar(NamedTuple):
    """A part as a row with a bar: its share is of the largest part beside it, -100 to 100.

    Attributes:
        note: A line for people; may be empty.
        facts: (name, number) of what the value was computed from.
        why: A heading for the explanation of the stage behind it; "" without one.
    """

    name: str
    value: str
    share: int
    note: str
    facts: tuple[tuple[str, str], ...]
    bars: tuple[Bar, ...] = ()
    why: str = ""


class ShownWord(NamedTuple):
    """A word of a text.

    Attributes:
        kind: "up", "down", "unread" or "".
        share: Of the largest value, 0 to 100.
        match: Number of the query word that it matches, from 1; 0 for none.
        closeness: How well, 0 to 100.
        about: What it adds and matches, in words.
        gone: Whether it is among what would have to go for the order to flip.
    """

    text: str
    kind: str
    share: int
    match: int
    closeness: int
    about: str
    gone: bool


class ShownText(NamedTuple):
    """A passage: its heading, its words, how many are left out, and whether it is its document's best."""

    name: str
    words: tuple[ShownWord, ...]
    more: int
    best: bool


class HeatMap(NamedTuple):
    """A grid: heading, columns, rows of (name, cells), cells being (text, share), and columns left out."""

    name: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, tuple[tuple[str, int], ...]], ...]
    more: int


class Side(NamedTuple):
    """A document: id, score with its unit, texts, heat maps, and the words of the query."""

    doc_id: str
    score: str
    texts: tuple[ShownText, ...]
    maps: tuple[HeatMap, ...]
    more: int


class View(NamedTuple):
    """An explanation or contrast.

    Attributes:
        inner: (heading, bars) of the stages behind them, compared.
        maps: Heat maps that are the same for both documents.
        flip: What would flip the order; None where it is not known.
        ranker: The fingerprint of what scored; "" for none.
    """

    sentence: str
    method: str
    bars: tuple[Bar, ...]
    inner: tuple[tuple[str, tuple[Bar, ...]], ...]
    sides: tuple[Side, ...]
    maps: tuple[HeatMap, ...]
    query_words: tuple[str, ...]
    has_values: bool
    has_matches: bool
    flip: Counterfactual | None
    notes: tuple[str, ...]
    ranker: str


def view_of(answer: Explanation | Contrast) -> View:
    """Return what a page shows of an explanation or contrast."""
    sides = (answer.first, answer.second) if isinstance(answer, Contrast) else (answer,)
    texts = [text for side in sides for text in side.texts]
    words = [word for text in texts for word in text.words]
    inner = inner_contrasts(answer) if isinstance(answer, Contrast) else []
    query_words = tuple(dict.fromkeys(chain.from_iterable(side.query_words for side in sides)))
    largest = largest_value(texts)
    shown = [_side(side, answer.counterfactual, query_words, largest) for side in sides]
    shared = tuple(one for one in shown[0].maps if len(shown) > 1 and one in shown[1].maps)
    return View(
        answer.sentence(),
        method_line(answer),
        bars_of(answer.parts),
        tuple((f"{name} ({one.first.unit})", bars_of(one.parts)) for name, one in inner),
        sides=tuple(one._replace(maps=tuple(m for m in one.maps if m not in shared)) for one in shown),
        maps=shared,
        query_words=query_words,
        has_values=any(word.value for word in words),
        has_matches=any(word.match for word in words),
        flip=answer.counterfactual,
        notes=notes_of(answer),
        ranker=sides[0].ranker,
    )


def bars_of(parts: Sequence[Part]) -> tuple[Bar, ...]:
    """Return parts as bars, the largest first; those left out are summed in the last."""
    telling = (part for part in parts if part.value or not _contrasted(part) or any(part.facts.values()))
    falling = sorted(telling, key=lambda part: -abs(part.value))
    largest = max((abs(part.value) for part in falling), default=0.0)
    bars = [_bar(part, largest) for part in falling[:MOST_PARTS]]
    if left := falling[MOST_PARTS:]:
        rest = sum(part.value for part in left)
        bars.append(Bar(f"{len(left):,} more", signed(rest), _percent(rest, largest), "", facts=()))
    return tuple(bars)


def _bar(part: Part, largest: float) -> Bar:
    why = f"{part.why.sentence()} ({method_line(part.why)})" if part.why else ""
    finer = bars_of(part.why.parts) if part.why and not part.parts else ()
    facts = () if _contrasted(part) else tuple((name, f"{number:.4g}") for name, number in part.facts.items())
    bars = (*bars_of(part.parts), *finer)
    return Bar(
        part.name,
        signed(part.value),
        _percent(part.value, largest),
        part.note,
        facts=facts,
        bars=bars,
        why=why,
    )


def _contrasted(part: Part) -> bool:
    """Return whether a part is a difference of two; its note says the same as its facts."""
    return part.facts.keys() == {"first", "second"}


def _percent(value: float, largest: float) -> int:
    return round(100 * max(-1.0, min(1.0, value / largest))) if largest else 0


def _side(side: Explanation, flip: Counterfactual | None, query_words: Sequence[str], largest: float) -> Side:
    numbers = {word: number for number, word in enumerate(query_words, 1)}
    flip = flip if flip and flip.doc_id == side.doc_id else None
    best = max((text.value for text in side.texts if text.value is not None), default=None)
    ordered = sorted(
        side.texts, key=lambda text: (-(text.value or 0.0), text.index) if best is not None else (0, 0)
    )
    shown, room = [], MOST_WORDS
    for text in ordered[:MOST_PASSAGES]:
        removed = _struck(text, flip) if flip else set()
        words = tuple(
            _word(word, largest, numbers, place in removed) for place, word in enumerate(text.words[:room])
        )
        shown.append(ShownText(_name(text), words, len(text.words) - len(words), text is ordered[0]))
        room -= len(words)
    return Side(
        side.doc_id,
        f"{brief(number(side.score))} ({side.unit})",
        tuple(shown),
        tuple(map(_map, side.grids)),
        more=max(0, len(ordered) - MOST_PASSAGES),
    )


def _struck(text: ReadText, flip: Counterfactual) -> set[int]:
    """Return the places in a text of what would have to go, as far as they are certain.

    A ranker may cut words otherwise than they were left out, so characters are compared, white space and case
    apart: what a text has once, or as often as it is left out, is struck. A sentence is left out of every
    passage that has it.
    """
    folded = ["".join(word.text.casefold().split()) for word in text.words]
    starts = [0, *accumulate(map(len, folded))]
    whole, places = "".join(folded), set[int]()
    wanted = Counter(
        "".join(said.casefold().split())
        for said, (index, _) in zip(flip.removed, flip.places, strict=True)
        if index == text.index or flip.unit == "sentence"
    )
    for said, count in wanted.items():
        found = [at for at in starts[:-1] if said and whole.startswith(said, at) and at + len(said) in starts]
        if len(found) == (1 if flip.unit == "sentence" else count):
            places |= {p for at in found for p in range(len(folded)) if at <= starts[p] < at + len(said)}
    return places


def _name(text: ReadText) -> str:
    value = f"scores {brief(number(text.value))}" if text.value is not None else ""
    return ": ".join(filter(None, (text.name, value)))


def _word(word: Word, largest: float, numbers: dict[str, int], gone: bool) -> ShownWord:
    told = [] if word.value is None else [f"adds {signed(word.value)}"]
    if word.match:
        told.append(f"is closest to {word.match} ({word.similarity:.2f})")
    if not word.read:
        told.append("was not read")
    closeness = round(100 * max(0.0, min(1.0, word.similarity)))
    value = word.value or 0.0
    what = "unread" if not word.read else "up" if value > 0 else "down" if value < 0 else ""
    return ShownWord(
        word.text,
        what,
        abs(_percent(value, largest)),
        numbers.get(word.match, 0),
        closeness=closeness,
        about=", ".join(told),
        gone=gone,
    )


def _map(grid: Grid) -> HeatMap:
    largest = max((abs(float(v)) for row in grid.values for v in row), default=0.0)

    def cell(value: float) -> tuple[str, int]:
        text = "≈ 0" if 0 < abs(value) < largest * 1e-3 else f"{value:.3g}"
        return text, _percent(value, largest)

    named = zip(grid.rows, grid.values.tolist(), strict=True)
    rows = tuple((name, tuple(map(cell, row[:MOST_COLUMNS]))) for name, row in named)
    return HeatMap(grid.name, grid.columns[:MOST_COLUMNS], rows, max(0, len(grid.columns) - MOST_COLUMNS))
