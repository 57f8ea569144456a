"""Batches encoded ahead of the computing, by one thread."""

from __future__ import annotations

from collections import deque
from collections.abc import Generator
from concurrent import futures

from rankhouse.training.any_batches import AnyBatches
from rankhouse.training.groups import Task
from rankhouse.training.steps import Part, Stepper

EncodedBatch = tuple[int, list[Task], list[Part | None]]
"""A batch's number in its epoch, what is read for it, and its parts."""

_AHEAD = 2


class Prefetch:
    """Reads and encodes the batches of a training while earlier ones are computed."""

    def __init__(self, batches: AnyBatches, stepper: Stepper) -> None:
        self._batches, self._stepper = batches, stepper
        self._waiting: deque[tuple[int, list[Task], futures.Future[list[Part | None]]]] = deque()

    def batches(self, epoch: int, first: int) -> Generator[EncodedBatch, None, None]:
        """Stream the encoded batches of an epoch; close it to cancel what was not yet begun."""
        with futures.ThreadPoolExecutor(1, thread_name_prefix="batches") as pool:
            try:
                for number, tasks in enumerate(self._batches.plan(epoch)):
                    if number < first:
                        continue
                    work = pool.submit(self._stepper.encode, tasks)
                    self._waiting.append((number, tasks, work))
                    if len(self._waiting) > _AHEAD:
                        yield self._next()
                while self._waiting:
                    yield self._next()
            finally:
                for _, _, work in self._waiting:
                    work.cancel()
                self._waiting.clear()

    def _next(self) -> EncodedBatch:
        number, tasks, work = self._waiting.popleft()
        return number, tasks, work.result()

    def wait(self) -> None:
        """Wait until nothing is read or encoded."""
        futures.wait([work for _, _, work in self._waiting])
