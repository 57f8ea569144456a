"""Names for the content of files and folders, so that paths do not count."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

from rankhouse.core.notation import quoted

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
    for name, file in _files(path):
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


def _files(path: Path) -> Iterator[tuple[str, Path]]:
    """List the files that count, hidden ones (locks, scratch) left out; a single file has no name."""
    if path.is_file():
        yield "", path
        return
    for file in sorted(path.rglob("*")):
        name = file.relative_to(path)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            yield str(name), file
