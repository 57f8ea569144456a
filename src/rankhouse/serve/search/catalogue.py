"""What a service searches: indexes, each as it is at one moment, opened again when it has grown; rankers."""

from __future__ import annotations

import copy
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Generic, NamedTuple, Protocol, Self, TypeVar

from cachetools import LRUCache

from rankhouse.core.errors import BadIndex, RankhouseError
from rankhouse.core.results import Ranking
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.precomputed.score import PrecomputedScorer
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex, open_index
from rankhouse.index.sharded.vectors import ShardedSearcher, open_vectors
from rankhouse.jobs.shards import refuse_incomplete
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.search.systems import NamedSystem, asked_system, usual_systems
from rankhouse.systems.execution import costly
from rankhouse.systems.reranking import open_precomputed
from rankhouse.systems.system import Dense, Reranked

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker


K = TypeVar("K")
V = TypeVar("V")

KEPT: Final = 64
"""Rankings of one view of an index."""
_EXPRESSION: Final = re.compile(r"[(%*]|>>| \+ ")
_PAUSE: Final = 2.0
"""Seconds after which what could not be opened is tried again."""
_SPLITS = 64
"""Rankers and splits for which it is known what is stored; requests name splits of their own."""


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
        self._floors: dict[str, float] = {}

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
        except RankhouseError:  # being made, or damaged: a request that names them is told
            return False
        return state.encoder == encoder and index.manifest.began_as(state.collection)

    def searcher(self, model: Dense) -> FoundVectors:
        """Open vectors of the index. Those of fewer documents, since the index grew, are searched as well.

        MissingInput: nothing was encoded under this name. BadIndex: they are of another index, or damaged.
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

    def floor(self, vectors: Vectors, measure: Callable[[], float]) -> float:
        """Return the score that these vectors reach for questions that mean nothing, measured once."""
        mark = vectors.fingerprint
        if mark not in self._floors:
            self._floors[mark] = measure()
        return self._floors[mark]

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


class ServedIndex:
    """An index that is served; one that is held elsewhere never changes.

    Raises:
        MissingInput: There is no such folder.
        BadIndex: It holds no sound index.
    """

    def __init__(self, name: str, path: Path, held: IndexView | None = None) -> None:
        self.name, self.path, self._held = name, path, held
        self._lock = threading.Lock()
        self._seen = _state_of(path)
        self._tried: tuple[tuple[object, ...], float] = ((), 0.0)  # what could not be opened, and when
        self._view = held or IndexView.open(name, path)

    def view(self) -> IndexView:
        """Return the index as it is now; holders of an earlier view keep it."""
        if self._held is None and (now := _state_of(self.path)) != self._seen:
            with self._lock:
                state, moment = self._tried
                if now != self._seen and (now != state or time.monotonic() > moment + _PAUSE):
                    self._reopen(now)
        return self._view

    def _reopen(self, now: tuple[object, ...]) -> None:
        try:
            self._view, self._seen = IndexView.open(self.name, self.path), now
        except (RankhouseError, OSError) as error:  # gone, or being replaced: what is open stays readable
            self._view = self._view.noting(f"{self.path} changed and cannot be opened: {error}")
            self._tried = now, time.monotonic()


def _state_of(path: Path) -> tuple[object, ...]:
    """Return what changes whenever an index, its vectors or its stored passages do."""
    files = list[Path]()
    for folder in index_folders([path]):
        files += [folder / manifest.FILE, *folder.glob("vectors/*/manifest.json")]
        files += folder.glob("kept/*/manifest.json")
    states: list[object] = []
    for file in files:
        try:
            stat = file.stat()
        except OSError:
            states.append(file)
        else:
            states.append((file, stat.st_mtime_ns, stat.st_size, stat.st_ino))
    return tuple(states)


class Holder(Protocol):
    """What holds indexes for the service: a cluster."""

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index that it holds."""


class Catalogue:
    """Indexes and rankers by name, and the systems made of them.

    The first index is the default, for which None and "" stand; a name that is not here is an UnknownName.

    Args:
        cluster: What holds the indexes; None where this process opens them.
    """

    def __init__(
        self,
        indexes: Mapping[str, Path],
        rankers: Mapping[str, ServedRanker] | None = None,
        cluster: Holder | None = None,
    ) -> None:
        self._indexes = {
            name: ServedIndex(name, path, None if cluster is None else cluster.view(name, path))
            for name, path in indexes.items()
        }
        self._rankers: Mapping[str, ServedRanker] = rankers if rankers is not None else {}
        self._systems: dict[str, NamedSystem] = {}
        self._lock = threading.Lock()

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexes, the default first."""
        return tuple(self._indexes)

    @property
    def rankers(self) -> Mapping[str, ServedRanker]:
        """The rankers by name."""
        return self._rankers

    def view(self, index: str | None = None) -> IndexView:
        """Return an index as it is now."""
        name = index or next(iter(self._indexes), "")
        if name not in self._indexes:
            raise UnknownName("index", name, self._indexes, "index")
        return self._indexes[name].view()

    def ranker(self, name: str) -> ServedRanker:
        """Return a ranker."""
        if name not in self._rankers:
            raise UnknownName("ranker", name, self._rankers, "ranker")
        return self._rankers[name]

    def add_ranker(self, ranker: ServedRanker) -> None:
        """Offer one ranker more, from now on; one of that name is replaced and closed."""
        with self._lock:
            before = self._rankers.get(ranker.name)
            self._rankers = {**self._rankers, ranker.name: ranker}
        if before is not None and before is not ranker:
            before.close()

    def add_system(self, spec: NamedSystem) -> None:
        """Offer one more system, from now on, before the usual one of that name."""
        self._systems = {**self._systems, spec.name: spec}

    def systems(self, index: str | None = None) -> dict[str, NamedSystem]:
        """Return the systems for an index by name, first stages first."""
        view, encoded, readers = self.view(index), dict[str, str](), []
        for name, ranker in self._rankers.items():
            vectors = view.vectors_of(ranker) if ranker.is_encoder else ""
            if vectors:
                encoded[name] = vectors
            else:
                readers.append(name)
        return usual_systems(tuple(encoded.items()), tuple(readers)) | self._systems

    def system(self, name: str | None = None, index: str | None = None) -> NamedSystem:
        """Return a system of an index.

        Args:
            name: Its name, or an expression. The first ranker decides the default: its own where it reads
                documents, the hybrid one where it is an encoder; bm25 where there is none.
        """
        systems = self.systems(index)
        if not name:
            first_stages = [spec for spec in systems.values() if not spec.ranker]
            return systems.get(next(iter(self._rankers), "")) or max(
                first_stages, key=lambda spec: len(list(costly(spec.system)))
            )
        if name not in systems:
            if _EXPRESSION.search(name):
                return asked_system(name)
            raise UnknownName("system", name, systems, "system")
        return systems[name]
