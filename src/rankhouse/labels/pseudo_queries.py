"""Pseudo-queries: questions that documents ask themselves, where nobody has asked any.

Kinds: the title; headings; the first sentence; sentences that are questions; spans of words that few
documents have (after the sampling of query terms in "Weak supervision", Dehghani et al. 2017); keywords
picked out of a document; cropped sentences (the inverse cloze task, Lee et al. 2019); phrases behind the
opening of a question, so that a pupil meets words like "what is the" and learns how little they say; and what
a model that is handed in writes (doc2query, Nogueira et al. 2019). A document's draws depend on the seed and
its id.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from rankhouse.core.arguments import check_least
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document
from rankhouse.core.sameness import normalised
from rankhouse.core.sampling import generator, short_lot
from rankhouse.labels.pseudo_source import SENTENCE_ENDS, WORDS, Source, Words

WRITTEN: Final = "doc2query"
"""The kind of question that a model writes."""

OPENINGS: Final = (
    *("what is", "what is the", "what are", "what does", "what causes", "how to", "how do", "how does"),
    *(
        "how long",
        "how much",
        "how many",
        "why",
        "why do",
        "when",
        "where is",
        "who is",
        "which",
        "is",
        "can",
    ),
    *("define", "definition of", "meaning of", "difference between", "types of", "cost of", "average"),
)
"""How English questions begin; give others for another language."""

_HEADING = re.compile(r"^(?:#+\s+|\d+(?:\.\d+)*\.?\s+)?(?P<text>\S.{2,80}?)\s*#*$")
_ALIKE = 0.8
"""Share of words that two questions of one document may have in common."""
_TWO, _LINKED = 0.6, 0.7
"""How often a question has two phrases, and how often these are joined by a common word."""
Writer = Callable[[Document], Sequence[str]]
"""Writes questions that a document answers; none where it shall not be asked."""


class PseudoQuery(NamedTuple):
    """A question, the document it was taken from, and how."""

    text: str
    doc_id: str
    kind: str


@dataclass(frozen=True)
class PseudoOptions:
    """What is asked.

    Attributes:
        kinds: Which kinds, of :data:`KINDS`.
        words: Fewest and most words of a question.
        seed: Of all that is drawn.
        openings: What questions of the kind "question" begin with.
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
class _Source(Source):
    """A document, what it shall be asked, and who writes questions about it."""

    options: PseudoOptions
    writer: Writer | None = None


def _title(source: _Source) -> Iterator[list[str]]:
    yield WORDS.findall(source.document.title)


def _headings(source: _Source) -> Iterator[list[str]]:
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


def _first_sentence(source: _Source) -> Iterator[list[str]]:
    yield from source.sentences[:1]


def _spans(source: _Source) -> Iterator[list[str]]:
    yield source.distinctive(2, 6)
    yield source.distinctive(2, 6)


def _asked(source: _Source) -> Iterator[list[str]]:
    """Find sentences that are questions."""
    for part in SENTENCE_ENDS.split(source.document.text):
        if part.rstrip().endswith("?"):
            yield WORDS.findall(part)


def _questions(source: _Source) -> Iterator[list[str]]:
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


def _keywords(source: _Source) -> Iterator[list[str]]:
    """Pick words by weight and chance, in the order in which they come."""
    words = list(dict.fromkeys(word for sentence in source.sentences for word in sentence if len(word) > 2))
    chance = source.rng.gumbel(size=len(words))
    ranked = sorted(range(len(words)), key=lambda i: -(source.words.weight(words[i]) + chance[i]))
    chosen = ranked[: int(source.rng.integers(2, 6))]
    yield [words[i] for i in sorted(chosen)]


def _crops(source: _Source) -> Iterator[list[str]]:
    yield source.crop(4, 12)


def _written(source: _Source) -> Iterator[list[str]]:
    if source.writer is not None:
        yield from map(WORDS.findall, source.writer(source.document))


KINDS: Final[dict[str, Callable[[_Source], Iterator[list[str]]]]] = {
    "title": _title,
    "heading": _headings,
    "first": _first_sentence,
    "asked": _asked,
    "span": _spans,
    "question": _questions,
    "keywords": _keywords,
    "crop": _crops,
    WRITTEN: _written,
}
"""Name -> how a document asks."""


class PseudoQueries(NamedTuple):
    """What documents asked.

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
    words: Words,
    options: PseudoOptions | None = None,
    avoid: Sequence[str] = (),
    writer: Writer | None = None,
) -> PseudoQueries:
    """Have documents ask about themselves.

    Questions that several documents ask are no one's, and dropped; so are those of one document that are
    nearly the same, and those that are to be kept apart.

    Args:
        documents: Who asks; all, or some.
        words: Of the whole collection.
        options: What is asked.
        avoid: Questions that must not be asked: those of a test.
        writer: Writes the questions of the kind "doc2query"; there are none without it.

    Raises:
        BadData: No document asks anything.
    """
    options, apart = options or PseudoOptions(), {normalised(text) for text in avoid}
    asked = PseudoQueries([], {}, Counter(), 0)
    silent, found = 0, list[PseudoQuery]()
    for document in documents:
        own = list(_of_document(document, words, (options, writer), asked))
        silent += not own
        found += own
    keys = Counter(_key(query.text) for query in found)
    for query in found:
        if keys[_key(query.text)] > 1:
            drop(query, TWICE, asked.dropped, asked.counts)
        elif normalised(query.text) in apart:
            drop(query, AVOIDED, asked.dropped, asked.counts)
        else:
            asked.queries.append(query)
    if not asked.queries:
        raise BadData(
            f"none of {words.documents:,} documents asks a question of {options.words[0]} to "
            f"{options.words[1]} words that is its own; allow more kinds, or more words"
        )
    return asked._replace(silent=silent)


def _of_document(
    document: Document,
    words: Words,
    how: tuple[PseudoOptions, Writer | None],
    asked: PseudoQueries,
) -> Iterator[PseudoQuery]:
    options, writer = how
    rng = generator(options.seed, short_lot(options.seed, document.id))
    source, kept = _Source(document, words, rng, options, writer), list[set[str]]()
    for kind in options.kinds:
        for parts in KINDS[kind](source):
            query = PseudoQuery(" ".join(parts), document.id, kind)
            own = {part.lower() for part in parts}
            if reason := _fault(parts, words, options):
                drop(query, reason, asked.dropped, asked.counts)
            elif any(len(own & other) >= _ALIKE * len(own | other) for other in kept):
                drop(query, ALIKE, asked.dropped, asked.counts)
            else:
                kept.append(own)
                yield query


def _fault(parts: Sequence[str], words: Words, options: PseudoOptions) -> str:
    if len(parts) < options.words[0]:
        return SHORT
    if len(parts) > options.words[1]:
        return LONG
    return COMMON if all(map(words.is_common, parts)) else ""


def drop(
    query: PseudoQuery, reason: str, dropped: dict[str, list[PseudoQuery]], counts: Counter[str]
) -> None:
    """Count a question that is thrown away, and keep it if it is among the first of its reason.

    Args:
        query: The question; one without words was never asked.
        reason: Why.
        dropped: Reason -> some questions.
        counts: Reason -> how many.
    """
    if not query.text:
        return
    counts[reason] += 1
    some = dropped.setdefault(reason, [])
    if len(some) < _SHOWN:
        some.append(query)


def _key(text: str) -> str:
    """Return what near-duplicates have in common: their words, sorted."""
    return " ".join(sorted(set(normalised(text).split())))
