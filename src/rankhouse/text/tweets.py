"""Tweets as Anserini's TweetAnalyzer reads them: links, #tags and @names stay whole, the rest is words.

White space splits a tweet into tokens (of at most 255 UTF-16 units, as Lucene's tokenizer cuts them). A token
that is wholly a link is kept as it stands; a tag or a name is kept in lower case. Any other token is cut at
its first delimiter and the rest is read on in the same way: "ski-team" is two words, "U.S.A." is one and
"it's" has no delimiter, because quotation marks and the like are only dropped. What counts as an entity is
what Twitter's published text rules say.

Two habits of the original are kept, because indexes must agree:

* behind an entity, the remaining words of the same token are lower-cased but not stemmed
  ("@user:Foo-Running" gives "@user", "foo", "running");
* where two cuts are pending, a third one forgets the older rest.

One is not: the original also indexes an empty word for each delimiter between nothing ("..." is three), which
only lengthens documents.

A raw word that must stay as it is starts with a space, which no split word can hold.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator

from rankhouse.text.characters import lower
from rankhouse.text.porter import stem
from rankhouse.text.top_level_domains import TOP_LEVEL_DOMAINS
from rankhouse.text.word_breaks import MAX_WORD_UNITS

KEPT = " "

# White space as Java sees it: no-break spaces and U+0085 are none.
_tokens = re.compile("[^\t-\r\x1c-\x20\u1680\u2000-\u2006\u2008-\u200a\u2028\u2029\u205f\u3000]+")
_ENTITY_DELIMITERS = frozenset("#@_＃＠")
_DELIMITERS = frozenset('!"$%()*+,-/:;<=>?[\\]^`{|}~¬·…')  # . and & depend on what stands around them
_delimiter = re.compile(f"[{re.escape(''.join(sorted(_DELIMITERS)))}.&]").search

_LATIN = (
    "\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u024f\u0253\u0254\u0256\u0257\u0259\u025b"
    "\u0263\u0268\u026f\u0272\u0289\u028b\u02bb\u0300-\u036f\u1e00-\u1eff"
)
_PATH = rf"[A-Za-z0-9!*';:=+,.$/%#\[\]\-\u2013_~|&@{_LATIN}\u0400-\u04ff]"
_PATH_END = rf"[A-Za-z0-9=_#/\-+{_LATIN}\u0400-\u04ff]"
_BRACKETED = rf"\((?:{_PATH}+|{_PATH}*\({_PATH}+\){_PATH}*)\)"
_QUERY = r"[A-Za-z0-9!?*'();:&=+$/%#\[\]\-_.,~|@]*[A-Za-z0-9\-_&=#/]"
_url_parts = re.compile(
    r"(?P<protocol>[Hh][Tt][Tt][Pp][Ss]?://)?(?P<domain>[^/:?]+)(?::[0-9]++)?"
    rf"(?:/(?>(?:{_PATH}*(?:{_BRACKETED}{_PATH}*)*{_PATH_END}|{_BRACKETED}|@{_PATH}+/)*))?"
    rf"(?:\?{_QUERY})?"
).fullmatch
_no_url_before = re.compile("[A-Za-z0-9@＠$#＃\ufffe\ufeff\uffff\u202a-\u202e]").match
_label = re.compile(rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}\-]*[A-Za-z0-9{_LATIN}])?").fullmatch
_sub_label = re.compile(rf"[A-Za-z0-9{_LATIN}](?:[A-Za-z0-9{_LATIN}\-_]*[A-Za-z0-9{_LATIN}])?").fullmatch
# Any script's letters: all but punctuation, white space and the block of general punctuation.
_FOREIGN = r"""[^\-_!"#$%&'()*+,./:;<=>?@\[\]^`{|}~\t-\r \u00a0\u1680\u2000-\u206f\u3000]"""
_foreign_label = re.compile(rf"{_FOREIGN}(?:(?:{_FOREIGN}|-)*{_FOREIGN})?").fullmatch
_encoded_label = re.compile(r"[Xx][Nn]--[-0-9A-Za-z]+").fullmatch
_mention = re.compile(
    r"(?:[^A-Za-z0-9_!#$%&*@＠]|(?:[^A-Za-z0-9_+~.\-])?[Rr][Tt]:?)?"
    r"[@＠]+[A-Za-z0-9_]{1,20}(?:/[A-Za-z][A-Za-z0-9_\-]{0,24})?"
).fullmatch
_TAG_MARKS = frozenset("_·־׳״\u0f0b\u0f0c\u200c\u200d〃〜゛゜゠・\ua67e～")  # inside a tag, but no letters
_private_letter = re.compile("[\uf870-\uf87f\uf882\uf884-\uf89f\uf8b8\uf8c1-\uf8d6]").match

Located = tuple[int, int, str]


def words(text: str) -> list[str]:
    """Split a tweet into raw words; those that stay as they are begin with a space."""
    return [word for _, _, word in locate(text)]


def locate(text: str) -> Iterator[Located]:
    """Yield (start, end, raw word): the words with the characters of the tweet they came from."""
    for match in _tokens.finditer(text):
        start, end = match.span()
        surely_short = 2 * (end - start) < MAX_WORD_UNITS
        for first, last in ((start, end),) if surely_short else _within_limit(text, start, end):
            token = text[first:last]
            if token.isascii() and token.isalnum():
                yield first, last, token
            else:
                for at, to, word in _pieces(token):
                    yield first + at, first + to, word


def term(word: str) -> str:
    """Return the term of a raw word: as it is, or lower-cased, stripped to letters and digits, stemmed."""
    if word.startswith(KEPT):
        return word[1:]
    return stem(_letters_and_digits(_lower_units(word)))


def _within_limit(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    """Cut a token where it reaches 255 UTF-16 units."""
    units = 0
    for position in range(start, end):
        units += 2 if text[position] > "\uffff" else 1
        if units >= MAX_WORD_UNITS:
            yield start, position + 1
            start, units = position + 1, 0
    if start < end:
        yield start, end


def _pieces(token: str) -> Iterator[Located]:
    """Read one token: entities whole, the rest cut at delimiters."""
    rest: tuple[int, int] | None = (0, len(token))
    older: tuple[int, int] | None = None
    protected = False
    while rest or older:
        (start, end), rest, older = (rest, None, older) if rest else (older or (0, 0), None, None)
        part = token[start:end]
        whole = _is_url(part)
        if not whole and _is_mention_or_tag(part):
            part = _lower_units(part)
            whole = part[0] in _ENTITY_DELIMITERS
            if not whole:  # a mark stands before it: cut there and read on
                rest = (start + _first_entity_delimiter(part), end)
                part = token[start : rest[0]]
        elif not whole:
            cut = _first_delimiter(part)
            if cut >= 0:
                rest, part = (start + cut + 1, end), part[:cut]
            whole = _is_url(part) or _is_mention_or_tag(part)
            if whole:
                part = _lower_units(part)
            elif (cut := _first_entity_delimiter(part)) >= 0:
                older = rest or older
                rest, part = (start + cut + 1, start + len(part)), part[:cut]
        if whole:
            protected = True
        elif protected:
            part = _letters_and_digits(_lower_units(part))
        if part:
            yield start, start + len(part), KEPT + part if protected else part


def _first_entity_delimiter(part: str) -> int:
    return next((i for i, character in enumerate(part) if character in _ENTITY_DELIMITERS), -1)


def _first_delimiter(part: str) -> int:
    """Find where a token that is no entity is cut, or -1. Neighbours are counted in UTF-16 units."""
    at = -1
    while match := _delimiter(part, at + 1):
        at = match.start()
        if part[at] == ".":
            if not (_two_before(part, at) in ("", ".") and _two_behind(part, at) in ("", ".")):
                return at
        elif part[at] != "&" or not _joins_capitals(part, at):
            return at
    return -1


def _joins_capitals(part: str, at: int) -> bool:
    """Whether & stands between two characters of which none is lower-case, as in AT&T."""
    return 0 < at < len(part) - 1 and not (_is_lower(part[at - 1]) or _is_lower(part[at + 1]))


def _two_before(part: str, at: int) -> str:
    if at and part[at - 1] > "\uffff":
        return part[at - 1]
    return part[at - 2] if at >= 2 else ""


def _two_behind(part: str, at: int) -> str:
    behind = part[at + 1 : at + 3]
    return behind[0] if behind[:1] > "\uffff" else behind[1:]


def _is_lower(character: str) -> bool:
    return character <= "\uffff" and character.islower()


def _lower_units(part: str) -> str:
    """Lower-case as Java does unit by unit: characters beyond U+FFFF stay."""
    if part.isascii() or max(part) <= "\uffff":
        return lower(part)
    return "".join([lower(c) if c <= "\uffff" else c for c in part])


def _letters_and_digits(part: str) -> str:
    """Drop everything else, and characters beyond U+FFFF, of which Java sees the halves."""
    if part.isascii() and part.isalnum():
        return part
    return "".join([c for c in part if c <= "\uffff" and (c.isalpha() or unicodedata.category(c) == "Nd")])


def _is_url(part: str) -> bool:
    if "." not in part:
        return False
    starts = (0,) if _no_url_before(part) else (0, 1)
    return any(_is_bare_url(part[start:]) for start in starts)


def _is_bare_url(part: str) -> bool:
    match = _url_parts(part)
    if not match:
        return False
    *labels, last = match["domain"].split(".")
    known = (last.lower() if last.isascii() else last) in TOP_LEVEL_DOMAINS
    if not labels or not (known or _encoded_label(last)):
        return False
    if _label(labels[-1]) and all(map(_sub_label, labels[:-1])):
        return True
    return bool(known and match["protocol"] and len(labels) == 1 and _foreign_label(labels[0]))


def _is_mention_or_tag(part: str) -> bool:
    if ("@" in part or "＠" in part) and _mention(part):
        return True
    if part[:1] in ("#", "＃") and _is_tag_body(part[1:]):
        return True
    return (
        part[1:2] in ("#", "＃")
        and (part[0] in "\ufe0e\ufe0f" or not (part[0] == "&" or _is_tag_character(part[0])))
        and _is_tag_body(part[2:])
    )


def _is_tag_body(body: str) -> bool:
    return (
        body[:1] not in ("\ufe0f", "\u20e3")  # that is a keycap
        and all(map(_is_tag_character, body))
        and any(map(_is_tag_letter, body))
    )


def _is_tag_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LM" or _private_letter(character) is not None


def _is_tag_character(character: str) -> bool:
    return _is_tag_letter(character) or character in _TAG_MARKS or unicodedata.category(character) == "Nd"
