"""Words and their numbers: counted once over a collection, kept with the model as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import FloatArray
from rankhouse.io.decoding import from_json
from rankhouse.io.files import read_whole
from rankhouse.io.outputs import replacing

PADDING = 0
UNKNOWN = 1
_FIRST = 2
_VERSION = 1


class _VocabularyFile(msgspec.Struct):
    """Contents of the JSON file; the lists run beside each other, a word a row."""

    rankhouse_vocabulary: int
    min_count: int
    documents: int
    words: list[str]
    counts: list[int]
    document_counts: list[int]


_decoder = msgspec.json.Decoder(_VocabularyFile)


class VocabularyEntry(NamedTuple):
    """One word of a vocabulary: how often it occurs, and in how many texts."""

    word: str
    occurrences: int
    documents: int


class Vocabulary:
    """An immutable list of words numbered from 2; 0 is padding, 1 is every word that is not listed.

    The order is by count, most frequent first, equal counts by the word itself, so that the same texts in
    any order give the same numbers. Every model family that looks words up holds one.

    Args:
        entries: The words in their final order.
        documents: How many texts were counted.
        min_count: The least count a listed word has.
    """

    def __init__(self, entries: Sequence[VocabularyEntry], documents: int, min_count: int) -> None:
        self.entries, self.documents, self.min_count = tuple(entries), documents, min_count
        self._ids: Mapping[str, int] = {entry.word: i for i, entry in enumerate(self.entries, _FIRST)}
        if len(self._ids) != len(self.entries):
            repeated = next(word for word, n in Counter(e.word for e in entries).items() if n > 1)
            raise BadData(f'the word "{repeated}" stands in the vocabulary twice; each word has one number')

    @classmethod
    def count(cls, texts: Iterable[Sequence[str]], min_count: int = 5) -> Vocabulary:
        """Count words over texts already split, one pass; memory grows with distinct words only.

        Args:
            texts: Each text as its words, in any order.
            min_count: Words that occur less often in all texts together are left out (paper of TK: 5).

        Raises:
            WrongUse: ``min_count`` is below 1.
            BadData: No word is frequent enough: there would be nothing to learn.
        """
        tally = Tally()
        for words in texts:
            tally.add(words)
        return tally.vocabulary(min_count)

    def __len__(self) -> int:
        """Number of ids, padding and unknown included."""
        return len(self.entries) + _FIRST

    def __contains__(self, word: str) -> bool:
        return word in self._ids

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Vocabulary) and self.to_json() == other.to_json()

    def __hash__(self) -> int:
        return hash((self.entries, self.documents))

    def __repr__(self) -> str:
        return f"<Vocabulary of {len(self.entries):,} words from {self.documents:,} texts>"

    @property
    def words(self) -> tuple[str, ...]:
        """The listed words; ``words[i]`` has the number i + 2."""
        return tuple(entry.word for entry in self.entries)

    def ids(self, words: Sequence[str]) -> list[int]:
        """Return each word's number; a word that is not listed gets 1."""
        get = self._ids.get
        return [get(word, UNKNOWN) for word in words]

    @cached_property
    def idf(self) -> FloatArray:
        """Inverse document frequency of every number, (v,) float32: ln((N + 1) / (n + 1)).

        N texts were counted and n of them hold the word. Padding has 0; an unknown word has n = 0, the most.
        """
        holding = np.array([0, 0, *(entry.documents for entry in self.entries)], dtype=np.float64)
        values = np.log((self.documents + 1) / (holding + 1))
        values[PADDING] = 0.0
        return values.astype(np.float32)

    def to_json(self) -> bytes:
        """Write the vocabulary as JSON; the same vocabulary always gives the same bytes."""
        columns = list(zip(*self.entries, strict=True)) or [(), (), ()]
        words, counts, spread = (list(column) for column in columns)
        return msgspec.json.encode(
            _VocabularyFile(
                _VERSION, self.min_count, self.documents, words, counts=counts, document_counts=spread
            )
        )

    @classmethod
    def from_json(cls, content: bytes, path: Path | str | None = None) -> Vocabulary:
        """Read what :meth:`to_json` wrote.

        Raises:
            BadData: It is not such JSON, of another version, or its columns differ in length.
        """
        wanted = "is no vocabulary of this program; write one with Vocabulary.save"
        held = from_json(_decoder, content, wanted, path)
        if held.rankhouse_vocabulary != _VERSION:
            raise BadData(
                f"is a vocabulary of version {held.rankhouse_vocabulary}; this program reads version "
                f"{_VERSION}; count it again or use the program that wrote it",
                path,
            )
        sizes = (len(held.words), len(held.counts), len(held.document_counts))
        if len(set(sizes)) != 1:
            raise BadData(f"words, counts and document_counts have {sizes} rows; they need the same", path)
        rows = zip(held.words, held.counts, held.document_counts, strict=True)
        return cls([VocabularyEntry(*row) for row in rows], held.documents, held.min_count)

    def save(self, path: Path) -> None:
        """Write the vocabulary to a JSON file, whole or not at all."""
        with replacing(path) as temporary:
            temporary.write_bytes(self.to_json())

    @classmethod
    def load(cls, path: Path) -> Vocabulary:
        """Read a vocabulary file.

        Raises:
            MissingInput: There is no such file.
            BadData: It is no vocabulary.
        """
        return cls.from_json(read_whole(path), path)


class Tally:
    """A count of words under way; memory grows with distinct words only."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._spread: Counter[str] = Counter()
        self._documents = 0

    def add(self, words: Sequence[str]) -> None:
        """Count one text's words."""
        self._counts.update(words)
        self._spread.update(set(words))
        self._documents += 1

    def vocabulary(self, min_count: int) -> Vocabulary:
        """Return the words counted ``min_count`` times or more; see :meth:`Vocabulary.count`."""
        if min_count < 1:
            raise WrongUse(f"min_count={min_count}: a listed word occurs at least 1 time; use 1 or more")
        counts = sorted((-count, word) for word, count in self._counts.items() if count >= min_count)
        if not counts:
            raise BadData(
                f"no word occurs {min_count} times or more in {self._documents:,} texts with "
                f"{len(self._counts):,} distinct words, so the vocabulary would be empty; "
                "give more text or lower min_count"
            )
        entries = [VocabularyEntry(word, -count, self._spread[word]) for count, word in counts]
        return Vocabulary(entries, self._documents, min_count)
