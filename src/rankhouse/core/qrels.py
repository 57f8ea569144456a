"""Qrels: what judges say. A plain nested mapping, and the few questions everybody asks of it.

>>> import rankhouse as rh
>>> qrels: rh.Qrels = {"q1": {"d1": 2, "d2": 0}}
>>> relevant(qrels, "q1")
{'d1'}
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Annotated

from rankhouse.core.arguments import Option

Qrels = Mapping[str, Mapping[str, int]]
"""Query id -> document id -> grade; a grade of 1 or more is relevant, 0 or less is not."""

RelevantFrom = Annotated[int, Option("The lowest grade that means relevant.", least=1, metavar="GRADE")]
"""The option of commands that say so."""

MOST_GRADE = 2**31 - 1
"""The highest grade, as for trec_eval on most machines; the lowest is the same below 0."""


def relevant(qrels: Qrels, query_id: str, at_least: int = 1) -> set[str]:
    """Return the documents judged ``at_least`` this grade for a query; empty for an unknown query.

    Args:
        qrels: Judgements: query id -> document id -> grade.
        query_id: The query.
        at_least: The lowest grade that is relevant.
    """
    return {doc_id for doc_id, grade in qrels.get(query_id, {}).items() if grade >= at_least}


def from_grade(qrels: Qrels, least: int) -> Qrels:
    """Return judgements in which only grades from ``least`` up are relevant, as 1; all others are 0.

    Args:
        qrels: Judgements: query id -> document id -> grade.
        least: The lowest grade that is relevant.
    """
    if least == 1:
        return qrels
    return {q: {d: int(grade >= least) for d, grade in judged.items()} for q, judged in qrels.items()}


def restrict(qrels: Qrels, query_ids: Iterable[str]) -> dict[str, Mapping[str, int]]:
    """Keep the judgements of these queries only.

    Args:
        qrels: Judgements: query id -> document id -> grade.
        query_ids: Ids of queries.
    """
    return {query_id: qrels[query_id] for query_id in query_ids if query_id in qrels}


def judgements(qrels: Qrels) -> int:
    """Count all judged (query, document) pairs."""
    return sum(len(judged) for judged in qrels.values())
