"""Indexes of shards of a collection become the index that one build of the whole collection makes.

Where segments end depends on all documents before, so only those that the first shard has whole are copied:
the others are cut again, at the ends of the same chunks as in a build, and put together of what the shards'
segments hold. Texts are not analysed again, since each segment's forward index holds the terms of its
documents with their counts, in the order of their first occurrence, which is all that a build keeps of the
order. Memory is that of a build.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, BuildReport, ends_chunk, new_index
from rankhouse.index.lexical.growing import BlockRows, GrowingSegments, JointSegment
from rankhouse.index.lexical.manifest import SegmentEntry
from rankhouse.index.lexical.segment import Segment

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
