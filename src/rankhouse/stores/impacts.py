"""Impacts: a retrieval model as sparse vectors, so that any store of sparse vectors ranks as the index does.

Lucene's forms of BM25 and query likelihood are sums over the matching terms, and each addend is linear in the
term's weight in the query: score = sum of posting weight x query weight. The posting weight, with everything
that depends on the document's length and on the collection, is what :func:`posting_weights` computes, by the
very functions that rank (``index.lexical.weighting``). The query's weights are the counts of its terms, or,
after RM3, the weights of a longer query.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.index.index import Index
from rankhouse.index.lexical.lengths import DECODED
from rankhouse.index.lexical.weighting import WEIGHTINGS, Weighting

NOTHING: Final = 1e-30
"""Stands for a posting weight of 0, which sparse vectors do not hold: the document matches all the same."""
ZERO_BELOW: Final = 1e-20
"""A score below it is made of such weights only: 0."""


def impact_model(text: str) -> Weighting:
    """Return the model of a notation, if it is a sum of posting weight times query weight.

    Raises:
        WrongUse: There is no such model, or it is no such sum.
    """
    model = notation.make(text, WEIGHTINGS, "model")
    if model.prior is not None:
        raise WrongUse(
            f"{text}: gives every document a share for its length however many terms match, which is no sum "
            "of posting weight times query weight; take bm25, ql (Lucene's form) or jm"
        )
    return model


def posting_weights(index: Index, model: Weighting, start: int, stop: int) -> list[dict[str, float]]:
    """Return what each term adds to the score of each document, at weight 1 in the query.

    Returns:
        For each document, term -> float32 weight.
    """
    by_term: dict[str, list[tuple[int, int]]] = {}
    lengths = np.empty(stop - start, np.float64)
    for place, row in enumerate(range(start, stop)):
        segment, there = index.place(row)
        lengths[place] = (
            segment.lengths[there] if model.exact_lengths else DECODED[segment.columns.codes[there]]
        )
        for term, count in segment.terms_of(there):
            by_term.setdefault(term, []).append((place, count))
    weights: list[dict[str, float]] = [{} for _ in range(stop - start)]
    for term, postings in by_term.items():
        places, counts = (np.array(column, np.int64) for column in zip(*postings, strict=True))
        scores = model.term(counts, lengths[places], index.counts(term), index.collection, 1.0)
        for place, weight in zip(places.tolist(), scores.astype(np.float32).tolist(), strict=True):
            weights[place][term] = weight or NOTHING
    return weights


def term_counts(index: Index, start: int, stop: int) -> list[dict[str, float]]:
    """Return the counts of the terms of each document, for stores that weigh postings themselves."""
    places = (index.place(row) for row in range(start, stop))
    return [{t: float(n) for t, n in segment.terms_of(there)} for segment, there in places]
