"""Answers for people: blocks of sentences, tables and marked words, which a terminal or a file then shows.

The same blocks become plain text, Markdown and, in ``app``, coloured words on a terminal. A word's
share is always told by a sign too, never by colour alone: ⁺ and ⁺⁺ add to the score, ⁻ and ⁻⁻ take away from
it, ° is a word that matches a query word without a share of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import chain, groupby
from typing import NamedTuple

from rankhouse.core.run import Ranking
from rankhouse.explanation.answer import Explanation, ReadText, Word
from rankhouse.explanation.contrast import Contrast, contrast
from rankhouse.explanation.numbers import brief, number
from rankhouse.explanation.rankings import Answer, Movement, RankingExplanation
from rankhouse.explanation.tables import contrast_table, grid_table, parts_table, ranking_table, short
from rankhouse.page.tables import Table

MOST_WORDS = 300
"""Words of a text that are shown on a terminal."""
MOST_GRID = 14
"""Rows and columns of a grid that is shown as text."""

STRONG, WEAK, MATCH = 0.5, 0.15, 0.5
"""Shares of the largest value from which a word has two signs or one; similarity from which it has a °."""

_ROUNDING = 1e-6  # a gap of no more says nothing about an estimate

_TELLING = ("gain", "loss", "match")
LEGEND = "⁺ adds to the score (⁺⁺ most), ⁻ takes away from it (⁻⁻ most), ° matches a query word"


class TitledTable(NamedTuple):
    """A table and its heading, which may be empty."""

    title: str
    table: Table


class MarkedText(NamedTuple):
    """A text with its words marked.

    Attributes:
        title: What it is.
        words: (text with its sign, "gain", "loss", "match", "unread" or "") of each word.
        more: How many words are left out.
    """

    title: str
    words: tuple[tuple[str, str], ...]
    more: int = 0

    def plain(self) -> str:
        """Return its words as one line."""
        return " ".join(text for text, _ in self.words) + (
            f" … and {self.more:,} more words" if self.more else ""
        )


Block = str | TitledTable | MarkedText


def blocks(answer: Answer) -> Iterator[Block]:
    """Say an answer: the sentence first, then what is behind it, what would flip it, and notes last."""
    match answer:
        case RankingExplanation():
            yield from _of_ranking(answer)
        case Movement():
            yield from _of_movement(answer)
        case Contrast():
            yield from _of_contrast(answer)
        case Explanation():
            yield from _of_explanation(answer)


def _of_explanation(answer: Explanation) -> Iterator[Block]:
    yield answer.sentence()
    if answer.parts:
        yield TitledTable("", parts_table(answer))
    yield from _legible(_texts(answer))
    for grid in answer.grids:
        if len(grid.rows) <= MOST_GRID and len(grid.columns) <= MOST_GRID:
            yield TitledTable(grid.name, grid_table(grid))
    yield from _ending(answer)


def _of_contrast(answer: Contrast) -> Iterator[Block]:
    yield answer.sentence()
    if answer.parts:
        yield TitledTable("", contrast_table(answer))
    for name, inner in inner_contrasts(answer):
        yield TitledTable(f"within {name} ({inner.first.unit}): {short(inner.sentence(), 200)}",
                          contrast_table(inner))  # fmt: skip
    yield from _legible(chain(_texts(answer.first), _texts(answer.second)))
    yield from _ending(answer)


def _of_ranking(answer: RankingExplanation) -> Iterator[Block]:
    yield answer.sentence()
    yield TitledTable("", ranking_table(answer))
    yield from _notes((*answer.notes, *merged_notes(answer.documents)))


def _of_movement(answer: Movement) -> Iterator[Block]:
    yield answer.sentence()
    for title, inner in (("now", answer.now), ("before", answer.then)):
        if inner is not None:
            run = (answer.after if title == "now" else answer.before).run
            yield f"{title}, by {run}:"
            yield from blocks(inner)
    yield from _notes(answer.notes)


def _ending(answer: Explanation | Contrast) -> Iterator[Block]:
    if answer.counterfactual:
        yield answer.counterfactual.sentence()
    yield method_line(answer)
    yield from _notes(notes_of(answer))


def _notes(notes: Sequence[str]) -> Iterator[str]:
    for note in dict.fromkeys(notes):
        yield f"note: {note}"


def notes_of(answer: Explanation | Contrast) -> tuple[str, ...]:
    """Return an answer's notes; of two documents, each note names its document unless it is of both."""
    if isinstance(answer, Explanation):
        return tuple(dict.fromkeys(answer.notes))
    return merged_notes((answer.first, answer.second))


def merged_notes(documents: Sequence[Explanation]) -> tuple[str, ...]:
    """Return the notes of several explanations: those of all as they are, others with their document's id."""
    found: dict[str, list[str]] = {}
    for one in documents:
        for note in dict.fromkeys(one.notes):
            found.setdefault(note, []).append(one.doc_id)
    return tuple(
        note if len(ids) == len(documents) or any(i in note for i in ids) else f"{', '.join(ids)}: {note}"
        for note, ids in found.items()
    )


def method_line(answer: Explanation | Contrast) -> str:
    """Say how it was explained: the method, whether it is exact, what the parts leave, what it cost."""
    whole = "difference" if isinstance(answer, Contrast) else "score"
    if answer.exact:
        truth = f"exact, the parts sum to the {whole}" + (
            f" (rounding: {answer.gap:.0e})" if answer.gap else ""
        )
    elif abs(answer.gap) <= _ROUNDING * max(abs(answer.score), 1.0):
        truth = "an estimate"
    else:
        truth = f"an estimate, the parts leave {answer.gap:.2g} of the {whole} {brief(number(answer.score))}"
    passes = f"; {answer.cost:,} variants scored" if answer.cost else ""
    return f"method: {answer.method}; {truth}{passes}"


def standing_note(run: str, ranking: Ranking, doc_id: str) -> str:
    """Say where a document stands, and with whom it ties.

    Args:
        run: What the ranking is called.
        ranking: A query's documents.
        doc_id: One of them.
    """
    place = ranking.doc_ids.index(doc_id)
    score = ranking.scores[place]
    ties = [other for other, theirs in zip(*ranking, strict=True) if theirs == score and other != doc_id]
    tied = ""
    if ties:
        named = ", ".join(ties[:3]) + (" ..." if len(ties) > 3 else "")
        tied = f"; it ties with {named}, and ids decide among them, the later in the alphabet first"
    return f"{doc_id} has rank {place + 1:,} of {len(ranking.doc_ids):,} in {run}{tied}."


def inner_contrasts(answer: Contrast) -> list[tuple[str, Contrast]]:
    """Return the contrasts of the stages whose scores went into two answers, by the parts' names.

    Stages whose own parts are carried over, in the answer's unit, need none.
    Where each side has a single such part (the passage that won), these are compared whatever their names.
    """
    sides = [
        {part.name: part for part in one.parts if part.why and not part.parts}
        for one in (answer.first, answer.second)
    ]
    if all(len(side) == 1 for side in sides):
        pairs = [(next(iter(sides[0].values())), next(iter(sides[1].values())))]
    else:
        pairs = [(part, sides[1][name]) for name, part in sides[0].items() if name in sides[1]]
    found = []
    for mine, other in pairs:
        if mine.why and other.why:
            name = mine.name if mine.name == other.name else f"{mine.name} and {other.name}"
            found.append((name, contrast(mine.why, other.why)))
    return found


# --- words ----------------------------------------------------------------------------------------------


def _texts(answer: Explanation) -> Iterator[MarkedText]:
    """Show the texts that say something; of several passages the best."""
    telling = [text for text in answer.texts if any(_tells(word) for word in text.words)]
    if not telling:
        return
    scored = [text for text in telling if text.value is not None]
    best = max(scored, key=lambda text: text.value or 0.0) if scored else telling[0]
    of = f", the best of {len(answer.texts)}" if len(answer.texts) > 1 else ""
    name = f"{answer.doc_id}, {best.name}{of}" if best.name else f"{answer.doc_id}{of}"
    yield marked_text(best, name)


def _legible(texts: Iterable[MarkedText]) -> Iterator[Block]:
    """Show texts, and below them what their signs mean."""
    shown = list(texts)
    yield from shown
    if shown:
        yield LEGEND


def _tells(word: Word) -> bool:
    return bool(word.value) or bool(word.match)


def marked_text(text: ReadText, title: str, most: int = MOST_WORDS) -> MarkedText:
    """Mark the words of a text by what they add, or by the query word that they match.

    Args:
        text: What was read.
        title: Its heading.
        most: How many words are shown.
    """
    largest = largest_value([text])
    words: list[tuple[str, str]] = []
    for read, run in groupby(text.words[:most], key=lambda word: word.read):
        shown = [(word.text + sign(word, largest), kind(word, largest)) for word in run]
        words += shown if read else [("[not read:", ""), *shown, ("]", "")]
    return MarkedText(title, tuple(words), max(0, len(text.words) - most))


def largest_value(texts: Sequence[ReadText]) -> float:
    """Return the largest value of a word, whatever its sign; 0 where none has one."""
    return max((abs(word.value or 0.0) for text in texts for word in text.words), default=0.0)


def kind(word: Word, largest: float) -> str:
    """Return what a word does: "gain", "loss", "match", "unread" or "".

    Args:
        word: The word.
        largest: The largest value around it.
    """
    if not word.read:
        return "unread"
    share = (word.value or 0.0) / largest if largest else 0.0
    if abs(share) >= WEAK:
        return "gain" if share > 0 else "loss"
    return "match" if word.match and word.similarity >= MATCH else ""


def sign(word: Word, largest: float) -> str:
    """Return the sign behind a word.

    Args:
        word: The word.
        largest: The largest value around it.
    """
    mark = {"gain": "⁺", "loss": "⁻", "match": "°"}.get(kind(word, largest), "")
    strong = mark in ("⁺", "⁻") and abs(word.value or 0.0) >= STRONG * largest
    return mark * 2 if strong else mark


# --- files ----------------------------------------------------------------------------------------------


def to_text(answer: Answer) -> str:
    """Return an answer as plain text."""
    lines: list[str] = []
    for block in blocks(answer):
        match block:
            case TitledTable():
                lines += ["", *([block.title] if block.title else []), block.table.to_text(), ""]
            case MarkedText():
                lines += [f"{block.title}:", f"  {block.plain()}"]
            case _:
                lines.append(block)
    return "\n".join(lines)


def to_markdown(answer: Answer) -> str:
    """Return an answer as Markdown, the query quoted below its first sentence."""
    pieces: list[str] = []
    for block in blocks(answer):
        match block:
            case TitledTable():
                pieces += [
                    *([f"**{_literal(block.title)}**"] if block.title else []),
                    _safe(block.table).to_markdown().rstrip(),
                ]
            case MarkedText():
                words = (f"**{_literal(text)}**" if mark in _TELLING else _literal(text)
                         for text, mark in block.words)  # fmt: skip
                more = f" … and {block.more:,} more words" if block.more else ""
                pieces.append(f"**{_literal(block.title)}:** {' '.join(words)}{more}")
            case _:
                pieces.append(_literal(block))
    pieces.insert(1, f"> {_literal(answer.query.text)}")
    return "\n\n".join(pieces) + "\n"


def to_html(answer: Answer) -> str:
    """Return an answer as HTML for a notebook: the page is :func:`rankhouse.explanation.report.write`'s."""
    pieces: list[str] = []
    for block in blocks(answer):
        match block:
            case TitledTable():
                title = f"<p><b>{escape(block.title)}</b></p>" if block.title else ""
                pieces.append(title + block.table.to_html())
            case MarkedText():
                words = (f"<b>{escape(w)}</b>" if k in _TELLING else escape(w) for w, k in block.words)
                more = f" … and {block.more:,} more words" if block.more else ""
                pieces.append(f"<p><b>{escape(block.title)}:</b> {' '.join(words)}{more}</p>")
            case _:
                pieces.append(f"<p>{escape(block)}</p>")
    return "".join(pieces)


def _literal(text: str) -> str:
    """Return text of people's documents so that Markdown shows it as it stands, on one line."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>#|~&" else c for c in " ".join(text.split()))


def _safe(table: Table) -> Table:
    """Return a table whose cells Markdown shows as they stand; columns of numbers stay numbers."""
    rows = tuple(tuple(_literal(cell).replace("\\|", "|") for cell in row) for row in table.rows)
    return table._replace(rows=rows, columns=tuple(map(_literal, table.columns)))
