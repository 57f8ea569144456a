"""Analysers: text -> the terms an index holds.

``english``
    Lucene's English analyser as Anserini builds it: words by ``breaks`` (its StandardTokenizer), a
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
from collections.abc import Callable, Iterable, Iterator

from rankhouse.text import word_breaks as breaks
from rankhouse.text.characters import as_it_is

_STOPPED = (
    "a an and are as at be but by for if in into is it no not of on or such that the their then there these "
    "they this to was will with"
)
STOP_WORDS = frozenset(_STOPPED.split())
_POSSESSIVES = tuple(mark + s for mark in "'’＇" for s in "sS")
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
        if len(word) <= breaks.MAX_WORD_UNITS:  # longer ones come from white space only, and once
            if len(self) >= _CACHED_TERMS:
                self.clear()
            self[word] = term
        return term


class Analyzer:
    """Turns text into terms. Immutable; equal, hashed and pickled by its name and its functions.

    Args:
        name: What manifests and command lines call it.
        split: text -> raw words, in order.
        locate: text -> (start, end, raw word), the same words with their place in the text, in characters.
        normal: Raw word -> term, "" to drop it. All must be functions of a module, so that worker
            processes can be handed the analyser.
    """

    __slots__ = ("_bricks", "_locate", "_split", "_terms")

    def __init__(
        self,
        name: str,
        split: Callable[[str], list[str]],
        locate: Callable[[str], Iterable[Located]],
        normal: Callable[[str], str],
    ) -> None:
        self._bricks = (name, split, locate, normal)
        self._split, self._locate, self._terms = split, locate, _Terms(normal)

    @property
    def name(self) -> str:
        """The name in the table of analysers."""
        return self._bricks[0]

    @property
    def normal(self) -> Callable[[str], str]:
        """The function behind :meth:`term`, for callers that remember its answers themselves."""
        return self._bricks[3]

    def words(self, text: str) -> list[str]:
        """Split a text into raw words: keys for :meth:`term`, cased and inflected as they stand."""
        return self._split(text)

    def term(self, word: str) -> str:
        """Return the term of one raw word, or "" where the word is dropped."""
        return self._terms[word]

    def __call__(self, text: str) -> list[str]:
        """Return the terms of a text, in order."""
        return list(filter(None, map(self._terms.__getitem__, self._split(text))))

    def spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Yield (start, end, term): each term with the characters of the text it came from."""
        for start, end, word in self._locate(text):
            if term := self._terms[word]:
                yield start, end, term

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


def lower(text: str) -> str:
    """Lower-case character by character, as Java's Character.toLowerCase does: no final sigma, İ -> i."""
    if text.isascii() or not ("Σ" in text or "İ" in text):
        return text.lower()
    return "".join([character.lower()[0] for character in text])


def english_term(word: str) -> str:
    """Possessive off, lower case, stop words dropped, stemmed: the term of a word in English text."""
    term = lower(word[:-2] if word.endswith(_POSSESSIVES) else word)
    return "" if term in STOP_WORDS else stem(term)


def locate_words(text: str) -> list[Located]:
    """Words by Unicode's rules with their places; the words are those of ``breaks.words``."""
    return [(start, end, text[start:end]) for start, end in breaks.spans(text)]


def locate_tokens(text: str) -> list[Located]:
    """White-space separated tokens with their places; the tokens are those of ``str.split``."""
    return [(*match.span(), match.group()) for match in re.finditer(r"\S+", text)]


def english() -> Analyzer:
    """English text, token for token as Lucene's EnglishAnalyzer under Anserini."""
    return Analyzer("english", breaks.words, locate_words, english_term)


def tweet() -> Analyzer:
    """Tweets, token for token as Anserini's TweetAnalyzer."""
    from rankhouse.text import tweets  # noqa: PLC0415 - its expressions take long to make

    return Analyzer("tweet", tweets.words, tweets.locate, tweets.term)


def whitespace() -> Analyzer:
    """Text analysed elsewhere: split on white space, nothing else."""
    return Analyzer("whitespace", str.split, locate_tokens, as_it_is)


ANALYZERS: dict[str, Callable[[], Analyzer]] = {"english": english, "tweet": tweet, "whitespace": whitespace}


# --- Porter's stemmer ------------------------------------------------------------------------------------

# y opens a word as a consonant, so the first run is matched possessively: it may not be given back.
_CONSONANTS = "[^aeiou][^aeiouy]*"
_VOWELS = "[aeiouy][aeiou]*"
_has_vowel = re.compile(f"(?>(?:{_CONSONANTS})?)[aeiouy]").match
_above_0 = re.compile(f"(?>(?:{_CONSONANTS})?){_VOWELS}[^aeiou]").match
_above_1 = re.compile(f"(?>(?:{_CONSONANTS})?){_VOWELS}{_CONSONANTS}{_VOWELS}[^aeiou]").match
_is_short = re.compile(f"(?:{_CONSONANTS})[aeiouy][^aeiouwxy]").fullmatch  # measure 1, ends c-v-c
_beyond_bmp = re.compile("[\U00010000-\U0010ffff]").search

# Suffix -> replacement, found by the suffix's last but one letter (step 2) or last letter (step 3).
_STEP_2 = {
    "a": (("ational", "ate"), ("tional", "tion")),
    "c": (("enci", "ence"), ("anci", "ance")),
    "e": (("izer", "ize"),),
    "g": (("logi", "log"),),
    "l": (("bli", "ble"), ("alli", "al"), ("entli", "ent"), ("ousli", "ous"), ("eli", "e")),
    "o": (("ization", "ize"), ("ation", "ate"), ("ator", "ate")),
    "s": (("alism", "al"), ("iveness", "ive"), ("fulness", "ful"), ("ousness", "ous")),
    "t": (("aliti", "al"), ("iviti", "ive"), ("biliti", "ble")),
}
_STEP_3 = {
    "e": (("icate", "ic"), ("ative", ""), ("alize", "al")),
    "i": (("iciti", "ic"),),
    "l": (("ical", "ic"), ("ful", "")),
    "s": (("ness", ""),),
}
# By the last but one letter; "ion" must follow s or t, which stay.
_STEP_4 = {
    "a": ("al",),
    "c": ("ance", "ence"),
    "e": ("er",),
    "i": ("ic",),
    "l": ("able", "ible"),
    "n": ("ant", "ement", "ment", "ent"),
    "o": ("sion", "tion", "ou"),
    "s": ("ism",),
    "t": ("ate", "iti"),
    "u": ("ous",),
    "v": ("ive",),
    "z": ("ize",),
}


def stem(word: str) -> str:
    """Stem one lower-case word; upper-case letters would count as consonants. Never empty for a word.

    Porter's stemmer with its author's two later departures, as Lucene's English analyser runs it: M. F.
    Porter, "An algorithm for suffix stripping", Program 14(3), 1980. The departures are those of the author's
    own published programs: ``-bli -> -ble`` stands in for ``-abli -> -able``, and ``-logi -> -log`` is added.
    Words of one or two characters are left alone.

    A word is a row of consonant runs C and vowel runs V, ``[C](VC)^m[V]``; m is its measure. ``y`` is a vowel
    after a consonant and a consonant elsewhere. Every character other than a, e, i, o, u and y is a
    consonant: digits, apostrophes, accented letters and other scripts too. So "café" ends in a consonant, and
    "3.14s" loses its s. Lucene counts UTF-16 units, so a character beyond U+FFFF counts as two here as well.

    Rules are tried in the order of the paper, at most one per step, the longest suffix first; a suffix that
    matches ends its step even when its condition fails.
    """
    if not word.isascii() and _beyond_bmp(word):
        units = word.encode("utf-16-le", "surrogatepass")
        halves = "".join(chr(int.from_bytes(units[i : i + 2], "little")) for i in range(0, len(units), 2))
        return _stem(halves).encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return _stem(word)


def _stem(word: str) -> str:
    if len(word) < 3:
        return word
    if word[-1] == "s":
        word = _without_plural(word)
    if word.endswith(("ed", "ing")):
        word = _without_past(word)
    if word[-1] == "y" and _has_vowel(word, 0, len(word) - 1):
        word = word[:-1] + "i"
    if len(word) > 1:
        word = _replaced(word, _STEP_2.get(word[-2], ()))
        word = _replaced(word, _STEP_3.get(word[-1], ()))
        word = _step_4(word)
    return _step_5(word)


def _without_plural(word: str) -> str:
    """Step 1a: caresses -> caress, ponies -> poni, cats -> cat."""
    if word.endswith(("sses", "ies")):
        return word[:-2]
    return word if word[-2] == "s" else word[:-1]


def _without_past(word: str) -> str:
    """Step 1b: agreed -> agree, plastered -> plaster, hopping -> hop, filing -> file."""
    if word.endswith("eed"):
        return word[:-1] if _above_0(word, 0, len(word) - 3) else word
    stripped = word[:-2] if word[-1] == "d" else word[:-3]
    if not _has_vowel(stripped):
        return word
    if stripped.endswith(("at", "bl", "iz")):
        return stripped + "e"
    if _is_doubled(stripped):
        return stripped if stripped[-1] in "lsz" else stripped[:-1]
    return stripped + "e" if _is_short(stripped) else stripped


def _is_doubled(word: str) -> bool:
    """Whether a word ends in the same consonant twice."""
    last = word[-1:]
    if word[-2:-1] != last or last in "aeiou":
        return False
    if last != "y":
        return True
    run = len(word) - len(word.rstrip("y"))  # in a run of y, consonants and vowels take turns
    opens_as_consonant = run == len(word) or word[-run - 1] in "aeiou"
    return opens_as_consonant == (run % 2 == 1)


def _replaced(word: str, rules: tuple[tuple[str, str], ...]) -> str:
    """Step 2: relational -> relate, rationalization -> rationalize; step 3: triplicate -> triplic."""
    for suffix, replacement in rules:
        if word.endswith(suffix):
            end = len(word) - len(suffix)
            return word[:end] + replacement if _above_0(word, 0, end) else word
    return word


def _step_4(word: str) -> str:
    """Revival -> reviv, adoption -> adopt: the last suffix goes where much is left."""
    for suffix in _STEP_4.get(word[-2], ()):
        if word.endswith(suffix):
            end = len(word) - (3 if suffix.endswith("ion") else len(suffix))
            return word[:end] if _above_1(word, 0, end) else word
    return word


def _step_5(word: str) -> str:
    """Probate -> probat, rate -> rate, controll -> control."""
    if word[-1] == "e":
        stripped = word[:-1]
        if _above_1(stripped) or (_above_0(stripped) and not _is_short(stripped)):
            word = stripped
    return word[:-1] if word.endswith("ll") and _above_1(word) else word
