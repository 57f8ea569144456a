"""What a job depends on, said so that two machines say the same: options, and hashes of what they name."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Final

_WHOLE: Final = 64 << 20
"""Bytes of a file up to which all of it is hashed; of a larger one, this many in evenly spaced blocks."""
_BLOCK: Final = 1 << 20
_quoted = re.compile(r"""["']([^"']+)["']""").findall


def described(text: str) -> str:
    """Return a notation with hashes in place of the files and folders it names: contents count, not paths."""
    for word in dict.fromkeys((text, *_quoted(text))):
        if (path := _existing(word)) is not None:
            text = text.replace(word, content_hash(path))
    return text


def content_hash(path: Path) -> str:
    """Return 16 digits that name the content of a file, or of all files of a folder with their names.

    Of a file above 64 MiB the size and 64 blocks of 1 MiB count.
    """
    digest = blake2b(digest_size=8)
    for name, file in _files(path):
        size = file.stat().st_size
        digest.update(f"{name}\0{size}\0".encode("utf-8", "surrogatepass"))
        with file.open("rb") as stream:
            if size <= _WHOLE:
                while chunk := stream.read(_BLOCK):
                    digest.update(chunk)
                continue
            for block in range(_WHOLE // _BLOCK):
                stream.seek(block * (size - _BLOCK) // (_WHOLE // _BLOCK - 1))
                digest.update(stream.read(_BLOCK))
    return digest.hexdigest()


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
