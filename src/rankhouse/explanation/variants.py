"""Scores of a pair's variants: its passage or its query with something left out."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import Pair, Ranker
from rankhouse.core.scores import Doubles, numbers_only, one_each


def finite_scores(ranker: Ranker, pairs: Sequence[Pair]) -> Doubles:
    """Score n pairs in one call: (n,) float64.

    Raises:
        BadModel: A score is not a number, or infinite, so that nothing can be taken from it.
    """
    if not pairs:
        return np.empty(0)
    scores = numbers_only(one_each(len(pairs), ranker.score(pairs)), pairs)
    if (bad := np.flatnonzero(np.isinf(scores))).size:
        query, passage = pairs[int(bad[0])]
        raise BadModel(
            f'a score of document "{passage.doc_id}" for query "{query.id}" is {scores[bad[0]]}: no '
            "difference can be taken from it, so it cannot be explained; use a scale without infinities, "
            "like logit"
        )
    return scores.astype(np.float64)


def with_text(pair: Pair, text: str) -> Pair:
    """Return a pair whose passage says something else."""
    return pair._replace(passage=pair.passage._replace(text=text))
