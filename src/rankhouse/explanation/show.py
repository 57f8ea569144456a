"""Answers for people: blocks of sentences, tables and marked words, which a terminal or a file then shows.

The same blocks become plain text, Markdown and, on a terminal, coloured words. A word's share is always shown
by a sign too, never by colour alone: ⁺ and ⁺⁺ add to the score, ⁻ and ⁻⁻ take away from it, ° is a word that
matches a query word without a share of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from html import escape
from itertools import groupby, zip_longest
from typing import NamedTuple, TypeVar

from rankhouse.core.progress import counted
from rankhouse.explanation.answer import Explanation, Part, ReadText, Word, brief, number, signed
from rankhouse.explanation.contrast import Answer, Contrast, Movement, RankingExplanation, contrast
from rankhouse.page.tables import Table

MOST_PARTS = 12
"""Parts shown at the top of a tree; every level below shows a third as many."""
OPEN_WORDS, OPEN_PLACES = 40, 5
"""Words by which a long text is weighed, and how many such blocks, with those beside them, are not folded."""
Piece = TypeVar("Piece")
TELLING = 0.1
"""Share of the largest part from which a finer one is shown; a page shows all."""


def stretches(
    words: Sequence[Piece], weigh: Callable[[Sequence[Piece]], float]
) -> list[tuple[bool, list[Piece]]]:
    """Return words in stretches, and whether each is folded: of many words, all but the weightiest."""
    blocks = [words[at : at + OPEN_WORDS] for at in range(0, len(words), OPEN_WORDS)]
    if len(blocks) <= 4 * OPEN_PLACES:
        return [(False, list(words))]
    weights = [weigh(block) for block in blocks]
    best = sorted(range(len(blocks)), key=lambda place: -weights[place])[:OPEN_PLACES]
    shown = {near for at in best if weights[at] or at == best[0] for near in (at - 1, at, at + 1)}
    shown |= {at for at in range(len(blocks)) if {at - 1, at + 1} <= shown}
    grouped = groupby(range(len(blocks)), key=lambda place: place not in shown)
    return [(is_folded, [word for at in places for word in blocks[at]]) for is_folded, places in grouped]


def falling(parts: Sequence[Part], most: int) -> list[Part]:
    """Return the largest parts, the largest first, and one that sums up those left out, if any are."""
    ordered = sorted(parts, key=lambda part: -abs(part.value))
    rest = [Part(f"{len(parts) - most:,} more", sum(part.value for part in ordered[most:]))]
    return ordered[:most] + (rest if len(parts) > most else [])


def parts_table(answer: Explanation) -> Table:
    """Return the tree of parts, the largest first, finer parts indented below theirs."""
    rows = tuple(_tree(answer.parts, lambda part: (signed(part.value), part.note)))
    table = Table(("part", answer.unit or "value", ""), rows)
    return table if any(row[2] for row in rows) else table.select(range(2))


def _tree(
    parts: Sequence[Part],
    cells: Callable[[Part], tuple[str, ...]],
    most: int = MOST_PARTS,
    least: float | None = None,
    depth: int = 0,
) -> Iterator[tuple[str, ...]]:
    """Walk over the largest parts, depth first; finer ones only where they are large."""
    if least is None:
        least = TELLING * max((abs(part.value) for part in parts), default=0.0)
    large = falling([part for part in parts if abs(part.value) >= least], most)[:most]
    for part in large if depth else falling(parts, most):
        yield _indented(part.name, depth), *cells(part)
        yield from _tree(part.parts, cells, most // 3, least, depth=depth + 1)
        if part.why is not None and most // 3 and not part.parts:
            yield _indented(f"why {number(part.why.score)} ({part.why.unit})", depth + 1), "", part.why.method
            yield from _tree(part.why.parts, cells, most // 3, depth=depth + 2)


def contrast_table(answer: Contrast) -> Table:
    """Return one row a part: what it gives either document, and the difference."""

    def cells(part: Part) -> tuple[str, ...]:
        sides = [signed(part.facts[side]) if side in part.facts else "" for side in ("first", "second")]
        return *sides, signed(part.value)

    first, second = answer.first, answer.second
    parts = [part for part in answer.parts if part.value or any(part.facts.values())]
    rows = [*_tree(parts, cells)]
    rows.append(("score", number(first.score), number(second.score), signed(answer.score)))
    return Table(
        ("part", short(first.doc_id, 24), short(second.doc_id, 24), "difference"),
        tuple(rows),
        frozenset({(len(rows) - 1, 3)}),
    )


def ranking_table(answer: RankingExplanation) -> Table:
    """Return one row a document: its rank and score, and what sets it above the next."""
    rows = []
    for rank, one, step in zip_longest(answer.ranks, answer.documents, answer.steps):
        lead = signed(step.score) if step else ""
        rows.append((f"{rank:,}", one.doc_id, number(one.score), lead, because(step) if step else ""))
    unit = answer.documents[0].unit if answer.documents else "score"
    heads: tuple[str, ...] = ("rank", "document", unit, "above the next", "by")
    if not any(answer.titles):
        return Table(heads, tuple(rows))
    titled = zip(rows, answer.titles, strict=True)
    with_titles = tuple((*row[:2], short(title, 60), *row[2:]) for row, title in titled)
    return Table((*heads[:2], "title", *heads[2:]), with_titles)


def because(step: Contrast) -> str:
    """Name the parts that separate two documents."""
    if step.score == 0:
        return "a tie: ids decide"
    first = [part for part in step.parts if part.value][:3]
    return ", ".join(f"{short(part.name, 30)} {signed(part.value)}" for part in first)


def _indented(name: str, depth: int) -> str:
    return "· " * depth + short(name, 60)


def short(text: str, most: int) -> str:
    """Return a text on one line, cut at its end."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"


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
        words: (text with its sign, "gain", "loss", "match", "unread" or "") of each word.
        more: How many words are left out.
    """

    title: str
    words: tuple[tuple[str, str], ...]
    more: int = 0

    @property
    def rest(self) -> str:
        """Note behind the words: how many are left out."""
        return f" … and {self.more:,} more words" if self.more else ""


Block = str | TitledTable | MarkedText


def blocks(answer: Answer) -> Iterator[Block]:
    """Say an answer: the sentence first, then what is behind it, what would flip it, and notes last."""
    yield answer.sentence()
    match answer:
        case RankingExplanation():
            yield TitledTable("", ranking_table(answer))
            yield from _notes((*answer.notes, *merged_notes(answer.documents)))
        case Movement():
            for title, one, inner in (
                ("now", answer.after, answer.now),
                ("before", answer.before, answer.then),
            ):
                if inner is not None:
                    yield f"{title}, by {one.run}:"
                    yield from blocks(inner)
            yield from _notes(answer.notes)
        case Contrast() | Explanation():
            yield from _tables(answer)
            texts = [text for side in answer.sides for text in _texts(side)]
            yield from texts
            if texts:
                yield LEGEND
            for grid in answer.grids if isinstance(answer, Explanation) else ():
                if max(len(grid.rows), len(grid.columns)) <= MOST_GRID:
                    named = zip(grid.rows, grid.values, strict=True)
                    rows = tuple((name, *(f"{value:.3g}" for value in row)) for name, row in named)
                    yield TitledTable(grid.name, Table(("", *grid.columns), rows))
            if answer.counterfactual:
                yield answer.counterfactual.sentence()
            yield method_line(answer)
            yield from _notes(merged_notes(answer.sides))


def _tables(answer: Explanation | Contrast) -> Iterator[TitledTable]:
    """Show the parts, and those of stages whose scores went into two answers."""
    if isinstance(answer, Explanation):
        if answer.parts:
            yield TitledTable("", parts_table(answer))
        return
    if answer.parts:
        yield TitledTable("", contrast_table(answer))
    for name, one in inner_contrasts(answer):
        title = f"within {name} ({one.unit}): {short(one.sentence(), 200)}"
        yield TitledTable(title, contrast_table(one))


def _notes(notes: Sequence[str]) -> Iterator[str]:
    return (f"note: {note}" for note in dict.fromkeys(notes))


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
        rounding = f" (rounding: {answer.gap:.0e})" if answer.gap else ""
        truth = f"exact, the parts sum to the {whole}{rounding}"
    elif abs(answer.gap) <= _ROUNDING * max(abs(answer.score), 1.0):
        truth = "an estimate"
    else:
        truth = f"an estimate, the parts leave {answer.gap:.2g} of the {whole} {brief(number(answer.score))}"
    passes = f"; {counted(answer.cost, 'variant')} scored" if answer.cost else ""
    return f"method: {answer.method}; {truth}{passes}"


def inner_contrasts(answer: Contrast) -> list[tuple[str, Contrast]]:
    """Return the contrasts of the stages whose scores went into two answers, by the parts' names.

    Stages whose own parts are carried over, in the answer's unit, need none.
    Where each side has a single such part (the passage that won), these are compared whatever their names.
    """
    sides = [{part.name: part for part in one.parts if part.why and not part.parts} for one in answer.sides]
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
    telling = [text for text in answer.texts if any(word.value or word.match for word in text.words)]
    if not telling:
        return
    scored = [text for text in telling if text.value is not None]
    best = max(scored, key=lambda text: text.value or 0.0) if scored else telling[0]
    of = f", the best of {len(answer.texts)}" if len(answer.texts) > 1 else ""
    name = f"{answer.doc_id}, {best.name}{of}" if best.name else f"{answer.doc_id}{of}"
    yield marked_text(best, name)


def marked_text(text: ReadText, title: str) -> MarkedText:
    """Mark the words of a text by what they add, or by the query word that they match."""
    largest = largest_value([text])
    words: list[tuple[str, str]] = []
    for read, run in groupby(text.words[:MOST_WORDS], key=lambda word: word.read):
        shown = [(word.text + sign(word, largest), kind(word, largest)) for word in run]
        words += shown if read else [("[not read:", ""), *shown, ("]", "")]
    return MarkedText(title, tuple(words), max(0, len(text.words) - MOST_WORDS))


def largest_value(texts: Sequence[ReadText]) -> float:
    """Return the largest value of a word, whatever its sign; 0 where none has one."""
    return max((abs(word.value or 0.0) for text in texts for word in text.words), default=0.0)


def kind(word: Word, largest: float) -> str:
    """Return what a word does among words of this largest value: "gain", "loss", "match", "unread", ""."""
    if not word.read:
        return "unread"
    share = (word.value or 0.0) / largest if largest else 0.0
    if abs(share) >= WEAK:
        return "gain" if share > 0 else "loss"
    return "match" if word.match and word.similarity >= MATCH else ""


def sign(word: Word, largest: float) -> str:
    """Return the sign behind a word, by the largest value around it."""
    mark = {"gain": "⁺", "loss": "⁻", "match": "°"}.get(kind(word, largest), "")
    strong = mark in ("⁺", "⁻") and abs(word.value or 0.0) >= STRONG * largest
    return mark * 2 if strong else mark


# --- files ----------------------------------------------------------------------------------------------


class _Format(NamedTuple):
    """Format of blocks: frames around texts, and functions for texts and for tables."""

    paragraph: str
    heading: str
    strong: str
    marked: str  # around a heading and words
    literal: Callable[[str], str]
    table: Callable[[Table], str]


def _written(answer: Answer, how: _Format) -> Iterator[str]:
    for block in blocks(answer):
        match block:
            case TitledTable(title, table):
                yield (how.heading.format(how.literal(title)) if title else "") + how.table(table)
            case MarkedText(title, words):
                frames = ((how.strong if kind in _TELLING else "{}", text) for text, kind in words)
                said = " ".join(frame.format(how.literal(text)) for frame, text in frames)
                yield how.marked.format(how.literal(title), said + block.rest)
            case _:
                yield how.paragraph.format(how.literal(block))


def to_text(answer: Answer) -> str:
    """Return an answer as plain text."""
    plain = _Format(
        "{}", "\n{}", "{}", "{}:\n  {}", literal=str, table=lambda table: f"\n{table.to_text()}\n"
    )
    return "\n".join(_written(answer, plain))


def to_markdown(answer: Answer) -> str:
    """Return an answer as Markdown, the query quoted below its first sentence."""
    marked = _Format("{}", "**{}**\n\n", "**{}**", "**{}:** {}", literal=_literal, table=_in_markdown)
    first, *rest = _written(answer, marked)
    return "\n\n".join([first, f"> {_literal(answer.query.text)}", *rest]) + "\n"


def to_html(answer: Answer) -> str:
    """Return an answer as HTML for a notebook: the page is :func:`rankhouse.explanation.report.write`'s."""
    heading, marked = "<p><b>{}</b></p>", "<p><b>{}:</b> {}</p>"
    page = _Format("<p>{}</p>", heading, "<b>{}</b>", marked, literal=escape, table=Table.to_html)
    return "".join(_written(answer, page))


def _literal(text: str) -> str:
    """Return text of people's documents so that Markdown shows it as it stands, on one line."""
    return "".join(f"\\{c}" if c in "\\`*_[]<>#|~&" else c for c in " ".join(text.split()))


def _in_markdown(table: Table) -> str:
    """Return a table whose cells Markdown shows as they stand; columns of numbers stay numbers."""
    heads, *rows = (
        tuple(_literal(cell).replace("\\|", "|") for cell in row) for row in (table.columns, *table.rows)
    )
    return table._replace(columns=heads, rows=tuple(rows)).to_markdown().rstrip()
