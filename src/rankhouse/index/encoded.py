"""What an encoder made of all documents of an index, in a folder of the index under a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol, Self, TypeVar

from rankhouse.core.errors import BadIndex, MissingInput, WrongUse
from rankhouse.index.append_state import AGAIN, MANIFEST, DataFolder, LogKind, LogState


class EncodedState(LogState, frozen=True, kw_only=True):
    """How much of the files counts, and how they were made.

    Attributes:
        encoder: Fingerprint of the encoder.
        policy: What else shapes the numbers: how documents were split.
    """

    encoder: str
    policy: str


E = TypeVar("E", bound=EncodedState)


class _Named(Protocol):
    @property
    def fingerprint(self) -> str: ...


class Encoded(DataFolder[E]):
    """The work of an encoder, memory-mapped. Open it with :meth:`open`.

    Attributes:
        kind: What its folder is made of.
        what: What it is called, "vectors".
        command: What makes it.
    """

    kind: ClassVar[LogKind[Any]]
    what: ClassVar[str]
    command: ClassVar[str]

    @classmethod
    def open(cls, folder: Path | str) -> Self:
        """Open a folder; nothing is read but the manifest.

        Raises:
            MissingInput: There is no such folder.
            BadIndex: The encoding was never finished, or the folder is damaged.
        """
        folder = Path(folder)
        if (state := cls.kind.complete(folder)) is not None:
            return cls(folder, state)
        if not folder.exists():
            beside = sorted(p.name for p in folder.parent.iterdir()) if folder.parent.is_dir() else []
            there = f"; there are: {', '.join(beside)}" if beside else ""
            raise MissingInput(
                f"{folder}: there are no such {cls.what}{there}; make them with  {cls.command}"
            )
        raise BadIndex(f"{folder}: holds no {cls.what} (it has no {MANIFEST}); {AGAIN}")

    def require(self, *, documents: int, collection: str) -> Self:
        """Make sure that all documents of an index were encoded, as it is now.

        Raises:
            BadIndex: Documents were added, changed or deleted after the encoding.
        """
        if self.state.collection != collection or self.state.documents != documents:
            raise BadIndex(
                f"{self.folder}: the {self.what} are of {self.state.documents:,} documents, the index now "
                f"has {documents:,} (or others); {AGAIN}: only what was added will be encoded, and after "
                "deletions, with --overwrite, all"
            )
        return self

    def require_encoder(self, encoder: _Named) -> Self:
        """Make sure queries will be encoded by what encoded the documents.

        Raises:
            BadIndex: It is another encoder.
        """
        if encoder.fingerprint != self.state.encoder:
            raise BadIndex(
                f"{self.folder}: was encoded by {self.state.encoder}, the queries would be by "
                f"{encoder.fingerprint}; search with the encoder that made the {self.what}, or encode again"
            )
        return self


def encoded_folder(index: Path | str, what: str, name: str) -> Path:
    """Return the folder of an index's vectors or impacts of this name.

    Raises:
        WrongUse: The name could lead out of the index.
    """
    if not name or name != Path(name).name or name.startswith("."):
        raise WrongUse(f'"{name}" cannot name {what}; use letters, digits, - and _, like  minilm')
    return Path(index) / what / name
