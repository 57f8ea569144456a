"""Impacts of an index's documents: the weight of each word of a vocabulary in each document.

    INDEX/impacts/NAME/
        manifest.json    encoder, policy, vocabulary, sums: the last complete state
        progress.json    the same for an encoding under way; gone when it is done
        words.bin        (entries,) uint32: the numbers of each document's words, ascending
        weights.bin      (entries,) float32: the weight of each of them, exactly as it was computed
        ends.bin         (documents + 1,) int64: where each document's entries begin, and where the last end
        ids.bin          the documents' ids, one after the other, UTF-8
        ids_at.bin       (documents + 1,) int64: where each id begins, and where the last one ends
        structures/      the same as packed postings, see search.py; what weighs queries, where a table does

Files grow as those of vectors do (``append_log.py``). A document cut into passages has of each word the
largest weight in any passage (Nguyen, MacAvaney, Yates, "Adapting Learned Sparse Retrieval for Long
Documents", SIGIR 2023, Rep-max).
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

import msgspec
import numpy as np

from rankhouse.core.errors import BadIndex
from rankhouse.index.append_state import AGAIN, Encoded, EncodedState, LogKind, OffsetColumn, encoded_folder
from rankhouse.index.lexical.kernel import Float32s, Int64s
from rankhouse.index.lexical.store import Strings
from rankhouse.io.checksums import CheckedArray

if TYPE_CHECKING:
    import scipy.sparse

STRUCTURES: Final = "structures"


@runtime_checkable
class QueryWeigher(Protocol):
    """What weighs the words of queries."""

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever the weights could."""
        ...

    @property
    def vocabulary(self) -> int:
        """How many words there are, v."""
        ...

    def query_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh the vocabulary for n queries: (n, v) float32, each independent of the others."""
        ...

    def word(self, number: int) -> str:
        """Return a word of the vocabulary as it is written there."""
        ...


@runtime_checkable
class Weigher(QueryWeigher, Protocol):
    """A sparse encoder: weighs words for texts of both sides."""

    def passage_weights(self, texts: Sequence[str]) -> scipy.sparse.csr_array:
        """Weigh the vocabulary for n passages: (n, v) float32, each independent of the others."""
        ...

    def query_files(self) -> dict[str, bytes]:
        """Return the files by which a table weighs queries without the model; none without a table."""
        ...


class ImpactsState(EncodedState, frozen=True, kw_only=True):
    """How much of the files counts, and how they were made."""

    vocabulary: int  # v, the number of words
    entries: int = 0  # weights stored: one a document and word, none of them 0
    id_bytes: int = 0  # bytes of the documents' ids
    without_text: int = 0  # documents that have no entry
    source: str = ""  # notation that the encoder was opened by, hashes of contents in place of folders
    # CRC-32 of each file that weighs queries without the model
    query: dict[str, int] = msgspec.field(default_factory=dict)
    format: str = "rankhouse-impacts"
    version: int = 1

    def sizes(self) -> dict[str, int]:
        """Bytes of each file that count."""
        offsets = 8 * (self.documents + 1)
        return {
            "words.bin": 4 * self.entries,
            "weights.bin": 4 * self.entries,
            "ends.bin": offsets,
            "ids.bin": self.id_bytes,
            "ids_at.bin": offsets,
        }


IMPACTS: Final = LogKind(
    ImpactsState,
    named={},
    same=("encoder", "policy", "vocabulary"),
    columns={
        "ends.bin": OffsetColumn("<i8", "entries", zero=True),
        "ids_at.bin": OffsetColumn("<i8", "id_bytes", zero=True),
    },
    sums=("documents", "entries", "id_bytes", "without_text"),
    most=(),
)


def impacts_folder(index: Path | str, name: str = "default") -> Path:
    """Return the folder of an index's impacts of this name; WrongUse where it could lead out of the index."""
    return encoded_folder(index, "impacts", name)


class Impacts(Encoded[ImpactsState]):
    """The impacts of a collection, memory-mapped. Open them with :meth:`open`.

    Attributes:
        words: (entries,) on disk.
        weights: (entries,) on disk.
        ends: (documents + 1,) on disk.
    """

    kind, what, command = IMPACTS, "impacts", "rankhouse encode --ranker 'sparse(\"DIR\")'"

    def __init__(self, folder: Path, state: ImpactsState) -> None:
        super().__init__(folder, state)
        entries, documents = (state.entries,), (state.documents + 1,)
        self.words: CheckedArray[np.uint32] = self.mapped("words.bin", "<u4", entries)
        self.weights: CheckedArray[np.float32] = self.mapped("weights.bin", "<f4", entries)
        self.ends: CheckedArray[np.int64] = self.mapped("ends.bin", "<i8", documents)
        self.ids = Strings(
            self.mapped("ids.bin", "u1", (state.id_bytes,)), self.mapped("ids_at.bin", "<i8", documents)
        )

    def __len__(self) -> int:
        return self.state.documents

    def __repr__(self) -> str:
        s = self.state
        return f"<Impacts {self.folder}: {s.entries:,} for {s.documents:,} documents>"

    def of(self, number: int) -> tuple[Int64s, Float32s]:
        """Return the words of a document, ascending, and their weights, (n,) each."""
        start, end = self.ends[number : number + 2].tolist()
        return self.words[start:end].astype(np.int64), self.weights[start:end]

    def query_files(self) -> dict[str, bytes]:
        """Read the files that weigh queries without the model; none where it has no table.

        Raises:
            BadIndex: One is missing or damaged.
        """
        return read_query_files(self.folder, self.state.query)


def read_query_files(folder: Path, sums: Mapping[str, int]) -> dict[str, bytes]:
    """Read what weighs queries without the model, as :meth:`Impacts.query_files` does."""
    files = dict[str, bytes]()
    for name, expected in sums.items():
        path = folder / STRUCTURES / "query" / name
        try:
            files[name] = path.read_bytes()
        except OSError as error:
            raise BadIndex(f"{path}: is missing or cannot be read ({error.strerror}); {AGAIN}") from error
        if zlib.crc32(files[name]) != expected:
            raise BadIndex(f"{path}: does not have the content it was written with; {AGAIN} with --overwrite")
    return files
