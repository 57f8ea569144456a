"""encode in slices of the index's documents: a part holds a folder of vectors, or of kept passages."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final

from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.progress import Progress
from rankhouse.index.append_state import MANIFEST
from rankhouse.index.dense.vectors import Vectors, load_vectors_state, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.merge_logs import EncodedCollection, LogKind, OffsetColumn, merge_logs
from rankhouse.index.precomputed.read import (
    PrecomputedPassages,
    PrecomputedState,
    load_precomputed_state,
    precomputed_folder,
)
from rankhouse.jobs.encoding import (
    Encoding,
    Source,
    encode_vectors,
    keep_passages,
    losses,
    passages_facts,
    vectors_facts,
)
from rankhouse.jobs.identity import computed_by, described
from rankhouse.jobs.jobs import MergeOptions, MergeResult, Survey, write_report
from rankhouse.jobs.parts import Found, Part
from rankhouse.jobs.slices import Slice
from rankhouse.ranking.pool import POOLS
from rankhouse.systems.precomputed import Storage
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.text.split import SPLITTERS

_VECTORS, _KEPT = "vectors", "kept"

DENSE: Final = LogKind(
    load=load_vectors_state,
    same=("encoder", "policy", "similarity", "dtype"),
    columns={
        "owners.bin": OffsetColumn("<u4", "documents"),
        "ids_at.bin": OffsetColumn("<i8", "id_bytes", zero=True),
    },
    sums=("documents", "rows", "id_bytes", "without_text"),
    most=("dimension", "largest_norm"),
)
KEPT: Final = LogKind(
    load=load_precomputed_state,
    same=("maker", "split", "dtype"),
    columns={
        "ends.bin": OffsetColumn("<i8", "rows", zero=True),
        "firsts.bin": OffsetColumn("<i8", "passages", zero=True),
    },
    sums=("documents", "passages", "rows", "without_text", "cut", "lost", "dropped_words"),
    most=("dimension",),
)


@dataclass(frozen=True)
class EncodeJob:
    """The options of ``rankhouse encode``, by the same names."""

    command: ClassVar[str] = "encode"
    unit: ClassVar[str] = "documents"

    index: str
    ranker: str
    tokens: bool = False
    split: str = "whole"
    pool: str = "max"
    dtype: Storage | None = None
    name: str = "default"
    precision: str = "auto"
    device: str = "auto"
    threads: int = 0

    def survey(self) -> Survey:
        """Count the documents, and hash the ranker."""
        notation.make(self.split, SPLITTERS, "splitter")
        notation.make(self.pool, POOLS, "pool")
        index = Index.open(self.index)
        identity = {"index": index.fingerprint, "ranker": described(self.ranker)}
        settings = ("tokens", "split", "pool", "dtype", "name", "precision")
        return Survey(len(index), identity | {name: str(getattr(self, name)) for name in settings})

    def unit_name(self, unit: int) -> str:
        """Return a document's id. Args: as in :class:`~rankhouse.jobs.jobs.Job`."""
        return next(iter(Index.open(self.index).documents.stream(unit, unit + 1))).id

    def open(self) -> EncodeWorker:
        """Load the ranker and the index."""
        return EncodeWorker(self)

    def merge(self, parts: Sequence[Part], out: Path, options: MergeOptions) -> MergeResult:
        """Put what was encoded into an index. Args: as in :class:`~rankhouse.jobs.jobs.Job`."""
        index = Index.open(out)
        collection = EncodedCollection(len(index), index.fingerprint, index.documents.stream())
        if all((part.folder / _VECTORS).exists() for part in parts):
            folder = vectors_folder(out, self.name)
            sources = [part.folder / _VECTORS for part in parts]
            merge_logs(
                sources, folder, DENSE, collection, overwrite=options.overwrite, progress=options.progress
            )
            vectors = Vectors.open(folder)
            facts, sentence = vectors_facts(vectors)
            none = vectors.state.without_text
            warnings = (
                [f"{none:,} of {len(index):,} documents have no text, so they have no vector"] if none else []
            )
            return MergeResult(facts, sentence, warnings)
        sources = [next((part.folder / _KEPT).iterdir()) for part in parts]
        state: PrecomputedState = load_precomputed_state(sources[0] / MANIFEST)
        folder = precomputed_folder(out) / state.name
        merge_logs(sources, folder, KEPT, collection, overwrite=options.overwrite, progress=options.progress)
        kept = PrecomputedPassages.open(folder)
        facts, sentence = passages_facts(kept)
        return MergeResult(facts, sentence, losses(kept))


class EncodeWorker:
    """Encodes documents of a job's index."""

    def __init__(self, job: EncodeJob) -> None:
        self._index = Index.open(job.index)
        ranker = open_ranker(job.ranker, ComputeOptions(job.precision, job.device, job.threads))
        self._encoding = Encoding(ranker, job.split, job.pool, job.dtype, job.tokens)
        if not self._encoding.is_dense and job.name != "default":
            raise WrongUse(
                f"--name {job.name} would change nothing here: only a bi-encoder's vectors have a name"
            )

    @property
    def found(self) -> Found:
        """The ranker, and what it computes on."""
        return computed_by(self._encoding.ranker)

    def run(self, part: Slice, folder: Path, progress: Progress) -> None:
        """Encode the documents of a slice. Args: as in :class:`~rankhouse.jobs.jobs.Worker`."""
        documents = self._index.documents.stream(part.start, part.stop)
        source = Source(documents, len(part), self._index.fingerprint)
        facts: dict[str, Any]
        started = time.perf_counter()
        if self._encoding.is_dense:
            facts, _ = vectors_facts(encode_vectors(self._encoding, source, folder / _VECTORS, progress))
            warnings = []
        else:
            kept = keep_passages(self._encoding, source, folder / _KEPT, progress)
            facts, warnings = passages_facts(kept)[0], losses(kept, self._encoding.ranker.max_length)
            del facts["kept"]  # a folder that the part is not in when it is done
        seconds = round(time.perf_counter() - started, 3)
        write_report(folder, facts | {"seconds": seconds, "warnings": warnings})
