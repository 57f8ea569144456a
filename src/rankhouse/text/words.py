"""A text becomes sentences, and words for the models that know words by number (TK, KNRM, samCNN ...).

Indexing has its own analyzers (``text/analyze``): those stem and stop, these keep every word and sign,
because the models learn from them. A splitter is a plain function; its notation is part of a model's policy.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from platform import machine
from typing import Final

from rankhouse.core.errors import needs
from rankhouse.core.notation import make

SentenceFinder = Callable[[str], Sequence[str]]
"""A text to its sentences, in order; together they must hold every word. nltk's sent_tokenize is one."""

Span = tuple[int, int]
"""A span of text: its first character and the one behind its last, in code points."""

BLINGFIRE: Final = "blingfire" if machine() in {"x86_64", "AMD64"} else "livekit.blingfire"
"""The module of BlingFire: its authors' wheel holds x86-64 code alone, LiveKit's has builds for ARM too."""

_surrogates = re.compile("[\ud800-\udfff]")


def blingfire_sentences(text: str) -> list[str]:
    """Find sentences with BlingFire, each exactly as it stands in the text but for white space around it.

    BlingFire rewrites white space and leaves out control and zero-width characters between sentences, so its
    sentences are only looked up in the text, and the spans from one beginning to the next are returned.

    Raises:
        MissingExtra: The package blingfire is not installed.
    """
    with needs("neural", "splitting text into sentences"):
        text_to_sentences = import_module(BLINGFIRE).text_to_sentences
    readable = _encodable(text, "\ufffd")  # as long as the text itself
    starts, behind = [0], 0
    for sentence in text_to_sentences(readable).split("\n"):
        at = readable.find(sentence[:1], behind)
        if at < 0:
            break  # what follows stays with the sentence before it
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


Splitter = Callable[[str], list[str]]
"""A text to its words in reading order; an empty or blank text gives no words."""


def blingfire(lower: bool = True) -> Splitter:
    """Return the splitter of the TK authors: BlingFire's words, punctuation apart, then in lower case.

    Lower case comes after splitting, as in their indexing. Signs that BlingFire drops (control and
    zero-width characters) are no words. Lone surrogates, which no UTF-8 file holds, count as spaces.

    Raises:
        MissingExtra: The package blingfire is not installed.
    """
    with needs("neural", "splitting text into BlingFire words"):
        text_to_words = import_module(BLINGFIRE).text_to_words

    def split(text: str) -> list[str]:
        words: str = text_to_words(_encodable(text))
        return (words.lower() if lower else words).split()

    return split


def whitespace(lower: bool = False) -> Splitter:
    """Return the splitter of the samCNN authors for social media posts: split at white space, case kept."""

    def split(text: str) -> list[str]:
        text = _encodable(text)
        return (text.lower() if lower else text).split()

    return split


def _encodable(text: str, sign: str = " ") -> str:
    """Put a sign for every lone surrogate, which no UTF-8 file holds but a JSON escape can make."""
    return text if text.isascii() else _surrogates.sub(sign, text)


WORDS: dict[str, Callable[..., Splitter]] = {"blingfire": blingfire, "whitespace": whitespace}


def splitter(notation: str) -> Splitter:
    """Make a splitter from its notation: ``blingfire``, ``whitespace(lower=True)``.

    Raises:
        WrongUse: No such splitter, or it does not take these arguments.
        MissingExtra: Its package is not installed.
    """
    return make(notation, WORDS, "word splitter")
