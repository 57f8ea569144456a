"""Ids of documents and queries: what a person names, and the nearest to what is not there."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from difflib import get_close_matches
from itertools import islice

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query

_LOOKED_AT = 200_000  # ids; more of them take longer than a person waits for an error
_COMPARED = 2_000


def nearest(wanted: str, known: Iterable[str]) -> str:
    """Return the known id that is most like another, or ""; the first 200,000 are looked at."""
    folded = wanted.casefold()
    alike = []
    for name in islice(known, _LOOKED_AT):
        other = name.casefold()
        if other == folded:
            return name
        if abs(len(other) - len(folded)) <= 3 and (other[:2] == folded[:2] or other[-2:] == folded[-2:]):
            alike.append(name)
    return next(iter(get_close_matches(wanted, alike[:_COMPARED], 1)), "")


def unknown(kind: str, wanted: str, known: Collection[str], where: str) -> WrongUse:
    """Return the error for an id, of a "document" or "query", that is not there."""
    some = ", ".join(islice(known, 3)) + (" ..." if len(known) > 3 else "")
    close = nearest(wanted, known)
    guess = f'; did you mean "{close}"?' if close else f": {some}" if some else ""
    return WrongUse(f'there is no {kind} "{wanted:.80}" in {where}, which has {len(known):,}{guess}')


def find_query(text: str, queries: str | None, field: str = "", runs: Sequence[object | None] = ()) -> Query:
    """Return the query that a person names.

    Raises WrongUse where the queries have none of that id, for no words, and for a run without the ids of
    queries.

    Args:
        text: Its words; where there are queries, its id, or its words as they stand there.
        queries: The file of queries; None for none.
    """
    if queries is None:
        if any(run is not None for run in runs):
            raise WrongUse(
                "runs know queries by their ids: give their texts with --queries FILE, the id with --query"
            )
        return with_words(Query("query", text))
    from rankhouse.io.corpora import read_queries

    return with_words(choose_query(text, read_queries(queries, field=field), queries))


def choose_query(wanted: str, queries: Sequence[Query], where: str) -> Query:
    """Return the query of an id, or of these very words; WrongUse where there is none."""
    by_id = {query.id: query for query in queries}
    if wanted in by_id:
        return by_id[wanted]
    if found := [query for query in queries if query.text.strip() == wanted.strip()]:
        return found[0]
    raise unknown("query", wanted, by_id, where)


def with_words(query: Query) -> Query:
    """Return a query that says something; WrongUse where it has no text."""
    if not query.text.strip():
        raise WrongUse(f'query "{query.id}" has no text; there is nothing to explain')
    return query
