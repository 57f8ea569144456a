"""Documents that a ranker need not read: those that the stage before and their words put last.

Paper: Busolin et al., "Efficient Re-ranking with Cross-encoders via Early Exit", SIGIR 2025: SEE in front of
the first layer, with a share of the list that goes on and "amax", the sum over the query's tokens of the best
cosine with any of the document's tokens.
Deviations: similarities are those of the word embeddings alone, without positions and segments, so that they
cost a look-up; tokens weigh the more, the fewer of the documents hold them, and the scores of the stage
before count as much as the similarity (docs/systems.md: what that is worth); documents that are dropped
follow in the order of the stage before, not by similarity.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

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
    """Lets a ranker read a share of each query's documents."""

    keep: float  # the share, rounded up to whole documents
    similarity: Similarity  # by which they are chosen

    def count(self, documents: int) -> int:
        """Return how many of a query's documents are read."""
        return math.ceil(round(self.keep * documents, 9))

    def chooser(
        self, run: Run, texts: Mapping[str, Query], documents: Documents, *, split: Split, depth: int
    ) -> Callable[[str], Sequence[str]]:
        """Return what chooses, once, the documents of a query that are read, in the run's order.

        Args:
            split: How documents are cut: what of them is compared.
            depth: Only the first so many are looked at.
        """

        @cache
        def chosen(query_id: str) -> Sequence[str]:
            doc_ids = run[query_id].doc_ids[:depth]
            count = self.count(len(doc_ids))
            if count == len(doc_ids):
                return doc_ids
            passages = [_passages(doc_id, documents, split) for doc_id in doc_ids]
            likeness = self.similarity(texts[query_id].text, passages)
            both = _standard(np.asarray(likeness)) + _standard(np.asarray(run[query_id].scores[:depth]))
            best = np.sort(np.argsort(-both, kind="stable")[:count])
            return [doc_ids[place] for place in best]

        return chosen


def _standard(values: FloatArray) -> NDArray[np.float64]:
    """Return z-scores, (n,); what is not finite stays what it is."""
    known = values[np.isfinite(values)].astype(np.float64)
    if not len(known):
        return values.astype(np.float64)
    scores: NDArray[np.float64] = (values - known.mean()) / (known.std() or 1.0)
    return scores


def _passages(doc_id: str, documents: Documents, split: Split) -> list[str]:
    try:
        return [passage.text for passage in split(documents[doc_id])]
    except KeyError:
        return []  # reported where documents are read; least like anything
