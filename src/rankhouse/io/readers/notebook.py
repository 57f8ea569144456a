"""Notebooks: their cells, of Markdown and of code; what a cell printed is no text of the person's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.io.decoding import from_json
from rankhouse.io.files import read_whole
from rankhouse.io.readers.parts import FilePart, Piece, joined
from rankhouse.io.readers.text import inline

_LEAST = 80  # words of a part


class _Cell(msgspec.Struct):
    cell_type: str = ""
    source: str | list[str] = ""
    input: str | list[str] = ""  # what the third format calls the source of code

    @property
    def text(self) -> str:
        source = self.source or self.input
        return (source if isinstance(source, str) else "".join(source)).strip()


class _Worksheet(msgspec.Struct):
    cells: list[_Cell] = []


class _Notebook(_Worksheet):
    metadata: dict[str, Any] = {}
    worksheets: list[_Worksheet] = []  # of the third format


_decoder = msgspec.json.Decoder(_Notebook)


def notebook(path: Path) -> Iterator[FilePart]:
    """Read a notebook: neighbouring cells are a part, a heading begins a new one."""
    read = from_json(_decoder, read_whole(path), "not a notebook in JSON; save it again", path)
    cells = read.cells or [cell for sheet in read.worksheets for cell in sheet.cells]
    pieces = [Piece(number, cell.text) for number, cell in enumerate(cells, 1) if cell.text]
    if not pieces:
        raise BadData("holds no text", path)
    headed = [cell.text for cell in cells if cell.cell_type in {"markdown", "heading"}]
    lines = (line for text in headed for line in text.split("\n") if line.startswith("#"))
    named = read.metadata.get("title")
    title = named if isinstance(named, str) and named else inline(next(lines, "").lstrip("# "))
    for part in joined(pieces, "cell", least=_LEAST):
        yield msgspec.structs.replace(part, title=title)
