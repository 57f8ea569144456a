"""Words as Lucene's StandardTokenizer finds them: Unicode's word boundaries (UAX #29) and emoji (UTS #51).

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

import re
from collections.abc import Iterator
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from rankhouse.text.characters import RANGES

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
def _kind_of_every_character() -> NDArray[np.uint8]:
    kinds = np.full(0x110000, ord("x"), dtype=np.uint8)
    for kind, ranges in RANGES.items():
        for part in ranges.split():
            first, _, last = part.partition("-")
            kinds[int(first, 16) : int(last or first, 16) + 1] = ord(kind)
    kinds.flags.writeable = False
    return kinds


def kinds(text: str) -> str:
    """Spell a text as kinds of characters: a string of the same length."""
    points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), dtype="<u4")
    spelled: bytes = _kind_of_every_character()[points].tobytes()
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
