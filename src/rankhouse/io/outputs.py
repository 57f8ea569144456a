"""Writers of all results: a file or folder is whole or absent, and never replaces anything else.

Writers fill a temporary file beside the target and rename it, so that an interrupted or failed write leaves
what stood there before. A file replaces a file and nothing else; a folder replaces a folder of its own kind;
a device or a pipe (``/dev/stdout``, ``/dev/null``) and ``-`` are written to. The lock of
an output (:func:`only_writer`) stands beside it: there is one writer at a time.
"""

from __future__ import annotations

import codecs
import ctypes
import errno
import gzip
import io
import os
import shutil
import stat
import sys
import tempfile
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Final, TextIO, cast

import msgspec

from rankhouse.core.errors import OutputFailed, RankhouseError, WrongUse, encodable, name_few
from rankhouse.io.scratch import REPLACED, SCRATCH, scratch_folder, try_lock

if TYPE_CHECKING:
    from filelock import BaseFileLock


if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

SHARD_MANIFEST: Final = "part.json"
"""Manifest of a shard, in its folder."""
_STREAMS: Final = {"-": 1, "/dev/stdout": 1, "/dev/stderr": 2}
_NEVER_REPLACED: Final = ", which is never replaced; name another place, or move it away"
_REFUSALS: Final = {
    errno.ENOSPC: "the disk is full; free some space or write elsewhere",
    errno.EDQUOT: "the disk quota is used up; free some space or write elsewhere",
    errno.EFBIG: "the file would be larger than is allowed; write elsewhere or raise the limit",
    errno.EACCES: "there is no permission to write there",
    errno.EPERM: "there is no permission to write there",
    errno.EROFS: "the file system is read-only; write elsewhere",
    errno.ENOENT: "the folder does not exist and could not be made",
    errno.ENOTDIR: "a part of the path is a file, not a folder",
    errno.EEXIST: "a part of the path is a file, not a folder",
    errno.EISDIR: "a folder of that name is in the way",
    errno.ELOOP: "its links lead in a circle",
    errno.ENAMETOOLONG: "the name is too long for this file system",
}


def real_path(path: Path) -> Path:
    """Return where a path leads to when all links are followed; what is missing may still be made."""
    with writing_failures(path):
        try:
            real = path.resolve()
        except RuntimeError as error:  # how Python before 3.13 says it
            raise OSError(errno.ELOOP, str(error)) from error
        with suppress(FileNotFoundError, NotADirectoryError):
            path.stat()
    return real


@contextmanager
def writing_failures(path: Path) -> Iterator[None]:
    """Turn an operating system's refusal to write into an OutputFailed that names the target.

    A refusal that comes without a number (numpy's "126427 requested and 41952 written") is a full disk.
    """
    try:
        yield
    except RankhouseError:
        raise
    except OSError as error:
        short = error.errno is None and "requested" in str(error)
        reason = _REFUSALS.get(errno.ENOSPC if short else error.errno or 0, error.strerror or str(error))
        raise OutputFailed(f"{path}: cannot be written: {reason}; nothing was changed") from error


def append_whole(number: int, content: bytes, *, synced: bool = True) -> None:
    """Append all of the bytes to an open file, or none: half a line must not stand before the next one.

    They are on the disk when this returns, if ``synced``. Raises OSError for a full disk and the like.
    """
    before = os.fstat(number)
    try:
        while content:
            content = content[os.write(number, content) :]
        if synced:
            os.fsync(number)
    except OSError:
        if stat.S_ISREG(before.st_mode):  # pipes and devices have no length
            os.ftruncate(number, before.st_size)
        raise


def check_file_target(path: Path) -> None:
    """Refuse what a file could not be written to, before any work is done for it: WrongUse, OutputFailed."""
    if is_stream(path):
        return
    real_path(path)
    if path.is_dir():
        raise WrongUse(f"{path}: is a folder, a file is to be written; name a file, for example {path}/out")
    if path.is_socket():
        raise WrongUse(f"{path}: is a socket; name a file, or - for standard output")
    for parent in path.parents:
        if parent.exists():
            if not parent.is_dir():
                raise OutputFailed(f"{path}: {parent} is a file, so nothing can be written below it")
            return


def is_stream(path: Path) -> bool:
    """Whether a path is written to and never replaced: ``-``, a device, a pipe."""
    if str(path) in _STREAMS or str(path).startswith(("/dev/fd/", "/proc/self/fd/")):
        return True
    try:
        mode = path.stat().st_mode
    except OSError:
        return False
    return stat.S_ISCHR(mode) or stat.S_ISBLK(mode) or stat.S_ISFIFO(mode)


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path beside a file; rename it onto the file when the block ends well.

    Missing parent folders are made. If the block raises, the temporary is removed and the file stays as it
    was. A link stays a link: what it leads to is replaced. What a killed process left beside the file is
    tidied up by the next writer. A device, a pipe or ``-`` gets the content when it is complete. Raises
    WrongUse where something that is no file is in the way, OutputFailed without permission, on a full disk
    and the like.
    """
    check_file_target(path)
    with writing_failures(path):
        if is_stream(path):
            with tempfile.TemporaryDirectory(prefix="rankhouse.") as folder:
                yield (temporary := Path(folder) / "out")
                _pour(temporary, path)
            return
        target = real_path(path)
        with scratch_folder(target) as scratch:
            temporary = scratch / target.name
            yield temporary
            if target.is_dir():  # made while the block ran
                raise WrongUse(
                    f"{path}: became a folder while its new content was made; nothing was replaced"
                )
            temporary.replace(target)


@contextmanager
def replacing_folder(path: Path, foreign: Callable[[Path], Iterable[str]]) -> Iterator[Path]:
    """Yield a temporary path beside a folder; put what was made there in the folder's place at the end.

    Old and new folder change places in one step where the system can do that (Linux); elsewhere a kill
    between the two steps is mended by the next writer and by :func:`rankhouse.io.scratch.recover`. A folder
    is never replaced of which ``foreign`` names anything that is not of the kind to be written. Errors are
    those of :func:`replacing`.
    """
    target = real_path(path)
    _refuse_foreign(path, foreign, _NEVER_REPLACED)
    with writing_failures(path), scratch_folder(target) as scratch:
        temporary = scratch / target.name
        yield temporary
        _refuse_foreign(path, foreign, _NEVER_REPLACED)
        if not target.exists():
            temporary.rename(target)
        elif not _exchanged(temporary, target):
            target.rename(scratch / REPLACED)
            temporary.rename(target)


def others(folder: Path, own: Iterable[str], marks: Iterable[str]) -> list[str]:
    """Name what in a folder is not of one kind, which may hold ``own`` and holds all ``marks``.

    Where a mark is missing, all of it is; hidden files of writers do not count.
    """
    names = [entry.name for entry in folder.iterdir()]
    known = {*own, *marks} if set(marks) <= set(names) else set[str]()
    return [name for name in names if name not in known and not name.endswith((SCRATCH, ".lock"))]


def check_own_folder(folder: Path, marks: Iterable[str]) -> None:
    """Refuse to write into a file, or a folder that holds something and nothing of the kind to be written."""

    def foreign(there: Path) -> list[str]:
        names = {entry.name for entry in there.iterdir()}
        return [] if names.intersection(marks) else [name for name in names if not name.startswith(".")]

    _refuse_foreign(folder, foreign, "; name a new folder")


_READABLE: Final = "rankhouse.encodable"


def _readable(fault: UnicodeError) -> tuple[str, int]:
    assert isinstance(fault, UnicodeEncodeError)
    return encodable(fault.object[fault.start : fault.end]), fault.end


codecs.register_error(_READABLE, _readable)


@contextmanager
def writing_bytes(path: Path) -> Iterator[BinaryIO]:
    """Open a file for writing, compressed by its suffix, whole or absent.

    The same content gives the same bytes: no time stamp goes into a gzip header. Errors as in
    :func:`replacing`.
    """
    with replacing(path) as temporary, temporary.open("wb") as raw:
        packed: BinaryIO = raw
        if path.suffix.lower() == ".gz":
            packed = cast(BinaryIO, gzip.GzipFile(filename="", fileobj=raw, mode="wb", mtime=0))
        elif path.suffix.lower() == ".zst":
            packed = cast(BinaryIO, zstd.ZstdFile(raw, mode="wb"))
        with packed:
            yield packed
            packed.flush()
            if not raw.closed:
                os.fsync(raw.fileno())


@contextmanager
def writing(path: Path) -> Iterator[TextIO]:
    """Open a text file as :func:`writing_bytes` does; LF line ends, UTF-8."""
    with writing_bytes(path) as packed:
        yield (text := io.TextIOWrapper(packed, "utf-8", _READABLE, newline="\n"))
        text.detach()  # which flushes it


def indented_json(value: object) -> str:
    """Return a value as indented JSON; bytes of file names that are not UTF-8 stand as %E9."""
    try:
        raw = msgspec.json.encode(value)
    except UnicodeEncodeError:
        raw = msgspec.json.encode(_encodable(msgspec.to_builtins(value)))
    return msgspec.json.format(raw, indent=2).decode() + "\n"


def _encodable(value: Any) -> Any:  # noqa: ANN401 - whatever JSON holds
    if isinstance(value, dict):
        return {_encodable(name): _encodable(one) for name, one in value.items()}
    if isinstance(value, list):
        return [_encodable(one) for one in value]
    return encodable(value) if isinstance(value, str) else value


def write_json(path: Path, value: object) -> None:
    """Write a value that msgspec knows as indented JSON, whole or absent; NaN becomes null."""
    with writing(path) as file:
        file.write(indented_json(value))


def write_lines(path: Path, records: Iterable[object]) -> int:
    """Write records that msgspec knows as JSON lines, whole or absent; return how many there were."""
    count = 0
    with writing(path) as file:
        for record in records:
            file.write(msgspec.json.encode(record).decode() + "\n")
            count += 1
    return count


def _refuse_foreign(path: Path, foreign: Callable[[Path], Iterable[str]], advice: str) -> None:
    if not path.exists():
        return
    if not path.is_dir():
        raise WrongUse(f"{path}: is a file, a folder is to be written; name another place")
    if any(path.iterdir()) and (other := sorted(foreign(path))):
        raise WrongUse(f"{path}: holds something else ({name_few(other)}){advice}")


def _pour(source: Path, path: Path) -> None:
    """Copy a finished file into a device, a pipe or standard output."""
    with source.open("rb") as content:
        number = _STREAMS.get(str(path))
        if number is None:
            with path.open("wb", buffering=0) as out:
                shutil.copyfileobj(content, out)
            return
        stream: TextIO | None = sys.stdout if number == 1 else sys.stderr
        if stream is None:  # the caller closed it
            raise OSError(errno.EBADF, "it is closed")
        raw = getattr(stream, "buffer", None)
        if raw is None:  # a notebook, or a test that collects text
            stream.write(content.read().decode())
        else:
            stream.flush()
            shutil.copyfileobj(content, raw)
        stream.flush()


def _exchanged(first: Path, second: Path) -> bool:
    """Let two folders change places in one step; False where the system cannot."""
    if sys.platform != "linux":
        return False
    try:
        rename = ctypes.CDLL(None, use_errno=True).renameat2
    except (OSError, AttributeError):  # an old C library
        return False
    at_here, exchange = -100, 2  # AT_FDCWD and RENAME_EXCHANGE of <linux/fs.h>
    return bool(rename(at_here, os.fsencode(first), at_here, os.fsencode(second), exchange) == 0)


# A lock is a hidden file beside its target, ``.NAME.lock``. The operating system lets go of it however the
# process ends, so a killed writer blocks nobody; who ends well removes the file while still holding it, which
# ``filelock`` notices (a lock on a name that is gone counts for nothing).

_SUFFIX = ".lock"
_guard = threading.Lock()
_held: dict[Path, int] = {}  # target -> the thread that writes it; the same thread may come again


@contextmanager
def only_writer(target: Path) -> Iterator[None]:
    """Hold the lock of an output (a file or a folder, there or not) while the block runs.

    Parent folders are made; links are followed, so every name of an output has one lock. The thread that
    holds a lock may take it again, so a command and the function it calls may both ask for it. Raises
    WrongUse where another process or thread is writing, OutputFailed where nothing may be written.
    """
    target, me = real_path(target), threading.get_ident()
    with _guard:
        holder = _held.get(target)
        if holder is None:
            _held[target] = me
    if holder is not None:
        if holder != me:
            raise _busy(target)
        yield
        return
    try:
        with writing_failures(target):
            target.parent.mkdir(parents=True, exist_ok=True)
            lock = _acquired(lock_of(target), target)
        try:
            yield
        finally:
            _release(lock)
    finally:
        with _guard:
            del _held[target]


def lock_of(target: Path) -> Path:
    """Return where the lock of a target stands."""
    return target.with_name(f".{target.name[:200]}{_SUFFIX}")


def refuse_if_written(folder: Path) -> None:
    """Refuse to replace a folder while another process writes something inside it."""
    for path in folder.rglob(f".*{_SUFFIX}"):
        _release(_acquired(path, path.with_name(path.name[1 : -len(_SUFFIX)])))


def _acquired(path: Path, target: Path) -> BaseFileLock:
    if (lock := try_lock(path)) is None:
        raise _busy(target)
    return lock


def _release(lock: BaseFileLock) -> None:
    with suppress(OSError):  # systems that keep an open file's name: the next writer takes the file over
        Path(lock.lock_file).unlink(missing_ok=True)
    lock.release()


def _busy(target: Path) -> WrongUse:
    return WrongUse(f"{target}: another process is writing it; wait for it, stop it, or name another output")
