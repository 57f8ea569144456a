"""How to rerank, and what happened on the way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, Protocol

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import FloatArray, StoredPair, StoredPassage
from rankhouse.ranking.pool import Pool, best
from rankhouse.text.split import Split, Whole


class StoredScorer(Protocol):
    """What scores documents by what is stored of their passages; their texts are not read."""

    def passages(self, doc_id: str) -> Sequence[StoredPassage] | None:
        """Return a document's passages; None where nothing is stored of it, so that its text has to be read.

        Raises:
            KeyError: There is no such document.
        """
        ...

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32, as the ranker would."""
        ...


@dataclass(frozen=True)
class Plan:
    """How to rerank.

    Attributes:
        depth: How many documents a query are read.
        tail: What becomes of those below: "keep" or "drop".
        chunk: Pairs handed to the ranker at once, at most.
        characters: A chunk is also closed when its passages have so many characters.
        alone: No chunk holds two queries, as where queries come one by one; the report then has their times.
        stored: Scores documents of which something is stored; the others are read and cut by ``split``.
    """

    split: Split = field(default_factory=Whole)
    pool: Pool = field(default_factory=best)
    depth: int = 1000
    tail: Literal["keep", "drop"] = "keep"
    chunk: int = 2_048
    characters: int = 4_000_000
    alone: bool = False
    stored: StoredScorer | None = None

    def __post_init__(self) -> None:
        if self.depth < 0:
            raise WrongUse(f"depth={self.depth}: rerank 0 documents a query or more")
        if self.tail not in ("keep", "drop"):
            raise WrongUse(f'tail="{self.tail}": choose "keep" or "drop"')
        if self.chunk < 1 or self.characters < 1:
            raise WrongUse(
                f"chunk={self.chunk}, characters={self.characters}: a chunk has at least one of each"
            )


@dataclass
class Report:
    """What happened; filled in as the work goes on, so it is right after an interruption too.

    Attributes:
        queries: Queries that had something to rerank.
        documents: (query, document) rows that were scored.
        passages: Pairs that were scored for them.
        cached: How many of these the cache knew.
        tail: Rows below the depth, kept or dropped.
        unknown: Rows whose document is not in the store.
        without_text: Rows whose document has no text (or, for ``first``, no text in passage 0).
        unknown_ids: The first few of these documents.
        dropped_words: Words of scored documents that are in no passage, where the split counts them.
        times: Query id -> seconds that fetching, cutting, scoring and pooling took, if each was done alone.
    """

    queries: int = 0
    documents: int = 0
    passages: int = 0
    cached: int = 0
    tail: int = 0
    unknown: int = 0
    without_text: int = 0
    dropped_words: int = 0
    unknown_ids: list[str] = field(default_factory=list)
    without_text_ids: list[str] = field(default_factory=list)
    queries_not_in_run: list[str] = field(default_factory=list)
    times: dict[str, float] = field(default_factory=dict)
