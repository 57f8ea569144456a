"""Documents become passages: whole, windows of sentences, blocks of words, windows of words.

A splitter is a frozen value, called with a document; ``str(splitter)`` is its notation. All of them keep the
same promises:

* passages are in the order of the document, numbered from 0, and none lies inside the one before it;
* every word of the document is in some passage; what ``dropped`` counts is the only exception;
* a document without text gives one passage, its title or nothing, so no document vanishes.

Words are what white space separates. Passages of sentences and words are joined again by single spaces.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from typing import NamedTuple, Protocol, runtime_checkable

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import name_of, write
from rankhouse.core.nouns import Document, Documents, Passage
from rankhouse.core.sampling import passage_lot
from rankhouse.text.words import SentenceFinder, Span, blingfire_sentences, places

_word = re.compile(r"\S+")  # what str.split() takes for a word

Split = Callable[[Document], Sequence[Passage]]
"""Function that cuts a document into passages: a :class:`Splitter`, or one of your own."""


@runtime_checkable
class Splitter(Protocol):
    """Anything that cuts documents into passages."""

    def __call__(self, document: Document) -> list[Passage]:
        """Cut a document: at least one passage."""
        ...

    def dropped(self, document: Document) -> int:
        """Count the words of a document, title included, that are in no passage."""
        ...


@runtime_checkable
class LocatingSplitter(Splitter, Protocol):
    """A splitter that knows where its passages come from."""

    def spans(self, document: Document) -> list[Span]:
        """Return where in the document's text each passage stands, the title before it not counted.

        What stands there is the passage's text but for white space. A document without text has one, (0, 0).
        """
        ...


def dropped_words(split: Split) -> Callable[[Document], int]:
    """Return what counts the words of a document that a split puts into no passage; 0 for a bare function."""
    return split.dropped if isinstance(split, Splitter) else lambda _: 0


@dataclass(frozen=True)
class Whole:
    """The document as one passage: title and text joined by a space."""

    def __call__(self, document: Document) -> list[Passage]:
        """Return the document itself."""
        return [Passage(document.id, 0, document.full_text)]

    def dropped(self, document: Document) -> int:  # noqa: ARG002 - the same question to every splitter
        """Count the words in no passage: none."""
        return 0

    def spans(self, document: Document) -> list[Span]:
        """Return where the passage stands in the document's text."""
        return [(0, len(document.text))]

    def __str__(self) -> str:
        return "whole"


@dataclass(frozen=True)
class Sentences:
    """Windows of sentences (monoT5: 10, moved on by 5, the last one is the first to reach the end).

    Source: Nogueira et al., "Document Ranking with a Pretrained Sequence-to-Sequence Model", 2020, section 4,
    as its authors' code does it. Deviation: a document without text keeps one passage, where it vanishes
    from the authors' run.

    Args:
        size: Sentences in a window.
        stride: Sentences from one window to the next, at most ``size``.
        max_chars: Read only so many characters of the text (the authors: 10,000); None reads all.
        title: Put "title. " before each window, as for MS MARCO documents; else a title counts as dropped.
        find: The finder of sentences.

    Raises:
        WrongUse: Numbers below 1, or a stride that skips sentences.
    """

    size: int = 10
    stride: int = 5
    max_chars: int | None = None
    title: bool = True
    find: SentenceFinder = field(default=blingfire_sentences, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_whole("sentences", 1, size=self.size, stride=self.stride)
        if self.max_chars is not None:
            check_whole("sentences", 1, max_chars=self.max_chars)
        _check_stride(self, self.size, self.stride)
        _check_finder(self, self.find)

    def __call__(self, document: Document) -> list[Passage]:
        """Return the windows, in order."""
        pieces = self.find(document.text[: self.max_chars])
        sentences = [s for sentence in pieces if (s := sentence.strip())]
        texts = [
            " ".join(sentences[start:end]) for start, end in _windows(len(sentences), self.size, self.stride)
        ]
        return _titled(document, texts, ". " if self.title else None)

    def spans(self, document: Document) -> list[Span]:
        """Return where each passage's sentences stand in the document's text."""
        text = document.text[: self.max_chars]
        sentences = list(places(text, self.find(text)))
        windows = _windows(len(sentences), self.size, self.stride)
        return [(sentences[start][0], sentences[end - 1][1]) for start, end in windows] or [(0, 0)]

    def dropped(self, document: Document) -> int:
        """Count the words behind ``max_chars``, the one it cuts included, and an unused title's."""
        missing = 0 if self.title or not document.text.strip() else len(document.title.split())
        if self.max_chars is None or len(document.text) <= self.max_chars:
            return missing
        read = len(document.text[: self.max_chars].split())
        in_a_word = not any(c.isspace() for c in document.text[self.max_chars - 1 : self.max_chars + 1])
        return missing + len(document.text.split()) - read + in_a_word

    def __str__(self) -> str:
        return _notation("sentences", self, self.size, self.stride)


@dataclass(frozen=True)
class Words:
    """Disjoint blocks of about so many words that end where sentences end (QA-DocRank: 100).

    The sentence that crosses the limit is finished in its passage. A passage never has more than twice
    ``limit`` words of text, though: a sentence too long for that is cut there and goes on in the next
    passage, so a text without full stops gives passages of ``2 * limit`` words. The title stands before
    each passage and is not counted.

    Source: the passage construction of QA-DocRank; the paper leaves long sentences open.

    Args:
        limit: Words after which a passage ends with its sentence.
        find: The finder of sentences.

    Raises:
        WrongUse: A limit below 1.
    """

    limit: int = 100
    find: SentenceFinder = field(default=blingfire_sentences, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_whole("words", 1, limit=self.limit)
        _check_finder(self, self.find)

    def __call__(self, document: Document) -> list[Passage]:
        """Return the blocks, in order."""
        return _titled(document, self._blocks(document.text), " ")

    def spans(self, document: Document) -> list[Span]:
        """Return where each passage's words stand in the document's text."""
        text = document.text
        words = [
            (match.start(), match.end())
            for start, end in places(text, self.find(text))
            for match in _word.finditer(text, start, end)
        ]
        ends = list(accumulate(len(block.split()) for block in self._blocks(text)))
        return [(words[a][0], words[b - 1][1]) for a, b in pairwise([0, *ends])] or [(0, 0)]

    def _blocks(self, text: str) -> list[str]:
        blocks: list[str] = []
        block: list[str] = []
        for sentence in self.find(text):
            words = sentence.split()
            taken = 0
            while taken < len(words):
                room = 2 * self.limit - len(block)
                block += words[taken : taken + room]
                taken += room
                if len(block) >= self.limit:
                    blocks.append(" ".join(block))
                    block = []
        return [*blocks, " ".join(block)] if block else blocks

    def dropped(self, document: Document) -> int:  # noqa: ARG002 - the same question to every splitter
        """Count the words in no passage: none."""
        return 0

    def __str__(self) -> str:
        return _notation("words", self, self.limit)


@dataclass(frozen=True)
class Windows:
    """Overlapping windows of words, sampled where there are many (Dai and Callan: 150 by 75, at most 30).

    Source: Dai and Callan, "Deeper Text Understanding for IR with Contextual Neural Language Modeling",
    SIGIR 2019, and its code. Deviations: the last window is the first to reach the end (theirs go on with
    suffixes of it); the sample is drawn from seed and document id and stays in the document's order; words
    are split at any white space.

    Beyond ``limit`` windows the first, the last and ``limit - 2`` random ones are kept: the words between
    them are what ``dropped`` counts. The title stands before each window.

    Args:
        size: Words in a window.
        stride: Words from one window to the next, at most ``size``.
        limit: Most windows kept, at least 2; None keeps all.
        seed: Changes the sample.
        title: Put the title before each window; else its words count as dropped.

    Raises:
        WrongUse: Numbers below 1, a limit below 2, or a stride that skips words.
    """

    size: int = 150
    stride: int = 75
    limit: int | None = 30
    seed: int = 0
    title: bool = True

    def __post_init__(self) -> None:
        check_whole("windows", 1, size=self.size, stride=self.stride)
        if self.limit is not None:
            check_whole("windows", 1, limit=self.limit)
            if self.limit == 1:
                raise WrongUse("windows: limit=1, but the first and the last window make at least 2")
        _check_stride(self, self.size, self.stride)

    def __call__(self, document: Document) -> list[Passage]:
        """Return the windows, or the first, a sample and the last, in order."""
        words = document.text.split()
        texts = [" ".join(words[start:end]) for start, end in self._kept(document.id, len(words))]
        return _titled(document, texts, " " if self.title else None)

    def spans(self, document: Document) -> list[Span]:
        """Return where each passage's words stand in the document's text."""
        words = [(match.start(), match.end()) for match in _word.finditer(document.text)]
        windows = self._kept(document.id, len(words))
        return [(words[start][0], words[end - 1][1]) for start, end in windows] or [(0, 0)]

    def _kept(self, doc_id: str, n_words: int) -> list[tuple[int, int]]:
        spans = list(_windows(n_words, self.size, self.stride))
        if self.limit is None or len(spans) <= self.limit:
            return spans
        order = sorted(range(1, len(spans) - 1), key=lambda i: passage_lot(self.seed, doc_id, i))
        return [spans[i] for i in (0, *sorted(order[: self.limit - 2]), len(spans) - 1)]

    def dropped(self, document: Document) -> int:
        """Count the words in windows that were not drawn, and an unused title's."""
        n_words = len(document.text.split())
        missing = 0 if self.title or not n_words else len(document.title.split())
        behind = 0
        for start, end in self._kept(document.id, n_words):
            missing += max(0, start - behind)
            behind = end
        return missing

    def __str__(self) -> str:
        return _notation("windows", self, self.size, self.stride)


SPLITTERS: dict[str, Callable[..., Splitter]] = {
    "whole": Whole,
    "sentences": Sentences,
    "words": Words,
    "windows": Windows,
}


def _windows(n: int, size: int, stride: int) -> Iterator[tuple[int, int]]:
    """Yield (start, end) of windows over n things; the last is the first that reaches the end."""
    for start in range(0, n, stride):
        yield start, min(start + size, n)
        if start + size >= n:
            return


def _titled(document: Document, texts: list[str], joint: str | None) -> list[Passage]:
    """Number the passages, the title before each; without text there is one passage, the title."""
    if not texts:
        return [Passage(document.id, 0, document.title)]
    before = f"{document.title}{joint}" if joint is not None and document.title.strip() else ""
    return [Passage(document.id, index, before + text) for index, text in enumerate(texts)]


def _notation(name: str, splitter: Sentences | Words | Windows, *shown: int) -> str:
    """Write a splitter: its main numbers in place, a limit always, the rest where it is not the usual."""
    fields = list(vars(splitter).items())[len(shown) :]
    options = {key: value for key, value in fields if key == "limit" or value != getattr(type(splitter), key)}
    if "find" in options:  # handed in from Python: cannot be read back, but tells its passages from others
        options["find"] = name_of(options["find"])
    return write(name, *shown, **options)


def _check_stride(splitter: object, size: int, stride: int) -> None:
    if stride > size:
        raise WrongUse(
            f"{type(splitter).__name__.lower()}: stride={stride} is larger than size={size}, so what lies "
            f"between two windows would be in no passage; choose a stride of at most {size}"
        )


def _check_finder(splitter: object, find: object) -> None:
    if not callable(find):
        raise WrongUse(
            f"{type(splitter).__name__.lower()}: find={find!r}, but it must be a function from a text to its "
            "sentences, handed in from Python; leave it out to use BlingFire"
        )


CACHED_CHARACTERS = 16_000_000
"""Characters of documents whose passages are kept: about three times as many bytes of memory."""


class _Cut(NamedTuple):
    document: Document
    passages: Sequence[Passage]


class SplitCache:
    """A splitter that keeps what it cut last; what comes out is what the splitter itself would give.

    Args:
        split: The splitter: one of ``text.split``, or a function of your own.
    """

    def __init__(self, split: Callable[[Document], Sequence[Passage]], size: int = CACHED_CHARACTERS) -> None:
        self._split, self._size = split, size
        self._kept: OrderedDict[str, _Cut] = OrderedDict()
        self._characters = 0

    def __call__(self, document: Document) -> Sequence[Passage]:
        """Cut a document, or find its passages again."""
        entry = self._kept.get(document.id)
        if entry is not None and entry.document == document:
            self._kept.move_to_end(document.id)
            return entry.passages
        if entry is not None:
            self._forget(document.id)
        cut = _Cut(document, self._split(document))
        self._kept[document.id] = cut
        self._characters += _size(document)
        while self._characters > self._size and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return cut.passages

    def by_id(self, doc_id: str, documents: Documents) -> Sequence[Passage]:
        """Cut a document of a collection that stays as it is, or find its passages without reading it again.

        Raises:
            KeyError: The collection does not have it.
        """
        entry = self._kept.get(doc_id)
        if entry is None:
            return self(documents[doc_id])
        self._kept.move_to_end(doc_id)
        return entry.passages

    def _forget(self, doc_id: str) -> None:
        self._characters -= _size(self._kept.pop(doc_id).document)


def _size(document: Document) -> int:
    return len(document.title) + len(document.text)


def readable(document: Document, split: Split) -> list[Passage]:
    """Return a document's passages that have text."""
    return [passage for passage in split(document) if passage.text.strip()]
