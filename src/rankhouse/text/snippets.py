"""The passage of a text that answers a query best, with the places to highlight."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankhouse.text.analyze import Analyzer, Located

_BOUND = re.compile(r"(?<=[.!?])\s+|\n\s*")
"""End of a sentence or a line."""
_SPACES = ("  ", *"\t\n\v\f\r\x1c\x1d\x1e\x1f")
"""White space in ASCII besides a single space."""
_NEAR = 160
"""Characters within which it is looked for."""


class Snippet(NamedTuple):
    """An extract of a text on one line.

    Attributes:
        text: The extract, white space squeezed, with "…" where text was left out.
        marks: (start, end) of every matching word in it.
    """

    text: str
    marks: tuple[tuple[int, int], ...]


def snippet(text: str, weights: Mapping[str, float], analyzer: Analyzer, width: int = 200) -> Snippet:
    """Choose the window with the greatest weight of distinct query terms, the earliest of equals.

    Args:
        text: The document's text.
        weights: Query terms with their weights, for example idf.
        analyzer: The analyzer of words into terms.
        width: About how many characters to show.
    """
    text = _squeezed(text)
    matches = analyzer.matches(text, weights)
    best, _ = _heaviest(matches, weights, width)
    start = _word_start(text, max(0, best - width // 5)) if len(text) > width else 0
    end = _word_end(text, min(len(text), start + width))
    before, after = "… " if start else "", " …" if end < len(text) else ""
    shift = len(before) - start
    marks = tuple((a + shift, b + shift) for a, b, _ in matches if a >= start and b <= end)
    return Snippet(before + text[start:end] + after, marks)


class Window(NamedTuple):
    """A stretch of a text, in characters, and the weight of the distinct query terms in it."""

    start: int
    end: int
    weight: float


def windows(
    text: str, weights: Mapping[str, float], analyzer: Analyzer, width: int = 240, most: int = 1
) -> list[Window]:
    """Return the window with the greatest weight, then others that weigh as much; none overlaps another.

    They begin and end with sentences or lines where those are near, else with words.

    Args:
        text: The document's text; places are counted in it as it is.
        weights: Query terms with their weights.
        analyzer: The analyzer of words into terms.
        width: About how many characters a window has.
        most: How many windows.
    """
    matches = analyzer.matches(text, weights)
    found: list[Window] = []
    while matches and len(found) < most:
        begin, weight = _heaviest(matches, weights, width)
        if found and weight < found[0].weight - 1e-9:
            break
        last = max((b for a, b, _ in matches if begin <= a and b <= begin + width), default=begin)
        start, end = bounds(text, begin, max(last, min(begin + width // 2, len(text))))
        found.append(Window(start, end, weight))
        matches = [one for one in matches if one[1] <= start or one[0] >= end]
    return found


def bounds(text: str, start: int, end: int) -> tuple[int, int]:
    """Widen a stretch to whole sentences or lines where those end near it, else to whole words."""
    near = max(0, start - _NEAR)
    before = [match.end() for match in _BOUND.finditer(text, near, start)]
    begin = before[-1] if before else near and _word_start(text, near)
    after = _BOUND.search(text, end, min(len(text), end + _NEAR))
    if after:
        return min(begin, start), after.start()
    return min(begin, start), len(text) if len(text) <= end + _NEAR else _word_end(text, end)


def _squeezed(text: str) -> str:
    """Return a text with single spaces for all white space; most have no other, which is quick to check."""
    is_plain = not any(map(text.__contains__, _SPACES)) and (text.isascii() or text.isprintable())
    return text if is_plain and text == text.strip() else " ".join(text.split())


def _heaviest(matches: Sequence[Located], weights: Mapping[str, float], width: int) -> tuple[int, float]:
    """Return where the window of the greatest weight begins, the earliest of equals, and that weight."""
    best, best_worth, best_weight = 0, -1.0, 0.0
    last, inside, about = 0, dict[str, int](), 0.0  # about: the weight inside, but for rounding
    for first, (begin, _, term) in enumerate(matches):
        while last < len(matches) and matches[last][1] - begin <= width:
            met = matches[last][2]
            inside[met] = count = inside.get(met, 0) + 1
            about += weights[met] if count == 1 else 0.0
            last += 1
        # A second mention says a little more; ten of them do not outweigh another word of the query.
        if about + 0.01 * (last - first) > best_worth:
            weight = sum([weights[t] for t, count in inside.items() if count])
            worth = weight + 0.01 * (last - first)
            if worth > best_worth + 1e-9:
                best, best_worth, best_weight = begin, worth, weight
        if first < last:
            inside[term] -= 1
            about -= 0.0 if inside[term] else weights[term]
        else:  # a word wider than the window is in none
            last = first + 1
    return best, best_weight


def _word_start(text: str, at: int) -> int:
    return 0 if at == 0 else text.rfind(" ", 0, at) + 1


def _word_end(text: str, at: int) -> int:
    end = text.find(" ", at)
    # A "word" that goes on for long (a URL, a table) is cut rather than shown whole.
    return at if end > at + 40 else len(text) if end < 0 and len(text) <= at + 40 else max(end, at)
