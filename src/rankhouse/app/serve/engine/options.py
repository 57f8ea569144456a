"""How the documents of a request are to be read, as it says."""

from __future__ import annotations

from dataclasses import dataclass


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
