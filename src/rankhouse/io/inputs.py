"""What the verbs accept: the thing itself, or the path, mapping or iterable that people have in its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from numbers import Real
from pathlib import Path
from typing import Any

from rankhouse.core.errors import BadData, DuplicateId, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run, check_row
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run

PathLike = str | os.PathLike[str]

DocumentLike = Document | Mapping[str, Any]
"""A Document, or a mapping with "id" ("_id", "docno"), "text" ("contents"), "title" and anything else."""

DocumentsLike = PathLike | Iterable[PathLike] | Iterable[DocumentLike]
QueriesLike = PathLike | Iterable[Query] | Iterable[tuple[str, str]] | Mapping[str, str]
RunLike = Run | PathLike | Mapping[str, Mapping[str, float]]
QrelsLike = Qrels | PathLike


def wrong_kind(name: str, given: object, wanted: str) -> WrongUse:
    """Return the error for an argument of the wrong type."""
    return WrongUse(f"{name} is a {type(given).__name__} ({given!r:.60}); give {wanted}")


def as_path(given: PathLike, name: str) -> Path:
    """Return a path; WrongUse, which names the argument, for anything else and for null characters."""
    if not isinstance(given, str | os.PathLike) or "\0" in str(given):
        raise wrong_kind(name, given, "a path: a string or pathlib.Path")
    return Path(given)


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


def as_documents(given: DocumentsLike) -> Iterator[Document]:
    """Stream documents from files, folders, ``ir_datasets:NAME``, or any iterable of documents."""
    if isinstance(given, str | os.PathLike):
        return read_documents([str(as_path(given, "documents"))])
    if isinstance(given, Mapping):
        raise wrong_kind("documents", given, "its documents: [document] for one, .values() of many by id")
    if not _is_several(given) or isinstance(given, Document):
        raise wrong_kind("documents", given, "a corpus file, several, or an iterable of documents")
    items = iter(given)
    first = next(items, None)
    if first is None:
        return iter(())
    if isinstance(first, str | os.PathLike):
        paths: list[Any] = [first, *items]
        return read_documents([str(as_path(path, "a corpus file")) for path in paths])
    rest: Iterable[Any] = items
    return (_as_document(item, place) for place, item in enumerate(chain([first], rest)))


def _as_document(item: object, place: int) -> Document:
    if isinstance(item, Document):
        if not all(isinstance(value, str) for value in item[:3]):
            raise BadData(f"document {place:,}: id, text and title must be strings; it is {item!r:.80}")
        return item
    if not isinstance(item, Mapping):
        raise WrongUse(
            f"document {place:,} is a {type(item).__name__} ({item!r:.80}); give a Document or a mapping "
            'with "id" and "text"'
        )
    rest = dict(item)
    doc_id = next((rest.pop(key) for key in ("id", "_id", "docno", "doc_id") if key in rest), None)
    text = next((rest.pop(key) for key in ("text", "contents", "body") if key in rest), None)
    title = rest.pop("title", "") or ""
    if not isinstance(doc_id, str) or not isinstance(text, str) or not isinstance(title, str):
        raise BadData(
            f'document {place:,} has no "id" or no "text" that is a string; '
            f"it has: {', '.join(map(str, item))}"
        )
    return Document(doc_id, text, title, rest)


def as_queries(given: QueriesLike) -> list[Query]:
    """Return queries from a file, a mapping of id to text, or an iterable of queries or (id, text)."""
    if isinstance(given, str) and " " in given and not as_path(given, "queries").exists():
        raise WrongUse(
            f'"{given}": queries are a file or several Query objects; one question is asked with '
            "index.search(text)"
        )
    if isinstance(given, str | os.PathLike):
        return read_queries(str(as_path(given, "queries")))
    if not _is_several(given):
        raise wrong_kind("queries", given, "a file, a mapping of id to text, or several Query objects")
    queries = [_as_query(item) for item in (given.items() if isinstance(given, Mapping) else given)]
    ids = {query.id for query in queries}
    if len(ids) < len(queries):
        repeated = next(q.id for i, q in enumerate(queries) if q.id in {p.id for p in queries[:i]})
        raise DuplicateId(f'the query id "{repeated}" is given twice; give each query an id of its own')
    return queries


def _as_query(item: object) -> Query:
    match item:
        case Query(str(), str()):
            return item
        case (str(query_id), str(text)):
            return Query(query_id, text)
    raise WrongUse(f"{item!r:.80} is no query; give Query(id, text), pairs of id and text, or a mapping")


def as_run(given: RunLike) -> Run:
    """Return a run from a TREC file or from query id -> document id -> score."""
    if isinstance(given, Run):
        return given
    if isinstance(given, str | os.PathLike):
        return read_run(as_path(given, "the run"))
    return Run.from_rankings(_rows(given, "the run"))


def as_runs(given: Sequence[RunLike], name: str) -> list[Run]:
    """Return several runs; WrongUse, which names the argument, for a single one."""
    return [as_run(run) for run in as_list(given, name, "a list of runs or run files")]


def as_qrels(given: QrelsLike) -> Qrels:
    """Return judgements from a TREC file, or as they are if their grades are whole numbers."""
    if isinstance(given, str | os.PathLike):
        return read_qrels(as_path(given, "qrels"))
    for query_id, grades in _rows(given, "qrels").items():
        check_row("qrels", query_id, grades)
        for doc_id, grade in grades.items():
            if not isinstance(grade, Real) or not float(grade).is_integer():
                raise BadData(
                    f'qrels, query "{query_id}": the grade of "{doc_id}" is {grade!r:.60}, not a whole number'
                )
    return given


def _rows(given: object, name: str) -> Mapping[Any, Any]:
    if not isinstance(given, Mapping):
        raise wrong_kind(name, given, "a TREC file or a mapping {query id: {document id: number}}")
    return given


def as_measures(given: str | Iterable[str]) -> str | list[str]:
    """Return measures in their notation, which is text."""
    if isinstance(given, str):
        return given
    names = as_list(given, "measures", 'them as text, for example "AP nDCG@10"')
    check_texts("measures", names)
    return names
