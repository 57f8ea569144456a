"""What a service searches: its indexes, opened anew when they have grown, and its rankers, by name."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol

from rankhouse.core.errors import RankhouseError
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.manifest import index_folders
from rankhouse.serve.errors import UnknownName
from rankhouse.serve.search.systems import SystemSpec, asked_system, usual_systems
from rankhouse.serve.search.view import IndexView

if TYPE_CHECKING:
    from rankhouse.serve.engine.served import ServedRanker


_EXPRESSION: Final = re.compile(r"[(%*]|>>| \+ ")
_PAUSE: Final = 2.0
"""Seconds after which what could not be opened is tried again."""


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
        """Return the index as it is now; whoever holds an earlier view goes on with it undisturbed."""
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
        self._systems: dict[str, SystemSpec] = {}

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
        """Offer one ranker more, from now on; one of that name is replaced."""
        from rankhouse.serve.engine.served import Rankers

        if not isinstance(self._rankers, Rankers):
            self._rankers = Rankers(self._rankers.values())
        self._rankers.add(ranker)

    def add_system(self, spec: SystemSpec) -> None:
        """Offer one more system, from now on, before the usual one of that name."""
        self._systems = {**self._systems, spec.name: spec}

    def systems(self, index: str | None = None) -> dict[str, SystemSpec]:
        """Return the systems for an index by name, first stages first."""
        view, encoded, readers = self.view(index), dict[str, str](), []
        for name, ranker in self._rankers.items():
            vectors = view.vectors_of(ranker) if ranker.is_encoder else ""
            if vectors:
                encoded[name] = vectors
            else:
                readers.append(name)
        return usual_systems(encoded, readers) | self._systems

    def system(self, name: str | None = None, index: str | None = None) -> SystemSpec:
        """Return a system of an index.

        Args:
            name: Its name, or an expression. The first ranker decides the default: its own where it reads
                documents, the hybrid one where it is an encoder; bm25 where there is none.
        """
        systems = self.systems(index)
        if not name:
            first_stages = [spec for spec in systems.values() if not spec.ranker]
            return systems.get(next(iter(self._rankers), "")) or max(
                first_stages, key=lambda spec: len(spec.models)
            )
        if name not in systems:
            if _EXPRESSION.search(name):
                return asked_system(name)
            raise UnknownName("system", name, systems, "system")
        return systems[name]
