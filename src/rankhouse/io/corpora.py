"""Documents and queries from files: JSON lines, TSV and TREC markup, streaming, plain or compressed."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, WrongUse, encodable, name_few, warn
from rankhouse.core.nouns import Document, Query, by_id
from rankhouse.core.progress import counted
from rankhouse.io import providers
from rankhouse.io.decoding import each_record, from_json, is_nested_too_deep, nested
from rankhouse.io.duplicate_ids import Repeats, SeenIds
from rankhouse.io.files import (
    Meter,
    PathLike,
    Skips,
    as_path,
    as_text,
    checked_id,
    given_id,
    is_hidden,
    kind_of,
    looks_like,
    numbered_lines,
    wrong_kind,
)
from rankhouse.io.outputs import write_lines
from rankhouse.io.providers import PUBLIC, public_documents, public_queries
from rankhouse.io.readers import columnar, tables
from rankhouse.io.trec import read_qrels

JSON_KINDS = (".jsonl", ".ndjson", ".json")
TREC_KINDS = (".sgml", ".sgm", ".trec", ".xml")
CORPUS_KINDS = (*JSON_KINDS, ".tsv", ".csv", *TREC_KINDS)

_decoder = msgspec.json.Decoder(dict[str, Any])


def read_documents(
    sources: PathLike | Iterable[PathLike],
    skips: Skips | int | None = None,
    seen: SeenIds | None = None,
    meter: Meter | None = None,
) -> Iterator[Document]:
    r"""Stream the documents of files, folders of files, and ``ir_datasets:NAME`` collections.

    >>> import rankhouse as rh
    >>> from pathlib import Path
    >>> _ = Path("corpus.tsv").write_text("d1\tA lock lifts ships.\n")
    >>> [document.text for document in rh.read_documents("corpus.tsv")]
    ['A lock lifts ships.']

    Args:
        sources: One, or several: ``.jsonl`` of {"id" or "_id", "title"?, "text"}, ``.tsv`` (id, text),
            ``.csv`` and ``.tsv`` whose first line names columns, TREC markup (``.sgml``, ``.trec``), each
            plain, ``.gz`` or ``.zst``; Parquet, Arrow or SQLite; or a folder of such files.
        skips: How many malformed records to pass over; none by default.
        seen: The ids already taken; none by default.
        meter: Told how many bytes were read.

    Raises:
        BadData: A malformed record, with its file and line.
        DuplicateId: An id given twice, in whichever files.
        MissingInput: No such file.
    """
    if not isinstance(sources, Iterable | str | os.PathLike):
        raise wrong_kind("a corpus", sources, "a path: a string or pathlib.Path")
    skips = Skips.of(skips)
    seen = SeenIds(at_once=skips.limit > 0) if seen is None else seen
    for source in [sources] if isinstance(sources, str | os.PathLike) else sources:
        if str(source).startswith(PUBLIC):
            yield from public_documents(str(source).removeprefix(PUBLIC))
            continue
        for path in corpus_files(as_path(source, "a corpus"), warns=True):
            yield from distinct(records(path, skips, meter), path, seen, skips)


def distinct(
    numbered: Iterable[tuple[int, Document]], path: Path, seen: SeenIds, skips: Skips
) -> Iterator[Document]:
    """Pass on the documents of a file whose ids were not given before.

    Args:
        numbered: (line, document) of the file.
        path: The file.
        seen: The ids so far.
        skips: Where documents go whose id was given before.

    Raises:
        DuplicateId: There are too many of those.
    """
    for line, document in numbered:
        try:
            is_new = seen.takes(document, path, line)
        except DuplicateId as fault:
            skips.take(fault)
            continue
        if is_new:
            yield document
    seen.check()


def corpus_files(source: Path, *, warns: bool = False) -> list[Path]:
    """List the corpus files a path stands for: itself, or those of a folder in order of name.

    Of a folder in BEIR's layout, that is ``corpus.jsonl``; of a hub's, ``corpus/*.parquet``. Symbolic
    links within a folder are left out, since what they lead to is read by itself or lies elsewhere; a file
    under two names is read once. Hidden files and folders are left out, too, and indexes.

    Args:
        warns: Whether to give a RankhouseWarning of what is left out so.

    Raises:
        WrongUse: The file's suffix names no known format.
        MissingInput: The folder holds no corpus file.
    """
    if not source.is_dir():
        if (source.exists() or str(source) == "-") and not is_corpus(source):
            others = (
                f'"{kind_of(source) or source.name}" is not one of them; for others:  rankhouse up FOLDER'
            )
            if not source.is_file():
                others = "it is not read out of a pipe: write it into a file first, like  ... > corpus.jsonl"
            ends = (
                f"{source}: a corpus file ends in {_endings()} (each also with .gz or .zst, read as they are)"
            )
            raise WrongUse(f"{ends}; {others}")
        return [source]
    is_collection = any((source / name).is_dir() for name in ("qrels", "queries"))
    if is_collection and (found := _of_collection(source, "corpus")):
        return found
    return _of_folder(source, warns=warns)


def _of_folder(source: Path, *, warns: bool) -> list[Path]:
    """List the corpus files of a folder in order of name, as :func:`corpus_files` says."""
    paths, left, hidden = dict[tuple[int, int], Path](), list[str](), list[str]()
    indexes = {segments.parent for segments in source.rglob("segments") if is_index(segments.parent)}
    for path in sorted(p for p in source.rglob("*") if is_corpus(p) and not p.is_dir()):
        stat = path.lstat()
        if not indexes.isdisjoint(path.parents):
            continue
        if any(map(is_hidden, path.relative_to(source).parts)):
            hidden.append(str(path.relative_to(source)))
        elif path.is_symlink() or (path.is_file() and (stat.st_dev, stat.st_ino) in paths):
            left.append(str(path.relative_to(source)))
        elif path.is_file():
            paths[stat.st_dev, stat.st_ino] = path
    others = f"{name_few(left)}; name a link itself to read what it leads to"
    if not paths:
        raise MissingInput(
            f"{source}: the folder holds no corpus file ({_endings()}); files of text, Markdown and HTML are "
            f"documents for  rankhouse up {source}"
            + (f"; it holds symbolic links, which are not followed: {others}" if left else "")
            + (f"; it holds hidden files, which are not read: {name_few(hidden)}" if hidden else "")
        )
    if indexes and warns:
        names = name_few(sorted(str(one.relative_to(source)) for one in indexes))
        warn(f"{source}: what lies in {counted(len(indexes), 'index', 'indexes')} is not read: {names}")
    if left and warns:
        warn(f"{source}: {len(left):,} symbolic links or second names of a file are not read: {others}")
    if hidden and warns:
        warn(f"{source}: {len(hidden):,} hidden files are not read: {name_few(hidden)}; name one to read it")
    return list(paths.values())


def _of_collection(folder: Path, what: str) -> list[Path]:
    """List the files of a collection's "corpus" or "queries", as BEIR or a hub lays them out."""
    lines = folder / f"{what}.jsonl"
    return [lines] if lines.is_file() else sorted((folder / what).glob(f"[!.]*{columnar.PARQUET}"))


def is_index(folder: Path) -> bool:
    """Return whether a folder holds an index, whole or not."""
    return (folder / "manifest.json").is_file() and (folder / "segments").is_dir()


def _endings() -> str:
    return ", ".join((*CORPUS_KINDS, *columnar.COLUMNAR, *providers.installed_endings()))


def is_corpus(path: Path) -> bool:
    """Return whether a file's ending is that of a corpus; an installed package's counts, too."""
    is_known = kind_of(path) in CORPUS_KINDS or columnar.is_columnar(path) or providers.has_reader(path)
    return is_known and not columnar.is_of_dataset(path)


def records(path: Path, skips: Skips, meter: Meter | None) -> Iterator[tuple[int, Document]]:
    """Stream (line, document) of one corpus file; ids are not compared.

    Args:
        path: The file.
        skips: Where malformed records go.
        meter: Told how many bytes were read.
    """
    if kind_of(path) in TREC_KINDS:
        from rankhouse.io import markup  # noqa: PLC0415 - a dozen expressions to compile, for TREC only

        return markup.documents(path, skips, meter)
    if columnar.is_columnar(path):
        return columnar.each_row(path, _document, skips, meter)
    if kind_of(path) not in CORPUS_KINDS and providers.has_reader(path):
        return providers.installed_documents(path)
    if tables.is_headed(path):
        return tables.documents(path, skips, meter)
    return each_record(numbered_lines(path, meter), path, line_reader(path), skips)


def line_reader(path: Path) -> Callable[[bytes, Path, int], Document]:
    """Return what reads a line of a corpus file that has one record a line."""
    if kind_of(path) == ".tsv":
        return lambda raw, at, line: Document(*_tsv_fields(raw, at, line))
    return lambda raw, at, line: _document(_json_record(raw, at, line), at, line)


def _json_record(raw: bytes, path: Path, line: int) -> dict[str, Any]:
    record = from_json(_decoder, raw, "not a JSON object on one line", path, line=line)
    if is_nested_too_deep(raw, record):
        raise nested(path, line)
    return record


def _document(record: dict[str, Any], path: Path, line: int) -> Document:
    doc_id = _take_id(record, path, line)
    text = _take_text(record, columnar.TEXT_KEYS, path, line)
    title = record.pop("title", None)
    if title is not None and not isinstance(title, str):
        raise BadData(f'the "title" of document "{doc_id}" is no string: {title!r}', path, line)
    return Document(doc_id, text, title or "", record) if record else Document(doc_id, text, title or "")


def _take_id(record: dict[str, Any], path: Path, line: int, keys: Sequence[str] = columnar.ID_KEYS) -> str:
    for key in keys:
        if key in record:
            return given_id(record.pop(key), key, path, line)
    reason = f'the record has no "id" (or "_id"); its keys are: {", ".join(record) or "none"}; '
    raise BadData(f'{reason}give each record an "id" of its own, a text or a whole number', path, line)


def _take_text(record: dict[str, Any], keys: tuple[str, ...], path: Path, line: int) -> str:
    for key in keys:
        if key in record:
            value = record.pop(key)
            if value is None:
                return ""
            if not isinstance(value, str):
                kind = "bytes that are no UTF-8 text" if isinstance(value, bytes) else type(value).__name__
                raise BadData(f'the "{key}" must be a string, not {kind}', path, line)
            return value
    reason = f'the record has no "{keys[0]}"; its keys are: {", ".join(record) or "none"}; '
    raise BadData(f'{reason}call what is to be read "{keys[0]}"', path, line)


def _tsv_fields(raw: bytes, path: Path, line: int) -> tuple[str, str]:
    record_id, tab, text = as_text(raw, path, line).partition("\t")
    if not tab:
        raise BadData("the line has no tab; write  id <tab> text", path, line)
    return checked_id(record_id, path, line), text


def read_queries(path: PathLike, skips: Skips | int | None = None, field: str = "") -> list[Query]:
    r"""Read queries from JSON lines, TSV or TREC topics, recognised by their content.

    >>> import rankhouse as rh
    >>> from pathlib import Path
    >>> _ = Path("queries.tsv").write_text("q1\twho steers ships?\n")
    >>> rh.read_queries("queries.tsv")
    [Query(id='q1', text='who steers ships?')]

    Args:
        path: ``{"id", "text"}`` a line, or ``id <tab> text`` a line, or a table (TSV, CSV) whose first line
            names ``id`` or ``qid`` and ``text`` or ``query``, or TREC ``<top>`` records; or a folder in
            BEIR's layout or a hub's, whose judged queries (of the test split) are read.
        skips: How many malformed records to pass over; none by default.
        field: Which text to take: a key of the JSON records, or "title", "desc" or "narr" of topics.
            By default "text" (JSON) and "title" (topics).

    Raises:
        BadData: A malformed record, with its file and line, or no query at all.
        DuplicateId: A query id given twice.
        MissingInput: No such file.
    """
    if str(path).startswith(PUBLIC):
        return public_queries(str(path).removeprefix(PUBLIC), field)
    path = as_path(path, "path")
    skips = Skips.of(skips)
    if path.is_dir():
        judged, files = read_qrels(path), _of_collection(path, "queries") or [path / "queries.jsonl"]
        held = by_id(one for file in files for one in read_queries(file, skips, field))
        return [one for one in held.values() if one.id in judged]
    records: Iterator[tuple[int, Query]]
    lines = numbered_lines(path)  # opened when the first is taken
    keys = (field,) if field else columnar.QUERY_KEYS
    match columnar.PARQUET if columnar.is_columnar(path) else looks_like(path):
        case ".parquet":
            records = columnar.each_row(path, partial(_query, keys=keys), skips)
        case "{":
            records = each_record(
                lines, path, lambda raw, at, line: _query(_json_record(raw, at, line), at, line, keys), skips
            )
        case "<":
            from rankhouse.io import markup  # noqa: PLC0415 - as above

            records = markup.topics(path, field or "title", skips)
        case _ if kind_of(path) == ".csv" or tables.named_columns(
            next(numbered_lines(path), (0, b""))[1], columnar.QUERY_ID_KEYS, keys
        ):
            rows = tables.documents(path, skips, ids=columnar.QUERY_ID_KEYS, texts=keys)
            records = ((line, Query(row.id, row.text)) for line, row in rows)
        case _ if field:
            raise WrongUse(f'{path}: a TSV file of queries has one text only; leave out the field "{field}"')
        case _:
            records = each_record(
                lines, path, lambda raw, at, line: Query(*_tsv_fields(raw, at, line)), skips
            )
    queries: dict[str, Query] = {}
    for line, query in records:
        if query.id in queries:
            skips.take(DuplicateId(f'the query id "{query.id}" was already given', path, line))
        else:
            queries[query.id] = query
    if not queries and not skips.seen:
        raise BadData("holds no query; write one per line, as JSON or as  id <tab> text", path)
    return list(queries.values())


def _query(record: dict[str, Any], path: Path, line: int, keys: tuple[str, ...]) -> Query:
    return Query(_take_id(record, path, line, columnar.QUERY_ID_KEYS), _take_text(record, keys, path, line))


def write_queries(queries: Iterable[Query], path: Path) -> None:
    """Write queries as JSON lines in their order, whole or not at all; .gz and .zst compress."""
    write_lines(path, (query._asdict() for query in queries))


class Source(NamedTuple):
    """A corpus and the prefix of its ids; "" for none."""

    path: str
    prefix: str = ""


def named_sources(corpus: Sequence[str]) -> list[Source]:
    """Name corpora for their ids' prefix: ``NAME=PATH`` as said, others by their file's or folder's stem.

    Raises:
        WrongUse: Two have one name, or a name that cannot stand in an id.
    """
    sources = [_named(text) for text in corpus]
    for number, source in enumerate(sources):
        if not source.prefix or any(sign.isspace() for sign in source.prefix):
            raise WrongUse(f'"{corpus[number]}": a prefix is one word; name it, like  news={source.path}')
        if source.prefix in [other.prefix for other in sources[:number]]:
            raise WrongUse(
                f'two corpora are named "{source.prefix}", so their ids would not differ; name one yourself, '
                f"like  {source.prefix}2={source.path}"
            )
    return sources


def _named(text: str) -> Source:
    name, equals, path = text.partition("=")
    if equals and name and "/" not in name and not Path(text).exists():
        return Source(path, name)
    if text.startswith(PUBLIC):
        return Source(text, text.removeprefix(PUBLIC).replace("/", "-"))
    stem = Path(text).name
    for suffix in (".gz", ".zst", ".tsv", *JSON_KINDS, *TREC_KINDS):
        stem = stem.removesuffix(suffix)
    return Source(text, encodable(stem))


def read_sources(
    sources: Sequence[Source], skips: Skips, repeats: Repeats | None = None, meter: Meter | None = None
) -> Iterator[Document]:
    """Stream the documents of corpora, ids behind the prefixes of those that have one, and a colon.

    Args:
        sources: Files, folders, ``ir_datasets:NAME``, or NAME=PATH.
        skips: How many faulty records may be skipped; none by default.
        meter: Counts the bytes read.

    Raises:
        RankhouseError: What :func:`read_documents` raises.
    """
    if not any(source.prefix for source in sources):
        yield from read_documents([source.path for source in sources], skips, repeats, meter)
        return
    for source in sources:  # prefixes differ, so each corpus need be compared with itself only
        start = f"{source.prefix}:"
        if repeats is not None:
            repeats.prefix = start
        for document in read_documents([source.path], skips, repeats, meter):
            yield document._replace(id=start + document.id)
