"""Impacts as packed postings, in parts of consecutive documents: what the kernel searches.

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
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.index.append_state import AGAIN
from rankhouse.index.impacts.impacts import STRUCTURES, Impacts
from rankhouse.index.lexical import kernel
from rankhouse.index.lexical.arrays import OPTIONAL, check_files
from rankhouse.index.lexical.kernel import Forward, Int32s, Int64s, Postings, scatter, tally
from rankhouse.index.lexical.segment import TermLists
from rankhouse.index.lexical.write import save_arrays, sums_of, write_id_order, write_lists
from rankhouse.io.checksums import BadEnvelope, FileSum, sealed, unsealed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import replacing_folder

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

    Raises:
        OutputFailed: No permission, disk full.
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

    Raises:
        BadIndex: A part is missing or damaged.
    """

    def __init__(self, impacts: Impacts) -> None:
        self.impacts = impacts
        self.parts = [self._open(span) for span in spans_of(impacts.ends.whole())]

    def _open(self, span: Span) -> ImpactLists:
        folder = self.impacts.folder / STRUCTURES / span.name
        return ImpactLists(folder, _sums_of(folder), self.impacts, span)

    def verify(self) -> None:
        """Read every file whole and compare it with what was written.

        Raises:
            BadIndex: One differs.
        """
        for part in self.parts:
            part.verify()

    @cached_property
    def opened(self) -> object:
        """What the compiled kernel reads."""
        return kernel.open_segments([part.opened() for part in self.parts])

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
