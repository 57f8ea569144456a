"""Shared helpers of the adapters: the host's version; systems and rankers kept open between its calls."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from importlib.metadata import PackageNotFoundError, version
from math import inf
from numbers import Integral, Real
from pathlib import Path
from shutil import rmtree
from tempfile import mkdtemp
from threading import RLock
from typing import Any, Final, TypeAlias, cast
from weakref import finalize

import numpy as np

from rankhouse.api.index import Index
from rankhouse.core.errors import BadData, DuplicateId, MissingExtra, RankhouseError, WrongUse
from rankhouse.core.nouns import Document, FloatArray, Query, Ranker
from rankhouse.core.run import Run
from rankhouse.index import index as stored
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.io.files import PathLike, as_path, wrong_kind
from rankhouse.systems.execution import Execution, TextsAlone, open_index
from rankhouse.systems.notation import system as as_system
from rankhouse.systems.on_record import OnRecord
from rankhouse.systems.rankers import is_pairwise, sparse_spec
from rankhouse.systems.stage import Stage, as_stage
from rankhouse.systems.system import Cut, Dense, FirstStage, FusedSystem, RerankedSystem, Sparse, System

RankerLike: TypeAlias = str | PathLike | Ranker | Stage
"""A folder, a notation with the options of its stage, as ``crossencoder("DIR", depth=50)``, an object."""

_ONE_AT_A_TIME: Final = RLock()
"""Hosts call from several threads; a ranker uses them all by itself."""

_NO_ID: Final = re.compile("[\0\ud800-\udfff]")
"""Separator that adapters put between ids, and characters that no encoding has."""
_LARGEST: Final = float(np.finfo(np.float32).max)


class OldHost(RankhouseError, ImportError):
    """The host that is installed is too old."""


@contextmanager
def host(extra: str, least: str, *packages: str) -> Iterator[None]:
    """Import a host inside the block, if it is installed and new enough.

    Args:
        extra: The extra of this package that brings it.
        least: The oldest version that the adapter works with.
        packages: Its names among installed packages, of which one is enough.

    Raises:
        MissingExtra: It is not installed.
        OldHost: It is older.
    """
    for name in packages:
        try:
            found = version(name)
        except PackageNotFoundError:
            continue
        if _numbers(found) < _numbers(least):
            raise OldHost(
                f"rankhouse.hosts.{extra.replace('-', '_')} needs {packages[0]} {least} or newer, and {name} "
                f'{found} is installed: run  pip install --upgrade "rankhouse[{extra}]"'
            )
        break
    try:
        yield
    except RankhouseError:
        raise
    except ImportError as error:
        raise MissingExtra(f"rankhouse.hosts.{extra.replace('-', '_')}", extra) from error


def _numbers(text: str) -> tuple[int, ...]:
    """Return the release of a version: (1, 1) of "1.1rc2"."""
    released = re.match(r"\d+(?:\.\d+)*", text)
    return tuple(map(int, released[0].split("."))) if released else ()


def _once(name: str, key: Callable[[Any], object] = lambda stage: stage) -> Callable[..., Any]:
    """Return a method that opens something of a stage, once for all executions with the same ``held``."""
    opens = getattr(Execution, name)

    def opened(self: _OngoingExecution, stage: Any, *more: Any) -> Any:  # noqa: ANN401 - as the base class
        place = name, key(stage)
        if place not in self.held:
            self.held[place] = opens(self, stage, *more)
        return self.held[place]

    return opened


class _OngoingExecution(Execution):
    """An execution whose rankers and vectors were opened by earlier ones."""

    held: dict[object, Any]
    ranker = _once("ranker", lambda stage: (stage.ranker, stage.precision))
    impacts, weigher, searcher = map(_once, ("impacts", "weigher", "searcher"))


class OpenParts:
    """Systems and rankers kept open between the calls of a host."""

    def __init__(self) -> None:
        self._held: dict[object, Any] = {}

    def run(self, system: System, queries: Sequence[Query], index: AnyIndex | TextsAlone) -> Run:
        """Rank by a system, as ``rankhouse search --system`` does."""
        with _ONE_AT_A_TIME:
            work = _OngoingExecution(index, queries)
            work.held = self._held
            return work.run(system)


class OpenSystem:
    """A system on an index.

    Args:
        system: The expression, or its text.
        index: The index, several opened as one, or a folder.
    """

    def __init__(self, system: str | System, index: AnyIndex | PathLike) -> None:
        self.system, self.index, self._held = as_system(system), as_any_index(index), OpenParts()

    def replaced(self, system: System) -> OpenSystem:
        """Return another system on the same index; what both have in common stays open."""
        other = copy(self)
        other.system = system
        return other

    def run(self, queries: Sequence[Query], k: int | None = None) -> Run:
        """Rank for queries; ``k`` cuts what the system finds."""
        system = self.system if k is None else self.system % count(k)
        return self._held.run(system, queries, self.index)

    def among(self, queries: Sequence[Query], candidates: Mapping[str, Sequence[str]], k: int) -> Run:
        """Rank given documents only: (query id -> document ids, best first).

        What stands before the first ranker is left out, and that ranker reads all of them; where no ranker
        reads, a first stage's numbers of the whole index are restricted to them.
        """
        ids = {query.id: tuple(dict.fromkeys(candidates.get(query.id, ()))) for query in queries}
        scores = [np.arange(len(docs), 0, -1, dtype=np.float32) for docs in ids.values()]
        given = OnRecord(Run.from_columns(list(ids), list(ids.values()), scores), "candidates")
        system = self._restricted(self.system, given, queries)
        return self._held.run(system, queries, self.index).top(min(count(k), len(self.index)))

    def _restricted(self, system: System, given: OnRecord, queries: Sequence[Query]) -> System:
        match system:
            case RerankedSystem(of=before, stage=stage):
                is_first = not any(isinstance(part, RerankedSystem) for part in before.walk())
                return RerankedSystem(given if is_first else self._restricted(before, given, queries), stage)
            case Cut(of=before, k=k):
                return Cut(self._restricted(before, given, queries), k)
            case FusedSystem(method=method, systems=parts, weights=weights):
                return FusedSystem(
                    method, tuple(self._restricted(one, given, queries) for one in parts), weights
                )
        assert isinstance(system, FirstStage)
        found = self._held.run(system % self.index.collection.documents, queries, self.index)
        kept = {
            query_id: {d: s for d, s in ranking.to_dict().items() if d in wanted}
            for query_id, ranking in found.items()
            for wanted in [set(given.record[query_id].doc_ids)]
        }
        return OnRecord(Run.of(kept), system.given)

    def answer(self, query: str, k: int) -> list[tuple[Document, float]]:
        """Return the best documents of one question with their scores."""
        ranking = self.run([Query("query", checked_text(query, "the query"))], k)["query"]
        documents = self.index.documents.fetch(ranking.doc_ids)
        return list(zip(documents, ranking.scores.tolist(), strict=True))


class TemporarySystem:
    """A system on an index of documents that a host hands over, in a folder that goes with this object.

    Args:
        system: The expression, or its text.
        analyzer: "english", "tweet" or "whitespace".
    """

    def __init__(self, system: str | System, analyzer: str) -> None:
        self.system, self._analyzer = as_system(system), analyzer
        self._opened: OpenSystem | None = None
        self._remove: Callable[[], object] = lambda: None

    def index(self, documents: Iterable[Document]) -> None:
        """Index documents in place of those before, and encode them where the system needs vectors."""
        self._remove()
        folder = mkdtemp(prefix="rankhouse-")
        self._remove = finalize(self, rmtree, folder, ignore_errors=True)
        index = Index.build(documents, Path(folder, "index"), analyzer=self._analyzer)
        for stage in dict.fromkeys(part for part in self.system.walk() if isinstance(part, Dense | Sparse)):
            if isinstance(stage, Sparse):
                index.encode(sparse_spec(stage.ranker), name=stage.name)
            else:
                structure = "" if stage.vectors == "exact" else stage.vectors
                index.encode(stage.ranker, name=stage.name, structure=structure)
        self._opened = OpenSystem(self.system, index)

    @property
    def opened(self) -> OpenSystem:
        """The system on these documents.

        Raises:
            WrongUse: There are none.
        """
        if self._opened is None:
            raise WrongUse(f"{self.system}: no corpus was indexed; call index(corpus) first")
        return self._opened


class OpenRanker:
    """A ranker with the options of its stage.

    Args:
        ranker: See :data:`RankerLike`.
        index: Where the texts are; None where the host hands them over.
    """

    def __init__(self, ranker: RankerLike, index: AnyIndex | PathLike | None = None) -> None:
        self.stage, self._held = as_stage(ranker), OpenParts()
        self.index = None if index is None else as_any_index(index)
        if index is None and self.stage.stored:
            raise WrongUse(f"{self.stage}: stored=True reads what an index stores; give the index, too")

    def rerank(
        self, run: Run, queries: Sequence[Query], documents: Mapping[str, Document] | None = None
    ) -> Run:
        """Let the ranker read the documents of a run, as ``rankhouse rerank`` does.

        Args:
            documents: Their texts, where no index has them.
        """
        if self.index is not None:
            return self._held.run(
                RerankedSystem(OnRecord(run, "candidates"), self.stage), queries, self.index
            )
        texts = TextsAlone({} if documents is None else documents)
        return self._held.run(RerankedSystem(OnRecord(run, "candidates"), self.stage), queries, texts)

    def order(
        self, query: str, documents: Sequence[Document], k: int | None = None
    ) -> list[tuple[int, float]]:
        """Order documents for one question: (place in what was given, score), best first.

        Args:
            documents: In the order in which a first stage found them.
            k: How many of the best are returned; None for all.
        """
        asked = Query("query", checked_text(query, "the query"))
        if documents and not query.strip():
            raise BadData("the query is blank; give a text, by which documents can be ordered")
        places = {document.id: place for place, document in enumerate(documents)}
        falling = np.arange(len(documents), 0, -1, dtype=np.float32)
        run = Run.from_columns([asked.id], [list(places)], [falling])
        texts = {document.id: document for document in documents}
        ranking = self.rerank(run, [asked], texts)[asked.id]
        best = zip(ranking.doc_ids, ranking.scores.tolist(), strict=True)
        return [(places[doc_id], score) for doc_id, score in best][: None if k is None else count(k)]

    def scores(self, pairs: Sequence[tuple[str, str]]) -> FloatArray:
        """Score (query, text) pairs: (n,) float32, in the order given, each independent of the others.

        Raises:
            WrongUse: The ranker compares documents with each other, or reads only the first of them.
        """
        if not pairs:
            return np.empty(0, np.float32)
        if is_pairwise(self.stage.ranker) or self.stage.depth is not None:
            raise WrongUse(
                f"{self.stage}: here single pairs are scored; give a ranker that scores a pair by itself, "
                "without a depth"
            )
        queries = {
            text: Query(str(place), text) for place, text in enumerate(dict.fromkeys(q for q, _ in pairs))
        }
        texts = {
            text: Document(str(place), text) for place, text in enumerate(dict.fromkeys(t for _, t in pairs))
        }
        rows = {(queries[query].id, texts[text].id, 0.0) for query, text in pairs}
        by_id = {document.id: document for document in texts.values()}
        run = self.rerank(Run.of(sorted(rows)), list(queries.values()), by_id).to_dict()
        return np.array([run[queries[q].id][texts[t].id] for q, t in pairs], np.float32)


def as_any_index(given: AnyIndex | PathLike) -> AnyIndex:
    """Return an index: itself, or opened from its folder.

    Raises:
        WrongUse: It is neither.
    """
    if isinstance(given, stored.Index | ShardedIndex):
        return given
    if not isinstance(given, str | os.PathLike):
        raise wrong_kind("index", given, "an Index or its folder")
    return open_index([as_path(given, "index")])


def count(value: object) -> int:
    """Return a number of documents to keep; WrongUse for anything else than a whole number from 1 up."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise WrongUse(f"{value!r:.40} documents are asked for; ask for a whole number from 1 up")
    return int(value)


def checked_text(value: object, where: str) -> str:
    """Return a text; BadData, which says where it stands, for anything else."""
    if isinstance(value, str):
        return value
    raise BadData(f"{where} is {value!r:.60}, of type {type(value).__name__}; give a text")


def checked_ids(ids: Iterable[object], where: str) -> list[str]:
    """Return the ids of documents, all different.

    Args:
        where: What the host calls them: ``the "docno" of query "q1"``.

    Raises:
        BadData: One is no text, or empty.
        DuplicateId: One is given twice.
    """
    seen: dict[str, int] = {}
    for place, one in enumerate(texts_of_ids(ids, where)):
        if one in seen:
            raise DuplicateId(
                f'{where} is "{one}" in rows {seen[one]:,} and {place:,}; give each document once'
            )
        seen[one] = place
    return list(seen)


def texts_of_ids(ids: Iterable[object], where: str) -> list[str]:
    """Return ids, which may repeat; BadData for one that is no text, or empty."""
    checked = []
    for place, one in enumerate(ids):
        if not isinstance(one, str) or not one or _NO_ID.search(one):
            raise BadData(f"{where} is {one!r:.60} in row {place:,}; ids are texts, and not empty")
        checked.append(one)
    return checked


def own_or_numbered(ids: Sequence[object | None], where: str) -> list[str]:
    """Return the ids of documents, or, where not all have one, numbers that break ties by their order."""
    if all(one is not None for one in ids):
        return checked_ids(ids, where)
    return [f"{number:09}" for number in range(len(ids), 0, -1)]


def check_scores(scores: Iterable[object], where: str) -> None:
    """Refuse scores of the host that are not numbers of 32 bits, or infinite; None stands for no score."""
    for place, score in enumerate(scores):
        if score is None:
            continue
        if not isinstance(score, Real) or score != score:  # noqa: PLR0124 - NaN; isnan knows no long integers
            raise BadData(f"{where} is {score!r:.60} in row {place:,}; scores are numbers, never NaN")
        if abs(cast(float, score)) > _LARGEST and score not in (inf, -inf):
            raise BadData(f"{where} is {score!r:.60} in row {place:,}; scores are numbers of 32 bits")
