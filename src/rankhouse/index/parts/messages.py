"""What is asked of a part of an index, and what it answers: small tuples that any transport can carry.

A search takes two rounds: the parts' statistics of the query's terms are added up, then each part ranks its
own documents by the sums and gives its best k. Feedback takes two more: the terms of the feedback documents
come from the parts that hold them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from rankhouse.core.nouns import Document, FloatArray
from rankhouse.index.dense.vectors import VectorsState
from rankhouse.index.lexical.scorer import DocumentScore, Hits, Weighted
from rankhouse.index.lexical.weighting import Collection, TermCounts


class About(NamedTuple):
    """Ask what a part is."""


class PartInfo(NamedTuple):
    """What a part is."""

    fingerprint: str
    analyzer: str
    collection: Collection
    vectors: Mapping[str, VectorsState]


class CountTerms(NamedTuple):
    """Ask how often terms occur; answered by the counts in the same order."""

    terms: tuple[str, ...]


class RankDocuments(NamedTuple):
    """Ask for the best k documents of each of several queries."""

    model: str
    collection: Collection
    queries: tuple[Weighted, ...]
    k: int


class ScoreDocument(NamedTuple):
    """Ask for one document's score and what it is made of."""

    model: str
    collection: Collection
    terms: Weighted
    row: int


class ListTerms(NamedTuple):
    """Ask for the terms of documents with their counts, by their rows in the part."""

    rows: tuple[int, ...]


class FetchDocuments(NamedTuple):
    """Ask for documents by id; answered by None where the part has no such document."""

    ids: tuple[str, ...]


class FindRows(NamedTuple):
    """Ask for the rows of documents in the part; answered by -1 where it has no such document."""

    ids: tuple[str, ...]


class ListIds(NamedTuple):
    """Ask for the ids of documents by their rows in the part."""

    rows: tuple[int, ...]


class NearestDocuments(NamedTuple):
    """Ask for the documents nearest to points (q, d).

    Attributes:
        vectors: Name of the part's vectors.
        structure: "exact", or one that was built over them.
        points: (q, d) float32.
        k: How many documents.
    """

    vectors: str
    structure: str
    points: FloatArray
    k: int


class NamedNeighbours(NamedTuple):
    """The documents nearest to a point, best first: their ids and scores (k,)."""

    ids: tuple[str, ...]
    scores: FloatArray


Request: TypeAlias = (
    About
    | CountTerms
    | RankDocuments
    | ScoreDocument
    | ListTerms
    | FetchDocuments
    | FindRows
    | ListIds
    | NearestDocuments
)
Answer: TypeAlias = (
    PartInfo
    | DocumentScore
    | list[TermCounts]
    | list[Hits]
    | list[list[tuple[str, int]]]
    | list[Document | None]
    | list[int]
    | list[str]
    | list[NamedNeighbours]
)
