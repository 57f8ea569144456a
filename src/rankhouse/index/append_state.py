"""How much of a folder's files counts, and the files as arrays: shared by vectors and kept passages.

``manifest.json`` is the last complete state, ``progress.json`` that of work under way. Each lies in an
envelope with its checksum, and holds a checksum for every block of the data files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse import __version__
from rankhouse.core.errors import BadIndex, WrongUse
from rankhouse.core.notation import choose
from rankhouse.io.checksums import (
    BLOCK,
    BadEnvelope,
    CheckedArray,
    FileSum,
    Guard,
    file_sum,
    sealed,
    unsealed,
)
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.outputs import replacing

MANIFEST: Final = "manifest.json"
PROGRESS: Final = "progress.json"
AGAIN: Final = "run  rankhouse encode  again"


class LogState(msgspec.Struct, frozen=True, kw_only=True):
    """How much of a folder's files counts; each kind of folder adds how its rows were made.

    Attributes:
        documents: Documents read.
        texts: Hash of their ids and texts, in order.
        collection: Fingerprint of the index when they were all its documents; "" while under way.
        sums: CRC-32 of each file as far as it counts.
        blocks: CRC-32 of each block of each file; empty where an older version wrote it.
        format: What kind of folder it is.
        version: Of that format.
        made_by: The program that wrote it, with its version.
    """

    documents: int = 0
    texts: str = ""
    collection: str = ""
    sums: dict[str, int] = {}
    blocks: dict[str, bytes] = {}
    format: str = ""
    version: int = 0
    made_by: str = f"rankhouse {__version__}"

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each file count."""
        raise NotImplementedError


S = TypeVar("S", bound=LogState)


class OffsetColumn(NamedTuple):
    """A file whose numbers count from the beginning of their shard.

    Attributes:
        dtype: numpy's name of their type.
        before: Which count of the state says how much stands before.
        zero: Whether the file begins with an offset of 0, which is there once only.
    """

    dtype: str
    before: str
    zero: bool = False


@dataclass(frozen=True)
class LogKind(Generic[S]):
    """What a kind of folder is made of.

    Attributes:
        state: What its manifest holds; the defaults of ``format`` and ``version`` are what can be read.
        named: Attributes of the state that are names of a table.
        same: Attributes in which work that goes on, and folders that are joined, agree.
        columns: The files whose numbers are moved on when folders are joined.
        sums: Counts that add up then.
        most: Counts of which the highest stays.
    """

    state: type[S]
    named: Mapping[str, Mapping[str, object]]
    same: Sequence[str]
    columns: Mapping[str, OffsetColumn]
    sums: Sequence[str]
    most: Sequence[str]

    @property
    def zeros(self) -> list[str]:
        """The files that begin with an offset of 0."""
        return [name for name, column in self.columns.items() if column.zero]

    def load(self, path: Path) -> S:
        """Read a manifest or progress file.

        Raises:
            BadIndex: It is damaged, or of another format or version.
        """
        readable = {field.name: field.default for field in msgspec.structs.fields(self.state)}
        try:
            state = msgspec.json.decode(unsealed(path.read_bytes(), bare=True), type=self.state)
            for field, names in self.named.items():
                choose(getattr(state, field), names, field)
        except BadEnvelope as error:
            raise BadIndex(f"{path}: {error}; {AGAIN} with --overwrite") from error
        except (OSError, *UNREADABLE, WrongUse) as error:
            raise BadIndex(f"{path}: cannot be read ({error}); {AGAIN} with --overwrite") from error
        if state.format != readable["format"] or state.version not in range(
            1, cast(int, readable["version"]) + 1
        ):
            raise BadIndex(
                f'{path}: holds "{state.format}" version {state.version} by {state.made_by}; this program '
                f'reads "{readable["format"]}" version {readable["version"]}: {AGAIN} with --overwrite'
            )
        return state

    def complete(self, folder: Path) -> S | None:
        """Return the state of a folder that is complete; None where nothing was ever written.

        Raises:
            BadIndex: The work was never finished, or the folder is damaged.
        """
        if (folder / MANIFEST).exists():
            return self.load(folder / MANIFEST)
        if (folder / PROGRESS).exists():
            done = self.load(folder / PROGRESS).documents
            raise BadIndex(
                f"{folder}: the encoding stopped after {done:,} documents; {AGAIN}, it goes on from there"
            )
        return None


def save_state(state: LogState, path: Path) -> None:
    """Write a state into a file, whole or not at all."""
    with replacing(path) as temporary:
        temporary.write_bytes(sealed(msgspec.json.encode(state)))


def sum_of(state: LogState, name: str) -> FileSum:
    """Return what a file must be, as far as it counts."""
    return FileSum(state.sizes()[name], state.sums.get(name, 0), state.blocks.get(name, b""))


def _damaged(path: Path) -> BadIndex:
    return BadIndex(f"{path}: was changed after it was written; {AGAIN} with --overwrite")


class DataFolder(Generic[S]):
    """A folder whose files only grow, open for reading."""

    def __init__(self, folder: Path, state: S) -> None:
        self.folder, self.state = folder, state

    def mapped(self, name: str, dtype: str, shape: tuple[int, ...]) -> CheckedArray[Any]:
        """Map one of its arrays into memory; small files are compared now, blocks of large ones when read.

        Raises:
            BadIndex: The file is missing, too short, or not what was written; also when a block is read.
        """
        path, expected = self.folder / name, sum_of(self.state, name)
        try:
            if (there := path.stat().st_size) < expected.bytes:
                raise BadIndex(
                    f"{path}: has {there:,} bytes, {expected.bytes:,} are needed; the file is damaged: "
                    f"{AGAIN} with --overwrite"
                )
            content: NDArray[np.uint8] = np.empty(0, np.uint8)  # an empty file cannot be mapped
            if expected.bytes:
                # A plain array over the same pages: memmap's own slicing is several times slower.
                content = np.asarray(np.memmap(path, np.uint8, "r", shape=(expected.bytes,)))
        except OSError as error:
            raise BadIndex(
                f"{path}: is missing or cannot be read ({error.strerror}); {AGAIN} with --overwrite"
            ) from error
        guard = Guard(content, expected, lambda: _damaged(path))
        if expected.bytes <= BLOCK:
            guard.whole()
        return CheckedArray(content.view(dtype).reshape(shape), guard)

    def verify(self) -> None:
        """Read every file whole and compare it with its checksum.

        Raises:
            BadIndex: One differs.
        """
        sizes = self.state.sizes()
        for name, size in sizes.items():
            if file_sum(self.folder / name, size).crc32 != self.state.sums.get(name, 0):
                raise _damaged(self.folder / name)
