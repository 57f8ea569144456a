"""A query that is itself an entry of the collection finds itself first; here that one place is taken away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rankhouse.core import notation
from rankhouse.core.nouns import Document, Query
from rankhouse.core.results import Ranking
from rankhouse.core.run import Run

OWN = {"keep": None, "id": False, "same": True}
"""Which document is the query's own entry: none; the one with its id; the one with its id and text."""


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
