"""TREC runs (six columns) and qrels (four columns), plain or compressed."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, WrongUse, warn
from rankhouse.core.nouns import FloatArray
from rankhouse.core.progress import counted
from rankhouse.core.qrels import MOST_GRADE, Qrels
from rankhouse.core.run import INFINITE_FROM, TOO_LARGE, Run
from rankhouse.io.decoding import from_json
from rankhouse.io.files import PathLike, Skips, as_path, as_text, each_record, kind_of, numbered_lines
from rankhouse.io.outputs import writing
from rankhouse.io.providers import PUBLIC, qrels_of
from rankhouse.io.readers.tables import PARQUET, each_row, judgement


def _columns(path: Path, wanted: str, skips: Skips) -> Iterator[tuple[int, list[str]]]:
    """Stream (line, columns) of a file split at white space; other numbers of columns are faults."""
    count = len(wanted.split())
    for line, raw in numbered_lines(path):
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


def read_run(path: PathLike, skips: Skips | None = None) -> Run:
    """Read a TREC run. The order is by score (ties by document id, descending), whatever the ranks say.

    >>> import rankhouse as rh
    >>> rh.write_run(rh.Run.of({"q": {"a": 1.5}}), "my.run")
    >>> rh.read_run("my.run").to_dict()
    {'q': {'a': 1.5}}

    Args:
        path: The file, compressed or not.
        skips: How many malformed records to pass over; none by default.

    Raises:
        BadData: A malformed line, a score that is not a number, a document twice for one query.
        MissingInput: No such file.

    Warns:
        RankhouseWarning: There is not one row in it.
    """
    path, skips = as_path(path, "path"), Skips() if skips is None else skips
    # Ids repeat a thousandfold, so each is kept once; a finished query becomes an array of scores.
    ids: dict[str, str] = {}
    documents: dict[str, list[str]] = {}
    scores: dict[str, FloatArray] = {}
    current, rows = "", dict[str, float]()
    for line, (query_id, _, doc_id, _, score, _) in _columns(path, "query Q0 document rank score tag", skips):
        if query_id != current:
            documents[current], scores[current] = list(rows), np.array(list(rows.values()), np.float32)
            # A query that was left and comes back resumes.
            rows = dict(zip(documents.get(query_id, ()), map(float, scores.get(query_id, ())), strict=True))
            current = query_id
        try:
            if doc_id in rows:
                reason = f'document "{doc_id}" was already given for query "{query_id}"'
                raise DuplicateId(f"{reason}; a run names a document once per query", path, line)
            rows[ids.setdefault(doc_id, doc_id)] = _number(score, path, line)
        except BadData as fault:
            skips.take(fault)
    documents[current], scores[current] = list(rows), np.array(list(rows.values()), np.float32)
    filled = [query_id for query_id in documents if documents[query_id]]
    if not filled:
        warn(f"{path}: the run has no rows")
    return Run.from_columns(filled, [documents[q] for q in filled], [scores[q] for q in filled])


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
_BEIR_HEADER = ["query-id", "corpus-id", "score"]


_decoder = msgspec.json.Decoder(dict[str, Any])


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
    if kind_of(path) == PARQUET:
        yield from each_row(path, judgement, skips)
        return
    first = next((raw for _, raw in numbered_lines(path) if raw.strip()), b"")
    if first.lstrip().startswith(b"{"):
        yield from each_record(numbered_lines(path), path, _json_judgement, skips)
        return
    is_beir = first.decode(errors="replace").split() == _BEIR_HEADER
    wanted = "query document grade" if is_beir else "query iteration document grade"
    for line, columns in _columns(path, wanted, skips):
        if not is_beir or columns != _BEIR_HEADER:
            yield line, (columns[0], columns[-2], columns[-1])


def _json_judgement(raw: bytes, path: Path, line: int) -> tuple[str, str, str]:
    wanted = 'no judgement; a line is {"query-id", "corpus-id", "score"}'
    return judgement(from_json(_decoder, raw, wanted, path, line=line), path, line)


def read_qrels(path: PathLike, skips: Skips | None = None) -> Qrels:
    """Read TREC qrels (query, iteration, document, grade), or BEIR's three columns: a table, JSON, Parquet.

    >>> import rankhouse as rh
    >>> rh.write_qrels({"q": {"a": 1}}, "qrels.txt")
    >>> rh.read_qrels("qrels.txt")
    {'q': {'a': 1}}

    Args:
        path: The file, a folder in BEIR's or a hub's layout, or ``ir_datasets:NAME`` of a public collection.
        skips: How many malformed records to pass over; none by default.

    Raises:
        BadData: A malformed line, or a grade that is no whole number.
        DuplicateId: A document judged twice for one query.
        MissingInput: No such file.
    """
    if str(path).startswith(PUBLIC):
        return qrels_of(str(path).removeprefix(PUBLIC))
    path, skips = as_path(path, "path"), Skips() if skips is None else skips
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
