"""The questions that are there already, of the collection or judged before, and their grades."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.sameness import normalised
from rankhouse.core.trec import read_qrels

if TYPE_CHECKING:
    from rankhouse.app.serve.host.service import Service

_NO_SCALE: Mapping[int, str] = {}


def known_questions(service: Service) -> list[Query]:
    """Return the questions of a service, those of its file first; none from a file that cannot be read.

    Args:
        service: What is served.
    """
    given = _given(service)
    judged = service.judgements.queries if service.judgements is not None else []
    return list({query.id: query for query in (*judged, *given)}.values()) if judged else list(given)


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


def _given(service: Service) -> tuple[Query, ...]:
    path = service.options.queries
    if path is None:
        return ()
    try:
        return _read(path, path.stat().st_mtime_ns)
    except (OSError, RankhouseError):  # a service goes on without them; its start has told of it
        return ()


@lru_cache(maxsize=4)
def _read(path: Path, changed: int) -> tuple[Query, ...]:
    del changed
    return tuple(read_queries(str(path)))


def judged(service: Service) -> Qrels:
    """Return what is known to be relevant: the given judgements, and over them what judges said here.

    Args:
        service: What is served.
    """
    grades = {query_id: dict(said) for query_id, said in _given_qrels(service).items()}
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


def _given_qrels(service: Service) -> Qrels:
    path = service.options.qrels
    if path is None:
        return {}
    try:
        return _read_qrels(path, path.stat().st_mtime_ns)
    except (OSError, RankhouseError):
        return {}


@lru_cache(maxsize=4)
def _read_qrels(path: Path, changed: int) -> Qrels:
    del changed
    return read_qrels(path)
