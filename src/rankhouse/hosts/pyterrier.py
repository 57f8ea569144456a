"""PyTerrier: a retriever, a reranker, an indexer and a text loader that stand in its pipelines. No Java.

>>> retriever = Retriever("bm25 % 100", "notes.index")  # doctest: +SKIP
>>> pipeline = retriever >> Reranker('crossencoder("DIR")', "notes.index")  # doctest: +SKIP
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import nan
from typing import Any

import numpy as np

from rankhouse.api.index import Index
from rankhouse.core.errors import BadData
from rankhouse.core.frames import as_id
from rankhouse.core.nouns import Document, Query
from rankhouse.core.run import Run
from rankhouse.hosts import adapters
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.io.files import PathLike
from rankhouse.io.inputs import as_list
from rankhouse.systems.system import FOUND, FirstStage, RerankedSystem, System

with adapters.host("pyterrier", "1.1", "pyterrier", "python-terrier"):
    import pandas as pd
    import pyterrier as pt

_RANKED = ("score", "rank")


class BadFrame(BadData, pt.validate.InputValidationError):
    """A frame that lacks a column; PyTerrier's own error, too, by which its pipelines are inspected."""

    def __init__(self, reason: str, modes: Sequence[Any] = ()) -> None:
        BadData.__init__(self, reason)
        self.modes = list(modes)

    __str__ = BadData.__str__


class Retriever(pt.Transformer):
    """A system on an index, from queries to ranked documents.

    Args:
        system: ``bm25``, ``bm25(k1=0.9) % 100 >> crossencoder("DIR")``, or the System itself.
        index: An Index or its folder.
    """

    def __init__(self, system: str | System, index: AnyIndex | PathLike) -> None:
        self._open = adapters.OpenSystem(system, index)

    @property
    def system(self) -> System:
        """The expression."""
        return self._open.system

    @property
    def index(self) -> AnyIndex:
        """The index."""
        return self._open.index

    def __repr__(self) -> str:
        return f"Retriever({str(self.system)!r}, {str(self.index.path)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Retriever) and (self.system, self.index.path) == (
            other.system,
            other.index.path,
        )

    __hash__ = pt.Transformer.__hash__

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Rank for the queries of a frame with qid and query: adds docno, score and rank, from 0.

        Raises:
            BadFrame: A column is missing, or there is a docno.
            BadData: A query id twice, or a query that is no text.
        """
        _require(inp, self, "queries", query_frame=["query"])
        run = self._open.run(_queries(inp))
        ids = _ids(inp, "qid")
        counts = [len(run[query_id]) for query_id in ids]
        found = inp.drop(columns=[name for name in _RANKED if name in inp]).iloc[
            np.repeat(range(len(ids)), counts)
        ]
        return _ranked(found.reset_index(drop=True), run, ids)

    def fuse_rank_cutoff(self, k: int) -> Retriever | None:
        """Return the retriever that finds only the best k, which ``retriever % k`` becomes."""
        if isinstance(self.system, FirstStage) and k >= FOUND:
            return self
        return self._with(self.system % adapters.count(k))

    def fuse_right(self, right: pt.Transformer) -> Retriever | None:
        """Return the retriever that this one and a reranker on the same index are together."""
        if isinstance(right, Reranker) and right.index is not None and right.index.path == self.index.path:
            return self._with(RerankedSystem(self.system, right.stage))
        return None

    def _with(self, system: System) -> Retriever:
        other = Retriever.__new__(Retriever)
        other._open = self._open.replaced(system)  # noqa: SLF001 - one of its own
        return other

    def text_loader(self, fields: str | Sequence[str] = "*", *, verbose: bool = False) -> TextLoader:
        """Return what ``pt.text.get_text(retriever)`` puts behind it: text and title of each document."""
        del verbose
        return TextLoader(self.index, fields)


class Reranker(pt.Transformer):
    """A ranker that reads ranked documents.

    Args:
        ranker: A folder, ``crossencoder("DIR", split="sentences(10, 5)", depth=50)``, or any ranker.
        index: Where the texts are; None where the frame has a column "text", perhaps a "title", too.
    """

    def __init__(self, ranker: adapters.RankerLike, index: AnyIndex | PathLike | None = None) -> None:
        self._open = adapters.OpenRanker(ranker, index)
        self.stage, self.index = self._open.stage, self._open.index

    @property
    def ranker(self) -> str:
        """Its notation."""
        return str(self.stage)

    def __repr__(self) -> str:
        where = "" if self.index is None else f", {str(self.index.path)!r}"
        return f"Reranker({self.ranker!r}{where})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Reranker) and (self.stage, self.index) == (other.stage, other.index)

    __hash__ = pt.Transformer.__hash__

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Reorder the documents of a frame with qid, query and docno: new score and rank.

        Raises:
            BadFrame: A column is missing.
            BadData: A document twice for a query, a score that is no number, a text that is none.
        """
        needed = ["query"] if self.index is not None else ["query", "text"]
        _require(inp, self, "ranked documents", result_frame=needed)
        qids, docnos = _ids(inp, "qid"), _ids(inp, "docno")
        rows = {key: row for row, key in enumerate(zip(qids, docnos, strict=True))}
        run, queries = _as_run(inp, qids, docnos), _queries(inp, repeated=True)
        if self.index is not None:
            reranked = self._open.rerank(run, queries)
        else:
            reranked = self._open.rerank(_renamed(run, _name), queries, _own_texts(inp, rows))
            reranked = _renamed(reranked, lambda _, name: name.rpartition("\0")[0])
        order = [rows[query_id, doc_id] for query_id in reranked for doc_id in reranked[query_id].doc_ids]
        left = inp.drop(columns=[name for name in _RANKED if name in inp])
        return _ranked(left.iloc[order].reset_index(drop=True), reranked, list(reranked))


class TextLoader(pt.Transformer):
    """Adds the texts of documents, for transformers that read a column "text".

    Args:
        index: An Index or its folder.
        fields: "text", "title", or both; "*" for both.
    """

    def __init__(self, index: AnyIndex | PathLike, fields: str | Sequence[str] = "*") -> None:
        self.index = adapters.as_any_index(index)
        self.fields = (
            ["text", "title"] if fields == "*" else [fields] if isinstance(fields, str) else list(fields)
        )
        if unknown := [name for name in self.fields if name not in ("text", "title")]:
            raise BadData(f'an index has the fields "text" and "title", and no "{unknown[0]}"')

    def __repr__(self) -> str:
        return f"TextLoader({str(self.index.path)!r}, {self.fields!r})"

    def transform(self, inp: pd.DataFrame) -> pd.DataFrame:
        """Add a column for each field to a frame with docno.

        Raises:
            BadFrame: There is no docno.
            BadData: The index has no such document.
        """
        _require(inp, self, "documents", columns=["docno"])
        docnos = _ids(inp, "docno")
        try:
            documents = self.index.documents.fetch(docnos)
        except KeyError as error:
            raise BadData(f'the column "docno": {error}', self.index.path) from None
        return inp.assign(**{name: [getattr(one, name) for one in documents] for name in self.fields})


class Indexer(pt.Indexer):
    """Builds an index from dictionaries with docno and text, as PyTerrier's datasets yield them.

    Args:
        path: The folder to make.
        fields: Which of a dictionary's texts make the document's text, joined by spaces.
        analyzer: "english", "tweet" or "whitespace".
        overwrite: Replace an index that is there.
    """

    def __init__(
        self,
        path: PathLike,
        fields: Sequence[str] = ("text",),
        analyzer: str = "english",
        *,
        overwrite: bool = False,
    ) -> None:
        self.path, self.analyzer, self.overwrite = path, analyzer, overwrite
        self.fields = as_list(fields, "fields", 'names of texts, as ["title", "text"]')

    def index_inputs(self) -> list[list[str]]:
        """Return the columns that :meth:`index` reads."""
        return [["docno", *self.fields]]

    def index(self, documents: Iterable[Mapping[str, Any]]) -> Index:
        """Index documents and return the index, for ``Retriever("bm25", index)``.

        Raises:
            BadData: A dictionary without docno or one of the fields.
            DuplicateId: A docno that came before.
        """
        rows = (self._document(place, one) for place, one in enumerate(documents))
        return Index.build(rows, self.path, analyzer=self.analyzer, overwrite=self.overwrite)

    def _document(self, place: int, given: Mapping[str, Any]) -> Document:
        if missing := [name for name in ("docno", *self.fields) if name not in given]:
            raise BadData(f'document {place:,} has no "{missing[0]}"; it has {", ".join(map(str, given))}')
        where = f'of document {place:,}, docno "{given["docno"]}",'
        text = " ".join(adapters.checked_text(given[name], f'the "{name}" {where}') for name in self.fields)
        title = (
            ""
            if "title" in self.fields
            else adapters.checked_text(given.get("title") or "", f'the "title" {where}')
        )
        rest = {name: value for name, value in given.items() if name not in {"docno", "title", *self.fields}}
        return Document(
            adapters.checked_text(as_id(given["docno"]), f'the "docno" {where}'), text, title, rest
        )


def _require(inp: pd.DataFrame, of: pt.Transformer, what: str, **needed: Sequence[str]) -> None:
    """Check the columns of a frame: ``query_frame``, ``result_frame`` or ``columns`` of pt.validate."""
    takes = f"{type(of).__name__} takes a frame of {what}"
    if not isinstance(inp, pd.DataFrame):
        raise BadFrame(f"{takes}; this is of type {type(inp).__name__}")
    if not inp.columns.is_unique:
        raise BadFrame(f'{takes}; this one has two columns "{inp.columns[inp.columns.duplicated()][0]}"')
    kind, names = next(iter(needed.items()))
    try:
        with pt.validate.any(inp, context=of) as check:
            check.columns(includes=names) if kind == "columns" else getattr(check, kind)(names)
    except pt.validate.InputValidationError as error:
        mode = error.modes[0]
        reason = f"{takes}; this one has "
        if mode.missing_columns:
            reason += f'no column "{mode.missing_columns[0]}"'
        else:
            reason += f'a column "{mode.extra_columns[0]}", as ranked documents have (Reranker takes those)'
        raise BadFrame(
            f"{reason}; its columns are {', '.join(map(str, inp.columns)) or 'none'}", error.modes
        ) from None


def _ids(inp: pd.DataFrame, column: str) -> list[str]:
    return adapters.texts_of_ids(map(as_id, inp[column]), f'the column "{column}"')


def _queries(inp: pd.DataFrame, *, repeated: bool = False) -> list[Query]:
    """Return the queries of a frame, one a row, or repeated in every row of their documents."""
    rows = [
        Query(one, adapters.checked_text(text, f'the column "query" of qid "{one}"'))
        for one, text in zip(_ids(inp, "qid"), inp["query"], strict=True)
    ]
    if not repeated:
        adapters.checked_ids([query.id for query in rows], 'the column "qid"')
        return rows
    queries: dict[str, Query] = {}
    for query in rows:
        if queries.setdefault(query.id, query) != query:
            raise BadData(f'the column "query" has several texts for qid "{query.id}"; a query has one')
    return list(queries.values())


def _as_run(inp: pd.DataFrame, qids: list[Any], docnos: list[Any]) -> Run:
    """Return the ranking of a frame: by score, else by rank, else by the order of its rows."""
    name = next((name for name in _RANKED if name in inp), None)
    given = range(len(inp)) if name is None else inp[name]
    numbers = [nan if number is None or number is pd.NA else number for number in given]
    adapters.check_scores(numbers, f'the column "{name}"')
    sign = 1 if name == "score" else -1
    by_query: dict[str, list[int]] = {}
    for row, query_id in enumerate(qids):
        by_query.setdefault(query_id, []).append(row)
    ids = {
        query_id: adapters.checked_ids(
            [docnos[row] for row in rows], f'the column "docno" of qid "{query_id}"'
        )
        for query_id, rows in by_query.items()
    }
    scores = [np.array([sign * numbers[row] for row in rows], np.float32) for rows in by_query.values()]
    return Run.from_columns(list(ids), list(ids.values()), scores)


def _name(query_id: str, doc_id: str) -> str:
    """Name a text by document and query, since a frame may show a document differently for each query.

    A null character is less than any other: documents with equal scores stay in the order of their ids.
    """
    return f"{doc_id}\0{query_id}"


def _own_texts(inp: pd.DataFrame, rows: Iterable[tuple[str, str]]) -> dict[str, Document]:
    """Return the texts of a frame, whose rows are of these queries and documents."""
    titles = inp["title"] if "title" in inp else [""] * len(inp)
    documents = {}
    for (query_id, doc_id), *texts in zip(rows, inp["text"], titles, strict=True):
        named = zip(("text", "title"), texts, strict=True)
        where = f'of docno "{doc_id}", qid "{query_id}",'
        text, title = (adapters.checked_text(one, f'the column "{column}" {where}') for column, one in named)
        name = _name(query_id, doc_id)
        documents[name] = Document(name, text, title)
    return documents


def _renamed(run: Run, name: Callable[[str, str], str]) -> Run:
    """Give documents other ids, made of the query's and their own."""
    names = [[name(query_id, doc_id) for doc_id in run[query_id].doc_ids] for query_id in run]
    return Run.from_columns(list(run), names, [run[query_id].scores for query_id in run])


def _ranked(frame: pd.DataFrame, run: Run, query_ids: Sequence[str]) -> pd.DataFrame:
    """Add docno, score and rank of a run to a frame that has its rows."""
    rankings = [run[query_id] for query_id in query_ids]
    return frame.assign(
        docno=[doc_id for ranking in rankings for doc_id in ranking.doc_ids],
        score=np.concatenate([np.empty(0), *(ranking.scores for ranking in rankings)]),
        rank=np.concatenate([np.empty(0, np.int64), *(np.arange(len(ranking)) for ranking in rankings)]),
    )
