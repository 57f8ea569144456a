"""The demo's last result: why one document stands where it stands."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.explanation.contrast import Contrast, Movement
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.index.index import Index
from rankhouse.systems.execution import Execution
from rankhouse.systems.explaining import Explainer
from rankhouse.systems.notation import system
from rankhouse.systems.on_record import OnRecord

ANSWER = 2  # the grade of a document that answers a question
HIGH = 3  # ranks that a person sees at once


class Rise(NamedTuple):
    """A document that a later run ranks far above where an earlier one had it."""

    query: Query
    doc_id: str
    ranks: int


def explain_demo(
    index: Index,
    questions: Sequence[Query],
    qrels: Qrels,
    runs: Mapping[str, Run],
    model: str,
) -> Movement | Contrast:
    """Say why MiniLM's vectors raised an answer, or, without them, why the first stage's first is the first.

    Args:
        runs: "bm25", and "dense" where there is one.
    """
    first = OnRecord(runs["bm25"], "bm25.run", maker=system(model))
    if "dense" in runs:
        raised = most_raised(questions, qrels, runs["bm25"], runs["dense"])
        if raised is not None:
            dense = OnRecord(runs["dense"], "dense.run", maker=system("dense(default)"))
            why = Explainer(Execution(index, [raised.query]), ExplainOptions())
            return why.moved(dense, first, raised.doc_id)
    query = questions[0]
    best, second, *_ = runs["bm25"][query.id].doc_ids
    return Explainer(Execution(index, [query]), ExplainOptions()).above(first, best, second)


def most_raised(questions: Sequence[Query], qrels: Qrels, before: Run, after: Run) -> Rise | None:
    """Return the answer that rose furthest into the first three; None where none rose so far."""
    rises = []
    for query in questions:
        earlier = {doc_id: rank for rank, doc_id in enumerate(before[query.id].doc_ids)}
        for rank, doc_id in enumerate(after[query.id].doc_ids[:HIGH]):
            if qrels.get(query.id, {}).get(doc_id, 0) >= ANSWER and earlier.get(doc_id, 0) > rank:
                rises.append(Rise(query, doc_id, earlier[doc_id] - rank))
    return max(rises, key=lambda one: one.ranks, default=None)
