"""The manifest of an index: which segments it has, how they were made, and what their files must be."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from pathlib import Path

import msgspec

from rankhouse import __version__
from rankhouse.core.errors import BadIndex, MissingInput
from rankhouse.io.checksums import BadEnvelope, FileSum, sealed, unsealed
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import replacing
from rankhouse.io.scratch import recover

FILE = "manifest.json"
FORMAT = "rankhouse-index"
VERSION = 3
OLDER = (1, 2)
"""Versions that :mod:`rankhouse.index.lexical.upgrade` rewrites."""


def index_folders(paths: Iterable[Path]) -> list[Path]:
    """Return the index folders that paths mean: an index, a part with ``index/`` in it, or a folder of parts.

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


class SegmentEntry(msgspec.Struct, frozen=True):
    """One segment: its folder, its statistics, and the sums of its files."""

    folder: str
    documents: int
    with_text: int
    with_terms: int
    tokens: int
    files: dict[str, FileSum]


class IndexManifest(msgspec.Struct, frozen=True):
    """What an index says of itself; ``earlier``: fingerprints from before deletions were merged away."""

    analyzer: str
    segments: tuple[SegmentEntry, ...]
    format: str = FORMAT
    version: int = VERSION
    made_by: str = f"rankhouse {__version__}"
    earlier: tuple[str, ...] = ()

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

    Raises:
        MissingInput: There is no such folder.
        BadIndex: The folder is no index, or its manifest is damaged or of another version.
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
        if _indexes_in(folder):
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
