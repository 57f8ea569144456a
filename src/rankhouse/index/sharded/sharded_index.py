"""Several indexes searched as one: rankings, scores and ties are those of one index of all their documents.

Statistics are exchanged first: each shard tells its own, and ranks by the sums of all. From each come its
best k documents, never all that match. Equal scores are ordered by document id across shards as within one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from hashlib import blake2b
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self, TypeAlias, TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from rankhouse.core import notation
from rankhouse.core.errors import BadData, BadIndex, DuplicateId, NoSuchDocument, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.index.index import Index
from rankhouse.index.lexical.scorer import Counted, DocumentScore, Hits, Weighted
from rankhouse.index.lexical.store import KnownIds
from rankhouse.index.lexical.weighting import Collection, TermCounts, Weighting
from rankhouse.index.sharded.shard import IndexShard, LocalShards, Request, ShardFailed, ShardInfo, Shards

if TYPE_CHECKING:
    from rankhouse.text.analyze import Analyzer

T = TypeVar("T")

_TOGETHER: Final = 32
"""Queries that are asked in one message at most."""
_IDS_AT_ONCE: Final = 10_000
_KNOWN_TERMS: Final = 500_000
"""Terms whose counts are remembered."""


def best_of_shards(
    ids: Sequence[str], scores: FloatArray, k: int, *, descending_ids: bool = False
) -> NDArray[np.int64]:
    """Return the places of the best k of n, best first; equal scores are ordered by id."""
    order = np.argsort(-scores, kind="stable")
    edges = np.flatnonzero(np.diff(scores[order], prepend=np.nan, append=np.nan) != 0)
    for start, end in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if end - start > 1 and start < k:
            order[start:end] = sorted(order[start:end].tolist(), key=ids.__getitem__, reverse=descending_ids)
    return order[:k]


class ShardedIndex:
    """Several indexes, the shards of one collection, searched as one.

    Open them with :meth:`open`, or with :meth:`reach` where they lie elsewhere.

    Attributes:
        missing: Names of the shards that are left out since they do not answer.

    Raises BadIndex: no shard, a shard twice, or shards that were made with different analyzers.
    """

    def __init__(self, shards: Shards, infos: Mapping[int, ShardInfo]) -> None:
        self.shards, self._infos = shards, dict(infos)
        _check(shards.names, self._infos)
        collections = [info.collection for info in self._infos.values()]
        self.collection = Collection(*map(sum, zip(*collections, strict=True)))
        self.starts = np.cumsum([0, *(collection.documents for collection in collections)])
        self.documents = ShardedDocuments(self)
        self.missing = tuple(name for number, name in enumerate(shards.names) if number not in self._infos)
        self._counts = dict[str, TermCounts]()
        self._fewer = dict[int, ShardedIndex]()

    @classmethod
    def open(cls, paths: Sequence[Path]) -> Self:
        """Open indexes of this machine as one: indexes, shards made with ``--shard``, folders of shards.

        Raises MissingInput: there is no such folder; BadIndex: one of them holds no sound index, or they do
        not go together.
        """
        return cls.reach(LocalShards.open(paths))

    @classmethod
    def reach(cls, shards: Shards, *, partial: bool = False) -> Self:
        """Ask shards what they are and join them; ShardFailed if one does not answer."""
        asked, infos = set(range(len(shards.names))), dict[int, ShardInfo]()
        while asked:
            try:
                infos = shards.ask(dict.fromkeys(sorted(asked), IndexShard.about))
                break
            except ShardFailed as failure:
                asked.remove(failure.number)
                if not (partial and asked):
                    raise
        return cls(shards, infos)

    @cached_property
    def analyzer(self) -> Analyzer:
        """The analyzer of their texts and of queries."""
        from rankhouse.text.analyze import ANALYZERS  # noqa: PLC0415 - as in Index

        return notation.make(next(iter(self._infos.values())).analyzer, ANALYZERS, "analyzer")

    def __len__(self) -> int:
        return self.collection.documents

    def __repr__(self) -> str:
        return f"<ShardedIndex of {len(self._infos)} shards: {len(self):,} documents, {self.analyzer.name}>"

    @property
    def infos(self) -> Mapping[str, ShardInfo]:
        """Facts about each shard, by name."""
        return {self.shards.names[number]: info for number, info in self._infos.items()}

    @property
    def path(self) -> Path:
        """A name for messages; there is no such folder."""
        return Path(" + ".join(self.infos))

    @property
    def fingerprint(self) -> str:
        """Hash of the content; changes with every document added to a shard."""
        shards = "".join(info.fingerprint for info in self._infos.values())
        return blake2b(shards.encode(), digest_size=16).hexdigest()

    # --- shards that do not answer ---------------------------------------------------------------------

    @cached_property
    def _hurried(self) -> ShardedIndex:
        return ShardedIndex(self.shards.hurried(), self._infos)

    def without(self, number: int) -> ShardedIndex:
        """Return what is left when a shard is left out: an index of the other shards' documents only."""
        if number not in self._fewer:
            infos = {other: info for other, info in self._infos.items() if other != number}
            self._fewer[number] = ShardedIndex(self.shards, infos)
        return self._fewer[number]

    def partial(self, work: Callable[[ShardedIndex], T]) -> tuple[T, ShardedIndex]:
        """Do work with all shards, or, where some do not answer, the whole work with the others.

        Raises ShardFailed: no shard answers.
        """
        index = self._hurried
        while True:
            try:
                return work(index), index
            except ShardFailed as failure:
                if len(index.infos) == 1:
                    raise
                index = index.without(failure.number)

    # --- asking ---------------------------------------------------------------------------------------

    def ask_all(self, request: Request) -> dict[int, Any]:
        """Ask every shard the same: number -> answer."""
        return self.shards.ask(dict.fromkeys(self._infos, request))

    def ask_one(self, request: Request) -> Any:  # noqa: ANN401 - as of ask_all
        """Ask the first shard."""
        number = next(iter(self._infos))
        return self.shards.ask({number: request})[number]

    def _ask_owners(self, rows: Sequence[int], method: Callable[..., Any]) -> list[Any]:
        """Ask the shards that hold documents about them: an answer a row."""
        numbers = list(self._infos)
        owner = np.searchsorted(self.starts, rows, side="right") - 1
        places = {place: np.flatnonzero(owner == place) for place in np.unique(owner).tolist()}
        local = {
            place: tuple((np.asarray(rows)[mine] - self.starts[place]).tolist())
            for place, mine in places.items()
        }
        answers = self.shards.ask(
            {numbers[place]: partial(method, rows=some) for place, some in local.items()}
        )
        joined: list[Any] = [None] * len(rows)
        for place, mine in places.items():
            for row, answer in zip(mine.tolist(), answers[numbers[place]], strict=True):
                joined[row] = answer
        return joined

    def together(self, queries: int, threads: int) -> int:
        """Return a thread's share: as few messages as that takes."""
        return max(1, min(_TOGETHER, -(-queries // threads)))

    def counts(self, term: str) -> TermCounts:
        """Count the documents that hold a term, and its occurrences, in all shards."""
        if (known := self._counts.get(term)) is None:
            known = self._look_up((term,))[term]
        return known

    def look_up(self, terms: Iterable[str]) -> None:
        """Ask all shards for the counts of terms that are not known yet, in one message."""
        if wanted := tuple(term for term in dict.fromkeys(terms) if term not in self._counts):
            self._look_up(wanted)

    def _look_up(self, terms: tuple[str, ...]) -> dict[str, TermCounts]:
        columns = zip(*self.ask_all(partial(IndexShard.count, terms=terms)).values(), strict=True)
        sums = [TermCounts(*map(sum, zip(*column, strict=True))) for column in columns]
        counts = dict(zip(terms, sums, strict=True))
        if len(self._counts) > _KNOWN_TERMS:
            self._counts = {}
        self._counts.update(counts)
        return counts

    def hits(self, model: Weighting, queries: Sequence[Weighted], k: int) -> list[Hits]:
        """Find the best k documents of all shards for each query."""
        request = partial(
            IndexShard.rank, model=model.notation, collection=self.collection, queries=tuple(queries), k=k
        )
        return self.best_of_all(request, k)

    def best(self, model: Weighting, queries: Iterable[Counted], k: int) -> None:
        """Leave it to :meth:`hits`: shards rank by the counts of all."""

    def best_of_all(self, request: Request, k: int) -> list[Hits]:
        """Ask every shard for its best k documents of some queries, and return the best k of all for each."""
        answers = self.ask_all(request).values()
        shifted = [
            [hits._replace(rows=hits.rows + start) for hits in answer]
            for start, answer in zip(self.starts[:-1], answers, strict=True)
        ]
        return [self._joined(column, k) for column in zip(*shifted, strict=True)]

    def _joined(self, of_shards: Sequence[Hits], k: int) -> Hits:
        ids = tuple(chain.from_iterable(hits.ids for hits in of_shards))
        scores, rows = (np.concatenate([getattr(h, name) for h in of_shards]) for name in ("scores", "rows"))
        order = best_of_shards(self.distinct(ids), scores, k)
        return Hits(rows[order], scores[order], tuple(ids[place] for place in order.tolist()))

    def document_score(self, model: Weighting, terms: Weighted, row: int) -> DocumentScore:
        """Score one document."""
        place = int(np.searchsorted(self.starts, row, side="right")) - 1
        number = list(self._infos)[place]
        there = row - int(self.starts[place])
        request = partial(
            IndexShard.score, model=model.notation, collection=self.collection, terms=terms, row=there
        )
        return cast(DocumentScore, self.shards.ask({number: request})[number])

    def terms_of(self, rows: Sequence[int]) -> list[list[tuple[str, int]]]:
        """List the terms of each of several documents, with their counts."""
        return self._ask_owners(rows, IndexShard.terms)

    def ids_of(self, answers: Sequence[Hits]) -> KnownIds:
        """Return the ids of all hits, which came with them."""
        return KnownIds(list(chain.from_iterable(hits.ids for hits in answers)))

    # --- documents ------------------------------------------------------------------------------------

    def find(self, doc_ids: Sequence[str]) -> list[int]:
        """Return the rows of documents among all; -1 for those that no shard has.

        Raises DuplicateId: two shards have one of them.
        """
        rows = [-1] * len(doc_ids)
        answers = self.ask_all(partial(IndexShard.rows, ids=tuple(doc_ids))).values()
        for start, answer in zip(self.starts[:-1].tolist(), answers, strict=True):
            for place, row in enumerate(answer):
                if row >= 0:
                    if rows[place] >= 0:
                        raise self.repeated(doc_ids[place])
                    rows[place] = start + row
        return rows

    def row_of(self, doc_id: str) -> int:
        """Return the row of a document among all; WrongUse if no shard has it."""
        [row] = self.find([doc_id])
        if row < 0:
            raise WrongUse(f'"{doc_id}": no shard of {self.path} has such a document; ids match exactly')
        return row

    def ids(self, rows: NDArray[np.int64]) -> list[str]:
        """Return the document ids of rows."""
        return self._ask_owners(rows.tolist(), IndexShard.ids)

    def require(self, doc_ids: Iterable[str]) -> None:
        """Refuse a run of another collection; BadData if no shard has one of its documents."""
        wanted = list(doc_ids)
        missing = next((i for i, row in zip(wanted, self.find(wanted), strict=True) if row < 0), None)
        if missing is not None:
            raise BadData(
                f'no shard of {self.path} has the document "{missing}", which a run ranks; give the index '
                "that the runs were made from"
            )

    def distinct(self, ids: Sequence[str]) -> Sequence[str]:
        """Return ids that several shards gave; DuplicateId if two gave the same."""
        if len(left := set(ids)) < len(ids):
            for doc_id in ids:
                if doc_id not in left:
                    raise self.repeated(doc_id)
                left.remove(doc_id)
        return ids

    def repeated(self, doc_id: str) -> DuplicateId:
        """Return the error for a document that several shards have."""
        answers = self.ask_all(partial(IndexShard.rows, ids=(doc_id,)))
        holders = [self.shards.names[number] for number, [row] in answers.items() if row >= 0]
        return DuplicateId(
            f'the id "{doc_id}" is in {" and in ".join(holders)}; shards of one index hold each document '
            "once: cut one collection with  rankhouse index --shard, or make ids differ with  --prefix-ids"
        )


def _check(names: Sequence[str], infos: Mapping[int, ShardInfo]) -> None:
    """Refuse shards that do not go together."""
    if not infos:
        raise BadIndex("no shard was named; an index of shards needs one at least")
    seen = dict[str, int]()
    (first, one), *_ = infos.items()
    for number, info in infos.items():
        other = seen.setdefault(info.fingerprint, number)
        if other != number and info.collection.documents:
            raise BadIndex(
                f"{names[number]}: holds the same documents as {names[other]}; name each shard once"
            )
        if info.analyzer != one.analyzer:
            raise BadIndex(
                f"{names[number]}: was made with the analyzer {info.analyzer}, {names[first]} with "
                f"{one.analyzer}; shards that are searched as one need the same"
            )


class ShardedDocuments(Mapping[str, Document]):
    """The documents of all shards by id, fetched from their shards when asked for."""

    def __init__(self, index: ShardedIndex) -> None:
        self._index = index

    def __getitem__(self, doc_id: str) -> Document:
        return self.fetch([doc_id])[0]

    def __contains__(self, doc_id: object) -> bool:
        return isinstance(doc_id, str) and self._index.find([doc_id])[0] >= 0

    def __iter__(self) -> Iterator[str]:
        for start in range(0, len(self), _IDS_AT_ONCE):
            yield from self._index.ids(np.arange(start, min(start + _IDS_AT_ONCE, len(self))))

    def __len__(self) -> int:
        return len(self._index)

    def fetch(self, doc_ids: Iterable[str]) -> list[Document]:
        """Fetch several documents, in the order asked for.

        Raises KeyError: no shard has one of them; DuplicateId: two shards have one of them.
        """
        wanted = tuple(doc_ids)
        fetched: list[Document | None] = [None] * len(wanted)
        request = partial(IndexShard.fetch, ids=wanted)
        for documents in self._index.ask_all(request).values() if wanted else ():
            for place, document in enumerate(documents):
                if document is not None:
                    if fetched[place] is not None:
                        raise self._index.repeated(document.id)
                    fetched[place] = document
        documents = [document for document in fetched if document is not None]
        if len(documents) < len(wanted):
            raise NoSuchDocument(next(i for i, one in zip(wanted, fetched, strict=True) if one is None), self)
        return documents


AnyIndex: TypeAlias = Index | ShardedIndex
