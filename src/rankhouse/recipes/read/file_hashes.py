"""What files hold, as hashes; a file that did not change since is not read again."""

from __future__ import annotations

import hashlib
from pathlib import Path

import msgspec

from rankhouse.core.errors import MissingInput
from rankhouse.io.decoding import read_cache
from rankhouse.io.outputs import writing

_BLOCK = 1 << 20

Signature = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, number of the file."""


class _Entry(msgspec.Struct, frozen=True):
    signature: Signature
    digest: str


class Contents:
    """Hashes files and folders, and keeps the hashes in a file from run to run."""

    def __init__(self, memory: Path) -> None:
        self._memory = memory
        self._known = read_cache(memory, dict[str, _Entry]) or {}  # without it, files are read again
        self._new = False

    def of(self, path: Path) -> str:
        """Return the hash of a file, or of a folder's names and files: 32 hexadecimal digits."""
        if path.is_dir():
            whole = hashlib.sha256()
            for name, digest in self.files(path).items():
                whole.update(f"{name}\0{digest}\n".encode())
            return whole.hexdigest()[:32]
        return self._file(path)

    def files(self, path: Path) -> dict[str, str]:
        """Return relative name -> hash of every file in a folder, or of the one file under its own name."""
        if not path.is_dir():
            return {path.name: self._file(path)}
        return {str(one.relative_to(path)): self._file(one) for one in listed(path)}

    def _file(self, path: Path) -> str:
        place = str(path.resolve())
        try:
            now = signature(path)
            known = self._known.get(place)
            if known is not None and known.signature == now:
                return known.digest
            digest = hashlib.sha256()
            with path.open("rb") as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
        except OSError as error:
            raise MissingInput(f"{path}: cannot be read ({error.strerror or error})") from error
        self._known[place] = _Entry(now, digest.hexdigest()[:32])
        self._new = True
        return self._known[place].digest

    def save(self) -> None:
        """Keep what was learned for the next run."""
        if self._new:
            with writing(self._memory) as out:
                out.write(msgspec.json.encode(self._known).decode())
            self._new = False


def signature(path: Path) -> Signature:
    """Tell two states of a file apart without reading it."""
    seen = path.stat()
    return (seen.st_size, seen.st_mtime_ns, seen.st_ino)


def signatures(path: Path) -> dict[str, Signature]:
    """Return the signature of a file, or of each file of a folder."""
    try:
        return {str(one): signature(one) for one in (listed(path) if path.is_dir() else [path])}
    except OSError:
        return {}


def listed(folder: Path) -> list[Path]:
    """List the files below a folder in order of name; nameless work of writers (.part, locks) is left out."""
    return sorted(
        one
        for one in folder.rglob("*")
        if one.is_file() and not any(part.startswith(".") for part in one.relative_to(folder).parts)
    )
