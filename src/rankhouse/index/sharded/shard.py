"""Several indexes as one: what is asked of a shard about its own documents, here or elsewhere.

What is asked and answered are small tuples that any transport can carry. A search takes two rounds: the
shards' statistics of the query's terms are added up, then each shard ranks its own documents by the sums and
gives its best k. Feedback takes two more: the terms of the feedback documents come from the shards that hold
them.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.index.dense.exact import Neighbours, Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, VectorsState, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.lexical.scorer import DocumentScore, Hits, Scorer, Weighted
from rankhouse.index.lexical.search import terms_of
from rankhouse.index.lexical.weighting import WEIGHTINGS, Collection, TermCounts

_SCORERS: Final = 16
"""Models, each with its statistics, whose tables are kept."""


class Request(Protocol):
    """What can be asked of a shard."""

    def answer(self, shard: IndexShard) -> Any:  # noqa: ANN401 - each request has its own kind of answer
        """Answer it by a shard's own documents.

        Raises:
            RankhouseError: It cannot be answered: a structure that was never built, a damaged file.
        """
        ...


class IndexShard:
    """An index as a shard of a larger one; safe to share between threads."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self.scorer = lru_cache(maxsize=_SCORERS)(self._make_scorer)
        self._searchers: dict[tuple[str, str], Searcher] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Any:  # noqa: ANN401 - as above
        """Answer a request; raises as :meth:`Request.answer` does."""
        return request.answer(self)

    def _make_scorer(self, model: str, collection: Collection) -> Scorer:
        return Scorer(self.index, notation.make(model, WEIGHTINGS, "model"), collection)

    def searcher(self, name: str, structure: str) -> Searcher:
        """Return what searches the vectors of this name: "exact", or a structure that was built over them."""
        with self._lock:
            if (name, structure) not in self._searchers:
                vectors = Vectors.open(vectors_folder(self.index.path, name))
                vectors.require(documents=len(self.index), collection=self.index.fingerprint)
                self._searchers[name, structure] = searcher_of(vectors, structure)
            return self._searchers[name, structure]

    def vectors(self) -> dict[str, VectorsState]:
        """Return the states of the vectors that cover all documents, by name."""
        states = dict[str, VectorsState]()
        for folder in sorted((self.index.path / "vectors").glob("*/")):
            try:
                vectors = Vectors.open(folder)
                states[folder.name] = vectors.require(
                    documents=len(self.index), collection=self.index.fingerprint
                ).state
            except RankhouseError:  # being made, or damaged: asking for them by name gives the error
                continue
        return states


# --- requests -------------------------------------------------------------------------------------------


class ShardInfo(NamedTuple):
    """What a shard is; ``vectors`` are those that cover all its documents, by name."""

    fingerprint: str
    analyzer: str
    collection: Collection
    vectors: Mapping[str, VectorsState]


class About(NamedTuple):
    """Ask what a shard is."""

    def answer(self, shard: IndexShard) -> ShardInfo:
        """Say it."""
        index = shard.index
        return ShardInfo(index.fingerprint, index.manifest.analyzer, index.collection, shard.vectors())


class CountTerms(NamedTuple):
    """Ask how often terms occur."""

    terms: tuple[str, ...]

    def answer(self, shard: IndexShard) -> list[TermCounts]:
        """Return the counts in the same order."""
        return [shard.index.counts(term) for term in self.terms]


class RankDocuments(NamedTuple):
    """Ask for the best k documents of several queries each, by a model and the statistics of all shards."""

    model: str
    collection: Collection
    queries: tuple[Weighted, ...]
    k: int

    def answer(self, shard: IndexShard) -> list[Hits]:
        """Rank documents; each hit comes with its id."""
        scorer = shard.scorer(self.model, self.collection)
        found = [scorer.hits(terms, self.k) for terms in self.queries]
        return [hits._replace(ids=tuple(shard.index.ids(hits.rows))) for hits in found]


class ScoreDocument(NamedTuple):
    """Ask for the score of the document in a row of the shard, by the statistics of all shards."""

    model: str
    collection: Collection
    terms: Weighted
    row: int

    def answer(self, shard: IndexShard) -> DocumentScore:
        """Return the score and what it is made of."""
        return shard.scorer(self.model, self.collection).document_score(self.terms, self.row)


class ListTerms(NamedTuple):
    """Ask for the terms of documents with their counts, by their rows in the shard."""

    rows: tuple[int, ...]

    def answer(self, shard: IndexShard) -> list[list[tuple[str, int]]]:
        """List them."""
        return terms_of(shard.index, self.rows)


class FetchDocuments(NamedTuple):
    """Ask for documents by id."""

    ids: tuple[str, ...]

    def answer(self, shard: IndexShard) -> list[Document | None]:
        """Fetch them; None where the shard has no such document."""
        documents = shard.index.documents
        here = [doc_id for doc_id in self.ids if doc_id in documents]
        by_id = dict(zip(here, documents.fetch(here), strict=True))
        return [by_id.get(doc_id) for doc_id in self.ids]


class FindRows(NamedTuple):
    """Ask for the rows of documents in the shard."""

    ids: tuple[str, ...]

    def answer(self, shard: IndexShard) -> list[int]:
        """Find them; -1 where the shard has no such document."""
        documents = shard.index.documents
        return [shard.index.row_of(doc_id) if doc_id in documents else -1 for doc_id in self.ids]


class ListIds(NamedTuple):
    """Ask for the ids of documents by their rows in the shard."""

    rows: tuple[int, ...]

    def answer(self, shard: IndexShard) -> list[str]:
        """List them."""
        return shard.index.ids(np.array(self.rows, np.int64))


class NearestDocuments(NamedTuple):
    """Ask for the k documents nearest to each of q points (q, d) float32."""

    vectors: str
    structure: str
    points: FloatArray
    k: int

    def answer(self, shard: IndexShard) -> list[Neighbours]:
        """Find them."""
        return shard.searcher(self.vectors, self.structure).best(self.points, self.k)


# --- where shards are -----------------------------------------------------------------------------------


class ShardFailed(RankhouseError):
    """A shard does not answer."""

    def __init__(self, number: int, name: str, reason: str) -> None:
        super().__init__(
            f"the part {name} does not answer ({reason}); bring it back, or ask for what the other parts "
            "find: --partial"
        )
        self.number, self.name, self.reason = number, name, reason


class Shards(Protocol):
    """The shards of an index, each by its number, from 0."""

    @property
    def names(self) -> Sequence[str]:
        """What they are called."""
        ...

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several shards at the same time: number -> answer.

        Raises:
            ShardFailed: A shard does not answer.
            RankhouseError: A shard refuses.
        """
        ...

    def hurried(self) -> Shards:
        """Return the same shards for a caller that would rather go without one than wait for it."""
        ...


class LocalShards:
    """Shards that lie in folders of this machine and are searched by this process."""

    def __init__(self, shards: Sequence[tuple[str, IndexShard]]) -> None:
        self.names = tuple(name for name, _ in shards)
        self._shards = tuple(shard for _, shard in shards)

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Self:
        """Open indexes, shards that hold one, or folders of such.

        Raises:
            MissingInput, BadIndex: One of them cannot be opened.
        """
        return cls([(str(folder), IndexShard(Index.open(folder))) for folder in index_folders(paths)])

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask shards, one after the other."""
        return {number: self._shards[number].answer(request) for number, request in requests.items()}

    def hurried(self) -> LocalShards:
        """Return these shards: here nothing is waited for."""
        return self
