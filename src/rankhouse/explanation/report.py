"""Answers of ``rh.explain``, and an answer as a file: a page of HTML that stands alone, or Markdown.

A page shows bars of parts, words with their colours, and grids as heat maps.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import accumulate, chain, zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rankhouse.core.frames import frame
from rankhouse.explanation import show
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
from rankhouse.explanation.contrast import Answer, Contrast, Movement, RankingExplanation
from rankhouse.io.outputs import writing
from rankhouse.page.charts import ending_of
from rankhouse.page.html import write_page

if TYPE_CHECKING:
    import pandas as pd

_TEMPLATE = Path(__file__).parent / "templates" / "why.html.j2"
MOST_WORDS = 30_000
MOST_PASSAGES, MOST_PARTS, MOST_COLUMNS = 30, 40, 60


class ExplainResult:
    """An answer that prints, is shown in a notebook, converts, and is saved as a page.

    Attributes:
        answer: The explanation, contrast, ranking or movement behind it.
    """

    def __init__(self, answer: Answer) -> None:
        self.answer = answer
        self._now = answer.now if isinstance(answer, Movement) else answer

    @property
    def parts(self) -> tuple[Part, ...]:
        """The addends of the score or of the difference; none of a whole ranking."""
        return () if isinstance(self._now, RankingExplanation) else self._now.parts

    def __iter__(self) -> Iterator[Part]:
        return iter(self.parts)

    def __getitem__(self, place: int | slice) -> Part | tuple[Part, ...]:
        return self.parts[place]

    def __len__(self) -> int:
        return len(self.parts)

    def __bool__(self) -> bool:
        return True  # an explanation without parts is one too

    @property
    def score(self) -> float:
        """The score, or the difference of two; of a whole ranking the first document's."""
        if isinstance(self._now, RankingExplanation):
            return self._now.documents[0].score if self._now.documents else 0.0
        return self._now.score

    def sentence(self) -> str:
        """Return the answer in words."""
        return self.answer.sentence()

    def __str__(self) -> str:
        return show.to_text(self.answer)

    def __repr__(self) -> str:
        return f"<ExplainResult: {self.sentence()}>"

    def _repr_html_(self) -> str:
        return show.to_html(self.answer)

    def to_dict(self) -> dict[str, Any]:
        """Return JSON values, as ``rankhouse explain --json`` writes them."""
        return self.answer.to_dict()

    def to_frame(self) -> pd.DataFrame:
        """Return one row a part: name, value, note; of a ranking one a document: doc_id, score, note."""
        if isinstance(self.answer, RankingExplanation):
            columns = ("doc_id", "score", "note")
            rows = [(one.doc_id, one.score, one.sentence()) for one in self.answer.documents]
        else:
            columns = ("name", "value", "note")
            rows = [(part.name, part.value, part.note) for part in self.parts]
        return frame([dict(zip(columns, row, strict=True)) for row in rows], columns)

    def to_markdown(self) -> str:
        """Return it as Markdown."""
        return show.to_markdown(self.answer)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it as a page (.html) or as Markdown (.md); errors as of :func:`write`."""
        write(self.answer, Path(path))


def check_target(path: Path) -> str:
    """Return the ending of a file that an answer can be written to.

    Raises:
        WrongUse: Neither .html nor .md.
    """
    return ending_of(path, "an answer is", ".html", ".md")


def write(answer: Answer, path: Path | str) -> None:
    """Write an answer as a page or as Markdown, as the file's ending says.

    Raises:
        WrongUse: Another ending.
        MissingExtra: jinja2 is not installed, which a page needs.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    if check_target(path) == ".html":
        write_page(_TEMPLATE, content_of(answer), path)
    else:
        with writing(path) as out:
            out.write(show.to_markdown(answer))


def content_of(answer: Answer) -> dict[str, object]:
    """Return what ``why.html.j2`` and ``answer.html.j2`` show; its notes are those of no section."""
    content = {"title": title_of(answer), "query": answer.query, "sentence": answer.sentence()}
    match answer:
        case Movement():
            both = ((answer.after, answer.now), (answer.before, answer.then))
            sections = [(one.sentence(), inner) for one, inner in both if inner is not None]
            rest: dict[str, object] = {"table": None, "notes": answer.notes}
        case RankingExplanation():
            ranked = zip_longest(answer.ranks, answer.titles, answer.documents)
            sections = [(f"{rank}. {title or one.doc_id}", one) for rank, title, one in ranked]
            rest = {"table": show.ranking_table(answer), "notes": answer.notes}
        case _:
            sections, rest = [("", answer)], {"table": None, "notes": ()}
    return content | rest | {"sections": [(heading, view_of(one)) for heading, one in sections]}


def title_of(answer: Answer) -> str:
    """Return the heading of an answer's page."""
    match answer:
        case Contrast():
            place = "beside" if answer.is_rounding else "below" if answer.score < 0 else "above"
            return f"Why {answer.first.doc_id} stands {place} {answer.second.doc_id}"
        case Explanation():
            return f"Why {answer.doc_id} scores {brief(number(answer.score))}"
        case Movement():
            return f"Why {answer.doc_id} {'stayed' if answer.before.rank == answer.after.rank else 'moved'}"
        case RankingExplanation():
            return f"Why this order: {answer.run}"


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
    note: str = ""
    facts: tuple[tuple[str, str], ...] = ()
    bars: tuple[Bar, ...] = ()
    why: str = ""


class ShownWord(NamedTuple):
    """A word of a text.

    Attributes:
        kind: "up", "down", "unread" or "".
        share: Of the largest value, 0 to 100.
        match: Number of the query word that it matches, from 1; 0 for none.
        closeness: How well it matches, 0 to 100.
        gone: Whether it is among what would have to go for the order to flip.
        glued: Whether no space stands before it.
    """

    text: str
    kind: str
    share: int
    match: int
    closeness: int
    about: str
    gone: bool
    glued: bool = False


class ShownText(NamedTuple):
    """A passage: its heading, its words, and how many are left out."""

    name: str
    words: tuple[ShownWord, ...]
    more: int

    def stretches(self) -> list[tuple[bool, list[ShownWord]]]:
        """Return the words in stretches, and whether each is folded."""
        return show.stretches(self.words, _weight)


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
    sides = answer.sides
    texts = [text for side in sides for text in side.texts]
    words = [word for text in texts for word in text.words]
    inner = show.inner_contrasts(answer) if isinstance(answer, Contrast) else []
    query_words = tuple(dict.fromkeys(chain.from_iterable(side.query_words for side in sides)))
    largest = show.largest_value(texts)
    shown = [_side(side, answer.counterfactual, query_words, largest) for side in sides]
    shared = tuple(one for one in shown[0].maps if len(shown) > 1 and one in shown[1].maps)
    return View(
        answer.sentence(),
        show.method_line(answer),
        bars_of(answer.parts),
        tuple((f"{name} ({one.unit})", bars_of(one.parts)) for name, one in inner),
        sides=tuple(one._replace(maps=tuple(m for m in one.maps if m not in shared)) for one in shown),
        maps=shared,
        query_words=query_words,
        has_values=any(word.value for word in words),
        has_matches=any(word.match for word in words),
        flip=answer.counterfactual,
        notes=show.merged_notes(sides),
        ranker=sides[0].ranker,
    )


def bars_of(parts: Sequence[Part]) -> tuple[Bar, ...]:
    """Return parts as bars, the largest first; those left out are summed in the last."""
    telling = [part for part in parts if part.value or not _contrasted(part) or any(part.facts.values())]
    largest = max((abs(part.value) for part in telling), default=0.0)
    bars = []
    for part in show.falling(telling, MOST_PARTS):
        why, facts = part.why, () if _contrasted(part) else part.facts.items()
        bars.append(
            Bar(
                part.name,
                signed(part.value),
                _percent(part.value, largest),
                part.note,
                facts=tuple((name, f"{value:.4g}") for name, value in facts),
                bars=(*bars_of(part.parts), *bars_of(why.parts if why and not part.parts else ())),
                why=f"{why.sentence()} ({show.method_line(why)})" if why else "",
            )
        )
    return tuple(bars)


def _contrasted(part: Part) -> bool:
    """Return whether a part is a difference of two; its note says the same as its facts."""
    return part.facts.keys() == {"first", "second"}


def _percent(value: float, largest: float) -> int:
    return round(100 * max(-1.0, min(1.0, value / largest))) if largest else 0


def _side(side: Explanation, flip: Counterfactual | None, query_words: Sequence[str], largest: float) -> Side:
    numbers = {word: number for number, word in enumerate(query_words, 1)}
    flip = flip if flip and flip.doc_id == side.doc_id else None
    scored = any(text.value is not None for text in side.texts)
    ordered = sorted(side.texts, key=lambda t: (-(t.value or 0.0), t.index)) if scored else side.texts
    shown, room = [], MOST_WORDS
    for text in ordered[:MOST_PASSAGES]:
        removed = _struck(text, flip) if flip else set()
        words = tuple(
            _word(word, largest, numbers, place in removed) for place, word in enumerate(text.words[:room])
        )
        value = "" if text.value is None else f"scores {brief(number(text.value))}"
        name = ": ".join(filter(None, (text.name, value)))
        shown.append(ShownText(name, words, len(text.words) - len(words)))
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


def _word(word: Word, largest: float, numbers: dict[str, int], gone: bool) -> ShownWord:
    value = word.value or 0.0
    facts = (
        "" if word.value is None else f"adds {signed(value)}",
        f"is closest to {word.match} ({word.similarity:.2f})" if word.match else "",
        "" if word.read else "was not read",
    )
    return ShownWord(
        word.text,
        "unread" if not word.read else "up" if value > 0 else "down" if value < 0 else "",
        abs(_percent(value, largest)),
        numbers.get(word.match, 0),
        closeness=max(0, _percent(word.similarity, 1.0)),
        about=", ".join(filter(None, facts)),
        gone=gone,
    )


def _weight(words: Sequence[ShownWord]) -> int:
    """Return how much words say of the score or of the query, each once."""
    shades = ((one, one.closeness if one.match else one.share * (one.kind != "unread")) for one in words)
    return sum({one.text.strip(".,;:()\"'").casefold(): 100 if one.gone else n for one, n in shades}.values())


def _map(grid: Grid) -> HeatMap:
    largest = float(np.abs(grid.values).max(initial=0.0))

    def cell(value: float) -> tuple[str, int]:
        text = "≈ 0" if 0 < abs(value) < largest * 1e-3 else f"{value:.3g}"
        return text, _percent(value, largest)

    named = zip(grid.rows, grid.values.tolist(), strict=True)
    rows = tuple((name, tuple(map(cell, row[:MOST_COLUMNS]))) for name, row in named)
    return HeatMap(grid.name, grid.columns[:MOST_COLUMNS], rows, max(0, len(grid.columns) - MOST_COLUMNS))
