"""How long a request may take."""

from __future__ import annotations

import time
from typing import Final, NamedTuple, Self


class Deadline(NamedTuple):
    """The moment after which nobody waits for an answer any more.

    Attributes:
        at: In seconds of ``time.monotonic``; None where there is no end.
    """

    at: float | None = None

    @classmethod
    def after(cls, seconds: float | None) -> Self:
        """Return the deadline so many seconds from now; None for none."""
        return cls(None if seconds is None else time.monotonic() + seconds)

    @property
    def left(self) -> float | None:
        """Seconds that are left, not below 0; None where there is no end."""
        return None if self.at is None else max(0.0, self.at - time.monotonic())

    @property
    def passed(self) -> bool:
        """Whether it is over."""
        return self.at is not None and time.monotonic() >= self.at


ENDLESS: Final = Deadline()
"""No deadline."""
