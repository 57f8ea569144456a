"""The segments of a build: those closed, and the one being filled with analysed documents."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import numpy as np

from rankhouse.core.nouns import Document
from rankhouse.index.lexical.analysis import AnalysedTexts
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import sums_of, write_arrays
from rankhouse.index.lexical.store import StoreWriter


def is_blank(document: Document) -> bool:
    """Return whether a document has neither title nor text."""
    return not (document.text.strip() or document.title.strip())


class GrowingSegments:
    """The segments of one build: those closed, and the one being filled, if any."""

    def __init__(self, folder: Path, first: int, capacity: int) -> None:
        self._folder, self._first, self._capacity = folder, first, capacity
        self._open: _OpenSegment | None = None
        self.entries: list[SegmentEntry] = []

    def is_full_for(self, analysed: AnalysedTexts) -> bool:
        """Return whether the segment being filled has no room for these tokens."""
        return self._open is not None and self._open.filled + len(analysed.tokens) > self._capacity

    def add(self, documents: list[Document], analysed: AnalysedTexts) -> None:
        """Add documents to the segment being filled, or to a new one.

        Args:
            documents: The documents.
            analysed: Their terms.
        """
        if self._open is None:
            folder = self._folder / f"{self._first + len(self.entries):06d}"
            self._open = _OpenSegment(folder, max(self._capacity, len(analysed.tokens)))
        self._open.add(documents, analysed)

    def close(self) -> None:
        """Write the segment being filled; nothing of it stays in memory."""
        if self._open is not None:
            self.entries.append(self._open.close())
            self._open = None

    def abandon(self) -> None:
        """Let go of the open file of a segment that will not be finished."""
        if self._open is not None:
            self._open.abandon()


class _OpenSegment:
    """A segment being filled."""

    def __init__(self, folder: Path, capacity: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.filled = folder, 0
        self._tokens = np.empty(capacity, np.int32)
        self._lengths = list[np.ndarray[tuple[int], np.dtype[np.int32]]]()
        self._terms: dict[str, int] = {}
        self._ids = list[str]()
        self._with_text = 0
        self._blocks = (folder / "store.bin").open("wb")
        self._store = StoreWriter(self._blocks)

    def add(self, documents: list[Document], analysed: AnalysedTexts) -> None:
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
            self._store.add(document)

    def abandon(self) -> None:
        """Let go of the open file; harmless after :meth:`close`."""
        self._blocks.close()

    def close(self) -> SegmentEntry:
        blocks = self._store.finish()
        self._blocks.close()
        for name, array in blocks.items():
            np.save(self.folder / f"{name}.npy", array)
        lengths = np.concatenate(self._lengths)
        write_arrays(self.folder, self._ids, list(self._terms), self._tokens[: self.filled], lengths)
        return SegmentEntry(
            self.folder.name,
            len(lengths),
            self._with_text,
            int(np.count_nonzero(lengths)),
            int(lengths.sum(dtype=np.int64)),
            sums_of(self.folder),
        )
