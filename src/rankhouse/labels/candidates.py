"""The pairs a run proposes: its documents, cut into passages, each with its query; streamed, row by row.

A row is one document of one query. Rows come query by query, best document first, so that labelling can stop
after any of them and go on there, and can come back to the few whose text it needs a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec

from rankhouse.core.errors import BadData, DuplicateId, name_few, warn
from rankhouse.core.notation import name_of
from rankhouse.core.nouns import Document, Documents, Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.io.decoding import from_json
from rankhouse.io.duplicate_ids import by_id, require_texts
from rankhouse.io.files import numbered_lines
from rankhouse.labels.leaf_rules import run_digest
from rankhouse.text.split import SplitCache

Split = Callable[[Document], Sequence[Passage]]
"""What cuts a document into passages; ``text.split`` has them."""


class CandidateRow(NamedTuple):
    """One document of one query."""

    query: Query
    doc_id: str
    rank: int


@dataclass(frozen=True)
class Candidates:
    """The pairs of a run; make one with :func:`candidates`."""

    run: Run
    queries: Mapping[str, Query]
    documents: Documents
    split: Split

    @cached_property
    def _cut(self) -> SplitCache:
        return SplitCache(lambda document: [p for p in self.split(document) if p.text.strip()])

    def rows(self, start: int = 0) -> Iterator[CandidateRow]:
        """Stream the rows from one on, numbered from 0."""
        for query_id in self.run:
            doc_ids = self.run[query_id].doc_ids
            if start >= len(doc_ids):
                start -= len(doc_ids)
                continue
            for rank, doc_id in islice(enumerate(doc_ids, 1), start, None):
                yield CandidateRow(self.queries[query_id], doc_id, rank)
            start = 0

    def pairs(self, row: CandidateRow) -> list[Pair]:
        """Return the pairs of a row: its document's passages, but for those without text.

        Raises:
            KeyError: The collection does not have the document.
        """
        query = row.query
        return [Pair(query, passage) for passage in self._cut.by_id(row.doc_id, self.documents)]

    def identity(self) -> dict[str, str]:
        """Name what the pairs depend on, except the documents' texts."""
        texts = blake2b(digest_size=16)
        for query_id in self.run:
            texts.update(f"{query_id}\t{self.queries[query_id].text}\n".encode("utf-8", "surrogatepass"))
        return {
            "run": run_digest(self.run, max(self.run.rows, 1)),
            "queries": texts.hexdigest(),
            "split": name_of(self.split),
        }


def candidates(
    run: Run, queries: Iterable[Query], documents: Documents, split: Split, depth: int
) -> Candidates:
    """Check that every query of a run has a text, and cut the run at the depth.

    Raises:
        BadData: A query of the run has no text among ``queries``, or the run is empty.
        DuplicateId: Two queries have one id.
    """
    texts = by_id(queries)
    if not run.rows:
        raise BadData("the run has no rows, so there is nothing to label; search deeper or give another run")
    require_texts(list(run), texts)
    return Candidates(run.top(depth), texts, documents, split)


class _PassageLine(msgspec.Struct):
    doc_id: str
    index: int
    text: str


_decoder = msgspec.json.Decoder(_PassageLine)


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


def read_passages(path: Path | str) -> PassageFile:
    """Read JSON lines of {"doc_id", "index", "text"}, plain or compressed; they are all kept in memory.

    Raises:
        BadData: A line that is no such object; says which.
        DuplicateId: A passage given twice.
        MissingInput: No such file.
    """
    path, wanted = Path(path), 'not a passage; a line is {"doc_id", "index", "text"}'
    by_document: dict[str, dict[int, Passage]] = {}
    for line, raw in numbered_lines(path):
        if not raw.strip():
            continue
        passage = Passage(*msgspec.structs.astuple(from_json(_decoder, raw, wanted, path, line=line)))
        if passage.index < 0:
            raise BadData(f"the index {passage.index} is no place in a document; the first is 0", path, line)
        if passage.index in by_document.setdefault(passage.doc_id, {}):
            raise DuplicateId(
                f'passage {passage.index} of document "{passage.doc_id}" is given twice in {path.name}'
            )
        by_document[passage.doc_id][passage.index] = passage
    return PassageFile({d: tuple(p[i] for i in sorted(p)) for d, p in by_document.items()}, path.name)


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
        warn(
            f"{len(missing):,} of {len(wanted):,} candidates have no passages in {passages.name} and are "
            f"labelled whole: {name_few(missing)}"
        )
