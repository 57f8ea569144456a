"""An index as it is at one moment: what a request sees from its beginning to its end."""

from __future__ import annotations

import copy
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Self, TypeVar

from cachetools import LRUCache

from rankhouse.core.errors import BadIndex, RankhouseError
from rankhouse.core.run import Ranking
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.precomputed.score import PrecomputedScorer
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex, open_index
from rankhouse.index.sharded.vectors import ShardedSearcher, open_vectors
from rankhouse.jobs.shards import refuse_incomplete
from rankhouse.systems.reranking import open_precomputed
from rankhouse.systems.system import Dense, Reranked

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker


K = TypeVar("K")
V = TypeVar("V")

KEPT: Final = 64
"""Rankings of one view of an index."""


class ReadBy(NamedTuple):
    """What a ranker's order depends on besides the index; ``ranker`` is its fingerprint."""

    system: Reranked
    ranker: str
    query: str


class Recent(Generic[K, V]):
    """So many values by key, those used last; safe in many threads."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[K, V] = LRUCache(most)

    def get(self, key: K) -> V | None:
        """Return a value; None where it is not among the latest."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value for a while."""
        with self._lock:
            self._kept[key] = value


_SPLITS = 64
"""Rankers and splits for which it is known what is stored; requests name splits of their own."""


class FoundVectors(NamedTuple):
    """What searches vectors of an index, and a warning of what they lack of it; "" for nothing."""

    searcher: Searcher
    warning: str


class IndexView:
    """An index, opened; what it answers never changes.

    ``problem`` says why a newer state of it could not be opened; ``recent`` holds what rankers made lately.
    """

    def __init__(self, name: str, index: AnyIndex, *, partial: bool = False) -> None:
        self.name, self.index, self.partial, self.problem = name, index, partial, ""
        self.recent: Recent[ReadBy, Ranking] = Recent(KEPT)
        self._lock = threading.Lock()
        self._encoded: dict[str, str] = {}
        self._searchers: dict[tuple[str, str], FoundVectors] = {}
        self._stored: LRUCache[tuple[str, str], PrecomputedScorer | None] = LRUCache(_SPLITS)
        self._over: dict[tuple[str, ...], IndexView] = {}

    @classmethod
    def open(cls, name: str, path: Path) -> Self:
        """Open it as it is now."""
        refuse_incomplete([path])
        return cls(name, open_index([path]))

    def noting(self, problem: str) -> Self:
        """Return it with a problem."""
        noted = copy.copy(self)
        noted.problem = problem
        return noted

    def over(self, index: ShardedIndex) -> IndexView:
        """Return a view of those parts of the index that answer."""
        with self._lock:
            return self._over.setdefault(index.missing, IndexView(self.name, index))

    def vectors_of(self, encoder: ServedRanker) -> str:
        """Return the name of the vectors that an encoder made of the index; "" where there are none."""
        mark = encoder.fingerprint
        with self._lock:
            if mark not in self._encoded:
                self._encoded[mark] = next(self._names_of(mark), "")
            return self._encoded[mark]

    def _names_of(self, encoder: str) -> Iterator[str]:
        index = self.index
        if isinstance(index, ShardedIndex):
            of_parts = [
                {name for name, state in info.vectors.items() if state.encoder == encoder}
                for info in index.infos.values()
            ]
            yield from sorted(set.intersection(*of_parts))
        else:
            folders = sorted((index.path / "vectors").glob("*/"))
            yield from (folder.name for folder in folders if self._are_of(index, folder, encoder))

    def _are_of(self, index: Index, folder: Path, encoder: str) -> bool:
        try:
            state = Vectors.open(folder).state
        except RankhouseError:  # being made, or damaged: whoever asks for them by name is told
            return False
        return state.encoder == encoder and index.manifest.began_as(state.collection)

    def searcher(self, model: Dense) -> FoundVectors:
        """Open vectors of the index. Those of fewer documents, since the index grew, are searched as well.

        Raises:
            MissingInput: Nothing was encoded under this name.
            BadIndex: They are of another index, or damaged.
        """
        key = (model.name, model.vectors)
        with self._lock:
            if key not in self._searchers:
                self._searchers[key] = self._opened(model)
            return self._searchers[key]

    def _opened(self, model: Dense) -> FoundVectors:
        index = self.index
        if isinstance(index, ShardedIndex):
            return FoundVectors(ShardedSearcher(index, open_vectors(index, model.name), model.vectors), "")
        vectors = Vectors.open(vectors_folder(index.path, model.name))
        state, warning = vectors.state, ""
        if index.manifest.began_as(state.collection):
            if missing := len(index) - state.documents:
                warning = (
                    f"{missing:,} documents were added to {self.name} after it was encoded, so vectors do "
                    "not find them; run  rankhouse encode  again: only what is new is encoded"
                )
        else:
            vectors.require(documents=len(index), collection=index.fingerprint)
        return FoundVectors(searcher_of(vectors, model.vectors), warning)

    def stored(self, ranker: ServedRanker, split: str) -> PrecomputedScorer | None:
        """Return what the index stores for a ranker; None where that is nothing, or not of this index.

        The split, in notation, says how documents are to be cut; "" takes what there is.
        """
        key = (ranker.fingerprint, split)
        with self._lock:
            if key not in self._stored:
                try:
                    self._stored[key] = open_precomputed(self.index, ranker.ranker, split)
                except BadIndex:  # of other documents: texts are read instead
                    self._stored[key] = None
            return self._stored[key]
