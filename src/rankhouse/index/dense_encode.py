"""Documents -> vectors on disk, chunk after chunk; a killed encoding goes on where it was.

After every chunk the files are flushed and ``progress.json`` says how much of them counts. The next call
streams over the documents already done (hashing them, to be sure they are the same), cuts off what a kill may
have left half-written, and goes on. Chunks end with a document and depend on the documents only, so vectors
are the same whether or not the encoding was interrupted. Documents added to an index are encoded alike: only
they are.
"""

from __future__ import annotations

import errno
import fcntl
import os
import shutil
import time
import warnings
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import BinaryIO, Final

import msgspec
import numpy as np

from rankhouse.core.errors import BadIndex, BadModel, OutputFailed, RankhouseWarning, WrongUse
from rankhouse.core.notation import choose
from rankhouse.core.nouns import Document, FloatArray, Passage
from rankhouse.index.dense import (
    DTYPES,
    MANIFEST,
    PROGRESS,
    SIMILARITIES,
    Encoder,
    State,
    Vectors,
    load_state,
    unit_length,
)
from rankhouse.text.split import Whole

Split = Callable[[Document], Sequence[Passage]]
"""What cuts a document into passages; ``text.split`` has them."""

Progress = Callable[[int, int], None]
"""Told (documents done, documents in all) after every chunk."""

CHUNK_CHARACTERS: Final = 4_000_000
JOURNAL_SECONDS: Final = 2.0  # at most so much work is lost by a kill, besides the chunk under way
_DATA: Final = ("vectors.bin", "owners.bin", "ids.bin", "ids_at.bin")
_DONE_STAYS: Final = "What was encoded so far is kept; run the same command again to go on from there"


@dataclass(frozen=True)
class Encoding:
    """What to encode, and how.

    Attributes:
        documents: How many there are in all.
        collection: The index's fingerprint.
        split: What cuts documents into passages, each of which gets a vector.
        policy: Whatever else shapes the vectors and is not in the encoder's fingerprint; a split that does
            not write itself as a notation must be named here. Vectors of another split or policy are never
            added to.
        dtype: "float32" or "float16" (half the space; components keep about 3 digits).
        chunk: Passages handed to the encoder at once.
        overwrite: Throw away what is in the folder.
    """

    documents: int
    collection: str
    split: Split = field(default_factory=Whole)
    policy: str = ""
    dtype: str = "float32"
    chunk: int = 1_024
    overwrite: bool = False

    @property
    def way(self) -> str:
        """Split and policy, as kept with the vectors.

        Raises:
            WrongUse: The split is a bare function and has no name that lasts.
        """
        split = str(self.split)
        if " at 0x" not in split:
            return f"{split} {self.policy}".strip()
        if not self.policy:
            raise WrongUse(
                f"{split} does not say what it does, so vectors made with it could not be told from others; "
                "name it in policy"
            )
        return self.policy


def encode(
    encoder: Encoder,
    documents: Iterable[Document],
    folder: Path | str,
    job: Encoding,
    progress: Progress | None = None,
) -> Vectors:
    """Encode a collection, or what is not encoded of it yet.

    Args:
        encoder: What makes the vectors.
        documents: All documents of the collection, in index order, streamed once.
        folder: Where the vectors are or shall be, see :func:`~rankhouse.index.dense.vectors_folder`.
        job: Count, split, precision.
        progress: Told how far the work is, documents encoded earlier included.

    Raises:
        WrongUse: The folder holds vectors of another encoder, split or precision, or is being written.
        BadIndex: The documents encoded earlier are not those that come now, or files are damaged.
        BadModel: The encoder gave something that is no finite (n, d) array.
        OutputFailed: No permission, disk full; what was done stays and is gone on from.
    """
    folder = Path(folder)
    choose(job.dtype, DTYPES, "number format")
    choose(encoder.similarity, SIMILARITIES, "similarity")
    with _writing(folder, "Nothing was lost"):
        folder.mkdir(parents=True, exist_ok=True)
    with _only_writer(folder):
        state = _state_so_far(encoder, folder, job)
        if (state.documents, state.collection) == (job.documents, job.collection):
            return Vectors.open(folder)
        with _Files(folder, state) as files:
            final = _go_on(encoder, documents, files, job, progress)
        with _writing(folder, _DONE_STAYS):
            final.save(folder / MANIFEST)
            (folder / PROGRESS).unlink(missing_ok=True)
    if final.without_text:
        warnings.warn(
            f"{final.without_text:,} of {final.documents:,} documents have no text, so they have no vector "
            "and dense search never finds them",
            RankhouseWarning,
            stacklevel=2,
        )
    return Vectors.open(folder)


def _state_so_far(encoder: Encoder, folder: Path, job: Encoding) -> State:
    """Give where to go on: the start, an interrupted encoding, or a complete one of fewer documents."""
    asked = State(encoder=encoder.fingerprint, policy=job.way, similarity=encoder.similarity, dtype=job.dtype)
    if job.overwrite:
        with _writing(folder, "Nothing was lost"):
            for name in (MANIFEST, PROGRESS, *_DATA):
                (folder / name).unlink(missing_ok=True)
            shutil.rmtree(folder / "structures", ignore_errors=True)
        return asked
    there = next((folder / name for name in (PROGRESS, MANIFEST) if (folder / name).exists()), None)
    if there is None:
        return asked
    state = load_state(there)
    for name in ("encoder", "policy", "similarity", "dtype"):
        if (old := getattr(state, name)) != (new := getattr(asked, name)):
            raise WrongUse(
                f'{folder}: holds vectors with {name} "{old}", now "{new}" is asked for; give these vectors '
                "another name, or replace the old ones with --overwrite"
            )
    return state


def _go_on(
    encoder: Encoder, documents: Iterable[Document], files: _Files, job: Encoding, progress: Progress | None
) -> State:
    """Encode what is missing; give the complete state."""
    before, seen = files.state.documents, 0
    hashed, chunk = blake2b(digest_size=16), _Chunk()
    tell = progress or (lambda *_: None)
    for document in documents:
        seen += 1
        _hash(hashed, document)
        if seen <= before:
            if seen == before:
                _refuse_others(files, hashed.hexdigest())
                tell(seen, job.documents)
            continue
        chunk.add(document.id, [p.text for p in job.split(document) if p.text.strip()])
        if chunk.full(job.chunk):
            files.add(chunk, _encoded(encoder, chunk, job, files.state))
            files.note(hashed.hexdigest())
            chunk = _Chunk()
            tell(seen, job.documents)
    if seen < before or seen != job.documents:
        raise BadIndex(
            f"{files.folder}: {seen:,} documents came, {job.documents:,} were announced and {before:,} were "
            "encoded before; if the index was made anew, replace its vectors with --overwrite"
        )
    files.add(chunk, _encoded(encoder, chunk, job, files.state))
    files.note(hashed.hexdigest(), now=True)
    tell(seen, job.documents)
    return msgspec.structs.replace(files.state, collection=job.collection)


class _Chunk:
    """Documents gathered for one call of the encoder."""

    def __init__(self) -> None:
        self.ids: list[str] = []
        self.texts: list[str] = []
        self.rows: list[int] = []
        self._characters = 0

    def add(self, doc_id: str, texts: list[str]) -> None:
        self.ids.append(doc_id)
        self.texts += texts
        self.rows.append(len(texts))
        self._characters += sum(map(len, texts))

    def full(self, passages: int) -> bool:
        """Whether to encode now; documents without text fill a chunk as well, ten times as slowly."""
        return (
            len(self.texts) >= passages
            or self._characters >= CHUNK_CHARACTERS
            or len(self.ids) >= 10 * passages
        )


def _hash(hashed: blake2b, document: Document) -> None:
    for part in (document.id, document.title, document.text):
        raw = part.encode("utf-8", "surrogatepass")
        hashed.update(len(raw).to_bytes(8, "big") + raw)


def _refuse_others(files: _Files, texts: str) -> None:
    if texts != files.state.texts:
        raise BadIndex(
            f"{files.folder}: the first {files.state.documents:,} documents are not those that were encoded "
            "(texts, titles, ids or their order changed); encode all of them anew with --overwrite"
        )


def _encoded(encoder: Encoder, chunk: _Chunk, job: Encoding, state: State) -> FloatArray:
    """Encode a chunk: (n, d) float32, checked, of length 1 where the similarity is the cosine."""
    parts = [np.empty((0, state.dimension), np.float32)]
    for start in range(0, len(chunk.texts), job.chunk):
        texts = chunk.texts[start : start + job.chunk]
        vectors = np.asarray(encoder.encode_passages(texts), np.float32)
        wanted = parts[-1].shape[1] or (vectors.shape[1] if vectors.ndim == 2 else 0)
        if vectors.shape != (len(texts), wanted) or not wanted:
            raise BadModel(
                f"the encoder gave an array of shape {vectors.shape} for {len(texts)} passages; "
                f"({len(texts)}, {wanted or 'd'}) is needed"
            )
        parts.append(vectors)
    vectors = np.concatenate([part for part in parts if part.shape[1]] or parts)
    if state.similarity == "cosine":
        vectors = unit_length(vectors)
    _refuse_unfit(vectors, chunk, job)
    return vectors


def _refuse_unfit(vectors: FloatArray, chunk: _Chunk, job: Encoding) -> None:
    with np.errstate(over="ignore"):
        unfit = ~np.isfinite(vectors.astype(DTYPES[job.dtype])).all(axis=1)
    if unfit.any():
        row = int(np.argmax(unfit))
        doc_id = np.repeat(np.array(chunk.ids, object), chunk.rows)[row]
        fits = np.isfinite(vectors[row]).all()
        raise BadModel(
            f'the vector of document "{doc_id}" '
            + (
                f"holds {np.abs(vectors[row]).max():g}, more than float16 can; use float32"
                if fits
                else "is not finite; the encoder's weights are damaged or overflow in this precision"
            )
        )


class _Files:
    """The data files of a folder, open at their ends, and the state that says how much of them counts.

    ``state`` runs ahead of the file ``progress.json``, which :meth:`note` brings up to date.
    """

    def __init__(self, folder: Path, state: State) -> None:
        self.folder, self.state = folder, state
        self._noted = time.monotonic()
        self._streams: dict[str, BinaryIO] = {}

    def __enter__(self) -> _Files:
        with _writing(self.folder, "Nothing was lost"), ExitStack() as stack:
            for name, size in self.state.sizes().items():
                handle = os.open(self.folder / name, os.O_RDWR | os.O_CREAT, 0o666)
                stream = stack.enter_context(os.fdopen(handle, "r+b", buffering=0))
                there = stream.seek(0, os.SEEK_END)
                if there < size and self.state.documents:
                    raise BadIndex(
                        f"{self.folder / name}: has {there:,} bytes, {size:,} are needed; the vectors are "
                        "damaged: replace them with --overwrite"
                    )
                stream.truncate(size if self.state.documents else 0)
                stream.seek(0, os.SEEK_END)
                self._streams[name] = stream
            if not self.state.documents:
                self._append("ids_at.bin", bytes(8))
            self._open = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):
            self._open.close()

    def add(self, chunk: _Chunk, vectors: FloatArray) -> None:
        """Append a chunk's documents and their vectors (n, d)."""
        before = self.state
        raw = [doc_id.encode() for doc_id in chunk.ids]
        ends = before.id_bytes + np.cumsum([len(r) for r in raw], dtype="<i8")
        numbers = np.arange(before.documents, before.documents + len(raw), dtype="<u4")
        stored = vectors.astype(before.row_type)
        lengths = np.sqrt(np.square(stored, dtype=np.float64).sum(axis=1))
        with _writing(self.folder, _DONE_STAYS):
            self._append("vectors.bin", stored.tobytes())
            self._append("owners.bin", np.repeat(numbers, chunk.rows).tobytes())
            self._append("ids.bin", b"".join(raw))
            self._append("ids_at.bin", ends.tobytes())
        self.state = msgspec.structs.replace(
            self.state,
            dimension=vectors.shape[1],
            documents=before.documents + len(raw),
            rows=before.rows + len(vectors),
            id_bytes=before.id_bytes + sum(map(len, raw)),
            without_text=before.without_text + chunk.rows.count(0),
            largest_norm=max(before.largest_norm, float(lengths.max(initial=0))),
        )

    def _append(self, name: str, data: bytes) -> None:
        rest = memoryview(data)
        while rest:
            rest = rest[self._streams[name].write(rest) :]
        sums = {**self.state.sums, name: zlib.crc32(data, self.state.sums.get(name, 0))}
        self.state = msgspec.structs.replace(self.state, sums=sums)

    def note(self, texts: str, *, now: bool = False) -> None:
        """Say in ``progress.json`` that all of ``state`` counts; every few seconds, unless it must be now."""
        self.state = msgspec.structs.replace(self.state, texts=texts)
        if not now and time.monotonic() - self._noted < JOURNAL_SECONDS:
            return
        with _writing(self.folder, _DONE_STAYS):
            for stream in self._streams.values():
                os.fsync(stream.fileno())
            msgspec.structs.replace(self.state, collection="").save(self.folder / PROGRESS)
        self._noted = time.monotonic()


@contextmanager
def _writing(folder: Path, consolation: str) -> Iterator[None]:
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


@contextmanager
def _only_writer(folder: Path) -> Iterator[None]:
    """Hold a lock that the system lets go of however the process ends."""
    with _writing(folder, "Nothing was lost"):
        handle = os.open(folder / "lock", os.O_CREAT | os.O_RDWR)
    try:
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise WrongUse(
                f"{folder}: another process is encoding these vectors; wait for it or stop it"
            ) from None
        yield
    finally:
        os.close(handle)
