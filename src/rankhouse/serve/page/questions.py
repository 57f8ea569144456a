"""The question that a person means, and what the grades are called."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from rankhouse.core.nouns import Query

if TYPE_CHECKING:
    from rankhouse.serve.host.service import Service

_NO_SCALE: Mapping[int, str] = {}


def question_of(service: Service, asked: str) -> Query:
    """Return the question that a person names by its id or its words; new words are a new question."""
    given, store = service.given, service.judgements
    if (query := given.by_id.get(asked) or given.same(asked)) is not None:
        return query
    if store is None:
        return Query("query", asked)
    query_id = store.query_id(asked)
    judged = {query.id: query for query in store.queries if query.text.strip()}
    return judged.get(asked) or judged.get(query_id) or Query(query_id, asked)


def scale(service: Service) -> Mapping[int, str]:
    """Return the grades and what they are called."""
    return _NO_SCALE if service.judgements is None else service.judgements.scale
