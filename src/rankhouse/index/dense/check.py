"""Recall of a built structure against exact search, measured on the stored vectors themselves."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from rankhouse.core.nouns import FloatArray, Query
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.faiss import FaissSearcher, recall
from rankhouse.index.dense.vectors import Vectors

SAMPLE: Final = 200
_BEST: Final = 10
_SEED: Final = 1234


class _RowEncoder:
    """An encoder whose texts are the numbers of stored rows."""

    def __init__(self, vectors: Vectors) -> None:
        self._vectors = vectors
        self.fingerprint, self.similarity = vectors.state.encoder, vectors.state.similarity

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Return rows (n, d) by their numbers, written as text."""
        rows: FloatArray = np.asarray(self._vectors.rows[[int(text) for text in texts]], np.float32)
        return rows

    encode_passages = encode_queries


def structures(vectors: Vectors) -> list[str]:
    """Return the names of the structures that were built over vectors."""
    folder = vectors.folder / "structures"
    return sorted(path.name for path in folder.iterdir() if path.is_dir()) if folder.is_dir() else []


def measured_recall(vectors: Vectors, structure: str) -> float:
    """Search for stored rows, exactly and by a structure: the share of the exact best 10 that it finds.

    Stored rows, 200 drawn by a fixed seed, stand in for queries, which nobody has given; each finds itself
    first, so this is a little kinder than queries would be.

    Raises WrongUse: none was built, or there are no vectors; BadIndex: it was built from other vectors, or is
    damaged; MissingExtra: FAISS is not installed.
    """
    rng = np.random.default_rng(_SEED)
    rows = np.sort(rng.choice(len(vectors), min(SAMPLE, len(vectors)), replace=False)).tolist()
    asked = [Query(str(row), str(row)) for row in rows]
    known = _RowEncoder(vectors)
    exact = search(ExactSearcher(vectors), known, asked, _BEST)
    return recall(exact, search(FaissSearcher.open(vectors, structure), known, asked, _BEST), _BEST)
