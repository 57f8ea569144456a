"""One thread a model, the only one that touches it: the work of all requests is joined into its batches.

Requests take turns, portion by portion, so that one of a thousand passages delays one of five by no more than
a batch, which holds about as many tokens as are computed in a quarter of a second. Between two batches, work
that nobody still waits for is dropped. What waits is bounded in tokens: what does not fit is refused at
once, and was not begun.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from threading import Condition, Thread
from typing import Any, Final, TypeVar

import numpy as np

from rankhouse.models.contract import Batch
from rankhouse.serve.engine.jobs import ModelJob, ModelWork, Numbers, Observer, Portion, WorkResult, computed
from rankhouse.serve.engine.waiting import ENDLESS, Deadline, fail
from rankhouse.serve.errors import DeadlinePassed, Overloaded, Unready

log = logging.getLogger(__name__)

T = TypeVar("T")

TURN_SECONDS: Final = 0.25
LEAST_BATCH, LARGEST_BATCH = 1_024, 65_536
QUEUE_TOKENS: Final = 262_144
_READERS = 4
_FIRST_RATE = 10_000.0  # tokens a second, until there is a measurement


@dataclass
class _Call:
    """Something else that must touch the model."""

    run: Callable[[], Any]
    deadline: Deadline
    future: Future[Any] = field(default_factory=Future)


class ModelWorker:
    """The thread of one model, of which at most ``capacity`` tokens may wait, 0 for the usual bound."""

    def __init__(self, name: str, capacity: int = 0) -> None:
        self.name, self.capacity = name, capacity or QUEUE_TOKENS
        self.observer: Observer | None = None
        self._changed = Condition()
        self._turns: deque[ModelJob | _Call] = deque()  # what has something ready
        self._jobs: dict[ModelJob, None] = {}  # all that is not finished, in order of arrival
        self.rate = 0.0  # tokens computed a second, lately
        self.readers = _READERS
        self._closed: Exception | None = None
        self._readers = ThreadPoolExecutor(_READERS, f"read-{name}")
        self._thread = Thread(target=self._run, name=f"model-{name}", daemon=True)
        self._thread.start()

    # --- asked by requests ------------------------------------------------------------------------

    def submit(
        self, work: ModelWork, items: Sequence[Any], sizes: Numbers, deadline: Deadline = ENDLESS
    ) -> Future[WorkResult]:
        """Have n items computed; their first portion is encoded in the calling thread.

        Cancel the future to free what it would take; after the deadline it has :class:`DeadlinePassed`.
        Overloaded: there is too much work already. Unready: the worker was closed.
        """
        job = ModelJob(work, items, sizes, deadline)
        if not len(items):
            job.finish()
            return job.future
        with self._changed:
            self._admit(job)
            self._jobs[job] = None
            job.reading = True
        self._read(job)
        return job.future

    def call(self, run: Callable[[], T], deadline: Deadline = ENDLESS) -> Future[T]:
        """Have a function called in the model's thread, in turn with the batches."""
        call = _Call(run, deadline)
        with self._changed:
            self._refuse_if_closed()
            self._turns.append(call)
            self._changed.notify()
        return call.future

    @property
    def waiting_tokens(self) -> int:
        """Tokens, as estimated, that were admitted and not begun."""
        with self._changed:
            return sum(job.waiting for job in self._jobs if not job.future.done())

    @property
    def waiting_jobs(self) -> int:
        """Jobs and calls that are not finished."""
        with self._changed:
            return len(self._jobs) + sum(isinstance(turn, _Call) for turn in self._turns)

    @property
    def alive(self) -> bool:
        """Whether it still works."""
        return self._closed is None and self._thread.is_alive()

    def close(self, patience: float = 5.0) -> None:
        """Refuse new work and tell those who wait that nothing comes."""
        with self._changed:
            self._closed = self._closed or Unready("the service is stopping; ask another one, or again later")
            self._changed.notify()
        self._thread.join(patience)
        self._readers.shutdown(wait=False, cancel_futures=True)

    # --- admission --------------------------------------------------------------------------------

    def _refuse_if_closed(self) -> None:
        if self._closed is not None:
            raise self._closed

    def _admit(self, job: ModelJob) -> None:
        """Let a job in, or not. A large one counts for half the room only, so that it shuts nobody out."""
        self._refuse_if_closed()
        most = self.capacity // 2
        waiting = [other.waiting for other in self._jobs if not other.future.done()]
        room = self.capacity - min(job.waiting, most)
        if any(waiting) and sum(min(tokens, most) for tokens in waiting) > room:
            raise Overloaded(sum(waiting) / (self.rate or _FIRST_RATE))

    # --- reading: any thread ----------------------------------------------------------------------

    def _read(self, job: ModelJob) -> None:
        """Encode a job's next portion; go on later where the model will soon want more."""
        try:
            portion = job.read()
        except BaseException as error:
            self._end(job, error)
            raise
        with self._changed:
            job.reading = False
            if job not in self._jobs:
                return  # nobody still waits for it
            job.missing -= portion.unreadable
            if portion.batch is None:
                job.waiting -= portion.size
            else:
                if not job.ready:
                    self._turns.append(job)
                job.ready.append(portion)
                self._changed.notify()
            self._read_on(job)
        if portion.batch is None:
            self._end(job)

    def _read_on(self, job: ModelJob) -> None:
        """Let more of a job be encoded, if it should be: another portion, behind those of other jobs."""
        wanted = job.unread and not job.reading and job.ready_size < self.batch_tokens
        if wanted and job in self._jobs and self._closed is None:
            job.reading = True
            self._readers.submit(self._read, job)

    @property
    def batch_tokens(self) -> int:
        """Tokens of the next batch: as many as are computed in a quarter of a second."""
        return int(min(max(self.rate * TURN_SECONDS, LEAST_BATCH), LARGEST_BATCH))

    # --- computing: the model's thread ------------------------------------------------------------

    def _run(self) -> None:
        try:
            while (turn := self._next()) is not None:
                if isinstance(turn, list):
                    self._compute(turn)
                elif turn.deadline.passed:
                    fail(turn.future, DeadlinePassed())
                elif turn.future.set_running_or_notify_cancel():
                    try:
                        turn.future.set_result(turn.run())
                    except Exception as error:  # noqa: BLE001 - the waiting thread gets it
                        turn.future.set_exception(error)
        except BaseException as error:
            log.exception("the thread of the model %s ended", self.name)
            self._closed = Unready(f'the model "{self.name}" failed ({error}); start the service again')
        with self._changed:
            calls = [one for one in self._turns if isinstance(one, _Call)]
            waiting: list[ModelJob | _Call] = [*self._jobs, *calls]
            self._jobs.clear()
            self._turns.clear()
        for one in waiting:
            fail(one.future, self._closed or Unready("the service is stopping"))

    def _next(self) -> _Call | list[tuple[ModelJob, Portion]] | None:
        """Wait for the next batch or call; None when the worker is closed."""
        with self._changed:
            while True:
                if self._closed is not None:
                    return None
                self._drop()
                if self._turns:
                    break
                self._changed.wait(1.0 if self._jobs else None)
            first = self._turns[0]
            if isinstance(first, _Call):
                self._turns.popleft()
                return first
            return self._batch(first.work)

    def _drop(self) -> None:
        """Drop the jobs that nobody still waits for."""
        over = [job for job in self._jobs if job.over]
        for job in over:
            del self._jobs[job]
            job.ready.clear()
        if over:
            self._turns = deque(turn for turn in self._turns if isinstance(turn, _Call) or turn.ready)

    def _batch(self, work: ModelWork) -> list[tuple[ModelJob, Portion]]:
        """Take portions of one kind of work, in turns, until they make a batch."""
        taken: list[tuple[ModelJob, Portion]] = []
        others: list[ModelJob | _Call] = []
        room = self.batch_tokens
        while self._turns and room > 0:
            job = self._turns.popleft()
            if isinstance(job, _Call) or job.work is not work:
                others.append(job)
                continue
            portion = job.ready.popleft()
            taken.append((job, portion))
            room -= portion.size
            job.waiting -= portion.size
            if job.ready:
                self._turns.append(job)
            self._read_on(job)
        self._turns.extendleft(reversed(others))
        return taken

    def _compute(self, taken: Sequence[tuple[ModelJob, Portion]]) -> None:
        batches = [portion.batch for _, portion in taken if portion.batch is not None]
        batch: Batch = batches[0] if len(batches) == 1 else type(batches[0]).join(batches)
        started = time.perf_counter()
        values = computed(taken[0][0].work, batch)
        seconds = time.perf_counter() - started
        size = sum(portion.size for _, portion in taken)
        self.rate += (0.2 if self.rate else 1.0) * (size / max(seconds, 1e-6) - self.rate)
        if self.observer is not None:
            tokens, lost = int(batch.lengths.sum()), int(batch.lost.sum())
            self.observer.batch(self.name, len(batch), tokens, lost, seconds=seconds)
        ends = np.cumsum([len(own) for own in batches])
        for (job, portion), end in zip(taken, ends.tolist(), strict=True):
            own = None if values is None else values[end - len(portion.rows) : end]
            with self._changed:
                job.add(portion, own, seconds)
            self._end(job)

    def _end(self, job: ModelJob, error: BaseException | None = None) -> None:
        """Hand out what is finished or failed."""
        with self._changed:
            if error is not None:
                fail(job.future, error)
            outcome = job.finish()
            if job.future.done():
                self._jobs.pop(job, None)
        if outcome is not None and self.observer is not None:
            self.observer.job(self.name, outcome.times)
