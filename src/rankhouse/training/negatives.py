"""Which passages may stand as not relevant beside a relevant one."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import WrongUse

IntArray = NDArray[np.int64]
Mask = NDArray[np.bool_]

RELEVANT, NOT_RELEVANT, UNJUDGED = 1, 0, -1
"""What an example's label can be."""
NOT_IN_RUN = -1
"""The rank of an example that no run brought."""


@dataclass(frozen=True)
class Negatives:
    """A rule; make one by notation from :data:`NEGATIVES`.

    Attributes:
        judged: Those judged not relevant to the query may be taken.
        start: First rank of the run, from 0, whose documents may be taken unless relevant.
        stop: First rank that may no longer be taken; equal to ``start``: none from the run.
        anywhere: Any passage at all may be taken that is of no document relevant to the query.
    """

    judged: bool = False
    start: int = 0
    stop: int = 0
    anywhere: bool = False

    def __post_init__(self) -> None:
        if self.start < 0 or self.stop < self.start:
            raise WrongUse(
                f"run(start={self.start}, stop={self.stop}): ranks count from 0 and stop is above start"
            )

    def among(self, label: IntArray, rank: IntArray) -> Mask:
        """Return which of n examples may be drawn for their query: (n,) bool.

        Args:
            label: (n,) 1, 0 or -1.
            rank: (n,) place in the run, from 0; -1 if it is not there.
        """
        in_range = (rank >= self.start) & (rank < self.stop)
        mask: Mask = (label != RELEVANT) & ((self.judged & (label == NOT_RELEVANT)) | in_range)
        return mask


_DEEPEST = 2**31


def _run(start: int = 0, stop: int = 100) -> Negatives:
    if stop == start:
        raise WrongUse(f"run(start={start}, stop={stop}): holds no rank; stop is above start")
    return Negatives(start=start, stop=stop)


NEGATIVES: dict[str, Callable[..., Negatives]] = {
    "given": lambda: Negatives(judged=True),
    "run": _run,
    "any": lambda: Negatives(judged=True, stop=_DEEPEST),
    "random": lambda: Negatives(anywhere=True),
}
"""Name -> rule: judged so, found by the run in a range of ranks, either of the two, or drawn from all."""
