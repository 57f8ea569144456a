"""Push: an index's documents, vectors and impacts into a store.

Records have names of their own, always the same ones, and are written in the index's order. So a push that
was killed resumes after the records that are there, and a push that is repeated changes nothing.

Impacts are a retrieval model as sparse vectors, so that any store of sparse vectors ranks as the index does.
Lucene's forms of BM25 and query likelihood are sums over the matching terms, and each addend is linear in the
term's weight in the query: score = sum of posting weight x query weight. The posting weight, with everything
that depends on the document's length and on the collection, is what :func:`posting_weights` computes, by the
very functions that rank (``index.lexical.weighting``). The query's weights are the counts of its terms, or,
after RM3, the weights of a longer query.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import BadIndex, StoreFailed, WrongUse
from rankhouse.core.nouns import FloatArray
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.dense.vectors import Vectors, vectors_folder
from rankhouse.index.impacts.impacts import Impacts, impacts_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.segment import DECODED
from rankhouse.index.lexical.weighting import WEIGHTINGS, Weighting
from rankhouse.stores.store import (
    DIMENSIONS,
    NOTHING,
    Store,
    StoreContents,
    StoreRecord,
    WordNumber,
    batches,
    hash_of,
)


def impact_model(text: str) -> Weighting:
    """Return the model of a notation; refuse one that is no sum of posting weight times query weight."""
    model = notation.make(text, WEIGHTINGS, "model")
    if model.prior is not None:
        raise WrongUse(
            f"{text}: gives every document a share for its length however many terms match, which is no sum "
            "of posting weight times query weight; take bm25, ql (Lucene's form) or jm"
        )
    if model.joined is not None:
        raise WrongUse(f"{text}: is not pushed, since it weighs title and text of each document; take bm25")
    if model.asked is not None or model.content:
        raise WrongUse(f"{text}: weighs queries too, and a store's are counts of all words; take bm25")
    return model


def posting_weights(index: Index, model: Weighting, start: int, stop: int) -> list[dict[str, float]]:
    """Return for each document what each term, at weight 1 in the query, adds to its score, in float32."""
    by_term: dict[str, list[tuple[int, int]]] = {}
    lengths = np.empty(stop - start, np.float64)
    for place, row in enumerate(range(start, stop)):
        segment, there = index.place(row)
        lengths[place] = segment.lengths[there] if model.exact_lengths else DECODED[segment.codes[there]]
        for term, count in segment.terms_of(there):
            by_term.setdefault(term, []).append((place, count))
    weights: list[dict[str, float]] = [{} for _ in range(stop - start)]
    for term, postings in by_term.items():
        places, counts = (np.array(column, np.int64) for column in zip(*postings, strict=True))
        held, collection = index.counts(term), index.collection
        scores = model.term(counts, lengths[places], held, collection=collection, boost=1.0)
        for place, weight in zip(places.tolist(), scores.astype(np.float32).tolist(), strict=True):
            weights[place][term] = weight or NOTHING
    return weights


@dataclass(frozen=True)
class PushOptions:
    """Options of a push."""

    # notation of the model whose posting weights to push, or sparse("name") for those of an encoder that are
    # stored under this name; "" for none
    impacts: str = ""
    vectors: str = ""  # name under which ``rankhouse encode`` stored vectors; "" for none
    texts: bool = True
    overwrite: bool = False  # replace a collection that holds something else


class PushResult(NamedTuple):
    """Result of a push; collisions are terms whose dimension is another term's as well."""

    contents: StoreContents
    written: int
    collisions: int


@dataclass(frozen=True)
class _PushSource:
    """Sources of records: the index, its vectors, and the model of its impacts."""

    index: Index
    vectors: Vectors | None
    model: Weighting | None
    encoded: Impacts | None
    texts: bool
    counts: bool

    def contents(self, structure: str) -> StoreContents:
        """Describe the collection that these records make."""
        state = self.vectors.state if self.vectors else None
        return StoreContents(
            source=self.index.fingerprint,
            documents=len(self.index),
            records=int(self.ends[-1]),
            texts=self.texts,
            analyzer=self.index.manifest.analyzer,
            impacts="sparse" if self.encoded else str(self.model or ""),
            weigher=self.encoded.state.encoder if self.encoded else "",
            vectors=state.fingerprint if state else "",
            encoder=state.encoder if state else "",
            similarity=state.similarity if state else "",
            dimension=state.dimension if state else 0,
            largest_norm=state.largest_norm if state else 0.0,
            structure=structure if state else "exact",
            complete=False,
        )

    @cached_property
    def ends(self) -> NDArray[np.int64]:
        """Cumulative number of records by document: one each, or as many as it has passages."""
        if self.vectors is None or not self.vectors.passages:
            return np.arange(1, len(self.index) + 1)
        rows = np.bincount(np.asarray(self.vectors.owners[:]), minlength=len(self.index))
        return np.cumsum(np.maximum(rows, 1))

    def records(self, start: int) -> Iterator[StoreRecord]:
        """Make the records of all documents from a row on."""
        for first in range(start, len(self.index), 500):
            yield from self._some(first, min(first + 500, len(self.index)))

    def _some(self, start: int, stop: int) -> Iterator[StoreRecord]:
        weights: list[dict[str, float]] = [{} for _ in range(stop - start)]
        if self.model is not None and not self.counts:
            weights = posting_weights(self.index, self.model, start, stop)
        for row, impacts in zip(range(start, stop), weights, strict=True):
            segment, there = self.index.place(row)
            if self.model is not None and self.counts:
                impacts |= {term: float(count) for term, count in segment.terms_of(there)}
            if self.encoded is not None:
                words, values = self.encoded.of(row)
                impacts |= dict(zip(map(WordNumber, words.tolist()), values.tolist(), strict=True))
            doc_id, title, text = segment.ids[there], "", ""
            if self.texts:
                _, text, title, _ = segment.document(there)
            first, *rest = self._vectors_of(row, doc_id)
            yield StoreRecord(row, doc_id, 0, title, text=text, vector=first, impacts=impacts)
            for passage, vector in enumerate(rest, 1):
                yield StoreRecord(row, doc_id, passage, "", text="", vector=vector, impacts={})

    def _vectors_of(self, row: int, doc_id: str) -> list[FloatArray | None]:
        if self.vectors is None:
            return [None]
        if self.vectors.ids[row] != doc_id:
            raise BadIndex(f"{self.vectors.folder}: the vectors are of other documents; encode again")
        rows = self.vectors.rows_of(row)
        return [np.asarray(vector, np.float32) for vector in self.vectors.rows[rows]] or [None]


def push(index: Index, store: Store, options: PushOptions, progress: Progress = ignore) -> PushResult:
    """Push an index into a store; WrongUse if it cannot hold it, or the collection holds something else."""
    source = _source(index, store, options)
    contents = source.contents(store.vectors)
    collisions = count_collisions(index) if source.model is not None and store.hashed else 0
    store.check(contents)
    with store.writer():
        done, is_complete = _prepare(store, contents, overwrite=options.overwrite)
        # One batch more than what is missing: the last one may have been cut off in the middle.
        start = int(np.searchsorted(source.ends, max(0, done - store.batch), side="right")) if done else 0
        if done == contents.records:
            start = len(index)
        elif is_complete:  # it no longer is: somebody removed records
            store.mark(contents, complete=False)
        written = _write(source, store, start, progress)
        if start and store.count() < contents.records:  # some of those that were there were removed
            written = _write(source, store, 0, progress)
        if (there := store.count()) < contents.records:
            raise StoreFailed(
                f"{store.name}: holds {there:,} of {contents.records:,} records after the push; does another "
                "program remove some, or push there? push again"
            )
        if not is_complete or done < contents.records:
            store.mark(contents, complete=True)
    return PushResult(contents, written, collisions)


def _write(source: _PushSource, store: Store, start: int, progress: Progress) -> int:
    """Write the records of all documents from a row on; return how many."""
    written, there, records = 0, int(source.ends[start - 1]) if start else 0, int(source.ends[-1])
    progress(there, records)
    for group in batches(source.records(start), store.batch, store.batch_bytes):
        store.write(group)
        written += len(group)
        progress(there + written, records)
    store.finish()
    return written


def _source(index: Index, store: Store, options: PushOptions) -> _PushSource:
    if options.impacts and "impacts" not in store.holds:
        raise store.cannot(
            "holds no impacts", "push texts and vectors there, and search it by its own text search"
        )
    model = encoded = None
    if options.impacts and notation.parse(options.impacts).name == "sparse":
        encoded = _encoded(index, store, options.impacts)
    elif options.impacts:
        model = impact_model(options.impacts)
    vectors = None
    if options.vectors:
        if "vectors" not in store.holds:
            raise store.cannot("holds no vectors", "leave out --vectors")
        vectors = Vectors.open(vectors_folder(index.path, options.vectors))
        vectors.require_all(index)
    return _PushSource(index, vectors, model, encoded, texts=options.texts, counts=store.weighs)


def _encoded(index: Index, store: Store, text: str) -> Impacts:
    """Open the impacts of a sparse encoder, which are those of the index as it is now."""
    if store.weighs:
        raise store.cannot(
            "computes the weights of words itself, by its own models", "push bm25, or into another store"
        )
    make: dict[str, Callable[..., str]] = {"sparse": lambda name="default": name}
    impacts = Impacts.open(impacts_folder(index.path, notation.make(text, make, "impacts")))
    return impacts.require_all(index)


def _prepare(store: Store, contents: StoreContents, *, overwrite: bool) -> tuple[int, bool]:
    """See that the collection is the one to push; return its number of records, and if it is complete."""
    if store.exists():
        if not overwrite:
            there = store.contents()
            if difference := _difference(there, contents):
                raise WrongUse(f"{store.name}: {difference}; name another one, or --overwrite it")
            return min(store.count(), contents.records), bool(there and there.complete)
        store.drop()
    store.create(contents)
    return 0, False


def _difference(there: StoreContents | None, wanted: StoreContents) -> str:
    """Say how the collection that is there differs from the one to be pushed; "" where it does not."""
    if there is None:
        return "the collection was not pushed by rankhouse, and is never replaced unasked"
    if (there := msgspec.structs.replace(there, complete=wanted.complete)) == wanted:
        return ""
    other_vectors = "no vectors" if wanted.encoder else "vectors, and none are to be pushed"
    words = {
        "source": "another index, or another state of it",
        "impacts": f"{there.impacts or 'no'} impacts instead of {wanted.impacts or 'none'}",
        "weigher": "weights of another sparse encoder",
        "encoder": "vectors of another encoder" if there.encoder and wanted.encoder else other_vectors,
        "dimension": f"vectors of {there.dimension} numbers instead of {wanted.dimension}",
        "vectors": "other vectors",
        "texts": "texts" if there.texts else "no texts",
    }
    old, new = msgspec.structs.asdict(there), msgspec.structs.asdict(wanted)
    differing = [name for name in old if old[name] != new[name]]
    fault = next((f"holds {words[name]}" for name in words if name in differing), "")
    return f"the collection {fault or 'differs in ' + ', '.join(differing)}"


def count_collisions(index: Index) -> int:
    """Count the terms of an index that share their dimension with another one."""
    hashes = [
        np.fromiter(map(hash_of, segment.terms), np.uint64, len(segment.terms)) for segment in index.segments
    ]
    distinct = np.unique(np.concatenate([np.empty(0, np.uint64), *hashes]))
    return len(distinct) - len(np.unique(distinct % np.uint64(DIMENSIONS)))
