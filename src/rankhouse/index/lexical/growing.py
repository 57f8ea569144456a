"""The segments of a build or a merge: those closed, and the one being filled."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Generic, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.analysis import AnalysedTexts
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.store import StoreWriter
from rankhouse.index.lexical.write import sums_of, write_arrays


def is_blank(document: Document) -> bool:
    """Return whether a document has neither title nor text."""
    return not (document.text.strip() or document.title.strip())


class OpenSegment(ABC):
    """The folder of a segment being filled; each kind adds documents in its own way.

    Attributes:
        filled: Tokens so far.
        store: Where texts go.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path, self.filled = path, 0
        self._blocks = (path / "store.bin").open("wb")
        self.store = StoreWriter(self._blocks)

    def close(self) -> SegmentEntry:
        """Write what is left to be written; return what the manifest says of the segment."""
        blocks = self.store.finish()
        self._blocks.close()
        for name, array in blocks.items():
            np.save(self.path / f"{name}.npy", array)
        lengths, with_text = self.write_arrays()
        tokens, with_terms = int(lengths.sum(dtype=np.int64)), int(np.count_nonzero(lengths))
        return SegmentEntry(
            self.path.name, len(lengths), with_text, with_terms, tokens=tokens, files=sums_of(self.path)
        )

    @abstractmethod
    def write_arrays(self) -> tuple[NDArray[np.int32], int]:
        """Write everything but the texts; return each document's length, and how many have text."""

    def abandon(self) -> None:
        """Let go of the open file; harmless after :meth:`close`."""
        self._blocks.close()


S = TypeVar("S", bound=OpenSegment)


class GrowingSegments(Generic[S]):
    """The segments of one build: those closed, and the one being filled, if any."""

    def __init__(self, folder: Path, first: int, capacity: int, begin: Callable[[Path, int], S]) -> None:
        self._folder, self._first, self._capacity, self._begin = folder, first, capacity, begin
        self._open: S | None = None
        self.entries: list[SegmentEntry] = []

    def is_full_for(self, tokens: int) -> bool:
        """Return whether the segment being filled has no room for so many tokens."""
        return self._open is not None and self._open.filled + tokens > self._capacity

    def current(self, tokens: int) -> S:
        """Return the segment being filled, or a new one with room for so many tokens."""
        if self._open is None:
            folder = self._folder / f"{self._first + len(self.entries):06d}"
            self._open = self._begin(folder, max(self._capacity, tokens))
        return self._open

    def close(self) -> None:
        """Write the segment being filled; nothing of it stays in memory."""
        if self._open is not None:
            self.entries.append(self._open.close())
            self._open = None

    def __enter__(self) -> GrowingSegments[S]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the last segment, or let go of the open file of one that will not be finished.

        Raises:
            BadData: There is no segment at all.
        """
        try:
            if kind is None:
                self.close()
        finally:
            if self._open is not None:
                self._open.abandon()
        if kind is None and not self.entries:
            raise BadData(
                "there are no documents to index; is the corpus empty, or was every record skipped?"
            )


class AnalysedSegment(OpenSegment):
    """A segment being filled with analysed documents."""

    def __init__(self, folder: Path, capacity: int) -> None:
        super().__init__(folder)
        self._tokens = np.empty(capacity, np.int32)
        self._lengths = list[NDArray[np.int32]]()
        self._terms: dict[str, int] = {}
        self._ids = list[str]()
        self._with_text = 0

    def add(self, documents: list[Document], analysed: AnalysedTexts) -> None:
        """Add documents."""
        end = self.filled + len(analysed.tokens)
        if analysed.first == len(self._terms):
            # Numbered from where this segment stands: nothing to translate.
            self._terms.update(zip(analysed.terms, count(analysed.first), strict=False))
            self._tokens[self.filled : end] = analysed.tokens
        else:
            assert analysed.first == 0, "only a chunk numbered on its own can be translated"
            numbers = [self._terms.setdefault(term, len(self._terms)) for term in analysed.terms]
            self._tokens[self.filled : end] = np.array(numbers, np.int32)[analysed.tokens]
        self.filled = end
        self._lengths.append(analysed.lengths)
        for document in documents:
            self._ids.append(document.id)
            self._with_text += not is_blank(document)
            self.store.add(document)

    def write_arrays(self) -> tuple[NDArray[np.int32], int]:
        """Write everything but the texts."""
        lengths = np.concatenate(self._lengths)
        tokens = self._tokens[: self.filled]
        write_arrays(self.path, self._ids, list(self._terms), tokens, lengths=lengths)
        return lengths, self._with_text
