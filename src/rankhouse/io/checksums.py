"""Checksums, so that a changed byte is never taken for what was written, and names for content.

Small files are compared whole when they are opened. Of large ones a CRC-32 is kept for every 64 KiB, and a
block is compared when something in it is first read: nothing is read that would not be read anyway, and each
block once. What says how a folder was made is kept in an envelope with its own checksum, or, where people
read it too, with a member "checksums", which also covers the files beside it. A content hash names what files
and folders hold, so that their paths do not count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import RankhouseError
from rankhouse.core.notation import quoted
from rankhouse.io.outputs import indented_json, write_json

try:
    from rankhouse.io._crc32 import crc32
except ImportError:  # no compiler at install, or another processor: the same numbers, slower
    from zlib import crc32

BLOCK: Final = 65_536
"""Bytes under one checksum; files up to this size have one for the whole."""

Rows = slice | Sequence[int] | NDArray[Any]
Packed = bytes
"""CRC-32s, 4 bytes each, little-endian."""

Scalar = TypeVar("Scalar", bound=np.generic)
_READ: Final = 16 * BLOCK


class BlockSums:
    """The checksums of a file that grows at its end, which has ``size`` bytes now."""

    def __init__(self, size: int = 0, packed: bytes = b"") -> None:
        self.size = size
        self._sums: list[int] = np.frombuffer(packed, "<u4").tolist()

    def add(self, data: bytes | memoryview) -> None:
        """Take in what is appended to the file."""
        rest = memoryview(data)
        while rest:
            if self.size % BLOCK == 0:
                self._sums.append(0)
            part = rest[: BLOCK - self.size % BLOCK]
            self._sums[-1] = crc32(part, self._sums[-1])
            self.size, rest = self.size + len(part), rest[len(part) :]

    def packed(self) -> bytes:
        """Return the checksums, 4 bytes a block, little-endian."""
        return np.array(self._sums, "<u4").tobytes()


class FileSum(NamedTuple):
    """Checksums of a file: its size, CRC-32 of the whole, and of each block (empty for files of one)."""

    bytes: int
    crc32: int
    blocks: Packed = b""


def file_sum(path: Path, size: int | None = None, *, blocks: bool = False) -> FileSum:
    """Measure a file, or its first ``size`` bytes, reading it once."""
    crc, sums = 0, BlockSums()
    with path.open("rb") as stream:
        while chunk := stream.read(_READ if size is None else min(_READ, size - sums.size)):
            crc = crc32(chunk, crc)
            sums.add(chunk)
    return FileSum(sums.size, crc, sums.packed() if blocks or sums.size > BLOCK else b"")


def differs(actual: FileSum, expected: FileSum) -> str:
    """Say how a file differs from what it must be; "" where it does not."""
    if actual.bytes != expected.bytes:
        return f"has {actual.bytes:,} bytes where the manifest says {expected.bytes:,}"
    if actual.crc32 != expected.crc32:
        return "does not have the content it was written with"
    return ""


class Guard:
    """Compares the blocks of a mapped file with their checksums, each when it is first read.

    Without checksums of blocks the whole file counts as one; ``left`` were not compared yet. Threads may
    share one: at worst both compare the same block.
    """

    __slots__ = ("_block", "_content", "_damaged", "_seen", "_sums", "left")

    def __init__(
        self, content: NDArray[np.uint8], expected: FileSum, damaged: Callable[[], RankhouseError]
    ) -> None:
        self._content, self._damaged = memoryview(content), damaged
        self._block = BLOCK if expected.blocks else max(1, expected.bytes)
        sums = expected.blocks or np.array([expected.crc32], "<u4").tobytes()
        self._sums: NDArray[np.uint32] = np.frombuffer(sums, "<u4")
        self._seen = bytearray(-(-len(content) // self._block))
        self.left = len(self._seen)
        if len(self._sums) < self.left:
            raise damaged()

    def span(self, start: int, end: int) -> None:
        """See to it that the bytes from start to end are as they were written, or raise ``damaged()``."""
        if start < 0 or end > len(self._content):
            raise self._damaged()
        if self.left and end > start:
            first, last = start // self._block, (end - 1) // self._block
            for number in range(first, last + 1):
                if not self._seen[number]:
                    self._compare(number)

    def whole(self) -> None:
        """See to it that all of the file is as it was written; raises as :meth:`span` does."""
        self.span(0, len(self._content))

    def spans(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """See to n spans at once, none of them empty: first bytes, and those behind the last, (n,) each."""
        if not self.left or not len(starts):
            return
        if int(starts.min()) < 0 or int(ends.max()) > len(self._content):
            raise self._damaged()
        first, last = starts // self._block, (ends - 1) // self._block
        wanted = np.zeros(len(self._seen), bool)
        wanted[first] = wanted[last] = True
        for i in np.flatnonzero(last > first + 1).tolist():
            wanted[first[i] : last[i]] = True
        for number in np.flatnonzero(wanted > np.frombuffer(self._seen, bool)).tolist():
            self._compare(number)

    def _compare(self, number: int) -> None:
        part = self._content[number * self._block : (number + 1) * self._block]
        if crc32(part) != self._sums[number]:
            raise self._damaged()
        self._seen[number] = 1
        self.left = self._seen.count(0)


class CheckedArray(Generic[Scalar]):
    """An array in a file; what is taken out of it was compared by the guard of the file, if it has one."""

    __slots__ = ("_guard", "_items", "_offset", "_width", "unchecked")

    def __init__(self, unchecked: NDArray[Scalar], guard: Guard | None = None, offset: int = 0) -> None:
        self.unchecked, self._guard, self._offset = unchecked, guard, offset
        self._width = unchecked.itemsize * (unchecked.shape[1] if unchecked.ndim == 2 else 1)
        self._items: Any = memoryview(unchecked) if unchecked.ndim == 1 else unchecked

    def __len__(self) -> int:
        return len(self.unchecked)

    @property
    def dtype(self) -> np.dtype[Scalar]:
        """Type of its numbers."""
        return self.unchecked.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Its shape, as numpy says it."""
        return self.unchecked.shape

    @property
    def complete(self) -> bool:
        """Whether all of it was compared."""
        return self._guard is None or not self._guard.left

    def check(self, start: int, end: int) -> None:
        """See to it that entries from start to end are as they were written."""
        if self._guard is not None and self._guard.left:
            self._guard.span(self._offset + start * self._width, self._offset + end * self._width)

    def check_many(self, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> None:
        """See to entries from starts (n,) to ends (n,), all at once."""
        if self._guard is not None and self._guard.left:
            full = ends > starts
            width, offset = self._width, self._offset
            self._guard.spans(starts[full] * width + offset, ends[full] * width + offset)

    def item(self, place: int) -> Any:  # noqa: ANN401 - a plain number
        """Return one number of a (n,) array."""
        if self._guard is not None and self._guard.left:
            self.check(place, place + 1)
        return self._items[place]

    def part(self, start: int, end: int) -> Any:  # noqa: ANN401 - a memoryview, which types poorly
        """Return the entries from start to end of a (n,) array, as a buffer over the same memory."""
        if self._guard is not None and self._guard.left:
            self.check(start, end)
        return self._items[start:end]

    def whole(self) -> NDArray[Scalar]:
        """Return all of it."""
        self.check(0, len(self.unchecked))
        return self.unchecked

    def __getitem__(self, rows: Rows) -> NDArray[Scalar]:
        if not self.complete:
            if isinstance(rows, slice):
                start, end, _ = rows.indices(len(self.unchecked))
                self.check(start, max(start, end))
            else:
                chosen = np.asarray(rows, np.int64)
                self.check_many(chosen, chosen + 1)
        return self.unchecked[rows]

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:  # noqa: ANN401 - numpy's protocol
        return np.array(self.whole(), dtype) if copy else np.asarray(self.whole(), dtype)

    def tolist(self) -> list[Any]:
        """Return all of it as numbers."""
        return list(self.whole().tolist())


class _Envelope(msgspec.Struct):
    crc32: int = -1
    manifest: msgspec.Raw = msgspec.Raw()


class BadEnvelope(ValueError):
    """Content that is no envelope, or is not what was put into it; says which."""


def sealed(content: bytes) -> bytes:
    """Put JSON into an envelope with its checksum."""
    inner = msgspec.json.format(content, indent=1)
    return b'{"crc32": %d, "manifest":\n%s}\n' % (crc32(inner), inner)


def unsealed(raw: bytes, *, bare: bool = False) -> bytes:
    """Take JSON out of its envelope, or return it as it is where it is ``bare`` and may be.

    Raises BadEnvelope where it is none, or the content does not fit its checksum.
    """
    try:
        envelope = msgspec.json.decode(raw, type=_Envelope)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BadEnvelope(f"cannot be read ({error})") from error
    content = bytes(envelope.manifest).strip()
    if bare and not content:
        return raw
    if not content:
        raise BadEnvelope("cannot be read (it holds no manifest with a checksum)")
    if crc32(content) != envelope.crc32:
        raise BadEnvelope("was changed after it was written")
    return content


_SUMS: Final = "checksums"
_OWN: Final = "this file"


def write_checked(path: Path, value: object, files: Iterable[Path] = ()) -> None:
    """Write a JSON object with checksums of itself and of files beside it; ``read_own`` compares them."""
    fields = msgspec.json.decode(indented_json(value))
    sums = {file.name: file_sum(file).crc32 for file in files if file.is_file()}
    write_json(path, {**fields, _SUMS: {_OWN: _object_sum(fields, sums), **sums}})


def changed_since_written(raw: bytes, path: Path) -> str:
    """Say which file is not as :func:`write_checked` left it; "" for none, and where there are no checksums.

    ``raw`` is the content of the file, JSON that can be decoded.
    """
    try:
        fields = msgspec.json.decode(raw)
    except (UnicodeDecodeError, RecursionError):  # which a reader of known members alone does not meet
        return f"{path}: was changed after it was written"
    if not isinstance(fields, dict):
        return ""
    sums = fields.pop(_SUMS, {})
    # without checksums it is of an older version, unless the very name of the member was changed
    if not sums and not any(isinstance(value, dict) and _OWN in value for value in fields.values()):
        return ""
    own = sums.pop(_OWN, None) if isinstance(sums, dict) else None
    if own is None or own != _object_sum(fields, sums):
        return f"{path}: was changed after it was written"
    for name, expected in sums.items():
        file = path.parent / name
        if not file.is_file():
            return f"{file}: is gone"
        if file_sum(file).crc32 != expected:
            return f"{file}: was changed after it was written"
    return ""


def _object_sum(fields: object, sums: object) -> int:
    return crc32(msgspec.json.encode([fields, sums]))


WHOLE: Final = 64 << 20
"""Bytes of a file up to which all of it is hashed; of a larger one, this many in evenly spaced blocks."""
_BLOCKS: Final = 64


def described(text: str) -> str:
    """Return a notation with hashes in place of the files and folders it names: contents count, not paths."""
    for word in dict.fromkeys((text, *quoted(text))):
        if (path := _existing(word)) is not None:
            text = text.replace(word, content_hash(path))
    return text


def content_hash(path: Path, most: int = WHOLE) -> str:
    """Return 16 digits that name the content of a file, or of all files of a folder with their names.

    Of a file beyond ``most`` bytes its size and 64 blocks count.
    """
    block = most // _BLOCKS
    hashed = blake2b(digest_size=8)
    for name, file in files_of(path):
        size = file.stat().st_size
        hashed.update(f"{name}\0{size}\0".encode("utf-8", "surrogatepass"))
        with file.open("rb") as stream:
            if size <= most:
                while chunk := stream.read(1 << 20):
                    hashed.update(chunk)
                continue
            for number in range(_BLOCKS):
                stream.seek(number * (size - block) // (_BLOCKS - 1))
                hashed.update(stream.read(block))
    return hashed.hexdigest()


def _existing(word: str) -> Path | None:
    with suppress(OSError, ValueError):  # a rule, a question: no name that a file could have
        if Path(word).exists():
            return Path(word)
    return None


def files_of(path: Path) -> Iterator[tuple[str, Path]]:
    """List the files that count, in order of name, hidden ones (locks, scratch) left out; one has no name."""
    if path.is_file():
        yield "", path
        return
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            yield str(name), file
