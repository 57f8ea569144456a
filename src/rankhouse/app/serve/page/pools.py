"""Pools: the documents that several systems found for a question, each once."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from rankhouse.app.serve.search.answer import SearchRequest, search
from rankhouse.core.nouns import Query
from rankhouse.core.run import Ranking
from rankhouse.core.sampling import order

if TYPE_CHECKING:
    from rankhouse.app.serve.host.service import Service


@dataclass(frozen=True)
class Pool:
    """What systems found.

    Attributes:
        ranking: The documents in the order in which they are judged.
        ranks: Document -> system -> its rank there.
        notes: What a reader should know.
    """

    ranking: Ranking
    ranks: Mapping[str, Mapping[str, int]]
    notes: tuple[str, ...] = ()

    def found(self, doc_id: str) -> list[str]:
        """Say which systems found a document, at which ranks."""
        return [f"{system} #{rank}" for system, rank in self.ranks[doc_id].items()]


def pool_of(
    service: Service, query: Query, index: str, systems: Sequence[str], depth: int, *, shuffled: bool
) -> Pool:
    """Ask systems, and join what they find.

    Args:
        service: What is served.
        query: The question.
        index: Name of what is searched.
        systems: Names of systems.
        depth: Documents of each.
        shuffled: Whether the order says nothing of ranks; the same each time.

    Raises:
        RankhouseError: A search that fails.
    """
    ranks: dict[str, dict[str, int]] = {}
    notes: dict[str, None] = {}
    for name in systems:
        answer = search(service, SearchRequest(query.text, name, index, depth, snippets=False))
        for hit in answer.hits:
            ranks.setdefault(hit.doc_id, {})[answer.system] = hit.rank
        notes |= dict.fromkeys(f"{name}: {note}" for note in (answer.degraded, *answer.warnings) if note)
    best = sorted(ranks, key=lambda doc: (min(ranks[doc].values()), -len(ranks[doc]), doc))
    doc_ids = sorted(ranks, key=lambda doc: order(0, f"{query.id}\t{doc}")) if shuffled else best
    return Pool(Ranking(tuple(doc_ids), np.zeros(len(doc_ids), np.float32)), ranks, tuple(notes))
