"""The scoring engine: items are encoded window after window, computed batch by batch, each by one thread.

While one window is computed, the next is encoded. Batches hold rows of like length up to a budget of tokens.
On a processor every thread computes batches of its own: threads that share one product would wait for each
other at each of its ends, on a busy machine most of the time. Memory depends on window and budget only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Protocol, Self, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rankhouse.core.nouns import FloatArray
from rankhouse.nn.layers.ragged import within_budget
from rankhouse.nn.machine import Compute

T = TypeVar("T")

_CPU_BUDGET, _CUDA_BUDGET = 2_048, 65_536
_LEAST_BUDGET = 256
_WINDOW = 512


class Batch(Protocol):
    """n encoded items, still ragged: ``nn.ragged.Packed``, or ``TwoSided`` where sides stay apart."""

    @classmethod
    def join(cls, parts: Sequence[Self]) -> Self:
        """Put the items of several batches of one model into one, in this order."""
        ...

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> Tensor:
        """(n,) int64: tokens each row costs; batches are cut by it."""
        ...

    @property
    def lost(self) -> Tensor:
        """(n,) int64: tokens of the text that did not fit; 0 where nothing was cut."""
        ...

    def take(self, rows: Tensor) -> Self:
        """Return these rows, (m,) int64, in this order."""
        ...

    def to(self, device: torch.device) -> Self:
        """Move to a device."""
        ...


B = TypeVar("B", bound=Batch)


@dataclass
class EngineReport:
    """What an engine has seen."""

    seen: int = 0  # items computed
    truncated: int = 0  # how many of them were shortened to fit the model
    tokens_lost: int = 0  # how many tokens that cost

    def add(self, lost: Tensor) -> None:
        """Count a window, lost (n,)."""
        self.seen += len(lost)
        self.truncated += int((lost > 0).sum())
        self.tokens_lost += int(lost.sum())


class Engine:
    """Runs one function over many items.

    Args:
        budget: Tokens of one batch; 0: what suits the device. Halved when memory does not suffice.
        window: Items encoded at once; rows of like length are looked for within one.

    Attributes:
        report: What was seen so far.
    """

    def __init__(self, compute: Compute, budget: int = 0, window: int = _WINDOW) -> None:
        on_cuda = compute.device.type == "cuda"
        self.compute, self.window = compute, window if not on_cuda else 8 * window
        self.budget = budget or (_CUDA_BUDGET if on_cuda else _CPU_BUDGET)
        self.report = EngineReport()

    def run(
        self,
        items: Sequence[T],
        encode: Callable[[Sequence[T]], B],
        each: Callable[[B], Tensor],
        out: FloatArray,
    ) -> None:
        """Fill ``out`` (n, ...) with what ``each`` gives for the encoded items, in their order.

        Args:
            encode: Turns a window of items into a batch; called in a thread of its own.
        """
        waiting: deque[Future[None]] = deque()
        with self._workers() as submit:
            try:
                for start, batch in self._encoded(items, encode):
                    self.report.add(batch.lost)
                    batches = list(within_budget(batch.lengths, self._share(batch.lengths)))
                    part = out[start : start + len(batch)]
                    waiting.extend(submit(self._fill, part, batch, rows, each) for rows in batches)
                    while len(waiting) > len(batches):  # at most this window is still to be computed
                        waiting.popleft().result()
                while waiting:
                    waiting.popleft().result()
            finally:
                for future in waiting:
                    future.cancel()

    def run_encoded(self, batch: B, each: Callable[[B], Tensor], out: FloatArray) -> None:
        """Fill ``out`` (n, ...) with what ``each`` gives for n items that are encoded already."""
        self.report.add(batch.lost)
        with self._workers() as submit:
            rows = within_budget(batch.lengths, self._share(batch.lengths))
            waiting = [submit(self._fill, out, batch, some, each) for some in rows]
            for future in waiting:
                future.result()

    def _encoded(self, items: Sequence[T], encode: Callable[[Sequence[T]], B]) -> Iterator[tuple[int, B]]:
        """Encode window after window, one ahead of the computing, in a thread of its own."""
        starts = range(0, len(items), self.window)
        with ThreadPoolExecutor(1, thread_name_prefix="encode") as ahead:
            windows = [items[s : s + self.window] for s in starts[:1]]
            waiting = [ahead.submit(encode, window) for window in windows]
            for start in starts:
                batch = waiting.pop().result()
                following = start + self.window
                if following < len(items):
                    waiting.append(ahead.submit(encode, items[following : following + self.window]))
                yield start, batch

    def _share(self, lengths: Tensor) -> int:
        """Return a budget that leaves every worker several batches of a small window."""
        parts = 3 * self._threads if self._threads > 1 else 1
        return max(min(self.budget, int(lengths.sum()) // parts), min(self.budget, _LEAST_BUDGET))

    def _fill(self, out: FloatArray, batch: B, rows: Tensor, each: Callable[[B], Tensor]) -> None:
        with torch.inference_mode():
            out[rows.numpy()] = self._values(batch, rows, each)

    def _values(self, batch: B, rows: Tensor, each: Callable[[B], Tensor]) -> NDArray[Any]:
        """Compute these rows; where memory does not suffice in two halves, and all that follow in less."""
        try:
            return each(batch.take(rows)).float().cpu().numpy()
        except torch.OutOfMemoryError:
            if len(rows) == 1:
                raise
            self.budget = max(self.budget // 2, 1)
            half = len(rows) // 2
            return np.concatenate([self._values(batch, part, each) for part in (rows[:half], rows[half:])])

    @property
    def _threads(self) -> int:
        if self.compute.device.type != "cpu":
            return 1
        return self.compute.threads or torch.get_num_threads()

    @contextmanager
    def _workers(self) -> Iterator[Callable[..., Future[None]]]:
        """Return what takes work: threads that compute alone, or this very thread if one is enough."""
        if self._threads == 1:
            with self.compute.active():
                yield _at_once
            return
        before = torch.get_num_threads()
        try:
            with ThreadPoolExecutor(self._threads, "score", torch.set_num_threads, (1,)) as pool:
                yield pool.submit
        finally:
            torch.set_num_threads(before)


def _at_once(work: Callable[..., None], *args: object) -> Future[None]:
    work(*args)
    done: Future[None] = Future()
    done.set_result(None)
    return done
