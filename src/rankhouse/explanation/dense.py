"""Why a dense first stage gives a document its score: its best passage's vector beside the query's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol, runtime_checkable

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Encoder, FloatArray, Pair, Passage, Query
from rankhouse.explanation.answer import Explanation, Part
from rankhouse.explanation.explain import ExplainOptions, explain_pair
from rankhouse.index.dense.exact import Rows, encode_queries, rescore
from rankhouse.index.dense.vectors import Vectors
from rankhouse.index.index import Index
from rankhouse.ranking.rerank import readable
from rankhouse.text.split import SPLITTERS, Splitter

BEST = "best passage"


@runtime_checkable
class _PairEncoder(Protocol):
    """An encoder that scores pairs as well: a ranker."""

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs, (n,)."""
        ...


def explain_dense(
    index: Index,
    vectors: Vectors,
    encoder: Encoder,
    query: Query,
    doc_id: str,
    options: ExplainOptions | None = None,
) -> Explanation:
    """Explain the score of a document in a search by vectors: which passage it is of, and why that one.

    Args:
        encoder: What encoded them; where it scores pairs as well, it explains the passage.

    Raises:
        WrongUse: The index has no such document, or the document has no vector.
        BadIndex: The vectors are of another index or another encoder.
        BadModel: The encoder gave something that is no finite vector.
    """
    vectors.require(documents=len(index), collection=index.fingerprint).require_encoder(encoder)
    rows = _rows_of(index, vectors, doc_id)
    scores = rescore(vectors, encode_queries(vectors, encoder, [query])[0], rows)
    best, score = int(np.argmax(scores)), float(scores.max())
    passages = _passages(vectors, index.documents[doc_id])
    is_known = len(passages) == len(rows)
    name = f"passage {passages[best].index + 1 if is_known else best + 1}"
    why = None
    if is_known and isinstance(encoder, _PairEncoder):
        why = explain_pair(encoder, Pair(query, passages[best]), options)
    note = ", ".join([f"{name} of {len(rows)}"] * (len(rows) > 1) + [vectors.state.similarity])
    facts = {"passage": float(best), "passages": float(len(rows))}
    return Explanation(
        query,
        doc_id,
        score,
        "nearest vector",
        exact=why is None or why.exact,
        unit=vectors.state.similarity,
        parts=(Part(BEST, score, note, facts, _finer(why, score), why),),
        cost=why.cost + 1 if why else 0,
        texts=tuple(text._replace(name=name, value=score) for text in why.texts) if why else (),
        query_words=why.query_words if why else (),
        notes=_notes(why, doc_id, is_known),
        ranker=encoder.fingerprint,
    )


def _rows_of(index: Index, vectors: Vectors, doc_id: str) -> Rows:
    """Return the rows of a document's vectors, in the order of its passages."""
    rows = vectors.rows_of(index.row_of(doc_id))
    if not len(rows):
        raise WrongUse(
            f'document "{doc_id}" has no text, so it has no vector and a search by vectors never finds it'
        )
    return rows


def _passages(vectors: Vectors, document: Document) -> list[Passage]:
    """Return the passages that a document's vectors are of; none where what cut them has no notation."""
    try:
        split: Splitter = notation.make(vectors.state.policy, SPLITTERS, "splitter")
    except WrongUse:  # cut by a function of someone's own, which only has a name
        return []
    return readable(document, split)


def _finer(why: Explanation | None, score: float) -> tuple[Part, ...]:
    """Return the parts of the passage's own score, and what the stored vector, which is rounded, changed."""
    if why is None:
        return ()
    left = score - math.fsum(part.value for part in why.parts)
    note = "the stored vector is rounded" + ("" if why.exact else ", and the method leaves something")
    return (*why.parts, Part("left by the parts", left, note)) if left else why.parts


def _notes(why: Explanation | None, doc_id: str, is_known: bool) -> tuple[str, ...]:
    if why is not None:
        return why.notes
    if is_known:
        return ("The encoder scores no pairs, so the passage itself is not explained.",)
    return (f"What cut {doc_id} into passages is not known, so the passage itself is not explained.",)
