"""The teacher at work on a collection: a bi-encoder's vectors are computed once and kept in the folder."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankhouse.app.adapt.options import Show
from rankhouse.core.nouns import Encoder, FloatArray, Pair, Query
from rankhouse.core.outputs import replacing
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Ranking, Run
from rankhouse.index.dense.encode import EncodeOptions, encode
from rankhouse.index.index import Index

_PORTION: Final = 2048
_TABLE: Final = 2**26  # numbers of a block of similarities


class VectorTeacher:
    """A bi-encoder whose vectors of questions and documents are there already.

    Args:
        name: The encoder's fingerprint.
        queries: Query id -> vector.
        documents: Document id -> row of ``vectors``.
        vectors: (n, d) of the documents, in any precision.
        similarity: "dot", "cosine" or "l2".
    """

    scale = "similarity"

    def __init__(
        self,
        name: str,
        queries: Mapping[str, FloatArray],
        documents: Mapping[str, int],
        vectors: NDArray[np.floating[Any]],
        similarity: str,
    ) -> None:
        self.fingerprint, self._queries, self._rows = f"vectors-{name}", queries, documents
        self._vectors, self._similarity = vectors, similarity

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs of questions and whole documents, by their ids: (n,)."""
        ids = {query_id: place for place, query_id in enumerate({pair.query.id: None for pair in pairs})}
        asked = np.stack([self._queries[query_id] for query_id in ids]).astype(np.float32)
        which = np.fromiter((ids[pair.query.id] for pair in pairs), np.int64, len(pairs))
        rows = np.fromiter((self._rows[pair.passage.doc_id] for pair in pairs), np.int64, len(pairs))
        distinct, at = np.unique(rows, return_inverse=True)
        vectors = self._vectors[distinct].astype(np.float32)
        return similarities(asked, vectors, self._similarity)[which, at]

    def write_queries(self, queries: Sequence[Query], path: Path) -> None:
        """Write the vectors of some questions, in their order."""
        _write(np.stack([self._queries[query.id] for query in queries]).astype(np.float16), path)

    def nearest(self, queries: Sequence[Query], k: int, progress: Progress = ignore) -> Run:
        """Return the documents nearest to each question.

        Args:
            queries: Questions with vectors.
            k: How many documents each.
            progress: Told (questions done, questions).
        """
        doc_ids, k = np.array(list(self._rows)), min(k, len(self._rows))
        rankings: dict[str, Ranking] = {}
        vectors = self._vectors.astype(np.float32)
        step = max(1, _TABLE // max(1, len(doc_ids)))
        for start in range(0, len(queries), step):
            some = queries[start : start + step]
            asked = np.stack([self._queries[query.id] for query in some]).astype(np.float32)
            table = similarities(asked, vectors, self._similarity)
            best = np.argpartition(-table, k - 1, axis=1)[:, :k]
            for query, own, row in zip(some, best, table, strict=True):
                order = own[np.argsort(-row[own], kind="stable")]
                rankings[query.id] = Ranking(tuple(doc_ids[order].tolist()), row[order].astype(np.float32))
            progress(start + len(some), len(queries))
        return Run.from_rankings(rankings)


def similarities(queries: FloatArray, documents: FloatArray, similarity: str) -> NDArray[np.float32]:
    """Compare all queries with all documents: (q, d), (n, d) -> (q, n).

    Args:
        queries: Vectors.
        documents: Vectors.
        similarity: "dot", "cosine" or "l2" (minus the squared distance).
    """
    if similarity == "cosine":
        queries, documents = _unit(queries), _unit(documents)
    products = queries @ documents.T
    if similarity != "l2":
        return np.asarray(products)
    return np.asarray(2 * products - (queries**2).sum(1)[:, None] - (documents**2).sum(1)[None])


def _unit(vectors: FloatArray) -> FloatArray:
    return np.asarray(vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12), np.float32)


def vector_teacher(
    encoder: Encoder, index: Index, queries: Sequence[Query], asked: Path, show: Show
) -> VectorTeacher:
    """Encode documents and questions, as far as the folder does not have their vectors yet.

    Args:
        encoder: The teacher.
        index: The documents, read whole.
        queries: The questions.
        asked: The file of the questions' vectors; those of the documents stand beside it.
        show: Shows how far the work is.
    """
    job = EncodeOptions(len(index), index.fingerprint, dtype="float16")
    progress = index.by_text(show("encoding documents"))
    stored = encode(encoder, index.documents.stream(), asked.parent / "documents", job, progress)
    documents = {stored.ids[int(owner)]: row for row, owner in enumerate(stored.owners[:])}
    if not asked.exists():
        progress, parts = show("encoding questions"), list[FloatArray]()
        for start in range(0, len(queries), _PORTION):
            some = queries[start : start + _PORTION]
            parts.append(encoder.encode_queries([query.text for query in some]).astype(np.float16))
            progress(start + len(some), len(queries))
        _write(np.concatenate(parts), asked)
    by_id = {query.id: row for query, row in zip(queries, np.load(asked), strict=True)}
    return VectorTeacher(encoder.fingerprint, by_id, documents, stored.rows[:], encoder.similarity)


def _write(vectors: NDArray[np.float16], path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as out:
        np.save(out, vectors)


def write_word_vectors(encoder: Encoder, words: Sequence[str], path: Path, width: int) -> None:
    """Write a file of word vectors: each word encoded alone, the principal components of all, about one size.

    After model2vec (Tulkens, van Dongen 2024). A word vector begins near what the teacher makes of the word.

    Args:
        encoder: The teacher.
        words: What is encoded.
        path: The file, in GloVe's form.
        width: Components kept, at most the encoder's own and the number of words.
    """
    vectors = np.concatenate(
        [encoder.encode_passages(words[at : at + _PORTION]) for at in range(0, len(words), _PORTION)]
    ).astype(np.float64)
    vectors -= vectors.mean(axis=0)
    _, axes = np.linalg.eigh(vectors.T @ vectors)
    kept = vectors @ axes[:, ::-1][:, :width]
    kept *= 0.3 / kept.std()  # the size of GloVe's, which TK's encoder expects
    with replacing(path) as temporary, temporary.open("w", encoding="utf-8") as out:
        for word, row in zip(words, kept, strict=True):
            out.write(word + " " + " ".join(f"{value:.4f}" for value in row) + "\n")
