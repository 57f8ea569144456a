"""What the doctor asks of a score cache."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from rankhouse.ranking.cache import cache_file
from rankhouse.ranking.score_file import ScoreFile

_MAGIC = b"SQLite format 3\0"


def is_cache(path: Path) -> bool:
    """Whether a path names a score cache, sound or not: an SQLite file, or a folder that holds one."""
    file = cache_file(path)
    if file.is_file() and file.name == cache_file(file.parent / "any").name:
        return True
    if not path.is_file():
        return False
    with path.open("rb") as stream:
        return stream.read(len(_MAGIC)) == _MAGIC


def check_cache(path: Path, facts: dict[str, str]) -> None:
    """Compare every score with its checksum.

    Raises:
        BadData: Something is damaged, or the file is another program's.
        OutputFailed: Another process holds it locked.
    """
    with closing(ScoreFile(cache_file(path), timeout=30.0, upgrade=False)) as file:
        rankers, scores = file.verify()
        facts |= {
            "rankers": f"{rankers:,}",
            "scores": f"{scores:,}",
            "every score as kept": "yes"
            if file.version > 1
            else "not known: version 1 had no checksums, the next ranking adds them",
        }
