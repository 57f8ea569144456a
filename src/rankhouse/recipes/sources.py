"""Data from outside: where it is, whether it is there, what to do if it is not, and its hashes."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import NamedTuple

import msgspec

from rankhouse.core.errors import MissingInput
from rankhouse.io.checksums import files_of
from rankhouse.io.decoding import read_cache
from rankhouse.io.outputs import writing
from rankhouse.io.providers import PUBLIC
from rankhouse.io.staging import fetched
from rankhouse.recipes.loops import Reference, references, resolve
from rankhouse.recipes.parse import RecipeFile

_BLOCK = 1 << 20

Signature = tuple[int, int, int]
"""Size, time of the last change in nanoseconds, number of the file."""


class _Entry(msgspec.Struct, frozen=True):
    signature: Signature
    digest: str


class Contents:
    """Hashes files and folders, and keeps the hashes in a file from run to run.

    Without such a file every file is read, whatever its time and size say.
    """

    def __init__(self, memory: Path | None = None) -> None:
        self._memory = memory
        self._known = (read_cache(memory, dict[str, _Entry]) if memory else None) or {}
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
        return {name: self._file(one) for name, one in files_of(path)}

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
        if self._new and self._memory is not None:
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
        return {str(one): signature(one) for _, one in files_of(path)}
    except OSError:
        return {}


HUB = "hub:"


class Input(NamedTuple):
    """A data entry, or a file in one, as a step uses it."""

    name: str  # the entry, with the path inside it
    word: str  # what the command is given: an absolute path, ``ir_datasets:NAME`` or the hub's name
    identity: str  # what the key of a step sees: a hash of the content, or the public name
    path: Path | None = None  # None for what is public
    absent: str = ""  # why it cannot be used; "" if it can
    seen: Mapping[str, Signature] = MappingProxyType({})  # its files as they were when they were hashed

    @property
    def unchanged(self) -> bool:
        """Whether its files are still those that were hashed."""
        return self.path is None or signatures(self.path) == self.seen


class Sources:
    """Looks data entries up."""

    def __init__(self, file: RecipeFile, contents: Contents, *, download: bool = False) -> None:
        self._file, self._contents, self._download = file, contents, download
        self._inputs: dict[tuple[str, str], Input] = {}

    def __contains__(self, name: str) -> bool:
        return name in self._file.recipe.data

    @property
    def used(self) -> list[Input]:
        """Everything that was looked up."""
        return list(self._inputs.values())

    def find(self, name: str, inner: str = "") -> Input:
        """Look an entry up, or a path inside it; WrongUse where entries refer to each other in a circle."""
        key = (name, inner)
        if key not in self._inputs:
            self._inputs[key] = self._look(name, inner)
        return self._inputs[key]

    def _look(self, name: str, inner: str) -> Input:
        address, instead = self._word(name, ()), self._file.recipe.data[name].otherwise
        if instead and "://" not in address and not (self._file.folder / Path(address).expanduser()).exists():
            address = instead
        shown = f"{name}/{inner}" if inner else name
        if address.startswith(PUBLIC):
            lack = self._lacks_collection(name, address)
            return Input(shown, address, address, absent=self._complain(name, lack))
        if address.startswith(HUB):
            word = address.removeprefix(HUB)
            lack = self._lacks_checkpoint(word)
            return Input(shown, word, address, absent=self._complain(name, lack))
        if "://" in address:
            try:
                address = fetched(address)
            except MissingInput as error:
                absent = self._complain(name, str(error))
                return Input(shown, address, f"absent {address}", absent=absent)
        path = (self._file.folder / Path(address).expanduser()).resolve() / inner
        if not path.exists():
            absent = self._complain(name, f"{path} is not there")
            return Input(shown, str(path), f"absent {path}", path, absent=absent)
        ending = "".join(path.suffixes) if path.is_file() else ""  # readers go by it
        seen = signatures(path)
        return Input(shown, str(path), self._contents.of(path) + ending, path, seen=seen)

    def _word(self, name: str, inside: tuple[str, ...]) -> str:
        """Return an entry's path with references to other entries resolved."""
        lines, data = self._file.lines, self._file.recipe.data
        if name in inside:
            raise lines.fault(("data", name), f"data entries in a circle: {' -> '.join((*inside, name))}")
        text = data[name].path
        for reference in references(text):
            if reference.name not in data:
                raise lines.fault(
                    ("data", name), f'"{reference.text}" is no data entry; there are: {", ".join(data)}'
                )

        def look_up(reference: Reference) -> list[str]:
            word = self._word(reference.name, (*inside, name))
            return [f"{word}/{reference.inner}" if reference.inner else word]

        address: str = resolve(text, look_up)
        return address

    def _complain(self, name: str, lack: str) -> str:
        if not lack:
            return ""
        entry = self._file.recipe.data[name]
        get = f"; get it: {entry.get}" if entry.get else ""
        where = self._file.lines.where(("data", name))
        return f"{where}: {lack}{get}"

    def _lacks_collection(self, entry: str, word: str) -> str:
        name = word.removeprefix(PUBLIC)
        try:
            import ir_datasets
            from ir_datasets.util import home_path
        except ImportError:
            return f'{word} needs optional packages: run  pip install "rankhouse[datasets]"'
        try:
            ir_datasets.load(name)
        except KeyError:
            raise self._file.lines.fault(
                ("data", entry), f'ir_datasets knows no collection "{name}"; see https://ir-datasets.com'
            ) from None
        # BEIR and NanoBEIR keep each collection in a folder of its own.
        home = Path(home_path()).joinpath(*name.split("/")[: 2 if "beir" in name.partition("/")[0] else 1])
        # The library notes its own version there as soon as a collection is named.
        files = (one for one in home.rglob("*") if one.is_file() and one.name != "irds_version.txt")
        if self._download or next(files, None) is not None:
            return ""
        return f"{word} is not in {home}; --download lets ir_datasets fetch it where that is possible"

    def _lacks_checkpoint(self, word: str) -> str:
        if self._download:
            return ""
        try:
            from huggingface_hub import try_to_load_from_cache
        except ImportError:
            return f'{word} needs optional packages: run  pip install "rankhouse[neural]"'
        if isinstance(try_to_load_from_cache(word, "config.json"), str):
            return ""
        return f"the checkpoint {word} is not on this machine; --download lets it be fetched"
