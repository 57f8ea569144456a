"""The teacher at work on a collection: a bi-encoder's vectors and a system's lists are made once and kept."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

import numpy as np
from numpy.typing import NDArray

from rankhouse.adaptation.options import Adaptation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Encoder, FloatArray, Pair, Query, Ranker, Ranking, TextEncoder
from rankhouse.core.progress import Progress, ignore
from rankhouse.core.run import Run
from rankhouse.index.dense.exact import ExactSearcher
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, Vectors, encode, unit_length, vectors_folder
from rankhouse.io.checksums import write_checked
from rankhouse.io.decoding import read_cache
from rankhouse.io.outputs import replacing
from rankhouse.io.trec import read_run, write_run
from rankhouse.labels.soft_scores import RunTeacher, members_of
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.nn import machine
from rankhouse.systems.rankers import as_ranker
from rankhouse.systems.teachers import SystemTeacher, system_run

_PORTION: Final = 2048
LIST: Final = ".run.zst"
"""Suffix of the file of a system's lists; its stem is that of the vectors of the same questions."""


class VectorTeacher:
    """A bi-encoder whose vectors of questions, and of documents, one each, are held in memory."""

    scale = "similarity"

    def __init__(self, queries: Mapping[str, FloatArray], documents: Vectors) -> None:
        self.fingerprint = f"vectors-{documents.state.encoder}"
        self._queries, self._documents = queries, documents
        self._vectors, self._similarity = documents.rows[:], documents.state.similarity
        self._rows = {documents.ids[int(owner)]: row for row, owner in enumerate(documents.owners[:])}

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score n pairs of questions and whole documents, by their ids: (n,)."""
        ids = {query_id: place for place, query_id in enumerate({pair.query.id: None for pair in pairs})}
        asked = self._asked(ids)
        which = np.fromiter((ids[pair.query.id] for pair in pairs), np.int64, len(pairs))
        rows = np.fromiter((self._rows[pair.passage.doc_id] for pair in pairs), np.int64, len(pairs))
        distinct, at = np.unique(rows, return_inverse=True)
        vectors = self._vectors[distinct].astype(np.float32)
        return similarities(asked, vectors, self._similarity)[which, at]

    def write_queries(self, queries: Sequence[Query], path: Path) -> None:
        """Write the vectors of some questions, in their order."""
        _write(np.stack([self._queries[query.id] for query in queries]).astype(np.float16), path)

    def nearest(self, queries: Sequence[Query], k: int, progress: Progress = ignore) -> Run:
        """Return the documents nearest to each question."""
        searcher, found = ExactSearcher(self._documents), list[tuple[Sequence[str], FloatArray]]()
        for start in range(0, len(queries), _PORTION):
            asked = self._asked(query.id for query in queries[start : start + _PORTION])
            found += searcher.best(unit_length(asked) if self._similarity == "cosine" else asked, k)
            progress(len(found), len(queries))
        return Run.from_columns([query.id for query in queries], *map(list, zip(*found, strict=True)))

    def _asked(self, query_ids: Iterable[str]) -> FloatArray:
        return np.stack([self._queries[query_id] for query_id in query_ids]).astype(np.float32)


def encoders_of(teacher: Ranker) -> Iterator[Encoder]:
    """Yield the encoders among teachers, that of a system's first dense stage too."""
    for one in members_of(teacher):
        if isinstance(one, TextEncoder):
            yield cast(Encoder, one)
        elif isinstance(one, SystemTeacher) and one.encoder:
            yield cast(Encoder, as_ranker(one.encoder))


def needs_texts(teacher: Ranker) -> bool:
    """Return whether a teacher reads texts: all do but runs, and those whose vectors are there already."""
    return any(not isinstance(one, VectorTeacher | RunTeacher) for one in members_of(teacher))


def similarities(queries: FloatArray, documents: FloatArray, similarity: str) -> NDArray[np.float32]:
    """Compare all queries with all documents, (q, d), (n, d) -> (q, n), by "dot", "cosine" or "l2".

    The last is minus the squared distance.
    """
    if similarity == "cosine":
        queries, documents = unit_length(queries), unit_length(documents)
    products = queries @ documents.T
    if similarity != "l2":
        return np.asarray(products)
    return np.asarray(2 * products - (queries**2).sum(1)[:, None] - (documents**2).sum(1)[None])


def vector_teacher(
    encoder: Encoder, adaptation: Adaptation, queries: Sequence[Query], asked: Path
) -> VectorTeacher:
    """Encode documents and questions, as far as the folder does not have their vectors yet.

    ``asked`` is the file of the questions' vectors; those of the documents stand beside it.
    """
    show = adaptation.show
    stored, encoder = document_vectors(encoder, adaptation, asked.parent / "documents")
    if not _is_sound(asked):
        progress, parts = show("encoding questions"), list[FloatArray]()
        for start in range(0, len(queries), _PORTION):
            some = queries[start : start + _PORTION]
            parts.append(encoder.encode_queries([query.text for query in some]).astype(np.float16))
            progress(start + len(some), len(queries))
        _write(np.concatenate(parts), asked)
    by_id = {query.id: row for query, row in zip(queries, np.load(asked), strict=True)}
    return VectorTeacher(by_id, stored)


def document_vectors(encoder: Encoder, adaptation: Adaptation, folder: Path) -> tuple[Vectors, Encoder]:
    """Return vectors of whole documents, and what encodes questions to be compared with them.

    They are the index's own if it has such vectors of this encoder, else computed in int8 where the processor
    can: what the teacher prefers hardly changes, and it is what takes longest.
    """
    index = adaptation.index
    job = EncodeOptions(len(index), index.fingerprint, dtype="float16")
    begun, quick = VECTORS.begun(folder), _in_int8(encoder)
    if begun is None:
        for manifest in sorted(vectors_folder(index.path).parent.glob("*/manifest.json")):
            there = Vectors.open(manifest.parent)
            made = there.state.encoder, there.state.policy, there.state.documents, there.state.collection
            if made == (encoder.fingerprint, job.way, len(index), index.fingerprint):
                return there, encoder
    elif begun.encoder == encoder.fingerprint:  # by an earlier version
        quick = encoder
    progress = index.by_text(adaptation.show("encoding documents"))
    return encode(quick, index.documents.stream(), folder, job=job, progress=progress), quick


def _in_int8(encoder: Encoder) -> Encoder:
    """Return an encoder that computes in fp32 in int8, where the processor can; any other as it is."""
    if not isinstance(encoder, DenseRanker) or encoder.compute.precision != "fp32":
        return encoder
    try:
        machine.require_int8_loops(encoder.compute.device)
        quick = type(encoder)(encoder.model, encoder.compute._replace(precision="int8"))
        quick.encode_queries([""])  # refused here where the encoder's widths do not fit
    except WrongUse:
        return encoder
    return quick


def listed(teacher: SystemTeacher, job: Adaptation, queries: Sequence[Query], asked: Path) -> RunTeacher:
    """Have a system rank the documents for some questions, unless the folder has its lists already.

    Its list stands beside ``asked``, where a bi-encoder's vectors of these questions would.
    """
    path = asked.with_suffix(LIST)
    if not _is_sound(path):
        write_list(teacher.of(queries, job.index, job.show("ranking by the teacher")), path)
    return system_run(read_run(path))


def write_list(run: Run, path: Path) -> None:
    """Write what a system found, with its checksum."""
    write_run(run, path, "teacher")
    write_checked(path.with_suffix(".json"), {"rows": run.rows}, [path])


def by_quantile(run: Run, most: int) -> Run:
    """Return so many documents of each list: its head, a third of them, and one a quantile of the rest."""
    head, chosen = most // 3, dict[str, Ranking]()
    for query_id in run:
        ranking, spread = run[query_id], most - head
        behind = len(ranking) - head
        places = np.arange(len(ranking))
        if behind > spread:
            middles = head + ((np.arange(spread) + 0.5) * behind / spread).astype(np.int64)
            places = np.concatenate([places[:head], middles])
        doc_ids = tuple(ranking.doc_ids[place] for place in places.tolist())
        chosen[query_id] = Ranking(doc_ids, ranking.scores[places])
    return Run.from_rankings(chosen)


def _write(vectors: NDArray[np.float16], path: Path) -> None:
    with replacing(path) as temporary, temporary.open("wb") as out:
        np.save(out, vectors)
    write_checked(path.with_suffix(".json"), {"rows": len(vectors)}, [path])


def _is_sound(path: Path) -> bool:
    """Return whether vectors or lists of questions are there as they were written; says what was changed."""
    return path.exists() and read_cache(path.with_suffix(".json"), dict[str, Any]) is not None


def write_word_vectors(encoder: Encoder, words: Sequence[str], path: Path, width: int) -> None:
    """Write a file of word vectors: each word encoded alone, the principal components of all, about one size.

    After model2vec (Tulkens, van Dongen 2024). A word vector begins near what the teacher makes of the word.
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
