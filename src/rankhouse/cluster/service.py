"""What a Ray cluster holds for a service: the shards of its indexes, and replicas of its rankers.

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
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import numpy as np

from rankhouse.cluster.replicas import ReplicaFailed, Replicas
from rankhouse.cluster.search import SearchCluster, search_cluster
from rankhouse.cluster.session import Capacity, ClusterOptions, read_address
from rankhouse.core.errors import BadModel
from rankhouse.jobs.shards import refuse_incomplete
from rankhouse.models.ranker import NeuralRanker
from rankhouse.serve.engine.jobs import ModelWork, Numbers, Observer, Times, WorkResult, cut
from rankhouse.serve.engine.served import ServedRanker, open_served
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, fail
from rankhouse.serve.engine.worker import QUEUE_TOKENS, ModelWorker
from rankhouse.serve.errors import DeadlinePassed, Overloaded, Unready
from rankhouse.serve.host.settings import ServeOptions
from rankhouse.serve.search.view import IndexView
from rankhouse.systems.rankers import ComputeOptions

T = TypeVar("T")

_AHEAD: Final = 8
"""Chunks that a replica has at a time, so that it can join them into batches."""
_FIRST_RATE: Final = 10_000.0
_BOUNDLESS: Final = 1 << 60


@dataclass(frozen=True)
class RankerSetup:
    """How a ranker is opened where it is held.

    Attributes:
        spec: What it is opened from; under the same path on every machine.
        fingerprint: What it must be.
        home: The folder that relative paths begin in.
    """

    name: str
    spec: str
    compute: ComputeOptions
    fingerprint: str
    home: str

    def open(self) -> HeldRanker:
        """Open it.

        Raises:
            BadModel: It is another one.
        """
        with suppress(OSError):
            os.chdir(self.home)
        served = open_served(self.name, self.spec, self.compute, capacity=_BOUNDLESS)
        if served.fingerprint != self.fingerprint:
            served.close()
            raise BadModel(f"{self.spec}: is another ranker there than here; copy it to every machine")
        served.warm()
        return HeldRanker(served)


class Chunk(NamedTuple):
    """What is computed at once.

    Attributes:
        work: Name of the kind of work.
        items: m of them.
        sizes: (m,) tokens of each, estimated.
    """

    work: str
    items: tuple[Any, ...]
    sizes: Numbers


class HeldRanker:
    """A ranker in an actor."""

    def __init__(self, served: ServedRanker) -> None:
        self._served = served

    @property
    def found(self) -> dict[str, str]:
        """The ranker's fingerprint."""
        return {"fingerprint": self._served.fingerprint}

    def run(self, chunk: Chunk) -> WorkResult:
        """Compute a chunk, together with others that are here."""
        work = self._served.works[chunk.work]
        return self._served.worker.submit(work, chunk.items, chunk.sizes).result()


class _Job:
    """The items of one request, in chunks."""

    def __init__(self, work: ModelWork, items: Sequence[Any], sizes: Numbers, deadline: Deadline) -> None:
        self.work, self.deadline, self._items, self._sizes = work, deadline, items, sizes
        self.future: Future[WorkResult] = Future()
        self.left = deque(cut(sizes))
        self.waiting = int(sizes.sum())
        self._outcomes: list[tuple[Numbers, WorkResult]] = []
        self._missing = len(self.left)
        self._entered = time.perf_counter()

    def take(self) -> tuple[Numbers, Chunk]:
        """Return the next chunk, and the places of its items."""
        rows = self.left.popleft()
        self.waiting -= int(self._sizes[rows].sum())
        return rows, Chunk(self.work.name, tuple(self._items[row] for row in rows), self._sizes[rows])

    @property
    def over(self) -> bool:
        """Whether its answer is not needed any more; fails it if it is late."""
        if not self.future.done() and self.deadline.passed:
            fail(self.future, DeadlinePassed())
        return self.future.done()

    def add(self, rows: Numbers, outcome: WorkResult) -> Times | None:
        """Add a chunk's outcome; after the last, set the result and return where the time went."""
        self._outcomes.append((rows, outcome))
        self._missing -= 1
        if self._missing or self.future.done() or not self.future.set_running_or_notify_cancel():
            return None
        whole = self._whole()
        self.future.set_result(whole)
        return whole.times

    def _whole(self) -> WorkResult:
        n, widest = len(self._items), max((one.values for _, one in self._outcomes), key=np.ndim)
        values = np.full((n, *widest.shape[1:]), np.nan, np.float32)
        tokens, lost = np.zeros(n, np.int64), np.zeros(n, np.int64)
        for rows, one in self._outcomes:
            if one.values.ndim == values.ndim:  # else the model could read none of them
                values[rows] = one.values
            tokens[rows], lost[rows] = one.tokens, one.lost
        reading, computing = (sum(t) for t in zip(*(one.times[1:] for _, one in self._outcomes), strict=True))
        queued = max(0.0, time.perf_counter() - self._entered - reading - computing)
        return WorkResult(values, tokens, lost, Times(queued, reading, computing))


class ReplicaWorker:
    """The worker of a served ranker whose replicas compute, in place of a thread of its own.

    Args:
        capacity: Tokens that may wait; 0 for the usual bound of each replica.
    """

    def __init__(self, local: ModelWorker, replicas: Replicas, count: int, capacity: int = 0) -> None:
        self.name, self._local, self._replicas = local.name, local, replicas
        self.capacity = capacity or count * QUEUE_TOKENS
        self.observer: Observer | None = None
        self._changed = threading.Condition()
        self._turns: deque[_Job] = deque()
        self._rates: deque[float] = deque([0.0], maxlen=64)
        self._count, self._closed = count, False
        self._senders = ThreadPoolExecutor(count * _AHEAD, f"send-{self.name}")
        for _ in range(count * _AHEAD):
            self._senders.submit(self._send)

    def submit(
        self, work: ModelWork, items: Sequence[Any], sizes: Numbers, deadline: Deadline = ENDLESS
    ) -> Future[WorkResult]:
        """Have n items computed. Args and errors: as in :meth:`ModelWorker.submit`."""
        job = _Job(work, items, sizes, deadline)
        if not len(items):
            return self._local.submit(work, items, sizes, deadline)
        with self._changed:
            if self._closed:
                raise Unready("the service is stopping; ask another one, or again later")
            waiting = self.waiting_tokens
            if waiting and waiting + min(job.waiting, self.capacity // 2) > self.capacity:
                raise Overloaded(waiting / (self.rate or _FIRST_RATE))
            self._turns.append(job)
            self._changed.notify_all()
        return job.future

    def call(self, run: Callable[[], T], deadline: Deadline = ENDLESS) -> Future[T]:
        """Have a function called that touches the model here. Args: as in :meth:`ModelWorker.call`."""
        return self._local.call(run, deadline)

    @property
    def waiting_tokens(self) -> int:
        """Tokens, as estimated, that were admitted and not sent to a replica."""
        return sum(job.waiting for job in list(self._turns) if not job.future.done())

    @property
    def waiting_jobs(self) -> int:
        """Jobs with chunks that are not sent, and calls."""
        return len(self._turns) + self._local.waiting_jobs

    @property
    def rate(self) -> float:
        """Tokens computed a second, lately, by all replicas."""
        return self._count * _AHEAD * float(np.mean(self._rates))

    @property
    def readers(self) -> int:
        """Threads that tokenise for it."""
        return self._count * self._local.readers

    @property
    def batch_tokens(self) -> int:
        """Tokens of the next batch of a replica, about."""
        return self._local.batch_tokens

    @property
    def alive(self) -> bool:
        """Whether it still works; replicas that died are replaced."""
        return not self._closed and self._local.alive

    def close(self, patience: float = 5.0) -> None:
        """Refuse new work, fail what waits, and end the replicas."""
        with self._changed:
            self._closed = True
            waiting, self._turns = list(self._turns), deque()
            for job in waiting:
                fail(job.future, Unready("the service is stopping; ask another one, or again later"))
            self._changed.notify_all()
        self._replicas.close()
        self._local.close(patience)
        self._senders.shutdown(wait=False, cancel_futures=True)

    def _send(self) -> None:
        """Send chunk after chunk, each until it is answered."""
        while (turn := self._next()) is not None:
            job, rows, chunk = turn
            started = time.perf_counter()
            try:
                outcome = self._replicas.receive(chunk, None)
            except Exception as error:  # noqa: BLE001 - the request's own error
                if isinstance(error, ReplicaFailed):
                    error = Unready(f'the model "{self.name}" does not answer on the cluster ({error})')
                with self._changed:  # others of its chunks may fail at the same time
                    fail(job.future, error)
            else:
                self._rates.append(int(chunk.sizes.sum()) / max(time.perf_counter() - started, 1e-6))
                with self._changed:
                    times = job.add(rows, outcome)
                if times is not None and self.observer is not None:
                    self.observer.job(self.name, times)

    def _next(self) -> tuple[_Job, Numbers, Chunk] | None:
        """Wait for the next chunk, of each job one in turn; None when the worker is closed."""
        with self._changed:
            while not self._closed:
                while self._turns:
                    job = self._turns.popleft()
                    if job.over:
                        continue
                    rows, chunk = job.take()
                    if job.left:
                        self._turns.append(job)
                    return job, rows, chunk
                self._changed.wait()
            return None


class ServiceCluster:
    """What a cluster holds for a service."""

    def __init__(self, cluster: SearchCluster, *, partial: bool) -> None:
        self._cluster, self._partial = cluster, partial

    def view(self, name: str, path: Path) -> IndexView:
        """Return an index that the cluster holds.

        Args:
            path: An index, or a folder of shards; the same on every machine.

        Raises:
            ShardFailed: A shard cannot be opened.
        """
        if not self._partial:
            refuse_incomplete([path])
        return IndexView(name, self._cluster.index([path], partial=self._partial), partial=self._partial)

    def spreading(
        self, spec: str, options: ServeOptions
    ) -> Callable[[NeuralRanker, ModelWorker], ReplicaWorker]:
        """Return what has a ranker held by the cluster, and spreads its work."""

        def spread(ranker: NeuralRanker, thread: ModelWorker) -> ReplicaWorker:
            precision, device, _ = ranker.compute
            replicas = self._cluster.replicas
            shared = ClusterOptions("", replicas * max(1, len(options.rankers)), options.compute.threads)
            share = Capacity(self._cluster.ray, shared, device.type)
            compute = ComputeOptions(precision, device.type, share.cpus)
            setup = RankerSetup(thread.name, spec, compute, ranker.fingerprint, home=str(Path.cwd()))
            held = self._cluster.hold(setup, share.gpus)
            return ReplicaWorker(thread, held, replicas, options.limits.queue_tokens)

        return spread


@contextmanager
def service_cluster(options: ServeOptions) -> Iterator[ServiceCluster]:
    """Connect to the cluster that a service is to work with, as long as the block runs.

    Raises:
        WrongUse: There is no such address.
        MissingExtra: Ray is not installed.
        RankhouseError: Nobody answers at the address.
    """
    with search_cluster(ClusterOptions(read_address(options.cluster)), options.replicas) as cluster:
        yield ServiceCluster(cluster, partial=options.partial)
