"""Indexes of earlier versions are rewritten as those of this one: their lists packed, their texts copied.

Versions 1 and 2 kept postings and documents' terms as plain arrays. Nothing is analysed again: a segment
becomes what a build of the same documents writes today. Vectors stay, since the documents do: the next
``rankhouse encode`` compares the texts and encodes none of them again.
"""

from __future__ import annotations

import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.lexical import manifest
from rankhouse.index.lexical.arrays import check_files
from rankhouse.index.lexical.build import tidy
from rankhouse.index.lexical.kernel import Forward
from rankhouse.index.lexical.manifest import IndexManifest, SegmentEntry
from rankhouse.index.lexical.store import DocumentStore, StoreWriter, Strings
from rankhouse.index.lexical.write import sums_of, write_counted
from rankhouse.io.checksums import CheckedArray
from rankhouse.io.outputs import only_writer, writing_failures

_COPIED = ("store.bin", "block_rows.npy", "block_starts.npy")


def upgrade(folder: Path, progress: Progress = ignore) -> int:
    """Rewrite an index of an earlier version in its place; until the end it is what it was.

    Args:
        folder: The index.
        progress: Progress callback, in documents.

    Returns:
        How many documents were rewritten: 0 where it is of this version already.

    Raises:
        MissingInput: There is no such folder.
        BadIndex: It is no index, or a file of it is damaged.
        OutputFailed: No permission, disk full; the index stays as it was.
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
            IndexManifest(before.analyzer, tuple(entries)).save(folder)
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
