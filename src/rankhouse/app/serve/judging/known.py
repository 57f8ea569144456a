"""The questions that a service knows, and what is known to answer them."""

from __future__ import annotations

from typing import Final, Protocol

from rankhouse.app.serve.judging.store import JudgementStore
from rankhouse.app.serve.search.catalogue import Catalogue
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels

FEW: Final = 10
"""Fewer judged questions than this show little: answers warn, and none are held out of a training."""


class Judging(Protocol):
    """The part of a service that judging and comparing need."""

    @property
    def catalogue(self) -> Catalogue:
        """Indexes and rankers."""
        ...

    @property
    def judgements(self) -> JudgementStore | None:
        """What judges say; None where nobody judges."""
        ...

    @property
    def queries(self) -> tuple[Query, ...]:
        """Questions that were given."""
        ...

    @property
    def qrels(self) -> Qrels:
        """Judgements that were given."""
        ...


def known_queries(service: Judging) -> list[Query]:
    """Return the questions that have words: those that were given, then those that were judged besides.

    Args:
        service: What is served.
    """
    judged = service.judgements.queries if service.judgements is not None else []
    texts: dict[str, Query] = {}
    for query in (*service.queries, *judged):
        if query.text.strip():
            texts.setdefault(query.id, query)
    return list(texts.values())


def known_qrels(service: Judging) -> Qrels:
    """Return the judgements: those that were given, and over them what judges said here.

    Args:
        service: What is served.
    """
    grades = {query_id: dict(said) for query_id, said in service.qrels.items()}
    if service.judgements is not None:
        for query_id, said in service.judgements.qrels.items():
            grades.setdefault(query_id, {}).update(said)
    return grades


def few_questions(count: int, kind: str, what: str) -> tuple[str, ...]:
    """Return a warning where there are few questions; none where there are enough.

    Args:
        count: How many there are.
        kind: What they are, in the plural.
        what: What follows from there being so few.
    """
    return (f"only {count} {kind}: {what}; judge {FEW} or more",) if count < FEW else ()
