"""The manifest of an index and its segments' files: which there are, their types, and what they must be."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from zlib import crc32

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse import __version__
from rankhouse.core.errors import BadIndex, MissingInput
from rankhouse.io.checksums import (
    BLOCK,
    BadEnvelope,
    CheckedArray,
    FileSum,
    Guard,
    differs,
    file_sum,
    sealed,
    unsealed,
)
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import replacing
from rankhouse.io.scratch import recover

_OFFSETS, _COUNTS = ("<u4", "<i8"), ("|u1", "<u2", "<u4")
# The types an array may have; a damaged header cannot make another array of a file's bytes.
ARRAYS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("terms_at", "lists_at", "forward_at", "ids_at"), _OFFSETS),
    **dict.fromkeys(("block_rows", "block_starts"), ("<i8",)),
    **dict.fromkeys(
        ("terms_order", "frequencies", "lengths", "id_order", "id_rank", "dead", "numbers"), ("<i4",)
    ),
    "title_lengths": ("<i4",),
    **dict.fromkeys(("occurrences", "highest_tf", "title_tfs"), _COUNTS),
    "codes": ("|u1",),
}
OPTIONAL: Final = ("id_order", "id_rank")
DEAD: Final = "dead-"
BLOBS: Final = ("terms", "lists", "areas", "forward", "ids", "store")
# Small files are compared whole when opened, large ones block by block as they are read (`verify`: whole).
CHECKED_AT_OPEN = BLOCK
# As np.save writes it. numpy reads it with Python's parser, which Python 3.11 may fail at in several threads.
_HEADER: Final = re.compile(
    rb"\x93NUMPY\x01\x00..\{'descr': '([^']{3})', 'fortran_order': False, 'shape': \((\d+),\), \} *\n",
    re.DOTALL,
)
REBUILD: Final = "build the index again"


def map_file(path: Path, expected: FileSum | None, again: str = REBUILD) -> CheckedArray[Any]:
    """Map a file of a segment; where it is large, with the guard that compares its blocks.

    What is mapped is compared as well: another process may have replaced a file that was compared before.

    Args:
        again: What is to be done about a damaged file.

    Raises BadIndex: it is not named, missing, no array of its kind, or not what was written.
    """
    if expected is None:
        raise BadIndex(f"{path}: is not named in the manifest; {again}")
    try:
        content: NDArray[np.uint8] = (
            np.asarray(np.memmap(path, np.uint8, "r")) if expected.bytes else np.empty(0, np.uint8)
        )
        is_small = expected.bytes <= CHECKED_AT_OPEN
        found = FileSum(len(content), crc32(content) if is_small else expected.crc32)
        if what := differs(found, expected):
            raise BadIndex(f"{path}: {what}; it is damaged, {again}")
        array, offset = _array_in(path.name, content)
    except (OSError, ValueError, EOFError) as error:
        raise BadIndex(f"{path}: cannot be opened as an array ({error}); {again}") from error
    if is_small:
        return CheckedArray(array)
    return CheckedArray(array, Guard(content, expected, lambda: _damaged(path, again)), offset)


def _array_in(name: str, content: NDArray[np.uint8]) -> tuple[NDArray[Any], int]:
    """Find the array in a file's bytes, and where it begins."""
    if not name.endswith(".npy"):
        return content, 0
    if (head := _HEADER.match(content[:256].tobytes())) is None:
        raise ValueError("it holds no array of one dimension")
    kind, length, begin = head[1].decode(), int(head[2]), head.end()
    if kind not in ARRAYS[name.removesuffix(".npy").partition("-")[0]]:
        raise ValueError(f"it holds {kind}")
    if begin + np.dtype(kind).itemsize * length != len(content):
        raise ValueError(f"it is of length {length:,}, which does not fill its {len(content):,} bytes")
    return content[begin:].view(kind), begin


def _damaged(path: Path, again: str) -> BadIndex:
    return BadIndex(f"{path}: does not have the content it was written with; it is damaged, {again}")


def check_files(folder: Path, sums: Mapping[str, FileSum], *, whole: bool, again: str = REBUILD) -> None:
    """Compare files with what was written: their sizes, and the content of small ones, or of all.

    Args:
        whole: Whether large files are read, too.
        again: What is to be done about a damaged file.

    Raises BadIndex: one differs, or is missing.
    """
    for name, expected in sums.items():
        path, is_read = folder / name, whole or expected.bytes <= CHECKED_AT_OPEN
        try:
            actual = file_sum(path) if is_read else FileSum(path.stat().st_size, expected.crc32)
        except OSError as error:
            raise BadIndex(f"{path}: is missing or cannot be read ({error.strerror}); {again}") from error
        if what := differs(actual, expected):
            raise BadIndex(f"{path}: {what}; it is damaged, {again}")


FILE = "manifest.json"
FORMAT = "rankhouse-index"
VERSION = 3
OLDER = (1, 2)
"""Versions that :mod:`rankhouse.index.lexical.merge` rewrites."""


def index_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the index folders that paths mean: an index, a shard with ``index/``, or a folder of shards.

    Args:
        paths: What was named; what holds no index is returned as it is, so that opening it gives the error.
    """
    return [folder for path in paths for folder in _indexes_in(path) or [path]]


def _indexes_in(path: Path) -> list[Path]:
    for folder in (path, path / "index"):
        if (folder / FILE).is_file():
            return [folder]
    children = sorted(path.iterdir()) if path.is_dir() else []
    return [child / "index" for child in children if (child / "index" / FILE).is_file()]


class SegmentEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One segment: its folder, its statistics, the sums of its files; None: titles are not counted apart."""

    folder: str
    documents: int
    with_text: int
    with_terms: int
    tokens: int
    files: dict[str, FileSum]
    title_tokens: int | None = None


class IndexManifest(msgspec.Struct, frozen=True):
    """Manifest of an index; ``earlier``: fingerprints from before merged deletions, or upgrades."""

    analyzer: str
    segments: tuple[SegmentEntry, ...]
    format: str = FORMAT
    version: int = VERSION
    made_by: str = f"rankhouse {__version__}"
    earlier: tuple[str, ...] = ()

    @property
    def with_fields(self) -> int:
        """Count the documents whose titles are counted apart."""
        return sum(entry.documents for entry in self.segments if entry.title_tokens is not None)

    @property
    def fingerprint(self) -> str:
        """Hash of the content: equal for equal collections indexed alike, and changed by every change."""
        sums = [
            [s.documents, [(name, (file.bytes, file.crc32)) for name, file in sorted(s.files.items())]]
            for s in self.segments
        ]
        return blake2b(msgspec.json.encode([self.analyzer, sums]), digest_size=16).hexdigest()

    def began_as(self, fingerprint: str) -> bool:
        """Return whether the index had this fingerprint before documents were added, or has it now.

        Those documents still stand first. Their texts cannot have changed: the fingerprint is one of their
        checksums, and segments are only written again without documents that were deleted before.
        """
        return fingerprint in self.prefixes()

    def prefixes(self) -> tuple[str, ...]:
        """Return the fingerprints that the index had before documents were added, and that of today."""
        counts = range(len(self.segments), -1, -1)
        parts = (msgspec.structs.replace(self, segments=self.segments[:count]) for count in counts)
        return (*(part.fingerprint for part in parts), *self.earlier)

    def save(self, folder: Path) -> None:
        """Write the manifest into an index folder, whole or not at all."""
        content = msgspec.json.encode(self)
        with replacing(folder / FILE) as temporary:
            temporary.write_bytes(sealed(content))


class _Head(msgspec.Struct):
    format: str = ""
    version: int = 0
    made_by: str = "an unknown program"


def load(folder: Path, *, older: bool = False) -> IndexManifest:
    """Read the manifest of an index folder.

    Args:
        older: Also one of an earlier version, which cannot be searched.

    Raises MissingInput: there is no such folder; BadIndex: the folder is no index, or its manifest is damaged
    or of another version.
    """
    if not (folder.exists() or recover(folder)):
        raise MissingInput(
            f"{folder}: there is no such index; make it with  rankhouse index CORPUS --out {folder}"
        )
    if not folder.is_dir():
        raise BadIndex(
            f"{folder}: is a file, no index; make one of a corpus with  rankhouse index {folder} --out INDEX"
        )
    path = folder / FILE
    try:
        raw = unsealed(path.read_bytes())
        head = msgspec.json.decode(raw, type=_Head)
        is_older = head.format == FORMAT and head.version in OLDER
        if not (is_older and older) and (head.format, head.version) != (FORMAT, VERSION):
            way = (
                f"rewrite it, which takes seconds, with  rankhouse index --upgrade --out {folder}"
                if is_older
                else "build the index again, or use the program that made it"
            )
            raise BadIndex(
                f'{path}: holds "{head.format}" version {head.version} by {head.made_by}; this program reads '
                f'"{FORMAT}" version {VERSION}: {way}'
            )
        return msgspec.json.decode(raw, type=IndexManifest)
    except FileNotFoundError:
        found = _indexes_in(folder)
        if len(found) == 1 and found[0].parent in (folder, folder / ".rankhouse"):
            raise BadIndex(f"{folder}: holds an index and is none; open {found[0]}") from None
        if found:
            raise BadIndex(
                f"{folder}: holds shards, and an index of one piece is needed here; make it with  "
                f"rankhouse merge {folder} --out INDEX"
            ) from None
        raise BadIndex(
            f"{folder}: is no rankhouse index (it has no {FILE}); name the folder that was given to --out"
        ) from None
    except BadEnvelope as error:
        raise BadIndex(f"{path}: {error}; build the index again") from error
    except (OSError, *UNREADABLE) as error:
        raise BadIndex(f"{path}: cannot be read ({error}); build the index again") from error
