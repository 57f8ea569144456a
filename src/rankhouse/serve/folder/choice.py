"""Which files of a folder are read: their kinds and sizes, what people and .gitignore leave out."""

from __future__ import annotations

import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import msgspec
from pathspec import GitIgnoreSpec

from rankhouse.core.errors import WrongUse
from rankhouse.io.files import kind_of
from rankhouse.serve.folder.files import KINDS, FileState, check_folder, is_text

LARGEST = 20 << 20
"""Bytes of a file that is one document, unless something else is said."""
_MADE = frozenset({"node_modules", "__pycache__", "site-packages"})
_MARKS = ("CACHEDIR.TAG", "pyvenv.cfg")
"""Files that programs put into folders of what they can make again."""
_Ignored = Sequence[tuple[Path, GitIgnoreSpec]]


class FolderChoice(msgspec.Struct, frozen=True):
    """What people chose: patterns as in .gitignore, and the size of the largest text in bytes.

    Raises:
        WrongUse: A pattern that cannot be read, by :meth:`check`.
    """

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
) -> tuple[dict[str, FileState], Counter[str]]:
    """Look at a folder's files; only those whose size or time is another are read.

    Returns the files by path within the folder, in order of path, and how many are left out, by the reason.
    """
    check_folder(folder)
    files, others, seen = dict[str, FileState](), Counter[str](), set[tuple[int, int]]()
    wanted = GitIgnoreSpec.from_lines(choice.include or ["*"])
    for path in _walk(folder, choice, others):
        name = path.relative_to(folder).as_posix()
        try:
            stat = path.stat()
            reason = _left_out(path, stat, choice) or ("" if wanted.match_file(name) else "not in --include")
            if not reason and (stat.st_dev, stat.st_ino) in seen:
                reason = "read under another name"
            if reason:
                others[reason] += 1
                continue
            seen.add((stat.st_dev, stat.st_ino))
            known = before.get(name)
            now = (stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns)
            if known is None or (known.size, known.mtime, known.ctime) != now:
                known = FileState(*now[:2], _digest(path), now[2])
        except OSError:
            others["unreadable"] += 1
            continue
        files[name] = known
    return files, others


def _left_out(path: Path, stat: os.stat_result, choice: FolderChoice) -> str:
    """Return why a file is not read; "" if it is."""
    if path.is_symlink():  # what it stands for is read by itself, or is not of this folder
        return "symbolic links"
    if kind_of(path) not in KINDS:
        return path.suffix.lower() or "without an ending"
    if is_text(path) and stat.st_size > choice.largest:
        return "over --max-size"
    return ""


def _walk(folder: Path, choice: FolderChoice, others: Counter[str]) -> Iterator[Path]:
    """Yield the files of a folder that are neither hidden nor ignored, in order of path."""
    ignored: dict[Path, _Ignored] = {
        folder: [(folder, GitIgnoreSpec.from_lines(choice.exclude))] if choice.exclude else []
    }
    for base, folders, names in os.walk(folder):
        rules = [*ignored.pop(Path(base)), *_gitignore(Path(base))]
        shown = sorted(name for name in folders if not name.startswith("."))
        folders[:] = [name for name in shown if not _is_left(Path(base) / name, rules, others)]
        ignored |= {Path(base) / name: rules for name in folders}
        for name in sorted(names):
            path = Path(base) / name
            if name.startswith(".") or not path.is_file():
                continue
            if _is_ignored(path, rules):
                others["ignored"] += 1
            else:
                yield path


def _gitignore(folder: Path) -> _Ignored:
    try:
        lines = (folder / ".gitignore").read_text("utf-8", "replace").splitlines()
        return [(folder, GitIgnoreSpec.from_lines(lines))]
    except (OSError, ValueError):
        return []


def _is_left(folder: Path, rules: _Ignored, others: Counter[str]) -> bool:
    """Return whether a folder is left out whole: links, what programs made, what is ignored."""
    made = folder.name in _MADE or any((folder / mark).exists() for mark in _MARKS)
    left = folder.is_symlink() or made or _is_ignored(folder, rules, "/")
    if left:
        others["folders left out"] += 1
    return left


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
