"""Pools: the documents that several systems found for a question, each once; kept while it is judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.core.sampling import order
from rankhouse.serve.engine.waiting import ENDLESS, Deadline
from rankhouse.serve.search.answer import search
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.recent import Recent
from rankhouse.serve.search.shapes import SearchBody
from rankhouse.serve.search.systems import SystemSpec

KEPT = 256
"""Pools that are kept, those used last."""


@dataclass(frozen=True)
class JudgingPool:
    """What systems found: the documents, those found early by many first, and their ranks by system."""

    doc_ids: tuple[str, ...]
    ranks: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    def found(self, doc_id: str) -> list[str]:
        """Say which systems found a document, at which ranks."""
        return [f"{system} #{rank}" for system, rank in self.ranks[doc_id].items()]

    def ranking(self, query: Query, *, is_blind: bool) -> Ranking:
        """Return the documents in the order in which they are judged."""
        doc_ids: Sequence[str] = self.doc_ids
        if is_blind:
            doc_ids = sorted(doc_ids, key=lambda doc: order(0, f"{query.id}\t{doc}"))
        return Ranking(tuple(doc_ids), np.zeros(len(doc_ids), np.float32))


class PoolRequest(NamedTuple):
    """The first documents of each of several systems for a question."""

    query: Query
    index_name: str
    systems: tuple[str, ...]
    depth: int


class Pools:
    """The pools of a service."""

    def __init__(self, catalogue: Catalogue) -> None:
        self.catalogue = catalogue
        self._kept: Recent[tuple[object, ...], JudgingPool] = Recent(KEPT)

    def of(self, request: PoolRequest, deadline: Deadline = ENDLESS) -> JudgingPool:
        """Return what systems find; asked once, unless one of them was not in time."""
        key = self._key(request)
        if (kept := self._kept.get(key)) is not None:
            return kept
        pool, is_whole = self._asked(request, deadline)
        if is_whole:
            self._kept.put(key, pool)
        return pool

    def kept(self, request: PoolRequest) -> JudgingPool | None:
        """Return a pool that was asked for before; None where nobody has, or long ago."""
        return self._kept.get(self._key(request))

    def _key(self, request: PoolRequest) -> tuple[object, ...]:
        """Return what a pool depends on."""
        view = self.catalogue.view(request.index_name)
        specs: tuple[SystemSpec, ...] = tuple(
            self.catalogue.system(name, view.name) for name in request.systems
        )
        return view.index.fingerprint, specs, request.query.text, request.depth

    def _asked(self, request: PoolRequest, deadline: Deadline) -> tuple[JudgingPool, bool]:
        ranks: dict[str, dict[str, int]] = {}
        notes: dict[str, None] = {}
        is_whole = True
        for name in request.systems:
            asked = SearchBody(
                query=request.query.text,
                system=name,
                index=request.index_name,
                k=request.depth,
                snippets=False,
            )
            answer = search(self, asked, deadline)
            for hit in answer.hits:
                ranks.setdefault(hit.doc_id, {})[answer.system] = hit.rank
            notes |= dict.fromkeys(f"{name}: {note}" for note in (answer.degraded, *answer.warnings) if note)
            is_whole = is_whole and not answer.degraded
        best = sorted(ranks, key=lambda doc: (min(ranks[doc].values()), -len(ranks[doc]), doc))
        return JudgingPool(tuple(best), ranks, tuple(notes)), is_whole
