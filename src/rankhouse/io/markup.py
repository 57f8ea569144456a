"""TREC's markup: <DOC> records of its collections, <top> records of its topics.

It looks like SGML and is not: tags stay open, several records stand on one line, tags go on over the end of a
line. Everything is read, or named with its line, in time linear in the length of the text.
"""

from __future__ import annotations

import html
import re
from bisect import bisect_left
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document, Query
from rankhouse.io.files import Meter, Skips, as_text, checked_id, most_bytes, numbered_lines, too_long

# What TREC's newswire collections call a title and a text. Everything else of a record is markup about it.
_TITLE_TAGS = "title|headline|head|ttl|ti|hl"
_TEXT_TAGS = "text|leadpara|lp|body|abstract|summary"
_OF_PAGES = ("title", "head", "body", "summary")  # HTML's too, where a lone closing tag is nothing unusual


def _tags(names: str) -> re.Pattern[str]:
    """Return the expression of an opening tag (group 1) or a closing one (group 2) of these names."""
    return re.compile(rf"<(?:({names})\b[^>]*|/({names})\s*)>", re.IGNORECASE)


_SECTION, _DOCNO = _tags(f"{_TITLE_TAGS}|{_TEXT_TAGS}"), _tags("docno")
_NOT_TEXT = _tags("docno|dochdr|docid")
_is_title = re.compile(_TITLE_TAGS).fullmatch
_TAG = re.compile(r"<[^>]+>")
_FOREIGN_TAG = re.compile(rb"<[!?/A-Za-z][^<>]*>")
_LONG_REFERENCE = re.compile("&#0*[0-9]{8,};?")  # no character, and too long for int() to be tried

_DOC = re.compile(rb"<(/?)doc(?:(?=[\s>])|$)", re.IGNORECASE)
_TOP = re.compile(rb"<(/?)top(?:ic)?(?:(?=[\s>])|$)", re.IGNORECASE)
_TOPIC_TAG = re.compile(r"<(\w+)[^>]*>")
_ANY_TAG = re.compile(r"<[\w/!?]")
_TOPIC_LABEL = re.compile(r"^(Number|Topic|Description|Narrative|Title)\s*:\s*", re.IGNORECASE)
_OUTSIDE = 1 << 20  # bytes between records that are looked at together


class _Record:
    """A record under way: the line of its first tag, and its lines so far."""

    def __init__(self, line: int, name: str, path: Path) -> None:
        self.line, self._name, self._path = line, name, path
        self._parts, self._size = list[bytes](), 0

    def add(self, raw: bytes) -> None:
        """Add a line, or what of it belongs to the record."""
        self._size += len(raw) + 1
        if self._size > most_bytes():
            raise too_long(f"the <{self._name}> that begins here", self._path, self.line)
        self._parts.append(raw)

    def text(self) -> str:
        """Return the record as text."""
        try:
            return b"\n".join(self._parts).decode()
        except UnicodeDecodeError:
            lines = enumerate(self._parts, self.line)
            return "\n".join(as_text(raw, self._path, line) for line, raw in lines)


class _Records:
    """Cuts a file into records at the opening and closing tags of one name (group 1 is the slash)."""

    def __init__(
        self, path: Path, tag: re.Pattern[bytes], name: str, *, may_end_open: bool, skips: Skips
    ) -> None:
        self._path, self._tag, self._name = path, tag, name
        self._may_end_open, self._skips = may_end_open, skips
        self._outside, self._outside_line, self._told = bytearray(), 0, False
        self._open: _Record | None = None

    def read(self, meter: Meter | None) -> Iterator[_Record]:
        """Stream the records; what stands outside of all of them, but for foreign tags, is a fault."""
        for line, raw in numbered_lines(self._path, meter):
            at = 0
            for tag in self._tag.finditer(raw) if b"<" in raw else ():
                ended = self._cut(raw[at : tag.start()], line, closing=bool(tag[1]))
                if ended is not None:
                    yield ended
                at = tag.end() if tag[1] else tag.start()
            self._take(raw[at:], line)
        if self._open is not None and not self._may_end_open:
            self._fault("the file ends inside this <{0}>; it may be cut off", self._open.line)
        elif self._open is not None:
            yield self._open
        self._look_outside()

    def _take(self, raw: bytes, line: int) -> None:
        """Add what stands between two tags to the open record, or to what is outside."""
        if self._open is not None:
            self._open.add(raw)
            return
        if not self._outside:
            self._outside_line = line
        self._outside += raw + b"\n"
        if len(self._outside) > _OUTSIDE:
            self._look_outside()

    def _cut(self, before: bytes, line: int, *, closing: bool) -> _Record | None:
        """Take what stands before a tag, then end or begin a record; return the one that has ended."""
        self._take(before, line)
        record, self._open = self._open, None
        if record is None:
            self._look_outside()
            if closing and not self._told:
                self._fault("</{0}> without a <{0}> before it; add the tag that is missing", line)
        elif not closing and not self._may_end_open:
            self._fault("a <{0}> begins before the one above it has ended", record.line)
            record = None
        if not closing:
            self._open, self._told = _Record(line, self._name, self._path), False
        return record

    def _look_outside(self) -> None:
        """Refuse text outside of every record; tags of other names and comments are skipped."""
        outside, self._outside = bytes(self._outside), bytearray()
        before, *comments = outside.split(b"<!--")
        left = b" ".join([before, *(comment.partition(b"-->")[2] for comment in comments)])
        words = _FOREIGN_TAG.sub(b" ", left).strip(b" \t\n\r\f\v[]>\0\x1a").split()
        if not words or self._told:
            return
        self._told = True
        line = self._outside_line + outside.count(b"\n", 0, max(0, outside.find(words[0])))
        what = b" ".join(words[:8])[:60].decode(errors="replace")
        self._fault(
            f'"{_braces(what)}" stands outside of every <{{0}}> ... </{{0}}>; is a tag missing?', line
        )

    def _fault(self, reason: str, line: int) -> None:
        self._skips.take(BadData(reason.format(self._name), self._path, line))


def _braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def documents(path: Path, skips: Skips, meter: Meter | None = None) -> Iterator[tuple[int, Document]]:
    """Stream <DOC> ... </DOC> records with the line of their <DOC>."""
    for record in _Records(path, _DOC, "DOC", may_end_open=False, skips=skips).read(meter):
        try:
            yield record.line, _document(record.text(), path, record.line)
        except BadData as fault:
            skips.take(fault)


class _Section(NamedTuple):
    """An element: its name, where its tag begins, its content, where it ends (-1: it is never closed)."""

    name: str
    start: int
    inner: int
    inner_end: int
    end: int


def _sections(record: str, tags: re.Pattern[str]) -> Iterator[_Section]:
    """Find the outermost elements of some names, each up to the first closing tag of its name.

    A closing tag that closes nothing is a section of no content with ``start == end``.
    """
    marks = list(tags.finditer(record, 0, record.rfind(">") + 1))
    closing: dict[str, list[re.Match[str]]] = {}
    for tag in marks:
        if tag[2]:
            closing.setdefault(tag[2].lower(), []).append(tag)
    behind = 0
    for tag in marks:
        if tag.start() < behind:
            continue
        if tag[2]:
            yield _Section(tag[2].lower(), tag.start(), tag.start(), tag.start(), end=tag.start())
            continue
        name = tag[1].lower()
        ends = closing.get(name, [])
        place = bisect_left(ends, tag.end(), key=lambda end: end.start())
        if place < len(ends):
            behind = ends[place].end()
            yield _Section(name, tag.start(), tag.end(), ends[place].start(), end=behind)
        elif record[tag.end(1)] in " \t\r\n>":
            yield _Section(name, tag.start(), tag.end(), len(record), end=-1)


def _document(record: str, path: Path, line: int) -> Document:
    numbers = [s for s in _sections(record, _DOCNO) if s.end != s.start]
    if not numbers:
        raise BadData("the record has no <DOCNO>", path, line)
    if numbers[0].end < 0:
        raise BadData("the <DOCNO> of this record is not closed", path, line)
    named = list[str]()
    for section in numbers:  # no further than the second: those that are not closed all go on to the end
        number = record[section.inner : section.inner_end].strip()
        if number not in named:
            named.append(number)
        if len(named) > 1:
            break
    if len(named) > 1:
        raise BadData(
            f'the record has several <DOCNO>, "{named[0][:40]}" and "{named[1][:40]}"; '
            "is a </DOC> and a <DOC> missing between them?",
            path,
            line,
        )
    doc_id = checked_id(named[0], path, line)
    titles, texts = _contents(record, path, line)
    if not titles and not texts:
        left, behind = list[str](), 0
        for section in _sections(record, _NOT_TEXT):
            if section.end > section.start:
                left.append(record[behind : section.start])
                behind = section.end
        texts = [_plain(" ".join([*left, record[behind:]]))]
    return Document(doc_id, " ".join(filter(None, texts)), " ".join(filter(None, titles)))


def _contents(record: str, path: Path, line: int) -> tuple[list[str], list[str]]:
    """Return (titles, texts). A title that is not closed goes on to the next section, a text to the end."""
    titles, texts = list[str](), list[str]()
    behind, open_text, open_title = 0, False, False
    for section in [*_sections(record, _SECTION), None]:
        between = record[behind : section.start if section else len(record)]
        if section is not None and section.end == section.start:
            if section.name not in _OF_PAGES and not open_text and not open_title and _plain(between):
                at = line + record.count("\n", 0, section.start)
                tag = section.name.upper()
                raise BadData(
                    f"a </{tag}> without a <{tag}> before it; add the tag that is missing", path, at
                )
            continue
        if open_title:
            titles.append(_plain(between))
        elif open_text:
            texts.append(_plain(between))
        if section is None:
            break
        is_title, closed = bool(_is_title(section.name)), section.end > 0
        if closed:
            (titles if is_title else texts).append(_plain(record[section.inner : section.inner_end]))
        open_title, open_text = is_title and not closed, open_text or not (is_title or closed)
        behind = section.end if closed else section.inner
    return titles, texts


def _plain(marked: str) -> str:
    """Return a stretch without its tags, references resolved, white space squeezed."""
    tagged = marked.rfind(">") + 1  # behind the last one, no "<" needs to look for its end
    return " ".join(_references(_TAG.sub(" ", marked[:tagged]) + marked[tagged:]).split())


def _references(text: str) -> str:
    return html.unescape(_LONG_REFERENCE.sub("\ufffd", text)) if "&" in text else text


def topics(path: Path, field: str, skips: Skips) -> Iterator[tuple[int, Query]]:
    """Stream <top> records of classic (unclosed tags) and web-track (closed tags) topics, with their lines.

    The query is one of their fields: "title", "desc", "narr" or another tag.
    """
    for record in _Records(path, _TOP, "top", may_end_open=True, skips=skips).read(None):
        try:
            yield record.line, _topic(record.text(), field, path, record.line)
        except BadData as fault:
            skips.take(fault)


def _topic(record: str, field: str, path: Path, line: int) -> Query:
    fields: dict[str, str] = {}
    for tag in _TOPIC_TAG.finditer(record, 0, record.rfind(">") + 1):
        name, following = tag[1].lower(), _ANY_TAG.search(record, tag.end())
        marked = record[tag.end() : following.start() if following else len(record)].strip()
        text = " ".join(_TOPIC_LABEL.sub("", _references(marked)).split())
        if name in ("num", field) and marked and fields.get(name, text) != text:
            raise BadData(
                f'the topic has several <{name}>, "{fields[name][:40]}" and "{text[:40]}"; '
                "is a </top> and a <top> missing between them?",
                path,
                line,
            )
        if marked:
            fields[name] = text
    if number := re.search(r'<topic[^>]*\bnumber="([^"]+)"', record, re.IGNORECASE):
        fields.setdefault("num", number[1])
    for alias, name in (("description", "desc"), ("query", "title"), ("narrative", "narr")):
        if alias in fields:
            fields.setdefault(name, fields[alias])
    if "num" not in fields:
        raise BadData("the topic has no <num>", path, line)
    if field not in fields:
        raise BadData(
            f"topic {fields['num']} has no <{field}>; it has: {', '.join(fields)} (choose one as the field)",
            path,
            line,
        )
    return Query(checked_id(fields["num"], path, line), fields[field])
