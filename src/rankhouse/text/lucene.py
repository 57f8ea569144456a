"""Words as Lucene finds, lower-cases and stems them.

Its StandardTokenizer finds them by Unicode's word boundaries (UAX #29) and emoji (UTS #51).

A text is first spelled as a string of kinds, one letter a character (see ``characters.RANGES``), and one
regular expression over that small alphabet finds the words. A text of plain letters, digits and punctuation,
the usual case, skips the spelling: an expression with the simpler half of the rules reads it as it stands.

What counts as a word, beyond the standard's rules:

* ideographs and hiragana stand alone, katakana stays together, so do runs of Thai, Lao, Khmer, Myanmar;
* joined emoji, flags, keycaps are words; a lone regional indicator, white space and punctuation are not;
* underscores belong to the word they touch, and are none by themselves;
* a word longer than 255 UTF-16 units is cut: the longest beginning of at most 255 units that is a word by
  itself is taken, and the search goes on behind it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from rankhouse.text.characters import RANGES

try:
    if os.environ.get("RANKHOUSE_NO_KERNEL"):
        raise ImportError
    from rankhouse.text import _porter
except ImportError:  # no compiler at install
    _porter = None  # type: ignore[assignment]

MAX_WORD_UNITS = 255  # Lucene's default, in UTF-16 units

_REACH = 2 * MAX_WORD_UNITS + 2
_WINDOW = 2 * _REACH

Span = tuple[int, int]


@cache
def _words_of_kinds() -> re.Pattern[str]:
    """Build the word expression over kinds. No part can be read in two ways, so nothing backtracks far."""
    # Repeated groups are atomic, (?>...): possessive ones, (...)*+, go wrong in Python before 3.11.5.
    marks = "[muzcvVMTC]*+"  # Extend, Format, joiner: they stay with the character before them
    calm = "[muzcMTC]*+"  # the same but for variation selectors, which end or turn an emoji
    # Behind a middle mark a Hebrew letter is a letter like any other: no quotation mark of its own.
    led = f"[aih]{marks}(?>(?:[:.']{marks}[aih]{marks})*)"
    hebrew = f"""h{marks}(?>(?:'{marks}|"{marks}h{marks}|[:.]{marks}{led})?)"""
    letter = f"(?:{hebrew}|[ai]{marks}(?>(?:[:.']{marks}{led})?))"
    digit = rf"(?:d{marks}(?>(?:[,.']{marks}(?=d))?))"
    run = rf"(?:(?>(?:K{marks})+)|(?>(?:{letter}|{digit})+))"
    # A word has at most 255 units, so a longer row of underscores opens none: this bounds the work.
    opening = rf"(?>(?:_[_muzcvVMTC]{{0,{MAX_WORD_UNITS - 1}}}+)?)"
    joins = rf"(?:_{marks})"
    word = rf"{opening}{run}(?>(?:(?>{joins}+){run})*)(?>{joins}*)"
    asian = rf"[tu][tmuzcvVMTC]*+|[HJ]{marks}"

    joiners = rf"z{{1,{MAX_WORD_UNITS}}}+"
    tail = rf"{calm}(?>(?:V(?>(?:zM{calm}|z++(?=[ei]))?))?)"
    chained = rf"(?>(?:(?<=z)[ei]{tail})*)"
    tagged = rf"(?:e|{joiners}[ei]){calm}VT++C"
    emoji = rf"(?:(?:e|{joiners}[ei]){tail}|M{calm}){chained}"
    letter_like = rf"i{tail}(?>(?:(?<=z)i{tail})*)(?<=z)e{tail}{chained}"  # else it is read as a letter
    flag = rf"R{marks}R{marks}"
    keycap = rf"#(?:{calm}Vc{calm}|[muzMTC]*+c{calm})"
    return re.compile(f"{letter_like}|{word}|{asian}|{tagged}|{emoji}|{flag}|{keycap}")


def _members(kinds_wanted: str, last: int = 0xFFFF) -> str:
    """Write the characters of some kinds, of ranges that begin up to a last one, as the inside of a [set]."""
    return "".join(
        "-".join(f"\\u{int(end, 16):04x}" for end in part.split("-"))
        for kind in kinds_wanted
        for part in RANGES[kind].split()
        if int(part.partition("-")[0], 16) <= last
    )


@cache
def _plain_words(*, in_ascii: bool) -> re.Pattern[str]:
    """Build the word expression for texts of plain letters, digits, marks between them and underscores.

    Most texts are ASCII, and the expression for them is made in a fortieth of the time.
    """
    members = partial(_members, last=0x7F if in_ascii else 0xFFFF)
    letters, digits, low = members("a"), members("d"), members("_")
    joins = (
        rf"[{members(':.,' + chr(39))}]"
        rf"(?:(?<=[{letters}][{members(':.' + chr(39))}])(?=[{letters}])"
        rf"|(?<=[{digits}][{members(',.' + chr(39))}])(?=[{digits}]))"
    )
    all_of_them = low + letters + digits
    return re.compile(
        rf"[{all_of_them}](?:(?<![{low}])|[{low}]{{0,{MAX_WORD_UNITS - 2}}}+[{letters}{digits}])"
        rf"[{all_of_them}]*+(?>(?:{joins}[{all_of_them}]++)*)"
    )


@cache
def _not_plain() -> re.Pattern[str]:
    return re.compile(f"[{_members('ihKJHtumzcvVe')}\U00010000-\U0010ffff]")


@cache
def _kind_of_characters(last: int = 0x10FFFF) -> NDArray[np.uint8]:
    kinds = np.full(last + 1, ord("x"), dtype=np.uint8)
    for kind, ranges in RANGES.items():
        for part in ranges.split():
            first, _, end = part.partition("-")
            kinds[int(first, 16) : int(end or first, 16) + 1] = ord(kind)
    kinds.flags.writeable = False
    return kinds


@cache
def plain_units() -> NDArray[np.uint8]:
    """Return what each UTF-16 unit is to the compiled reader of plain texts, as bits: (65,536,).

    1 a letter, 2 a digit, 4 an underscore, 8 a mark between letters, 16 a mark between digits, 32 what makes
    a text one that is not plain.
    """
    of_kind = np.zeros(128, np.uint8)
    for bit, members in ((1, "a"), (2, "d"), (4, "_"), (8, ":.'"), (16, ",.'"), (32, "ihKJHtumzcvVe")):
        of_kind[list(members.encode())] |= bit
    bits = of_kind[_kind_of_characters(0xFFFF)]
    bits[0xD800:0xE000] = 32
    bits.flags.writeable = False
    return bits


def plain_terms(text: str, stopped: frozenset[str], other: Callable[[str], str]) -> list[str] | None:
    """Return the English terms of a plain text, compiled; None for other texts, or without a compiler.

    Args:
        other: Word -> term, for words that are not ASCII.
    """
    return _porter.terms(text, plain_units(), stopped, other) if _porter else None


def plain_matches(
    text: str, stopped: frozenset[str], other: Callable[[str], str], wanted: dict[str, float]
) -> list[tuple[int, int, str]] | None:
    """Return (start, end, term) of those terms of a plain text that are wanted; None as above."""
    return _porter.matches(text, plain_units(), stopped, other, wanted) if _porter else None


def kinds(text: str) -> str:
    """Spell a text as kinds of characters: a string of the same length."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    spelled: bytes = _kind_of_characters()[points].tobytes()
    return spelled.decode("ascii")


def words(text: str) -> list[str]:
    """Split a text into words, as they stand in it."""
    if text.isascii() or not _not_plain().search(text):
        runs: list[str] = _plain_words(in_ascii=text.isascii()).findall(text)
        if len(text) <= MAX_WORD_UNITS or max(map(len, runs), default=0) <= MAX_WORD_UNITS:
            return runs
    return [text[start:end] for start, end in spans(text)]


def spans(text: str) -> list[Span]:
    """Find the words of a text as (start, end) in characters."""
    if text.isascii() or not _not_plain().search(text):
        pattern, subject = _plain_words(in_ascii=text.isascii()), text
    else:
        pattern, subject = _words_of_kinds(), kinds(text)
    places = [match.span() for match in pattern.finditer(subject)]
    # A character is at most two units, so shorter words need no second look.
    if len(text) > MAX_WORD_UNITS // 2 and any(end - start > MAX_WORD_UNITS // 2 for start, end in places):
        return list(_bounded(text, subject, pattern))
    return places


def _bounded(text: str, subject: str, pattern: re.Pattern[str]) -> Iterator[Span]:
    """Find the words of a text that has long ones, in windows: a long word is read once.

    Whether a word begins somewhere, and how its first 255 units read, shows within ``_REACH`` characters.
    """
    position = 0
    while position < len(subject):
        window = position + _WINDOW
        match = pattern.search(subject, position, window)
        if window < len(subject) and (match is None or match.start() > window - _REACH):
            position = window - _REACH
            continue
        if match is None:
            return
        start, end = match.span()
        limit = end_within_units(text, start, end)
        if limit == end:
            yield start, end
        else:
            piece = pattern.match(subject, start, limit)
            end = piece.end() if piece else start + 1
            if piece:
                yield start, end
        position = end


def end_within_units(text: str, start: int, end: int) -> int:
    """Cut ``text[start:end]`` to at most 255 UTF-16 units: the new end."""
    if 2 * (end - start) <= MAX_WORD_UNITS:
        return end
    most = min(end, start + MAX_WORD_UNITS)
    if max(text[start:most]) <= "\uffff":
        return most
    units = 0
    for position in range(start, end):
        units += 2 if text[position] > "\uffff" else 1
        if units > MAX_WORD_UNITS:
            return position
    return end


def lower(text: str) -> str:
    """Lower-case character by character, as Java's Character.toLowerCase does: no final sigma, İ -> i."""
    if text.isascii() or not ("Σ" in text or "İ" in text):
        return text.lower()
    return "".join([character.lower()[0] for character in text])


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
    if word.isascii():
        return _porter.stem(word) if _porter and len(word) <= MAX_WORD_UNITS else _stem(word)
    if _beyond_bmp(word):
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
