"""Indexes of shards of a collection become the index that one build of the whole collection makes.

Where segments end depends on all documents before, so only those that the first shard has whole are copied:
the others are cut again, at the ends of the same chunks as in a build, and put together of what the shards'
segments hold. Texts are not analysed again, since each segment's forward index holds the terms of its
documents with their counts, in the order of their first occurrence, which is all that a build keeps of the
order. Memory is that of a build.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, compress, groupby
from operator import ne
from pathlib import Path
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, BuildReport, ends_chunk, new_index
from rankhouse.index.lexical.growing import GrowingSegments, OpenSegment
from rankhouse.index.lexical.kernel import Forward, Int32s, counts_up_to
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import Segment
from rankhouse.index.lexical.store import Stored
from rankhouse.index.lexical.write import write_counted

_AT_ONCE = 1 << 20  # numpy looks up by copies of the numbers in 8 bytes each


class BlockRows(NamedTuple):
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
        (one, rows), *others = sources
        if not others and len(rows) == one.rows and not len(one.dead):
            one.copy_arrays(self.path)
        else:
            ids = list(chain.from_iterable(segment.ids_among_all(rows) for segment, rows in sources))
            terms, forward = _joined([(segment, segment.bags_among_all(rows)) for segment, rows in sources])
            write_counted(self.path, ids, terms, forward, lengths=lengths)
        return lengths, len(lengths) - self._blank


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


_Taken = list[tuple[Segment, NDArray[np.bool_]]]
"""Segments, and which of their documents are taken."""


class IdRule(Protocol):
    """What becomes of documents whose id was given before."""

    def takes(self, document: Document, index: Index) -> bool:
        """Return whether a document is taken, or raise."""
        ...

    def check(self) -> None:
        """Raise if anything is wrong that was left open."""
        ...


def merge(
    indexes: Sequence[Index],
    out: Path,
    options: BuildOptions,
    rule: IdRule,
    progress: Progress = ignore,
) -> BuildReport:
    """Build an index of the documents of others, which were analysed alike.

    Raises:
        WrongUse: The folder exists.
        BadData: There are no documents.
        BadIndex: One of the indexes is damaged.
        OutputFailed: No permission, disk full.
    """
    count = sum(map(len, indexes))

    def write(scratch: Path) -> tuple[BuildReport, list[SegmentEntry]]:
        growing = GrowingSegments(
            scratch / "segments", 0, options.segment_tokens, lambda folder, _: JointSegment(folder)
        )
        report = BuildReport()
        with growing:
            for chunk in _chunks(_taken(indexes, rule)):
                before = report.tokens, report.without_text
                _note(report, chunk)
                tokens, blank = report.tokens - before[0], report.without_text - before[1]
                if growing.is_full_for(tokens):
                    growing.close()
                growing.current(tokens).add(chunk, tokens, blank)
                progress(report.documents, count)
        return report, growing.entries

    return new_index(out, options, write)


def _taken(indexes: Sequence[Index], rule: IdRule) -> _Taken:
    """Find the documents whose id comes again, ask about them, and take all others."""
    segments = [(index, segment) for index in indexes for segment in index.segments]
    keys = [_keys(segment) for _, segment in segments]
    every = np.sort(np.concatenate([np.empty(0, np.int64), *keys]))
    repeated = np.unique(every[1:][every[1:] == every[:-1]])
    taken: _Taken = []
    for (index, segment), own in zip(segments, keys, strict=True):
        takes = np.ones(segment.rows, bool)
        takes[segment.dead] = False
        for row in np.flatnonzero(np.isin(own, repeated)):
            takes[segment.among_all(np.array(row))] = rule.takes(segment.document(int(row)), index)
        taken.append((segment, takes))
    rule.check()
    return taken


def _keys(segment: Segment) -> NDArray[np.int64]:
    """Hash the ids of a segment, 8 bytes each; two of ten million share one with probability 3e-6."""
    ids = segment.ids.take(np.arange(segment.documents))
    return np.fromiter(map(hash, ids), np.int64, segment.documents)


def _chunks(taken: _Taken) -> Iterator[list[BlockRows]]:
    """Gather what a build analyses together, and so puts into one segment."""
    chunk, documents, characters = list[BlockRows](), 0, 0
    for segment, takes in taken:
        lengths = segment.lengths_among_all(exact=True)
        for first, texts, packed in segment.store.blocks():
            wanted = np.flatnonzero(takes[first : first + len(texts)])
            some = texts if len(wanted) == len(texts) else [texts[place] for place in wanted.tolist()]
            start = 0
            for end, (title, text, _) in enumerate(some, 1):
                documents, characters = documents + 1, characters + len(title) + len(text)
                is_last = ends_chunk(documents, characters)
                if is_last or end == len(some):
                    block = packed if end - start == len(texts) else None
                    rows = first + wanted[start:end]
                    chunk.append(BlockRows(segment, rows, lengths[rows], some[start:end], packed=block))
                    start = end
                if is_last:
                    yield chunk
                    chunk, documents, characters = [], 0, 0
    if chunk:
        yield chunk


def _note(report: BuildReport, chunk: Sequence[BlockRows]) -> None:
    """Count documents; only one without terms may have no text."""
    lengths = np.concatenate([block.lengths for block in chunk])
    report.tokens += int(lengths.sum(dtype=np.int64))
    with_terms = int(np.count_nonzero(lengths))
    report.documents += with_terms
    if with_terms == len(lengths):
        return
    for block in chunk:
        for place in np.flatnonzero(block.lengths == 0).tolist():
            title, text, _ = block.texts[place]
            [doc_id] = block.segment.ids_among_all(block.rows[place : place + 1])
            report.note(Document(doc_id, text, title), 0)
