"""One part: an index that answers what is asked of it about its own documents."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import numpy as np

from rankhouse.core import notation
from rankhouse.core.errors import RankhouseError
from rankhouse.core.nouns import Document
from rankhouse.index.dense.exact import Searcher
from rankhouse.index.dense.faiss import searcher_of
from rankhouse.index.dense.vectors import Vectors, VectorsState, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.manifest import FILE
from rankhouse.index.lexical.scorer import DocumentScore, Hits, Scorer
from rankhouse.index.lexical.source import terms_of
from rankhouse.index.lexical.weighting import WEIGHTINGS, Collection, TermCounts
from rankhouse.index.parts.messages import (
    About,
    Answer,
    CountTerms,
    FetchDocuments,
    FindRows,
    ListIds,
    ListTerms,
    NamedNeighbours,
    NearestDocuments,
    PartInfo,
    RankDocuments,
    Request,
    ScoreDocument,
)

_SCORERS: Final = 16
"""Models, each with its statistics, whose tables are kept."""


class IndexPart:
    """An index as a part of a larger one; safe to share between threads."""

    def __init__(self, index: Index) -> None:
        self.index = index
        self._scorer = lru_cache(maxsize=_SCORERS)(self._make_scorer)
        self._searchers: dict[tuple[str, str], Searcher] = {}
        self._lock = threading.Lock()

    def answer(self, request: Request) -> Answer:
        """Answer a request.

        Raises:
            RankhouseError: It cannot be answered: a structure that was never built, a damaged file.
        """
        return _ANSWERS[type(request)](self, request)

    def info(self, _: About) -> PartInfo:
        """Say what the part is."""
        index = self.index
        return PartInfo(index.fingerprint, index.manifest.analyzer, index.collection, self._vectors())

    def counts(self, request: CountTerms) -> list[TermCounts]:
        """Count terms."""
        return [self.index.counts(term) for term in request.terms]

    def hits(self, request: RankDocuments) -> list[Hits]:
        """Rank documents; each hit comes with its id."""
        scorer = self._scorer(request.model, request.collection)
        found = [scorer.hits(terms, request.k) for terms in request.queries]
        return [hits._replace(ids=tuple(self.index.ids(hits.rows))) for hits in found]

    def score(self, request: ScoreDocument) -> DocumentScore:
        """Score one document."""
        scorer = self._scorer(request.model, request.collection)
        return scorer.document_score(request.terms, request.row)

    def terms(self, request: ListTerms) -> list[list[tuple[str, int]]]:
        """List the terms of documents."""
        return terms_of(self.index, request.rows)

    def documents(self, request: FetchDocuments) -> list[Document | None]:
        """Fetch documents."""
        here = [doc_id for doc_id in request.ids if doc_id in self.index.documents]
        by_id = dict(zip(here, self.index.documents.fetch(here), strict=True))
        return [by_id.get(doc_id) for doc_id in request.ids]

    def rows(self, request: FindRows) -> list[int]:
        """Find the rows of documents."""
        documents = self.index.documents
        return [self.index.row_of(doc_id) if doc_id in documents else -1 for doc_id in request.ids]

    def ids(self, request: ListIds) -> list[str]:
        """List ids."""
        return self.index.ids(np.array(request.rows, np.int64))

    def nearest(self, request: NearestDocuments) -> list[NamedNeighbours]:
        """Find the nearest documents."""
        searcher = self._searcher(request.vectors, request.structure)
        return [
            NamedNeighbours(tuple(ids), scores) for ids, scores in searcher.best(request.points, request.k)
        ]

    def _make_scorer(self, model: str, collection: Collection) -> Scorer:
        return Scorer(self.index, notation.make(model, WEIGHTINGS, "model"), collection)

    def _searcher(self, name: str, structure: str) -> Searcher:
        with self._lock:
            if (name, structure) not in self._searchers:
                vectors = Vectors.open(vectors_folder(self.index.path, name))
                vectors.require(documents=len(self.index), collection=self.index.fingerprint)
                self._searchers[name, structure] = searcher_of(vectors, structure)
            return self._searchers[name, structure]

    def _vectors(self) -> dict[str, VectorsState]:
        """Return the states of the vectors that cover all documents, by name."""
        states = dict[str, VectorsState]()
        for folder in sorted((self.index.path / "vectors").glob("*/")):
            try:
                vectors = Vectors.open(folder)
                states[folder.name] = vectors.require(
                    documents=len(self.index), collection=self.index.fingerprint
                ).state
            except RankhouseError:  # being made, or damaged: whoever asks for them by name is told
                continue
        return states


_ANSWERS: Final[dict[type, Callable[[IndexPart, Any], Answer]]] = {
    About: IndexPart.info,
    CountTerms: IndexPart.counts,
    RankDocuments: IndexPart.hits,
    ScoreDocument: IndexPart.score,
    ListTerms: IndexPart.terms,
    FetchDocuments: IndexPart.documents,
    FindRows: IndexPart.rows,
    ListIds: IndexPart.ids,
    NearestDocuments: IndexPart.nearest,
}


def part_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the index folders that paths mean: an index, a part with ``index/`` in it, or a folder of parts.

    Args:
        paths: What was named; what holds no index is returned as it is, for whoever opens it to complain.
    """
    return [folder for path in paths for folder in _indexes_in(path) or [path]]


def _indexes_in(path: Path) -> list[Path]:
    for folder in (path, path / "index"):
        if (folder / FILE).is_file():
            return [folder]
    children = sorted(path.iterdir()) if path.is_dir() else []
    return [child / "index" for child in children if (child / "index" / FILE).is_file()]
