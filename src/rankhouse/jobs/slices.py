"""Slices: which stretch of a command's input one task works on."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from rankhouse.core.errors import WrongUse

_SHARD: Final = re.compile("([0-9]{1,9})/([0-9]{1,9})").fullmatch
MOST: Final = 1_000_000


class Slice(NamedTuple):
    """A stretch of the units (queries, documents ...) that a job works through, in the order of its input.

    Attributes:
        start: The first unit, from 0.
        stop: Behind the last one.
        total: How many the whole input has.
    """

    start: int
    stop: int
    total: int

    def __len__(self) -> int:
        return self.stop - self.start

    def __bool__(self) -> bool:
        return self.stop > self.start


class Shard(NamedTuple):
    """What ``--shard 2/4`` says: the second of four slices."""

    number: int
    of: int

    @classmethod
    def parse(cls, text: str) -> Shard:
        """Read i/n, where i goes from 1 to n.

        Raises:
            WrongUse: Anything else.
        """
        match = _SHARD(text.strip())
        shard = cls(int(match[1]), int(match[2])) if match else cls(0, 0)
        if not 1 <= shard.number <= shard.of <= MOST:
            raise WrongUse(
                f'--shard "{text}": write i/n, the i-th of n slices, i from 1 to n; for a Slurm array '
                "sbatch --array=1-4  write  --shard $SLURM_ARRAY_TASK_ID/4"
            )
        return shard

    def __str__(self) -> str:
        return f"{self.number}/{self.of}"

    def of_total(self, total: int) -> Slice:
        """Return the slice of so many units."""
        return shard(self.number, self.of, total)


def shard(number: int, of: int, total: int) -> Slice:
    """Return one of several slices, which follow each other and differ by at most 1 in size.

    Args:
        number: Which one, from 1.
        of: How many slices there are; more than there are units leave some slices empty.

    Raises:
        WrongUse: There is no such slice.
    """
    if not 1 <= number <= of or total < 0:
        raise WrongUse(
            f"slice {number} of {of}, of {total} units: slices are counted from 1 up to their number"
        )
    return Slice((number - 1) * total // of, number * total // of, total)
