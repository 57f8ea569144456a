"""Local copies of remote files and folders: one a version, fetched whole or not at all, bounded, cleanable.

``RANKHOUSE_REMOTE_CACHE`` (else ``~/.cache/rankhouse/remote``) holds ``in/URL/VERSION/NAME``, the copies, and
``out/URL/NAME``, what is being written. URL and VERSION are hashes, the latter of what the store says of
every file (size, ETag, time) at each use. All of it may be deleted when no command runs.
"""

from __future__ import annotations

import atexit
import os
import re
import shutil
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import BinaryIO, Final
from uuid import uuid4

from rankhouse.core import progress
from rankhouse.core.errors import MissingInput, WrongUse, call_path
from rankhouse.core.progress import Progress
from rankhouse.io.outputs import writing_failures
from rankhouse.io.remote import MARK, Listing, Remote, RemoteFile, failures, version_of
from rankhouse.io.scratch import try_lock

FOLDER: Final = "RANKHOUSE_REMOTE_CACHE"
LIMIT: Final = "RANKHOUSE_REMOTE_CACHE_GB"
_USUAL_GB: Final = 50.0
_BLOCK: Final = 16 << 20
_STALE: Final = 7 * 86_400.0  # seconds after which nobody goes on with an unfinished copy
_UNFINISHED: Final = ".part"
URLS: Final = re.compile(r"""(?:^(?:[^\s/"':=]+=)?|(?<=["']))([A-Za-z][A-Za-z0-9+.-]+://[^\s"']+)""")
"""URLs in a text: the whole of it, behind ``NAME=``, or in quotes in a notation."""


def cache_folder() -> Path:
    """Return where local copies are kept."""
    if named := os.environ.get(FOLDER):
        return Path(named)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "rankhouse" / "remote"


def limit_bytes() -> float:
    """Return how many bytes of copies are kept when no command uses them."""
    text = os.environ.get(LIMIT, "")
    try:
        gigabytes = float(text) if text else _USUAL_GB
    except ValueError:
        gigabytes = -1.0
    if not gigabytes >= 0:
        raise WrongUse(f'{LIMIT}="{text}": must be a number of gigabytes, 0 or more')
    return gigabytes * 1e9


def copy_of(remote: Remote, files: Listing) -> Path:
    """Return where the copy of a place stands, or will stand once it is fetched.

    Raises MissingInput where nothing is there, or it is being written.
    """
    if not files:
        raise MissingInput(
            f"{remote.url}: there is no such file or folder; check the name (it is case-sensitive)"
        )
    if any(name.rsplit("/", 1)[-1] == MARK for name in files):
        raise MissingInput(
            f"{remote.url}: is being written, or its upload was cut off; wait for the command that writes "
            "it, or run it again"
        )
    return cache_folder() / "in" / remote.key / version_of(files) / remote.name


@contextmanager
def staged(remote: Remote, files: Listing) -> Iterator[Path]:
    """Fetch a place unless its copy is there, and keep the copy from being cleaned away while the block runs.

    Raises MissingInput where the place cannot be read, or was changed meanwhile.
    """
    from filelock import FileLock  # noqa: PLC0415 - slow to load, and needed for URLs only

    local = copy_of(remote, files)
    entry = local.parent
    with writing_failures(entry):
        entry.parent.mkdir(parents=True, exist_ok=True)
        with FileLock(f"{entry}.lock"):  # who comes second waits, and finds it fetched
            if not entry.exists():
                with progress.shown(f"fetching {remote.name}", None, "bytes") as show:
                    _fetch(remote, files, local, show)
            os.utime(entry)
            use = entry / f".{uuid4().hex}.use"
            held = try_lock(use)
    try:
        trim()
        yield local
    finally:
        with suppress(OSError):
            use.unlink(missing_ok=True)
        if held is not None:
            held.release()
        trim()


def fetched(text: str) -> str:
    """Fetch what a text names by URL, for as long as this process lives; return it with local paths.

    A driver sends :func:`rankhouse.core.errors.as_called` of a path or a notation, which holds URLs again.
    """
    if "://" not in text:
        return text
    keep = ExitStack()
    atexit.register(keep.close)

    def local(match: re.Match[str]) -> str:
        remote = Remote.at(match[1])
        path = keep.enter_context(staged(remote, remote.listing()))
        call_path(path, match[1])
        return match[0].replace(match[1], str(path))

    return URLS.sub(local, text)


def _fetch(remote: Remote, files: Listing, local: Path, show: Progress) -> None:
    entry = local.parent
    unfinished = entry.with_name(entry.name + _UNFINISHED)  # kept by a kill: the next one goes on in it
    total = sum(file.size or 0 for file in files.values())
    done = 0
    for name, file in files.items():
        target = unfinished / local.name / name if name else unfinished / local.name
        for count in download(remote, name, file, target):
            done += count
            show(done, total)
    if remote.listing() != files:
        shutil.rmtree(unfinished)
        raise MissingInput(f"{remote.url}: was changed while it was fetched; run this again")
    unfinished.rename(entry)


def download(remote: Remote, name: str, file: RemoteFile, target: Path) -> Iterator[int]:
    """Fetch a file, going on after what is there of it already; yield how many bytes came."""
    target.parent.mkdir(parents=True, exist_ok=True)
    before = target.stat().st_size if file.size is not None and target.exists() else 0
    if file.size is not None and before > file.size:
        before = 0
    if before:
        yield before
    with target.open("r+b" if before else "wb") as out:
        if before != file.size:
            yield from _blocks(remote, name, before, out)
        out.flush()
        os.fsync(out.fileno())
    size = target.stat().st_size
    if file.size is not None and size != file.size:
        raise MissingInput(
            f"{remote.url}: {name or 'it'} ended after {size:,} of {file.size:,} bytes; run this again"
        )


def _blocks(remote: Remote, name: str, before: int, out: BinaryIO) -> Iterator[int]:
    with failures(remote.url):
        source = remote.fs.open(remote.below(name), "rb", block_size=_BLOCK)
    with source:
        with failures(remote.url):
            try:
                if before:
                    source.seek(before)
            except ValueError:  # a web server that gives a file from its beginning only
                before = 0
        out.seek(before)
        out.truncate()
        while True:
            with failures(remote.url):
                block = source.read(_BLOCK)
            if not block:
                return
            out.write(block)
            yield len(block)


def adopt(remote: Remote, files: Listing, made: Path) -> None:
    """Make what was just uploaded the copy of its place, so that nobody fetches it again."""
    paths = {name: (made / name if name else made) for name in files}
    if files and all(path.is_file() and path.stat().st_size == files[n].size for n, path in paths.items()):
        local = copy_of(remote, files)
        local.parent.mkdir(parents=True, exist_ok=True)
        if not local.exists():
            made.rename(local)
            return
    remove(made)


def remove(path: Path) -> None:
    """Remove a file or folder, there or not."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def trim() -> None:
    """Clean away the copies used longest ago until the rest is within the limit; never one in use."""
    most, now = limit_bytes(), time.time()
    entries = []
    for entry in (cache_folder() / "in").glob("*/*"):
        with suppress(OSError):
            if entry.name.endswith(_UNFINISHED) and entry.is_dir():
                if now - entry.stat().st_mtime > _STALE:
                    shutil.rmtree(entry, ignore_errors=True)
            elif entry.is_dir():
                entries.append((entry.stat().st_mtime, entry))
    sizes = {entry: _size(entry) for _, entry in entries}
    total = sum(sizes.values())
    for _, entry in sorted(entries):
        if total > most and (lock := try_lock(Path(f"{entry}.lock"))) is not None:
            if not _in_use(entry):
                shutil.rmtree(entry, ignore_errors=True)
                total -= sizes[entry]
            lock.release()


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def _in_use(entry: Path) -> bool:
    for use in entry.glob(".*.use"):
        if (lock := try_lock(use)) is None:
            return True
        use.unlink(missing_ok=True)
        lock.release()
    return False
