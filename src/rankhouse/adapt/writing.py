"""A model writes questions for as many documents as there is time for, and what it wrote is kept."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import msgspec

from rankhouse.adapt.options import AdaptOptions, Show
from rankhouse.cli import console
from rankhouse.core import notation
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, clock
from rankhouse.core.sampling import short_lot
from rankhouse.index.index import Index
from rankhouse.models.doc2query import open_doc2query

_DOCUMENTS: Final = 2_000
"""Documents that are written about, unless there are minutes."""
_SHARE: Final = 0.25
"""Of the minutes, for writing."""
_TIMED: Final = 3


class KeptWriter:
    """Writes about the documents that are drawn, each once; what is written is kept in a file.

    Args:
        path: The file, JSON lines: how many documents are drawn of how many, then id and
            questions of each.
    """

    def __init__(self, write: Callable[[Document], Sequence[str]], path: Path, progress: Progress) -> None:
        self._write, self._path, self._progress = write, path, progress
        lines = path.read_bytes().splitlines(keepends=True)
        whole = [msgspec.json.decode(line) for line in lines if line.endswith(b"\n")]
        path.write_bytes(b"".join(lines[: len(whole)]))  # without what a kill cut off
        self._most, self._of, self._seed = whole[0]["documents"], whole[0]["of"], whole[0]["seed"]
        self._kept = {record["id"]: record["questions"] for record in whole[1:]}
        self._done = 0
        progress(len(self._kept), self._most)

    def __call__(self, document: Document) -> Sequence[str]:
        """Return the questions about a document; none if it is not drawn."""
        if short_lot(self._seed, "writes", document.id) >= self._most / self._of * 2**64:
            return ()
        if document.id not in self._kept:
            self._kept[document.id] = list(self._write(document))
            record = {"id": document.id, "questions": self._kept[document.id]}
            with self._path.open("ab") as out:
                out.write(msgspec.json.encode(record) + b"\n")
        self._done += 1
        self._progress(min(self._done, self._most), self._most)
        questions: Sequence[str] = self._kept[document.id]
        return questions


def writer_of(index: Index, path: Path, options: AdaptOptions, show: Show) -> KeptWriter:
    """Open the model that writes, and settle how many documents it writes about, once."""
    ask = notation.make(_spec(options.doc2query), {"doc2query": open_doc2query}, "model that asks")

    def write(document: Document) -> Sequence[str]:
        return ask(document, options.seed)

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        most = _affordable(write, index, options)
        record = {"documents": most, "of": _asking(index, options), "seed": options.seed}
        path.write_bytes(msgspec.json.encode(record) + b"\n")
    return KeptWriter(write, path, show("writing questions"))


def _spec(given: str) -> str:
    """Return the notation of a folder or a hub name that was given alone."""
    return given if given.lstrip().startswith("doc2query") and "(" in given else f"doc2query({given!r})"


def _asking(index: Index, options: AdaptOptions) -> int:
    """Return about how many documents ask at all."""
    return min(len(index.documents), options.questions)


def _affordable(write: Callable[[Document], Sequence[str]], index: Index, options: AdaptOptions) -> int:
    """Return about how many documents there is time to write about; say how long it takes."""
    some = list(islice(index.documents.stream(), _TIMED + 1))
    write(some[0])  # the first call starts things
    began = time.perf_counter()
    for document in some[1:]:
        write(document)
    each = (time.perf_counter() - began) / max(1, len(some) - 1)
    most = max(1, int(60 * _SHARE * options.minutes / each)) if each and options.minutes else _DOCUMENTS
    most = min(most, _asking(index, options))
    console.say(
        f"questions are written about {most:,} of {len(index.documents):,} documents: about "
        f"{clock(most * each)}"
    )
    return most
