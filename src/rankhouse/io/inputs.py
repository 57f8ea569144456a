"""Inputs that the verbs accept: the thing itself, or a path, mapping or iterable in its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from math import isnan
from numbers import Real
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeGuard, cast

import msgspec

from rankhouse.core.errors import BadData, DuplicateId, WrongUse
from rankhouse.core.frames import as_id, columns_of
from rankhouse.core.nouns import Document, Query, Ranking
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run, check_row, triples
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.duplicate_ids import SeenIds
from rankhouse.io.files import PathLike, as_path, checked_id, wrong_kind
from rankhouse.io.providers import document_of, query_of, records_of
from rankhouse.io.trec import read_qrels, read_run

if TYPE_CHECKING:
    from pandas import DataFrame
else:  # optional, and slow to load
    DataFrame = Any

DocumentLike = Document | Mapping[str, Any]
"""A Document, or a mapping with "id" ("_id", "docno"), "text" ("contents"), "title" and anything else."""

DocumentsLike = (
    PathLike
    | Iterable[PathLike]
    | Iterable[DocumentLike]
    | Mapping[str, str]
    | Mapping[str, DocumentLike]
    | DataFrame
)
QueriesLike = (
    PathLike
    | Query
    | Iterable[Query]
    | Iterable[tuple[str, str]]
    | Iterable[str]
    | Mapping[str, str]
    | DataFrame
)
RunLike = Run | PathLike | Mapping[str, Mapping[str, float]] | Iterable[tuple[str, str, float]] | DataFrame
QrelsLike = Qrels | PathLike | Iterable[Sequence[Any]] | DataFrame


def as_list(given: Iterable[Any], name: str, wanted: str) -> list[Any]:
    """Return the elements of an iterable that is neither one string nor a mapping, else raise WrongUse."""
    if not _is_several(given) or isinstance(given, Mapping):
        raise wrong_kind(name, given, wanted)
    return list(given)


def check_texts(name: str, given: Iterable[object]) -> None:
    """Refuse an argument whose elements are not all strings."""
    for one in given:
        if not isinstance(one, str):
            raise wrong_kind(f"one of {name}", one, "a string")


def _is_several(given: object) -> bool:
    return isinstance(given, Iterable) and not isinstance(given, str | bytes | os.PathLike)


def _is_frame(given: object) -> TypeGuard[DataFrame]:
    return hasattr(given, "columns")


def as_documents(given: DocumentsLike) -> Iterator[Document]:
    """Stream documents from files, folders, ``ir_datasets:NAME``, or any iterable of documents.

    Or from a DataFrame, a mapping of id to text or to document, or a list of texts, whose ids are their
    places, from "0".
    """
    if isinstance(given, str | os.PathLike):
        return read_documents([str(as_path(given, "documents"))])
    given = cast("DocumentsLike", _part_of(given, "docs"))
    if _is_frame(given):
        return _distinct(_documents_of(given))
    if isinstance(given, Mapping):
        if any(key in given for key in _TEXTS):
            raise wrong_kind("documents", given, "[document] for a single one")
        rows = (row if isinstance(row, Document) else _with_id(key, row) for key, row in given.items())
        return _distinct(_as_document(row, place) for place, row in enumerate(rows))
    if not _is_several(given) or isinstance(given, Document):
        raise wrong_kind("documents", given, "a corpus file, several, or an iterable of documents")
    items: Iterator[Any] = iter(cast("Iterable[Any]", given))
    first = next(items, None)
    if first is None:
        return iter(())
    if isinstance(first, str) and _is_text(first):
        texts: list[Any] = [first, *items]
        check_texts("documents", texts)
        return (_storable(Document(str(place), text)) for place, text in enumerate(texts))
    if isinstance(first, str | os.PathLike):
        paths: list[Any] = [first, *items]
        return read_documents([str(as_path(path, "a corpus file")) for path in paths])
    rest: Iterable[Any] = items
    return _distinct(_as_document(item, place) for place, item in enumerate(chain([first], rest)))


def _part_of(given: Any, part: str) -> Any:  # noqa: ANN401 - an untyped library's object
    """Return the "docs", "queries" or "qrels" of a collection of ir_datasets; anything else as it is."""
    return records_of(given, part) if hasattr(given, f"{part}_iter") else given


def _distinct(documents: Iterable[Document]) -> Iterator[Document]:
    """Pass documents on; DuplicateId for an id that came before."""
    seen, place = SeenIds(), Path("documents")
    for number, document in enumerate(documents, 1):
        seen.takes(document, place, number)
        yield document
    seen.check()


def _documents_of(table: DataFrame) -> Iterator[Document]:
    """Stream the rows of a DataFrame; cells without a value are left out."""
    columns = [table[name].to_list() for name in table.columns]
    for place, row in enumerate(zip(*columns, strict=True)):
        cells = zip(map(str, table.columns), row, strict=True)
        record = {name: cell for name, cell in cells if not (isinstance(cell, float) and isnan(cell))}
        yield _as_document({name: as_id(c) if name in _IDS else c for name, c in record.items()}, place)


def _with_id(doc_id: object, row: object) -> Mapping[str, object]:
    """Return the record of a mapping's entry: a text, or a record that may lack its id."""
    return {"id": doc_id, **row} if isinstance(row, Mapping) else {"id": doc_id, "text": row}


def _is_text(given: str) -> bool:
    """Return whether a string can only be a document's text: several words that name no file."""
    is_file = os.path.exists(given) or ((end := Path(given).suffix) and end[1:].isalnum())  # noqa: PTH110
    return " " in given.strip() and not is_file


_IDS = ("id", "_id", "docid", "docno", "doc_id")
_TEXTS = ("text", "contents", "body")


def _as_document(item: object, place: int) -> Document:
    if isinstance(item, Document):
        if not all(isinstance(value, str) for value in item[:3]):
            raise BadData(f"document {place:,}: id, text and title must be strings; it is {item!r:.80}")
        checked_id(item.id)
        return _storable(item)
    if isinstance(getattr(item, "doc_id", None), str) and hasattr(item, "default_text"):
        return _storable(document_of(item))
    if not isinstance(item, Mapping):
        raise WrongUse(
            f"document {place:,} is of type {type(item).__name__} ({item!r:.80}); give a Document or a "
            'mapping with "id" and "text"'
        )
    rest = dict(item)
    doc_id = as_id(next((rest.pop(key) for key in _IDS if key in rest), None))
    text = next((rest.pop(key) for key in _TEXTS if key in rest), None)
    title = rest.pop("title", "") or ""
    if not isinstance(doc_id, str) or not isinstance(text, str) or not isinstance(title, str):
        raise BadData(
            f'document {place:,} has no "id" that is a text or a whole number, or no "text" that is a '
            f"string; it has: {', '.join(map(str, item))}"
        )
    return _storable(Document(checked_id(doc_id), text, title, rest))


def _storable(document: Document) -> Document:
    """Return a document that an index can hold; BadData for halves of characters and odd fields."""
    try:
        if not document.text.isascii() or not document.title.isascii():
            f"{document.title}{document.text}".encode()
        if document.extra:
            msgspec.msgpack.encode(dict(document.extra))
    except UnicodeEncodeError as error:
        half = error.object[error.start]
        raise BadData(
            f'document "{document.id}" holds {half!a}, half of a surrogate pair, which is no character'
        ) from None
    except (TypeError, ValueError, RecursionError, OverflowError) as error:
        raise BadData(
            f'document "{document.id}" has a field that cannot be stored ({error}); give texts, numbers, '
            "lists and mappings"
        ) from error
    return document


def as_queries(given: QueriesLike) -> list[Query]:
    """Return queries from a file, a mapping of id to text, or an iterable of queries or (id, text).

    Or from a DataFrame, or a list of texts, whose ids are their places, from "0".
    """
    if isinstance(given, Query):
        return [given]
    if isinstance(given, str) and " " in given and not as_path(given, "queries").exists():
        raise WrongUse(
            f'"{given}": there is no such file; queries are a file or several Query objects, and one '
            "question is asked with index.search(text)"
        )
    if isinstance(given, str | os.PathLike):
        return read_queries(str(as_path(given, "queries")))
    if not _is_several(given) and not hasattr(given, "queries_iter"):
        raise wrong_kind("queries", given, "a file, a mapping of id to text, or several Query objects")
    asked: Any = _part_of(given, "queries")
    items: list[Any] = list(asked.items() if isinstance(asked, Mapping) else asked)
    if _is_frame(given):
        items = list(columns_of(given, ("query_id", "qid", "id", "_id"), ("text", "query")))
    elif items and not isinstance(given, tuple) and all(isinstance(item, str) for item in items):
        if file := next((item for item in items if os.path.isfile(item)), ""):  # noqa: PTH113
            raise WrongUse(f'queries: "{file}" is a file; give one file by itself: queries="{file}"')
        items = [(str(place), text) for place, text in enumerate(items)]
    queries = [_as_query(item) for item in items]
    ids = {query.id for query in queries}
    if len(ids) < len(queries):
        repeated = next(q.id for i, q in enumerate(queries) if q.id in {p.id for p in queries[:i]})
        raise DuplicateId(f'the query id "{repeated}" is given twice; give each query an id of its own')
    return queries


def _as_query(item: object) -> Query:
    match item:
        case Query(str(), str()):
            return item
        case object(query_id=str(), default_text=_):
            return query_of(item)
        case (str(query_id), str(text)):
            return Query(query_id, text)
        case {"id": str(query_id), "text": str(text)} | {"_id": str(query_id), "text": str(text)}:
            return Query(query_id, text)
    raise WrongUse(
        f"{item!r:.80} is no query; give Query(id, text), pairs of id and text, a mapping or a "
        "list of texts; ids and texts are strings"
    )


def as_run(given: RunLike) -> Run:
    """Return a run from a TREC file, query id -> document id -> score, its rows, or a DataFrame."""
    if isinstance(given, Run):
        return given
    if isinstance(given, str | os.PathLike):
        return read_run(as_path(given, "the run"))
    if _is_frame(given) or (_is_several(given) and not isinstance(given, Mapping | Ranking)):
        return Run.of(given)
    return Run.from_rankings(_rows(given, "the run"))


def as_runs(given: Sequence[RunLike], name: str) -> list[Run]:
    """Return several runs; WrongUse, which names the argument, for a single one, or none."""
    wanted = "a list of runs or run files"
    if not (runs := as_list(given, name, wanted)):
        raise wrong_kind(name, given, wanted)
    return [as_run(run) for run in runs]


def as_qrels(given: QrelsLike) -> Qrels:
    """Return judgements from a TREC file, or as they are if their grades are whole numbers.

    Or from rows (query id, document id, grade), such as ir_measures.Qrel, or a DataFrame.
    """
    if isinstance(given, str | os.PathLike):
        return read_qrels(as_path(given, "qrels"))
    rows: Any = _part_of(given, "qrels")
    if _is_frame(given):
        names = ("relevance", "label", "grade", "rel")
        rows = list(columns_of(given, ("query_id", "qid"), ("doc_id", "docno"), names))
    if _is_several(rows) and not isinstance(rows, Mapping | Ranking):
        judged: dict[str, dict[str, int]] = {}
        for query_id, doc_id, grade in triples("qrels", rows, "a grade"):
            grades = judged.setdefault(query_id, {})
            if doc_id in grades:
                raise DuplicateId(f'qrels: document "{doc_id}" is judged twice for query "{query_id}"')
            grades[doc_id] = grade
        rows = judged
    qrels = _rows(rows, "qrels")
    for query_id, grades in qrels.items():
        check_row("qrels", query_id, grades)
        for doc_id, grade in grades.items():
            if not isinstance(grade, Real) or not float(grade).is_integer():
                raise BadData(
                    f'qrels, query "{query_id}": the grade of "{doc_id}" is {grade!r:.60}, not a whole number'
                )
    return qrels


def _rows(given: object, name: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise wrong_kind(
            name, given, "a TREC file, a mapping {query id: {document id: number}}, rows or a DataFrame"
        )
    return given


def as_measures(given: str | Iterable[str]) -> str | list[str]:
    """Return measures in their notation, which is text; ir_measures' own objects are written so."""
    if isinstance(given, str):
        return given
    several = given if isinstance(given, Iterable) else [given]
    names = as_list(several, "measures", 'them as text, for example "AP nDCG@10"')
    names = [str(one) if type(one).__module__.startswith("ir_measures") else one for one in names]
    check_texts("measures", names)
    return names
