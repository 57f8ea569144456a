"""Folders that only grow, document after document: what vectors and kept passages of an index have in common.

Data files are only ever added to. After some seconds of work they are flushed, and ``progress.json`` says how
much of them counts; ``manifest.json`` says it when all is done. The next call streams over the documents
already done (hashing them, to be sure they are the same), cuts off what a kill may have left half-written,
and goes on. Chunks end with a document and depend on the documents only, so what comes out is the same
whether or not the work was interrupted.
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

from rankhouse.core.errors import BadIndex, OutputFailed, WrongUse
from rankhouse.core.nouns import Document, Passage
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.append_state import MANIFEST, PROGRESS, LogKind, LogState, S, save_state, sum_of
from rankhouse.io.checksums import BlockSums, differs, file_sum
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

    Raises:
        WrongUse: What is there was made otherwise than is asked for.
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

    Raises:
        BadIndex: The documents done earlier are not those that come now, or their number is not as announced.
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
