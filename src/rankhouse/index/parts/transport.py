"""How parts are reached: in this process here, by whatever carries messages elsewhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol, Self

from rankhouse.core.errors import RankhouseError
from rankhouse.index.index import Index
from rankhouse.index.parts.messages import Request
from rankhouse.index.parts.part import IndexPart, part_folders


class PartFailed(RankhouseError):
    """A part does not answer."""

    def __init__(self, number: int, name: str, reason: str) -> None:
        super().__init__(
            f"the part {name} does not answer ({reason}); bring it back, or ask for what the other parts "
            "find: --partial"
        )
        self.number, self.name, self.reason = number, name, reason


class Parts(Protocol):
    """The parts of an index, each by its number, from 0."""

    @property
    def names(self) -> Sequence[str]:
        """What they are called."""
        ...

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask several parts at the same time: number -> answer.

        Raises:
            PartFailed: A part does not answer.
            RankhouseError: A part refuses.
        """
        ...

    def hurried(self) -> Parts:
        """Return the same parts for whoever would rather go without one than wait for it."""
        ...


class LocalParts:
    """Parts that lie in folders of this machine and are searched by this process."""

    def __init__(self, parts: Sequence[tuple[str, IndexPart]]) -> None:
        self.names = tuple(name for name, _ in parts)
        self._parts = tuple(part for _, part in parts)

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Self:
        """Open indexes, parts that hold one, or folders of such.

        Raises:
            MissingInput, BadIndex: One of them cannot be opened.
        """
        return cls([(str(folder), IndexPart(Index.open(folder))) for folder in part_folders(paths)])

    def ask(self, requests: Mapping[int, Request]) -> dict[int, Any]:
        """Ask parts, one after the other."""
        return {number: self._parts[number].answer(request) for number, request in requests.items()}

    def hurried(self) -> LocalParts:
        """Return these parts: here nothing is waited for."""
        return self
