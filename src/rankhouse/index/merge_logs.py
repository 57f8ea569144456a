"""Folders of shards become the folder that one encoding of all documents writes, byte for byte.

Data files are appended shard after shard; numbers that count from the first document, passage or byte of
their shard are moved on by what stands before. The hash of all texts is taken from the index once more.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final

import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.append_log import AppendLog, begin, finish, hash_document
from rankhouse.index.append_state import MANIFEST, PROGRESS, LogKind, LogState, OffsetColumn, S
from rankhouse.index.index import Index
from rankhouse.io.outputs import only_writer, others, real_path, replacing_folder
from rankhouse.io.scratch import tidy_beside

_BLOCK: Final = 1 << 23  # bytes copied at once
_TOLD: Final = 1_000


def merge_logs(
    shards: Sequence[Path],
    target: Path,
    kind: LogKind[S],
    index: Index,
    *,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> None:
    """Join the folders of all shards into one; what is there already, complete and the same, stays.

    Raises:
        WrongUse: What is there was made otherwise, or is being written.
        BadIndex: The shards are of other documents than the index holds now.
        OutputFailed: No permission, disk full; what was there still is.
    """
    states = [kind.load(shard / MANIFEST) for shard in shards]
    zeros: dict[str, object] = dict.fromkeys((*kind.sums, *kind.most), 0)
    fresh = replace(states[0], texts="", collection="", sums={}, blocks={}, **zeros)
    count = sum(state.documents for state in states)
    if count != len(index) or any(state.collection != index.fingerprint for state in states):
        raise BadIndex(
            f"{target}: the parts are of {count:,} documents of an index that has changed since; it has "
            f"{len(index):,} now: encode the shards again"
        )
    with only_writer(target):
        if not overwrite:
            there = begin(target, fresh, kind)
            if (there.documents, there.collection) == (len(index), index.fingerprint):
                tidy_beside(real_path(target))
                return
        with replacing_folder(target, lambda folder: _foreign(folder, fresh)) as scratch:
            _join(shards, scratch, fresh, kind, index=index, tell=progress or ignore)


def _join(
    shards: Sequence[Path],
    folder: Path,
    fresh: S,
    kind: LogKind[S],
    index: Index,
    tell: Progress,
) -> None:
    hashed = blake2b(digest_size=16)
    for number, document in enumerate(index.documents.stream(), 1):
        hash_document(hashed, document)
        if number % _TOLD == 0:
            tell(number, len(index))
    with AppendLog(folder, fresh, kind.zeros) as files:
        for shard in shards:
            _append(files, shard, kind)
        files.note(hashed.hexdigest(), now=True)
        final = files.state
    finish(folder, replace(final, collection=index.fingerprint))


def _foreign(folder: Path, state: S) -> list[str]:
    """Name what in a folder is nothing that an encoding writes."""
    own = (MANIFEST, PROGRESS, "structures", *state.sizes())
    return others(folder, own, ())


def _append(files: AppendLog[S], shard: Path, kind: LogKind[S]) -> None:
    """Append a shard's files, and add its counts."""
    before, state = files.state, kind.load(shard / MANIFEST)
    for name, size in state.sizes().items():
        column = kind.columns.get(name)
        rest = size - 8 if column is not None and column.zero else size
        files.append({name: b""}, {})
        with (shard / name).open("rb") as stream:
            stream.seek(size - rest)
            while data := stream.read(min(_BLOCK, rest)):
                rest -= len(data)
                files.append({name: data if column is None else _moved(data, column, before)}, {})
    sums = {name: getattr(before, name) + getattr(state, name) for name in kind.sums}
    files.append({}, sums | {name: max(getattr(before, name), getattr(state, name)) for name in kind.most})


def _moved(data: bytes, column: OffsetColumn, before: LogState) -> bytes:
    """Move a column's numbers on by what stands before their shard."""
    numbers: NDArray[Any] = np.frombuffer(data, column.dtype)
    moved: NDArray[Any] = numbers + numbers.dtype.type(getattr(before, column.before))
    return moved.tobytes()
