"""Pseudo-queries: questions that documents ask themselves, where nobody has asked any.

Kinds: the title; headings; the first sentence; sentences that are questions; spans of words that few
documents have (after the sampling of query terms in "Weak supervision", Dehghani et al. 2017); keywords
picked out of a document; cropped sentences (the inverse cloze task, Lee et al. 2019); phrases behind the
opening of a question, so that a student meets words like "what is the" and learns how little they say; and
what a model that is handed in writes (doc2query, Nogueira et al. 2019). A document's draws depend on the seed
and its id.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document
from rankhouse.core.sameness import normalised
from rankhouse.core.sampling import generator, short_lot

_CLAUSE_ENDS = re.compile(r"[^\w\s'’-](?=\s|$)|[()\[\]{}\"“”„«»|/\n]|(?<=\s)[^\w\s]")
SENTENCE_ENDS = re.compile(r"(?<=[.!?])\s+|\n\s*\n")
WORDS = re.compile(r"\w+(?:[-'’.,]\w+)*")

_TRIES = 8
_TELLING = 0.1
"""A word of more of the documents does not say what a text is about, unless it stands in no other one."""


class WordCounts:
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


WRITTEN: Final = "doc2query"
"""The kind of question that a model writes."""

OPENINGS: Final = (
    "what is", "what is the", "what are", "what does", "what causes", "how to", "how do", "how does",
    "how long", "how much", "how many", "why", "why do", "when", "where is", "who is", "which", "is", "can",
    "define", "definition of", "meaning of", "difference between", "types of", "cost of", "average",
)  # fmt: skip
"""Openings of English questions; give others for another language."""

_HEADING = re.compile(r"^(?:#+\s+|\d+(?:\.\d+)*\.?\s+)?(?P<text>\S.{2,80}?)\s*#*$")
_ALIKE = 0.8
"""Share of words that two questions of one document may have in common."""
_TWO, _LINKED = 0.6, 0.7
"""Share of questions with two phrases, and of these, the share joined by a common word."""
Writer = Callable[[Document], Sequence[str]]
"""Writes questions that a document answers; none where it shall not be asked."""


class PseudoQuery(NamedTuple):
    """A question, the document it was taken from, and how."""

    text: str
    doc_id: str
    kind: str


@dataclass(frozen=True)
class PseudoOptions:
    """Options of pseudo-queries.

    Attributes:
        kinds: Kinds, of :data:`KINDS`.
        words: Fewest and most words of a question.
        seed: Of all that is drawn.
        openings: Openings of questions of the kind "question".
    """

    kinds: tuple[str, ...] = ("title", "heading", "first", "asked", "span", "question", "keywords", "crop")
    words: tuple[int, int] = (2, 16)
    seed: int = 0
    openings: tuple[str, ...] = OPENINGS

    def __post_init__(self) -> None:
        for kind in self.kinds:
            choose(kind, KINDS, "kind of pseudo-query")
        if not self.kinds or not self.openings:
            raise WrongUse(f"kinds={self.kinds}, openings={self.openings}: give one or more of each")
        check_least(self, 0, "seed")
        if not 1 <= self.words[0] <= self.words[1]:
            raise WrongUse(f"words={self.words}: the fewest words of a question, from 1, then the most")


@dataclass(frozen=True)
class QuerySource:
    """A document to be asked about: its words, and what is drawn from them."""

    document: Document
    words: WordCounts
    rng: np.random.Generator
    options: PseudoOptions
    writer: Writer | None = None

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
        """Weights of words for the topic of the text; higher if a word is repeated."""
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


def _headings(source: QuerySource) -> Iterator[list[str]]:
    """Find lines that stand alone, do not end as sentences do, and have text below."""
    lines = source.document.text.split("\n")
    for line, following in zip(lines, [*lines[1:], ""], strict=True):
        match = _HEADING.match(line.strip())
        if (
            match
            and (line.lstrip().startswith("#") or not following.strip())
            and line.strip()[-1] not in ".,;:"
        ):
            yield WORDS.findall(match["text"])


def _asked(source: QuerySource) -> Iterator[list[str]]:
    """Find sentences that are questions."""
    for part in SENTENCE_ENDS.split(source.document.text):
        if part.rstrip().endswith("?"):
            yield WORDS.findall(part)


def _questions(source: QuerySource) -> Iterator[list[str]]:
    """Put one or two phrases behind an opening; a common word of the text may join them."""
    if not source.clauses:
        return
    rng, openings = source.rng, source.options.openings
    for _ in range(3):
        opening, phrase = openings[int(rng.integers(len(openings)))].split(), source.phrase()
        if rng.random() < _TWO and not set(more := source.phrase()) & set(phrase):
            link = source.common if rng.random() < _LINKED else []
            phrase = [*phrase, *(link and [link[int(rng.integers(len(link)))]]), *more]
        yield [*opening, *phrase]


def _keywords(source: QuerySource) -> Iterator[list[str]]:
    """Pick words by weight and chance, in the order in which they come."""
    words = list(dict.fromkeys(word for sentence in source.sentences for word in sentence if len(word) > 2))
    chance = source.rng.gumbel(size=len(words))
    ranked = sorted(range(len(words)), key=lambda i: -(source.words.weight(words[i]) + chance[i]))
    chosen = ranked[: int(source.rng.integers(2, 6))]
    yield [words[i] for i in sorted(chosen)]


KINDS: Final[dict[str, Callable[[QuerySource], Iterable[list[str]]]]] = {
    "title": lambda source: [WORDS.findall(source.document.title)],
    "heading": _headings,
    "first": lambda source: source.sentences[:1],
    "asked": _asked,
    "span": lambda source: [source.distinctive(2, 6) for _ in range(2)],
    "question": _questions,
    "keywords": _keywords,
    "crop": lambda source: [source.crop(4, 12)],
    WRITTEN: lambda source: map(WORDS.findall, source.writer(source.document)) if source.writer else (),
}
"""Name -> how a document asks."""


class PseudoQueries(NamedTuple):
    """Pseudo-queries of documents.

    Attributes:
        queries: Kept, document by document.
        dropped: Why others were not -> some of them.
        counts: Why others were not -> how many.
        silent: Documents that ask nothing.
    """

    queries: list[PseudoQuery]
    dropped: dict[str, list[PseudoQuery]]
    counts: Counter[str]
    silent: int


SHORT, LONG, COMMON = "too few words", "too many words", "words that every document has"
TWICE, ALIKE, AVOIDED = "asked by another document", "nearly the same question", "a question to be kept apart"
_SHOWN = 200


def ask(
    documents: Iterable[Document],
    words: WordCounts,
    options: PseudoOptions | None = None,
    avoid: Sequence[str] = (),
    writer: Writer | None = None,
) -> PseudoQueries:
    """Have documents ask about themselves.

    Questions that several documents ask are no one's, and dropped; so are those of one document that are
    nearly the same, and those that are to be kept apart.

    Args:
        words: Of the whole collection.
        avoid: Questions that must not be asked: those of a test.
        writer: Writes the questions of the kind "doc2query"; there are none without it.

    Raises:
        BadData: No document asks anything.
    """
    options, apart = options or PseudoOptions(), {normalised(text) for text in avoid}
    asked = PseudoQueries([], {}, Counter(), 0)
    silent, found = 0, list[PseudoQuery]()
    for document in documents:
        rng = generator(options.seed, short_lot(options.seed, document.id))
        own = list(_of_document(QuerySource(document, words, rng, options, writer=writer), asked))
        silent += not own
        found += own
    keys = Counter(_key(query.text) for query in found)
    for query in found:
        is_shared = keys[_key(query.text)] > 1
        if is_shared or normalised(query.text) in apart:
            drop(query, TWICE if is_shared else AVOIDED, asked.dropped, asked.counts)
        else:
            asked.queries.append(query)
    if not asked.queries:
        raise BadData(
            f"none of {words.documents:,} documents asks a question of {options.words[0]} to "
            f"{options.words[1]} words that is its own; allow more kinds, or more words"
        )
    return asked._replace(silent=silent)


def _of_document(source: QuerySource, asked: PseudoQueries) -> Iterator[PseudoQuery]:
    kept, (fewest, most) = list[set[str]](), source.options.words
    for kind in source.options.kinds:
        for parts in KINDS[kind](source):
            query = PseudoQuery(" ".join(parts), source.document.id, kind)
            own, reason = {part.lower() for part in parts}, ""
            if not fewest <= len(parts) <= most:
                reason = SHORT if len(parts) < fewest else LONG
            elif all(map(source.words.is_common, parts)):
                reason = COMMON
            elif any(len(own & other) >= _ALIKE * len(own | other) for other in kept):
                reason = ALIKE
            if reason:
                drop(query, reason, asked.dropped, asked.counts)
            else:
                kept.append(own)
                yield query


def drop(
    query: PseudoQuery, reason: str, dropped: dict[str, list[PseudoQuery]], counts: Counter[str]
) -> None:
    """Count a question that is thrown away, and keep it if it is among the first of its reason."""
    if not query.text:
        return
    counts[reason] += 1
    some = dropped.setdefault(reason, [])
    if len(some) < _SHOWN:
        some.append(query)


def _key(text: str) -> str:
    """Return what near-duplicates have in common: their words, sorted."""
    return " ".join(sorted(set(normalised(text).split())))
