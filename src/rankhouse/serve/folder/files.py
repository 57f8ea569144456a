"""The files of a folder: which can be read, which changed since last time, and the documents they hold.

A file of text is one document: its title is its heading or first line, its id the path in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import msgspec

from rankhouse.core.errors import BadData, MissingInput, RankhouseError, encodable
from rankhouse.core.nouns import Document
from rankhouse.core.progress import clock
from rankhouse.io.corpora import CORPUS_KINDS, read_documents
from rankhouse.io.decoding import read_cache
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.files import COMPRESSIONS, Meter, Skips, kind_of, read_whole
from rankhouse.io.outputs import write_json

TEXT_KINDS = (".txt", ".text", ".md", ".markdown", ".rst", ".html", ".htm")
LONGEST_TITLE = 120

_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16"}
_front_matter = re.compile(r"---[ \t]*\n(?P<fields>(?:.*\n){0,200}?)(?:---|\.\.\.)[ \t]*(?:\n|$)")
_title_field = re.compile(r"^title:[ \t]*(?P<title>\S.*)$", re.MULTILINE)
_heading = re.compile(r"^#{1,6}[ \t]+(?P<title>.*?)[ \t]*#*[ \t]*$", re.MULTILINE)
# A first line with a line of one sign below it, in reStructuredText perhaps above it as well.
_underlined = re.compile(
    r"(?:([=\-~^\"'`*+#])\1{2,}[ \t]*\n)?(?=[^\n]{0,300}\w)(?P<title>[^\n]{1,300})\n"
    r"([=\-~^\"'`*+#])\3{2,}[ \t]*(?:\n|$)"
)
KINDS = (*TEXT_KINDS, *CORPUS_KINDS)
STATE = ".rankhouse"
ENCODING = "encoding"
"""What the work is called that makes vectors."""


def is_text(path: Path) -> bool:
    """Return whether a file is one document."""
    return kind_of(path) in TEXT_KINDS


def text_document(path: Path, doc_id: str) -> Document:
    """Read a file of text."""
    text = _decoded(read_whole(path), path).strip()
    kind = kind_of(path)
    title, rest = html_text(text) if kind in {".html", ".htm"} else _split_title(text, kind)
    return Document(doc_id, rest, title[:LONGEST_TITLE] or encodable(_name(path)))


def id_of(path: Path, folder: Path) -> str:
    """Return a file's id: its path in the folder; white space, controls, percent signs as %20 ...."""
    inside = path.relative_to(folder).as_posix()
    return encodable(re.sub(r"[\s%\x00-\x1f\x7f-\x9f]", lambda sign: quote(sign[0]), inside))


def _decoded(raw: bytes, path: Path) -> str:
    """Decode UTF-8, UTF-16 with its mark, or else Windows' western letters."""
    coding = _MARKS.get(raw[:2], "utf-8")
    if coding == "utf-8" and b"\0" in raw:
        raise BadData("is no text: it holds zero bytes", path)
    try:
        return raw.decode(coding)
    except UnicodeDecodeError:
        return raw.decode("cp1252", "replace")


def _split_title(text: str, kind: str) -> tuple[str, str]:
    """Return title and text: front matter or heading of Markdown and its kin, else a short first line."""
    if kind in {".md", ".markdown"} and (front := _front_matter.match(text)):
        text = text[front.end() :].strip()
        if match := _title_field.search(front["fields"]):
            return _unquoted(match["title"].strip()), text
    if kind in {".md", ".markdown", ".rst"} and (match := _underlined.match(text)):
        return match["title"].strip(), text[match.end() :].strip() or match["title"].strip()
    if kind in {".md", ".markdown"} and (match := _heading.search(text[:4_000])):
        rest = (text[: match.start()] + text[match.end() :]).strip()
        return match["title"], rest or match["title"]
    first, _, rest = text.partition("\n")
    if rest.strip() and 0 < len(first.strip()) <= LONGEST_TITLE:
        return first.strip(), rest.strip()
    return "", text


def _unquoted(title: str) -> str:
    """Return a field of front matter without the quotes around it."""
    return title[1:-1] if len(title) > 2 and title[0] == title[-1] in "\"'" else title


def _name(path: Path) -> str:
    """Return what a file's name says: ``how_to-begin.txt.gz`` is called "how to begin"."""
    name = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return re.sub(r"[_-]+", " ", name.stem).strip() or path.name


# --- HTML --------------------------------------------------------------------------------------------------

_UNREAD = frozenset({"script", "style", "template", "noscript", "svg", "head"})
_INLINE = frozenset(
    {"a", "abbr", "b", "bdi", "bdo", "cite", "code", "data", "dfn", "em", "font", "i", "kbd", "mark", "q"}
    | {"s", "samp", "small", "span", "strong", "sub", "sup", "time", "u", "var", "wbr"}
)


def html_text(source: str) -> tuple[str, str]:
    """Return title and text of a page; the first heading is the title where none is said."""
    reader = _HtmlReader()
    reader.feed(source)
    reader.close()
    blocks = (re.sub(r"\s+", " ", block).strip() for block in "".join(reader.text).split("\0"))
    text = "\n".join(block for block in blocks if block)
    named = ("".join(reader.named[name]) for name in ("title", "h1"))
    return next(filter(None, (re.sub(r"\s+", " ", name).strip() for name in named)), ""), text


class _HtmlReader(HTMLParser):
    """Collects the text that a browser shows; blocks are parted by a zero sign."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.text: list[str] = []
        self.named: dict[str, list[str]] = {"title": [], "h1": []}
        self._unread = 0  # how many open elements are not shown
        self._open = ""  # the title or heading that is being read

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Begin an element."""
        del attrs
        if tag == "body":
            self._unread = 0
        self._unread += tag in _UNREAD
        if tag in self.named and not self.named[tag]:
            self._open = tag
        if tag not in _INLINE:
            self.text.append("\0")

    def handle_endtag(self, tag: str) -> None:
        """End an element."""
        self._unread = max(0, self._unread - (tag in _UNREAD))
        if tag == self._open:
            self._open = ""
        if tag not in _INLINE:
            self.text.append("\0")

    def handle_data(self, data: str) -> None:
        """Take text."""
        if self._open:
            self.named[self._open].append(data)
        if not self._unread and self._open != "title":
            self.text.append(data.replace("\0", " "))


_KEPT = {0xDC00 + byte: 0x10FF00 + byte for byte in range(0x80, 0x100)}
"""Bytes of a file's name that are not UTF-8 -> private characters, which JSON can hold."""
_NAMES = {private: byte for byte, private in _KEPT.items()}


class FileState(msgspec.Struct, frozen=True):
    """A file as it was read: bytes, when it changed last in nanoseconds, hash of its content.

    Attributes:
        ctime: When the system itself changed it last: programs set the other time as they like.
    """

    size: int
    mtime: int
    digest: str
    ctime: int = 0


class FolderState(msgspec.Struct, frozen=True):
    """What an index was made from: its fingerprint, files by path within the folder, vectors' encoder."""

    index: str = ""
    files: dict[str, FileState] = {}
    encoder: str = ""

    @classmethod
    def load(cls, path: Path) -> FolderState:
        """Read it; an empty one where there is none, or none that can be read."""
        state = read_cache(path, cls) or cls()
        return msgspec.structs.replace(
            state, files={name.translate(_NAMES): one for name, one in state.files.items()}
        )

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        files = {name.translate(_KEPT): one for name, one in self.files.items()}
        write_json(path, msgspec.structs.replace(self, files=files))


class FolderProgress(msgspec.Struct, frozen=True):
    """What is being done about a folder: the work, "" for none, how much of it, and what was said so far.

    Attributes:
        share: Of the work, from 0 to 1.
        seconds_left: As far as is known.
        said: How many remarks were made; the last of them are the ``remarks``.
    """

    work: str = ""
    share: float = 0.0
    seconds_left: float | None = None
    said: int = 0
    remarks: tuple[str, ...] = ()

    def sentence(self, *, by_meaning: bool) -> str:
        """Say it to the person who searches; ``by_meaning`` whether that is possible already."""
        if not self.work:
            return ""
        left = "" if self.seconds_left is None else f", about {clock(self.seconds_left)} left"
        share = f"{self.share:.0%}"
        if self.work != ENCODING:
            return f"Files have changed and are being indexed: {share}{left}."
        if by_meaning:
            return f"New text is being read for search by meaning: {share}{left}."
        return (
            f"Search by meaning is being prepared: {share} of the text is read{left}. "
            "Until then, search is by words."
        )

    @classmethod
    def load(cls, path: Path) -> FolderProgress:
        """Read it; nothing is being done where there is none."""
        return read_cache(path, cls) or cls()


class Changes(NamedTuple):
    """What became of a folder's files, by path within it."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __str__(self) -> str:
        parts = ((self.added, "new"), (self.changed, "changed"), (self.removed, "removed"))
        return ", ".join(f"{len(paths):,} {what}" for paths, what in parts if paths) or "nothing changed"


def check_folder(folder: Path) -> None:
    """Raise what is wrong with a path that is to be a folder of files."""
    if not folder.is_dir():
        what = "is a file, not a folder" if folder.exists() else "there is no such folder"
        raise MissingInput(f"{folder}: {what}; name the one that holds your files")


def compare(before: Mapping[str, FileState], now: Mapping[str, FileState]) -> Changes:
    """Say what changed between two looks at a folder."""
    both = before.keys() & now.keys()
    return Changes(
        sorted(now.keys() - both),
        sorted(name for name in both if before[name].digest != now[name].digest),
        sorted(before.keys() - both),
    )


class _Faults(Skips):
    """Skips any number of faulty records and keeps the first."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def take(self, fault: BadData) -> None:
        """Count a fault."""
        self.count += 1
        if not self.seen:
            self.seen.append(fault)


@dataclass
class FolderReader:
    """Reads documents and notes what could not be read.

    Attributes:
        repeats: Skips ids that come again.
        faults: What is to be said of a file, a line each.
        files: How many files held a document.
    """

    folder: Path
    repeats: Repeats = field(default_factory=lambda: Repeats("first"))
    meter: Meter = field(default_factory=Meter)
    faults: list[str] = field(default_factory=list)
    files: int = 0

    def documents(self, names: list[str]) -> Iterator[Document]:
        """Stream the documents of files; a file that cannot be read is noted and skipped."""
        for name in names:
            count = 0
            for document in self._of_file(self.folder / name):
                count += 1
                yield document
            self.files += count > 0

    def _of_file(self, path: Path) -> Iterator[Document]:
        faults = _Faults()
        try:
            if is_text(path):
                document = text_document(path, id_of(path, self.folder))
                self.meter.bytes += path.stat().st_size
                if self.repeats.takes(document, path, 1):
                    yield document
            else:
                yield from read_documents(path, faults, self.repeats, self.meter)
        except (RankhouseError, OSError) as error:
            self.faults.append(str(error))
        except Exception as error:  # noqa: BLE001 - one file that breaks its parser is not to stop all others
            self.faults.append(f"{path}: cannot be read ({type(error).__name__}: {error})")
        if faults.count:
            records = f"{faults.count:,} records are no documents, the first: " if faults.count > 1 else ""
            self.faults.append(f"{records}{faults.seen[0]}")
