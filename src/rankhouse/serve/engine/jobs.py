"""Jobs that wait for a model: items of one request, encoded portion by portion, and their results.

A job's items are encoded in other threads than the model's, no further ahead than the model can use soon, so
that a request of many passages takes little memory. Shapes: n items, m of one portion.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray
from rankhouse.models.contract import Batch
from rankhouse.serve.engine.waiting import Deadline, fail
from rankhouse.serve.errors import DeadlinePassed

log = logging.getLogger(__name__)

Numbers = NDArray[np.int64]

PORTION_TOKENS = 2_048
PORTION_ITEMS = 128


@dataclass(frozen=True)
class ModelWork:
    """One kind of work; what is of one kind may stand in one batch.

    ``encode`` turns n items into a batch, in any thread; ``compute`` makes (n, ...) float32 of a batch, NaN
    where there is no number, in the model's thread. ``name`` is for where the model is held elsewhere.
    """

    encode: Callable[[Sequence[Any]], Batch]
    compute: Callable[[Any], FloatArray]
    name: str = ""


class Times(NamedTuple):
    """Seconds that a job waited, in which its texts were made ids, and of the batches that held it."""

    queued: float
    reading: float
    computing: float


class WorkResult(NamedTuple):
    """Results of n items.

    ``values`` (n, ...) float32, NaN where the model could not read an item; ``tokens`` (n,) that were
    computed, ``lost`` (n,) that did not fit.
    """

    values: FloatArray
    tokens: Numbers
    lost: Numbers
    times: Times


class Portion(NamedTuple):
    """Some items of a job, ready for the model: of ``size`` tokens, ``unreadable`` items among them.

    ``batch`` holds m encoded items, or is None where the model can read none; ``rows`` (m,) are their places.
    """

    batch: Batch | None
    rows: Numbers
    size: int
    unreadable: int


class Observer(Protocol):
    """Counter of the work of a worker; called in its thread, so it must be quick."""

    def batch(self, model: str, rows: int, tokens: int, lost: int, seconds: float) -> None:
        """Count a batch: rows, tokens computed, tokens that did not fit, seconds."""

    def job(self, model: str, times: Times) -> None:
        """Count a job that was finished."""


class ModelJob:
    """The items of one request: ``future`` gets their result, cancelling it drops what is left.

    ``waiting`` counts tokens, as estimated, that the model has not begun with, ``missing`` items without a
    result; ``ready`` is what is encoded, ``reading`` whether a thread encodes more.
    """

    def __init__(self, work: ModelWork, items: Sequence[Any], sizes: Numbers, deadline: Deadline) -> None:
        self.work, self.deadline = work, deadline
        self.future: Future[WorkResult] = Future()
        self.waiting = int(sizes.sum())
        self.ready: deque[Portion] = deque()
        self.reading = False
        self._items, self._sizes = items, sizes
        self._slices = deque(cut(sizes))
        self._values: FloatArray | None = None
        self._tokens, self._lost = np.zeros(len(items), np.int64), np.zeros(len(items), np.int64)
        self.missing = len(items)
        self._entered = time.perf_counter()
        self._read_seconds = self._compute_seconds = 0.0

    @property
    def unread(self) -> bool:
        """Whether some items are not encoded yet."""
        return bool(self._slices)

    @property
    def ready_size(self) -> int:
        """Tokens, as estimated, that are encoded and wait."""
        return sum(portion.size for portion in self.ready)

    @property
    def over(self) -> bool:
        """Whether nobody still waits for it; says so to those who wait for a late one."""
        if self.future.done():
            return True
        if self.deadline.passed:
            fail(self.future, DeadlinePassed())
            return True
        return False

    def read(self) -> Portion:
        """Encode the next items; one thread at a time."""
        rows = self._slices.popleft()
        started = time.perf_counter()
        batch, readable = encoded(self.work, [self._items[row] for row in rows])
        self._read_seconds += time.perf_counter() - started
        return Portion(batch, rows[readable], int(self._sizes[rows].sum()), len(rows) - len(readable))

    def add(self, portion: Portion, values: FloatArray | None, seconds: float) -> None:
        """Take what came out for a portion."""
        rows = portion.rows
        if values is not None:
            if self._values is None:
                self._values = np.full((len(self._items), *values.shape[1:]), np.nan, np.float32)
            self._values[rows] = values
        if portion.batch is not None:
            self._tokens[rows] = portion.batch.lengths.numpy()
            self._lost[rows] = portion.batch.lost.numpy()
        self.missing -= len(rows)
        self._compute_seconds += seconds

    def finish(self) -> WorkResult | None:
        """Return the outcome once nothing is missing; None before that, or if no client is waiting."""
        if self.missing:
            return None
        values = self._values
        if values is None:
            values = np.full(len(self._items), np.nan, np.float32)
        spent = self._read_seconds + self._compute_seconds
        queued = max(0.0, time.perf_counter() - self._entered - spent)
        times = Times(queued, self._read_seconds, self._compute_seconds)
        outcome = WorkResult(values, self._tokens, self._lost, times)
        if not self.future.done() and self.future.set_running_or_notify_cancel():
            self.future.set_result(outcome)
            return outcome
        return None


def cut(sizes: Numbers) -> list[Numbers]:
    """Cut items of sizes (n,) into portions of like size, the largest first: the places of each portion."""
    order = np.argsort(-sizes, kind="stable")
    parts: list[Numbers] = []
    start = tokens = 0
    for end, size in enumerate(sizes[order].tolist()):
        if end > start and (tokens + size > PORTION_TOKENS or end - start == PORTION_ITEMS):
            parts.append(order[start:end])
            start, tokens = end, 0
        tokens += size
    return [*parts, order[start:]] if len(order) else parts


def encoded(work: ModelWork, items: Sequence[Any]) -> tuple[Batch | None, Numbers]:
    """Encode items, leaving out those that cannot be: (batch, places of what it holds)."""
    try:
        return work.encode(items), np.arange(len(items))
    except Exception:  # whatever a tokenizer raises for a text
        if len(items) == 1:
            log.warning("a text cannot be read by the model", exc_info=True)
            return None, np.empty(0, np.int64)
    half = len(items) // 2
    left, right = encoded(work, items[:half]), encoded(work, items[half:])
    batches = [batch for batch, _ in (left, right) if batch is not None]
    batch = type(batches[0]).join(batches) if batches else None
    return batch, np.concatenate([left[1], right[1] + half])


def computed(work: ModelWork, batch: Batch) -> FloatArray | None:
    """Compute n rows: (n, ...), NaN for those that fail; None where all do."""
    try:
        return work.compute(batch)
    except Exception:  # one row must not take the others with it
        if len(batch) == 1:
            log.warning("a text cannot be computed by the model", exc_info=True)
            return None
    half, rows = len(batch) // 2, torch.arange(len(batch))
    parts = [(some, computed(work, batch.take(some))) for some in (rows[:half], rows[half:])]
    some_part = next((part for _, part in parts if part is not None), None)
    if some_part is None:
        return None
    values = np.full((len(batch), *some_part.shape[1:]), np.nan, np.float32)
    for some, part in parts:
        if part is not None:
            values[some.numpy()] = part
    return values
