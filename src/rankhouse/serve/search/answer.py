"""One question, one answer: what the JSON route, the page and the assistant's tool share."""

from __future__ import annotations

import time
from typing import Protocol

import msgspec

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.index.sharded.sharded_index import ShardedIndex
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.shapes import MOST_ASKED, SearchBody, SearchHit, SearchResponse
from rankhouse.serve.search.stages import Ranked, rank
from rankhouse.systems.execution import with_snippets


class Searching(Protocol):
    """The part of a service that searching needs."""

    @property
    def catalogue(self) -> Catalogue:
        """Indexes and rankers."""


def search(service: Searching, asked: SearchBody, deadline: Deadline | None = None) -> SearchResponse:
    """Answer a question; called in a thread, as it waits for models.

    Args:
        deadline: When the first stage's order is good enough; None: as the question says.

    Raises:
        UnknownName: There is no such index, system or ranker.
        WrongUse: The question has no words, k is out of range, or the system cannot be made.
        Overloaded: A model has too much to do.
        DeadlinePassed: The time was over before anything was found.
        ShardFailed: A part of the index does not answer, and nothing less than all will do.
    """
    if not asked.query.strip():
        raise WrongUse("query is empty: say what is looked for")
    if asked.k is not None and not 1 <= asked.k <= MOST_ASKED:
        raise WrongUse(f"k={asked.k}: ask for 1 to {MOST_ASKED:,} documents")
    started = time.monotonic()
    view = service.catalogue.view(asked.index)
    until = deadline or Deadline.after(asked.deadline_s)
    index, partial = view.index, view.partial if asked.partial is None else asked.partial
    if not partial or not isinstance(index, ShardedIndex):
        return _answered(service, view, asked, until)
    told, living = index.partial(lambda some: _answered(service, view.over(some), asked, until))
    if not living.missing:
        return told
    lacking = f"the documents of {' and '.join(living.missing)} are missing: no answer from there"
    degraded = "; ".join(filter(None, [told.degraded, lacking]))
    return msgspec.structs.replace(told, degraded=degraded, seconds=time.monotonic() - started)


def _answered(service: Searching, view: IndexView, asked: SearchBody, until: Deadline) -> SearchResponse:
    started = time.monotonic()
    spec = asked.own() or service.catalogue.system(asked.system, view.name)
    ranked = rank(service.catalogue, view, spec, Query("query", asked.query), deadline=until)
    notes = filter(None, [view.problem, _nothing(view, asked.query, ranked)])
    return SearchResponse(
        index=view.name,
        system=spec.name,
        query=asked.query,
        hits=_hits(view, asked, ranked),
        found=len(ranked.ranking.doc_ids),
        seconds=time.monotonic() - started,
        degraded=ranked.degraded,
        warnings=(*ranked.warnings, *notes),
    )


def _nothing(view: IndexView, query: str, ranked: Ranked) -> str:
    """Say why nothing was found; "" where something was."""
    if ranked.ranking.doc_ids:
        return ""
    kept = ", ".join(dict.fromkeys(view.index.analyzer(query))) or "none, only stop words or punctuation"
    return f"nothing was found; the question's words as they were looked for: {kept}"


def _hits(view: IndexView, asked: SearchBody, ranked: Ranked) -> tuple[SearchHit, ...]:
    """Return the first documents with what people read of them."""
    k, before = asked.k or 10, ranked.before
    top = ranked.ranking[:k]
    if asked.snippets is not False:
        hits = with_snippets(view.index, asked.query, top).hits
        shown = [(hit.title, hit.text, hit.marks) for hit in hits]
    else:
        shown = [(document.title, "", ()) for document in view.index.documents.fetch(top.doc_ids)]
    places = {doc_id: place for place, doc_id in enumerate(before.doc_ids, 1)} if before is not None else {}
    rows = zip(top.doc_ids, top.scores.tolist(), shown, strict=True)
    return tuple(
        SearchHit(place, doc_id, score, *texts, before=places.get(doc_id))
        for place, (doc_id, score, texts) in enumerate(rows, 1)
    )
