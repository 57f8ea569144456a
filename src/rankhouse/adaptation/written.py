"""Questions that a model writes about documents: as many as there is time for, each written once and kept."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import Annotated, Final

import msgspec

from rankhouse.adaptation.options import TEACHERS_SHARE, Adaptation
from rankhouse.core import notation
from rankhouse.core.nouns import Document
from rankhouse.core.progress import Progress, clock, say
from rankhouse.core.sampling import short_lot
from rankhouse.io.decoding import decode_own, read_own_bytes
from rankhouse.models.doc2query import open_doc2query

_DOCUMENTS: Final = 2_000
"""Documents that are written about, unless there are minutes."""
_TIMED: Final = 3


class _Sample(msgspec.Struct):
    documents: int
    of: Annotated[int, msgspec.Meta(ge=1)]
    seed: int


class _DocumentQuestions(msgspec.Struct):
    id: str
    questions: list[str]


class KeptWriter:
    """Writes about the documents that are drawn, each once; what is written is kept in a file.

    Its lines are JSON: how many documents are drawn of how many, then id and questions of each.
    """

    def __init__(self, write: Callable[[Document], Sequence[str]], path: Path, progress: Progress) -> None:
        self._write, self._path, self._progress = write, path, progress
        advice = "remove the file, and the questions are written again"
        raw = read_own_bytes(path, advice)
        head, *lines = raw[: raw.rfind(b"\n") + 1].splitlines() or [b""]
        drawn = decode_own(head, _Sample, f"{path}, line 1:", advice)
        named = ((f"{path}, line {number}:", line) for number, line in enumerate(lines, 2))
        kept = [decode_own(line, _DocumentQuestions, name, advice) for name, line in named]
        os.truncate(path, raw.rfind(b"\n") + 1)  # without what a kill cut off
        self._most, self._of, self._seed = drawn.documents, drawn.of, drawn.seed
        self._kept = {record.id: record.questions for record in kept}
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


def writer_of(job: Adaptation, path: Path) -> KeptWriter:
    """Open the model that writes, and settle how many documents it writes about, once."""
    given, seed = job.options.doc2query, job.options.seed
    if not (given.lstrip().startswith("doc2query") and "(" in given):  # a folder or a hub name alone
        given = f"doc2query({given!r})"
    ask = notation.make(given, {"doc2query": open_doc2query}, "model that asks")

    def write(document: Document) -> Sequence[str]:
        return ask(document, seed)

    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        asking = min(len(job.index), job.options.questions)  # about so many documents ask at all
        record = {"documents": _writable(job, write, asking), "of": asking, "seed": seed}
        path.write_bytes(msgspec.json.encode(record) + b"\n")
    return KeptWriter(write, path, job.show("writing questions"))


def _writable(job: Adaptation, write: Callable[[Document], Sequence[str]], asking: int) -> int:
    """Return about how many documents there is time to write about; say how long it takes."""
    documents, minutes = job.index.documents, job.options.minutes
    some = list(islice(documents.stream(), _TIMED + 1))
    write(some[0])  # the first call starts things
    began = time.perf_counter()
    for document in some[1:]:
        write(document)
    each = (time.perf_counter() - began) / max(1, len(some) - 1)
    most = max(1, int(60 * TEACHERS_SHARE * minutes / each)) if each and minutes else _DOCUMENTS
    most = min(most, asking)
    say(f"questions are written about {most:,} of {len(documents):,} documents: about {clock(most * each)}")
    return most
