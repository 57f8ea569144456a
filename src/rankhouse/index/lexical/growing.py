"""The segments of a build or a merge: those closed, and the one being filled, with texts or from others."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import chain, compress, count, groupby
from operator import ne
from pathlib import Path
from typing import Final, Generic, NamedTuple, TypeVar

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData
from rankhouse.core.nouns import Document
from rankhouse.index.lexical.analysis import AnalysedTexts
from rankhouse.index.lexical.kernel import Forward, Int32s, counts_up_to
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import Segment
from rankhouse.index.lexical.store import Stored, StoreWriter
from rankhouse.index.lexical.write import Titles, sums_of, write_arrays, write_counted


def is_blank(document: Document) -> bool:
    """Return whether a document has neither title nor text."""
    return not (document.text.strip() or document.title.strip())


class OpenSegment(ABC):
    """The folder of a segment being filled; each kind adds documents in its own way.

    Attributes:
        filled: Tokens so far.
        store: Where texts go.
    """

    def __init__(self, path: Path) -> None:
        path.mkdir(parents=True)
        self.path, self.filled = path, 0
        self._blocks = (path / "store.bin").open("wb")
        self.store = StoreWriter(self._blocks)

    def close(self) -> SegmentEntry:
        """Write what is left to be written; return what the manifest says of the segment."""
        blocks = self.store.finish()
        self._blocks.close()
        for name, array in blocks.items():
            np.save(self.path / f"{name}.npy", array)
        lengths, with_text = self.write_arrays()
        every, titles = lengths.sum(1), int(lengths[:, 0].sum()) if lengths.shape[1] > 1 else None
        tokens, with_terms, files = int(every.sum()), int(np.count_nonzero(every)), sums_of(self.path)
        return SegmentEntry(
            self.path.name, len(every), with_text, with_terms, tokens=tokens, files=files, title_tokens=titles
        )

    @abstractmethod
    def write_arrays(self) -> tuple[NDArray[np.int32], int]:
        """Write everything but the texts; return lengths as of ``write_arrays``, and how many have text."""

    def abandon(self) -> None:
        """Let go of the open file; harmless after :meth:`close`."""
        self._blocks.close()


S = TypeVar("S", bound=OpenSegment)


class GrowingSegments(Generic[S]):
    """The segments of one build: those closed, and the one being filled, if any."""

    def __init__(self, folder: Path, first: int, capacity: int, begin: Callable[[Path, int], S]) -> None:
        self._folder, self._first, self._capacity, self._begin = folder, first, capacity, begin
        self._open: S | None = None
        self.entries: list[SegmentEntry] = []

    def is_full_for(self, tokens: int) -> bool:
        """Return whether the segment being filled has no room for so many tokens."""
        return self._open is not None and self._open.filled + tokens > self._capacity

    def current(self, tokens: int) -> S:
        """Return the segment being filled, or a new one with room for so many tokens."""
        if self._open is None:
            folder = self._folder / f"{self._first + len(self.entries):06d}"
            self._open = self._begin(folder, max(self._capacity, tokens))
        return self._open

    def close(self) -> None:
        """Write the segment being filled; nothing of it stays in memory."""
        if self._open is not None:
            self.entries.append(self._open.close())
            self._open = None

    def __enter__(self) -> GrowingSegments[S]:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        """Close the last segment, or let go of the open file of one that will not be finished.

        Raises BadData: there is no segment at all.
        """
        try:
            if kind is None:
                self.close()
        finally:
            if self._open is not None:
                self._open.abandon()
        if kind is None and not self.entries:
            raise BadData(
                "there are no documents to index; is the corpus empty, or was every record skipped?"
            )


class AnalysedSegment(OpenSegment):
    """A segment being filled with analysed documents."""

    def __init__(self, folder: Path, capacity: int) -> None:
        super().__init__(folder)
        self._tokens = np.empty(capacity, np.int32)
        self._lengths = list[NDArray[np.int32]]()
        self._terms: dict[str, int] = {}
        self._ids = list[str]()
        self._with_text = 0

    def add(self, documents: list[Document], analysed: AnalysedTexts) -> None:
        """Add documents."""
        end = self.filled + len(analysed.tokens)
        if analysed.first == len(self._terms):
            # Numbered from where this segment stands: nothing to translate.
            self._terms.update(zip(analysed.terms, count(analysed.first), strict=False))
            self._tokens[self.filled : end] = analysed.tokens
        else:
            assert analysed.first == 0, "only a chunk numbered on its own can be translated"
            numbers = [self._terms.setdefault(term, len(self._terms)) for term in analysed.terms]
            self._tokens[self.filled : end] = np.array(numbers, np.int32)[analysed.tokens]
        self.filled = end
        self._lengths.append(analysed.lengths.reshape(len(documents), -1))
        for document in documents:
            self._ids.append(document.id)
            self._with_text += not is_blank(document)
            self.store.add(document)

    def write_arrays(self) -> tuple[NDArray[np.int32], int]:
        """Write everything but the texts."""
        lengths = np.concatenate(self._lengths)
        tokens = self._tokens[: self.filled]
        write_arrays(self.path, self._ids, list(self._terms), tokens, lengths=lengths)
        return lengths, self._with_text


_AT_ONCE: Final = 1 << 20  # numpy looks up by copies of the numbers in 8 bytes each


class BlockRows(NamedTuple):
    """Documents of one block of a segment."""

    segment: Segment  # the segment
    rows: NDArray[np.int64]  # (n,) their rows there, ascending
    lengths: Int32s  # (n,) how many tokens each has
    texts: Sequence[Stored]  # n titles, texts and extra fields
    packed: memoryview | None  # the block, if they are all that it holds


class JointSegment(OpenSegment):
    """A segment being filled with documents of others."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._rows = list[tuple[Segment, NDArray[np.int64]]]()
        self._blank = 0

    def add(self, chunk: Sequence[BlockRows], tokens: int, blank: int) -> None:
        """Add documents."""
        for block in chunk:
            self._rows.append((block.segment, block.rows))
            self.store.copy(block.texts, block.packed)
        self.filled += tokens
        self._blank += blank

    def write_arrays(self) -> tuple[NDArray[np.int32], int]:
        """Write everything but the texts."""
        sources = [
            (group[0][0], np.concatenate([rows for _, rows in group]))
            for group in (list(pairs) for _, pairs in groupby(self._rows, lambda pair: id(pair[0])))
        ]
        lengths = np.concatenate([s.lengths_among_all(exact=True)[rows] for s, rows in sources])
        fields = all(segment.has_fields for segment, _ in sources)
        title = np.concatenate([s.title_lengths[rows] for s, rows in sources]) if fields else lengths
        (one, rows), *others = sources
        if not others and len(rows) == one.rows and not len(one.dead):
            one.copy_arrays(self.path)
        else:
            ids = list(chain.from_iterable(segment.ids_among_all(rows) for segment, rows in sources))
            terms, forward = _joined([(segment, segment.bags_among_all(rows)) for segment, rows in sources])
            counts = np.concatenate([s.title_bags_among_all(rows) for s, rows in sources]) if fields else None
            titles = None if counts is None else Titles(counts, title)
            write_counted(self.path, ids, terms, forward, lengths=lengths, titles=titles)
        parts = np.stack([title, lengths - title] if fields else [lengths], 1)
        return parts, len(lengths) - self._blank


def _joined(bags: Sequence[tuple[Segment, Forward]]) -> tuple[list[str], Forward]:
    """Number the terms of documents of several segments alike."""
    numbers = [_distinct(segment, bag) for segment, bag in bags]
    names = [segment.terms.take(own) for (segment, _), own in zip(bags, numbers, strict=True)]
    joint, places_of = _places(names)
    highest = max(int(bag.tfs.max(initial=0)) for _, bag in bags)
    terms = np.empty(sum(len(bag.terms) for _, bag in bags), np.int32)
    at = 0
    for (segment, bag), own, there in zip(bags, numbers, places_of, strict=True):
        places = np.empty(len(segment.terms), np.int32)
        places[own] = there
        for start in range(0, len(bag.terms), _AT_ONCE):
            some = bag.terms[start : start + _AT_ONCE]
            terms[at : at + len(some)] = places[some]
            at += len(some)
    sizes = np.concatenate([np.diff(bag.ends) for _, bag in bags])
    tfs = np.concatenate([bag.tfs.astype(counts_up_to(highest), copy=False) for _, bag in bags])
    return joint, Forward(np.concatenate([[0], np.cumsum(sizes)]), terms, tfs)


def _places(names: Sequence[Sequence[str]]) -> tuple[list[str], list[Int32s]]:
    """Join sorted lists: the distinct names, sorted, and the place of each list's names among these."""
    every = list(chain.from_iterable(names))
    order = np.array(sorted(range(len(every)), key=every.__getitem__), np.int64)  # sorted runs: merged only
    ordered = [every[place] for place in order.tolist()]
    is_new = [True, *map(ne, ordered[1:], ordered)]
    places = np.empty(len(every), np.int32)
    places[order] = np.cumsum(is_new[: len(every)]) - 1
    ends = np.cumsum([len(some) for some in names])
    return list(compress(ordered, is_new)), np.split(places, ends[:-1])


def _distinct(segment: Segment, bag: Forward) -> NDArray[np.int64]:
    """Return the numbers of the terms that occur, ascending."""
    occurs = np.zeros(len(segment.terms), bool)
    for start in range(0, len(bag.terms), _AT_ONCE):
        occurs[bag.terms[start : start + _AT_ONCE]] = True
    return np.flatnonzero(occurs)


def without_deleted(segment: Segment, entry: SegmentEntry, folder: Path) -> SegmentEntry:
    """Write a segment again, as if its deleted documents had never been there; their order stays.

    Raises BadIndex: a file of the segment is damaged.
    """
    joint, blank = JointSegment(folder), entry.documents - entry.with_text
    lengths, alive = segment.lengths_among_all(exact=True), np.ones(segment.rows, bool)
    alive[segment.dead] = False
    try:
        for first, texts, packed in segment.store.blocks():
            places = np.flatnonzero(alive[first : first + len(texts)])
            if not len(places):
                continue
            is_whole, rows = len(places) == len(texts), first + places
            kept = texts if is_whole else [texts[place] for place in places.tolist()]
            block = BlockRows(segment, rows, lengths[rows], kept, packed=packed if is_whole else None)
            joint.add([block], int(lengths[rows].sum(dtype=np.int64)), blank)
            blank = 0
        return joint.close()
    finally:
        joint.abandon()
