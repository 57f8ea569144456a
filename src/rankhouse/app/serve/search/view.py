"""An index as it is at one moment: what a request sees from its beginning to its end."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Self

from rankhouse.index.index import Index


@dataclass(frozen=True)
class IndexView:
    """An index, opened; it never changes.

    Attributes:
        name: What people call it.
        index: It.
        problem: Why a newer state of it could not be opened; "" where all is well.
    """

    name: str
    index: Index
    problem: str = ""

    @classmethod
    def open(cls, name: str, path: Path) -> Self:
        """Open it as it is now.

        Args:
            name: What people call it.
            path: Its folder.
        """
        return cls(name, Index.open(path))

    def noting(self, problem: str) -> Self:
        """Return it with a problem."""
        return replace(self, problem=problem)

    def vectors_of(self, encoder: object) -> str:
        """Return the name of the vectors that an encoder made of the index; "" where there are none."""
        del encoder
        return ""
