"""The ids of documents that were found: they are read when somebody looks at them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.index import Index

Table = NDArray[np.object_]
Codes = NDArray[np.int32]


_AHEAD: Final = 512


class IndexIds:
    """The ids of documents of an index, by row; read when somebody asks for them."""

    def __init__(self, index: Index, rows: NDArray[np.int64]) -> None:
        self._index, self._rows = index, rows
        self._read: tuple[int, list[str]] = (0, [])  # the first row of those read last, and their ids

    def names(self, start: int, stop: int) -> list[str]:
        """Read the ids of rows [start, stop), and some behind them, which are often asked for next."""
        first, ids = self._read
        if not first <= start <= stop <= first + len(ids):
            first, ids = self._read = start, self._index.ids(self._rows[start : max(stop, start + _AHEAD)])
        return ids[start - first : stop - first]

    def taken(self, places: NDArray[np.int64]) -> IndexIds:
        """Return the ids of some rows."""
        return IndexIds(self._index, self._rows[places])

    def table(self) -> tuple[Table, Codes]:
        """Read each distinct id once."""
        index = self._index
        rows, where = _distinct(self._rows, len(index))
        ids = np.array(index.ids(rows), dtype=object)
        if len(index.segments) == 1:
            by_id = index.segments[0].by_id(rows)
        else:
            by_id = np.argsort(ids, kind="stable") if len(ids) else np.empty(0, np.int64)
        code = np.empty(len(ids), np.int32)
        code[by_id] = np.arange(len(ids), dtype=np.int32)
        return ids[by_id], code[where]


class KnownIds:
    """Ids that are here already."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids

    def names(self, start: int, stop: int) -> Sequence[str]:
        """Return the ids of rows [start, stop)."""
        return self._ids[start:stop]

    def taken(self, places: NDArray[np.int64]) -> KnownIds:
        """Return the ids of some rows."""
        return KnownIds([self._ids[place] for place in places.tolist()])

    def table(self) -> tuple[Table, Codes]:
        """Return the distinct ids and the rows' places among them."""
        names = sorted(set(self._ids))
        code = {name: number for number, name in enumerate(names)}
        return np.array(names, dtype=object), np.array([code[name] for name in self._ids], np.int32)


def _distinct(rows: NDArray[np.int64], documents: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the distinct rows, ascending, and the place of each row among them."""
    if documents > 20 * len(rows):
        return np.unique(rows, return_inverse=True)
    # Many rows of few documents: marking them beats sorting them several times over.
    marked = np.zeros(documents, bool)
    marked[rows] = True
    return np.flatnonzero(marked), (np.cumsum(marked) - 1)[rows]
