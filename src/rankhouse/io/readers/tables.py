"""Tables: separated values and workbooks; neighbouring rows are a part, below the names of the columns."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from rankhouse.core.errors import BadData, needs
from rankhouse.core.nouns import Document
from rankhouse.io.decoding import each_record
from rankhouse.io.files import (
    Meter,
    Skips,
    as_text,
    begins_array,
    begun,
    checked_id,
    given_id,
    kind_of,
    lines_of,
    most_bytes,
    numbered_lines,
    open_bytes,
)
from rankhouse.io.readers.columnar import GRADE_KEYS, ID_KEYS, PAIR_KEYS, TEXT_KEYS, each_row, is_columnar
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


def named_columns(line: bytes, *wanted: Sequence[str]) -> tuple[str, list[str]] | None:
    """Return the sign between the columns of a table, and their names, of its first line.

    Args:
        line: The line.
        wanted: For each column that has to be there, what it may be called; names count without their case.

    Returns:
        None where one is not there.
    """
    for sign in (
        _SIGNS if not line.lstrip().startswith((b"{", b"[")) else ""
    ):  # JSON, whose texts hold anything
        try:
            names = [name.strip() for name in next(csv.reader([_line(line)], delimiter=sign), [])]
        except csv.Error:  # a carriage return within it, for one: text, and no names
            continue
        lower = {name.lower() for name in names}
        if len(names) > 1 and not any(map(lower.isdisjoint, wanted)):
            return sign, names
    return None


def is_headed(path: Path) -> bool:
    """Return whether the first line of a corpus file names its columns."""
    if kind_of(path) == ".tsv":
        return named_columns(next(numbered_lines(path), (0, b""))[1], ID_KEYS, TEXT_KEYS) is not None
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
    hint = "; other tables are documents for  rankhouse up" if ids is ID_KEYS else ""
    for line, cells, rest in named_rows(numbered_lines(path, meter), path, (ids, texts), skips, hint=hint):
        doc_id, text = cells.values()
        try:
            title = rest.pop(next((name for name in rest if name.lower() == "title"), ""), "")
            yield line, Document(checked_id(doc_id, path, line), text, title, rest)
        except BadData as fault:
            skips.take(fault)


def named_rows(
    lines: Iterable[tuple[int, bytes]],
    path: Path,
    wanted: Sequence[Sequence[str]],
    skips: Skips,
    *,
    hint: str = "",
) -> Iterator[tuple[int, dict[str, str], dict[str, str]]]:
    """Stream the rows of a table whose first line names the columns.

    Args:
        lines: Of the file, with their numbers.
        path: The file, for messages.
        wanted: For each of the cells wanted, what its column may be called, the likeliest first.
        skips: Where malformed rows go.
        hint: What the message says where a column is not there.

    Yields:
        The line, the cells wanted, and the other ones, each by the name of its column.
    """
    numbered = iter(lines)
    top, head = next(((n, raw) for n, raw in numbered if raw.strip()), (1, b""))
    found = named_columns(head, *wanted)
    if found is None:
        columns = " and ".join(f"one of {', '.join(keys)}" for keys in wanted)
        raise BadData(f"its first line has to name the columns, {columns}{hint}", path, top)
    sign, names = found
    lower = [name.lower() for name in names]
    if wanted is PAIR_KEYS and (twice := [name for name in lower if lower.count(name) > 1]):
        raise BadData(f'the column "{twice[0]}" is named twice; keep one of them', path, top)
    places = [next(lower.index(key) for key in keys if key in lower) for keys in wanted]
    others = [(at, name) for at, name in enumerate(names) if at not in places and name]
    csv.field_size_limit(most_bytes())
    # Between tabs, a quotation mark is a sign of the text, unless the names have them, too.
    quote = "\0" if sign == "\t" and not head.startswith(b'"') else '"'
    begins = _RowLines(numbered, path)
    rows = csv.reader(begins, delimiter=sign, quotechar=quote)
    try:
        while (row := next(rows, None)) is not None:
            line, is_whole = begins.row[0][0], begins.is_whole(sign, quote)
            begins.row = [] if is_whole else begins.again()
            if not is_whole:
                reason = (
                    "a quotation mark begins a cell and none ends it well; close it, or write two for one"
                )
                skips.take(BadData(reason, path, line))
            elif len(row) == len(names):
                cells = {names[at]: row[at] for at in places}
                yield line, cells, {name: row[at] for at, name in others}
            elif row:
                reason = f"the row has {len(row)} columns, the first line names {len(names)}"
                skips.take(BadData(reason, path, line))
    except csv.Error as error:
        reason = f"is no table of separated values ({error})"
        raise BadData(reason, path, begins.row[0][0] if begins.row else top + 1) from error


class _RowLines:
    """The lines of a table, of which those of the row that is being read are kept."""

    def __init__(self, lines: Iterator[tuple[int, bytes]], path: Path) -> None:
        self._lines, self._path = lines, path
        self._behind: list[tuple[int, bytes]] = []  # to be read again, the first at the end
        self.row: list[tuple[int, str]] = []

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        line, raw = self._behind.pop() if self._behind else next(self._lines)
        self.row.append((line, text := f"{as_text(raw, self._path, line)}\n"))
        return text

    def is_whole(self, sign: str, quote: str) -> bool:
        """Return whether the row has one line, or the quotation marks of its lines are where they belong."""
        if len(self.row) == 1:
            return True
        try:
            return any(
                csv.reader((text for _, text in self.row), delimiter=sign, quotechar=quote, strict=True)
            )
        except csv.Error:
            return False

    def again(self) -> list[tuple[int, str]]:
        """Read the lines of the row once more, but for the first; none are kept."""
        self._behind += [(line, text[:-1].encode()) for line, text in reversed(self.row[1:])]
        return []


def judgement(row: Mapping[str, Any], path: Path, line: int) -> tuple[str, str, str]:
    """Return the ids and the grade of a row of judgements, which is 1 where it has nothing but the ids."""
    query_id, doc_id = _pair_of(row, "judgement", path, line)
    if len(row) == len(PAIR_KEYS):
        return query_id, doc_id, "1"
    _, grade = _cell(row, GRADE_KEYS, "judgement", path, line=line)
    whole, _, rest = grade.partition(".")  # 1.0 is how pandas writes a column that lacked a value
    return query_id, doc_id, grade if rest.strip("0") else whole


def retrieved(row: Mapping[str, Any], path: Path, line: int) -> tuple[str, str, str]:
    """Return the ids and the score of a row of a run; that of a row with no more than a rank is 1 / rank."""
    query_id, doc_id = _pair_of(row, "row of the run", path, line)
    column, number = _cell(row, ("score", "rank"), "row of the run", path, line=line)
    if column.lower() == "score":
        return query_id, doc_id, number
    if not number.isdecimal() or len(number) > 10 or not int(number):
        raise BadData(f'the rank "{number[:40]}" is no whole number from 1', path, line)
    return query_id, doc_id, str(1 / int(number))  # as MS MARCO's runs are turned into TREC's


def _pair_of(row: Mapping[str, Any], what: str, path: Path, line: int) -> list[str]:
    columns = [_column(row, keys, what, path, line=line) for keys in PAIR_KEYS]
    return [given_id(row[column], column, path, line) for column in columns]


def _cell(
    row: Mapping[str, Any], keys: Sequence[str], what: str, path: Path, *, line: int
) -> tuple[str, str]:
    """Return the first of the columns which the row has, and what stands there."""
    column = _column(row, keys, what, path, line=line)
    if row[column] is None:
        raise BadData(f'the "{column}" of the {what} is empty', path, line)
    return column, str(row[column])


def _column(row: Mapping[str, Any], keys: Sequence[str], what: str, path: Path, *, line: int) -> str:
    """Return the first of the names which the row has; they count without their case."""
    for key in keys:
        if key in row:
            return key
    lower = {name.lower(): name for name in row}
    for key in keys:
        if key in lower:
            return lower[key]
    raise BadData(f'the {what} has no column "{keys[0]}"; it has {", ".join(row) or "none"}', path, line)


# --- tables of labelled pairs ------------------------------------------------------------------------------

ASKED_KEYS: Final = ("query", "anchor", "question", "sentence1", "sentence_a")
PASSAGE_KEYS: Final = ("text", "passage", "document", "sentence2", "sentence_b", "answer", "response")
"""Usual names of the text of a query, and of the passage of which a label or a score is said."""
RELEVANT_KEYS: Final = ("positive", "positive_1", "pos")
_ANY_PASSAGE: Final = (*PASSAGE_KEYS, *RELEVANT_KEYS)
_LISTS: Final = ("pos", "neg", "pos_scores", "neg_scores")  # as FlagEmbedding has them


def are_lines(path: Path) -> bool:
    """Return whether a file of pairs has a line for each record, as it stands."""
    first, _ = begun(path)
    has_lines = kind_of(path) != ".csv" and not is_columnar(path) and not begins_array(first)
    return has_lines and pair_columns(first) is None


def pair_lines(path: Path, skips: Skips) -> Iterator[tuple[int, bytes]]:
    """Stream the lines of a file of pairs; a row of a table, an element of an array as a line of JSON."""
    if is_columnar(path):
        yield from each_row(path, _as_line, skips)
        return
    first, lines = begun(path)
    names = pair_columns(first)
    if names is not None and len(set(names)) == len(names):
        for line, cells, rest in named_rows(lines, path, (ASKED_KEYS, _ANY_PASSAGE), skips):
            filled = {key: text for key, text in rest.items() if text.strip()}
            row: dict[str, object] = {key.lower(): text.strip() for key, text in (cells | filled).items()}
            numbers = ("label", "score", "passage") if "text" in row else ("label", "score")
            lists = [key for key in _LISTS if str(row.get(key, ""))[:1] == "["]
            try:
                row |= {key: _plain(row[key]) for key in numbers if key in row}
                row |= {key: msgspec.json.decode(str(row[key]), type=list[Any]) for key in lists}
            except msgspec.DecodeError as error:
                reason = (
                    f"the list in {' or '.join(lists)} is no JSON ({error}); write the pairs as JSON lines"
                )
                skips.take(BadData(reason, path, line))
                continue
            yield line, msgspec.json.encode(row)
        return
    if names is not None:  # those above triples, of which two are one
        next(iter(lines))
    elif kind_of(path) == ".csv" and b"\t" not in first and not first.lstrip().startswith((b"{", b"[")):
        raise BadData(
            "its first line has to name the columns: query, text and label; or query, positive and "
            "negative; or sentence1, sentence2 and label (or score)",
            path,
            1,
        )
    yield from each_record(lines, path, lambda raw, *_: raw, skips)


def _as_line(row: dict[str, Any], path: Path, line: int) -> bytes:
    """Write a row as a line of JSON; BadData where a column holds bytes in place of a text."""
    if raw := next((key for key, value in row.items() if isinstance(value, bytes)), ""):
        raise BadData(f'the "{raw}" holds bytes and no text; write the column as text', path, line)
    return msgspec.json.encode(row)


def pair_columns(first: bytes) -> list[str] | None:
    """Return how the first line names the columns of a table of pairs; None where it does not."""
    found = named_columns(first, ASKED_KEYS, _ANY_PASSAGE)
    return None if found is None else [name.lower() for name in found[1]]


def _plain(cell: object) -> object:
    """Return the number which a cell holds, or the cell."""
    with suppress(msgspec.ValidationError):
        return msgspec.convert(cell, int | float | bool, strict=False)
    return cell
