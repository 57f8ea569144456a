"""Pools: the documents that several systems found for a question, each once; kept while it is judged."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.core.sampling import order
from rankhouse.serve.engine.deadline import ENDLESS, Deadline
from rankhouse.serve.search.answer import SearchRequest, search
from rankhouse.serve.search.systems import SystemSpec

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

KEPT = 256
"""Pools that are kept, those used last."""


@dataclass(frozen=True)
class Pool:
    """What systems found.

    Attributes:
        doc_ids: The documents, those found early by many first.
        ranks: Document -> system -> its rank there.
        notes: What a reader should know.
    """

    doc_ids: tuple[str, ...]
    ranks: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    def found(self, doc_id: str) -> list[str]:
        """Say which systems found a document, at which ranks."""
        return [f"{system} #{rank}" for system, rank in self.ranks[doc_id].items()]

    def ranking(self, query: Query, *, is_blind: bool) -> Ranking:
        """Return the documents in the order in which they are judged.

        Args:
            is_blind: Whether the order says nothing of ranks; the same each time.
        """
        doc_ids: Sequence[str] = self.doc_ids
        if is_blind:
            doc_ids = sorted(doc_ids, key=lambda doc: order(0, f"{query.id}\t{doc}"))
        return Ranking(tuple(doc_ids), np.zeros(len(doc_ids), np.float32))


class _Key(NamedTuple):
    """What a pool depends on."""

    collection: str
    specs: tuple[SystemSpec, ...]
    text: str
    depth: int


class Pools:
    """The pools of a service."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._lock = threading.Lock()
        self._kept: OrderedDict[_Key, Pool] = OrderedDict()

    def of(
        self, query: Query, index: str, systems: Sequence[str], depth: int, deadline: Deadline = ENDLESS
    ) -> Pool:
        """Return what systems find; asked once, unless one of them was not in time.

        Raises:
            RankhouseError: A search that fails.
        """
        if (kept := self.kept(query, index, systems, depth)) is not None:
            return kept
        key = self._key(query, index, systems, depth)
        pool, is_whole = self._asked(query, index, systems, depth, deadline)
        if is_whole:
            with self._lock:
                self._kept[key] = pool
                while len(self._kept) > KEPT:
                    self._kept.popitem(last=False)
        return pool

    def kept(self, query: Query, index: str, systems: Sequence[str], depth: int) -> Pool | None:
        """Return a pool that was asked for before; None where nobody has, or long ago.

        Args: as for :meth:`of`.
        """
        key = self._key(query, index, systems, depth)
        with self._lock:
            if (kept := self._kept.get(key)) is not None:
                self._kept.move_to_end(key)
            return kept

    def _key(self, query: Query, index: str, systems: Sequence[str], depth: int) -> _Key:
        view = self._service.catalogue.view(index)
        specs = tuple(self._service.catalogue.system(name, view.name) for name in systems)
        return _Key(view.index.fingerprint, specs, query.text, depth)

    def _asked(
        self, query: Query, index: str, systems: Sequence[str], depth: int, deadline: Deadline
    ) -> tuple[Pool, bool]:
        ranks: dict[str, dict[str, int]] = {}
        notes: dict[str, None] = {}
        is_whole = True
        for name in systems:
            request = SearchRequest(query.text, name, index, depth, snippets=False)
            answer = search(self._service, request, deadline)
            for hit in answer.hits:
                ranks.setdefault(hit.doc_id, {})[answer.system] = hit.rank
            notes |= dict.fromkeys(f"{name}: {note}" for note in (answer.degraded, *answer.warnings) if note)
            is_whole = is_whole and not answer.degraded
        best = sorted(ranks, key=lambda doc: (min(ranks[doc].values()), -len(ranks[doc]), doc))
        return Pool(tuple(best), ranks, tuple(notes)), is_whole
