"""Tables: separated values and workbooks; neighbouring rows are a part, below the names of the columns."""

from __future__ import annotations

import csv
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final, TypeVar

from rankhouse.core.errors import BadData, RankhouseError, needs
from rankhouse.core.nouns import Document
from rankhouse.io.files import (
    Meter,
    Skips,
    as_text,
    checked_id,
    given_id,
    kind_of,
    lines_of,
    most_bytes,
    numbered_lines,
    open_bytes,
)
from rankhouse.io.readers.parts import FilePart, Piece, file_title, joined, opened_zip, squeezed

T = TypeVar("T")

_LEAST = 150  # words of a part
_LARGEST_CELL = 1 << 20
_SIGNS = ",;\t|"


def separated(path: Path) -> Iterator[FilePart]:
    """Read a file of separated values; the sign between them is found."""
    with open_bytes(path) as stream:
        lines = (_line(raw) for _, raw in lines_of(stream, path))
        first = next(lines, "")
        sign = "\t" if kind_of(path) == ".tsv" else max(_SIGNS, key=first.count)
        csv.field_size_limit(_LARGEST_CELL)
        try:
            yield from _rows(csv.reader(_chained(first, lines), delimiter=sign), file_title(path))
        except csv.Error as error:
            raise BadData(f"is no table of separated values ({error})", path) from error


def _line(raw: bytes) -> str:
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        text = raw.decode("cp1252", "replace")
    return text.replace("\0", "")


def _chained(first: str, lines: Iterable[str]) -> Iterator[str]:
    yield f"{first}\n"
    for line in lines:
        yield f"{line}\n"


def _rows(rows: Iterable[Sequence[object]], title: str, where: str = "", key: str = "") -> Iterator[FilePart]:
    """Yield the parts of a table: rows, each below the names of the columns where the first row has such."""
    numbered = enumerate(rows, 1)
    _, first = next(numbered, (0, ()))
    names = [squeezed(str(cell)) for cell in first if cell is not None]
    is_head = bool(names) and all(name and not _is_number(name) for name in names)
    head = " | ".join(names) if is_head else ""
    begun = [] if is_head else [Piece(1, " | ".join(filter(None, names)))]

    def pieces() -> Iterator[Piece]:
        yield from begun
        for number, row in numbered:
            cells = (squeezed(str(cell)) for cell in row if cell is not None)
            yield Piece(number, " | ".join(filter(None, cells)))

    is_empty = True
    for part in joined(pieces(), "row", least=_LEAST, where=where):
        is_empty = False
        yield FilePart(f"{head}\n{part.text}".strip(), title, part.place, f"{key}{part.key}")
    if is_empty and head:
        yield FilePart(head, title, f"{where}row 1", f"{key}row=1")


def _is_number(text: str) -> bool:
    return not any(map(str.isalpha, text))


def workbook(path: Path) -> Iterator[FilePart]:
    """Read a workbook of Excel, sheet by sheet; formulas as what they gave when it was saved."""
    with needs("files", "XLSX"):
        import openpyxl  # noqa: PLC0415 - an optional package
    with opened_zip(path) as (_, file):
        file.seek(0)
        book = openpyxl.load_workbook(file, read_only=True, data_only=True, keep_links=False)
        named = squeezed(book.properties.title) or file_title(path)
        several = len(book.worksheets) > 1
        for number, sheet in enumerate(book.worksheets, 1):
            title = f"{named}: {sheet.title}" if several else named
            where = f'sheet "{squeezed(sheet.title)}", '
            yield from _rows(sheet.iter_rows(values_only=True), title, where, f"sheet={number}&")


# --- tables of documents -----------------------------------------------------------------------------------

PARQUET: Final = ".parquet"
ID_KEYS = ("id", "_id", "docid", "docno")
TEXT_KEYS = ("text", "contents", "body")
"""Usual names of the id and the text of a document, in JSON and above columns."""


QUERY_ID_KEYS = ("id", "_id", "qid", "query_id", "query-id")
QUERY_KEYS = ("text", "query", "title")
"""The same of a query."""


def document_columns(
    line: bytes, ids: Sequence[str] = ID_KEYS, texts: Sequence[str] = TEXT_KEYS
) -> tuple[str, list[str]] | None:
    """Return the sign between the columns of a table of texts, and their names, of its first line.

    None where it does not name an id and a text; names count without their case.
    """
    for sign in _SIGNS:
        try:
            names = [name.strip() for name in next(csv.reader([_line(line)], delimiter=sign), [])]
        except csv.Error:  # a carriage return within it, for one: text, and no names
            continue
        lower = {name.lower() for name in names}
        if len(names) > 1 and not lower.isdisjoint(ids) and not lower.isdisjoint(texts):
            return sign, names
    return None


def is_headed(path: Path) -> bool:
    """Return whether the first line of a corpus file names its columns."""
    if kind_of(path) == ".tsv":
        return document_columns(next(numbered_lines(path), (0, b""))[1]) is not None
    return kind_of(path) == ".csv"


def documents(
    path: Path,
    skips: Skips,
    meter: Meter | None = None,
    *,
    ids: Sequence[str] = ID_KEYS,
    texts: Sequence[str] = TEXT_KEYS,
) -> Iterator[tuple[int, Document]]:
    """Stream the rows of a table of texts with their lines; further columns are kept as extra."""
    with open_bytes(path, meter) as stream:
        numbered = lines_of(stream, path)
        found = document_columns(next(numbered, (0, b""))[1], ids, texts)
        if found is None:
            raise BadData(
                f"its first line has to name the columns, one of {', '.join(ids)} and one of "
                f"{', '.join(texts)}" + "; other tables are documents for  rankhouse up" * (ids is ID_KEYS),
                path,
                1,
            )
        sign, names = found
        lower = [name.lower() for name in names]
        id_at, text_at = (next(lower.index(key) for key in keys if key in lower) for keys in (ids, texts))
        title_at = lower.index("title") if "title" in lower else -1
        csv.field_size_limit(most_bytes())
        quote = "\0" if sign == "\t" else '"'  # no sign of a text
        rows = csv.reader(
            (f"{as_text(raw, path, line)}\n" for line, raw in numbered), delimiter=sign, quotechar=quote
        )
        begin = 2
        try:
            for row in rows:
                line, begin = begin, rows.line_num + 2
                try:
                    if row:
                        yield line, _document(row, names, (id_at, text_at, title_at), path=path, line=line)
                except BadData as fault:
                    skips.take(fault)
        except csv.Error as error:
            raise BadData(f"is no table of separated values ({error})", path, begin) from error


def _document(
    row: Sequence[str], names: Sequence[str], at: tuple[int, int, int], path: Path, line: int
) -> Document:
    if len(row) != len(names):
        raise BadData(f"the row has {len(row)} columns, the first line names {len(names)}", path, line)
    id_at, text_at, title_at = at
    extra = {name: row[place] for place, name in enumerate(names) if place not in at and name}
    title = row[title_at] if title_at >= 0 else ""
    return Document(checked_id(row[id_at], path, line), row[text_at], title, extra)


def each_row(
    path: Path, read: Callable[[dict[str, Any], Path, int], T], skips: Skips, meter: Meter | None = None
) -> Iterator[tuple[int, T]]:
    """Stream (number, what ``read`` makes of it) of the rows of a Parquet file; ``read`` raises BadData."""
    with needs("datasets", "Parquet"):
        import pyarrow as pa  # noqa: PLC0415 - an optional package
        from pyarrow import parquet  # noqa: PLC0415
    number = 0
    with open_bytes(path, meter) as stream:
        if not stream.seekable():
            raise BadData(
                "Parquet is not read out of a compression or a pipe; make a plain file of it first", path
            )
        try:
            # Through a buffer, since all of a row group would be held otherwise.
            table = parquet.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False)
            schema = pa.schema([_in_microseconds(column) for column in table.schema_arrow])
            batches = (batch.cast(schema, safe=False) for batch in table.iter_batches(1000))
            for number, row in enumerate((row for batch in batches for row in batch.to_pylist()), 1):
                try:
                    yield number, read(row, path, number)
                except BadData as fault:
                    skips.take(fault)
        except RankhouseError:
            raise
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            reason = (
                f"is no whole Parquet file, or holds what cannot be read ({error}), behind row {number:,}"
            )
            raise BadData(" ".join(reason.split()), path) from error


def _in_microseconds(column: Any) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Return a column's field with times as Python has them, which pandas writes in nanoseconds."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    nano = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return column.with_type(pa.timestamp("us", column.type.tz)) if nano else column


def judgement(row: dict[str, Any], path: Path, line: int) -> tuple[str, str, str]:
    """Return the ids and the grade of a row of judgements, which is 1 where it has nothing but the ids."""
    wanted = ("query-id", "corpus-id", *(["score"] if len(row) > 2 else []))
    if lacking := next((key for key in wanted if key not in row), None):
        raise BadData(
            f'the judgement has no column "{lacking}"; it has {", ".join(row) or "none"}', path, line
        )
    query_id, doc_id = (given_id(row[key], key, path, line) for key in wanted[:2])
    grade = row.get("score", 1)
    return query_id, doc_id, str(int(grade) if isinstance(grade, float) and grade.is_integer() else grade)
