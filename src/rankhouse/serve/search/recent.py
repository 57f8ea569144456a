"""What was used lately is kept for a while.

Columns side by side, a page that is asked for again, and explanations need within moments what rankers made
of a question, and it is what costs.
"""

from __future__ import annotations

import threading
from typing import Final, Generic, NamedTuple, TypeVar

from cachetools import LRUCache

from rankhouse.systems.system import Reranked

K = TypeVar("K")
V = TypeVar("V")

KEPT: Final = 64
"""Rankings of one view of an index."""


class ReadBy(NamedTuple):
    """What a ranker's order depends on besides the index; ``ranker`` is its fingerprint."""

    system: Reranked
    ranker: str
    query: str


class Recent(Generic[K, V]):
    """So many values by key, those used last; safe in many threads."""

    def __init__(self, most: int) -> None:
        self._lock = threading.Lock()
        self._kept: LRUCache[K, V] = LRUCache(most)

    def get(self, key: K) -> V | None:
        """Return a value; None where it is not among the latest."""
        with self._lock:
            return self._kept.get(key)

    def put(self, key: K, value: V) -> None:
        """Keep a value for a while."""
        with self._lock:
            self._kept[key] = value
