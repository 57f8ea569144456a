"""The passage of a text that answers a query best, with the places to highlight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from rankhouse.text.analyze import Analyzer


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
        analyzer: What turns words into terms.
        width: About how many characters to show.
    """
    text = " ".join(text.split())
    matches = [(a, b, term) for a, b, term in analyzer.spans(text) if term in weights]
    best, best_worth = 0, -1.0
    last, inside = 0, Counter[str]()
    for first, (begin, _, term) in enumerate(matches):
        while last < len(matches) and matches[last][1] - begin <= width:
            inside[matches[last][2]] += 1
            last += 1
        # A second mention says a little more; ten of them do not outweigh another word of the query.
        worth = sum(weights[t] for t, count in inside.items() if count) + 0.01 * (last - first)
        if worth > best_worth + 1e-9:
            best, best_worth = begin, worth
        if first < last:
            inside[term] -= 1
        else:  # a word wider than the window is in none
            last = first + 1
    start = _word_start(text, max(0, best - width // 5)) if len(text) > width else 0
    end = _word_end(text, min(len(text), start + width))
    before, after = "… " if start else "", " …" if end < len(text) else ""
    shift = len(before) - start
    marks = tuple((a + shift, b + shift) for a, b, _ in matches if a >= start and b <= end)
    return Snippet(before + text[start:end] + after, marks)


def _word_start(text: str, at: int) -> int:
    return 0 if at == 0 else text.rfind(" ", 0, at) + 1


def _word_end(text: str, at: int) -> int:
    end = text.find(" ", at)
    # A "word" that goes on for long (a URL, a table) is cut rather than shown whole.
    return at if end > at + 40 else len(text) if end < 0 and len(text) <= at + 40 else max(end, at)
