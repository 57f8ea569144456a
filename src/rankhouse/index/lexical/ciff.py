"""CIFF file -> Index, and Index -> CIFF file (``io/ciff.py``).

A file holds postings by term and an index has segments of consecutive documents, so postings are first laid
aside on disk by ranges of documents; memory is that of a build, whatever the file's size. What comes of it is
an index without texts: its segments have no store.
"""

from __future__ import annotations

import heapq
import shutil
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain, groupby
from operator import itemgetter
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rankhouse import __version__
from rankhouse.core import notation
from rankhouse.core.errors import BadData, DuplicateId
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, BuildReport, new_index
from rankhouse.index.lexical.kernel import Forward, Int64s, Postings, counts_up_to, scatter
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import Segment
from rankhouse.index.lexical.write import sums_of, write_counted
from rankhouse.io.ciff import CiffDocuments, CiffHeader, Lists, reading_ciff, write_ciff
from rankhouse.io.files import Meter
from rankhouse.io.outputs import writing_failures
from rankhouse.text.analyze import ANALYZERS

_RANGES: Final = 256
_AT_ONCE: Final = 1_000
"""Postings lists that are encoded together."""


def build_from_ciff(path: Path, out: Path, options: BuildOptions, progress: Progress = ignore) -> BuildReport:
    """Build an index of the postings in a CIFF file; it has no texts.

    Args:
        options: The analyzer has to be the one that made the file's terms: it will make those of queries.
        progress: Progress callback, in bytes of the file.

    Raises WrongUse: the folder exists, or the analyzer is unknown; BadData: the file is no sound CIFF, or
    holds a part of a collection's documents only; DuplicateId: two documents have one id; OutputFailed: no
    permission, disk full.
    """
    notation.make(options.analyzer, ANALYZERS, "analyzer")

    def write(scratch: Path) -> tuple[BuildReport, list[SegmentEntry]]:
        meter = Meter()
        with reading_ciff(path, meter) as reader:
            aside = _LaidAside(scratch / "ranges", _checked(reader.header, path).documents)
            terms = dict[str, int]()
            for lists in reader.lists():
                _number(lists.terms, terms, path)
                aside.add(lists, len(terms) - len(lists.terms))
                progress(meter.bytes)
            documents = reader.documents()
        if len(set(documents.ids)) < len(documents.ids):
            raise _twice(documents.ids, path)
        entries = list(
            _segments(aside, list(terms), documents, scratch / "segments", tokens=options.segment_tokens)
        )
        shutil.rmtree(aside.folder)
        # Lengths may have been rounded by the exporter; the sum of all is exact.
        missing = (reader.header.tokens or int(documents.lengths.sum())) - sum(one.tokens for one in entries)
        last = entries.pop()
        entries.append(_with_tokens(last, last.tokens + missing))
        without = np.flatnonzero(documents.lengths == 0)
        first = tuple(documents.ids[row] for row in without[:5].tolist())
        tokens = sum(one.tokens for one in entries)
        return BuildReport(len(documents.ids), tokens, without_terms=len(without), wordless=first), entries

    return new_index(out, options, write)


def _with_tokens(entry: SegmentEntry, tokens: int) -> SegmentEntry:
    counts = entry.documents, entry.with_text, entry.with_terms
    return SegmentEntry(entry.folder, *counts, tokens=tokens, files=entry.files)


def _checked(header: CiffHeader, path: Path) -> CiffHeader:
    if not header.documents:
        raise BadData("holds no documents", path)
    if header.all_documents > header.documents:
        raise BadData(
            f"holds {header.documents:,} of its collection's {header.all_documents:,} documents, whose "
            "frequencies are those of all; export the whole collection",
            path,
        )
    return header


def _twice(ids: Sequence[str], path: Path) -> DuplicateId:
    [(first, _)] = Counter(ids).most_common(1)
    return DuplicateId(f'the id "{first}" is given to two documents; ids must differ', path)


class _LaidAside:
    """Postings on disk, by ranges of documents: row, term, count."""

    def __init__(self, folder: Path, documents: int) -> None:
        folder.mkdir(parents=True)
        self.folder, self.size = folder, -(-documents // _RANGES)
        self.tokens = np.zeros(-(-documents // self.size), np.int64)

    def add(self, lists: Lists, first: int) -> None:
        """Lay lists aside, whose terms have the numbers from ``first`` on."""
        terms = first + np.repeat(np.arange(len(lists.terms)), np.diff(lists.starts))
        of_range = (lists.rows // self.size).astype(np.uint8)
        order = np.argsort(of_range, kind="stable")
        table = np.stack([lists.rows, terms, lists.counts], 1)[order].astype("<i4")
        self.tokens += np.bincount(of_range, lists.counts, len(self.tokens)).astype(np.int64)
        edges = np.searchsorted(of_range[order], np.arange(len(self.tokens) + 1))
        for number in np.flatnonzero(np.diff(edges)).tolist():
            with (self.folder / str(number)).open("ab") as file:
                table[edges[number] : edges[number + 1]].tofile(file)

    def spans(self, tokens: int) -> Iterator[range]:
        """Put ranges together that hold so many tokens at most, if more than one."""
        first, held = 0, 0
        for number, own in enumerate(self.tokens.tolist()):
            if number > first and held + own > tokens:
                yield range(first, number)
                first, held = number, 0
            held += own
        yield range(first, len(self.tokens))

    def read(self, span: range, documents: int) -> Forward:
        """Read the terms of the documents of ranges, as they are numbered in the file."""
        counts, terms, tfs = list[Int64s](), list[NDArray[np.int32]](), list[NDArray[np.int32]]()
        for number in span:
            path, first = self.folder / str(number), number * self.size
            content = path.read_bytes() if path.exists() else b""
            table = np.frombuffer(content, "<i4").reshape(-1, 3)
            rows = table[:, 0] - first
            order = np.argsort(rows, kind="stable")
            counts.append(np.bincount(rows, minlength=min(self.size, documents - first)))
            terms.append(table[order, 1])
            tfs.append(table[order, 2])
        highest = max(int(some.max(initial=0)) for some in tfs)
        every = np.concatenate([np.zeros(1, np.int64), *counts])
        small = [some.astype(counts_up_to(highest)) for some in tfs]
        return Forward(np.cumsum(every), np.concatenate(terms), np.concatenate(small))


def _number(fresh: Sequence[str], terms: dict[str, int], path: Path) -> None:
    """Number terms from where the others end."""
    for term in fresh:
        if terms.setdefault(term, number := len(terms)) != number:
            raise BadData(f'two of its postings lists are of "{term[:80]}"; terms must differ', path)


def _segments(
    aside: _LaidAside, terms: Sequence[str], documents: CiffDocuments, folder: Path, tokens: int
) -> Iterator[SegmentEntry]:
    """Write segment after segment."""
    for number, span in enumerate(aside.spans(tokens)):
        forward = aside.read(span, len(documents.ids))
        rows = slice(span.start * aside.size, span.stop * aside.size)
        lengths = documents.lengths[rows].astype(np.int32)
        own = np.unique(forward.terms)
        places = np.empty(len(terms), np.int32)
        places[own] = np.arange(len(own), dtype=np.int32)
        forward = forward._replace(terms=places[forward.terms])
        out = folder / f"{number:06d}"
        out.mkdir(parents=True)
        write_counted(
            out, documents.ids[rows], [terms[one] for one in own.tolist()], forward, lengths=lengths
        )
        with_terms = int(np.count_nonzero(lengths))
        counts = len(lengths), with_terms, with_terms, int(lengths.sum(dtype=np.int64))
        yield SegmentEntry(out.name, *counts, files=sums_of(out))


# --- export -------------------------------------------------------------------------------------------------


def write_index(index: Index, path: Path, progress: Progress = ignore) -> None:
    """Write an index's terms, postings, ids and true lengths into a CIFF file, compressed by its suffix.

    Deleted documents are left out; terms are sorted. Memory is that of a segment.

    Args:
        progress: Progress callback, in terms.

    Raises BadIndex: the index is damaged; OutputFailed: no permission, disk full.
    """
    terms, all_of = index.distinct_terms(), index.collection
    header = CiffHeader(
        *(terms, all_of.documents, terms, all_of.documents, all_of.tokens),
        mean_length=all_of.tokens / max(1, all_of.with_terms),
        description=f"rankhouse {__version__}, analyzer {index.manifest.analyzer}",
    )
    lengths = chain.from_iterable(segment.lengths.tolist() for segment in index.segments)
    with TemporaryDirectory(prefix="rankhouse.") as folder, writing_failures(Path(folder)):
        firsts = zip(index.segments, index.starts.tolist(), strict=False)
        parts = [_postings_of(segment, first, Path(folder)) for segment, first in firsts]
        write_ciff(path, header, joined(parts, terms, progress), zip(index.documents, lengths, strict=True))
        parts.clear()  # Windows removes no file that is mapped


_Postings = tuple[str, int, NDArray[np.int32], NDArray[Any]]
"""A term, the first document of a segment, and in its terms the rows that hold the term, and the counts."""


def _postings_of(segment: Segment, first: int, folder: Path) -> Iterator[_Postings]:
    """Yield the postings of a segment by sorted terms; until they are asked for, they lie on disk."""
    postings = scatter(segment.bags(np.arange(segment.documents)), len(segment.terms))
    return laid_aside(postings, segment.terms.take(np.arange(len(segment.terms))), first, folder)


def laid_aside(postings: Postings, names: Sequence[str], first: int, folder: Path) -> Iterator[_Postings]:
    """Lay postings of documents from ``first`` on aside on disk, and return them by sorted terms."""
    starts, held = postings.starts, np.flatnonzero(np.diff(postings.starts)).tolist()
    kept = list[NDArray[Any]]()
    for name, array in (("rows", postings.rows), ("tfs", postings.payload)):
        np.save(path := folder / f"{first}-{name}.npy", array)
        kept.append(np.load(path, mmap_mode="r"))

    def in_order() -> Iterator[_Postings]:
        for number in sorted(held, key=names.__getitem__):
            span = slice(int(starts[number]), int(starts[number + 1]))
            yield names[number], first, kept[0][span], kept[1][span]

    return in_order()


def joined(parts: Sequence[Iterator[_Postings]], terms: int, progress: Progress) -> Iterator[Lists]:
    """Join the postings of parts of a collection, term after term."""
    postings = heapq.merge(*parts, key=itemgetter(0, 1))
    names, sizes, rows, counts = list[str](), list[int](), list[Int64s](), list[Int64s]()
    for done, (term, places) in enumerate(groupby(postings, itemgetter(0)), 1):
        names.append(term)
        sizes.append(0)
        for _, first, some, tfs in places:
            rows.append(some.astype(np.int64) + first)
            counts.append(tfs.astype(np.int64))
            sizes[-1] += len(some)
        if len(names) == _AT_ONCE or done == terms:
            yield Lists(names, np.cumsum([0, *sizes]), np.concatenate(rows), np.concatenate(counts))
            progress(done, terms)
            names, sizes, rows, counts = [], [], [], []
