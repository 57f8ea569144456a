"""Several indexes as one: what is asked of a shard about its own documents, here or elsewhere.

What is asked and answered are small tuples that any transport can carry. A search takes two rounds: the
shards' statistics of the query's terms are added up, then each shard ranks its own documents by the sums and
gives its best k. Feedback takes two more: the terms of the feedback documents come from the shards that hold
them.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, Self, TypeVar

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import BadIndex, RankhouseError
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.index.dense.exact import Neighbours, Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, VectorsState, vectors_folder
from rankhouse.index.impacts.impacts import Impacts, ImpactsState, PackedImpacts, impacts_folder
from rankhouse.index.impacts.search import ImpactSearcher
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.lexical.scorer import DocumentScore, Hits, Scorer, Weighted
from rankhouse.index.lexical.search import terms_of
from rankhouse.index.lexical.weighting import WEIGHTINGS, Collection, TermCounts

if TYPE_CHECKING:
    import scipy.sparse

_EncodedT = TypeVar("_EncodedT", bound=Vectors | Impacts)
_SCORERS: Final = 16
"""Models, each with its statistics, whose tables are kept."""


class ShardInfo(NamedTuple):
    """Facts about a shard; ``vectors`` and ``impacts`` are those that cover all its documents, by name."""

    fingerprint: str
    analyzer: str
    collection: Collection
    vectors: Mapping[str, VectorsState]
    impacts: Mapping[str, ImpactsState]


class IndexShard:
    """An index as a shard of a larger one; safe to share between threads.

    Its public methods are what a :data:`Request` can ask for.
    """

    def __init__(self, index: Index) -> None:
        self.index = index
        self._scorer = lru_cache(maxsize=_SCORERS)(self._make_scorer)
        self._searchers: dict[tuple[str, str], Searcher] = {}
        self._impacts: dict[str, ImpactSearcher] = {}
        self._lock = threading.Lock()

    def _make_scorer(self, model: str, collection: Collection) -> Scorer:
        return Scorer(self.index, notation.make(model, WEIGHTINGS, "model"), collection)

    def _searcher(self, name: str, structure: str, encoder: str) -> Searcher:
        """Return what searches the vectors of this name: "exact", or a structure that was built over them."""
        with self._lock:
            if (name, structure) not in self._searchers:
                vectors = self._whole(Vectors.open(vectors_folder(self.index.path, name)))
                self._searchers[name, structure] = searcher_of(vectors, structure)
            searcher = self._searchers[name, structure]
        _check_encoder(f'vectors "{name}"', searcher.vectors.state.encoder, encoder)
        return searcher

    def _impact_searcher(self, name: str, encoder: str) -> ImpactSearcher:
        with self._lock:
            if name not in self._impacts:
                impacts = self._whole(Impacts.open(impacts_folder(self.index.path, name)))
                self._impacts[name] = ImpactSearcher(PackedImpacts(impacts))
            searcher = self._impacts[name]
        _check_encoder(f'impacts "{name}"', searcher.impacts.state.encoder, encoder)
        return searcher

    def _whole(self, encoded: _EncodedT) -> _EncodedT:
        """Refuse (BadIndex) what does not cover all documents."""
        encoded.require_all(self.index)
        return encoded

    def _states(self, what: str, kind: type[Vectors] | type[Impacts]) -> dict[str, Any]:
        """Return the states of the vectors, or impacts, that cover all documents, by name."""
        states = dict[str, Any]()
        for folder in sorted((self.index.path / what).glob("*/")):
            with suppress(RankhouseError):  # being made, or damaged
                states[folder.name] = self._whole(kind.open(folder)).state
        return states

    def about(self) -> ShardInfo:
        """Say what the shard is."""
        index, encoded = self.index, {"vectors": Vectors, "impacts": Impacts}
        states = {what: self._states(what, kind) for what, kind in encoded.items()}
        return ShardInfo(index.fingerprint, index.manifest.analyzer, index.collection, **states)

    def count(self, terms: Sequence[str]) -> list[TermCounts]:
        """Count how often terms occur, in their order."""
        self.index.look_up(terms)
        return [self.index.counts(term) for term in terms]

    def rank(self, model: str, collection: Collection, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents of each query, with their ids, by the statistics of all shards."""
        scorer = self._scorer(model, collection)
        return self._with_ids(scorer.hits(queries, k))

    def weigh(self, impacts: str, encoder: str, weights: scipy.sparse.csr_array, k: int) -> list[Hits]:
        """Find the best k documents, with their ids, for queries whose words weigh (q, v) float32."""
        return self._with_ids(self._impact_searcher(impacts, encoder).best(weights, k))

    def query_files(self, impacts: str, encoder: str) -> dict[str, bytes]:
        """Read what weighs queries without the encoder of impacts; none where it has no table."""
        return self._impact_searcher(impacts, encoder).impacts.query_files()

    def _with_ids(self, found: Sequence[Hits]) -> list[Hits]:
        return [hits._replace(ids=tuple(self.index.ids(hits.rows))) for hits in found]

    def score(self, model: str, collection: Collection, terms: Weighted, row: int) -> DocumentScore:
        """Score the document in a row of the shard, by the statistics of all shards."""
        return self._scorer(model, collection).document_score(terms, row)

    def terms(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of documents with their counts, by rows of the shard."""
        return terms_of(self.index, rows)

    def fetch(self, ids: Sequence[str]) -> list[Document | None]:
        """Fetch documents by id; None where the shard has no such document."""
        documents = self.index.documents
        here = [doc_id for doc_id in ids if doc_id in documents]
        by_id = dict(zip(here, documents.fetch(here), strict=True))
        return [by_id.get(doc_id) for doc_id in ids]

    def rows(self, ids: Sequence[str]) -> list[int]:
        """Find the rows of documents in the shard; -1 where it has no such document."""
        return [self.index.row_of(doc_id) if doc_id in self.index.documents else -1 for doc_id in ids]

    def ids(self, rows: Sequence[int]) -> list[str]:
        """List the ids of documents by rows of the shard."""
        return self.index.ids(np.array(rows, np.int64))

    def nearest(
        self, vectors: str, structure: str, encoder: str, points: FloatArray, k: int
    ) -> list[Neighbours]:
        """Find the k documents nearest to each of q points (q, d) float32."""
        return self._searcher(vectors, structure, encoder).best(points, k)


def _check_encoder(what: str, found: str, expected: str) -> None:
    """Refuse (BadIndex) what another encoder encoded again since the shards were asked what they are."""
    if found != expected:
        raise BadIndex(f"{what}: are of {found} now, of {expected} when they were opened; open them again")


Request = Callable[[IndexShard], Any]
"""A method of a shard with all its other arguments, as ``functools.partial`` binds them: it can be pickled.

It raises RankhouseError where it cannot be answered: a structure that was never built, a damaged file.
"""


# --- where shards are -----------------------------------------------------------------------------------


class ShardFailed(RankhouseError):
    """A shard does not answer."""

    def __init__(self, number: int, name: str, reason: str) -> None:
        super().__init__(
            f"the shard {name} does not answer ({reason}); bring it back, or ask for what the others "
            "find: --partial"
        )
        self.number, self.name, self.reason = number, name, reason


class Shards(Protocol):
    """The shards of an index, each by its number, from 0."""

    @property
    def names(self) -> Sequence[str]:
        """Their names."""
        ...

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several shards at the same time: number -> answer.

        Raises ShardFailed: a shard does not answer; RankhouseError: a shard refuses.
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

        Raises MissingInput, BadIndex: one of them cannot be opened.
        """
        return cls([(str(folder), IndexShard(Index.open(folder))) for folder in index_folders(paths)])

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask shards, one after the other."""
        return {number: request(self._shards[number]) for number, request in requests.items()}

    def hurried(self) -> LocalShards:
        """Return these shards: here nothing is waited for."""
        return self
