"""Corpora that share ids: which of several records with one id is taken; ids made different by a prefix."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from rankhouse.core.errors import DuplicateId, WrongUse
from rankhouse.core.nouns import Document
from rankhouse.io.corpora import JSON_KINDS, PUBLIC, TREC_KINDS, read_documents
from rankhouse.io.duplicate_ids import SeenIds
from rankhouse.io.files import Meter, Skips

RULES = ("refuse", "same", "first")
"""What becomes of a second record with an id: refused; passed over if its text is the same; passed over."""


class Repeats(SeenIds):
    """Passes over records whose id was given before, by a rule; a hash of each text is held, 100 bytes an id.

    Args:
        rule: "same" or "first".
    """

    def __init__(self, rule: str, held: Mapping[str, Document] | None = None) -> None:
        super().__init__()
        self._rule, self._held = rule, held
        self._texts: dict[int, int] = {}
        self.prefix, self.passed = "", 0

    def takes(self, document: Document, path: Path, line: int) -> bool:
        """Return whether a document is new, its id behind :attr:`prefix`. Args: as in :meth:`SeenIds.takes`.

        Raises:
            DuplicateId: Its id was given before, with another text, and the rule is "same".
        """
        name = self.prefix + document.id
        text, key = hash((document.title, document.text)), hash(name)
        before = self._texts.get(key)
        if before is None and self._held is not None and name in self._held:
            other = self._held[name]
            before = hash((other.title, other.text))
        if before is None:
            self._texts[key] = text
            return True
        if self._rule == "same" and before != text:
            raise DuplicateId(
                f'the id "{name}" was already given, with another text; take the first with '
                "--duplicates first, or make the ids of several corpora differ with --prefix-ids",
                path,
                line,
            )
        self.passed += 1
        return False


class Source(NamedTuple):
    """A corpus and the prefix of its ids; "" for none."""

    path: str
    prefix: str = ""


def named_sources(corpus: Sequence[str]) -> list[Source]:
    """Name corpora for their ids' prefix: ``NAME=PATH`` as said, others by their file's or folder's stem.

    Raises:
        WrongUse: Two have one name, or a name that cannot stand in an id.
    """
    sources = [_named(text) for text in corpus]
    for number, source in enumerate(sources):
        if not source.prefix or any(sign.isspace() for sign in source.prefix):
            raise WrongUse(f'"{corpus[number]}": a prefix is one word; name it, like  news={source.path}')
        if source.prefix in [other.prefix for other in sources[:number]]:
            raise WrongUse(
                f'two corpora are named "{source.prefix}", so their ids would not differ; name one yourself, '
                f"like  {source.prefix}2={source.path}"
            )
    return sources


def _named(text: str) -> Source:
    name, equals, path = text.partition("=")
    if equals and name and "/" not in name and not Path(text).exists():
        return Source(path, name)
    if text.startswith(PUBLIC):
        return Source(text, text.removeprefix(PUBLIC).replace("/", "-"))
    stem = Path(text).name
    for suffix in (".gz", ".zst", ".tsv", *JSON_KINDS, *TREC_KINDS):
        stem = stem.removesuffix(suffix)
    return Source(text, stem)


def read_sources(
    sources: Sequence[Source], skips: Skips, repeats: Repeats | None = None, meter: Meter | None = None
) -> Iterator[Document]:
    """Stream the documents of corpora, ids behind the prefixes of those that have one, and a colon.

    Args:
        sources: Files, folders, ``ir_datasets:NAME``, or NAME=PATH.
        skips: How many faulty records may be passed over; none by default.
        meter: Counts the bytes read.

    Raises:
        RankhouseError: What :func:`rankhouse.io.corpora.read_documents` raises.
    """
    if not any(source.prefix for source in sources):
        yield from read_documents([source.path for source in sources], skips, repeats, meter)
        return
    for source in sources:  # prefixes differ, so each corpus need be held against itself only
        start = f"{source.prefix}:"
        if repeats is not None:
            repeats.prefix = start
        for document in read_documents([source.path], skips, repeats, meter):
            yield document._replace(id=start + document.id)
