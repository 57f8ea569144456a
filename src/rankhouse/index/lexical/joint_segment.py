"""A segment made of documents of other segments, which were analysed alike: nothing is analysed again.

Their terms get the numbers of one dictionary of all, and their texts stay packed wherever the same documents
make a block. A segment that begins and ends as another one is copied.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, compress, groupby
from operator import ne
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rankhouse.index.lexical.growing import SegmentFolder
from rankhouse.index.lexical.kernel import Forward, Int32s, counts_up_to
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import Segment, write_joint_arrays
from rankhouse.index.lexical.store import Stored

_AT_ONCE = 1 << 20  # numpy looks up by copies of the numbers in 8 bytes each


class Stretch(NamedTuple):
    """Documents of one block of a segment.

    Attributes:
        segment: The segment.
        rows: (n,) their rows there, ascending.
        lengths: (n,) how many tokens each has.
        texts: n titles, texts and extra fields.
        packed: The block, if they are all that it holds.
    """

    segment: Segment
    rows: NDArray[np.int64]
    lengths: Int32s
    texts: Sequence[Stored]
    packed: memoryview | None


class JointSegment:
    """A segment being filled with documents of others.

    Attributes:
        filled: Tokens it has.
    """

    def __init__(self, folder: Path) -> None:
        self._folder, self.filled = SegmentFolder(folder), 0
        self._rows = list[tuple[Segment, NDArray[np.int64]]]()
        self._blank = 0

    def add(self, chunk: Sequence[Stretch], tokens: int, blank: int) -> None:
        """Add documents."""
        for stretch in chunk:
            self._rows.append((stretch.segment, stretch.rows))
            self._folder.store.copy(stretch.texts, stretch.packed)
        self.filled += tokens
        self._blank += blank

    def abandon(self) -> None:
        """Let go of the open file; harmless after :meth:`close`."""
        self._folder.abandon()

    def close(self) -> SegmentEntry:
        """Write what is left to be written."""
        self._folder.finish_store()
        sources = [
            (group[0][0], np.concatenate([rows for _, rows in group]))
            for group in (list(pairs) for _, pairs in groupby(self._rows, lambda pair: id(pair[0])))
        ]
        lengths = np.concatenate([segment.lengths[rows] for segment, rows in sources])
        (one, rows), *others = sources
        if not others and len(rows) == one.documents:
            one.copy_arrays(self._folder.path)
        else:
            ids = list(chain.from_iterable(segment.ids.take(rows) for segment, rows in sources))
            terms, forward = _joined([(segment, segment.bags(rows)) for segment, rows in sources])
            write_joint_arrays(self._folder.path, ids, terms, forward, lengths)
        return self._folder.entry(lengths, len(lengths) - self._blank)


def _joined(bags: Sequence[tuple[Segment, Forward]]) -> tuple[list[str], Forward]:
    """Number the terms of documents of several segments alike.

    Returns:
        The distinct terms, sorted, and the terms of all documents by their places among these.
    """
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
