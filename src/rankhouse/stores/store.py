"""The protocol of stores for push and pull, whichever database or search engine it is.

A store is made of a notation, ``qdrant("http://localhost:6333", collection="papers")``, and stands for one
collection: a record a document, or a record a passage where vectors are those of passages. What it holds, and
how it was made, is kept beside the records in the store itself (:class:`StoreContents`), so that it is never
mixed with anything else. A collection that another program filled has no contents; it can be searched, but
nothing is pushed into it. Names and sparse vectors of records are the same whenever they are made.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from hashlib import blake2b
from typing import Any, ClassVar, Final, Literal, NamedTuple
from uuid import UUID, uuid5

import msgspec

from rankhouse.core.errors import StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray
from rankhouse.io.decoding import decode_own

FORMAT: Final = "rankhouse-store"
VERSION: Final = 1
CONTENTS: Final = "rankhouse"
"""The name under which a store keeps the :class:`StoreContents`."""


NOTHING: Final = 1e-30
"""Stands for a posting weight of 0, which sparse vectors do not hold: the document matches all the same."""
ZERO_BELOW: Final = 1e-20
"""A score below it is made of such weights only: 0."""

Structure = Literal["exact", "hnsw"]


class StoreContents(msgspec.Struct, frozen=True, kw_only=True):
    """Contents of a collection, and how it was made."""

    source: str  # fingerprint of the index
    documents: int
    records: int
    texts: bool = True
    analyzer: str
    impacts: str = ""  # notation of the model whose posting weights are held; "" for none
    vectors: str = ""  # fingerprint of the vectors; "" for none
    encoder: str = ""  # fingerprint of their encoder
    weigher: str = ""  # fingerprint of the sparse encoder whose weights stand in place of a model's
    similarity: str = ""  # how they are compared: "dot", "cosine" or "l2"
    dimension: int = 0
    largest_norm: float = 0.0
    structure: str = "exact"  # "exact", or the kind of approximate structure that searches them
    # whether the push came to its end; None where an earlier version pushed, which did not say
    complete: bool | None = None
    format: str = FORMAT
    version: int = VERSION

    def to_json(self) -> str:
        """Write them as JSON."""
        return msgspec.json.encode(self).decode()


def read_contents(
    raw: str | bytes | None, name: str, advice: str = "push with --overwrite"
) -> StoreContents | None:
    """Read what :meth:`StoreContents.to_json` wrote; None where there is nothing, or another program's note.

    Raises StoreFailed: it is of another version, or damaged.
    """
    if not raw or FORMAT not in (raw if isinstance(raw, str) else raw.decode(errors="replace")):
        return None
    contents = decode_own(
        raw,
        StoreContents,
        f"{name}: what rankhouse noted about the collection",
        advice=advice,
        error=StoreFailed,
    )
    if contents.format != FORMAT or contents.version != VERSION:
        raise StoreFailed(
            f"{name}: was pushed by another version of rankhouse (format {contents.version}, this one reads "
            f"{VERSION}); push with --overwrite"
        )
    return contents


class StoreRecord(NamedTuple):
    """One row of a collection: a document, or one more passage of it."""

    number: int  # the document's place in the index
    doc_id: str
    passage: int  # 0 for the record that holds title, text and impacts; further passages only hold a vector
    title: str
    text: str
    vector: FloatArray | None  # (d,) float32; None where the document has no text, or nothing was encoded
    impacts: Mapping[str, float]  # term -> posting weight, or term -> count where the store weighs itself

    @property
    def key(self) -> str:
        """The record's name within its collection, the same whenever it is pushed."""
        return f"{self.passage}/{self.doc_id}"

    @property
    def bytes(self) -> int:
        """About how many bytes it takes on its way."""
        floats = 0 if self.vector is None else len(self.vector)
        return 200 + len(self.title) + len(self.text) + 14 * floats + 30 * len(self.impacts)


Hits = list[tuple[str, float]]
"""Document ids with scores, higher is better, best first; a document may come once for each passage."""


_ASKING: Final = {
    *("exists", "read", "count", "dimension", "create", "describe", "drop", "write", "finish"),
    *("nearest", "match", "search_text", "fetch"),
}


def _explaining(method: Callable[..., Any]) -> Callable[..., Any]:
    @wraps(method)
    def ask(store: Store, *args: Any, **kwargs: Any) -> Any:  # noqa: ANN401 - as the method
        with store.explained():
            answer = method(store, *args, **kwargs)
            return iter([*answer]) if isinstance(answer, Iterator) else answer  # read within the block

    return ask


@dataclass(eq=False, repr=False, kw_only=True)
class Store(ABC):
    """One collection of a database or search engine."""

    holds: ClassVar[frozenset[str]]  # what it can keep and search: of "vectors", "impacts", "texts"
    hashed: ClassVar[bool] = False  # terms of impacts become numbers below 2^32, so two of them may coincide
    weighs: ClassVar[bool] = False  # computes the weights of postings itself: is handed counts of terms
    batch: ClassVar[int]  # at most so many records are written at once, and about ``batch_bytes`` bytes
    batch_bytes: ClassVar[int]
    most: ClassVar[int]  # the most hits it returns for a query

    # "exact", or "hnsw" for the store's approximate structure: what is built and searched
    vectors: Structure = "exact"
    name: str = field(init=False)  # what messages call it; holds no secret
    _known: StoreContents | None = field(init=False, default=None)
    _is_known: bool = field(init=False, default=False)

    def __init_subclass__(cls) -> None:
        """Have what a client raises explained in all methods that ask the store."""
        for name in _ASKING & vars(cls).keys():
            setattr(cls, name, _explaining(vars(cls)[name]))

    def explained(self) -> AbstractContextManager[None]:
        """Turn the client's exceptions into a StoreFailed while the block runs; by itself, none."""
        return nullcontext()

    @abstractmethod
    def exists(self) -> bool:
        """Return whether there is such a collection."""

    @abstractmethod
    def read(self) -> StoreContents | None:
        """Read what an existing collection holds; None where it was not pushed by rankhouse."""

    def contents(self) -> StoreContents | None:
        """Return what :meth:`read` reads now, and remember it."""
        self._known, self._is_known = self.read(), True
        return self._known

    def known(self) -> StoreContents | None:
        """Return the contents as they were last read, so that no query asks for them again."""
        return self._known if self._is_known else self.contents()

    def mark(self, contents: StoreContents, *, complete: bool) -> None:
        """Write down whether the push of an existing collection came to its end."""
        self.describe(msgspec.structs.replace(contents, complete=complete))
        self.contents()

    def writer(self) -> AbstractContextManager[object]:
        """Keep other pushes out of the collection while the block runs, where the store itself does not."""
        return nullcontext()

    def compared(self, similarity: str) -> str:
        """Return how vectors are compared there: "dot" for the cosine where we pushed them, with length 1."""
        return "dot" if similarity == "cosine" and self.known() is not None else similarity

    @abstractmethod
    def count(self) -> int:
        """Count the records."""

    @abstractmethod
    def dimension(self) -> int:
        """Return the numbers in a vector of an existing collection, 0 where it has none or does not say."""

    def check(self, contents: StoreContents) -> None:
        """Refuse what the store cannot hold, before anything is made or replaced."""
        if "texts" not in self.holds and not contents.dimension and not contents.impacts:
            raise self.cannot("keeps nothing without vectors or impacts", "add --impacts or --vectors")

    def cannot(self, what: str, instead: str) -> WrongUse:
        """Return the error for something that the store does not do."""
        return WrongUse(f"{self.name}: {what}; {instead}")

    @abstractmethod
    def create(self, contents: StoreContents) -> None:
        """Make the collection, empty."""

    @abstractmethod
    def describe(self, contents: StoreContents) -> None:
        """Write down what an existing collection holds, in place of what stands there."""

    @abstractmethod
    def drop(self) -> None:
        """Remove the collection; refuse to (WrongUse) if its folder holds a file of somebody else."""

    @abstractmethod
    def write(self, records: Sequence[StoreRecord]) -> None:
        """Write records; those that are there already are replaced."""

    def finish(self) -> None:  # noqa: B027 - some have nothing left to do
        """Do what is to be done once all records are there."""

    @abstractmethod
    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        """Find the records nearest to (d,) by the encoder's similarity, or the collection's if it has one."""

    def match(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find the records with the largest sums of posting weight times query weight."""
        raise NotImplementedError  # asked only of stores that hold impacts

    def search_text(self, text: str, k: int) -> Hits:
        """Search by the store's own text search."""
        raise NotImplementedError  # asked only of stores that hold texts

    @abstractmethod
    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Read documents, in any order, without those that are not there; the first of an id counts."""

    def close(self) -> None:  # noqa: B027 - some hold no connection
        """Let go of the connection."""


@dataclass(eq=False, repr=False, kw_only=True)
class FieldStore(Store):
    """A store whose collections may be another program's, with names of fields (columns) of their own."""

    key: str = "id"  # field of the document ids; "" for the store's own ids, where it has some
    title: str = "title"
    text: str = "text"
    vector: str = "vector"

    def id_among(self, fields: Mapping[str, Any], record: str, own: str) -> str:
        """Return the document's id in a record's fields; ``own`` says whose ids ``key=""`` takes."""
        if fields.get(self.key) is None:
            raise WrongUse(
                f'{self.name}: {record} has no field "{self.key}" for its id; name the field, as in  '
                f'key="doc_id", or  key=""  for {own} own ids'
            )
        return str(fields[self.key])


DIMENSIONS: Final = 4_294_967_291  # the largest prime below 2^32; Milvus keeps the last numbers for itself
_SPACE: Final = UUID("5b2b6d4e-3c1f-5d2a-9a55-0d7a0c1f7a11")


def uuid_of(record_key: str) -> str:
    """Return the UUID that stands for a record where ids have to be UUIDs: always the same one."""
    return str(uuid5(_SPACE, record_key))


def hash_of(term: str) -> int:
    """Return a term's 64-bit hash."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little")


class WordNumber(str):
    """The number of a word in a sparse encoder's vocabulary, in place of a term."""

    __slots__ = ()


def dimension_of(term: str) -> int:
    """Return what stands for a term where dimensions have to be numbers: its own number, or its hash, cut."""
    return int(term) if isinstance(term, WordNumber) else hash_of(term) % DIMENSIONS


def sparse(weights: Mapping[str, float]) -> dict[int, float]:
    """Turn weights of terms into a sparse vector, dimensions ascending; terms that coincide are added."""
    vector: dict[int, float] = {}
    for term, weight in weights.items():
        place = dimension_of(term)
        vector[place] = vector.get(place, 0.0) + weight
    return dict(sorted(vector.items()))


def batches(records: Iterable[StoreRecord], count: int, size: int) -> Iterator[list[StoreRecord]]:
    """Group records, so many at most and of about so many bytes, unless a single one has more."""
    group: list[StoreRecord] = []
    total = 0
    for record in records:
        if group and (len(group) == count or total + record.bytes > size):
            yield group
            group, total = [], 0
        group.append(record)
        total += record.bytes
    if group:
        yield group
