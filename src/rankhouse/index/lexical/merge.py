"""Indexes made of indexes: those of shards become one, those of earlier versions one of this version.

Where segments end depends on all documents before, so only those that the first shard has whole are copied:
the others are cut again, at the ends of the same chunks as in a build, and put together of what the shards'
segments hold. Texts are not analysed again, since each segment's forward index holds the terms of its
documents with their counts, in the order of their first occurrence, which is all that a build keeps of the
order. Memory is that of a build.

Versions 1 and 2 kept postings and documents' terms as plain arrays. Nothing is analysed again: a segment
becomes what a build of the same documents writes today. Vectors stay, since the documents do: the next
``rankhouse encode`` compares the texts and encodes none of them again.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.index import Index
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.build import BuildOptions, BuildReport, ends_chunk, new_index, tidy
from rankhouse.index.lexical.growing import BlockRows, GrowingSegments, JointSegment
from rankhouse.index.lexical.kernel import Forward
from rankhouse.index.lexical.manifest import IndexManifest, SegmentEntry, check_files
from rankhouse.index.lexical.segment import Segment
from rankhouse.index.lexical.store import DocumentStore, StoreWriter, Strings
from rankhouse.index.lexical.write import sums_of, write_counted
from rankhouse.io.checksums import CheckedArray
from rankhouse.io.outputs import only_writer, writing_failures

_Taken = list[tuple[Segment, NDArray[np.bool_]]]
"""Segments, and which of their documents are taken."""


class IdRule(Protocol):
    """Rule for documents whose id was given before."""

    def takes(self, document: Document, index: Index) -> bool:
        """Return whether a document is taken, or raise."""
        ...

    def check(self) -> None:
        """Raise if anything is wrong that was left open."""
        ...


def merge(
    indexes: Sequence[Index], out: Path, options: BuildOptions, rule: IdRule, progress: Progress = ignore
) -> BuildReport:
    """Build an index of the documents of others, which were analysed alike.

    Raises WrongUse: the folder exists; BadData: there are no documents; BadIndex: one of the indexes is
    damaged; OutputFailed: no permission, disk full.
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


_COPIED = ("store.bin", "block_rows.npy", "block_starts.npy")


def upgrade(folder: Path, progress: Progress = ignore) -> int:
    """Rewrite an index of an earlier version in its place; until the end it is what it was.

    Args:
        progress: Progress callback, in documents.

    Returns:
        How many documents were rewritten: 0 where it is of this version already.

    Raises MissingInput: there is no such folder; BadIndex: it is no index, or a file of it is damaged;
    OutputFailed: no permission, disk full; the index stays as it was.
    """
    manifest.load(folder, older=True)
    with only_writer(folder), writing_failures(folder):
        before = manifest.load(folder, older=True)
        tidy(folder, before)  # also what an upgrade that was killed at its end did not remove
        if before.version == manifest.VERSION:
            return 0
        segments, first = folder / "segments", 1 + max(int(entry.folder) for entry in before.segments)
        done, total = 0, sum(entry.documents for entry in before.segments)
        try:
            entries = list[SegmentEntry]()
            for number, entry in enumerate(before.segments, first):
                progress(done, total)
                entries.append(_rewritten(segments, entry, f"{number:06d}", repack=before.version == 1))
                done += entry.documents
            IndexManifest(before.analyzer, tuple(entries), earlier=before.prefixes()).save(folder)
        finally:
            tidy(folder, manifest.load(folder, older=True))
        progress(done, total)
    return done


def _rewritten(segments: Path, entry: SegmentEntry, name: str, *, repack: bool) -> SegmentEntry:
    """Write a segment of an earlier version as one of this; the texts of the first have no checksums."""
    old, new = segments / entry.folder, segments / name
    check_files(old, entry.files, whole=True)
    new.mkdir()
    if repack:
        _repack(old, new)
    else:
        for copied in _COPIED:
            shutil.copyfile(old / copied, new / copied)
    ends, terms, tfs = (_array(old, f"forward_{column}") for column in ("at", "terms", "tfs"))
    lengths = _array(old, "lengths")
    if not len(ends) - 1 == len(lengths) == entry.documents or not len(terms) == len(tfs) == ends[-1]:
        raise BadIndex(f"{old}: its arrays are not those of {entry.documents:,} documents; build it again")
    forward = Forward(ends, terms.copy(), np.ascontiguousarray(tfs))
    write_counted(new, _strings(old, "ids"), _strings(old, "terms"), forward, lengths=np.array(lengths))
    return SegmentEntry(
        name, entry.documents, entry.with_text, entry.with_terms, tokens=entry.tokens, files=sums_of(new)
    )


def _repack(old: Path, new: Path) -> None:
    """Write texts again, each block with its checksum."""
    texts, names = (CheckedArray(np.memmap(old / name, np.uint8, "r")) for name in ("store.bin", "ids.bin"))
    rows, starts, ends = (
        CheckedArray(_array(old, name)) for name in ("block_rows", "block_starts", "ids_at")
    )
    ids = Strings(names, ends)
    store = DocumentStore(old / "store.bin", texts, rows, block_starts=starts, ids=ids, sealed=False)
    with (new / "store.bin").open("wb") as blocks:
        writer = StoreWriter(blocks)
        for document in store.stream(0, len(ids)):
            writer.add(document)
        for name, array in writer.finish().items():
            np.save(new / f"{name}.npy", array, allow_pickle=False)


def _array(folder: Path, name: str) -> NDArray[Any]:
    array: NDArray[Any] = np.load(folder / f"{name}.npy", mmap_mode="r", allow_pickle=False)
    return array


def _strings(folder: Path, name: str) -> list[str]:
    blob, ends = (folder / f"{name}.bin").read_bytes(), _array(folder, f"{name}_at").tolist()
    return [str(blob[start:end], "utf-8") for start, end in pairwise(ends)]
