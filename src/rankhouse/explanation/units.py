"""Texts as rows of units, sentences or words, that can be left out one by one."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

from rankhouse.text.lucene import spans
from rankhouse.text.words import blingfire_sentences, places

NO_WORDS = "no words"
"""The part of a score that a text without words has too."""

UNREAD_LISTED = 500
"""Most sentences or words behind a ranker's limit that are listed."""

_WORD = re.compile(r"\S+")


class Unit(NamedTuple):
    """A stretch of a text, up to where the next one begins."""

    text: str  # what it says, without white space around it
    start: int  # its first character in the text
    end: int  # behind its last character, white space before the next unit included
    size: int = 1  # how many sentences or words it is; more than 1 where neighbours were joined


def sentences_of(text: str) -> list[Unit]:
    """Cut a text into sentences; together they are the whole text."""
    return _stretches(text, [start for start, _ in places(text, blingfire_sentences(text))])


def words_of(text: str) -> list[Unit]:
    """Cut a text into words; together they are the whole text.

    Words are what white space separates; in runs with letters beyond ASCII, as of Chinese, what Unicode says
    they are.
    """
    starts: list[int] = []
    for match in _WORD.finditer(text):
        run = match.group()
        inside = [] if run.isascii() or "://" in run else spans(run)
        starts += [match.start(), *(match.start() + start for start, _ in inside[1:])]
    return _stretches(text, starts)


def cut(text: str, units: Sequence[Unit], end: int) -> tuple[list[Unit], list[Unit]]:
    """Part the units of a text into what is read and what is not; one that goes across is cut in two."""
    read = [(unit.start, min(unit.end, end)) for unit in units if unit.start < end]
    rest = [(max(unit.start, end), unit.end) for unit in units if unit.end > end]
    sides = [[Unit(text[a:b].strip(), a, b) for a, b in side] for side in (read, rest)]
    return [unit for unit in sides[0] if unit.text], [unit for unit in sides[1] if unit.text]


def joined(text: str, units: Sequence[Unit], most: int) -> list[Unit]:
    """Join neighbours evenly until there are at most so many units."""
    size = -(-len(units) // most)
    groups = [units[at : at + size] for at in range(0, len(units), size)] if size > 1 else []
    blocks = [(group[0].start, group[-1].end, sum(u.size for u in group)) for group in groups]
    return [Unit(text[start:end].strip(), start, end, n) for start, end, n in blocks] or list(units)


def without(text: str, units: Sequence[Unit], places: Collection[int]) -> str:
    """Return a text without the units at some places, from 0; what stays is as it stands."""
    if not places:
        return text
    kept = (text[unit.start : unit.end] for at, unit in enumerate(units) if at not in places)
    return "".join(kept).strip()


def numbered(names: Iterable[str], taken: Iterable[str] = ()) -> Iterator[str]:
    """Yield names, each different from all before it: a name's second appearance becomes "name (2nd)"."""
    seen = dict.fromkeys(taken, 1)
    for name in names:
        new = name
        while new in seen:
            seen[name] += 1
            new = f"{name} ({ordinal(seen[name])})"
        seen[new] = 1
        yield new


def ordinal(number: int) -> str:
    """Return 2 as "2nd"."""
    ending = "th" if number % 100 in {11, 12, 13} else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _stretches(text: str, starts: Sequence[int]) -> list[Unit]:
    """Cut a text at these places; what stands before the first belongs to it."""
    ends = [0, *starts[1:], len(text)] if starts else []
    return [Unit(text[start:end].strip(), start, end) for start, end in pairwise(ends)]
