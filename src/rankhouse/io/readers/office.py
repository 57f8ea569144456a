"""Word documents and PowerPoint presentations: sections and slides."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rankhouse.core.errors import BadData, needs
from rankhouse.io.readers.parts import FilePart, Piece, file_title, joined, opened_zip, squeezed

if TYPE_CHECKING:
    from docx.document import Document as Word

_LEAST_SECTION = 400  # words
_LEAST_SLIDE = 8
_HEADING = re.compile(r"(?:heading|überschrift|titre|título) ?(\d)$", re.IGNORECASE)
_MADE = re.compile(
    r"^(?:untitled|powerpoint pres.*|word document|microsoft .*|.*\.(?:docx?|pptx?)|)$", re.IGNORECASE
)


def word(path: Path) -> Iterator[FilePart]:
    """Read a Word document: its sections are parts where it is long."""
    with needs("files", "DOCX"):
        import docx  # noqa: PLC0415 - an optional package
    with opened_zip(path) as (_, file):
        file.seek(0)
        try:
            read = docx.Document(file)
        except (KeyError, ValueError) as error:
            raise BadData(
                f"is no Word document ({squeezed(str(error))}); open and save it again", path
            ) from error
        title, sections = _sections(read)
    named = squeezed(read.core_properties.title)
    title = (named if not _MADE.match(named) else title) or file_title(path)
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
    with opened_zip(path) as (_, file):
        file.seek(0)
        try:
            read = pptx.Presentation(file)
        except (KeyError, ValueError) as error:
            raise BadData(
                f"is no presentation ({squeezed(str(error))}); open and save it again", path
            ) from error
        pieces = [_slide(number, slide) for number, slide in enumerate(read.slides, 1)]
    named = squeezed(read.core_properties.title)
    first = next((piece.title for piece in pieces if piece.title), "")
    title = (named if not _MADE.match(named) else first) or file_title(path)
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
