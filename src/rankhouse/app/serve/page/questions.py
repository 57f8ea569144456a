"""The questions that are there already, of the collection or judged before, and their grades."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.sameness import normalised

if TYPE_CHECKING:
    from rankhouse.app.serve.host.service import Service

_NO_SCALE: Mapping[int, str] = {}


def known_questions(service: Service) -> list[Query]:
    """Return the questions that a service was given, and those that were judged besides.

    Args:
        service: What is served.
    """
    judged = service.judgements.queries if service.judgements is not None else []
    given = {query.id for query in service.queries}
    return [*service.queries, *(query for query in judged if query.id not in given)]


def question_of(service: Service, asked: str) -> Query:
    """Return the question that a person names by its id or its words; new words are a new question.

    Args:
        service: What is served.
        asked: Id or words.
    """
    known = known_questions(service)
    by_id = {query.id: query for query in known}
    if asked in by_id and by_id[asked].text:
        return by_id[asked]
    wanted = normalised(asked) or asked
    same = next((query for query in known if normalised(query.text) == wanted), None)
    if same is not None:
        return same
    store = service.judgements
    return Query(store.query_id(asked) if store is not None else "query", asked)


def judged(service: Service) -> Qrels:
    """Return what is known to be relevant: the given judgements, and over them what judges said here.

    Args:
        service: What is served.
    """
    grades = {query_id: dict(said) for query_id, said in service.qrels.items()}
    if service.judgements is not None:
        for query_id, said in service.judgements.qrels.items():
            grades.setdefault(query_id, {}).update(said)
    return grades


def scale(service: Service) -> Mapping[int, str]:
    """Return the grades and what they are called.

    Args:
        service: What is served.
    """
    return _NO_SCALE if service.judgements is None else service.judgements.scale
