"""Passages of an index scored by what is stored of them, in place of their texts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import numpy as np

from rankhouse.core.nouns import FloatArray, Pair, Passage, Ranker, StoredPair, StoredPassage, fingerprint_of
from rankhouse.core.scores import scale_of
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import PrecomputedPassages

_REMEMBERED: Final = 65_536


class PrecomputedScorer:
    """Scores passages of an index by what is stored of them; a ``StoredScorer`` for ``rerank``.

    Raises:
        BadIndex: The store is of other documents.
    """

    def __init__(
        self,
        index: Index,
        store: PrecomputedPassages,
        score: Callable[[Sequence[StoredPair]], FloatArray],
    ) -> None:
        self.store, self.scored = store, 0
        self._index, self._score = index, score
        self._covered = store.covered(index.manifest)
        starts = index.starts[:-1].tolist()
        self._starts = {id(part): start for part, start in zip(index.segments, starts, strict=True)}
        self._numbers: dict[str, int] = {}

    def passages(self, doc_id: str) -> list[StoredPassage] | None:
        """Return a document's passages; None for one that was added since.

        Raises:
            KeyError: The index has no such document.
        """
        number = self._number(doc_id)
        if number >= self._covered:
            return None
        place = self.store.place
        return [StoredPassage(doc_id, place(row), row) for row in self.store.passages_of(number)]

    def find(self, passage: Passage) -> StoredPassage | None:
        """Return what is stored of a passage, or None; KeyError if the index has no such document."""
        number = self._number(passage.doc_id)
        if number >= self._covered:
            return None
        rows, place = self.store.passages_of(number), self.store.place
        row = rows.start + passage.index  # where no passage before it is blank
        if row not in rows or place(row) != passage.index:
            row = next((row for row in rows if place(row) == passage.index), -1)
        return StoredPassage(passage.doc_id, passage.index, row) if row >= 0 else None

    def score(self, pairs: Sequence[StoredPair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given."""
        scores = self._score(pairs) if pairs else np.empty(0, np.float32)
        self.scored += len(pairs)
        return scores

    def _number(self, doc_id: str) -> int:
        known = self._numbers.get(doc_id)
        if known is None:
            part, row = self._index.documents.find(doc_id)
            known = self._starts[id(part)] + row
            if len(self._numbers) >= _REMEMBERED:
                self._numbers.clear()
            self._numbers[doc_id] = known
        return known


class PrecomputedRanker:
    """A ranker of texts that scores by what is stored of them where it can: for score caches.

    A cache knows passages by their texts; what it does not know yet is scored by the store.
    """

    def __init__(self, ranker: Ranker, scorer: PrecomputedScorer) -> None:
        self._ranker, self._scorer = ranker, scorer
        self.scale = scale_of(ranker)

    @property
    def fingerprint(self) -> str:
        """Name of everything that changes a score; token ids change none, rounded vectors do."""
        state, own = self._scorer.store.state, fingerprint_of(self._ranker)
        return own if state.kind == "tokens" else f"{own}-kept-{state.dtype}"

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs: (n,) float32, higher is better, in the order given."""
        stored = [self._scorer.find(pair.passage) for pair in pairs]
        texts = [i for i, passage in enumerate(stored) if passage is None]
        known = [StoredPair(pairs[i].query, p) for i, p in enumerate(stored) if p is not None]
        scores = np.empty(len(pairs), np.float32)
        is_text = np.zeros(len(pairs), bool)
        is_text[texts] = True
        if texts:
            scores[is_text] = self._ranker.score([pairs[i] for i in texts])
        scores[~is_text] = self._scorer.score(known)
        return scores
