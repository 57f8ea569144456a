"""What pseudo-queries are drawn from: a text's sentences, clauses and phrases, weighed by its collection."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from rankhouse.core.nouns import Document

_CLAUSE_ENDS = re.compile(r"[^\w\s'’-](?=\s|$)|[()\[\]{}\"“”„«»|/\n]|(?<=\s)[^\w\s]")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
WORDS = re.compile(r"\w+(?:[-'’.,]\w+)*")

_TRIES = 8
_TELLING = 0.1
"""A word of more of the documents does not say what a text is about, unless it stands in no other one."""


class Words:
    """In how many documents of a collection each word is.

    Args:
        documents: All of them, streamed once; memory grows with the distinct words.
    """

    def __init__(self, documents: Iterable[Document]) -> None:
        self.documents, self._counts = 0, Counter[str]()
        for document in documents:
            self.documents += 1
            self._counts.update({word.lower() for word in WORDS.findall(document.full_text)})

    def weight(self, word: str) -> float:
        """Return how much a word tells documents apart: its inverse document frequency."""
        return math.log((1 + self.documents) / (0.5 + self._counts[word.lower()]))

    def is_common(self, word: str) -> bool:
        """Return whether a word is in a quarter of the documents or more."""
        return self.weight(word) < math.log(4)

    def tells(self, word: str) -> bool:
        """Return whether a word says what a text is about."""
        if len(word) < 3 or not any(map(str.isalpha, word)):
            return False
        return self._counts[word.lower()] <= max(1, _TELLING * self.documents)


@dataclass(frozen=True)
class Source:
    """A document to be asked about: its words, and what is drawn from them.

    Attributes:
        document: The document.
        words: Of the whole collection.
        rng: What draws.
    """

    document: Document
    words: Words
    rng: np.random.Generator

    @cached_property
    def sentences(self) -> list[list[str]]:
        """The words of each sentence."""
        parts = (WORDS.findall(part) for part in SENTENCE_ENDS.split(self.document.text))
        return [words for words in parts if words]

    @cached_property
    def clauses(self) -> list[tuple[list[str], list[int]]]:
        """The words between marks of punctuation, and the places of telling ones, where there are any."""
        clauses = (WORDS.findall(part) for part in _CLAUSE_ENDS.split(self.document.text))
        telling = ((words, [at for at, w in enumerate(words) if self.words.tells(w)]) for words in clauses)
        return [(words, places) for words, places in telling if places]

    @cached_property
    def common(self) -> list[str]:
        """The words of the text that are common, as often as they stand there."""
        words = (word for sentence in self.sentences for word in sentence)
        return [word for word in words if self.words.is_common(word)]

    def phrase(self) -> list[str]:
        """Return, of several drawn phrases, the one of the words that say most; chance makes it vary.

        A phrase is 1 to 4 words of a clause that begin and end with telling ones.
        """
        drawn = [self._phrase() for _ in range(_TRIES)]
        weights = [sum(self.topics[w.lower()] for w in phrase) / len(phrase) ** 0.5 for phrase in drawn]
        return drawn[int(np.argmax(weights + self.rng.gumbel(size=_TRIES)))]

    @cached_property
    def topics(self) -> dict[str, float]:
        """How much a word says what the text is about: its weight, more if it is repeated."""
        counts = Counter(word.lower() for sentence in self.sentences for word in sentence)
        return {w: self.words.weight(w) * math.log2(1 + n) * self.words.tells(w) for w, n in counts.items()}

    def _phrase(self) -> list[str]:
        clause, at = self.clauses[int(self.rng.integers(len(self.clauses)))]
        start = at[int(self.rng.integers(len(at)))]
        size = int(self.rng.integers(1, 5))
        end = max(place for place in at if start <= place < start + size)
        return clause[start : end + 1]

    def crop(self, fewest: int, most: int) -> list[str]:
        """Cut some words out of a sentence that is drawn by its length."""
        long = [words for words in self.sentences if len(words) >= fewest]
        if not long:
            return []
        sizes = np.array([len(words) for words in long], np.float64)
        words = long[int(self.rng.choice(len(long), p=sizes / sizes.sum()))]
        size = min(len(words), int(self.rng.integers(fewest, most + 1)))
        start = int(self.rng.integers(len(words) - size + 1))
        return words[start : start + size]

    def distinctive(self, fewest: int, most: int) -> list[str]:
        """Return the span, of several drawn, whose words tell most; a little chance makes it vary."""
        spans = [span for _ in range(_TRIES) if (span := self.crop(fewest, most))]
        weights = [np.mean([self.words.weight(w) for w in span]) + self.rng.random() for span in spans]
        return spans[int(np.argmax(weights))] if spans else []
