"""Which documents a ranker need not read: those whose words are least like the query's.

Paper: Busolin et al., "Efficient Re-ranking with Cross-encoders via Early Exit", SIGIR 2025: SEE in front of
the first layer, with a share of the list that goes on and "amax", the sum over the query's tokens of the best
cosine with any of the document's tokens.
Deviations: similarities are those of the word embeddings alone, without positions and segments, so that they
cost a look-up; documents that are dropped follow in the order of the stage before, not by similarity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Documents, FloatArray, Query
from rankhouse.core.run import Run
from rankhouse.text.split import Split

Similarity = Callable[[str, Sequence[Sequence[str]]], FloatArray]
"""A query and the passages of n documents -> how alike each is, (n,); -inf for one without words."""


def check_keep(keep: object) -> float:
    """Return a share of documents; WrongUse for anything else."""
    if isinstance(keep, bool) or not isinstance(keep, int | float) or not 0 < keep <= 1:
        raise WrongUse(
            f"see(keep={keep!r:.40}): give the share of documents that the ranker reads, above 0 and at most "
            "1, like  see(keep=0.5)"
        )
    return float(keep)


@dataclass(frozen=True)
class See:
    """Lets a ranker read a share of each query's documents.

    Attributes:
        keep: The share, rounded up to whole documents.
        similarity: By which they are chosen.
    """

    keep: float
    similarity: Similarity

    def kept(
        self, run: Run, texts: Mapping[str, Query], documents: Documents, *, split: Split, depth: int
    ) -> dict[str, Sequence[str]]:
        """Return the documents of each query that are to be read, in the run's order.

        Args:
            texts: The queries by id.
            split: How documents are cut: what of them is compared.
            depth: Only the first so many are looked at.
        """
        return {
            query_id: self._of_query(run[query_id].doc_ids[:depth], texts[query_id].text, documents, split)
            for query_id in run
        }

    def _of_query(
        self, doc_ids: Sequence[str], query: str, documents: Documents, split: Split
    ) -> Sequence[str]:
        count = math.ceil(round(self.keep * len(doc_ids), 9))
        if count == len(doc_ids):
            return doc_ids
        likeness = self.similarity(query, [_passages(doc_id, documents, split) for doc_id in doc_ids])
        best = np.sort(np.argsort(-likeness, kind="stable")[:count])
        return [doc_ids[place] for place in best]


def _passages(doc_id: str, documents: Documents, split: Split) -> list[str]:
    try:
        return [passage.text for passage in split(documents[doc_id])]
    except KeyError:
        return []  # reported where documents are read; least like anything
