"""Slices that wait for a worker, and what becomes of those whose worker dies."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rankhouse.jobs.slices import Slice

TRIES = 3
"""Deaths after which a slice is halved, or the one unit that it holds is given up."""
PER_WORKER = 6
"""Slices a worker, so that all end at about the same time; the result does not depend on it."""


class PoisonUnit(NamedTuple):
    """A unit whose worker died each time.

    Attributes:
        unit: Its number.
        reason: What was seen of the last death.
    """

    unit: int
    reason: str


def gaps(done: Iterable[Slice], total: int) -> list[Slice]:
    """Return what is left between slices that are done.

    Args:
        total: Units of the whole job.
    >>> gaps([Slice(4, 6, 9), Slice(0, 2, 9)], 9)
    [Slice(start=2, stop=4, total=9), Slice(start=6, stop=9, total=9)]
    """
    left, start = [], 0
    for one in [*sorted(done), Slice(total, total, total)]:
        if start < one.start:
            left.append(Slice(start, one.start, total))
        start = max(start, one.stop)
    return left


class SliceQueue:
    """Hands out slices, each until it is done; halves those that kill their workers, down to one unit.

    A slice that outlived no try is cut in two, and a half that kills again is cut at its first death, so that
    a poisoned unit among thousands is soon alone; by itself it is given :data:`TRIES` tries, because a
    worker may die of something else.
    """

    def __init__(self, left: Sequence[Slice], most: int) -> None:
        self._waiting: deque[Slice] = deque()
        self._deaths: dict[Slice, int] = {}
        self.at_work: set[Slice] = set()
        self.poisoned: list[PoisonUnit] = []
        for gap in left:
            for start in range(gap.start, gap.stop, most):
                self._waiting.append(Slice(start, min(start + most, gap.stop), gap.total))

    def __len__(self) -> int:
        """Return how many slices wait or are at work."""
        return len(self._waiting) + len(self.at_work)

    @property
    def waiting(self) -> int:
        """How many slices wait for a worker."""
        return len(self._waiting)

    def take(self) -> Slice:
        """Hand out the next slice; IndexError if none waits."""
        one = self._waiting.popleft()
        self.at_work.add(one)
        return one

    def done(self, one: Slice) -> None:
        """Take note that a slice is done."""
        self.at_work.discard(one)

    def give_back(self, one: Slice) -> None:
        """Take a slice back whose worker could not do it, through no fault of the slice."""
        self.at_work.discard(one)
        self._waiting.appendleft(one)

    def died(self, one: Slice, reason: str) -> None:
        """Take a slice back whose worker died."""
        self.at_work.discard(one)
        deaths = self._deaths[one] = self._deaths.get(one, 0) + 1
        if deaths < TRIES:
            self._waiting.append(one)
        elif one.stop - one.start == 1:
            self.poisoned.append(PoisonUnit(one.start, reason))
        else:
            middle = (one.start + one.stop) // 2
            for half in (Slice(one.start, middle, one.total), Slice(middle, one.stop, one.total)):
                alone = half.stop - half.start == 1
                self._deaths[half] = 0 if alone else TRIES - 1
                self._waiting.append(half)
