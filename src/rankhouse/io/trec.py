"""Runs and judgements: TREC's six and four columns, tables, Parquet, JSON and MS MARCO's ranks."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, WrongUse, warn
from rankhouse.core.nouns import FloatArray
from rankhouse.core.progress import counted
from rankhouse.core.qrels import MOST_GRADE, Qrels
from rankhouse.core.run import INFINITE_FROM, TOO_LARGE, Run
from rankhouse.io.decoding import each_record, from_json
from rankhouse.io.files import (
    PathLike,
    Skips,
    as_path,
    as_text,
    begins_array,
    begun,
    checked_id,
    kind_of,
    most_bytes,
    too_long,
)
from rankhouse.io.outputs import writing
from rankhouse.io.providers import PUBLIC, qrels_of
from rankhouse.io.readers import tables
from rankhouse.io.readers.columnar import MAGICS, PAIR_KEYS, each_row, is_columnar

_Lines = Iterable[tuple[int, bytes]]
_Row = tuple[str, str, str]
"""The ids of a query and of a document, and a score or a grade."""
_decoder = msgspec.json.Decoder(dict[str, Any])
_nested_decoder = msgspec.json.Decoder(dict[str, dict[str, float]])
_RUN = "query Q0 document rank score tag"
_QRELS = "query iteration document grade"
_RANKS = "query document rank"
"""The columns of TREC's runs and judgements, and of MS MARCO's runs."""


def _columns(lines: _Lines, path: Path, wanted: str, skips: Skips) -> Iterator[tuple[int, list[str]]]:
    """Stream (line, columns) of a file split at white space; other numbers of columns are faults."""
    count = len(wanted.split())
    for line, raw in lines:
        try:
            cells = as_text(raw, path, line).split()
            if cells and len(cells) != count:
                raise BadData(
                    f"{counted(len(cells), 'column')} where {count} are needed: {wanted}; the line is "
                    f'"{raw[:80].decode(errors="replace")}"',
                    path,
                    line,
                )
            if cells:
                yield line, cells
        except BadData as fault:
            skips.take(fault)


def read_run(path: PathLike, skips: Skips | int | None = None) -> Run:
    """Read a run. The order is by score (ties by document id, descending), whatever the ranks say.

    >>> import rankhouse as rh
    >>> rh.write_run(rh.Run.of({"q": {"a": 1.5}}), "my.run")
    >>> rh.read_run("my.run").to_dict()
    {'q': {'a': 1.5}}

    Args:
        path: The file, compressed or not: TREC's six columns; a table (CSV, TSV), Parquet file or JSON lines
            with query_id (qid), doc_id (docno, docid) and score; MS MARCO's three columns (query, document,
            rank from 1: the score is 1 / rank); or JSON of {query: {document: score}}.
        skips: How many malformed records to pass over; none by default.

    Raises:
        BadData: A malformed line, a score that is not a number, a document twice for one query.
        MissingInput: No such file.

    Warns:
        RankhouseWarning: There is not one row in it.
    """
    path, skips = as_path(path, "path"), Skips.of(skips)
    # Ids repeat a thousandfold, so each is kept once; a finished query becomes an array of scores.
    ids: dict[str, str] = {}
    documents: dict[str, list[str]] = {}
    scores: dict[str, FloatArray] = {}
    current, rows = "", dict[str, float]()
    resumed: dict[str, dict[str, float]] = {}  # rows of queries that were left and came back
    for line, (query_id, doc_id, score) in _retrieved(path, skips):
        if query_id != current:
            documents[current], scores[current] = _finished(rows) if current not in resumed else ([], _NONE)
            current, rows = query_id, resumed.get(query_id, {})
            if query_id in documents and query_id not in resumed:
                before = zip(documents[query_id], map(float, scores[query_id]), strict=True)
                rows = resumed[query_id] = dict(before)
        try:
            if doc_id in rows:
                reason = f'document "{doc_id}" was already given for query "{query_id}"'
                raise DuplicateId(f"{reason}; a run names a document once per query", path, line)
            rows[ids.setdefault(doc_id, doc_id)] = _number(score, path, line)
        except BadData as fault:
            skips.take(fault)
    for query_id, held in {current: rows, **resumed}.items():
        documents[query_id], scores[query_id] = _finished(held)
    filled = [query_id for query_id in documents if documents[query_id]]
    if not filled:
        warn(f"{path}: the run has no rows")
    return Run.from_columns(filled, [documents[q] for q in filled], [scores[q] for q in filled])


_NONE: FloatArray = np.empty(0, np.float32)


def _finished(rows: dict[str, float]) -> tuple[list[str], FloatArray]:
    return list(rows), np.array(list(rows.values()), np.float32)


def _retrieved(path: Path, skips: Skips) -> Iterator[tuple[int, _Row]]:
    """Stream (line, ids of query and document and the score) of the file of a run."""
    first, lines = begun(path)
    if (named := _named(first, lines, path, _RUN, read=tables.retrieved, skips=skips)) is not None:
        yield from named
        return
    columns = first.decode(errors="replace").split()
    if len(columns) == 3 and columns[2].isdecimal():
        yield from _ranked(lines, path, skips)
        return
    for line, (query_id, _, doc_id, _, score, _) in _columns(lines, path, _RUN, skips):
        yield line, (query_id, doc_id, score)


def _ranked(lines: _Lines, path: Path, skips: Skips) -> Iterator[tuple[int, _Row]]:
    """Stream the rows of MS MARCO's form; what stands there is a rank if it begins at 1 and rises."""
    last: dict[str, int] = {}  # rank of each query
    for line, (query_id, doc_id, rank) in _columns(lines, path, _RANKS, skips):
        before = last.get(query_id, 0)
        try:
            row = tables.retrieved({"query_id": query_id, "doc_id": doc_id, "rank": rank}, path, line)
            last[query_id] = int(rank)
            if last[query_id] <= before or (not before and last[query_id] > 1):
                raise BadData(
                    f"the rank {rank} stands where {before + 1} {'or more do' if before else 'does'}; three "
                    f"columns are query, document and rank, which rises from 1; a score needs six: {_RUN}",
                    path,
                    line,
                )
            yield line, row
        except BadData as fault:
            skips.take(fault)


def run_tag(path: Path) -> str:
    """Return the tag of the first line of a TREC run; "" of another file, and where there is no line."""
    first, _ = begun(path)
    columns = first.split()
    return as_text(columns[5], path, 1) if len(columns) == 6 and not _is_other(first) else ""


def _is_other(first: bytes) -> bool:
    """Return whether a file's first line says that it is Parquet, JSON, or a table that names its columns."""
    return _is_json(first) or first.startswith(MAGICS) or bool(tables.named_columns(first, *PAIR_KEYS))


def _named(
    first: bytes,
    lines: _Lines,
    path: Path,
    trec: str,
    *,
    read: Callable[[dict[str, Any], Path, int], _Row],
    skips: Skips,
) -> Iterator[tuple[int, _Row]] | None:
    """Stream the rows of a file whose records or first line name their columns; None for another file.

    A name that ends in .csv, .parquet and the like says so, too, unless the first line has TREC's columns.
    """
    is_trec = not first or len(first.split()) == len(trec.split())
    if not _is_other(first) and (is_trec or not (kind_of(path) == ".csv" or is_columnar(path))):
        return None
    if _is_json(first):
        if not is_record(first):
            return _nested(lines, path)
        wanted = "no JSON object of ids and a number"
        return each_record(
            lines, path, lambda raw, at, n: read(from_json(_decoder, raw, wanted, at, line=n), at, n), skips
        )
    if first.startswith(MAGICS) or is_columnar(path):
        return each_row(path, read, skips)
    return _tabular(lines, path, read, skips)


def _is_json(first: bytes) -> bool:
    return first.lstrip().startswith(b"{") or begins_array(first) is not None


def is_record(raw: bytes) -> bool:
    """Return whether a line is a record of its own, and not one object of all queries, or its beginning.

    The beginning of an array of records is one as well.
    """
    if begins_array(raw):
        return True
    try:
        return not all(isinstance(value, dict) for value in _decoder.decode(raw).values())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return raw.rstrip().endswith(b"}")  # a broken record is named by its line


def _nested(lines: _Lines, path: Path) -> Iterator[tuple[int, _Row]]:
    """Stream the rows of one JSON object of query id -> document id -> number, as pytrec_eval has them."""
    raw, most = bytearray(), most_bytes()
    for _, line in lines:
        raw += line + b"\n"
        if len(raw) > most:
            raise too_long("the file", path)
    whole = from_json(_nested_decoder, bytes(raw), "no JSON of {query: {document: number}}", path, deep=True)
    if not any(map({name.lower() for name in whole}.isdisjoint, PAIR_KEYS)):
        raise BadData(
            f"is a table by columns ({', '.join(whole)}), as pandas writes it; write it with "
            'to_json(orient="records", lines=True)',
            path,
        )
    for query_id, row in whole.items():
        for doc_id, number in row.items():
            ids = checked_id(query_id, path), checked_id(doc_id, path)
            yield 1, (*ids, str(int(number) if number.is_integer() else number))


def _tabular(
    lines: _Lines, path: Path, read: Callable[[dict[str, Any], Path, int], _Row], skips: Skips
) -> Iterator[tuple[int, _Row]]:
    for line, ids, rest in tables.named_rows(lines, path, PAIR_KEYS, skips):
        try:
            yield line, read({**ids, **rest}, path, line)
        except BadData as fault:
            skips.take(fault)


def _number(score: str, path: Path, line: int) -> float:
    try:
        value = math.nan if "_" in score else float(score)  # Python's own spelling of numbers: 1_000
    except ValueError:
        value = math.nan
    if math.isnan(value):
        raise BadData(f'the score "{score}" is not a number', path, line)
    if INFINITE_FROM <= abs(value) < math.inf:
        raise BadData(f"the score {score} {TOO_LARGE}", path, line)
    return value


def write_run(run: Run, path: Path | str, tag: str = "rankhouse") -> None:
    """Write a TREC run, as ``rh.write_run`` says: WrongUse, OutputFailed."""
    if tag.split() != [tag]:
        raise WrongUse(f'the tag "{tag}" is empty or has white space in it; a run column has none')
    if not tag.isprintable():
        raise WrongUse(f"the tag {tag!a} holds a control character or is not UTF-8; use plain letters")
    with writing(Path(path)) as out:
        out.writelines(run_rows(run, tag))


def run_rows(run: Run, tag: str) -> Iterator[str]:
    """Stream the lines of a TREC run, as :func:`write_run` writes them.

    Args:
        run: The run.
        tag: The last column; the caller sees to it that it can be one.

    Raises:
        WrongUse: An id has white space in it.
    """
    for query_id in run:
        ranking = run[query_id]
        _check_columns(query_id, ranking.doc_ids)
        written = zip(ranking.doc_ids, ranking.scores.astype(str), strict=True)
        for rank, (doc_id, score) in enumerate(written, 1):
            yield f"{query_id} Q0 {doc_id} {rank} {score} {tag}\n"


def _check_columns(query_id: str, doc_ids: Iterable[str]) -> None:
    """Refuse ids that would not be read back from columns."""
    names = [query_id, *doc_ids]
    if " ".join(names).split() != names:
        bad = next(name for name in names if name.split() != [name])
        raise WrongUse(
            f'the id "{bad}" (query "{query_id}") is empty or has white space in it, so it cannot stand '
            "in a column of a run or of judgements; rename it"
        )


_whole_number = re.compile("[+-]?[0-9]+").fullmatch


def _judged_files(folder: Path) -> list[Path]:
    """Return the judgements in a folder of BEIR's or a hub's layout: of its test split, if any."""
    for split in ("test", "dev", "validation", "train"):
        for file in ("qrels/{}.tsv", "qrels/{}.jsonl", "qrels/{}-*.parquet", "data/{}-*.parquet"):
            if found := sorted(folder.glob(file.format(split))):
                return found
    raise MissingInput(
        f"{folder}: a folder without qrels/test.tsv or qrels/dev.tsv; name a file, or a folder in BEIR's "
        "layout: corpus.jsonl, queries.jsonl, qrels/test.tsv (or .jsonl), or a hub's: corpus, queries and "
        "qrels of Parquet files"
    )


def _judgements(path: Path, skips: Skips) -> Iterator[tuple[int, tuple[str, str, str]]]:
    """Stream (line, ids of query and document and the grade) of a file of judgements."""
    first, lines = begun(path)
    if (named := _named(first, lines, path, _QRELS, read=tables.judgement, skips=skips)) is not None:
        yield from named
        return
    for line, columns in _columns(lines, path, _QRELS, skips):
        yield line, (columns[0], columns[2], columns[3])


def read_qrels(path: PathLike, skips: Skips | int | None = None) -> Qrels:
    """Read judgements: TREC's four columns (query, iteration, document, grade), tables, JSON or Parquet.

    >>> import rankhouse as rh
    >>> rh.write_qrels({"q": {"a": 1}}, "qrels.txt")
    >>> rh.read_qrels("qrels.txt")
    {'q': {'a': 1}}

    Args:
        path: The file, a folder in BEIR's or a hub's layout, or ``ir_datasets:NAME`` of a public collection.
            Tables (CSV, TSV), Parquet and JSON lines name query-id (query_id, qid), corpus-id (doc_id, docno)
            and score (relevance, label, grade); JSON may also be one {query: {document: grade}}.
        skips: How many malformed records to pass over; none by default.

    Raises:
        BadData: A malformed line, or a grade that is no whole number.
        DuplicateId: A document judged twice for one query.
        MissingInput: No such file.
    """
    if str(path).startswith(PUBLIC):
        return qrels_of(str(path).removeprefix(PUBLIC))
    path, skips = as_path(path, "path"), Skips.of(skips)
    qrels: dict[str, dict[str, int]] = {}
    rows = (
        (one, *row)
        for one in (_judged_files(path) if path.is_dir() else [path])
        for row in _judgements(one, skips)
    )
    for path, line, (query_id, doc_id, grade) in rows:
        try:
            judged = qrels.setdefault(query_id, {})
            if doc_id in judged:
                raise DuplicateId(
                    f'document "{doc_id}" was already judged for query "{query_id}" (grade {judged[doc_id]})',
                    path,
                    line,
                )
            judged[doc_id] = _grade(grade, path, line)
        except BadData as fault:
            skips.take(fault)
    return qrels


def _grade(text: str, path: Path, line: int) -> int:
    if not _whole_number(text):
        raise BadData(f'the grade "{text[:40]}" is no whole number', path, line)
    if len(text) > 11 or abs(int(text)) > MOST_GRADE:
        raise BadData(f'the grade "{text[:40]}" is beyond {MOST_GRADE:,}, the highest one', path, line)
    return int(text)


def write_qrels(qrels: Qrels, path: Path | str) -> None:
    """Write TREC qrels, as ``rh.write_qrels`` says: WrongUse, OutputFailed."""
    with writing(Path(path)) as out:
        out.writelines(qrels_rows(qrels))


def qrels_rows(qrels: Qrels) -> Iterator[str]:
    """Stream the lines of TREC qrels, as :func:`write_qrels` writes them.

    Args:
        qrels: The judgements.

    Raises:
        WrongUse: An id is empty or has white space in it.
    """
    for query_id, judged in qrels.items():
        _check_columns(query_id, judged)
        for doc_id, grade in judged.items():
            yield f"{query_id} 0 {doc_id} {grade}\n"
