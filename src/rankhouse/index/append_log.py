"""Folders that only grow, document after document: what vectors and kept passages of an index have in common.

Data files are only ever added to. After some seconds of work they are flushed, and ``progress.json`` says how
much of them counts; ``manifest.json`` says it when all is done. The next call streams over the documents
already done (hashing them, to be sure they are the same), cuts off what a kill may have left half-written,
and goes on. Chunks end with a document and depend on the documents only, so what comes out is the same
whether or not the work was interrupted.

Folders of shards become the folder that one encoding of all documents writes, byte for byte: data files are
appended shard after shard; numbers that count from the first document, passage or byte of their shard are
moved on by what stands before. The hash of all texts is taken from the index once more.
"""

from __future__ import annotations

import errno
import os
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, BinaryIO, Final, Generic, NamedTuple

import msgspec
import numpy as np
from msgspec.structs import replace
from numpy.typing import NDArray

from rankhouse.core.errors import BadIndex, OutputFailed, WrongUse
from rankhouse.core.nouns import Document, Passage
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.append_state import (
    MANIFEST,
    PROGRESS,
    LogKind,
    LogState,
    OffsetColumn,
    S,
    save_state,
    sum_of,
)
from rankhouse.index.index import Index
from rankhouse.io.checksums import BlockSums, differs, file_sum
from rankhouse.io.outputs import only_writer, others, real_path, replacing_folder
from rankhouse.io.scratch import tidy_beside
from rankhouse.text.split import Split

CHUNK_CHARACTERS: Final = 4_000_000
JOURNAL_SECONDS: Final = 2.0  # at most so much work is lost by a kill, besides the chunk under way
NO_LOSS: Final = "Nothing was lost"
DONE_STAYS: Final = "What was encoded so far is kept; run the same command again to go on from there"


class DocumentSource(NamedTuple):
    """The documents to come, and how they are taken."""

    documents: int
    collection: str
    split: Split
    chunk: int


class DocumentChunk:
    """Documents gathered for one call of what encodes them."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.numbers: list[int] = []
        self.rows: list[int] = []
        self._characters = 0

    def add(self, doc_id: str, passages: Sequence[Passage]) -> None:
        """Take a document; passages without text are left out."""
        with_text = [passage for passage in passages if passage.text.strip()]
        self.ids.append(doc_id)
        self.texts += [passage.text for passage in with_text]
        self.numbers += [passage.index for passage in with_text]
        self.rows.append(len(with_text))
        self._characters += sum(len(passage.text) for passage in with_text)

    def documents_in(self, passages: int) -> float:
        """Return how many documents the first passages are, the last of them in part."""
        return float(np.interp(passages, np.cumsum([0, *self.rows]), range(len(self.rows) + 1)))

    def full(self, passages: int) -> bool:
        """Whether to encode now; documents without text fill a chunk as well, ten times as slowly."""
        return (
            len(self.texts) >= passages
            or self._characters >= CHUNK_CHARACTERS
            or len(self.ids) >= 10 * passages
        )


class AppendLog(Generic[S]):
    """The data files of a folder, open at their ends, and the state that says how much of them counts.

    ``state`` runs ahead of the file ``progress.json``, which :meth:`note` brings up to date.
    """

    def __init__(self, folder: Path, state: S, zeros: Sequence[str] = ()) -> None:
        self.folder, self.state, self._zeros = folder, state, zeros
        self._noted = time.monotonic()
        self._streams: dict[str, BinaryIO] = {}
        self._sums: dict[str, BlockSums] = {}

    def __enter__(self) -> AppendLog[S]:
        with writing_to(self.folder, NO_LOSS), ExitStack() as stack:
            self.folder.mkdir(parents=True, exist_ok=True)
            for name, size in self.state.sizes().items():
                handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o666)
                stream = stack.enter_context(os.fdopen(handle, "r+b", buffering=0))
                there = stream.seek(0, os.SEEK_END)
                if there < size and self.state.documents:
                    raise BadIndex(
                        f"{self.folder / name}: has {there:,} bytes, {size:,} are needed; the file is "
                        "damaged: encode again with --overwrite"
                    )
                stream.truncate(size if self.state.documents else 0)
                stream.seek(0, os.SEEK_END)
                self._streams[name] = stream
                self._sums[name] = self._sums_so_far(name, size if self.state.documents else 0)
            if not self.state.documents:
                for name in self._zeros:
                    self._append(name, bytes(8))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._open.close()

    def _sums_so_far(self, name: str, size: int) -> BlockSums:
        if size and name not in self.state.blocks:  # written by an older version: measure it now
            measured = file_sum(self.folder / name, size, blocks=True)
            if what := differs(measured, sum_of(self.state, name)):
                raise BadIndex(f"{self.folder / name}: {what}; encode again with --overwrite")
            return BlockSums(size, measured.blocks)
        return BlockSums(size, self.state.blocks.get(name, b"") if size else b"")

    def append(self, files: dict[str, bytes], counts: dict[str, Any]) -> None:
        """Add a chunk to the files; afterwards the state has these counts."""
        with writing_to(self.folder, DONE_STAYS):
            for name, data in files.items():
                self._append(name, data)
        self.state = _changed(self.state, **counts)

    def _append(self, name: str, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._streams[name].write(rest) :]
        self._sums[name].add(data)
        sums = {**self.state.sums, name: zlib.crc32(data, self.state.sums.get(name, 0))}
        self.state = _changed(self.state, sums=sums)

    def note(self, texts: str, *, now: bool = False) -> None:
        """Say in ``progress.json`` that all of ``state`` counts; every few seconds, unless it must be now."""
        self.state = _changed(self.state, texts=texts)
        if not now and time.monotonic() - self._noted < JOURNAL_SECONDS:
            return
        with writing_to(self.folder, DONE_STAYS):
            for stream in self._streams.values():
                os.fsync(stream.fileno())
            blocks = {name: sums.packed() for name, sums in self._sums.items()}
            self.state = _changed(self.state, blocks=blocks)
            save_state(_changed(self.state, collection=""), self.folder / PROGRESS)
        self._noted = time.monotonic()


def _changed(state: S, **changes: object) -> S:
    return msgspec.structs.replace(state, **changes)


def begin(folder: Path, asked: S, kind: LogKind[S], *, overwrite: bool = False) -> S:
    """Return where to go on: the start, interrupted work, or complete work on fewer documents.

    Raises WrongUse: what is there was made otherwise than is asked for.
    """
    if overwrite:
        with writing_to(folder, NO_LOSS):
            for name in (MANIFEST, PROGRESS, *asked.sizes()):
                (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / "structures", ignore_errors=True)
        return asked
    if (state := kind.begun(folder)) is None:
        return asked
    for name in kind.same:
        if (old := getattr(state, name)) != (new := getattr(asked, name)):
            raise WrongUse(
                f'{folder}: holds vectors with {name} "{old}", now "{new}" is asked for; give these vectors '
                "another name, or replace the old ones with --overwrite"
            )
    return _changed(state, version=asked.version)


def append_documents(
    files: AppendLog[S],
    documents: Iterable[Document],
    source: DocumentSource,
    write: Callable[[DocumentChunk, Callable[[int], None]], None],
    progress: Progress | None = None,
) -> S:
    """Encode what is missing; give the complete state.

    Args:
        write: Encodes a chunk and appends it to the files; may tell how many of its passages are encoded.

    Raises BadIndex: the documents done earlier are not those that come now, or their number is not as
    announced.
    """
    before, seen = files.state.documents, 0
    hashed, chunk = blake2b(digest_size=16), DocumentChunk()
    tell = progress or ignore
    if not before:
        tell(0, source.documents)

    def write_chunk() -> None:
        first = seen - len(chunk.ids)
        write(chunk, lambda passages: tell(first + chunk.documents_in(passages), source.documents))

    for document in documents:
        seen += 1
        hash_document(hashed, document)
        if seen <= before:
            if seen == before:
                _refuse_others(files, hashed.hexdigest())
                tell(seen, source.documents)
            continue
        chunk.add(document.id, source.split(document))
        if chunk.full(source.chunk):
            write_chunk()
            files.note(hashed.hexdigest())
            chunk = DocumentChunk()
            tell(seen, source.documents)
    if seen < before or seen != source.documents:
        raise BadIndex(
            f"{files.folder}: {seen:,} documents came, {source.documents:,} were announced and {before:,} "
            "were encoded before; if the index was rebuilt, replace its vectors with --overwrite"
        )
    write_chunk()
    files.note(hashed.hexdigest(), now=True)
    tell(seen, source.documents)
    return _changed(files.state, collection=source.collection)


def finish(folder: Path, final: LogState) -> None:
    """Say that all is done."""
    with writing_to(folder, DONE_STAYS):
        save_state(final, folder / MANIFEST)
        (folder / PROGRESS).unlink(missing_ok=True)


def hash_document(hashed: blake2b, document: Document) -> None:
    """Take a document into the hash that a state keeps of all texts."""
    for part in (document.id, document.title, document.text):
        raw = part.encode("utf-8", "surrogatepass")
        hashed.update(len(raw).to_bytes(8, "big") + raw)


def _refuse_others(files: AppendLog[S], texts: str) -> None:
    if texts != files.state.texts:
        raise BadIndex(
            f"{files.folder}: the first {files.state.documents:,} documents are not those that were encoded "
            "(texts, titles, ids or their order changed); encode all of them again with --overwrite"
        )


@contextmanager
def writing_to(folder: Path, consolation: str) -> Iterator[None]:
    """Turn a refusal to write into an error that says what is left."""
    try:
        yield
    except OSError as error:
        cause = error.__cause__ if isinstance(error, OutputFailed) else error
        number = getattr(cause, "errno", None)
        reason = (
            "the disk is full; free some space"
            if number in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
            else getattr(cause, "strerror", None) or str(error)
        )
        raise OutputFailed(f"{folder}: the vectors cannot be written: {reason}. {consolation}") from error


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

    Raises WrongUse: what is there was made otherwise, or is being written; BadIndex: the shards are of other
    documents than the index holds now; OutputFailed: no permission, disk full; what was there still is.
    """
    states = [kind.load(shard / MANIFEST) for shard in shards]
    zeros: dict[str, object] = dict.fromkeys((*kind.sums, *kind.most), 0)
    fresh = replace(states[0], texts="", collection="", sums={}, blocks={}, **zeros)
    count = sum(state.documents for state in states)
    made = {state.collection for state in states}
    if count != len(index) or len(made) != 1 or not index.manifest.began_as(*made):
        raise BadIndex(
            f"{target}: the shards are of {count:,} documents of an index that has changed since; it has "
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
    shards: Sequence[Path], folder: Path, fresh: S, kind: LogKind[S], index: Index, tell: Progress
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
