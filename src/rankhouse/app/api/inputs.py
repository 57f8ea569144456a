"""What the verbs accept: the thing itself, or the path, mapping or iterable that people have in its place."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Any, Protocol

from rankhouse.core.corpora import read_documents, read_queries
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.core.trec import read_qrels, read_run

PathLike = str | os.PathLike[str]

DocumentLike = Document | Mapping[str, Any]
"""A Document, or a mapping with "id" ("_id", "docno"), "text" ("contents"), "title" and anything else."""

DocumentsLike = PathLike | Iterable[PathLike] | Iterable[DocumentLike]
QueriesLike = PathLike | Iterable[Query] | Iterable[tuple[str, str]] | Mapping[str, str]
RunLike = Run | PathLike | Mapping[str, Mapping[str, float]]
QrelsLike = Qrels | PathLike


class DocumentStore(Protocol):
    """Documents by id: an index's ``documents``, a dict."""

    def __getitem__(self, doc_id: str, /) -> Document:
        """Return a document; KeyError where there is none of that id."""
        ...


def as_documents(given: DocumentsLike) -> Iterator[Document]:
    """Stream documents from files, folders, ``ir_datasets:NAME``, or any iterable of documents.

    Raises:
        WrongUse: An element is neither a path nor a document.
        BadData: A document without id or text; from files, with file and line.
    """
    if isinstance(given, str | os.PathLike):
        return read_documents([os.fspath(given)])
    items = iter(given)
    first = next(items, None)
    if first is None:
        return iter(())
    if isinstance(first, str | os.PathLike):
        paths: list[Any] = [first, *items]
        return read_documents([os.fspath(path) for path in paths])
    rest: Iterable[Any] = items
    return (_as_document(item, place) for place, item in enumerate(chain([first], rest)))


def _as_document(item: object, place: int) -> Document:
    if isinstance(item, Document):
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
    """Return queries from a file, a mapping of id to text, or an iterable of queries or (id, text).

    Raises:
        WrongUse: An element is no query; one text instead of a file (use :meth:`Index.search` for one).
    """
    if isinstance(given, str) and not Path(given).exists() and " " in given:
        raise WrongUse(
            f'"{given}": queries are a file or several Query objects; one question is asked with '
            "index.search(text)"
        )
    if isinstance(given, str | os.PathLike):
        return read_queries(os.fspath(given))
    if isinstance(given, Mapping):
        return [Query(query_id, text) for query_id, text in given.items()]
    return [_as_query(item) for item in given]


def _as_query(item: object) -> Query:
    match item:
        case Query():
            return item
        case (str(query_id), str(text)):
            return Query(query_id, text)
    raise WrongUse(f"{item!r:.80} is no query; give Query(id, text), pairs of id and text, or a mapping")


def as_run(given: RunLike) -> Run:
    """Return a run from a TREC file or from query id -> document id -> score."""
    if isinstance(given, Run):
        return given
    return read_run(Path(given)) if isinstance(given, str | os.PathLike) else Run.from_rankings(given)


def as_qrels(given: QrelsLike) -> Qrels:
    """Return judgements from a TREC file, or as they are."""
    return read_qrels(Path(given)) if isinstance(given, str | os.PathLike) else given
