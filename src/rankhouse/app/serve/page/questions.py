"""The question that a person means, and what the grades are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankhouse.app.serve.judging.known import known_queries
from rankhouse.core.nouns import Query
from rankhouse.core.sameness import normalised

if TYPE_CHECKING:
    from rankhouse.app.serve.host.service import Service

_NO_SCALE: Mapping[int, str] = {}


def question_of(service: Service, asked: str) -> Query:
    """Return the question that a person names by its id or its words; new words are a new question.

    Args:
        service: What is served.
        asked: Id or words.
    """
    known = known_queries(service)
    by_id = {query.id: query for query in known}
    if asked in by_id:
        return by_id[asked]
    wanted = normalised(asked) or asked
    same = next((query for query in known if normalised(query.text) == wanted), None)
    if same is not None:
        return same
    store = service.judgements
    return Query(store.query_id(asked) if store is not None else "query", asked)


def scale(service: Service) -> Mapping[int, str]:
    """Return the grades and what they are called.

    Args:
        service: What is served.
    """
    return _NO_SCALE if service.judgements is None else service.judgements.scale
