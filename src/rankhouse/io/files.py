"""Readers of all data files: plain, gzip and zstd; every fault with its file and line.

A hostile file ends in a message, not in a machine without memory:

``RANKHOUSE_MAX_RECORD``
    Most bytes of what is read as one piece: a line, a record of markup, a small file; 256M by default.
``RANKHOUSE_MAX_EXPANSION``
    How many times its size a compressed file may unpack to, above 256 MiB; 500 by default.

Environment variables; the first may end in K, M or G, and 0 takes a limit away.
"""

from __future__ import annotations

import atexit
import gzip
import io
import os
import re
import sys
import tempfile
import zlib
from collections.abc import Generator, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import partial
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import Annotated, Any, BinaryIO, TypeVar, cast

from rankhouse.core.arguments import Option
from rankhouse.core.errors import BadData, MissingInput, RankhouseError, WrongUse

T = TypeVar("T")

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

ALWAYS = 256 << 20
"""Bytes that are never too many."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
COMPRESSIONS = (".gz", ".zst")
_GZIP_MAGIC, _ZSTD_MAGIC, _BOM = b"\x1f\x8b", b"\x28\xb5\x2f\xfd", b"\xef\xbb\xbf"
_UTF_16 = (b"\xff\xfe", b"\xfe\xff")
_BUFFER = 1 << 17


PathLike = str | os.PathLike[str]


def wrong_kind(name: str, given: object, wanted: str) -> WrongUse:
    """Return the error for an argument of the wrong type."""
    shown = " ".join(repr(given).split())
    return WrongUse(f"{name} is of type {type(given).__name__} ({shown:.60}); give {wanted}")


_LONGEST_NAME, _LONGEST_PATH = 255, 4_095  # bytes


def as_path(given: PathLike, name: str) -> Path:
    """Return a path; WrongUse, which names the argument, for anything else and for what names no file."""
    path = os.fspath(given) if isinstance(given, str | os.PathLike) else None
    with suppress(UnicodeEncodeError):  # halves of surrogate pairs that stand for no byte
        if isinstance(path, str) and b"\0" not in (raw := os.fsencode(path)):
            if len(raw) > _LONGEST_PATH or max(map(len, raw.split(b"/"))) > _LONGEST_NAME:
                raise MissingInput(
                    f'{name}: "{path:.40}..." is too long: a name has {_LONGEST_NAME} bytes at most, and a '
                    f"path {_LONGEST_PATH:,}"
                )
            return Path(path)
    raise wrong_kind(name, given, "a path: a string or pathlib.Path")


def _setting(name: str, usual: int) -> int:
    """Read a limit from the environment; "no limit" is a number that nothing reaches."""
    text = os.environ.get(name, "").strip()
    if not text:
        return usual
    match = re.fullmatch(r"([0-9]{1,15})([KMG]?)", text.upper())
    if match is None:
        raise WrongUse(f'{name}="{text}": write a whole number, like 268435456 or 256M; 0 for no limit')
    return min(int(match[1]) * _UNITS[match[2]] or sys.maxsize, sys.maxsize // 2)


def most_bytes() -> int:
    """Return how many bytes may be read into memory as one piece."""
    return _setting("RANKHOUSE_MAX_RECORD", ALWAYS)


def most_times() -> int:
    """Return how many times its size a compressed file may unpack to, above :data:`ALWAYS` bytes."""
    return _setting("RANKHOUSE_MAX_EXPANSION", 500)


def too_long(what: str, path: Path, line: int | None = None) -> BadData:
    """Return the error for a line, record or file beyond :func:`most_bytes`; lines count from 1."""
    return BadData(
        f"{what} has more than {most_bytes():,} bytes, the most that is read as one piece; "
        "if it is meant to, set RANKHOUSE_MAX_RECORD=1G (or more; it has to fit into memory)",
        path,
        line,
    )


def kind_of(path: Path) -> str:
    """Return a file's suffix in lower case, looking through a compression: ``a.JSONL.gz`` -> ``.jsonl``."""
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


_pipes: dict[tuple[int, int], tuple[io.FileIO, io.FileIO, Lock]] = {}  # with what came out of them
_opening = Lock()


class _PipeAgain(io.RawIOBase):
    """A pipe from its beginning, however often it is opened: what came out is kept in a temporary file."""

    def __init__(self, path: Path, meter: Meter) -> None:
        super().__init__()
        stat = path.stat()
        key = (stat.st_dev, stat.st_ino)
        with _opening:
            if key not in _pipes:
                kept = tempfile.TemporaryFile(buffering=0)  # noqa: SIM115 - kept as long as this process
                _pipes[key] = io.FileIO(path), kept, Lock()
                for file in _pipes[key][:2]:
                    atexit.register(file.close)
        (self._pipe, self._kept, self._turn), self._meter, self._at = _pipes[key], meter, 0

    @staticmethod
    def is_at(path: Path) -> bool:
        """Return whether a path leads to a pipe without a name, into which no second content can come."""
        return str(path).startswith(("/dev/fd/", "/proc/self/fd/", "/dev/stdin")) and path.is_fifo()

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer, as in io
        """Read what was kept, then what comes."""
        with self._turn:
            data = os.pread(self._kept.fileno(), len(buffer), self._at)
            if not data and (data := self._pipe.read(len(buffer)) or b""):
                os.pwrite(self._kept.fileno(), data, self._at)
                self._meter.bytes += len(data)
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


class _UnpackedStream(io.RawIOBase):
    """Contents of a compressed stream, refused where it unpacks to absurdly much."""

    def __init__(self, packed: BinaryIO, path: Path, packed_bytes: int) -> None:
        super().__init__()
        self._packed, self._path, self._count = packed, path, 0
        self._times = most_times()
        self._most = max(ALWAYS, packed_bytes * self._times)

    def readable(self) -> bool:
        """Tell that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any writable buffer, as in io
        """Unpack into a buffer; return how many bytes came."""
        count: int = cast(Any, self._packed).readinto(buffer)
        self._count += count
        if self._count > self._most:
            raise BadData(
                f"the compressed data unpacks to more than {self._times:,} times its size "
                f"({self._count:,} bytes so far), which looks like a decompression bomb; if it is meant to, "
                "unpack it first, or set RANKHOUSE_MAX_EXPANSION to a higher number",
                self._path,
            )
        return count


@contextmanager
def open_bytes(path: Path, meter: Meter | None = None) -> Iterator[BinaryIO]:
    """Open a file for reading, decompressed by what it holds, not by its name; the meter counts packed bytes.

    Raises MissingInput where there is no such file, it is a folder, or it may not be read; BadData where the
    compressed data is damaged, ends too early or unpacks to absurdly much.
    """
    try:
        opened = _PipeAgain if _PipeAgain.is_at(path) else _MeteredFile
        with io.BufferedReader(opened(path, meter or Meter()), _BUFFER) as raw:
            magic = raw.peek(4)[:4]
            if magic.startswith(_GZIP_MAGIC):
                packed = cast(BinaryIO, gzip.GzipFile(fileobj=raw))
            elif magic == _ZSTD_MAGIC:
                packed = cast(BinaryIO, zstd.ZstdFile(raw))
            else:
                yield cast(BinaryIO, raw)
                return
            size = path.stat().st_size
            with packed, io.BufferedReader(_UnpackedStream(packed, path, size), _BUFFER) as plain:
                yield cast(BinaryIO, plain)
    except (EOFError, gzip.BadGzipFile, zlib.error, zstd.ZstdError) as error:
        raise BadData(
            f"the compressed data is damaged or ends too early ({error}); copy or make the file again", path
        ) from error
    except RankhouseError:
        raise
    except OSError as error:
        raise _cannot_read(path, error) from error


def is_packed(path: Path) -> bool:
    """Return by its content whether a file is compressed."""
    with open_bytes(path) as stream:
        return not isinstance(cast(io.BufferedReader, stream).raw, _MeteredFile | _PipeAgain)


def _cannot_read(path: Path, error: OSError) -> RankhouseError:
    if isinstance(error, FileNotFoundError):
        near = _neighbours(path)
        beside = f"; beside it there are: {', '.join(near)}" if near else ""
        return MissingInput(f"{path}: there is no such file{beside}")
    if isinstance(error, IsADirectoryError):
        return MissingInput(f"{path}: is a folder, a file is needed")
    return MissingInput(f"{path}: cannot be read ({error.strerror or error})")


def _neighbours(path: Path, most: int = 8) -> list[str]:
    """List what stands beside a missing file, the nearest names first; nothing hidden, no locks."""
    try:
        names = sorted(entry.name for entry in path.parent.iterdir())
    except OSError:
        return []
    open_ones = [
        n for n in names if not n.startswith(".") and not n.endswith((".lock", ".part", ".tmp", "~"))
    ]
    close = get_close_matches(path.name, open_ones[:1000], most)
    return list(dict.fromkeys([*close, *open_ones]))[:most]


def lines_of(stream: BinaryIO, path: Path) -> Iterator[tuple[int, bytes]]:
    """Stream (line number from 1, line without its end) of an open file; a byte order mark is taken off.

    Raises BadData where a line is longer than :func:`most_bytes`.
    """
    most = most_bytes()
    for number, line in enumerate(iter(partial(stream.readline, most + 1), b""), 1):
        if len(line) > most:
            raise too_long("the line", path, number)
        if number == 1:
            line = line.removeprefix(_BOM)  # noqa: PLW2901 - only the first line can hold a mark
        yield number, line.rstrip(b"\r\n")


def numbered_lines(path: Path, meter: Meter | None = None) -> Generator[tuple[int, bytes], None, None]:
    """Stream the lines of a file; see :func:`lines_of`, and :func:`open_bytes` for the errors."""
    with open_bytes(path, meter) as stream:
        yield from lines_of(stream, path)


def begun(path: Path) -> tuple[bytes, Iterable[tuple[int, bytes]]]:
    """Return the first line of a file that is not blank, and all of its lines from there; read once."""
    lines = numbered_lines(path)
    for line, raw in lines:
        if raw.strip():
            return raw, chain([(line, raw)], lines)
    return b"", ()


def read_whole(path: Path) -> bytes:
    """Read a small file into memory, decompressed; a byte order mark is taken off.

    Raises BadData where it has more than :func:`most_bytes`, and what :func:`open_bytes` does.
    """
    most, raw = most_bytes(), bytearray()
    with open_bytes(path) as stream:
        while chunk := stream.read(1 << 20):
            raw += chunk
            if len(raw) > most:
                raise too_long("the file", path)
    return bytes(raw.removeprefix(_BOM))


def as_text(raw: bytes, path: Path, line: int) -> str:
    """Decode one line as UTF-8; BadData says which byte is none."""
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        coding = "utf-16" if line == 1 and raw.startswith(_UTF_16) else "latin1"
        raise BadData(
            f"byte {error.start + 1} of the line (0x{raw[error.start]:02x}) is not UTF-8; convert the file, "
            f"for example  iconv -f {coding} -t utf-8",
            path,
            line,
        ) from error


begins_array = re.compile(rb"\s*\[\s*(\{.*|\]\s*)?", re.DOTALL).fullmatch  # of objects; "[1] a text" does not


def looks_like(path: Path) -> str:
    """Return by its first sign what a text file holds: ``{`` (or an array of such), ``<`` or other."""
    for _, raw in numbered_lines(path):
        if raw.strip():
            return "{" if begins_array(raw) else chr(raw.lstrip()[0])
    return ""


def is_hidden(name: str) -> bool:
    """Return whether a file or folder is left out where a folder is read: its name begins with a dot."""
    return name.startswith(".")


SkipBad = Annotated[int, Option("Skip up to N malformed records and report them.", least=0, metavar="N")]
"""The option of commands that says so."""


@dataclass
class Skips:
    """Number of malformed records that may be skipped (one more raises), and which ones were."""

    limit: int = 0
    seen: list[BadData] = field(default_factory=list)

    @classmethod
    def of(cls, given: Skips | int | None) -> Skips:
        """Return what is given, or new ones of this number; WrongUse for anything else."""
        if isinstance(given, Skips):
            return given
        if given is None or (isinstance(given, int) and not isinstance(given, bool) and given >= 0):
            return cls(given or 0)
        raise wrong_kind("skips", given, "how many malformed records to pass over, 0 or more")

    def take(self, fault: BadData) -> None:
        """Note a fault, or raise it when the limit is reached."""
        if len(self.seen) >= self.limit:
            if self.limit == 0:
                raise fault
            raise BadData(
                f"{fault.reason} (and {self.limit} faulty records were skipped before this one, "
                "the most that was allowed)",
                fault.path,
                fault.line,
            )
        self.seen.append(fault)


_control = re.compile("[\x00-\x1f\x7f-\x9f\ud800-\udfff]")


def checked_id(value: str, path: Path | None = None, line: int | None = None) -> str:
    """Return an id if run and judgement files can hold it: not empty, no white space, no controls."""
    if not value or value.split() != [value]:
        shown = _control.sub(lambda sign: ascii(sign[0])[1:-1], value[:80])
        raise BadData(
            f'the id "{shown}" is empty or has white space in it, and TREC runs and qrels separate their '
            "columns by white space; replace it, for example by underscores",
            path,
            line,
        )
    if control := _control.search(value):
        raise BadData(
            f"the id {value[:80]!a} holds the control character {control[0]!a}, which neither terminals nor "
            "all programs that read runs take; replace it, for example by an underscore",
            path,
            line,
        )
    return value


def given_id(value: object, key: str, path: Path, line: int) -> str:
    """Return the id that a record gives by ``key``: a string, or a whole number that becomes one."""
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str):
        raise BadData(f'the "{key}" must be a string or a whole number, not {value!r}', path, line)
    return checked_id(value, path, line)
