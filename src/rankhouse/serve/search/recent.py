"""What rankers made of the latest questions, kept for a while.

Columns side by side, a page that is asked for again, and explanations need it within moments, and it is what
costs.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Final, NamedTuple

from rankhouse.core.run import Ranking
from rankhouse.systems.system import Reranked

KEPT: Final = 64


class ReadBy(NamedTuple):
    """What a ranker's order of a question's documents depends on, besides the index.

    Attributes:
        system: What the ranker reads, and how.
        ranker: The ranker's fingerprint.
        query: The question's text.
    """

    system: Reranked
    ranker: str
    query: str


class RecentRankings:
    """Rankings of one view of an index, the latest used; safe in many threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._rankings: OrderedDict[ReadBy, Ranking] = OrderedDict()

    def get(self, key: ReadBy) -> Ranking | None:
        """Return a ranking; None where it is not among the latest."""
        with self._lock:
            ranking = self._rankings.get(key)
            if ranking is not None:
                self._rankings.move_to_end(key)
            return ranking

    def put(self, key: ReadBy, ranking: Ranking) -> None:
        """Keep a ranking for a while."""
        with self._lock:
            self._rankings[key] = ranking
            self._rankings.move_to_end(key)
            if len(self._rankings) > KEPT:
                self._rankings.popitem(last=False)
