"""The index as people meet it: built from files or documents, asked one question or many, given vectors."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from html import escape
from itertools import islice
from typing import Literal, Self, cast

from rankhouse.api.session import open_ranker, working
from rankhouse.core.arguments import checked
from rankhouse.core.frames import html_table
from rankhouse.core.nouns import Document, Query, SearchResult, TextEncoder
from rankhouse.core.progress import OnProgress
from rankhouse.core.run import Run
from rankhouse.index import index as stored
from rankhouse.index.dense import faiss
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.impacts.impacts import Impacts, Weigher
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.build import BuildOptions, append, build, delete
from rankhouse.index.sharded import sharded_index
from rankhouse.index.sharded.sharded_index import AnyIndex
from rankhouse.io.files import as_path, wrong_kind
from rankhouse.io.inputs import DocumentsLike, QueriesLike, as_documents, as_list, as_queries, check_texts
from rankhouse.jobs.index import IndexJob
from rankhouse.jobs.shards import refuse_incomplete, with_documents
from rankhouse.systems.execution import with_snippets
from rankhouse.systems.rankers import as_encoder
from rankhouse.systems.short_forms import SearchOptions, as_whole, refuse_beside
from rankhouse.systems.system import System


class _Searchable:
    """Search methods of an index, or of several as one."""

    @checked
    def search(
        self, query: str, model: str | System = "bm25", *, k: int = 10, feedback: str = ""
    ) -> SearchResult:
        """Answer one question: a ranking with titles and snippets that prints as a table.

        Args:
            query: The question.
            model: ``bm25(k1=0.9, b=0.4)``, ``ql(mu=1000)``, ``jm``, ``dense(RANKER)`` once vectors exist;
                or a system, ``bm25 + 0.5 * ql``.
            k: Number of documents.
            feedback: ``rm3`` or "".

        Raises:
            WrongUse: An unknown model, feedback or argument.
        """
        ranking = self.retrieve([Query("query", query)], model, k=k, feedback=feedback)["query"]
        return with_snippets(cast(AnyIndex, self), query, ranking)

    @checked
    def retrieve(
        self,
        queries: QueriesLike,
        model: str | System | Sequence[str] = "bm25",
        *,
        k: int = 1000,
        feedback: str = "",
        fusion: str = "",
        threads: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Run:
        """Rank the documents for many queries.

        Args:
            queries: A file, queries, or query id -> text.
            model: A model, or several to be fused; or a system, then without ``feedback`` and ``fusion``.
            k: How many documents a query.
            feedback: ``rm3(terms=10, docs=10, weight=0.5)`` or "", for the lexical models.
            fusion: How several models become one run; "" sums z-scores, 0.3 of words and 0.7 of vectors.
            threads: Queries at a time; 0 takes one a processor.
            on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

        Raises:
            WrongUse: An unknown model, feedback, fusion or argument.
            MissingInput: ``dense(...)`` without vectors; make them with :meth:`encode`.
        """
        if (whole := as_whole(model)) is not None:
            refuse_beside(whole, _Searchable.retrieve, feedback=feedback, fusion=fusion)
        several = [model] if isinstance(model, str) else () if isinstance(model, System) else model
        models = as_list(several, "model", "a model, several, or a system")
        check_texts("model", models)
        options = SearchOptions(models=tuple(models), feedback=feedback, fusion=fusion, k=k, threads=threads)
        asked = as_queries(queries)
        with working("searching", None, "work", on_progress) as show:
            best = options.best(k) if whole is None else whole % k
            return options.work(cast(AnyIndex, self), asked, show).run(best)


_NAMES = (
    *("append", "build", "delete", "documents", "encode", "fingerprint"),
    *("open", "open_parts", "path", "retrieve", "search"),
)
"""Names that tab completion offers for an index; the rest is for the layers below."""
_COMPLETED = 1_000
"""Most ids that tab completion offers."""


class Index(_Searchable, stored.Index):
    """A collection that can be searched.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "d1", "text": "A lock lifts ships."}], "locks.index")
    >>> print(index.search("lifting ships"))
      1  d1  0.3028
         A lock lifts ships.
    """

    def __dir__(self) -> list[str]:
        return [name for name in super().__dir__() if name.startswith("__") or name in _NAMES]

    def __getitem__(self, doc_id: str) -> Document:
        return self.documents[doc_id]

    def __contains__(self, doc_id: object) -> bool:
        return doc_id in self.documents

    def __iter__(self) -> Iterator[Document]:
        return self.documents.stream()

    def _ipython_key_completions_(self) -> list[str]:
        return list(islice(self.documents, _COMPLETED))

    def _repr_html_(self) -> str:
        folders = [f for kind in ("vectors", "impacts") for f in sorted((self.path / kind).glob("[!.]*/"))]
        facts = {
            "folder": str(self.path),
            "documents": f"{len(self):,}",
            "tokens": f"{self.collection.tokens:,}",
            "analyzer": self.manifest.analyzer,
            "encoded as": ", ".join(folder.name for folder in folders) or "nothing",
        }
        return html_table(list(facts), [[escape(value) for value in facts.values()]], [True] * len(facts))

    @classmethod
    @checked
    def build(
        cls,
        documents: DocumentsLike,
        path: str | os.PathLike[str],
        *,
        analyzer: str = "english",
        field: Literal["both", "title", "text", "title,text"] = "both",
        workers: int = 0,
        overwrite: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Build an index and open it.

        Args:
            documents: A corpus file, several, or any iterable of documents (:class:`Document`, or mappings
                with "id" and "text"); streamed once.
            path: The folder to make.
            analyzer: "english", "tweet" or "whitespace".
            field: "title" or "text" alone, "both" joined, or "title,text": both, counted apart for bm25f.
            workers: Analysis processes; 0 takes one a processor.
            overwrite: Replace an index that is there.
            on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

        Raises:
            WrongUse: The folder exists, or the analyzer is unknown.
            BadData: No documents, or a faulty one.
            OutputFailed: The index cannot be written.
        """
        folder = as_path(path, "path")
        job = IndexJob(corpus=(), analyzer=analyzer, field=field, workers=workers)
        with working("indexing", None, "documents", on_progress) as show:
            some = job.of_field(as_documents(documents))
            build(some, folder, replace(job.options, overwrite=overwrite), show)
        return cls.open(folder)

    @classmethod
    def open(cls, folder: str | os.PathLike[str]) -> Self:
        """Open an index that :meth:`build` or ``rankhouse index`` made.

        Args:
            folder: Its folder.

        Raises:
            MissingInput: There is no index in the folder.
            BadIndex: The index is damaged or from another version.
        """
        return super().open(as_path(folder, "folder"))

    @classmethod
    @checked
    def open_parts(cls, *folders: str | os.PathLike[str]) -> ShardedIndex:
        """Open several indexes as one: rankings and scores are those of one index of all their documents.

        Args:
            folders: Indexes, shards made with ``rankhouse index --shard``, or folders of such.

        Raises:
            MissingInput: There is no index in a folder.
            BadIndex: One is damaged, named twice, or made with another analyzer.
            BadData: A folder of shards lacks one.
        """
        paths = [as_path(folder, "folders") for folder in folders]
        refuse_incomplete(paths)
        return ShardedIndex.open(with_documents(paths))

    @checked
    def append(
        self,
        documents: DocumentsLike,
        *,
        update: bool = False,
        workers: int = 0,
        on_progress: OnProgress | None = None,
    ) -> Self:
        """Add documents and return the index reopened; this object keeps seeing the old ones.

        Args:
            documents: As for :meth:`build`.
            update: A document whose id the index has takes the place of that one, at the end of the index.
            workers: Analysis processes; 0 takes one a processor.
            on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

        Raises:
            DuplicateId: An id that the index has already; nothing is added.
        """
        with working("indexing", None, "documents", on_progress) as show:
            append(as_documents(documents), self.path, BuildOptions(workers=workers), show, update=update)
        return type(self).open(self.path)

    @checked
    def delete(self, doc_ids: Iterable[str]) -> Self:
        """Delete documents and return the index reopened; this object keeps seeing them.

        Rankings and scores are those of an index built without the documents. Vectors of the whole index have
        to be made again.

        Raises:
            WrongUse: An id that the index does not have, or no document would be left; nothing is deleted.
        """
        delete(as_list(doc_ids, "doc_ids", "document ids"), self.path)
        return type(self).open(self.path)

    @checked
    def encode(
        self,
        ranker: str | os.PathLike[str] | TextEncoder | Weigher,
        *,
        split: str = "whole",
        structure: str = "",
        name: str = "default",
        dtype: Literal["float32", "float16"] = "float32",
        overwrite: bool = False,
        on_progress: OnProgress | None = None,
    ) -> Vectors | Impacts:
        """Encode documents for ``dense(RANKER)`` or ``sparse(RANKER)``; a killed call goes on.

        A bi-encoder gives every passage a vector, a sparse encoder every document weights of words.

        Args:
            ranker: A bi-encoder, a sparse encoder, or what :func:`open_ranker` opens.
            split: How documents are cut into passages, for example ``sentences(10, 5)``.
            structure: A FAISS structure to build over vectors: ``flat``, ``sq8``, ``hnsw`` ... or "".
            name: Name of these vectors or impacts; it tells several encoders apart.
            dtype: Number format of vectors.
            overwrite: Replace vectors or impacts of this name that another encoder made.
            on_progress: Takes a :class:`ProgressReport` now and then; None shows a bar.

        Raises:
            WrongUse: The ranker encodes no texts, or other vectors of this name are there.
        """
        from rankhouse.jobs.encode import EncodeJob, EncodeWorker

        opened = open_ranker(ranker) if isinstance(ranker, str | os.PathLike) else ranker
        encoder = opened if isinstance(opened, Weigher) else as_encoder(opened, ranker)
        manifest.load(self.path)  # the folder may be gone since it was opened
        job = EncodeJob(index=str(self.path), ranker=str(ranker), split=split, dtype=dtype, name=name)
        worker = EncodeWorker(job, self, encoder, overwrite=overwrite)
        with working("encoding", None, "words", on_progress) as show:
            worker.encode(show)
        if worker.impacts is not None:
            return worker.impacts
        vectors = worker.vectors
        assert vectors is not None  # an encoder of texts makes them
        if structure:
            faiss.build(vectors, structure)
        return vectors


class ShardedIndex(_Searchable, sharded_index.ShardedIndex):
    """Several indexes, the shards of one collection, searched as one.

    >>> import rankhouse as rh
    >>> texts = ["A lock lifts ships.", "Pilots steer ships."]
    >>> shards = [rh.Index.build([{"id": f"d{i}", "text": text}], f"part{i}") for i, text in enumerate(texts)]
    >>> index = rh.Index.open_parts("part0", "part1")
    >>> index.search("who steers ships?").hits[0].doc_id
    'd1'
    """


def as_index(given: stored.Index | str | os.PathLike[str]) -> stored.Index:
    """Return an index: itself, or opened from its folder; WrongUse for anything else."""
    if isinstance(given, stored.Index):
        return given
    if not isinstance(given, str | os.PathLike):
        raise wrong_kind("index", given, "an Index or its folder")
    return Index.open(as_path(given, "index"))
