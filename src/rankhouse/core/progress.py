"""How far long work is: one protocol for everything that takes time."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Told how far the work is: first where it begins, then now and then.

    Work begins at 0, or at what earlier sittings did: the time that is left follows from what came since.

    >>> def show(done, total=None):
    ...     print(f"{done} of {total}" if total else done)
    """

    def __call__(self, done: float, total: int | None = None) -> None:
        """Take how much is done.

        Args:
            done: Documents, queries, steps: what the work is made of; one that takes long is told in parts.
            total: How many there are in all; None where nobody knows yet.
        """
        ...


def ignore(done: float, total: int | None = None) -> None:
    """Be told and say nothing.

    Args:
        done: How much is done.
        total: Of how much.
    """
