"""The only door for data files: plain, gzip and zstd in; whole or absent out.

Readers say the file and the line of every fault. Writers fill a temporary file beside the target and
rename it, so that an interrupted or failed write leaves what stood there before.
"""

from __future__ import annotations

import errno
import gzip
import io
import os
import shutil
import sys
import tempfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, TextIO, cast

from rankhouse.core.errors import BadData, MissingInput, OutputFailed, RankhouseError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

if sys.platform != "win32":  # there, what a killed writer left stays until somebody removes it
    import fcntl

COMPRESSIONS = (".gz", ".zst")
_SCRATCH, _REPLACED = ".part", "replaced"
_GZIP_MAGIC, _ZSTD_MAGIC, _BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"


def kind_of(path: Path) -> str:
    """Give a file's suffix in lower case, looking through a compression: ``a.JSONL.gz`` -> ``.jsonl``."""
    inner = path.with_suffix("") if path.suffix.lower() in COMPRESSIONS else path
    return inner.suffix.lower()


@dataclass
class Meter:
    """Counts the bytes read from disk, so that long reading can show how far it is."""

    bytes: int = 0


class _MeteredFile(io.FileIO):
    """A raw file that reports what was read from it."""

    def __init__(self, path: Path, meter: Meter) -> None:
        super().__init__(path)
        self._meter = meter

    def readinto(self, buffer: Any) -> int | None:  # noqa: ANN401 - any writable buffer, as in io
        count = super().readinto(buffer)
        self._meter.bytes += count or 0
        return count


@contextmanager
def open_bytes(path: Path, meter: Meter | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed by what it holds (not by its name).

    Raises:
        MissingInput: There is no such file, it is a folder, or it may not be read.
        BadData: The compressed data is damaged or ends too early.
    """
    try:
        with io.BufferedReader(_MeteredFile(path, meter or Meter()), 1 << 17) as raw:
            magic = raw.peek(4)[:4]
            if magic.startswith(_GZIP_MAGIC):
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            elif magic == _ZSTD_MAGIC:
                with zstd.ZstdFile(raw) as plain:
                    yield cast(BinaryIO, plain)
            else:
                yield cast(BinaryIO, raw)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise BadData(
            f"the compressed data is damaged or ends too early ({error}); copy or make the file again", path
        ) from error
    except RankhouseError:
        raise
    except OSError as error:
        raise _cannot_read(path, error) from error


def _cannot_read(path: Path, error: OSError) -> RankhouseError:
    if isinstance(error, FileNotFoundError):
        near = sorted(p.name for p in path.parent.iterdir())[:8] if path.parent.is_dir() else []
        beside = f"; beside it there are: {', '.join(near)}" if near else ""
        return MissingInput(f"{path}: there is no such file{beside}")
    if isinstance(error, IsADirectoryError):
        return MissingInput(f"{path}: is a folder, a file is needed")
    return MissingInput(f"{path}: cannot be read ({error.strerror or error})")


def numbered_lines(path: Path, meter: Meter | None = None) -> Iterator[tuple[int, bytes]]:
    """Stream (line number from 1, line without its end) of a file; a byte order mark is taken off."""
    with open_bytes(path, meter) as stream:
        for number, line in enumerate(stream, 1):
            if number == 1:
                line = line.removeprefix(_BOM)  # noqa: PLW2901 - only the first line can hold a mark
            yield number, line.rstrip(b"\r\n")


def as_text(raw: bytes, path: Path, line: int) -> str:
    """Decode one line as UTF-8.

    Raises:
        BadData: The line is not UTF-8; says which byte.
    """
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        raise BadData(
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8; convert the file, "
            "for example  iconv -f latin1 -t utf-8",
            path,
            line,
        ) from error


def looks_like(path: Path) -> str:
    """Tell by its first character that is not white space what a text file holds: ``{``, ``<`` or other."""
    for _, raw in numbered_lines(path):
        if raw.strip():
            return chr(raw.lstrip()[0])
    return ""


@dataclass
class Skips:
    """How many malformed records may be passed over, and which ones were.

    Attributes:
        limit: The most that are tolerated; one more raises.
        seen: The faults passed over so far, in the order met.
    """

    limit: int = 0
    seen: list[BadData] = field(default_factory=list)

    def take(self, fault: BadData) -> None:
        """Note a fault, or raise it when the limit is reached."""
        if len(self.seen) >= self.limit:
            if self.limit == 0:
                raise fault
            raise BadData(
                f"{fault.reason} (and {self.limit} faulty records were passed over before this one, "
                "the most that was allowed)",
                fault.path,
                fault.line,
            )
        self.seen.append(fault)


@contextmanager
def writing_failures(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into an error that names the target."""
    try:
        yield
    except RankhouseError:
        raise
    except OSError as error:
        hint = {
            errno.ENOSPC: "the disk is full; free some space or write elsewhere",
            errno.EDQUOT: "the disk quota is used up; free some space or write elsewhere",
            errno.EACCES: "there is no permission to write there",
            errno.EPERM: "there is no permission to write there",
            errno.EROFS: "the file system is read-only",
            errno.ENOENT: "the folder does not exist and could not be made",
            errno.ENOTDIR: "a part of the path is a file, not a folder",
            errno.EISDIR: "a folder of that name is in the way",
        }.get(error.errno or 0, error.strerror or str(error))
        raise OutputFailed(f"{path}: cannot be written: {hint}; nothing was left half-written") from error


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a temporary path beside the target; rename it onto the target when the block ends well.

    Missing parent folders are made. If the block raises, the temporary is removed (file or folder) and the
    target stays as it was. What a killed process left beside the target is tidied up by the next writer.

    Raises:
        OutputFailed: No permission, disk full, or the like.
    """
    with writing_failures(path):
        path.parent.mkdir(parents=True, exist_ok=True)
        prefix = f".{path.name[:60]}."
        _tidy(path.parent, prefix)
        scratch, lock = _locked_scratch(path.parent, prefix)
        temporary = scratch / path.name
        try:
            yield temporary
            if path.is_dir() and not path.is_symlink():
                path.rename(scratch / _REPLACED)
            temporary.replace(path)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
            if lock is not None:
                os.close(lock)


def _lock(folder: Path) -> int | None:
    """Lock a folder for as long as this process lives; None where somebody else holds it or it is gone.

    Where the system or the file system has no such locks, the folder counts as held.
    """
    if sys.platform == "win32":
        return None
    try:
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError:
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        folder.stat()  # another process may have tidied it up between the two calls
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def _locked_scratch(parent: Path, prefix: str) -> tuple[Path, int | None]:
    while True:
        scratch = Path(tempfile.mkdtemp(prefix=prefix, suffix=_SCRATCH, dir=parent))
        lock = _lock(scratch)
        if lock is not None or scratch.exists():
            return scratch, lock


def _tidy(parent: Path, prefix: str) -> None:
    """Remove the scratch folders of writers that no longer live: their locks went with them."""
    with os.scandir(parent) as entries:
        left = [e.path for e in entries if e.name.startswith(prefix) and e.name.endswith(_SCRATCH)]
    for scratch in map(Path, left):
        lock = _lock(scratch)
        if lock is None:
            continue
        if (scratch / _REPLACED).exists():  # killed between the two renames: the new folder was whole
            for whole in scratch.iterdir():
                if whole.name != _REPLACED and not (parent / whole.name).exists():
                    whole.rename(parent / whole.name)
        shutil.rmtree(scratch, ignore_errors=True)
        os.close(lock)


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open a text file for writing, compressed by its suffix, whole or absent; LF line ends, UTF-8.

    The same content gives the same bytes: no time stamp goes into a gzip header.
    """
    with replacing(path) as temporary, temporary.open("wb") as raw:
        packed: BinaryIO = raw
        if path.suffix.lower() == ".gz":
            packed = cast(BinaryIO, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0))
        elif path.suffix.lower() == ".zst":
            packed = cast(BinaryIO, zstd.ZstdFile(raw, mode="wb"))
        with packed, io.TextIOWrapper(packed, encoding="utf-8", newline="\n") as text:
            yield text
            text.flush()
            if not raw.closed:
                os.fsync(raw.fileno())
