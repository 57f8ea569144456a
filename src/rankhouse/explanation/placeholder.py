"""Documents that a ranker did not read, and the numbers that stand in a run in place of their scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rankhouse.core.errors import WrongUse, name_few
from rankhouse.core.nouns import Document, Ranking
from rankhouse.core.run import Run
from rankhouse.core.scores import with_room_below

METHOD: Final = "placeholder"
"""Method of an answer whose number is no score."""


def placeholder(
    run: Run,
    query_id: str,
    doc_id: str,
    first: Run | None = None,
    depth: int | None = None,
    document: Document | None = None,
    read: Sequence[str] | None = None,
) -> str:
    """Say why a document's number in a reranked run is no score of the ranker; "" where it is one.

    Documents below the depth, and those without text, get the float32 numbers next below the lowest score
    (``ranking/rerank.py``). With the run alone that is what can be seen: a document whose number and all
    numbers after it are next to each other. More is known with the first stage and the depth, or with the
    document.

    Args:
        first: What the ranker was given.
        read: The documents that it read, where only a share within the depth was.

    Raises WrongUse: the run does not have the document for this query.
    """
    ranking = run.get(query_id)
    if ranking is None or doc_id not in ranking.doc_ids:
        known = "the run does not have this query"
        if ranking is not None:
            best = name_few(ranking.doc_ids[:3], quoted=True)
            known = f"it holds {len(ranking):,} others" + (f", the best are {best}" if best else "")
        raise WrongUse(f'document "{doc_id}" is not in the run for query "{query_id}"; {known}')
    before = first.get(query_id) if first is not None else None
    if before is not None and ranking == before[: len(ranking)]:
        return f"No document was reranked for query {query_id}: {doc_id} has its first-stage number."
    if before is not None and depth is not None and doc_id in before.doc_ids[depth:]:
        return _sentence(doc_id, f"is below the depth of {depth:,}")
    if before is not None and read is not None and doc_id not in read:
        share = f"{len(read):,} of {len(before):,}"
        return _sentence(doc_id, f"was dropped by see: it is not among the {share} likeliest before reading")
    if document is not None and not document.full_text.strip():
        return _sentence(doc_id, "has no text")
    return (
        _sentence(doc_id, "is, it seems, below the depth or without text") if _next(ranking, doc_id) else ""
    )


def _sentence(doc_id: str, what: str) -> str:
    return (
        f"{doc_id} {what}: it was not read by this ranker; its number is a placeholder that keeps it below "
        "those that were."
    )


def _next(ranking: Ranking, doc_id: str) -> bool:
    """Whether a document's number and those after it are the next ones below the number before it."""
    place, scores = ranking.doc_ids.index(doc_id), ranking.scores
    if not place:
        return False
    return bool(np.array_equal(with_room_below(scores[:place], len(scores) - place)[place:], scores[place:]))
