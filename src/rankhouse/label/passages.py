"""Passages that were cut already: a file of them takes the place of a splitter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import msgspec

from rankhouse.core.errors import BadData, DuplicateId
from rankhouse.core.files import as_text, numbered_lines
from rankhouse.core.nouns import Document, Passage


class _Line(msgspec.Struct):
    doc_id: str
    index: int
    text: str


_decode = msgspec.json.Decoder(_Line).decode


@dataclass(frozen=True, repr=False)
class Given:
    """Gives each document the passages that were cut for it; a document without any is its own passage.

    Args:
        passages: Document id -> its passages, in order.
        name: What stands for them in the notation, usually the file.
    """

    passages: Mapping[str, tuple[Passage, ...]] = field(hash=False)
    name: str

    def __call__(self, document: Document) -> list[Passage]:
        """Give a document's passages."""
        return list(self.passages.get(document.id, (Passage(document.id, 0, document.full_text),)))

    def dropped(self, document: Document) -> int:  # noqa: ARG002 - the same question to every splitter
        """Count no words: what the file leaves out was left out on purpose."""
        return 0

    def __str__(self) -> str:
        digest = blake2b(digest_size=8)
        for doc_id in sorted(self.passages):
            digest.update(f"\n{doc_id}\n".encode())
            digest.update("\n".join(f"{p.index} {p.text}" for p in self.passages[doc_id]).encode())
        return f"given({self.name!r}, {digest.hexdigest()!r})"


def given(passages: Iterable[Passage], name: str) -> Given:
    """Gather passages by their document; they are all kept in memory.

    Raises:
        DuplicateId: One number of one document is given twice.
    """
    found: dict[str, dict[int, Passage]] = {}
    for passage in passages:
        if passage.index in found.setdefault(passage.doc_id, {}):
            raise DuplicateId(
                f'passage {passage.index} of document "{passage.doc_id}" is given twice in {name}'
            )
        found[passage.doc_id][passage.index] = passage
    return Given({d: tuple(p[i] for i in sorted(p)) for d, p in found.items()}, name)


def read_passages(path: Path | str) -> Given:
    """Read JSON lines of {"doc_id", "index", "text"}, plain or compressed.

    Raises:
        BadData: A line that is no such object; says which.
        DuplicateId: A passage given twice.
        MissingInput: No such file.
    """
    path = Path(path)
    return given((_passage(raw, path, line) for line, raw in numbered_lines(path) if raw.strip()), path.name)


def _passage(raw: bytes, path: Path, line: int) -> Passage:
    as_text(raw, path, line)
    try:
        found = _decode(raw)
    except msgspec.DecodeError as error:
        wanted = '{"doc_id", "index", "text"}'
        raise BadData(f"not a passage ({error}); a line is {wanted}", path, line) from error
    return Passage(found.doc_id, found.index, found.text)
