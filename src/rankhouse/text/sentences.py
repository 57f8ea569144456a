"""Sentences of a text, and where they stand in it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

from rankhouse.core.errors import MissingExtra

SentenceFinder = Callable[[str], Sequence[str]]
"""A text to its sentences, in order; together they must hold every word. nltk's sent_tokenize is one."""

Span = tuple[int, int]
"""A stretch of text: its first character and the one behind its last, in code points."""

_surrogates = re.compile("[\ud800-\udfff]")


def blingfire_sentences(text: str) -> list[str]:
    """Find sentences with BlingFire, each exactly as it stands in the text but for white space around it.

    BlingFire rewrites white space and leaves out control and zero-width characters between sentences, so its
    sentences are only looked up in the text, and the stretches from one beginning to the next are returned.

    Raises:
        MissingExtra: The package blingfire is not installed.
    """
    try:
        from blingfire import text_to_sentences  # noqa: PLC0415 - optional package, needed only here
    except ImportError as error:
        raise MissingExtra("splitting text into sentences", "neural") from error
    readable = text if text.isascii() else _surrogates.sub("\ufffd", text)  # as long as the text itself
    starts, behind = [0], 0
    for sentence in text_to_sentences(readable).split("\n"):
        at = readable.find(sentence[:1], behind)
        if at < 0:
            break  # what follows stays with the sentence before it: nothing is lost
        starts.append(at)
        behind = at + len(sentence)
    starts[1:2] = []  # what stands before the first sentence belongs to it
    ends = [*starts[1:], len(text)]
    return [piece for start, end in zip(starts, ends, strict=True) if (piece := text[start:end].strip())]


def places(text: str, pieces: Sequence[str]) -> Iterator[Span]:
    """Yield where pieces stand in a text that they come from, in order; those of white space are left out."""
    behind = 0
    for piece in map(str.strip, pieces):
        if piece:
            start = text.index(piece, behind)
            behind = start + len(piece)
            yield start, behind
