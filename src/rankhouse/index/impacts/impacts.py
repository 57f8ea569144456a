"""Impacts of an index's documents: the weight of each word of a vocabulary in each document.

    INDEX/impacts/NAME/
        manifest.json    encoder, policy, vocabulary, sums: the last complete state
        progress.json    the same for an encoding under way; gone when it is done
        words.bin        (entries,) uint32: the numbers of each document's words, ascending
        weights.bin      (entries,) float32: the weight of each of them, exactly as it was computed
        ends.bin         (documents + 1,) int64: where each document's entries begin, and where the last end
        ids.bin          the documents' ids, one after the other, UTF-8
        ids_at.bin       (documents + 1,) int64: where each id begins, and where the last one ends
        structures/      the same as packed postings, see below; what weighs queries, where a table does

Files grow as those of vectors do (``append_log.py``). A document cut into passages has of each word the
largest weight in any passage (Nguyen, MacAvaney, Yates, "Adapting Learned Sparse Retrieval for Long
Documents", SIGIR 2023, Rep-max).

The same as packed postings, in parts of consecutive documents, is what the kernel searches:

    structures/lists-FIRST-END/   the lists of documents FIRST to END
        lists.bin, lists_at, frequencies, areas.bin   packed postings, as of a segment, a float32 score each
        numbers                                       word -> number of its list, -1 for none
        id_order, id_rank                             the order of the ids, where they are not sorted
        sums.json                                     what the files must be

Everything is derived from the entries of the folder above. A part is as large as memory at its making allows;
when documents are added, only the last part, which is not full, is made again.
"""

from __future__ import annotations

import shutil
import zlib
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.index.append_state import (
    AGAIN,
    EncodedData,
    EncodedState,
    LogKind,
    OffsetColumn,
    encoded_folder,
)
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.kernel import Float32s, Forward, Int32s, Int64s, Postings, scatter, tally
from rankhouse.index.lexical.manifest import OPTIONAL, check_files
from rankhouse.index.lexical.segment import TermLists
from rankhouse.index.lexical.store import Strings
from rankhouse.index.lexical.write import save_arrays, sums_of, write_id_order, write_lists
from rankhouse.io.checksums import BadEnvelope, CheckedArray, FileSum, sealed, unsealed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import replacing_folder

if kernel.COMPILED:
    from rankhouse.index.lexical import _kernel

if TYPE_CHECKING:
    import scipy.sparse


MOST_ENTRIES: Final = 1 << 26
"""Entries of a part, about: 1.5 GB while it is made."""
_SUMS: Final = "sums.json"


class Span(NamedTuple):
    """Documents of a part: the first, and the one behind the last."""

    first: int
    end: int

    @property
    def name(self) -> str:
        """The name of their folder."""
        return f"lists-{self.first}-{self.end}"


def spans_of(ends: Int64s) -> Iterator[Span]:
    """Cut documents into parts; those before the last stay the same when documents are added."""
    first, documents = 0, len(ends) - 1
    while first < documents:
        end = int(np.searchsorted(ends, ends[first] + MOST_ENTRIES, side="right")) - 1
        end = min(documents, max(end, first + 1))
        yield Span(first, end)
        first = end


def _sums_of(folder: Path) -> dict[str, FileSum]:
    try:
        return msgspec.json.decode(unsealed((folder / _SUMS).read_bytes()), type=dict[str, FileSum])
    except (OSError, BadEnvelope, *UNREADABLE) as error:
        raise BadIndex(f"{folder}: is missing or damaged ({error}); {AGAIN}: it is made again") from error


def _is_sound(folder: Path) -> bool:
    try:
        check_files(folder, _sums_of(folder), whole=True)
    except BadIndex:
        return False
    return True


def build_lists(impacts: Impacts) -> None:
    """Pack what is not packed yet, or damaged, and drop parts that are no longer used.

    Raises OutputFailed: no permission, disk full.
    """
    folder = impacts.folder / STRUCTURES
    spans = {span.name: span for span in spans_of(impacts.ends.whole())}
    for name, span in spans.items():
        if not _is_sound(folder / name):
            with replacing_folder(folder / name, lambda _: ()) as temporary:
                temporary.mkdir(parents=True)
                _write(impacts, span, temporary)
    for stale in folder.glob("lists-*"):
        if stale.name not in spans:
            shutil.rmtree(stale, ignore_errors=True)


def _write(impacts: Impacts, span: Span, folder: Path) -> None:
    ends = impacts.ends[span.first : span.end + 1]
    entries = slice(int(ends[0]), int(ends[-1]))
    words = impacts.words[entries].astype(np.int32)
    frequencies = tally(words, impacts.state.vocabulary)
    order = np.argsort(-frequencies, kind="stable")[: np.count_nonzero(frequencies)]
    numbers = np.full(impacts.state.vocabulary, -1, np.int32)
    numbers[order] = np.arange(len(order), dtype=np.int32)
    bits = impacts.weights[entries].view(np.uint32)
    starts, rows, payload = scatter(Forward(ends - ends[0], numbers[words], bits), len(order))
    postings = Postings(starts, rows, payload.view(np.float32))
    write_lists(folder, postings, np.empty(0, np.uint8), span.end - span.first)
    save_arrays(folder, numbers=numbers)
    write_id_order(folder, impacts.ids.take(np.arange(span.first, span.end)))
    sums = sums_of(folder)
    (folder / _SUMS).write_bytes(sealed(msgspec.json.encode(sums)))


class ImpactLists(TermLists):
    """The packed postings of some documents.

    Attributes:
        first: The first document.
        numbers: (v,) word -> number of its list, -1 for none.
    """

    scores, again = True, AGAIN

    def __init__(self, folder: Path, sums: dict[str, FileSum], impacts: Impacts, span: Span) -> None:
        super().__init__(folder, sums)
        self.first, self.rows, self._impacts = span.first, span.end - span.first, impacts
        self.numbers: Int32s = self._map("numbers.npy").whole()
        none = np.empty(0, np.int32)
        self._id_order, self._id_rank = (
            self._map(f"{name}.npy").whole() if f"{name}.npy" in sums else none for name in OPTIONAL
        )

    @property
    def is_sorted(self) -> bool:
        """Whether the documents stand in the order of their ids."""
        return not len(self._id_order)

    def verify(self) -> None:
        """Compare the files, as :meth:`PackedImpacts.verify` does."""
        check_files(self.folder, self._sums, whole=True, again=self.again)

    def opened(self) -> tuple[NDArray[Any], ...]:
        """Return the arrays that the compiled kernel keeps open; only lists that were checked may be read."""
        codes, lengths = np.zeros(self.rows, np.uint8), np.zeros(self.rows, np.int32)
        ids = self._impacts.ids
        at = np.ascontiguousarray(ids.offsets.whole()[self.first : self.first + self.rows + 1])
        none = np.empty(0, np.uint8)
        ranks = self._id_rank, self._id_order
        return *super().opened(), codes, lengths, *ranks, none, ids.blob.whole(), at


class PackedImpacts:
    """All packed postings of impacts, open to be searched; safe to share between threads.

    Raises BadIndex: a part is missing or damaged.
    """

    def __init__(self, impacts: Impacts) -> None:
        self.impacts = impacts
        self.parts = [self._open(span) for span in spans_of(impacts.ends.whole())]

    def _open(self, span: Span) -> ImpactLists:
        folder = self.impacts.folder / STRUCTURES / span.name
        return ImpactLists(folder, _sums_of(folder), self.impacts, span)

    def verify(self) -> None:
        """Read every file whole and compare it with what was written. Raises BadIndex: one differs."""
        for part in self.parts:
            part.verify()

    @cached_property
    def opened(self) -> object:
        """Impacts as the compiled kernel reads them."""
        return _kernel.open_segments([part.opened() for part in self.parts])

    @cached_property
    def id_rank(self) -> Int32s:
        """Place of every document in the order of ids, (documents,)."""
        ids = self.impacts.ids.take(np.arange(len(self.impacts)))
        rank = np.empty(len(ids), np.int32)
        rank[sorted(range(len(ids)), key=ids.__getitem__)] = np.arange(len(ids), dtype=np.int32)
        return rank

    @cached_property
    def in_id_order(self) -> bool:
        """Whether all documents stand in the order of their ids, parts included."""
        if not all(part.is_sorted for part in self.parts):
            return False
        ids = self.impacts.ids
        return all(ids[part.first - 1] < ids[part.first] for part in self.parts[1:])

    def find(self, words: NDArray[np.integer[Any]]) -> Int32s:
        """Find the lists of words in every part, -1 for none, (n, parts); they may be read then."""
        numbers = np.empty((len(words), len(self.parts)), np.int32)
        for place, part in enumerate(self.parts):
            numbers[:, place] = part.numbers[words]
            part.check_lists(numbers[:, place])
        return numbers


STRUCTURES: Final = "structures"


@runtime_checkable
class QueryWeigher(Protocol):
    """Weigher of the words of queries."""

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever the weights could."""
        ...

    @property
    def vocabulary(self) -> int:
        """Number of words, v."""
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
    """Valid part of the files, and how they were made."""

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


class Impacts(EncodedData[ImpactsState]):
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

        Raises BadIndex: one is missing or damaged.
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
