"""A service's share of a Ray cluster: the shards of its indexes, and replicas of its rankers.

The work of all requests to a ranker is spread over its replicas, chunk by chunk, in turn. A chunk that a
replica did not live to compute is computed by another; what was admitted is answered. Scores are those of one
ranker, to the bit, since a score does not depend on what else is computed at the same time.
"""

from __future__ import annotations

import os
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from rankhouse.cluster.search import ReplicaFailed, Replicas, SearchCluster, search_cluster
from rankhouse.cluster.session import Capacity, ClusterOptions, read_address
from rankhouse.core.errors import BadModel
from rankhouse.jobs.shards import refuse_incomplete
from rankhouse.models.ranker import NeuralRanker
from rankhouse.serve.engine.jobs import ModelJob, ModelWork, Numbers, WorkResult
from rankhouse.serve.engine.served import open_served
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, fail
from rankhouse.serve.engine.worker import QUEUE_TOKENS, ModelWorker
from rankhouse.serve.errors import Overloaded, Unready
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.catalogue import IndexView
from rankhouse.systems.rankers import ComputeOptions

_AHEAD: Final = 8
"""Chunks that a replica has at a time, so that it can join them into batches."""
_FIRST_RATE: Final = 10_000.0
_BOUNDLESS: Final = 1 << 60


class Chunk(NamedTuple):
    """Items that one actor computes at once."""

    work: str  # name of the kind of work
    items: tuple[Any, ...]  # m of them
    sizes: Numbers  # (m,) tokens of each, estimated


class HeldRanker:
    """A ranker in an actor, opened from a spec that has the same path on every machine.

    Relative paths begin in ``home``. Raises BadModel where the ranker has another fingerprint.
    """

    def __init__(self, name: str, spec: str, compute: ComputeOptions, fingerprint: str, home: str) -> None:
        with suppress(OSError):
            os.chdir(home)
        self._served = open_served(name, spec, compute, capacity=_BOUNDLESS)
        if self._served.fingerprint != fingerprint:
            self._served.close()
            raise BadModel(f"{spec}: is another ranker there than here; copy it to every machine")
        self._served.warm()

    @property
    def found(self) -> dict[str, str]:
        """The ranker's fingerprint."""
        return {"fingerprint": self._served.fingerprint}

    def run(self, chunk: Chunk) -> WorkResult:
        """Compute a chunk, together with others that are here."""
        work = self._served.works[chunk.work]
        return self._served.worker.submit(work, chunk.items, chunk.sizes).result()


class _SpreadJob(ModelJob):
    """The items of one request, computed chunk by chunk elsewhere."""

    def take(self) -> tuple[Numbers, Chunk]:
        """Return the next chunk, and the places of its items."""
        rows = self._slices.popleft()
        self.waiting -= int(self._sizes[rows].sum())
        return rows, Chunk(self.work.name, tuple(self._items[row] for row in rows), self._sizes[rows])

    def receive(self, rows: Numbers, outcome: WorkResult) -> WorkResult | None:
        """Add a chunk's outcome; return the whole after the last, if its answer is still needed."""
        shape = outcome.values.shape[1:]
        if self._values is None or (shape and self._values.ndim == 1):  # so far the model could read nothing
            self._values = np.full((len(self._items), *shape), np.nan, np.float32)
        if outcome.values.ndim == self._values.ndim:
            self._values[rows] = outcome.values
        self._tokens[rows], self._lost[rows] = outcome.tokens, outcome.lost
        self._read_seconds += outcome.times.reading
        self._compute_seconds += outcome.times.computing
        self.missing -= len(rows)
        return self.finish()


class ReplicaWorker(ModelWorker):
    """The worker of a served ranker whose replicas compute; its own thread does the rest.

    So many tokens may wait as ``capacity`` says; 0 for the usual bound of each replica.
    """

    def __init__(self, name: str, replicas: Replicas, count: int, capacity: int = 0) -> None:
        super().__init__(name, capacity or count * QUEUE_TOKENS)
        self.readers *= count
        self._replicas = replicas
        self._queued = threading.Condition()
        self._queue: deque[_SpreadJob] = deque()
        self._rates: deque[float] = deque([0.0], maxlen=64)
        self._senders = ThreadPoolExecutor(count * _AHEAD, f"send-{self.name}")
        self._at_once = count * _AHEAD
        for _ in range(self._at_once):
            self._senders.submit(self._send)

    def submit(
        self, work: ModelWork, items: Sequence[Any], sizes: Numbers, deadline: Deadline = ENDLESS
    ) -> Future[WorkResult]:
        """Have n items computed. Args and errors: as in :meth:`ModelWorker.submit`."""
        if not len(items):
            return super().submit(work, items, sizes, deadline)
        job = _SpreadJob(work, items, sizes, deadline)
        with self._queued:
            self._refuse_if_closed()
            waiting = self.waiting_tokens
            if waiting and waiting + min(job.waiting, self.capacity // 2) > self.capacity:
                raise Overloaded(waiting / (self.rate or _FIRST_RATE))
            self._queue.append(job)
            self._queued.notify_all()
        return job.future

    @property
    def waiting_tokens(self) -> int:
        """Tokens, as estimated, that were admitted and not sent to a replica."""
        return sum(job.waiting for job in list(self._queue) if not job.future.done())

    @property
    def waiting_jobs(self) -> int:
        """Jobs with chunks that are not sent, and calls."""
        return len(self._queue) + super().waiting_jobs

    def close(self, patience: float = 5.0) -> None:
        """Refuse new work, fail what waits, and end the replicas."""
        with self._queued:
            self._closed = self._closed or Unready("the service is stopping; ask another one, or again later")
            waiting, self._queue = list(self._queue), deque()
            for job in waiting:
                fail(job.future, self._closed)
            self._queued.notify_all()
        self._replicas.close()
        super().close(patience)
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _send(self) -> None:
        """Send chunk after chunk, each until it is answered."""
        while (turn := self._next_chunk()) is not None:
            job, rows, chunk = turn
            started = time.perf_counter()
            try:
                outcome = self._replicas.ask(chunk)
            except Exception as error:  # noqa: BLE001 - the request's own error
                if isinstance(error, ReplicaFailed):
                    error = Unready(f'the model "{self.name}" does not answer on the cluster ({error})')
                with self._queued:  # others of its chunks may fail at the same time
                    fail(job.future, error)
            else:
                self._rates.append(int(chunk.sizes.sum()) / max(time.perf_counter() - started, 1e-6))
                with self._queued:
                    self.rate = self._at_once * float(np.mean(self._rates))
                    whole = job.receive(rows, outcome)
                if whole is not None and self.observer is not None:
                    self.observer.job(self.name, whole.times)

    def _next_chunk(self) -> tuple[_SpreadJob, Numbers, Chunk] | None:
        """Wait for the next chunk, of each job one in turn; None when the worker is closed."""
        with self._queued:
            while self._closed is None:
                while self._queue:
                    job = self._queue.popleft()
                    if job.over:
                        continue
                    rows, chunk = job.take()
                    if job.unread:
                        self._queue.append(job)
                    return job, rows, chunk
                self._queued.wait()
            return None


class ServiceCluster:
    """A service's actors in a cluster."""

    def __init__(self, cluster: SearchCluster, *, partial: bool) -> None:
        self._cluster, self._partial = cluster, partial

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index, or a folder of shards, that the cluster holds; its path is the same everywhere."""
        if not self._partial:
            refuse_incomplete([path])
        return IndexView(name, self._cluster.index([path], partial=self._partial), partial=self._partial)

    def spreading(self, spec: str, options: ServeOptions) -> Callable[[NeuralRanker, str], ReplicaWorker]:
        """Return what has a ranker held by the cluster, and makes the worker that spreads its work."""

        def spread(ranker: NeuralRanker, name: str) -> ReplicaWorker:
            precision, device = ranker.compute.precision, ranker.compute.device
            replicas = self._cluster.replicas
            shared = ClusterOptions("", replicas * max(1, len(options.rankers)), options.compute.threads)
            share = Capacity(self._cluster.ray, shared, device.type)
            compute = ComputeOptions(precision, device.type, share.cpus)
            home = str(Path.cwd())
            opener = partial(HeldRanker, name, spec, compute, fingerprint=ranker.fingerprint, home=home)
            held = self._cluster.hold(opener, share.gpus)
            return ReplicaWorker(name, held, replicas, options.limits.queue_tokens)

        return spread


@contextmanager
def service_cluster(options: ServeOptions) -> Iterator[ServiceCluster]:
    """Connect to the cluster that a service is to work with, as long as the block runs."""
    with search_cluster(ClusterOptions(read_address(options.cluster)), options.replicas) as cluster:
        yield ServiceCluster(cluster, partial=options.partial)
