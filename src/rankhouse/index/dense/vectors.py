"""Vectors of an index's documents: what is in the folder, encoding into it, and opening it.

    INDEX/vectors/NAME/
        manifest.json    encoder, policy, similarity, size, sums: the last complete state
        progress.json    the same for an encoding under way; gone when it is done
        vectors.bin      (n, d) float32 or float16, little-endian, one row a passage, in index order
        owners.bin       (n,) uint32: the document each row belongs to, counted from 0
        ids.bin          the documents' ids, one after the other, UTF-8
        ids_at.bin       (documents + 1,) int64: where each id begins, and where the last one ends
        structures/      search structures made from the vectors, see faiss.py

Files only ever grow, and the manifest that says how much of them counts is replaced last. So vectors can be
searched while an encoding adds to them, and a killed encoding leaves nothing that could be mistaken for more.
Where similarity is "cosine" the rows are kept at length 1, so that a dot product is the cosine.

How a folder grows, and what a kill leaves, is in ``append_log.py``; a killed encoding resumes. Documents
added to an index are encoded alike: only they are.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

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
from rankhouse.index.append_state import EncodedData, EncodedState, LogKind, OffsetColumn, encoded_folder
from rankhouse.index.lexical.store import Strings
from rankhouse.io.checksums import CheckedArray
from rankhouse.io.outputs import only_writer
from rankhouse.text.split import Split, Whole

FORMAT: Final = "rankhouse-vectors"
VERSION: Final = 2  # 1 had no checksums of blocks; its files are read whole when first touched
SIMILARITIES: Final = {
    "dot": "the dot product",
    "cosine": "the dot product of vectors of length 1",
    "l2": "minus the squared Euclidean distance",
}
_REMEMBERED: Final = 4_096  # passages whose vectors are at hand, should they come again
DTYPES: Final = {"float32": "<f4", "float16": "<f2"}


class VectorsState(EncodedState, frozen=True, kw_only=True):
    """Valid part of the files, and how they were made; documents are those with and without text.

    Attributes:
        similarity: "dot", "cosine" or "l2".
        dtype: "float32" or "float16".
        dimension: d; 0 as long as there are no rows.
        rows: n, the number of vectors.
        id_bytes: Bytes of their ids.
        without_text: Documents that have no row.
        largest_norm: Length of the longest vector.
    """

    similarity: str
    dtype: str
    dimension: int = 0
    rows: int = 0
    id_bytes: int = 0
    without_text: int = 0
    largest_norm: float = 0.0
    format: str = FORMAT
    version: int = VERSION

    @property
    def fingerprint(self) -> str:
        """Name of these very vectors: other encoder, split, precision or documents, other name."""
        parts = (
            self.encoder,
            self.policy,
            self.similarity,
            self.dtype,
            self.documents,
            self.rows,
            self.texts,
        )
        return blake2b(msgspec.json.encode(parts), digest_size=16).hexdigest()

    @property
    def row_type(self) -> np.dtype[Any]:
        """The numpy type of a component on disk."""
        return np.dtype(DTYPES[self.dtype])

    def sizes(self) -> dict[str, int]:
        """Bytes of each file that count."""
        return {
            "vectors.bin": self.rows * self.dimension * self.row_type.itemsize,
            "owners.bin": self.rows * 4,
            "ids.bin": self.id_bytes,
            "ids_at.bin": (self.documents + 1) * 8,
        }


VECTORS: Final = LogKind(
    VectorsState,
    named={"dtype": DTYPES, "similarity": SIMILARITIES},
    same=("encoder", "policy", "similarity", "dtype"),
    columns={
        "owners.bin": OffsetColumn("<u4", "documents"),
        "ids_at.bin": OffsetColumn("<i8", "id_bytes", zero=True),
    },
    sums=("documents", "rows", "id_bytes", "without_text"),
    most=("dimension", "largest_norm"),
)


def vectors_folder(index: Path | str, name: str = "default") -> Path:
    """Return the folder of an index's vectors of this name; WrongUse where it could lead out of the index."""
    return encoded_folder(index, "vectors", name)


class Vectors(EncodedData[VectorsState]):
    """The vectors of a collection, memory-mapped. Open them with :meth:`open`.

    Attributes:
        rows: (n, d) on disk.
        owners: (n,) uint32 on disk: the number of the document each row belongs to.
        ids: Id of each document by number.
    """

    kind, what, command = VECTORS, "vectors", "rankhouse encode"

    def __init__(self, folder: Path, state: VectorsState) -> None:
        super().__init__(folder, state)
        kind, d = DTYPES[state.dtype], state.dimension
        self.rows: CheckedArray[np.floating[Any]] = self.mapped("vectors.bin", kind, (state.rows, d))
        self.owners: CheckedArray[np.uint32] = self.mapped("owners.bin", "<u4", (state.rows,))
        self.ids = Strings(
            self.mapped("ids.bin", "u1", (state.id_bytes,)),
            self.mapped("ids_at.bin", "<i8", (state.documents + 1,)),
        )

    def __len__(self) -> int:
        return self.state.rows

    def __repr__(self) -> str:
        s = self.state
        return f"<Vectors {self.folder}: {s.rows:,} of {s.dimension} for {s.documents:,} documents>"

    @property
    def dimension(self) -> int:
        """Numbers in a vector, d."""
        return self.state.dimension

    @property
    def passages(self) -> bool:
        """Whether some document has several rows."""
        return self.state.rows > self.state.documents - self.state.without_text

    def rows_of(self, number: int) -> NDArray[np.int64]:
        """Return the rows of one document's passages, in order; none for a document without text."""
        places = range(len(self.owners))  # owners ascend, as documents are encoded in their order
        first = bisect_left(places, number, key=self.owners.item)
        return np.arange(first, bisect_right(places, number, lo=first, key=self.owners.item), dtype=np.int64)

    @property
    def fingerprint(self) -> str:
        """Name of these very vectors."""
        return self.state.fingerprint


def unit_length(vectors: FloatArray) -> FloatArray:
    """Scale vectors (n, d) to length 1; one of length 0 stays as it is."""
    lengths = np.sqrt(np.square(vectors, dtype=np.float64).sum(axis=1, keepdims=True))
    with np.errstate(invalid="ignore"):  # infinite ones become not-a-number, which the caller refuses
        scaled: FloatArray = (vectors / np.maximum(lengths, np.finfo(np.float32).tiny)).astype(np.float32)
    return scaled


@dataclass(frozen=True)
class EncodeOptions:
    """Documents to encode, and settings of the encoding.

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
        known: dict[str, FloatArray] = {}
        with AppendLog(folder, state, zeros=VECTORS.zeros) as files:
            source = DocumentSource(job.documents, job.collection, job.split, job.chunk)
            final = append_documents(
                files,
                documents,
                source,
                lambda chunk, tell: _add(
                    files, chunk, _encoded(encoder, chunk, job, files.state, known=known, tell=tell)
                ),
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
    known: dict[str, FloatArray],
    tell: Callable[[int], None],
) -> FloatArray:
    """Encode a chunk: (n, d) float32, checked, of length 1 where the similarity is the cosine.

    Args:
        known: Vectors of passages that were encoded lately: licences, headers and the like come again.
    """
    parts = [np.empty((0, state.dimension), np.float32)]
    for start in range(0, len(chunk.texts), job.chunk):
        if start:
            tell(start)
        texts = chunk.texts[start : start + job.chunk]
        found = {text: known[text] for text in texts if text in known}
        fresh = [text for text in dict.fromkeys(texts) if text not in found]
        if fresh:
            vectors = np.asarray(encoder.encode_passages(fresh), np.float32)
            wanted = parts[-1].shape[1] or (vectors.shape[1] if vectors.ndim == 2 else 0)
            if vectors.shape != (len(fresh), wanted) or not wanted:
                raise BadModel(
                    f"the encoder gave an array of shape {vectors.shape} for {len(fresh)} passages; "
                    f"({len(fresh)}, {wanted or 'd'}) is needed"
                )
            found.update(zip(fresh, vectors, strict=True))
            if len(known) > _REMEMBERED:
                known.clear()
            known.update((text, found[text]) for text in fresh)
        parts.append(vectors if len(fresh) == len(texts) else np.stack([found[text] for text in texts]))
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
