"""Passages that were cut already: a file of them takes the place of a splitter."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path

import msgspec

from rankhouse.core.errors import BadData, DuplicateId, RankhouseWarning, name_few
from rankhouse.core.nouns import Document, Passage
from rankhouse.core.run import Run
from rankhouse.io.decoding import from_json
from rankhouse.io.files import numbered_lines


class _Line(msgspec.Struct):
    doc_id: str
    index: int
    text: str


_decoder = msgspec.json.Decoder(_Line)


@dataclass(frozen=True, repr=False)
class PassageFile:
    """A splitter that looks up what was cut already; a document without passages is its own passage."""

    passages: Mapping[str, tuple[Passage, ...]] = field(hash=False)
    name: str

    def __call__(self, document: Document) -> list[Passage]:
        """Return a document's passages."""
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


def gather(passages: Iterable[Passage], name: str) -> PassageFile:
    """Gather passages by their document; they are all kept in memory.

    Raises:
        DuplicateId: One number of one document is given twice.
    """
    by_document: dict[str, dict[int, Passage]] = {}
    for passage in passages:
        if passage.index in by_document.setdefault(passage.doc_id, {}):
            raise DuplicateId(
                f'passage {passage.index} of document "{passage.doc_id}" is given twice in {name}'
            )
        by_document[passage.doc_id][passage.index] = passage
    return PassageFile({d: tuple(p[i] for i in sorted(p)) for d, p in by_document.items()}, name)


def read_passages(path: Path | str) -> PassageFile:
    """Read JSON lines of {"doc_id", "index", "text"}, plain or compressed.

    Raises:
        BadData: A line that is no such object; says which.
        DuplicateId: A passage given twice.
        MissingInput: No such file.
    """
    path = Path(path)
    return gather((_passage(raw, path, line) for line, raw in numbered_lines(path) if raw.strip()), path.name)


def _passage(raw: bytes, path: Path, line: int) -> Passage:
    wanted = 'not a passage; a line is {"doc_id", "index", "text"}'
    record = from_json(_decoder, raw, wanted, path, line)
    if record.index < 0:
        raise BadData(f"the index {record.index} is no place in a document; the first is 0", path, line)
    return Passage(record.doc_id, record.index, record.text)


def check_passages(passages: PassageFile, run: Run, depth: int) -> None:
    """Make sure that passages are those of the candidates.

    Raises:
        BadData: No candidate has passages.

    Warns:
        RankhouseWarning: Some have none, and are labelled whole.
    """
    wanted = {doc_id for query_id in run for doc_id in run[query_id].doc_ids[:depth]}
    missing = sorted(wanted - passages.passages.keys())
    if wanted and len(missing) == len(wanted):
        has = ", ".join(list(passages.passages)[:3]) or "no document"
        raise BadData(
            f"the passages belong to none of the {len(wanted):,} candidates: they are of {has} ..., "
            f"the candidates are {name_few(missing, 3)}; do run and passages name documents alike?",
            passages.name,
        )
    if missing:
        warnings.warn(
            f"{len(missing):,} of {len(wanted):,} candidates have no passages in {passages.name} and are "
            f"labelled whole: {name_few(missing)}",
            RankhouseWarning,
            stacklevel=2,
        )
