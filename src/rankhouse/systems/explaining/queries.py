"""The one question that is asked, by its words or by its id."""

from __future__ import annotations

from collections.abc import Sequence

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.io.corpora import read_queries
from rankhouse.systems.explaining.names import unknown


def find_query(text: str, queries: str | None, field: str = "", runs: Sequence[object | None] = ()) -> Query:
    """Return the query that a person names.

    Args:
        text: Its words; where there are queries, its id, or its words as they stand there.
        queries: The file of queries; None for none.

    Raises:
        WrongUse: The queries have none of that id; no words; or a run without the ids of queries.
    """
    if queries is None:
        if any(run is not None for run in runs):
            raise WrongUse(
                "runs know queries by their ids: give their texts with --queries FILE, the id with --query"
            )
        return with_words(Query("query", text))
    return with_words(choose_query(text, read_queries(queries, field=field), queries))


def choose_query(wanted: str, queries: Sequence[Query], where: str) -> Query:
    """Return the query of an id, or of these very words.

    Raises:
        WrongUse: There is none.
    """
    by_id = {query.id: query for query in queries}
    if wanted in by_id:
        return by_id[wanted]
    if found := [query for query in queries if query.text.strip() == wanted.strip()]:
        return found[0]
    raise unknown("query", wanted, by_id, where)


def with_words(query: Query) -> Query:
    """Return a query that says something.

    Raises:
        WrongUse: It has no text.
    """
    if not query.text.strip():
        raise WrongUse(f'query "{query.id}" has no text; there is nothing to explain')
    return query
