"""The Porter stemmer with its author's two later departures, as Lucene's English analyser runs it.

Source: M. F. Porter, "An algorithm for suffix stripping", Program 14(3), 1980. The departures are those of
the author's own published programs: ``-bli -> -ble`` stands in for ``-abli -> -able``, and ``-logi -> -log``
is added. Words of one or two characters are left alone.

A word is a row of consonant runs C and vowel runs V, ``[C](VC)^m[V]``; m is its measure. ``y`` is a vowel
after a consonant and a consonant elsewhere. Every character other than a, e, i, o, u and y is a consonant:
digits, apostrophes, accented letters and other scripts too. So "café" ends in a consonant, and "3.14s"
loses its s. Lucene counts UTF-16 units, so a character beyond U+FFFF counts as two here as well.

Rules are tried in the order of the paper, at most one per step, the longest suffix first; a suffix that
matches ends its step even when its condition fails.
"""

from __future__ import annotations

import re

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
    """Stem one lower-case word; upper-case letters would count as consonants. Never empty for a word."""
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
