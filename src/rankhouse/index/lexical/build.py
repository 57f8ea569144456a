"""Documents -> Index: segment after segment, in memory bounded by the segment, whole or absent on disk.

A new index grows in a hidden folder beside its place and is moved there when complete. Documents added to an
index become further segments; the manifest that names them is replaced last. A killed build leaves nothing
that could be mistaken for an index, and the next build clears it away.
"""

from __future__ import annotations

import os
import shutil
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import BadIndex, DuplicateId, RankhouseError, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress
from rankhouse.index.index import Index
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.analysis import AnalysedTexts, Analysts
from rankhouse.index.lexical.growing import AnalysedSegment, GrowingSegments, is_blank, without_deleted
from rankhouse.index.lexical.manifest import DEAD, IndexManifest, SegmentEntry
from rankhouse.index.lexical.segment import Segment
from rankhouse.io.checksums import file_sum
from rankhouse.io.outputs import (
    only_writer,
    others,
    real_path,
    refuse_if_written,
    replacing_folder,
    writing_failures,
)
from rankhouse.io.scratch import tidy_beside
from rankhouse.text.analyze import ANALYZERS

CHUNK_DOCUMENTS = 4_000
CHUNK_CHARACTERS = 2_000_000
_WORN = 1 / 5
"""Deleted documents of a segment, as a share, from which on an append writes it again."""
_EXAMPLES = 5
"""Ids that a warning names."""


@dataclass(frozen=True)
class BuildOptions:
    """Options of building an index.

    Attributes:
        analyzer: Notation of the analyzer: ``english``, ``tweet`` or ``whitespace``.
        segment_tokens: A segment is closed before it holds more tokens than this; peak memory is about
            15 bytes times this number, and the distinct words.
        workers: Analysis processes; 0 takes one a processor.
        overwrite: Replace an index that is already there.
        fields: Count the terms of titles apart as well, for ``bm25f``; another byte or more a posting.
    """

    analyzer: str = "english"
    segment_tokens: int = 1 << 25
    workers: int = 0
    overwrite: bool = False
    fields: bool = False


@dataclass
class BuildReport:
    """Counts of a build.

    Attributes:
        documents: Documents indexed.
        tokens: Terms indexed.
        without_text: Documents whose title and text are empty.
        without_terms: Documents with text in which the analyzer left nothing to search for.
        blank: First few ids of documents without text.
        wordless: First few ids of documents without terms.
    """

    documents: int = 0
    tokens: int = 0
    without_text: int = 0
    without_terms: int = 0
    blank: tuple[str, ...] = ()
    wordless: tuple[str, ...] = ()

    def note(self, document: Document, length: int) -> None:
        """Count one document of ``length`` terms."""
        self.documents += 1
        self.tokens += length
        if length == 0:
            if is_blank(document):
                self.without_text += 1
                self.blank = (*self.blank, document.id)[:_EXAMPLES]
            else:
                self.without_terms += 1
                self.wordless = (*self.wordless, document.id)[:_EXAMPLES]


def build(
    documents: Iterable[Document],
    out: Path | str,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
) -> BuildReport:
    """Build an index.

    Args:
        documents: The collection, streamed once.
        out: The folder to make.
        options: Analyzer, segment size, workers.
        progress: Progress callback, in documents.

    Raises:
        WrongUse: The folder exists, or the analyzer is unknown.
        BadData: There are no documents, or (from the reader) a faulty one.
        OutputFailed: No permission, disk full.
    """
    out, options = Path(out), options or BuildOptions()
    notation.make(options.analyzer, ANALYZERS, "analyzer")
    return new_index(
        out, options, lambda scratch: _write_segments(documents, scratch, 0, options, progress=progress)
    )


def new_index(
    out: Path, options: BuildOptions, write: Callable[[Path], tuple[BuildReport, list[SegmentEntry]]]
) -> BuildReport:
    """Make an index, whole or not at all.

    Raises:
        WrongUse: The folder exists.
        OutputFailed: No permission, disk full.
    """
    refuse_occupied(out, options)
    with only_writer(out), replacing_folder(out, _foreign) as scratch:
        refuse_occupied(out, options)
        report, entries = write(scratch)
        IndexManifest(options.analyzer, tuple(entries)).save(scratch)
        refuse_if_written(out)
    return report


def append(
    documents: Iterable[Document],
    out: Path | str,
    options: BuildOptions | None = None,
    progress: Progress | None = None,
    *,
    update: bool = False,
) -> BuildReport:
    """Add documents to an index, as further segments; its analyzer is kept.

    Args:
        documents: The new documents.
        out: The index's folder.
        options: How to build.
        progress: Progress callback, in documents.
        update: A document whose id the index has takes the place of that one, at the end of the index.

    Raises:
        DuplicateId: A document's id is in the index already, or came before; nothing is changed.
        BadIndex: The folder holds no sound index.
        BadData: There are no documents.
        OutputFailed: No permission, disk full; the index stays as it was.
    """
    out, options, replaced = Path(out), options or BuildOptions(), dict[str, int]()
    manifest.load(out)
    with only_writer(out), writing_failures(out):
        index = Index.open(out)  # only now: another process may have added documents while this one waited
        before = index.manifest
        tidy(out, before)
        options = replace(options, analyzer=before.analyzer, fields=before.with_fields > 0)
        fresh = _replacing(documents, index, replaced) if update else _refuse_known(documents, index)
        first = 1 + max(int(entry.folder) for entry in before.segments)
        worn = [place for place, segment in enumerate(index.segments) if _is_worn(segment)]
        try:
            with ThreadPoolExecutor(1) as background:
                renewed = background.submit(_renewed, index, worn, first)
                report, entries = _write_segments(fresh, out, first + len(worn), options, progress=progress)
            index = renewed.result()
            kept = _without(index, replaced.values())
        except BaseException:
            tidy(out, before)
            raise
        earlier = () if replaced else before.prefixes() if index.manifest is not before else before.earlier
        IndexManifest(before.analyzer, (*kept, *entries), earlier=earlier).save(out)
    return report


def _is_worn(segment: Segment) -> bool:
    """Return whether a segment has so many deleted documents that it is worth writing again."""
    return segment.has_texts and len(segment.dead) >= _WORN * segment.rows


def _renewed(index: Index, worn: Collection[int], first: int) -> Index:
    """Write segments again without their deleted documents, numbered from ``first``; damaged ones stay."""
    entries, segments = list(index.manifest.segments), list(index.segments)
    for number, place in enumerate(worn, first):
        folder = index.path / "segments" / f"{number:06d}"
        try:
            entries[place] = without_deleted(segments[place], entries[place], folder)
        except BadIndex:  # the damage is reported when the segment is read
            shutil.rmtree(folder, ignore_errors=True)
            continue
        segments[place] = Segment(folder, entries[place].files)
    if segments == index.segments:
        return index
    return Index(index.path, IndexManifest(index.manifest.analyzer, tuple(entries)), segments)


def delete(doc_ids: Iterable[str], out: Path | str) -> int:
    """Take documents out of an index: rankings and scores are those of one built without them.

    A segment of which at least a fifth was deleted is written again, without these, in the background of the
    next :func:`append`; till then, and in other segments, their texts stay on disk.

    Returns:
        How many documents the index has now.

    Raises:
        UnknownDocument: An id that the index does not have; nothing is deleted.
        WrongUse: No document would be left.
        BadIndex: The folder holds no sound index.
        OutputFailed: No permission, disk full; the index stays as it was.
    """
    out = Path(out)
    manifest.load(out)
    with only_writer(out), writing_failures(out):
        index, gone = Index.open(out), set(doc_ids)
        tidy(out, index.manifest)
        rows = [index.row_of(doc_id) for doc_id in sorted(gone)]
        if len(gone) == len(index):
            raise WrongUse(f"{out}: no document would be left; remove the folder instead")
        IndexManifest(index.manifest.analyzer, _without(index, rows)).save(out)
    return len(index) - len(gone)


def tidy(out: Path, held: IndexManifest) -> None:
    """Remove what a killed change left, and what only readers of the manifest before the last one need."""
    tidy_beside(out / manifest.FILE)
    folders = {entry.folder: entry.files for entry in held.segments}
    for folder in (out / "segments").iterdir():
        if folder.name not in folders:
            shutil.rmtree(folder, ignore_errors=True)
        else:
            for marks in folder.glob(f"{DEAD}*"):
                if marks.name not in folders[folder.name]:
                    marks.unlink(missing_ok=True)


def _without(index: Index, rows: Collection[int]) -> tuple[SegmentEntry, ...]:
    """Mark documents as deleted; return what the manifest is to say of the segments that still have some."""
    entries, gone = list[SegmentEntry](), np.sort(np.fromiter(rows, np.int64, len(rows)))
    of_segments = np.split(gone, np.searchsorted(gone, index.starts[1:-1]))
    held = zip(index.manifest.segments, index.segments, index.starts.tolist(), of_segments, strict=False)
    for entry, segment, first, mine in held:
        if not len(mine):
            entries.append(entry)
        elif len(mine) < segment.documents:
            entries.append(_marked(entry, segment, mine - first))
    return tuple(entries)


def _marked(entry: SegmentEntry, segment: Segment, rows: NDArray[np.int64]) -> SegmentEntry:
    """Write which documents of a segment are deleted beside its arrays, in a file that no reader has open."""
    held = {name: file for name, file in entry.files.items() if not name.startswith(DEAD)}
    [number] = [int(Path(name).stem.removeprefix(DEAD)) for name in entry.files if name not in held] or [0]
    path = segment.folder / f"{DEAD}{number + 1:06d}.npy"
    dead = np.union1d(segment.dead, segment.among_all(rows)).astype(np.int32)
    np.save(path, dead, allow_pickle=False)
    lengths, titles = segment.lengths[rows], entry.title_tokens
    if titles is not None:
        titles -= int(segment.title_lengths[segment.among_all(rows)].sum(dtype=np.int64))
    with_terms = with_text = int(np.count_nonzero(lengths))
    if segment.has_texts:
        with_text = sum(not is_blank(segment.document(row)) for row in rows.tolist())
    return SegmentEntry(
        entry.folder,
        entry.documents - len(rows),
        entry.with_text - with_text,
        entry.with_terms - with_terms,
        tokens=entry.tokens - int(lengths.sum(dtype=np.int64)),
        files=held | {path.name: file_sum(path)},
        title_tokens=titles,
    )


def _foreign(folder: Path) -> list[str]:
    return others(folder, ("vectors", "impacts", "kept", "lock"), (manifest.FILE, "segments"))


def refuse_occupied(out: Path, options: BuildOptions) -> None:
    """Refuse a folder in which no new index may be made.

    Raises:
        WrongUse: Something is there.
    """
    real_path(out)
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not (out / manifest.FILE).exists():
        raise WrongUse(f"{out}: exists and is no index; name a folder that does not exist yet")
    if not options.overwrite:
        with suppress(RankhouseError), only_writer(out):  # a build killed right after its end left its traces
            tidy_beside(real_path(out))
        raise WrongUse(  # a whole command: merge, which has no --append, says this too
            f"{out}: is an index already; add to it with  rankhouse index --append, "
            "or replace it with --overwrite"
        )


def _refuse_known(documents: Iterable[Document], index: Index) -> Iterator[Document]:
    for document in documents:
        if document.id in index.documents:
            raise DuplicateId(
                f'the id "{document.id}" is in the index already; nothing was added (--update, or '
                "update=True, lets the new document take its place)",
                index.path,
            )
        yield document


def _replacing(documents: Iterable[Document], index: Index, replaced: dict[str, int]) -> Iterator[Document]:
    for document in documents:
        if document.id in index.documents:
            if document.id in replaced:
                raise DuplicateId(f'the id "{document.id}" came twice; nothing was changed', index.path)
            replaced[document.id] = index.row_of(document.id)
        yield document


def ends_chunk(documents: int, characters: int) -> bool:
    """Return whether what is analysed together is enough; this depends on the documents only."""
    return documents >= CHUNK_DOCUMENTS or characters >= CHUNK_CHARACTERS


def _chunks(documents: Iterable[Document]) -> Iterator[list[Document]]:
    chunk, characters = list[Document](), 0
    for document in documents:
        chunk.append(document)
        characters += len(document.text) + len(document.title)
        if ends_chunk(len(chunk), characters):
            yield chunk
            chunk, characters = [], 0
    if chunk:
        yield chunk


def _texts(documents: Iterable[Document], fields: bool) -> list[str]:
    """Return what is analysed of documents: title and text as one, or one after the other."""
    parts = ((one.title, one.text) if fields else (one.full_text,) for one in documents)
    return list(chain.from_iterable(parts))


def _analysed(
    chunks: Iterable[list[Document]], analysts: Analysts, fields: bool
) -> Iterator[tuple[list[Document], AnalysedTexts]]:
    """Analyse chunk after chunk in the order given; worker processes are kept a few ahead of the writer."""
    ahead = 2 * analysts.workers if analysts.workers > 1 else 0
    waiting: deque[tuple[list[Document], Future[AnalysedTexts]]] = deque()
    for chunk in chunks:
        waiting.append((chunk, analysts.submit(_texts(chunk, fields))))
        if len(waiting) > ahead:
            ready, future = waiting.popleft()
            yield ready, future.result()
    for ready, future in waiting:
        yield ready, future.result()


def _write_segments(
    documents: Iterable[Document], out: Path, first: int, options: BuildOptions, progress: Progress | None
) -> tuple[BuildReport, list[SegmentEntry]]:
    """Fill segment after segment; terms go on being numbered until a segment is closed."""
    report = BuildReport()
    growing = GrowingSegments(out / "segments", first, options.segment_tokens, AnalysedSegment)
    chunks = _chunks(documents)
    begun = list(islice(chunks, 2))
    # To start processes takes longer than to analyse a single chunk here.
    workers = (options.workers or os.cpu_count() or 1) if len(begun) > 1 else 1
    with Analysts(options.analyzer, workers) as analysts, growing:
        for chunk, analysed in _analysed(chain(begun, chunks), analysts, options.fields):
            if growing.is_full_for(len(analysed.tokens)):
                analysts.forget()
                growing.close()
                if analysed.first:
                    analysed = analysts.submit(_texts(chunk, options.fields)).result()  # noqa: PLW2901
            growing.current(len(analysed.tokens)).add(chunk, analysed)
            for document, parts in zip(chunk, analysed.lengths.reshape(len(chunk), -1).tolist(), strict=True):
                report.note(document, sum(parts))
            if progress is not None:
                progress(report.documents)
        analysts.forget()
    return report, growing.entries
