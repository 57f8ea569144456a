"""Analysers: text -> the terms an index holds.

``english``
    Lucene's English analyser as Anserini builds it: words by ``lucene`` (its StandardTokenizer), a
    possessive ``'s`` taken off, lower case, 33 stop words dropped, Porter's stemmer last. So "its" is no
    stop word and is indexed as "it".
``tweet``
    Anserini's analyser for tweets, see ``tweets``: keeps links, #tags and @names whole, no stop words.
``whitespace``
    Splits on white space and does nothing else: for text that was analysed elsewhere.

An analyser works in two steps, so that a builder can count raw words and normalise each distinct one once:
``words`` splits a text, ``term`` turns one of these words into its term, or into "" where it is dropped.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping

from rankhouse.text import lucene
from rankhouse.text.characters import as_it_is

_STOPPED = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
STOP_WORDS = frozenset(_STOPPED.split())
_SPOKEN = (
    "a about all also am an and any are as at be been being but by can could did do does doing for from get "
    "had has have having he her here him his how i if in into is it its just me my no not of on or our she "
    "should so some such than that the their them then there these they this those to too us very was we "
    "were what when where which who whom why will with would you your"
)
FUNCTION_WORDS = frozenset(_SPOKEN.split())
"""English words that say nothing of what a question is about."""
_POSSESSIVES = tuple(mark + s for mark in "'’＇" for s in "sS")


def is_function_word(word: str) -> bool:
    """Return whether a word, or what a possessive ending is taken off ("what's"), is a function word."""
    return (word[:-2] if word.endswith(_POSSESSIVES) else word).lower() in FUNCTION_WORDS


_CACHED_TERMS = 1 << 18  # about 40 MB; beyond it the cache is emptied

Located = tuple[int, int, str]


class _Terms(dict[str, str]):
    """Raw word -> term, made on first sight and forgotten when there are too many."""

    __slots__ = ("normal",)

    def __init__(self, normal: Callable[[str], str]) -> None:
        super().__init__()
        self.normal = normal

    def __missing__(self, word: str) -> str:
        term = self.normal(word)
        if len(word) <= lucene.MAX_WORD_UNITS:  # longer ones come from white space only, and once
            if len(self) >= _CACHED_TERMS:
                self.clear()
            self[word] = term
        return term


class Analyzer:
    """Turns text into terms. Immutable; equal, hashed and pickled by its name and its functions.

    Args:
        name: Its name in manifests and on the command line.
        split: text -> raw words, in order.
        locate: text -> (start, end, raw word), the same words with their place in the text, in characters.
        normal: Raw word -> term, "" to drop it.
        at_once: text -> the terms that these make of it, or None where it cannot tell.
        match: text, term of a word, wanted terms -> where those are in it, or None where it cannot tell. All
            must be functions of a module, so that worker processes can be handed the analyser.
    """

    __slots__ = ("_at_once", "_bricks", "_locate", "_match", "_split", "_terms")

    def __init__(
        self,
        name: str,
        split: Callable[[str], list[str]],
        locate: Callable[[str], Iterable[Located]],
        normal: Callable[[str], str],
        at_once: Callable[[str], list[str] | None] | None = None,
        match: Callable[[str, Callable[[str], str], dict[str, float]], list[Located] | None] | None = None,
    ) -> None:
        self._bricks = (name, split, locate, normal, at_once, match)
        self._split, self._locate, self._terms = split, locate, _Terms(normal)
        self._at_once, self._match = at_once, match

    @property
    def name(self) -> str:
        """The name in the table of analysers."""
        return self._bricks[0]

    @property
    def normal(self) -> Callable[[str], str]:
        """The function behind :meth:`term`, for callers that remember its answers themselves."""
        return self._bricks[3]

    @property
    def is_by_unicode(self) -> bool:
        """Whether the words are those of ``lucene.words``."""
        return self._split is lucene.words

    def words(self, text: str) -> list[str]:
        """Split a text into raw words: keys for :meth:`term`, cased and inflected as they stand."""
        return self._split(text)

    def term(self, word: str) -> str:
        """Return the term of one raw word, or "" where the word is dropped."""
        return self._terms[word]

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text, in order."""
        if self._at_once and (terms := self._at_once(text)) is not None:
            return terms
        return list(filter(None, map(self._terms.__getitem__, self._split(text))))

    def content(self, text: str) -> list[str]:
        """Return the terms of a question without its function words, unless there are no others."""
        words = [word for word in self._split(text) if not is_function_word(word)]
        return list(filter(None, map(self._terms.__getitem__, words))) or self(text)

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, term): each term with the characters of the text it came from."""
        for start, end, word in self._locate(text):
            if term := self._terms[word]:
                yield start, end, term

    def matches(self, text: str, wanted: Mapping[str, float]) -> list[Located]:
        """Return those of :meth:`spans` whose terms are wanted."""
        if self._match and (found := self._match(text, self.term, dict(wanted))) is not None:
            return found
        return [one for one in self.spans(text) if one[2] in wanted]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Analyzer) and self._bricks == other._bricks

    def __hash__(self) -> int:
        return hash(self.name)

    def __reduce__(self) -> tuple[object, ...]:
        return Analyzer, self._bricks

    def __str__(self) -> str:
        return self.name

    def __repr__(self) -> str:
        return f"Analyzer({self.name!r})"


def english_term(word: str) -> str:
    """Possessive off, lower case, stop words dropped, stemmed: the term of a word in English text."""
    term = lucene.lower(word[:-2] if word.endswith(_POSSESSIVES) else word)
    return "" if term in STOP_WORDS else lucene.stem(term)


def english_terms(text: str) -> list[str] | None:
    """Return the terms of a plain English text by the compiled reader; None for other texts."""
    return lucene.plain_terms(text, STOP_WORDS, english_term)


def english_matches(text: str, term: Callable[[str], str], wanted: dict[str, float]) -> list[Located] | None:
    """Return where wanted terms are in a plain English text; None for other texts."""
    return lucene.plain_matches(text, STOP_WORDS, term, wanted)


def locate_words(text: str) -> list[Located]:
    """Words by Unicode's rules with their places; the words are those of ``lucene.words``."""
    return [(start, end, text[start:end]) for start, end in lucene.spans(text)]


def locate_tokens(text: str) -> list[Located]:
    """White-space separated tokens with their places; the tokens are those of ``str.split``."""
    return [(*match.span(), match.group()) for match in re.finditer(r"\S+", text)]


def english() -> Analyzer:
    """English text, token for token as Lucene's EnglishAnalyzer under Anserini."""
    return Analyzer(
        "english", lucene.words, locate_words, english_term, at_once=english_terms, match=english_matches
    )


def tweet() -> Analyzer:
    """Tweets, token for token as Anserini's TweetAnalyzer."""
    from rankhouse.text import tweets  # noqa: PLC0415 - its expressions take long to make

    return Analyzer("tweet", tweets.words, tweets.locate, tweets.term)


def whitespace() -> Analyzer:
    """Text analysed elsewhere: split on white space, nothing else."""
    return Analyzer("whitespace", str.split, locate_tokens, as_it_is, at_once=str.split)


ANALYZERS: dict[str, Callable[[], Analyzer]] = {"english": english, "tweet": tweet, "whitespace": whitespace}
