"""Remote outputs: written locally by the same writers, then uploaded; the manifest comes last.

A folder of which files are replaced holds :data:`~rankhouse.io.remote.MARK`, and nobody reads it
until the upload is complete; one that only gets more is what it was until its manifest comes. A killed upload
is completed by giving the command again. What a command adds to, or goes on in, is fetched first. What it
creates stands for the writers beside a skeleton of what is there, folders and empty files, so that their
own rules hold: nothing foreign is replaced, and nothing unasked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import OutputFailed, RankhouseError, WrongUse
from rankhouse.io import staging
from rankhouse.io.decoding import read_cache
from rankhouse.io.outputs import SHARD_MANIFEST
from rankhouse.io.remote import MARK, Listing, Remote
from rankhouse.io.scratch import SCRATCH

_LAST: Final = ("manifest.json", SHARD_MANIFEST)
"""Files that name others: uploaded after them, those of the whole folder last."""
_SMALL: Final = 1 << 20
_RECORD: Final = ".uploaded.json"


class _LocalCopy(NamedTuple):
    """A file that is the same here and there: the store's version, and the local one's size and time."""

    version: str
    size: int
    mtime: int


@dataclass
class Output:
    """A remote file or folder to be written."""

    remote: Remote
    work: Path  # the local file or folder, which the command writes
    is_folder: bool | None = False  # None where it may be either
    reads: bool = False  # the command adds to the folder, or goes on in it
    resumes: bool = False  # it goes on by itself in what a killed one left here
    _known: dict[str, _LocalCopy] = field(default_factory=dict)
    _afresh: bool = False

    @property
    def _record(self) -> Path:
        return self.work.parent / _RECORD

    def begin(self) -> None:
        """Bring here what the command needs of what is there; WrongUse where a folder stands for a file."""
        files = self.remote.listing()
        mark = self.remote.read(MARK) if files.pop(MARK, None) else b""
        if self.is_folder and "" in files:
            raise WrongUse(f"{self.remote.url}: is a file, a folder is to be written; name another place")
        is_single = not files or "" in files
        if self.is_folder is False and not is_single and SHARD_MANIFEST not in files:
            raise WrongUse(f"{self.remote.url}: is a folder, a file is to be written; name a file in it")
        if is_single and not self.is_folder:
            if self.work.is_file():
                self.work.unlink()  # of an upload that was killed: it is made again
            return
        if self.reads or not self.is_folder:
            self._pull(files)
            return
        staging.remove(self.work)
        self._afresh = True
        if mark != b"afresh":  # the rest of an upload of ours that was killed is no folder of anybody's
            self._sketch(files)

    def _pull(self, files: Listing) -> None:
        """Fetch what changed there; what a killed command left of its work stays if it goes on in it."""
        self._known = read_cache(self._record, dict[str, _LocalCopy]) or {}
        if not self.resumes:
            self._forget_work(files)
        total, done = sum(file.size or 0 for file in files.values()), 0
        with progress.shown(f"fetching {self.remote.name}", total, "bytes") as show:
            try:
                for name, file in files.items():
                    target, known = self.work / name, self._known.get(name)
                    if known is None or known.version != file.version or not target.exists():
                        target.unlink(missing_ok=True)
                        for count in staging.download(self.remote, name, file, target):
                            show(done + count)
                        self._known[name] = self._copy(name, file.version)
                    done += file.size or 0
                    show(done)
            finally:
                self._record.parent.mkdir(parents=True, exist_ok=True)
                self._record.write_bytes(msgspec.json.encode(self._known))

    def _forget_work(self, files: Listing) -> None:
        """Remove files that are not, or not like this, in the store."""
        for path in [path for path in self.work.rglob("*") if path.is_file()]:
            name = path.relative_to(self.work).as_posix()
            if name not in files or not self._is_known(name):
                path.unlink()

    def _sketch(self, files: Listing) -> None:
        """Make a skeleton of what is there; of it, what the command leaves alone is not uploaded."""
        for name, file in files.items():
            target = self.work / name
            target.parent.mkdir(parents=True, exist_ok=True)
            small = "/" not in name and (file.size or 0) <= _SMALL
            target.write_bytes(self.remote.read(name) if small else b"")
            self._known[name] = self._copy(name, file.version)

    def finish(self) -> None:
        """Upload what the command made; OutputFailed says where the finished work stands."""
        if not self.work.exists():
            return
        try:
            with progress.shown(f"uploading {self.remote.name}", None, "bytes") as show:
                if self.work.is_dir():
                    self._upload_folder(show)
                else:
                    self._upload_files(show)
            staging.adopt(self.remote, self.remote.listing(), self.work)
        except RankhouseError as error:
            raise OutputFailed(f"{error}; the finished work stands in {self.work.parent}") from error
        self._record.unlink(missing_ok=True)

    def _upload_files(self, show: progress.Progress) -> None:
        """Upload the file, and what the command put beside it (a chart for every system)."""
        made = [path for path in self.work.parent.iterdir() if path.is_file() and not _is_own(path)]
        folder = self.remote.path.rpartition("/")[0]
        for number, path in enumerate(sorted(made, key=lambda path: path == self.work)):
            if path == self.work:
                self.remote.put(str(path), "")
            else:
                Remote(self.remote.url, self.remote.fs, folder).put(str(path), path.name)
                path.unlink()
            show(number + 1, len(made))

    def _upload_folder(self, show: progress.Progress) -> None:
        names = [
            path.relative_to(self.work).as_posix()
            for path in self.work.rglob("*")
            if path.is_file() and not _is_own(path)
        ]
        there = self.remote.listing()
        changed = [name for name in names if name not in there or not self._is_known(name)]
        gone = [name for name in there if name not in names and name != MARK]
        if not changed and not gone:
            return
        total = sum((self.work / name).stat().st_size for name in changed)
        done = 0
        replaces = any(name in there and name.rsplit("/", 1)[-1] not in _LAST for name in changed)
        marked = self._afresh or bool(gone) or replaces or MARK in there
        if marked:
            self.remote.write(MARK, b"afresh" if self._afresh else b"added to")
        for name in sorted(changed, key=_turn):
            self.remote.put(str(self.work / name), name)
            done += (self.work / name).stat().st_size
            show(done, total)
        for name in gone:
            self.remote.remove(name)
        if marked:
            self.remote.remove(MARK)

    def _is_known(self, name: str) -> bool:
        known = self._known.get(name)
        return known is not None and known == self._copy(name, known.version)

    def _copy(self, name: str, version: str) -> _LocalCopy:
        facts = (self.work / name).stat()
        return _LocalCopy(version, facts.st_size, facts.st_mtime_ns)


def _turn(name: str) -> tuple[bool, int, str]:
    """Sort what names other files behind them, the whole folder's last."""
    return name.rsplit("/", 1)[-1] in _LAST, -name.count("/"), name


def _is_own(path: Path) -> bool:
    """Return whether a file is a lock, a scratch file or a record, and no result."""
    return (
        path.name == _RECORD
        or path.name.endswith((".lock", ".use"))
        or any(part.startswith(".") and part.endswith(SCRATCH) for part in path.parts)
    )
