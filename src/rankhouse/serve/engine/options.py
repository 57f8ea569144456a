"""How the documents of a request are to be read, as it says."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from rankhouse.core.notation import make
from rankhouse.serve.contracts.errors import Invalid
from rankhouse.text.split import SPLITTERS, Splitter

MOST_OVERLAP: Final = 64
"""Passages that a word may be in, where a request says how documents are cut."""


@dataclass(frozen=True)
class ReadingOptions:
    """How the documents of a request are to be read.

    Attributes:
        split: How they are cut, in notation; "" as the ranker's own.
        pool: How passages' scores become a document's, in notation; "" as the ranker's own.
        most_tokens: Tokens of a document that are read; None reads all.
        most_passages: Passages of a document that are read; None reads all.
    """

    split: str = ""
    pool: str = ""
    most_tokens: int | None = None
    most_passages: int | None = None


def asked_split(notation: str) -> Splitter:
    """Return what cuts documents as a request says.

    Raises:
        WrongUse: An unknown splitter.
        Invalid: So little lies between its passages that they would hold a text over and over.
    """
    split = make(notation, SPLITTERS, "splitter")
    size, stride, most = (getattr(split, name, None) for name in ("size", "stride", "limit"))
    if size and stride and min(size // stride, most or size) > MOST_OVERLAP:
        raise Invalid(
            f"split={notation[:80]}: a word would be in more than {MOST_OVERLAP} passages; choose a stride "
            f"of at least {-(-size // MOST_OVERLAP)}",
            "split",
        )
    return split
