"""What a job depends on, said so that two machines say the same: options, and hashes of what they name."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Final

from rankhouse.core.arguments import option_fields
from rankhouse.core.notation import quoted

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker

WHOLE: Final = 64 << 20
"""Bytes of a file up to which all of it is hashed; of a larger one, this many in evenly spaced blocks."""
_BLOCKS: Final = 64


def identity_of(options: object, **known: str) -> dict[str, str]:
    """Return what a result depends on: each option's value, or a hash of the files that it names.

    What is neutral is left out; ``known`` stands for options in place of their values.
    """
    identity = {}
    for name, _, _, option in option_fields(type(options)):
        value = getattr(options, name)
        if name in known or not option.neutral:
            names_files = option.kind in ("input", "source") and value is not None
            identity[name] = known.get(name) or (described(str(value)) if names_files else str(value))
    return identity


def described(text: str) -> str:
    """Return a notation with hashes in place of the files and folders it names: contents count, not paths."""
    for word in dict.fromkeys((text, *quoted(text))):
        if (path := _existing(word)) is not None:
            text = text.replace(word, content_hash(path))
    return text


def computed_by(ranker: NeuralRanker | DuoT5Ranker) -> dict[str, str]:
    """Return what scores depend on that is known once a ranker is open: its weights, and what computes."""
    compute = ranker.compute
    return {
        "ranker's weights": ranker.fingerprint,
        "device in use": compute.device.type,
        "precision in use": compute.precision,
    }


def digest(text: str) -> str:
    """Return 16 digits that name a text."""
    return blake2b(text.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


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
