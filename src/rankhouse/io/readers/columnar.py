"""Rows of files that keep columns: Parquet, Arrow (as Hugging Face datasets are saved) and SQLite."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, BinaryIO, Final, TypeVar
from urllib.parse import quote

from rankhouse.core.errors import BadData, RankhouseError, name_few, needs
from rankhouse.io.files import Meter, Skips, kind_of, open_bytes

T = TypeVar("T")
_Row = dict[str, Any]

PARQUET: Final = ".parquet"
_ARROW: Final = (".arrow", ".feather")
_SQLITE: Final = (".sqlite", ".sqlite3", ".db")
COLUMNAR: Final = (PARQUET, *_ARROW, *_SQLITE)
_SQLITE_MAGIC, _ARROW_MAGIC, _PARQUET_MAGIC = b"SQLite format 3\0", b"ARROW1", b"PAR1"
MAGICS: Final = (_SQLITE_MAGIC, _ARROW_MAGIC, _PARQUET_MAGIC)
"""How such files begin, but for Arrow's streams."""
OF_SCORES: Final = 0x524B4853
"""SQLite's own field for "whose file is this", in caches of scores."""

ID_KEYS: Final = ("id", "_id", "docid", "docno", "doc_id")
TEXT_KEYS: Final = ("text", "contents", "body")
"""Usual names of the id and the text of a document, in JSON and above columns."""
QUERY_ID_KEYS: Final = ("id", "_id", "qid", "query_id", "query-id")
QUERY_KEYS: Final = ("text", "query", "question", "title")
"""The same of a query."""
PAIR_KEYS: Final = (
    ("query-id", "query_id", "qid", "q_id"),
    ("corpus-id", "doc_id", "docno", "docid", "doc-id"),
)
"""Usual names of the ids in a row of a run or of judgements."""
GRADE_KEYS: Final = ("relevance", "label", "grade", "rel", "score")
_IDS: Final = {*ID_KEYS, *QUERY_ID_KEYS, *PAIR_KEYS[0], *PAIR_KEYS[1]}
_KNOWN: Final = {*_IDS, *TEXT_KEYS, *QUERY_KEYS, *GRADE_KEYS, "rank"}
_VIEW: Final = "CREATE VIEW documents AS SELECT id, title, body AS text FROM ..."
_beside = re.compile(r"(dataset_info|state|dataset_dict)\.json|cache-\w+\.arrow").fullmatch


def is_columnar(path: Path) -> bool:
    """Return whether a file keeps columns: by its ending, and of SQLite by its content as well."""
    kind = kind_of(path)
    return kind in COLUMNAR and (kind not in _SQLITE or _is_database(path))


def _is_database(path: Path) -> bool:
    """Return whether a file is an SQLite database, and no cache of scores."""
    try:
        with path.open("rb") as stream:
            head = stream.read(100)
    except OSError:
        return False
    return head.startswith(_SQLITE_MAGIC) and head[68:72] != OF_SCORES.to_bytes(4, "big")


def is_of_dataset(path: Path) -> bool:
    """Return whether a file is what Hugging Face's datasets write beside the rows of one."""
    is_named_so = _beside(path.name) is not None
    return is_named_so and any(any(path.parent.glob(rows)) for rows in ("*.arrow", "*/*.arrow"))


def each_row(
    path: Path, read: Callable[[_Row, Path, int], T], skips: Skips, meter: Meter | None = None
) -> Iterator[tuple[int, T]]:
    """Stream (number, what ``read`` makes of it) of the rows of a file; ``read`` raises BadData."""
    rows = _of_sqlite(path, meter) if _is_database(path) else _of_arrow(path, meter)
    for number, row in enumerate(rows, 1):
        try:
            yield number, read(row, path, number)
        except BadData as fault:
            skips.take(fault)


def _of_arrow(path: Path, meter: Meter | None) -> Iterator[_Row]:
    """Stream the rows of a Parquet or Arrow file, a thousand in memory at once."""
    name = "Arrow" if kind_of(path) in _ARROW else "Parquet"
    with needs("datasets", name):
        import pyarrow as pa  # noqa: PLC0415 - an optional package
    number = 0
    with open_bytes(path, meter) as stream:
        if not stream.seekable():
            raise BadData(
                "such files are not read out of a compression or a pipe; make a plain file of it first", path
            )
        try:
            for batch in _batches(stream):
                names = batch.schema.names
                if twice := [name for name in names if names.count(name) > 1]:
                    raise BadData(f'the column "{twice[0]}" is there twice; keep one of them', path)
                schema = pa.schema([_in_microseconds(column) for column in batch.schema])
                for part in range(0, len(batch), 1_000):
                    for row in batch.slice(part, 1_000).cast(schema, safe=False).to_pylist():
                        number += 1
                        yield row
        except RankhouseError:
            raise
        except (pa.ArrowException, OSError, ValueError, OverflowError) as error:
            reason = f"is no whole {name} file, or holds what cannot be read ({error}), behind row {number:,}"
            raise BadData(" ".join(reason.split()), path) from error


def _batches(stream: BinaryIO) -> Iterator[Any]:
    import pyarrow as pa  # noqa: PLC0415 - as above
    from pyarrow import parquet  # noqa: PLC0415

    magic = stream.read(len(_ARROW_MAGIC))
    stream.seek(0)
    if magic.startswith(_PARQUET_MAGIC):
        # Through a buffer, since all of a row group would be held otherwise.
        yield from parquet.ParquetFile(stream, buffer_size=1 << 20, pre_buffer=False).iter_batches(1_000)
    elif magic == _ARROW_MAGIC:
        file = pa.ipc.open_file(stream)
        yield from map(file.get_batch, range(file.num_record_batches))
    else:
        yield from pa.ipc.open_stream(stream)


def _in_microseconds(column: Any) -> Any:  # noqa: ANN401 - pyarrow is untyped
    """Return a column's field with times as Python has them, which pandas writes in nanoseconds."""
    import pyarrow as pa  # noqa: PLC0415 - as above

    nano = pa.types.is_timestamp(column.type) and column.type.unit == "ns"
    return column.with_type(pa.timestamp("us", column.type.tz)) if nano else column


def _of_sqlite(path: Path, meter: Meter | None) -> Iterator[_Row]:
    """Stream the rows of a database's only table or view, or of that called "documents"."""
    meter = meter or Meter()
    try:
        with closing(sqlite3.connect(f"file:{quote(str(path.absolute()))}?mode=ro", uri=True)) as database:
            name, has_rowid = _table_of(database, path)
            database.text_factory = _text
            quoted = '"' + name.replace('"', '""') + '"'
            rows = database.execute(f"SELECT * FROM {quoted}")  # noqa: S608 - a quoted name
            if has_rowid and _IDS.isdisjoint(name.lower() for name, *_ in rows.description):
                rows = database.execute(f"SELECT rowid AS id, * FROM {quoted}")  # noqa: S608 - as above
            # To SQL, capitals are no difference.
            names = [low if (low := name.lower()) in _KNOWN else name for name, *_ in rows.description]
            for row in rows:
                meter.bytes += sum(len(value) for value in row if isinstance(value, str))
                yield dict(zip(names, row, strict=True))
    except (sqlite3.Error, UnicodeDecodeError) as error:  # of a column's name
        raise BadData(f"cannot be read as an SQLite database ({error})", path) from error


def _text(raw: bytes) -> str | bytes:
    """Decode a value; what is not UTF-8 stays bytes, so that only its row is refused."""
    try:
        return raw.decode()
    except UnicodeDecodeError:
        return raw


def _table_of(database: sqlite3.Connection, path: Path) -> tuple[str, bool]:
    """Return the name of the table or view that is read, and whether its rows have numbers."""
    listed = database.execute(
        "SELECT name, type != 'view' AND NOT wr FROM pragma_table_list WHERE schema = 'main' "
        "AND type IN ('table', 'view', 'virtual') AND name NOT GLOB 'sqlite_*' ORDER BY name"
    )
    has_rowid = {str(name): bool(numbered) for name, numbered in listed}
    if name := next((name for name in has_rowid if name.lower() == "documents" or len(has_rowid) == 1), ""):
        return name, has_rowid[name]
    if not has_rowid:
        raise BadData("holds no table", path)
    raise BadData(
        f"holds the tables {name_few(list(has_rowid))}; say which rows are meant with a view:  " + _VIEW,
        path,
    )
