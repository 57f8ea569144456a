"""Ids of documents and queries: what a person names, the nearest to what is not there, and own entries.

A query that is itself an entry of the collection finds itself first; that one place can be taken away.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from difflib import get_close_matches
from itertools import islice

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query, Ranking
from rankhouse.core.run import Run

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


OWN = {"keep": None, "id": False, "same": True}
"""Query's own entry in the collection: none; the document with its id; the one with its id and text."""


def own_entries(rule: str, queries: Iterable[Query], documents: Mapping[str, Document]) -> set[str]:
    """Return the ids of the queries that are entries of the collection.

    Args:
        rule: "keep" (none is), "id" (same id) or "same" (same id and same words: of the title, the text, or
            both). Where both sides number their entries from 0, ids alone say nothing.
    """
    compares_text = notation.choose(rule, OWN, "rule for a query's own entry")
    if compares_text is None:
        return set()
    return {
        query.id
        for query in queries
        if query.id in documents and (not compares_text or _same(query, documents[query.id]))
    }


def without(run: Run, own: set[str], k: int) -> Run:
    """Leave these queries' own entries out of a run, and keep the best k of each."""
    if not own:
        return run.top(k)
    return Run.from_rankings({q: _rest(q, run[q]) if q in own else run[q] for q in run}).top(k)


def _rest(query_id: str, ranking: Ranking) -> Ranking:
    places = [place for place, doc_id in enumerate(ranking.doc_ids) if doc_id != query_id]
    return Ranking(tuple(ranking.doc_ids[place] for place in places), ranking.scores[places])


def _same(query: Query, document: Document) -> bool:
    words = query.text.split()
    return words in (document.full_text.split(), document.title.split(), document.text.split())
