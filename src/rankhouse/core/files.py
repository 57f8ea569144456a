"""The only door for data files that are read: plain, gzip and zstd; every fault with its file and line."""

from __future__ import annotations

import gzip
import io
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, cast

from rankhouse.core.errors import BadData, MissingInput, RankhouseError

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

COMPRESSIONS = (".gz", ".zst")
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
