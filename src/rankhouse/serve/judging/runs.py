"""Runs of systems over many questions, made in the background, question by question, and kept.

What was made once is made again only where the index, the system or its ranker changed. One question at a
time is asked, in turn with everybody else's requests.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Final, NamedTuple

from msgspec import Struct

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Query, Ranking
from rankhouse.core.run import Run
from rankhouse.io.trec import run_rows
from rankhouse.serve.engine.waiting import Recent
from rankhouse.serve.errors import Overloaded, Unready
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.ranking import rank
from rankhouse.serve.search.systems import NamedSystem

MOST_QUERIES: Final = 1_000
"""Questions that a run is made of here; larger ones are made by command."""
KEPT: Final = 8 * MOST_QUERIES
"""Rankings of one question by one system that are kept, those used last; 12 KB each."""


class _Key(NamedTuple):
    """Key of a ranking: an index by its name and as it is, a system, its rankers, a question."""

    searched: str
    collection: str
    spec: NamedSystem
    rankers: tuple[str, ...]
    text: str


class RunProgress(Struct, frozen=True):
    """Progress of a system's run: questions asked, of so many; why it cannot be made."""

    system: str
    done: int
    total: int
    fault: str


class SystemRuns:
    """Runs of a service's systems."""

    def __init__(self, catalogue: Catalogue) -> None:
        self._catalogue = catalogue
        self._thread = ThreadPoolExecutor(1, "system-runs")
        self._changed = threading.Condition()
        self._rankings: Recent[_Key, Ranking] = Recent(KEPT)
        self._faults: dict[tuple[str, NamedSystem], str] = {}
        self._ids: dict[str, str] = {}  # so that a document's id is kept once
        self._asked: dict[_Key, Future[None]] = {}  # waiting or at work
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
        key = _Key(view.name, view.index.fingerprint, spec, marks, text="")
        keys = [key._replace(text=query.text) for query in queries]
        with self._changed:
            if fault := self._faults.pop((view.name, spec), ""):
                return RunProgress(spec.name, 0, len(queries), fault), None
            rankings = {key: one for key in keys if (one := self._rankings.get(key)) is not None}
            for key in keys:
                if key not in rankings and key not in self._asked and not self._closed:
                    self._asked[key] = self._thread.submit(self._ask, key)
        done = sum(key in rankings for key in keys)
        progress = RunProgress(spec.name, done, len(queries), "")
        if done < len(keys):
            return progress, None
        made = {query.id: rankings[key] for query, key in zip(queries, keys, strict=True)}
        return progress, Run.from_rankings(made)

    def finished(
        self, system: str, queries: Sequence[Query], index: str = "", patience: float = 600.0
    ) -> Run:
        """Wait for a system's run; Unready: it cannot be made, or not in so many seconds."""
        until = time.monotonic() + patience
        while True:
            progress, run = self.progress(system, queries, index)
            if run is not None:
                return run
            left = until - time.monotonic()
            if progress.fault or left <= 0:
                how_far = progress.fault or f"{progress.done:,} of {progress.total:,} questions are asked"
                raise Unready(f"the run of {system} is not there yet: {how_far}; ask again in a moment")
            with self._changed:
                self._changed.wait(min(left, 1.0))

    def close(self) -> None:
        """Ask nothing more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        self._thread.shutdown(wait=False, cancel_futures=True)

    def _ask(self, key: _Key) -> None:
        """Ask one question; where that fails, the system is not asked the others."""
        ranking, fault = None, ""
        try:
            ranking = self._ranked(key)
        except RankhouseError as error:
            fault = str(error)
        except Exception as error:  # noqa: BLE001 - reported to whichever request asks for the run
            fault = f"{type(error).__name__}: {error}"
        with self._changed:
            del self._asked[key]
            if ranking is not None:
                self._rankings.put(key, ranking)
            elif not self._closed:
                self._faults[key.searched, key.spec] = fault
                for other in [
                    one for one in self._asked if (one.searched, one.spec) == (key.searched, key.spec)
                ]:
                    self._asked.pop(other).cancel()
            self._changed.notify_all()

    def _ranked(self, key: _Key) -> Ranking:
        """Rank for one question; where a model has too much to do, wait."""
        while True:
            try:
                view = self._catalogue.view(key.searched)
                found = rank(self._catalogue, view, key.spec, Query("query", key.text)).ranking
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
