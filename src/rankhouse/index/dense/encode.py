"""Documents -> vectors on disk, chunk after chunk; a killed encoding resumes.

How a folder grows, and what a kill leaves, is in ``append_log.py``. Documents added to an index are
encoded alike: only they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from rankhouse.core.errors import BadModel, WrongUse, warn
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document, Encoder, FloatArray
from rankhouse.core.progress import Progress
from rankhouse.index.append_log import (
    AppendLog,
    DocumentChunk,
    DocumentSource,
    append_documents,
    begin,
    finish,
)
from rankhouse.index.dense.vectors import (
    DTYPES,
    SIMILARITIES,
    VECTORS,
    Vectors,
    VectorsState,
    unit_length,
)
from rankhouse.io.outputs import only_writer
from rankhouse.text.split import Split, Whole


@dataclass(frozen=True)
class EncodeOptions:
    """What to encode, and how.

    Attributes:
        documents: How many there are in all.
        collection: The index's fingerprint.
        split: What cuts documents into passages, each of which gets a vector.
        policy: Whatever else shapes the vectors and is not in the encoder's fingerprint; a split that does
            not write itself as a notation must be named here. Vectors of another split or policy are never
            added to.
        dtype: "float32" or "float16" (half the space; components keep about 3 digits).
        chunk: Passages handed to the encoder at once.
        overwrite: Throw away what is in the folder.
    """

    documents: int
    collection: str
    split: Split = field(default_factory=Whole)
    policy: str = ""
    dtype: str = "float32"
    chunk: int = 1_024
    overwrite: bool = False

    @property
    def way(self) -> str:
        """Split and policy, as kept with the vectors.

        Raises:
            WrongUse: The split is a bare function and has no name that lasts.
        """
        split = str(self.split)
        if " at 0x" not in split:
            return f"{split} {self.policy}".strip()
        if not self.policy:
            raise WrongUse(
                f"{split} does not say what it does, so vectors made with it could not be told from others; "
                "name it in policy"
            )
        return self.policy


def encode(
    encoder: Encoder,
    documents: Iterable[Document],
    folder: Path | str,
    job: EncodeOptions,
    progress: Progress | None = None,
) -> Vectors:
    """Encode a collection, or what is not encoded of it yet.

    Args:
        encoder: What makes the vectors.
        documents: All documents of the collection, in index order, streamed once.
        folder: Where the vectors are or shall be, see :func:`~rankhouse.index.dense.vectors.vectors_folder`.
        job: Count, split, precision.
        progress: Progress callback; counts documents encoded earlier too.

    Raises:
        WrongUse: The folder holds vectors of another encoder, split or precision, or is being written.
        BadIndex: The documents encoded earlier are not those that come now, or files are damaged.
        BadModel: The encoder gave something that is no finite (n, d) array.
        OutputFailed: No permission, disk full; what was done stays and is gone on from.
    """
    folder = Path(folder)
    choose(job.dtype, DTYPES, "number format")
    choose(encoder.similarity, SIMILARITIES, "similarity")
    fresh = VectorsState(
        encoder=encoder.fingerprint, policy=job.way, similarity=encoder.similarity, dtype=job.dtype
    )
    with only_writer(folder):
        state = begin(folder, fresh, VECTORS, overwrite=job.overwrite)
        if (state.documents, state.collection) == (job.documents, job.collection):
            return Vectors.open(folder)
        with AppendLog(folder, state, zeros=VECTORS.zeros) as files:
            source = DocumentSource(job.documents, job.collection, job.split, job.chunk)
            final = append_documents(
                files,
                documents,
                source,
                lambda chunk, tell: _add(files, chunk, _encoded(encoder, chunk, job, files.state, tell=tell)),
                progress=progress,
            )
        finish(folder, final)
    if final.without_text:
        warn(
            f"{final.without_text:,} of {final.documents:,} documents have no text, so they have no vector "
            "and dense search never finds them"
        )
    return Vectors.open(folder)


def _add(files: AppendLog[VectorsState], chunk: DocumentChunk, vectors: FloatArray) -> None:
    """Append a chunk's documents and their vectors (n, d)."""
    before = files.state
    raw = [doc_id.encode() for doc_id in chunk.ids]
    ends = before.id_bytes + np.cumsum([len(r) for r in raw], dtype="<i8")
    numbers = np.arange(before.documents, before.documents + len(raw), dtype="<u4")
    stored = vectors.astype(before.row_type)
    lengths = np.sqrt(np.square(stored, dtype=np.float64).sum(axis=1))
    files.append(
        {
            "vectors.bin": stored.tobytes(),
            "owners.bin": np.repeat(numbers, chunk.rows).tobytes(),
            "ids.bin": b"".join(raw),
            "ids_at.bin": ends.tobytes(),
        },
        {
            "dimension": vectors.shape[1],
            "documents": before.documents + len(raw),
            "rows": before.rows + len(vectors),
            "id_bytes": before.id_bytes + sum(map(len, raw)),
            "without_text": before.without_text + chunk.rows.count(0),
            "largest_norm": max(before.largest_norm, float(lengths.max(initial=0))),
        },
    )


def _encoded(
    encoder: Encoder,
    chunk: DocumentChunk,
    job: EncodeOptions,
    state: VectorsState,
    tell: Callable[[int], None],
) -> FloatArray:
    """Encode a chunk: (n, d) float32, checked, of length 1 where the similarity is the cosine."""
    parts = [np.empty((0, state.dimension), np.float32)]
    for start in range(0, len(chunk.texts), job.chunk):
        if start:
            tell(start)
        texts = chunk.texts[start : start + job.chunk]
        vectors = np.asarray(encoder.encode_passages(texts), np.float32)
        wanted = parts[-1].shape[1] or (vectors.shape[1] if vectors.ndim == 2 else 0)
        if vectors.shape != (len(texts), wanted) or not wanted:
            raise BadModel(
                f"the encoder gave an array of shape {vectors.shape} for {len(texts)} passages; "
                f"({len(texts)}, {wanted or 'd'}) is needed"
            )
        parts.append(vectors)
    vectors = np.concatenate([part for part in parts if part.shape[1]] or parts)
    if state.similarity == "cosine":
        vectors = unit_length(vectors)
    _refuse_unfit(vectors, chunk, job)
    return vectors


def _refuse_unfit(vectors: FloatArray, chunk: DocumentChunk, job: EncodeOptions) -> None:
    with np.errstate(over="ignore"):
        unfit = ~np.isfinite(vectors.astype(DTYPES[job.dtype])).all(axis=1)
    if unfit.any():
        row = int(np.argmax(unfit))
        doc_id = np.repeat(np.array(chunk.ids, object), chunk.rows)[row]
        fits = np.isfinite(vectors[row]).all()
        raise BadModel(
            f'the vector of document "{doc_id}" '
            + (
                f"holds {np.abs(vectors[row]).max():g}, more than float16 can; use float32"
                if fits
                else "is not finite; the encoder's weights are damaged or overflow in this precision"
            )
        )
