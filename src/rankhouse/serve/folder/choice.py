"""Choice of the files of a folder: their kinds and sizes, what people and .gitignore leave out."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

from rankhouse.core.errors import WrongUse
from rankhouse.io.files import is_hidden, kind_of
from rankhouse.io.readers.kinds import kind_at
from rankhouse.serve.folder.files import STATE, FileState, LeftOut, check_folder

LARGEST = 20 << 20
"""Bytes of a file that is read whole, unless something else is said."""
_MADE = frozenset({"node_modules", "__pycache__", "site-packages"})
_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that programs put into folders of what they can make again."""
_Ignored = Sequence[tuple[Path, GitIgnoreSpec]]


class FolderChoice(msgspec.Struct, frozen=True):
    """People's choice: patterns as in .gitignore, and the size of the largest file read whole, in bytes."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    largest: int = LARGEST

    def check(self) -> None:
        """Refuse patterns that cannot be read."""
        for option, patterns in (("--include", self.include), ("--exclude", self.exclude)):
            for pattern in patterns:
                try:
                    GitIgnoreSpec.from_lines([pattern])
                except ValueError as error:
                    raise WrongUse(f'{option} "{pattern}": is no pattern of files ({error})') from None


USUAL = FolderChoice()


def look(
    folder: Path, before: Mapping[str, FileState], choice: FolderChoice = USUAL
) -> tuple[dict[str, FileState], LeftOut]:
    """Return a folder's files by path within it, in order of path, and what is left out.

    Only files whose size or time is another than before are read.
    """
    check_folder(folder)
    files, left, seen = dict[str, FileState](), LeftOut(), set[tuple[int, int]]()
    wanted = GitIgnoreSpec.from_lines(choice.include or ["*"])
    for path in _walk(folder, choice, left):
        name = path.relative_to(folder).as_posix()
        try:
            facts = path.lstat()
            reason = _left_out(path, facts, choice) or ("" if wanted.match_file(name) else "not in --include")
            if not reason and (facts.st_dev, facts.st_ino) in seen:
                reason = "read under another name"
            if reason:
                left.add(reason, name)
                continue
            seen.add((facts.st_dev, facts.st_ino))
            known = before.get(name)
            now = (facts.st_size, facts.st_mtime_ns, facts.st_ctime_ns)
            if known is None or (known.size, known.mtime, known.ctime) != now:
                known = FileState(*now[:2], _digest(path), now[2])
        except OSError:
            left.add("unreadable", name)
            continue
        files[name] = known
    return files, left


def _left_out(path: Path, facts: os.stat_result, choice: FolderChoice) -> str:
    """Return why a file is not read; "" if it is."""
    if stat.S_ISLNK(facts.st_mode):  # what it stands for is read by itself, or is not of this folder
        return "symbolic links"
    if not stat.S_ISREG(facts.st_mode):
        return "pipes, sockets and devices"
    kind = kind_at(path, facts.st_size, facts.st_mtime_ns)
    if kind is None:
        return kind_of(path) or "without an ending, and no text"
    if not kind.is_readable:
        return f'{kind.name} (read with  pip install "rankhouse[files]")'
    if not facts.st_size:
        return "empty"
    return "over --max-size" if facts.st_size > choice.largest and not kind.streams else ""


def _walk(folder: Path, choice: FolderChoice, left: LeftOut) -> Iterator[Path]:
    """Yield the files of a folder that are neither hidden nor ignored, in order of path."""
    ignored: dict[Path, _Ignored] = {
        folder: [(folder, GitIgnoreSpec.from_lines(choice.exclude))] if choice.exclude else []
    }
    for base, folders, names in os.walk(folder):
        rules = [*ignored.pop(Path(base)), *_gitignore(Path(base))]
        for name in sorted({*folders, *names}):
            if is_hidden(name) and name != STATE:
                left.add("hidden", (Path(base) / name).relative_to(folder).as_posix())
        shown = sorted(name for name in folders if not is_hidden(name))
        folders[:] = [name for name in shown if not _is_left(Path(base) / name, folder, rules, left)]
        ignored |= {Path(base) / name: rules for name in folders}
        for name in sorted(names):
            path = Path(base) / name
            if is_hidden(name):
                continue
            if _is_ignored(path, rules):
                left.add("ignored", path.relative_to(folder).as_posix())
            else:
                yield path


def _gitignore(folder: Path) -> _Ignored:
    try:
        lines = (folder / ".gitignore").read_text("utf-8", "replace").splitlines()
        return [(folder, GitIgnoreSpec.from_lines(lines))]
    except (OSError, ValueError):
        return []


def _is_left(folder: Path, above: Path, rules: _Ignored, left: LeftOut) -> bool:
    """Return whether a folder is left out whole: links, what programs made, what is ignored."""
    made = folder.name in _MADE or any((folder / mark).exists() for mark in _MARKS)
    is_left = folder.is_symlink() or made or _is_ignored(folder, rules, "/")
    if is_left:
        left.add("folders left out", f"{folder.relative_to(above).as_posix()}/")
    return is_left


def _is_ignored(path: Path, rules: _Ignored, ending: str = "") -> bool:
    """Ask the innermost rules that say anything about a path."""
    for base, spec in reversed(rules):
        said = spec.check_file(f"{path.relative_to(base).as_posix()}{ending}").include
        if said is not None:
            return said
    return False


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
