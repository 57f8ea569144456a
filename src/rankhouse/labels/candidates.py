"""The pairs a run proposes, streamed, row by row, and which of the non-relevant ones become negatives.

A row is one document of one query, cut into passages. Rows come query by query, best document first, so that
labelling can stop after any of them and go on there, and can come back to the few whose text it needs a
second time.

QA-DocRank samples as many non-relevant pairs as it has relevant ones and leaves open from where. Here each
pair of the pool draws a lot from (seed, query, document, passage), and the smallest lots win: the choice does
not depend on the order of work, on chunks, or on what else is in the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from typing import Literal, NamedTuple, get_args

import msgspec

from rankhouse.core.arguments import check_whole
from rankhouse.core.errors import BadData, DuplicateId, WrongUse, name_few, warn
from rankhouse.core.notation import name_of, write
from rankhouse.core.nouns import Document, Documents, Pair, Passage, Query, by_id, require_texts
from rankhouse.core.run import Run
from rankhouse.io.decoding import from_json
from rankhouse.io.files import numbered_lines
from rankhouse.labels.leaf_rules import run_digest
from rankhouse.text.split import SplitCache

Split = Callable[[Document], Sequence[Passage]]
"""Function that cuts a document into passages; ``text.split`` has them."""


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


Scope = Literal["query", "collection", "document"]


@dataclass(frozen=True)
class Negatives:
    """Choice of negatives; make one with :data:`NEGATIVES`.

    Attributes:
        kind: "none", "all" or "random".
        per: How many for each relevant pair.
        depths: First and last place in the run (from 1) that they may come from; None is the end.
        scope: "query": as many as the query has relevant pairs, times ``per``. "collection": as many as there
            are relevant pairs in all, from any query. "document": as many as the document has relevant pairs,
            times ``per``, from that document: what a teacher of passages has to tell apart.
        seed: Changes the draw.
    """

    kind: Literal["none", "all", "random"]
    per: int = 1
    depths: tuple[int, int | None] = (1, None)
    scope: Scope = "query"
    seed: int = 0

    def allows(self, rank: int) -> bool:
        """Return whether a document at this place of the run may give negatives."""
        first, last = self.depths
        return self.kind != "none" and first <= rank and (last is None or rank <= last)

    def __str__(self) -> str:
        depths = {} if self.depths == (1, None) else {"depths": self.depths}
        if self.kind != "random":
            return write(self.kind, **depths)
        scope: dict[str, object] = {} if self.scope == "query" else {"scope": self.scope}
        return write("random", self.per, **depths, **scope, **({"seed": self.seed} if self.seed else {}))


def none() -> Negatives:
    """Write relevant pairs only, as a loss with in-batch negatives wants them."""
    return Negatives("none")


def every(depths: tuple[int, int | None] = (1, None)) -> Negatives:
    """Write all non-relevant pairs of these depths, as hard pairs for a cross-encoder."""
    return Negatives("all", depths=_depths(depths))


def random(
    per: int = 1, depths: tuple[int, int | None] = (1, None), scope: Scope = "query", seed: int = 0
) -> Negatives:
    """Draw ``per`` negatives for each relevant pair.

    Args:
        depths: First and last place in the run that they may come from, from 1.
        scope: "query", "collection" or "document".

    Raises:
        WrongUse: A number below 1, depths that are no range, or another scope.
    """
    check_whole("random", 1, per=per)
    check_whole("random", seed=seed)
    if scope not in get_args(Scope):
        raise WrongUse(f'random: scope={scope!r}; choose "query", "collection" or "document"')
    return Negatives("random", per, _depths(depths), scope, seed=seed)


NEGATIVES: dict[str, Callable[..., Negatives]] = {"none": none, "all": every, "random": random}
"""The table of names, for :func:`rankhouse.core.notation.make`."""


def _depths(depths: object) -> tuple[int, int | None]:
    match depths:
        case (int(first), None) if first >= 1:
            return first, None
        case (int(first), int(last)) if 1 <= first <= last:
            return first, last
    raise WrongUse(
        f"depths={depths!r}, but it is the first and the last place in the run, from 1, like (10, 100); "
        "(10, None) goes to the end"
    )
