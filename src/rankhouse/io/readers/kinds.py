"""Choice of a file's reader: by its ending, and by its content where that says too little."""

from __future__ import annotations

import re
import zipfile
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rankhouse.core.errors import RankhouseError
from rankhouse.io.corpora import JSON_KINDS, TREC_KINDS
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.files import kind_of, open_bytes
from rankhouse.io.providers import has_reader
from rankhouse.io.readers.columnar import ID_KEYS, TEXT_KEYS
from rankhouse.io.readers.tables import named_columns

_decoder = msgspec.json.Decoder(dict[str, Any])
_HEAD = 1 << 13  # bytes by which a file's content is recognised


class FileKind(NamedTuple):
    """A kind of file."""

    name: str  # what people call it
    reader: str = ""  # module:function of this package; "" for a corpus, whose records are documents
    needs: str = ""  # the package that reads it, if it is an optional one
    streams: bool = False  # whether it is read piece by piece, so that its size does not matter

    @property
    def is_readable(self) -> bool:
        """Whether what reads it is installed."""
        return not self.needs or _is_installed(self.needs)


@cache
def _is_installed(package: str) -> bool:
    return find_spec(package) is not None


TEXT, MARKDOWN = FileKind("text", "text:plain"), FileKind("Markdown", "text:markdown")
HTML = FileKind("HTML", "web:page", "selectolax")
RST, MANUAL = FileKind("reStructuredText", "text:restructured"), FileKind("manual page", "text:manual")
CODE, XML = FileKind("code", "text:source"), FileKind("XML", "text:marked_up")
NOTEBOOK = FileKind("notebook", "text:notebook")
TABLE = FileKind("table", "tables:separated")
MESSAGE, MAILBOX = FileKind("mail", "web:message"), FileKind("mailbox", "web:mailbox", streams=True)
PDF = FileKind("PDF", "documents:pdf", "pypdf", streams=True)
EPUB = FileKind("EPUB", "documents:epub", "selectolax", streams=True)
WORD = FileKind("Word", "documents:word", "docx", streams=True)
SLIDES = FileKind("PowerPoint", "documents:slides", "pptx", streams=True)
WORKBOOK = FileKind("Excel", "tables:workbook", "openpyxl", streams=True)
CORPUS = FileKind("corpus", streams=True)

_CODE = """
.py .pyi .pyx .c .h .cc .cpp .cxx .hpp .hh .hxx .java .kt .kts .scala .go .rs .rb .php .pl .pm
.lua .r .jl .m .mm .swift .cs .fs .vb .js .mjs .cjs .jsx .ts .tsx .vue .svelte .css .scss .less
.sql .perl .cocci .sh .bash .zsh .fish .ps1 .bat .cmd .awk .tcl .el .lisp .clj .ex .exs .erl .hs .ml .mli
.nim .zig .dart .groovy .gradle .cmake .mk .tex .bib .sty .toml .yaml .yml .ini .cfg .conf
.properties .proto .graphql .thrift .tf .diff .patch .nix .vim .f .f90 .pas .asm .sol .vhd .d .s
.ics .vcf .po .pot .srt .vtt
""".split()  # noqa: SIM905 - read more easily
ENDINGS: dict[str, FileKind] = {
    **dict.fromkeys((".txt", ".text", ".log", ".org", ".adoc", ".asciidoc", ".textile", ".pod"), TEXT),
    **dict.fromkeys((".md", ".markdown", ".mdown", ".mkd", ".mdx", ".qmd", ".rmd"), MARKDOWN),
    **dict.fromkeys((".rst", ".rest"), RST),
    **dict.fromkeys((".html", ".htm", ".xhtml"), HTML),
    **dict.fromkeys(_CODE, CODE),
    **{f".{number}": MANUAL for number in range(1, 10)},
    ".ipynb": NOTEBOOK, ".csv": TABLE, ".eml": MESSAGE, ".mbox": MAILBOX, ".pdf": PDF, ".epub": EPUB,
    ".docx": WORD, ".docm": WORD, ".pptx": SLIDES, ".pptm": SLIDES, ".ppsx": SLIDES, ".xlsx": WORKBOOK,
    ".xlsm": WORKBOOK,
    **dict.fromkeys((*JSON_KINDS, ".tsv", *TREC_KINDS), CORPUS),
}  # fmt: skip
"""Ending -> kind; .json, .xml, .tsv and .csv are looked into as well."""

READ = "text, Markdown, HTML, code, notebooks, mail, tables, PDF, Word, PowerPoint, Excel, EPUB, collections"
"""Kinds of files that readers read, in words."""
_PROSE = frozenset(
    """
readme license licence copying copyright changelog changes history news authors contributors thanks todo
install notice notes faq hacking contributing makefile dockerfile
""".split()  # noqa: SIM905 - read more easily
)
_DOC = re.compile(rb"<doc[\s>]", re.IGNORECASE)
_HTML = re.compile(rb"\s*(?:<!--.*?-->\s*)*<(?:!doctype\s+html|html[\s>])", re.IGNORECASE | re.DOTALL)
_section = re.compile(r"\.[1-9][a-z]\w{0,7}")  # ".3pm", ".1ssl", but ".7z" too
_MAIL = re.compile(
    rb"(?:Return-Path|Received|Message-ID|MIME-Version|Delivered-To|From|To|Cc|Reply-To|Date|Subject|"
    rb"Content-Type): "
)


def kind_at(path: Path, size: int, changed: int) -> FileKind | None:
    """Return a file's kind, None where nothing reads it.

    Its size, with the time of its last change, tells whether it is the same file as before.
    """
    ending = kind_of(path)
    known = ENDINGS.get(ending)
    if known in (CORPUS, TABLE, MANUAL):
        return _looked_into(path, ending, size, changed)
    if known is not None:
        return known
    if has_reader(path):
        return CORPUS
    if _section.fullmatch(ending):
        return _looked_into(path, ending, size, changed)
    if ending == ".tab":
        return TABLE
    if ending in ("", ".sample") or ending[1:].isdecimal() or path.name.lower().partition(".")[0] in _PROSE:
        return _by_content(path, size, changed)
    return None


@lru_cache(maxsize=1 << 16)
def _looked_into(path: Path, ending: str, size: int, changed: int) -> FileKind | None:
    """Tell corpora from other JSON, XML and tables, and manual pages from other files with a number."""
    head = _head(path)  # size and time are of the key
    line = next((line for line in head.split(b"\n") if line.strip()), b"")
    match ending:
        case ".json":
            return CORPUS if _is_record(line) else CODE
        case ".xml":
            return CORPUS if _DOC.search(head) else XML
        case ".csv" | ".tsv":
            is_corpus = named_columns(line, ID_KEYS, TEXT_KEYS) is not None or (
                ending == ".tsv" and _is_tsv_record(line)
            )
            return CORPUS if is_corpus else TABLE
        case _ if ENDINGS.get(ending) in (MANUAL, None):
            is_manual = re.search(rb"^\.(?:TH|Dt|SH|Sh|so)\b", head, re.MULTILINE)
            if is_manual or ending not in ENDINGS:
                return MANUAL if is_manual else None
            return _by_content(path, size, changed)  # "libc.so.6", "MPL-1.1"
        case _:
            return CORPUS


def _is_record(line: bytes) -> bool:
    """Return whether a line is a JSON object with an id and a text."""
    try:
        record = _decoder.decode(line)
    except UNREADABLE:
        return False
    return not record.keys().isdisjoint(ID_KEYS) and not record.keys().isdisjoint(TEXT_KEYS)


def _is_tsv_record(line: bytes) -> bool:
    """Return whether a line is an id, a tab and a text."""
    record_id, tab, text = line.partition(b"\t")
    return bool(tab) and len(record_id.split()) == 1 and b"\t" not in text


@lru_cache(maxsize=1 << 16)
def _by_content(path: Path, size: int, changed: int) -> FileKind | None:
    """Tell the kind of a file without an ending; None for what is no text."""
    del size, changed  # of the key
    head = _head(path)
    if head.startswith(b"%PDF-"):
        return PDF
    if head.startswith(b"PK\x03\x04"):
        return _of_zip(path)
    if head.startswith(b"From ") and _MAIL.search(head):
        return MAILBOX
    if _HTML.match(head):
        return HTML
    if len(_MAIL.findall(head[:2048])) > 2 and _MAIL.match(head):
        return MESSAGE
    if head.startswith(b"#!") or path.name.lower() in {"makefile", "dockerfile"}:
        return CODE if b"\0" not in head else None
    return TEXT if _is_text(head) else None


def _head(path: Path) -> bytes:
    try:
        with open_bytes(path) as stream:
            return stream.read(_HEAD)
    except (RankhouseError, OSError):
        return b""


def _is_text(head: bytes) -> bool:
    if head.startswith((b"\xff\xfe", b"\xfe\xff")):
        return True
    controls = sum(head.count(bytes([sign])) for sign in range(32) if sign not in (8, 9, 10, 12, 13, 27))
    high = sum(byte > 127 for byte in head)
    try:
        head[: len(head) - 3].decode()
    except UnicodeDecodeError as error:
        return error.start > len(head) - 7 or (controls == 0 and high < len(head) / 4)
    return controls == 0


def _of_zip(path: Path) -> FileKind | None:
    """Tell the files of Office and EPUB apart, which are archives."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = set(archive.namelist())
    except (zipfile.BadZipFile, OSError, EOFError):
        return None
    marks = {"word/document.xml": WORD, "ppt/presentation.xml": SLIDES, "xl/workbook.xml": WORKBOOK}
    marks["META-INF/container.xml"] = EPUB
    return next((kind for mark, kind in marks.items() if mark in names), None)
