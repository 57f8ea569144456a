"""The questions that a service knows, and what is known to answer them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.sameness import Texts
from rankhouse.serve.judging.store import JudgementStore
from rankhouse.serve.search.catalogue import Catalogue

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
    """Return the questions that have words: those that were given, then those that were judged besides."""
    judged = service.judgements.queries if service.judgements is not None else []
    texts: dict[str, Query] = {}
    for query in (*service.queries, *judged):
        if query.text.strip():
            texts.setdefault(query.id, query)
    return list(texts.values())


class GivenQueries:
    """Questions that were given, found by id or by their words; of the same ones, the first counts."""

    def __init__(self, queries: Iterable[Query]) -> None:
        self.by_id: dict[str, Query] = {}
        for query in queries:
            if query.text.strip():
                self.by_id.setdefault(query.id, query)
        self._texts = Texts((query.id, query.text) for query in self.by_id.values())

    def same(self, text: str) -> Query | None:
        """Return the question that has these words; None where there is none."""
        return next((self.by_id[query_id] for query_id in self._texts.named(text)), None)


def known_grades(service: Judging, query_id: str) -> dict[str, int]:
    """Return the judgements of one question, as :func:`known_qrels` has them."""
    said = service.judgements.merged_grades(query_id) if service.judgements is not None else {}
    return {**service.qrels.get(query_id, {}), **said}


def known_qrels(service: Judging) -> Qrels:
    """Return the judgements: those that were given, and over them what judges said here."""
    grades = {query_id: dict(said) for query_id, said in service.qrels.items()}
    if service.judgements is not None:
        for query_id, said in service.judgements.qrels.items():
            grades.setdefault(query_id, {}).update(said)
    return grades


def few_questions(count: int, kind: str, what: str) -> tuple[str, ...]:
    """Return a warning where there are few questions; none where there are enough."""
    return (f"only {count} {kind}: {what}; judge {FEW} or more",) if count < FEW else ()
