"""The documents of several indexes by id."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import DuplicateId
from rankhouse.core.nouns import Document
from rankhouse.index.parts.messages import FetchDocuments, Request

_IDS_AT_ONCE: Final = 10_000


class Holder(Protocol):
    """What documents are asked of: several indexes searched as one."""

    def __len__(self) -> int: ...

    def ask_all(self, request: Request) -> dict[int, Any]:
        """Ask every part the same: number -> answer."""
        ...

    def find(self, doc_ids: Sequence[str]) -> list[int]:
        """Return the rows of documents among all; -1 for those that no part has."""
        ...

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the document ids of rows."""
        ...

    def repeated(self, doc_id: str) -> DuplicateId:
        """Return the error for a document that several parts have."""
        ...


class PartedDocuments(Mapping[str, Document]):
    """The documents of all parts by id, fetched from their parts when asked for."""

    def __init__(self, index: Holder) -> None:
        self._index = index

    def __getitem__(self, doc_id: str) -> Document:
        return self.fetch([doc_id])[0]

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._index.find([doc_id])[0] >= 0

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _IDS_AT_ONCE):
            yield from self._index.ids(np.arange(start, min(start + _IDS_AT_ONCE, len(self))))

    def __len__(self) -> int:
        return len(self._index)

    def fetch(self, doc_ids: Iterable[str]) -> list[Document]:
        """Fetch several documents, in the order asked for.

        Raises:
            KeyError: No part has one of them.
            DuplicateId: Two parts have one of them.
        """
        wanted = tuple(doc_ids)
        fetched: list[Document | None] = [None] * len(wanted)
        for documents in self._index.ask_all(FetchDocuments(wanted)).values() if wanted else ():
            for place, document in enumerate(documents):
                if document is not None:
                    if fetched[place] is not None:
                        raise self._index.repeated(document.id)
                    fetched[place] = document
        documents = [document for document in fetched if document is not None]
        if len(documents) < len(wanted):
            raise KeyError(next(i for i, one in zip(wanted, fetched, strict=True) if one is None))
        return documents
