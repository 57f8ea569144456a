"""The best of what several parts found."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray


def best(
    ids: Sequence[str], scores: FloatArray, k: int, *, descending_ids: bool = False
) -> NDArray[np.int64]:
    """Return the places of the best k of n, best first; equal scores are ordered by id."""
    order = np.argsort(-scores, kind="stable")
    edges = np.flatnonzero(np.diff(scores[order], prepend=np.nan, append=np.nan) != 0)
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if end - start > 1 and start < k:
            order[start:end] = sorted(order[start:end].tolist(), key=ids.__getitem__, reverse=descending_ids)
    return order[:k]
