"""One question, one answer: what the JSON route, the page and the assistant's tool share."""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import Protocol

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.results import Marks
from rankhouse.core.run import Ranking
from rankhouse.index.parts.parted_index import PartedIndex
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.search.catalogue import Catalogue
from rankhouse.serve.search.stages import Ranked, rank
from rankhouse.serve.search.systems import SystemSpec
from rankhouse.serve.search.view import IndexView
from rankhouse.systems.execution import with_snippets

MOST_ASKED = 1000
"""Documents that one answer holds at most."""


class Searching(Protocol):
    """The part of a service that searching needs."""

    @property
    def catalogue(self) -> Catalogue:
        """Indexes and rankers."""
        ...


@dataclass(frozen=True)
class SearchRequest:
    """What is asked.

    Attributes:
        query: The question.
        system: Name of what ranks; "" for the default.
        index: Name of what is searched; "" for the default.
        k: Documents in the answer.
        snippets: Whether they come with the stretch of text that answers best.
        deadline_s: Seconds after which the first stage's order is good enough; None waits.
        spec: A system of the asker's own, in place of a name.
        partial: Whether what the other parts of an index find is good enough where some do not answer; None
            leaves it to the service.
    """

    query: str
    system: str = ""
    index: str = ""
    k: int = 10
    snippets: bool = True
    deadline_s: float | None = None
    spec: SystemSpec | None = None
    partial: bool | None = None


@dataclass(frozen=True)
class AnswerHit:
    """One document of an answer.

    Attributes:
        rank: From 1.
        doc_id: Its id.
        score: Higher is better.
        title: Its title, or "".
        snippet: The stretch of its text that answers best, or "".
        marks: (start, end) of the words to highlight in the snippet.
        before: Its rank in the first stage; None where there was none, or the first stage lacks it.
    """

    rank: int
    doc_id: str
    score: float
    title: str
    snippet: str
    marks: Marks
    before: int | None


@dataclass(frozen=True)
class SearchAnswer:
    """What was found.

    Attributes:
        index: Name of what was searched.
        system: Name of what ranked.
        query: The question.
        hits: The documents, best first.
        seconds: How long it took.
        degraded: Why this is only the first stage's order, or lacks documents; "" where it is the system's.
        warnings: What the asker should know.
        found: How many documents were ranked, of which these are the first.
    """

    index: str
    system: str
    query: str
    hits: tuple[AnswerHit, ...]
    seconds: float
    degraded: str = ""
    warnings: tuple[str, ...] = ()
    found: int = 0


def search(service: Searching, request: SearchRequest, deadline: Deadline | None = None) -> SearchAnswer:
    """Answer a question; called in a thread, as it waits for models.

    Args:
        deadline: When the first stage's order is good enough; None: as the request says.

    Raises:
        UnknownName: There is no such index, system or ranker.
        WrongUse: The question has no words, k is out of range, or the system cannot be made.
        Overloaded: A model has too much to do.
        DeadlinePassed: The time was over before anything was found.
        PartFailed: A part of the index does not answer, and nothing less than all will do.
    """
    if not request.query.strip():
        raise WrongUse("query is empty: say what is looked for")
    if not 1 <= request.k <= MOST_ASKED:
        raise WrongUse(f"k={request.k}: ask for 1 to {MOST_ASKED:,} documents")
    started = time.monotonic()
    view = service.catalogue.view(request.index)
    until = deadline or Deadline.after(request.deadline_s)
    index, partial = view.index, view.partial if request.partial is None else request.partial
    if not partial or not isinstance(index, PartedIndex):
        return _answered(service, view, request, until)
    told, living = index.partial(lambda some: _answered(service, view.over(some), request, until))
    if not living.missing:
        return told
    lacking = f"the documents of {' and '.join(living.missing)} are missing: no answer from there"
    degraded = "; ".join(filter(None, [told.degraded, lacking]))
    return replace(told, degraded=degraded, seconds=time.monotonic() - started)


def _answered(service: Searching, view: IndexView, request: SearchRequest, until: Deadline) -> SearchAnswer:
    started = time.monotonic()
    spec = request.spec or service.catalogue.system(request.system, view.name)
    spec = replace(spec, k=max(spec.k, request.k))
    ranked = rank(service.catalogue, view, spec, Query("query", request.query), deadline=until)
    return SearchAnswer(
        view.name,
        spec.name,
        request.query,
        _hits(view, request, ranked),
        seconds=time.monotonic() - started,
        degraded=ranked.degraded,
        warnings=(*ranked.warnings, *filter(None, [view.problem, _nothing(view, request.query, ranked)])),
        found=len(ranked.ranking.doc_ids),
    )


def _nothing(view: IndexView, query: str, ranked: Ranked) -> str:
    """Say why nothing was found; "" where something was."""
    if ranked.ranking.doc_ids:
        return ""
    kept = ", ".join(dict.fromkeys(view.index.analyzer(query))) or "none, only stop words or punctuation"
    return f"nothing was found; the question's words as they were looked for: {kept}"


def _hits(view: IndexView, request: SearchRequest, ranked: Ranked) -> tuple[AnswerHit, ...]:
    """Return the first documents with what people read of them."""
    doc_ids, scores = ranked.ranking
    top, before = Ranking(doc_ids[: request.k], scores[: request.k]), ranked.before
    if request.snippets:
        shown = [
            (hit.title, hit.text, hit.marks) for hit in with_snippets(view.index, request.query, top).hits
        ]
    else:
        shown = [(document.title, "", ()) for document in view.index.documents.fetch(top.doc_ids)]
    places = {doc_id: place for place, doc_id in enumerate(before.doc_ids, 1)} if before is not None else {}
    rows = zip(top.doc_ids, top.scores.tolist(), shown, strict=True)
    return tuple(
        AnswerHit(place, doc_id, score, *texts, before=places.get(doc_id))
        for place, (doc_id, score, texts) in enumerate(rows, 1)
    )
