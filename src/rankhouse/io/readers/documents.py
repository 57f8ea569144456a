"""PDF, EPUB, Word and PowerPoint: pages, chapters, sections and slides."""

from __future__ import annotations

import posixpath
import re
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any
from unicodedata import normalize
from urllib.parse import unquote
from xml.etree import ElementTree as ET
from zipfile import ZipFile

from rankhouse.core.errors import BadData, needs
from rankhouse.io.readers.parts import (
    ALIVE,
    LONGEST_TITLE,
    FilePart,
    Piece,
    file_title,
    joined,
    opened_zip,
    seekable,
    squeezed,
)
from rankhouse.io.readers.text import decoded
from rankhouse.io.readers.web import html_part

if TYPE_CHECKING:
    from docx.document import Document as Word
    from pypdf import PdfReader


_LIGATURE = re.compile("[\ufb00-\ufb06]")  # "ﬂ", which nobody types
_LEAST = 15  # words of a page that stands alone
_MADE_PDF = re.compile(
    r"^(?:untitled|\(?(?:anonymous|unspecified)\)?$|microsoft |powerpoint |slide 1|"
    r".*\.(?:docx?|pptx?|xlsx?|dvi|tex|indd|qxd|ps)$)",
    re.IGNORECASE,
)
_NO_NAME = re.compile(
    r"[\W\d_]*|(?:scan|img|doc|document|file|page)?[\W\d_]*|[0-9a-f]{8,}|\d{4}\W\d{4,5}v?\d*", re.IGNORECASE
)


def pdf(path: Path) -> Iterator[FilePart]:
    """Read the pages of a PDF; lines that most pages begin or end with are left out."""
    with needs("files", "PDF"):
        import pypdf  # noqa: PLC0415 - an optional package
    pages = list[str]()
    with seekable(path) as file:
        try:
            read = pypdf.PdfReader(file)
            if read.is_encrypted and not read.decrypt(""):
                raise BadData("is encrypted; save it again without a password", path)
            for page in read.pages:
                pages.append(_LIGATURE.sub(lambda sign: normalize("NFKC", sign[0]), page.extract_text()))
                yield ALIVE
            title = _pdf_title(read)
        except pypdf.errors.DependencyError as error:
            raise BadData("is encrypted; save it again without a password", path) from error
        except pypdf.errors.PyPdfError as error:
            raise BadData(f"is damaged ({squeezed(str(error))}); open and save it again", path) from error
    if not any(page.strip() for page in pages):
        raise BadData("holds no text, perhaps only pictures of pages; run OCR on it first", path)
    title = title or _first_line(path, pages)
    pieces = (Piece(number, text) for number, text in enumerate(_without_running_lines(pages), 1))
    for part in joined(pieces, "page", least=_LEAST):
        yield FilePart(part.text, title, part.place, part.key)


def _pdf_title(read: PdfReader) -> str:
    """Return the title that somebody gave, not one that a program made of a file's name."""
    try:
        title = squeezed(str(read.metadata.title or "")) if read.metadata is not None else ""
    except (ValueError, TypeError, AttributeError, KeyError):
        return ""
    return "" if _MADE_PDF.match(title) or _NO_NAME.fullmatch(title) else title


def _first_line(path: Path, pages: Sequence[str]) -> str:
    """Return the file's name, or where that is a number the first line that could be a title."""
    name = file_title(path)
    if not _NO_NAME.fullmatch(name):
        return name
    lines = (line.strip() for page in pages[:1] for line in page.split("\n"))
    wordy = (
        line for line in lines if len(line) < LONGEST_TITLE and len(re.findall(r"[^\W\d_]{2,}", line)) > 1
    )
    return next((line for line in wordy if not line.lower().startswith("arxiv:")), name)


def _without_running_lines(pages: Sequence[str]) -> Iterator[str]:
    """Leave out first and last lines that stand, but for their numbers, on most pages."""
    edges = Counter[str]()
    cut = [[line for line in page.split("\n") if line.strip()] for page in pages]
    for lines in cut:
        edges.update({_bare(line) for line in (*lines[:2], *lines[-2:])})
    running = {line for line, count in edges.items() if len(pages) > 3 and count > len(pages) / 3}
    for lines in cut:
        first, last = 0, len(lines)
        while first < min(2, last) and _bare(lines[first]) in running:
            first += 1
        while last > max(first, len(lines) - 2) and _bare(lines[last - 1]) in running:
            last -= 1
        yield "\n".join(lines[first:last])


def _bare(line: str) -> str:
    return re.sub(r"[\W\d_]+", " ", line).strip()


# --- EPUB --------------------------------------------------------------------------------------------------

_OPF, _DC = "{http://www.idpf.org/2007/opf}", "{http://purl.org/dc/elements/1.1/}"
_CONTAINER = "{urn:oasis:names:tc:opendocument:xmlns:container}"
_CIPHER = "{http://www.w3.org/2001/04/xmlenc#}CipherReference"


def epub(path: Path) -> Iterator[FilePart]:
    """Read the chapters of a book in their order."""
    with opened_zip(path) as (archive, _):
        try:
            yield from _chapters(archive, path)
        except (KeyError, ET.ParseError) as error:
            raise BadData(f"is no EPUB ({squeezed(str(error))}); copy or export it again", path) from error


def _chapters(archive: ZipFile, path: Path) -> Iterator[FilePart]:
    package = _xml(archive, "META-INF/container.xml").find(f".//{_CONTAINER}rootfile")
    name = "" if package is None else package.get("full-path", "")
    root = _xml(archive, name)
    book = squeezed(root.findtext(f".//{_DC}title")) or file_title(path)
    hrefs = {item.get("id"): item.get("href", "") for item in root.iter(f"{_OPF}item")}
    spine = (hrefs.get(item.get("idref"), "") for item in root.iter(f"{_OPF}itemref"))
    locked, number, names = _locked(archive), 0, set(archive.namelist())
    files = [posixpath.normpath(posixpath.join(posixpath.dirname(name), unquote(href))) for href in spine]
    if files and locked.issuperset(files):
        raise BadData("is protected against copying", path)
    for file in files:
        if file not in names or file in locked:
            continue
        part = html_part(decoded(archive.read(file), path))
        if part.text:
            number += 1
            title = f"{book}: {part.title}" if part.title and part.title != book else book
            yield FilePart(part.text, title, f"chapter {number}", f"chapter={number}")


def _locked(archive: ZipFile) -> set[str]:
    if "META-INF/encryption.xml" not in archive.namelist():
        return set()
    return {unquote(one.get("URI", "")) for one in _xml(archive, "META-INF/encryption.xml").iter(_CIPHER)}


def _xml(archive: ZipFile, name: str) -> ET.Element:
    raw = archive.read(name)
    if b"<!ENTITY" in raw:  # of which a few lines can make gigabytes
        raise ET.ParseError(f"{name} declares entities")
    return ET.fromstring(raw)  # noqa: S314 - without entities


_LEAST_SECTION = 400  # words
_LEAST_SLIDE = 8
_HEADING = re.compile(r"(?:heading|überschrift|titre|título) ?(\d)$", re.IGNORECASE)
_MADE_OFFICE = re.compile(
    r"^(?:untitled|powerpoint pres.*|word document|microsoft .*|.*\.(?:docx?|pptx?)|)$", re.IGNORECASE
)


@contextmanager
def _opened(path: Path, read: Callable[[IO[bytes]], Any], noun: str) -> Iterator[Any]:
    """Open a file of Word or PowerPoint by its library for a block; BadData where it is none."""
    with opened_zip(path) as (_, file):
        file.seek(0)
        try:
            found = read(file)
        except (KeyError, ValueError) as error:
            raise BadData(f"is no {noun} ({squeezed(str(error))}); open and save it again", path) from error
        yield found


def _named(read: Any) -> str:  # noqa: ANN401 - of Word or of PowerPoint
    """Return the title that a person gave a file; "" for one that its program made."""
    title = squeezed(read.core_properties.title)
    return "" if _MADE_OFFICE.match(title) else title


def word(path: Path) -> Iterator[FilePart]:
    """Read a Word document: its sections are parts where it is long."""
    with needs("files", "DOCX"):
        import docx  # noqa: PLC0415 - an optional package
    with _opened(path, docx.Document, "Word document") as read:
        first, sections = _sections(read)
    title = _named(read) or first or file_title(path)
    parts = list(joined(sections, "section", least=_LEAST_SECTION))
    for part in parts:
        yield (
            FilePart(part.text, title, part.place, part.key) if len(parts) > 1 else FilePart(part.text, title)
        )


def _sections(read: Word) -> tuple[str, list[Piece]]:
    """Return the first title or heading, and the sections, which headings of the first two levels begin."""
    title, sections, lines = "", list[Piece](), list[str]()
    for block in read.iter_inner_content():
        style = str(getattr(block.style, "name", "") or "")
        text = _table(block) if hasattr(block, "rows") else str(block.text).strip()
        heading = _HEADING.match(style)
        if heading and int(heading[1]) <= 2 and lines:
            sections.append(Piece(len(sections) + 1, "\n".join(lines)))
            lines = []
        if not title and (heading or style == "Title"):
            title = squeezed(text)
        if text:
            lines.append(text)
    return title, [*sections, Piece(len(sections) + 1, "\n".join(lines))]


def _table(table: Any) -> str:  # noqa: ANN401 - of Word or of PowerPoint
    rows = list[str]()
    for row in table.rows:
        cells = dict.fromkeys(squeezed(cell.text) for cell in row.cells)  # merged ones come again
        rows.append(" | ".join(filter(None, cells)))
    return "\n".join(filter(None, rows))


def slides(path: Path) -> Iterator[FilePart]:
    """Read a presentation: slides with what is noted below them."""
    with needs("files", "PPTX"):
        import pptx  # noqa: PLC0415 - an optional package
    with _opened(path, pptx.Presentation, "presentation") as read:
        pieces = [_slide(number, slide) for number, slide in enumerate(read.slides, 1)]
    title = _named(read) or next((piece.title for piece in pieces if piece.title), file_title(path))
    for part in joined(pieces, "slide", least=_LEAST_SLIDE):
        own = f"{title}: {part.title}" if part.title not in ("", title) else title
        yield FilePart(part.text, own, part.place, part.key)


def _slide(number: int, slide: Any) -> Piece:  # noqa: ANN401 - an untyped library's object
    lines, pending = list[str](), list(reversed(slide.shapes))
    while pending:
        shape = pending.pop()
        if hasattr(shape, "shapes"):
            pending.extend(reversed(shape.shapes))
        elif shape.has_text_frame:
            lines.append(shape.text_frame.text.strip())
        elif getattr(shape, "has_table", False):
            lines.append(_table(shape.table))
    if slide.has_notes_slide and slide.notes_slide.notes_text_frame is not None:
        lines.append(slide.notes_slide.notes_text_frame.text.strip())
    named = slide.shapes.title
    return Piece(number, "\n".join(filter(None, lines)), squeezed(named.text) if named is not None else "")
