"""The pairs a run proposes: its documents, cut into passages, each with its query; streamed, row by row.

A row is one document of one query. Rows come query by query, best document first, so that labelling can stop
after any of them and go on there, and can come back to the few whose text it needs a second time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from typing import NamedTuple, Protocol

from rankhouse.core.errors import BadData
from rankhouse.core.notation import name_of
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.io.duplicate_ids import by_id, require_texts
from rankhouse.labels.fingerprints import run_digest
from rankhouse.text.split_cache import SplitCache

Split = Callable[[Document], Sequence[Passage]]
"""What cuts a document into passages; ``text.split`` has them."""


class Documents(Protocol):
    """The documents by id: a dict, or the index's document store."""

    def __getitem__(self, doc_id: str, /) -> Document:
        """Return a document; KeyError where there is none of that id."""
        ...


class Row(NamedTuple):
    """One document of one query.

    Attributes:
        query: Whose ranking it is in.
        doc_id: The document.
        rank: Its place there, from 1.
    """

    query: Query
    doc_id: str
    rank: int


@dataclass(frozen=True)
class Candidates:
    """The pairs of a run; make one with :func:`candidates`.

    Attributes:
        run: Cut at the depth.
        queries: Query id -> its text.
        documents: The documents by id.
        split: What cuts them.
    """

    run: Run
    queries: Mapping[str, Query]
    documents: Documents
    split: Split

    @cached_property
    def _cut(self) -> SplitCache:
        return SplitCache(lambda document: [p for p in self.split(document) if p.text.strip()])

    def rows(self, start: int = 0) -> Iterator[Row]:
        """Stream the rows from one on, numbered from 0."""
        for query_id in self.run:
            doc_ids = self.run[query_id].doc_ids
            if start >= len(doc_ids):
                start -= len(doc_ids)
                continue
            for rank, doc_id in islice(enumerate(doc_ids, 1), start, None):
                yield Row(self.queries[query_id], doc_id, rank)
            start = 0

    def pairs(self, row: Row) -> list[Pair]:
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
