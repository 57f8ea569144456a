"""A document that many queries find is cut into passages once, not once for each of them."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from rankhouse.core.nouns import Document, Passage

CACHED_CHARACTERS = 16_000_000
"""Characters of documents whose passages are kept: about three times as many bytes of memory."""


class _Documents(Protocol):
    def __getitem__(self, doc_id: str, /) -> Document: ...


class _Cut(NamedTuple):
    document: Document
    passages: Sequence[Passage]


class SplitCache:
    """A splitter that keeps what it cut last; what comes out is what the splitter itself would give.

    Args:
        split: What cuts: one of ``text.split``, or a function of your own.
    """

    def __init__(self, split: Callable[[Document], Sequence[Passage]], size: int = CACHED_CHARACTERS) -> None:
        self._split, self._size = split, size
        self._kept: OrderedDict[str, _Cut] = OrderedDict()
        self._characters = 0

    def __call__(self, document: Document) -> Sequence[Passage]:
        """Cut a document, or find its passages again."""
        entry = self._kept.get(document.id)
        if entry is not None and entry.document == document:
            self._kept.move_to_end(document.id)
            return entry.passages
        if entry is not None:
            self._forget(document.id)
        cut = _Cut(document, self._split(document))
        self._kept[document.id] = cut
        self._characters += _size(document)
        while self._characters > self._size and len(self._kept) > 1:
            self._forget(next(iter(self._kept)))
        return cut.passages

    def by_id(self, doc_id: str, documents: _Documents) -> Sequence[Passage]:
        """Cut a document of a collection that stays as it is, or find its passages without reading it again.

        Raises:
            KeyError: The collection does not have it.
        """
        entry = self._kept.get(doc_id)
        if entry is None:
            return self(documents[doc_id])
        self._kept.move_to_end(doc_id)
        return entry.passages

    def _forget(self, doc_id: str) -> None:
        self._characters -= _size(self._kept.pop(doc_id).document)


def _size(document: Document) -> int:
    return len(document.title) + len(document.text)
