"""Indexes of a service, each as it is at one moment, opened again when it has grown; and its rankers."""

from __future__ import annotations

import copy
import os
import re
import threading
import time
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, MutableMapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self, TypeVar

import numpy as np
from cachetools import LRUCache
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex, RankhouseError, WrongUse
from rankhouse.core.nouns import Ranking
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.impacts.impacts import Impacts, PackedImpacts, QueryWeigher, impacts_folder
from rankhouse.index.impacts.search import ImpactSearcher
from rankhouse.index.index import Index
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.index.precomputed.read import PrecomputedScorer
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.index.sharded.vectors import AnyImpacts, AnyImpactSearcher, ShardedSearcher, open_vectors
from rankhouse.jobs.shards import refuse_incomplete
from rankhouse.serve.engine.waiting import Recent
from rankhouse.serve.errors import Invalid, UnknownName
from rankhouse.serve.search.systems import (
    NamedSystem,
    ReadingTime,
    asked_system,
    of_content,
    over_hybrid,
    usual_systems,
    with_words,
)
from rankhouse.systems.execution import costly, open_index
from rankhouse.systems.rankers import impact_searcher, query_weigher
from rankhouse.systems.reranking import open_precomputed
from rankhouse.systems.system import Dense, RerankedSystem, Sparse
from rankhouse.text.words import Span

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker

K = TypeVar("K")
V = TypeVar("V")

KEPT: Final = 64
"""Rankings of one view of an index."""
_PLACES: Final = 200_000
"""Passages of one view of which it is known where they stand, about 50 MB."""
_WORDINGS: Final = 4_000_000
"""Words and runs of words of one view's documents that are at hand, 32 MB."""
_EXPRESSION: Final = re.compile(r"[(%*]|>>| \+ ")
_PAUSE: Final = 2.0
"""Seconds after which what could not be opened is tried again."""
_UNEVEN: Final = 1.5
"""Standard deviations over means of documents' lengths, from which bm25 counts them in full."""
_IN_FULL: Final = "bm25(k1=2, b=1)"
_SPLITS = 64
"""Rankers and splits for which it is known what is stored; requests name splits of their own."""

ReadBy = tuple[RerankedSystem, str, str]
"""Key of a ranker's order besides the index: its fingerprint and the question."""


class IndexView:
    """An index, opened; what it answers never changes.

    ``problem`` says why a newer state of it could not be opened; ``recent`` holds what rankers made lately,
    ``places`` where passages stand, by how documents are cut and the document's id, ``wordings`` the hashes
    of a document's words.
    """

    def __init__(self, name: str, index: AnyIndex, *, partial: bool = False) -> None:
        self.name, self.index, self.partial, self.problem = name, index, partial, ""
        self.recent: Recent[ReadBy, Ranking] = Recent(KEPT)
        self.places: Recent[tuple[str, str], Sequence[Span]] = Recent(_PLACES, lambda one: 1 + len(one))
        self.wordings: Recent[str, tuple[NDArray[np.int64], ...]] = Recent(
            _WORDINGS, lambda one: sum(map(len, one)) + 1
        )
        self._lock = threading.Lock()
        self._encoded: dict[str, str] = {}
        self._searchers: dict[tuple[str, str], tuple[Searcher, str]] = {}
        self._impacts: dict[str, tuple[AnyImpactSearcher, str]] = {}
        self._tables: dict[Sparse, QueryWeigher | None] = {}
        self._stored: LRUCache[tuple[str, str], PrecomputedScorer | None] = LRUCache(_SPLITS)
        self._over: dict[tuple[str, ...], IndexView] = {}
        self._floors: dict[str, float] = {}

    @classmethod
    def open(cls, name: str, path: Path) -> Self:
        """Open it as it is now."""
        refuse_incomplete([path])
        return cls(name, open_index([path]))

    @cached_property
    def words(self) -> str:
        """The bm25 for a folder's files: with b=0.4, long books come before the short page that answers."""
        if isinstance(self.index, ShardedIndex):
            return "bm25"
        lengths = np.concatenate([np.zeros(1), *(segment.lengths for segment in self.index.segments)])[1:]
        return _IN_FULL if len(lengths) and lengths.std() > _UNEVEN * lengths.mean() else "bm25"

    def over(self, index: ShardedIndex) -> IndexView:
        """Return a view of the shards of the index that answer."""
        with self._lock:
            return self._over.setdefault(index.missing, IndexView(self.name, index))

    def vectors_of(self, encoder: ServedRanker) -> str:
        """Return the name of the vectors that an encoder made of the index; "" where there are none."""
        mark = encoder.fingerprint
        return self._once(self._encoded, mark, lambda: next(self._names_of(mark), ""))

    def _once(self, held: MutableMapping[K, V], key: K, make: Callable[[], V]) -> V:
        """Return what is held under a key, made when it is first asked for."""
        with self._lock:
            if key not in held:
                held[key] = make()
            return held[key]

    def _names_of(self, encoder: str) -> Iterator[str]:
        index = self.index
        if isinstance(index, ShardedIndex):
            of_parts = [
                {name for name, state in info.vectors.items() if state.encoder == encoder}
                for info in index.infos.values()
            ]
            yield from sorted(set.intersection(*of_parts))
            return
        for folder in sorted((index.path / "vectors").glob("*/")):
            with suppress(RankhouseError):  # being made, or damaged: a request that names them gets the error
                state = Vectors.open(folder).state
                if state.encoder == encoder and index.manifest.began_as(state.collection):
                    yield folder.name

    def searcher(self, model: Dense) -> tuple[Searcher, str]:
        """Open vectors of the index, and return a warning of what they lack of it; "" for nothing.

        Those of fewer documents, since the index grew, are searched as well. MissingInput: nothing was
        encoded under this name. BadIndex: they are of another index, or damaged.
        """
        return self._once(self._searchers, (model.name, model.vectors), lambda: self._opened(model))

    def _opened(self, model: Dense) -> tuple[Searcher, str]:
        index = self.index
        if isinstance(index, ShardedIndex):
            return ShardedSearcher(index, open_vectors(index, model.name), model.vectors), ""
        vectors = Vectors.open(vectors_folder(index.path, model.name))
        return searcher_of(vectors, model.vectors), self._lacking(index, vectors)

    def impacts(self, model: Sparse) -> tuple[AnyImpactSearcher, str]:
        """Open impacts of the index, and return a warning of what they lack, as :meth:`searcher` does."""
        with self._lock:
            if model.name not in self._impacts:
                index = self.index
                if isinstance(index, ShardedIndex):
                    return impact_searcher(index, model), ""
                impacts = Impacts.open(impacts_folder(index.path, model.name))
                warning = self._lacking(index, impacts)
                self._impacts[model.name] = ImpactSearcher(PackedImpacts(impacts)), warning
            return self._impacts[model.name]

    def table(self, impacts: AnyImpacts, model: Sparse) -> QueryWeigher | None:
        """Return the table that weighs queries, see :func:`query_weigher`; files are read once."""
        return self._once(self._tables, model, lambda: query_weigher(impacts, model))

    def _lacking(self, index: Index, stored: Vectors | Impacts) -> str:
        state = stored.state
        if not index.manifest.began_as(state.collection):
            stored.require_all(index)
        elif missing := len(index) - state.documents:
            return (
                f"{missing:,} documents were added to {self.name} after it was encoded, so {stored.what} do "
                "not find them; run  rankhouse encode  again: only what is new is encoded"
            )
        return ""

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

        def opened() -> PrecomputedScorer | None:
            with suppress(BadIndex):  # of other documents: texts are read instead
                return open_precomputed(self.index, ranker.ranker, split)
            return None

        return self._once(self._stored, (ranker.fingerprint, split), opened)


class ServedIndex:
    """An index that is served; one that is held elsewhere never changes.

    MissingInput: there is no such folder. BadIndex: it holds no sound index.
    """

    def __init__(self, name: str, path: Path, held: IndexView | None) -> None:
        self.name, self.path, self._held = name, path, held
        self._lock = threading.Lock()
        self._seen = _state_of(path)
        self._tried: tuple[object, float] = (None, 0.0)  # what could not be opened, and when
        self._view = held or IndexView.open(name, path)

    def view(self) -> IndexView:
        """Return the index as it is now; holders of an earlier view keep it."""
        if self._held is not None or (now := _state_of(self.path)) == self._seen:
            return self._view
        with self._lock:
            state, moment = self._tried
            if now != self._seen and (now != state or time.monotonic() > moment + _PAUSE):
                try:
                    self._view, self._seen = IndexView.open(self.name, self.path), now
                except (RankhouseError, OSError) as error:  # gone, or being replaced: what is open stays
                    self._view = copy.copy(self._view)
                    self._view.problem = f"{self.path} changed and cannot be opened: {error}"
                    self._tried = now, time.monotonic()
        return self._view


def _state_of(path: Path) -> list[object]:
    """Return what changes whenever an index, its vectors, impacts or stored passages do."""
    states: list[object] = []
    held = {str(path): _names(str(path))}  # one look at the folder is quicker than one at each name
    if manifest.FILE not in held[str(path)]:
        held = {str(folder): _names(str(folder)) for folder in index_folders([path])}
    for folder, names in held.items():
        states.append(_state_of_file(f"{folder}/{manifest.FILE}") or folder)
        for what in [one for one in ("vectors", "impacts", "kept") if one in names]:  # mostly there is none
            made = sorted(_names(f"{folder}/{what}"))
            states += filter(None, [_state_of_file(f"{folder}/{what}/{name}/manifest.json") for name in made])
    return states


def _names(folder: str) -> list[str]:
    """Return what is in a folder; nothing where there is none."""
    try:
        return os.listdir(folder)  # noqa: PTH208 - asked by every search
    except OSError:
        return []


def _state_of_file(file: str) -> tuple[object, ...] | None:
    try:
        stat = os.stat(file)  # noqa: PTH116 - as above
    except OSError:
        return None
    return file, stat.st_mtime_ns, stat.st_size, stat.st_ino


class Catalogue:
    """Indexes and rankers by name, and the systems made of them.

    The first index is the default, for which None and "" stand; a name that is not here is an UnknownName.
    Systems that are given come before the usual ones of their names. ``held`` returns the view of an index
    that is held elsewhere. ``given`` are the rankers that may decide the default; others were trained here.
    ``of_folder`` says that the documents are a folder's files. ``reading_times`` are those of the first
    ranker on each index, where they were measured.
    """

    def __init__(
        self,
        indexes: Mapping[str, Path],
        rankers: Mapping[str, ServedRanker] | None = None,
        systems: Iterable[NamedSystem] = (),
        held: Callable[[str, Path], IndexView] | None = None,
        given: Container[str] | None = None,
        *,
        of_folder: bool = False,
    ) -> None:
        self._given, self.of_folder = given, of_folder
        self._held, self._indexes = held, dict[str, ServedIndex]()
        for name, path in indexes.items():
            self.add_index(name, path)
        self.rankers: Mapping[str, ServedRanker] = rankers or {}
        self.own_systems = {spec.name: spec for spec in systems}
        self.reading_times: dict[str, ReadingTime] = {}
        self._lock = threading.Lock()

    @property
    def indexes(self) -> tuple[str, ...]:
        """Names of the indexes."""
        return tuple(self._indexes)

    def add_index(self, name: str, path: Path) -> None:
        """Open an index, and serve it from now on."""
        view = None if self._held is None else self._held(name, path)
        self._indexes = {**self._indexes, name: ServedIndex(name, path, view)}

    def view(self, index: str | None = None) -> IndexView:
        """Return an index as it is now."""
        name = index or next(iter(self._indexes), "")
        if name not in self._indexes:
            raise UnknownName("index", name, self._indexes, "index")
        return self._indexes[name].view()

    def ranker(self, name: str) -> ServedRanker:
        """Return a ranker."""
        if name not in self.rankers:
            raise UnknownName("ranker", name, self.rankers, "ranker")
        return self.rankers[name]

    def add_ranker(self, ranker: ServedRanker) -> None:
        """Offer one ranker more, from now on; one of that name is replaced and closed."""
        with self._lock:
            before = self.rankers.get(ranker.name)
            self.rankers = {**self.rankers, ranker.name: ranker}
        if before is not None and before is not ranker:
            before.close()

    def systems(self, index: str | IndexView | None = None) -> dict[str, NamedSystem]:
        """Return the systems for an index by name, first stages first."""
        view = index if isinstance(index, IndexView) else self.view(index)
        vectors = {n: view.vectors_of(one) if one.is_encoder else "" for n, one in self.rankers.items()}
        encoded = tuple((name, found) for name, found in vectors.items() if found)
        readers = tuple(name for name, found in vectors.items() if not found)
        words = view.words if self.of_folder else "bm25"
        return usual_systems(encoded, readers, self._words(view), words) | self.own_systems

    def _words(self, view: IndexView) -> str:
        """Return what ``bm25`` without numbers stands for: of a folder's files, people ask in sentences."""
        return of_content(view.words) if self.of_folder else "bm25"

    def reading(self, systems: Mapping[str, NamedSystem]) -> NamedSystem | None:
        """Return the system of the first ranker given, over vectors if there are any; None for an encoder."""
        first = next((one for one in self.rankers if self._given is None or one in self._given), "")
        found = systems.get(over_hybrid(first)) or systems.get(first)
        return found if found is not None and found.ranker else None  # an encoder may be called "dense"

    def default(self, view: IndexView) -> NamedSystem:
        """Return the system that answers where none is named.

        The first ranker given decides: its own where it reads documents and is quick enough; else the first
        stage of most parts, hybrid where there are vectors. One that was trained here is chosen by its name.
        """
        systems, time = self.systems(view), self.reading_times.get(view.name)
        if (reading := self.reading(systems)) is not None and (time is None or time.is_quick):
            return reading
        first_stages = (spec for spec in systems.values() if not spec.ranker)
        return max(first_stages, key=lambda spec: len(list(costly(spec.system))))

    def system(
        self,
        name: str | None = None,
        index: str | IndexView | None = None,
        own: NamedSystem | None = None,
        field: str = "system",
    ) -> NamedSystem:
        """Return a system of an index by its name, or an expression, or the asker's own, or the default.

        In all of them ``bm25`` without numbers is the system of that name. ``field`` of the request has it.
        """
        view = index if isinstance(index, IndexView) else self.view(index)
        if own is not None and name:
            raise Invalid(
                f'system "{name[:200]}" says what ranks, and so do models, ranker and their options:  '
                f"{own.system} ; give one of the two",
                "system",
            )
        if own is None:
            if not name:
                return self.default(view)
            if name in (systems := self.systems(view)):
                return systems[name]
            if not _EXPRESSION.search(name):
                raise UnknownName("system", name, systems, field)
        try:
            found = own or asked_system(name or "")
        except WrongUse as error:
            raise Invalid(str(error), field) from None
        return replace(found, system=with_words(found.system, self._words(view)))
