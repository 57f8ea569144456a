"""Valid part of a folder's files, and the files as arrays: shared by vectors, impacts and kept passages.

``manifest.json`` is the last complete state, ``progress.json`` that of work under way. Each lies in an
envelope with its checksum, and holds a checksum for every block of the data files.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Generic, NamedTuple, Protocol, Self, TypeVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse import __version__
from rankhouse.core.errors import BadIndex, MissingInput, WrongUse
from rankhouse.core.notation import choose
from rankhouse.index.index import Index
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
    """Valid part of a folder's files; each kind of folder adds how its rows were made."""

    documents: int = 0  # documents read
    texts: str = ""  # hash of their ids and texts, in order
    collection: str = ""  # fingerprint of the index when they were all its documents; "" while under way
    sums: dict[str, int] = {}  # CRC-32 of each file as far as it counts
    blocks: dict[str, bytes] = {}  # CRC-32 of each block of each file; empty where an older version wrote it
    format: str = ""  # what kind of folder it is
    version: int = 0  # of that format
    made_by: str = f"rankhouse {__version__}"  # the program that wrote it, with its version

    def sizes(self) -> dict[str, int]:
        """Return how many bytes of each file count."""
        raise NotImplementedError


S = TypeVar("S", bound=LogState)


class OffsetColumn(NamedTuple):
    """A file whose numbers count from the beginning of their shard."""

    dtype: str  # numpy's name of their type
    before: str  # which count of the state says how much stands before
    zero: bool = False  # whether the file begins with an offset of 0, which is there once only


@dataclass(frozen=True)
class LogKind(Generic[S]):
    """Files and state of a kind of folder."""

    state: type[S]  # what its manifest holds; the defaults of ``format`` and ``version`` are what can be read
    named: Mapping[str, Mapping[str, object]]  # attributes of the state that are names of a table
    same: Sequence[str]  # attributes in which work that goes on, and folders that are joined, agree
    columns: Mapping[str, OffsetColumn]  # the files whose numbers are moved on when folders are joined
    sums: Sequence[str]  # counts that add up then
    most: Sequence[str]  # counts of which the highest stays

    @property
    def zeros(self) -> list[str]:
        """The files that begin with an offset of 0."""
        return [name for name, column in self.columns.items() if column.zero]

    def load(self, path: Path) -> S:
        """Read a manifest or progress file; BadIndex if it is damaged, or of another format or version."""
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

    def begun(self, folder: Path) -> S | None:
        """Return where work in a folder stands, finished or not; None where nothing was ever written."""
        there = next((folder / name for name in (PROGRESS, MANIFEST) if (folder / name).exists()), None)
        return None if there is None else self.load(there)

    def complete(self, folder: Path) -> S | None:
        """Return the state of a folder that is complete; None where nothing was ever written.

        Raises BadIndex: the work was never finished, or the folder is damaged.
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

        Raises BadIndex: the file is missing, too short, or not what was written; also when a block is read.
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
        """Read every file whole and compare it with its checksum; BadIndex if one differs."""
        sizes = self.state.sizes()
        for name, size in sizes.items():
            if file_sum(self.folder / name, size).crc32 != self.state.sums.get(name, 0):
                raise _damaged(self.folder / name)


class EncodedState(LogState, frozen=True, kw_only=True):
    """Valid part of the files, and how they were made."""

    encoder: str  # fingerprint of the encoder
    policy: str  # what else shapes the numbers: how documents were split


E = TypeVar("E", bound=EncodedState)


class _Named(Protocol):
    @property
    def fingerprint(self) -> str: ...


class EncodedData(DataFolder[E]):
    """The work of an encoder, memory-mapped. Open it with :meth:`open`."""

    kind: ClassVar[LogKind[Any]]  # what its folder is made of
    what: ClassVar[str]  # what it is called, "vectors"
    command: ClassVar[str]  # what makes it

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder; nothing is read but the manifest.

        Raises MissingInput: there is no such folder; BadIndex: the encoding was never finished, or the folder
        is damaged.
        """
        folder = Path(folder)
        if (state := cls.kind.complete(folder)) is not None:
            return cls(folder, state)
        if not folder.exists():
            beside = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
            there = f"; there are: {', '.join(beside)}" if beside else ""
            raise MissingInput(
                f"{folder}: there are no such {cls.what}{there}; make them with  {cls.command}"
            )
        raise BadIndex(f"{folder}: holds no {cls.what} (it has no {MANIFEST}); {AGAIN}")

    def require_all(self, index: Index) -> Self:
        """Make sure that all documents of an index were encoded: BadIndex as for :meth:`require`.

        An index that was upgraded has another fingerprint since, and the same documents.
        """
        made = self.state.collection
        same = made if index.manifest.began_as(made) else index.fingerprint
        return self.require(documents=len(index), collection=same)

    def require(self, *, documents: int, collection: str) -> Self:
        """Make sure that all documents of an index were encoded, as it is now.

        Raises BadIndex: documents were added, changed or deleted after the encoding.
        """
        if self.state.collection != collection or self.state.documents != documents:
            raise BadIndex(
                f"{self.folder}: the {self.what} are of {self.state.documents:,} documents, the index now "
                f"has {documents:,} (or others); {AGAIN}: only what was added will be encoded, and after "
                "deletions, with --overwrite, all"
            )
        return self

    def require_encoder(self, encoder: _Named) -> Self:
        """Refuse (BadIndex) queries that another encoder encodes than the documents'."""
        if encoder.fingerprint != self.state.encoder:
            how = encoded_otherwise(self.state.encoder, encoder.fingerprint, self.what)
            raise BadIndex(f"{self.folder}: was encoded {how}")
        return self


def encoded_otherwise(made: str, asked: str, what: str) -> str:
    """Say what encoded documents, what would encode the queries, and what to do; both are fingerprints."""
    (encoder, _, had), (same, _, here) = made.rpartition("-"), asked.rpartition("-")
    if encoder == same and {had, here} <= {"fp32", "bf16", "int8"}:
        return (
            f"in {had}, the queries would be in {here}; search with  --precision {had} , or, for a command "
            f"without that option (adapt), encode again:  rankhouse encode ... --precision {here} --overwrite"
        )
    search = f"search with the encoder that made the {what}, or encode again"
    return f"by {made}, the queries would be by {asked}; {search}"


def encoded_folder(index: Path | str, what: str, name: str) -> Path:
    """Return the folder of an index's vectors or impacts of this name.

    Raises WrongUse: the name could lead out of the index.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise WrongUse(f'"{name}" cannot name {what}; use letters, digits, - and _, like  minilm')
    return Path(index) / what / name
