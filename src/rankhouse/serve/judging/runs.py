"""Runs of systems over many questions, made in the background, question by question, and kept.

What was made once is made again only where the index, the system or its ranker changed. One question at a
time is asked, in turn with everybody else's requests.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Final, NamedTuple

from cachetools import LRUCache
from msgspec import Struct

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.results import Ranking
from rankhouse.core.run import Run
from rankhouse.io.trec import run_rows
from rankhouse.serve.errors import Overloaded
from rankhouse.serve.search.answer import rank
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.systems import NamedSystem

MOST_QUERIES: Final = 1_000
"""Questions that a run is made of here; larger ones are made by command."""
KEPT: Final = 8 * MOST_QUERIES
"""Rankings of one question by one system that are kept, those used last; 12 KB each."""
_PATIENCE: Final = 30.0  # seconds without work after which the thread ends


class _Key(NamedTuple):
    """What a ranking depends on."""

    collection: str
    spec: NamedSystem
    rankers: tuple[str, ...]
    text: str


class _Task(NamedTuple):
    """A question that a system is to be asked, of the index of a name."""

    key: _Key
    searched: str


class RunProgress(Struct, frozen=True):
    """How far a system's run is: questions asked, of so many; why it cannot be made."""

    system: str
    done: int
    total: int
    fault: str


class SystemRuns:
    """Runs of a service's systems."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._changed = threading.Condition()
        self._rankings: LRUCache[_Key, Ranking] = LRUCache(KEPT)
        self._faults: dict[tuple[str, NamedSystem], str] = {}
        self._ids: dict[str, str] = {}  # so that a document's id is kept once
        self._waiting: deque[_Task] = deque()
        self._asked: set[_Key] = set()  # waiting or at work
        self._thread: threading.Thread | None = None
        self._closed = False

    def progress(
        self, system: str, queries: Sequence[Query], index: str = ""
    ) -> tuple[RunProgress, Run | None]:
        """Say how far a system's run is, which is begun if need be, and return it if it is there.

        UnknownName: there is no such index or system. WrongUse: there are too many questions.
        """
        if len(queries) > MOST_QUERIES:
            raise WrongUse(
                f"{len(queries):,} questions: at most {MOST_QUERIES:,} are asked here; make the run with  "
                "rankhouse search  and name it when starting the service:  --run NAME=FILE"
            )
        view = self._catalogue.view(index)
        spec = self._catalogue.system(system, view.name)
        marks = tuple(self._catalogue.ranker(name).fingerprint for name in spec.rankers)
        keys = [_Key(view.index.fingerprint, spec, marks, query.text) for query in queries]
        with self._changed:
            if fault := self._faults.pop((view.name, spec), ""):
                return RunProgress(spec.name, 0, len(queries), fault), None
            rankings = {key: self._rankings[key] for key in keys if key in self._rankings}
            if missing := [key for key in dict.fromkeys(keys) if key not in rankings]:
                self._ask([_Task(key, view.name) for key in missing if key not in self._asked])
        progress = RunProgress(spec.name, sum(key in rankings for key in keys), len(queries), "")
        if missing:
            return progress, None
        made = {query.id: rankings[key] for query, key in zip(queries, keys, strict=True)}
        return progress, Run.from_rankings(made)

    def finished(
        self, system: str, queries: Sequence[Query], index: str = "", patience: float = 600.0
    ) -> tuple[RunProgress, Run | None]:
        """Wait for a system's run."""
        until = time.monotonic() + patience
        while True:
            progress, run = self.progress(system, queries, index)
            left = until - time.monotonic()
            if run is not None or progress.fault or left <= 0:
                return progress, run
            with self._changed:
                self._changed.wait(min(left, 1.0))

    def close(self) -> None:
        """Ask nothing more."""
        with self._changed:
            self._closed = True
            self._waiting.clear()
            self._changed.notify_all()

    def _ask(self, tasks: Sequence[_Task]) -> None:
        """Put questions at the end of the line; the caller holds the lock."""
        if self._closed or not tasks:
            return
        self._waiting.extend(tasks)
        self._asked.update(task.key for task in tasks)
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="system-runs", daemon=True)
            self._thread.start()
        self._changed.notify_all()

    def _work(self) -> None:
        while (task := self._next()) is not None:
            key, ranking, fault = task.key, None, ""
            try:
                ranking = self._ranked(task)
            except RankhouseError as error:
                fault = str(error)
            except Exception as error:  # noqa: BLE001 - who asks is told, and the thread goes on
                fault = f"{type(error).__name__}: {error}"
            with self._changed:
                self._asked.discard(key)
                if ranking is not None:
                    self._rankings[key] = ranking
                elif not self._closed:
                    self._faults[task.searched, key.spec] = fault
                    self._drop(task)
                self._changed.notify_all()

    def _next(self) -> _Task | None:
        """Return the next question; None where none came for long."""
        with self._changed:
            if not self._waiting:
                self._changed.wait_for(lambda: self._waiting or self._closed, _PATIENCE)
            if not self._waiting:
                self._thread = None
                return None
            return self._waiting.popleft()

    def _drop(self, failed: _Task) -> None:
        """Forget the other questions to a system that fails."""
        kept = [
            one for one in self._waiting if (one.searched, one.key.spec) != (failed.searched, failed.key.spec)
        ]
        self._asked -= {one.key for one in self._waiting} - {one.key for one in kept}
        self._waiting = deque(kept)

    def _ranked(self, task: _Task) -> Ranking:
        """Ask one question; where a model has too much to do, wait."""
        query = Query("query", task.key.text)
        while True:
            try:
                view = self._catalogue.view(task.searched)
                found = rank(self._catalogue, view, task.key.spec, query).ranking
                doc_ids = tuple(self._ids.setdefault(one, one) for one in found.doc_ids)
                return Ranking(doc_ids, found.scores.copy())
            except Overloaded as error:
                with self._changed:
                    if self._closed:
                        raise
                    self._changed.wait_for(lambda: self._closed, min(error.retry_after, 5.0))


def trec_run(run: Run, name: str) -> str:
    """Return a run as text of six columns."""
    tag = "".join(c if c.isprintable() and not c.isspace() else "_" for c in name) or "rankhouse"
    return "".join(run_rows(run, tag))
