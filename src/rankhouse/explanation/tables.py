"""Answers as tables: parts, differences of two, a ranking, grids."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import zip_longest

from rankhouse.explanation.answer import Explanation, Grid, Part
from rankhouse.explanation.contrast import Contrast
from rankhouse.explanation.numbers import number, signed
from rankhouse.explanation.rankings import RankingExplanation
from rankhouse.page.tables import Table

MOST_PARTS = 12
"""Parts shown at the top of a tree; every level below shows a third as many."""
TELLING = 0.1
"""Share of the largest part from which a finer one is shown; a page shows all."""


def _least(parts: Sequence[Part]) -> float:
    """Return from what size a finer part is shown."""
    return TELLING * max((abs(part.value) for part in parts), default=0.0)


def parts_table(answer: Explanation, most: int = MOST_PARTS) -> Table:
    """Return the tree of parts, the largest first, finer parts indented below theirs."""
    rows = tuple(_tree(answer.parts, most, _least(answer.parts)))
    notes = any(row[2] for row in rows)
    columns = ("part", answer.unit or "value", "")
    return Table(columns if notes else columns[:2], rows if notes else tuple(row[:2] for row in rows))


def _tree(parts: Sequence[Part], most: int, least: float, depth: int = 0) -> Iterator[tuple[str, str, str]]:
    """Walk over the largest parts, depth first; finer ones only where they are large."""
    falling = sorted(parts, key=lambda part: -abs(part.value))
    if depth:
        falling = [part for part in falling if abs(part.value) >= least][:most]
    for part in falling[:most]:
        yield _indented(part.name, depth), signed(part.value), part.note
        yield from _tree(part.parts, most // 3, least, depth + 1)
        if part.why is not None and most // 3 and not part.parts:
            yield _indented(f"why {number(part.why.score)} ({part.why.unit})", depth + 1), "", part.why.method
            yield from _tree(part.why.parts, most // 3, _least(part.why.parts), depth + 2)
    if len(falling) > most > 0:
        left = falling[most:]
        yield _indented(f"{len(left):,} more", depth), signed(sum(part.value for part in left)), ""


def contrast_table(answer: Contrast, most: int = MOST_PARTS) -> Table:
    """Return one row a part: what it gives either document, and the difference."""
    first, second = answer.first, answer.second
    parts = [part for part in answer.parts if part.value or any(part.facts.values())]
    rows = [*_difference_tree(parts, most, _least(parts))]
    rows.append(("score", number(first.score), number(second.score), signed(answer.score)))
    return Table(
        ("part", short(first.doc_id, 24), short(second.doc_id, 24), "difference"),
        tuple(rows),
        frozenset({(len(rows) - 1, 3)}),
    )


def _difference_tree(
    parts: Sequence[Part], most: int, least: float, depth: int = 0
) -> Iterator[tuple[str, str, str, str]]:
    if depth:
        parts = [part for part in parts if abs(part.value) >= least][:most]
    for part in parts[:most]:
        sides = [signed(part.facts[side]) if side in part.facts else "" for side in ("first", "second")]
        yield _indented(part.name, depth), sides[0], sides[1], signed(part.value)
        yield from _difference_tree(part.parts, most // 3, least, depth + 1)
    if len(parts) > most > 0:
        left = parts[most:]
        yield _indented(f"{len(left):,} more", depth), "", "", signed(sum(part.value for part in left))


def ranking_table(answer: RankingExplanation) -> Table:
    """Return one row a document: its rank and score, and what sets it above the next."""
    rows = []
    for rank, one, step in zip_longest(answer.ranks, answer.documents, answer.steps):
        lead = signed(step.score) if step else ""
        rows.append((f"{rank:,}", one.doc_id, number(one.score), lead, because(step) if step else ""))
    unit = answer.documents[0].unit if answer.documents else "score"
    return Table(("rank", "document", unit, "above the next", "by"), tuple(rows))


def because(step: Contrast, most: int = 3) -> str:
    """Name the parts that separate two documents."""
    counted = [part for part in step.parts if part.value][:most]
    if step.score == 0:
        return "a tie: ids decide"
    return ", ".join(f"{short(part.name, 30)} {signed(part.value)}" for part in counted)


def grid_table(grid: Grid) -> Table:
    """Return a grid as a table."""
    rows = (
        (name, *(f"{value:.3g}" for value in row)) for name, row in zip(grid.rows, grid.values, strict=True)
    )
    return Table(("", *grid.columns), tuple(rows))


def _indented(name: str, depth: int) -> str:
    return "· " * depth + short(name, 60)


def short(text: str, most: int) -> str:
    """Return a text on one line, cut at its end."""
    text = " ".join(text.split())
    return text if len(text) <= most else f"{text[: most - 1]}…"
