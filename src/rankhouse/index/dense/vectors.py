"""Vectors of an index's documents: what is in the folder, and opening it.

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
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import FloatArray
from rankhouse.index.append_state import Encoded, EncodedState, LogKind, OffsetColumn, encoded_folder
from rankhouse.index.lexical.store import Strings
from rankhouse.io.checksums import CheckedArray

FORMAT: Final = "rankhouse-vectors"
VERSION: Final = 2  # 1 had no checksums of blocks; its files are read whole when first touched
SIMILARITIES: Final = {
    "dot": "the dot product",
    "cosine": "the dot product of vectors of length 1",
    "l2": "minus the squared Euclidean distance",
}
DTYPES: Final = {"float32": "<f4", "float16": "<f2"}


class VectorsState(EncodedState, frozen=True, kw_only=True):
    """How much of the files counts, and how they were made; documents are those with and without text.

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


class Vectors(Encoded[VectorsState]):
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
