"""One question, one answer: what the JSON route and the assistant's tool share, and the page begins with."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec
import numpy as np

from rankhouse.core.errors import RankhouseError, WrongUse
from rankhouse.core.nouns import Document, Marks, Query
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.serve.engine.waiting import Deadline
from rankhouse.serve.errors import DeadlinePassed
from rankhouse.serve.search.catalogue import Catalogue, IndexView
from rankhouse.serve.search.passages import PassageFinder, content_words, random_questions
from rankhouse.serve.search.ranking import RankResult, rank
from rankhouse.serve.search.shapes import MOST_ASKED, SearchBody, SearchHit, SearchResponse
from rankhouse.serve.search.systems import NamedSystem, ReadingTime
from rankhouse.systems.execution import documents_of, snippets_of
from rankhouse.systems.system import Dense

_MOST_GROUPS: Final = 100
"""Hits up to which copies are sought; each document is compared with those before it."""
_ENOUGH: Final = 3.0  # seconds of measuring
_TRIALS: Final = 3
"""Questions by which a ranker's time is measured, each of as many times the words of a random one."""


def search(catalogue: Catalogue, asked: SearchBody, deadline: Deadline | None = None) -> SearchResponse:
    """Answer a question; called in a thread, as it waits for models.

    Without a deadline, after which the first stage's order is good enough, the question's own counts.

    Raises UnknownName, WrongUse: there is no such index, system or ranker, or the question cannot be
    answered; Overloaded, DeadlinePassed: a model has too much to do, or nothing was found in time;
    ShardFailed: a shard of the index does not answer, and the request needs all of them.
    """
    if not asked.query.strip():
        raise WrongUse("query is empty: give at least one word")
    if asked.k is not None and not 1 <= asked.k <= MOST_ASKED:
        raise WrongUse(f"k={asked.k}: ask for 1 to {MOST_ASKED:,} documents")
    started = time.monotonic()
    view = catalogue.view(asked.index)
    until = deadline or Deadline.after(asked.deadline_s)
    index, partial = view.index, view.partial if asked.partial is None else asked.partial
    spec = catalogue.system(asked.system, view, asked.own())
    if not partial or not isinstance(index, ShardedIndex):
        return _answered(catalogue, view, asked, spec, until=until)
    body, living = index.partial(lambda some: _answered(catalogue, view.over(some), asked, spec, until=until))
    if not living.missing:
        return body
    lacking = f"the documents of {' and '.join(living.missing)} are missing: no answer from there"
    degraded = "; ".join(filter(None, [body.degraded, lacking]))
    return msgspec.structs.replace(body, degraded=degraded, seconds=time.monotonic() - started)


def _answered(
    catalogue: Catalogue, view: IndexView, asked: SearchBody, spec: NamedSystem, until: Deadline
) -> SearchResponse:
    started, deep = time.monotonic(), asked.wanted if _is_apart(catalogue, asked) else None
    ranked = rank(catalogue, view, spec, Query("query", asked.query), deadline=until, k=deep)
    notes = [*ranked.warnings, *filter(None, [view.problem])]
    if not ranked.found:
        words = ", ".join(content_words(view.index, asked.query)) or "none, only stop words or punctuation"
        notes.append(f"nothing was found; the terms searched for were: {words}")
    return SearchResponse(
        index=view.name,
        system=spec.name,
        query=asked.query,
        hits=_hits(catalogue, view, asked, spec, ranked=ranked, until=until),
        found=ranked.found,
        seconds=time.monotonic() - started,
        degraded=ranked.degraded,
        warnings=tuple(notes),
    )


def _hits(
    catalogue: Catalogue,
    view: IndexView,
    asked: SearchBody,
    spec: NamedSystem,
    ranked: RankResult,
    until: Deadline,
) -> tuple[SearchHit, ...]:
    """Return the first documents with what people read of them."""
    ranking, before = ranked.ranking, ranked.before
    doc_ids, scores = ranking.doc_ids, ranking.scores.tolist()
    score_of, copies = dict(zip(doc_ids, scores, strict=True)), dict[str, tuple[str, ...]]()
    has_vectors = any(isinstance(part, Dense) for part in spec.system.walk())
    if not (is_apart := _is_apart(catalogue, asked)) or (has_vectors and asked.snippets is not False):
        finder = PassageFinder(catalogue, view, spec, asked.query, deadline=until)
    if not is_apart:
        groups = finder.without_copies(_in_turns(view.index, doc_ids, asked.wanted), asked.wanted)
        copies = {same[0].id: tuple(one.id for one in same[1:]) for same in groups}
        doc_ids = tuple(copies)
    shown: list[tuple[str, str, Marks]]
    if asked.snippets is False:
        shown = [(document.title, "", ()) for document in documents_of(view.index, doc_ids)]
    elif has_vectors:
        documents = documents_of(view.index, doc_ids)
        shown = [(one.title, *text) for one, text in zip(documents, finder.snippets(documents), strict=True)]
    else:
        shown = snippets_of(view.index, asked.query, doc_ids)
    places = {doc_id: place for place, doc_id in enumerate(before.doc_ids, 1)} if before is not None else {}
    return tuple(
        SearchHit(
            rank, doc_id, score_of[doc_id], *texts, before=places.get(doc_id), copies=copies.get(doc_id, ())
        )
        for rank, (doc_id, texts) in enumerate(zip(doc_ids, shown, strict=True), 1)
    )


def _is_apart(catalogue: Catalogue, asked: SearchBody) -> bool:
    """Return whether copies of a text are hits of their own."""
    if asked.copies is not None:
        return asked.copies or asked.wanted > _MOST_GROUPS
    is_usual = catalogue.of_folder and not asked.system and asked.own() is None
    return not is_usual or asked.wanted > _MOST_GROUPS


def _in_turns(index: AnyIndex, doc_ids: Sequence[str], number: int) -> Iterator[Document]:
    """Yield documents, so many read at a time: mostly the first ones are enough."""
    for start in range(0, len(doc_ids), number):
        yield from documents_of(index, doc_ids[start : start + number])


def reading_time(catalogue: Catalogue, view: IndexView, spec: NamedSystem, most: float) -> ReadingTime:
    """Measure how long a system with a ranker takes for one question: the median of up to three.

    Their words are drawn from the documents. One that takes twice as long as is allowed ends it, as do some
    seconds in all: the service is not ready before.
    """
    taken = list[float]()
    try:
        questions = random_questions(view.index, np.random.default_rng(0))[: _TRIALS**2] if most else ()
        for text in (" ".join(questions[trial::_TRIALS]) for trial in range(_TRIALS if questions else 0)):
            started = time.monotonic()
            if rank(catalogue, view, spec, Query("query", text), deadline=Deadline.after(2 * most)).degraded:
                return ReadingTime(spec.ranker, None, most)
            taken.append(time.monotonic() - started)
            if sum(taken) > _ENOUGH:
                break
    except DeadlinePassed:
        return ReadingTime(spec.ranker, None, most)
    except RankhouseError as error:
        return ReadingTime(spec.ranker, None, most, str(error))
    if most and not taken:
        return ReadingTime(spec.ranker, None, most, "there were no documents to measure it by")
    return ReadingTime(spec.ranker, statistics.median(taken) if taken else None, most)
