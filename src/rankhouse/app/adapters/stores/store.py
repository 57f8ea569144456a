"""What push and pull ask of a store, whichever database or search engine it is.

A store is made of a notation, ``qdrant("http://localhost:6333", collection="papers")``, and stands for one
collection: a record a document, or a record a passage where vectors are those of passages. What the collection
holds, and how it was made, is kept beside the records in the store itself (:class:`Contents`), so that it is
never mixed with anything else. A collection that somebody else filled has no contents; it can be searched, but
nothing is pushed into it.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from importlib import import_module
from typing import Any, Final, Literal, NamedTuple, Protocol
from uuid import UUID, uuid5

import msgspec

from rankhouse.core.errors import BadData, MissingExtra, RankhouseError, StoreFailed, WrongUse
from rankhouse.core.nouns import Document, FloatArray

FORMAT: Final = "rankhouse-store"
VERSION: Final = 1
CONTENTS: Final = "rankhouse"
"""The name under which a store keeps the :class:`Contents`."""

DIMENSIONS: Final = 4_294_967_291  # the largest prime below 2^32; Milvus keeps the last numbers for itself
_SPACE: Final = UUID("5b2b6d4e-3c1f-5d2a-9a55-0d7a0c1f7a11")
_SECRETS: Final = re.compile(r"KEY|TOKEN|PASSWORD|SECRET")
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
_GIVEN = re.compile(r"((?:password|api_?key|token|secret)\w*\s*=\s*)('[^']*'|\"[^\"]*\"|[^\s,)'\"]+)", re.I)

Structure = Literal["exact", "hnsw"]


class Contents(msgspec.Struct, frozen=True, kw_only=True):
    """What a collection holds, and how it was made.

    Attributes:
        source: Fingerprint of the index.
        documents: How many of them.
        records: How many records that makes.
        texts: Whether the records hold titles and texts.
        analyzer: What turns queries into terms.
        impacts: Notation of the model whose posting weights are held; "" for none.
        vectors: Fingerprint of the vectors; "" for none.
        encoder: Fingerprint of their encoder.
        similarity: How they are compared: "dot", "cosine" or "l2".
        dimension: Numbers in a vector.
        largest_norm: Length of the longest vector.
        structure: "exact", or the kind of approximate structure that searches them.
        format: Always :data:`FORMAT`.
        version: Of this description.
    """

    source: str
    documents: int
    records: int
    texts: bool = True
    analyzer: str
    impacts: str = ""
    vectors: str = ""
    encoder: str = ""
    similarity: str = ""
    dimension: int = 0
    largest_norm: float = 0.0
    structure: str = "exact"
    format: str = FORMAT
    version: int = VERSION

    def to_json(self) -> str:
        """Write them as JSON."""
        return msgspec.json.encode(self).decode()

    @property
    def passages(self) -> bool:
        """Whether some document has several records."""
        return self.records > self.documents


def read_contents(raw: str | bytes | None, name: str) -> Contents | None:
    """Read what :meth:`Contents.to_json` wrote; None where there is nothing.

    Args:
        raw: The JSON, or nothing.
        name: The store, for the message.

    Raises:
        StoreFailed: It is of another version, or damaged.
    """
    if not raw:
        return None
    try:
        contents = msgspec.json.decode(raw, type=Contents)
    except (msgspec.DecodeError, msgspec.ValidationError) as error:
        raise StoreFailed(
            f"{name}: what rankhouse noted about the collection cannot be read ({error}); push with --overwrite"
        ) from error
    if contents.format != FORMAT or contents.version != VERSION:
        raise StoreFailed(
            f"{name}: was pushed by another version of rankhouse (format {contents.version}, this one reads "
            f"{VERSION}); push with --overwrite"
        )
    return contents


class Record(NamedTuple):
    """One row of a collection: a document, or one more passage of it.

    Attributes:
        number: The document's place in the index.
        doc_id: Its id.
        passage: 0 for the record that holds title, text and impacts; further passages only hold a vector.
        title: The document's title.
        text: Its text.
        vector: (d,) float32; None where the document has no text, or nothing was encoded.
        impacts: Term -> posting weight, or term -> count where the store weighs itself.
    """

    number: int
    doc_id: str
    passage: int
    title: str
    text: str
    vector: FloatArray | None
    impacts: Mapping[str, float]

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
"""Document ids with scores, higher is better, best first; a document may come once for each of its passages."""


class Store(Protocol):
    """One collection of a database or search engine.

    Attributes:
        name: What messages call it; holds no secret.
        holds: What it can keep and search: of "vectors", "impacts", "texts".
        hashed: Terms of impacts become numbers below 2^32, so two of them may coincide.
        weighs: Computes the weights of postings itself: is handed counts of terms.
        structure: "exact", or the approximate structure to build and search.
        batch: At most so many records are written at once.
        batch_bytes: And about so many bytes.
        most: The most hits it returns for a query.
    """

    name: str
    holds: frozenset[str]
    hashed: bool
    weighs: bool
    structure: Structure
    batch: int
    batch_bytes: int
    most: int

    def exists(self) -> bool:
        """Return whether there is such a collection."""
        ...

    def contents(self) -> Contents | None:
        """Return what an existing collection holds; None where it was not pushed by rankhouse."""
        ...

    def count(self) -> int:
        """Count the records."""
        ...

    def dimension(self) -> int:
        """Return the numbers in a vector of an existing collection, 0 where it has none or does not say."""
        ...

    def create(self, contents: Contents) -> None:
        """Make the collection, empty."""
        ...

    def drop(self) -> None:
        """Remove the collection and all of its records."""
        ...

    def write(self, records: Sequence[Record]) -> None:
        """Write records; those that are there already are replaced."""
        ...

    def finish(self) -> None:
        """Do what is to be done once all records are there."""
        ...

    def nearest(self, vector: FloatArray, k: int, similarity: str) -> Hits:
        """Find the records with the nearest vectors to (d,).

        Args:
            vector: (d,) the query.
            k: How many records.
            similarity: "dot", "cosine" or "l2": how its encoder compares; a store whose collection settles that
                does as it says.
        """
        ...

    def match(self, weights: Mapping[str, float], k: int) -> Hits:
        """Find the records with the largest sums of posting weight times query weight.

        Args:
            weights: Term -> weight.
            k: How many records.
        """
        ...

    def search_text(self, text: str, k: int) -> Hits:
        """Search by the store's own text search.

        Args:
            text: The question.
            k: How many records.
        """
        ...

    def fetch(self, doc_ids: Sequence[str]) -> Iterator[Document]:
        """Read documents, in any order; those that are not there are left out."""
        ...

    def close(self) -> None:
        """Let go of the connection."""
        ...


def library(module: str, store: str, extra: str) -> Any:  # noqa: ANN401 - clients are typed to varying degrees
    """Import a client library.

    Args:
        module: Its name.
        store: What was asked for, for the message.
        extra: The extra that brings it.

    Raises:
        MissingExtra: It is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingExtra(f"the store {store}", extra) from error


def masked(text: str) -> str:
    """Return a message without what may be a secret: users in URLs, passwords, values of the environment's keys."""
    for name, value in os.environ.items():
        if _SECRETS.search(name.upper()) and len(value) >= 4:
            text = text.replace(value, "***")
    return _GIVEN.sub(r"\1***", _USERINFO.sub("***@", text))


def without_user(url: str, how: str) -> str:
    """Return an address, unless it holds a password, which would stand in histories and logs.

    Args:
        url: The address as it was given.
        how: Where the secret belongs instead.

    Raises:
        WrongUse: It holds one.
    """
    if _USERINFO.search(url) or _GIVEN.search(url):
        raise WrongUse(f"{masked(url)}: leave name and password out of the address; {how}")
    return url


@contextmanager
def explained(name: str, *faults: type[Exception]) -> Iterator[None]:
    """Turn a client's exceptions into one that names the store, without a secret in it.

    Args:
        name: The store.
        faults: What its client raises.

    Raises:
        StoreFailed: The block raised one of them.
    """
    try:
        yield
    except RankhouseError:
        raise
    except faults as error:
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        said = masked(" ".join(lines)[:400]) or type(error).__name__
        advice = "; is the server running, and is its address right?" if _is_unreachable(said, error) else ""
        raise StoreFailed(f"{name}: {said}{advice}") from None


def _is_unreachable(said: str, error: Exception) -> bool:
    signs = ("refused", "timed out", "timeout", "unreachable", "resolve", "name or service", "connect")
    return isinstance(error, ConnectionError | TimeoutError) or any(sign in said.lower() for sign in signs)


def uuid_of(record_key: str) -> str:
    """Return the UUID that stands for a record where ids have to be UUIDs: always the same one."""
    return str(uuid5(_SPACE, record_key))


def dimension_of(term: str) -> int:
    """Return the number that stands for a term where dimensions have to be numbers: its 64-bit hash, cut."""
    return int.from_bytes(blake2b(term.encode(), digest_size=8).digest(), "little") % DIMENSIONS


def sparse(weights: Mapping[str, float]) -> dict[int, float]:
    """Turn weights of terms into a sparse vector, dimensions ascending; terms that coincide are added."""
    vector: dict[int, float] = {}
    for term, weight in weights.items():
        place = dimension_of(term)
        vector[place] = vector.get(place, 0.0) + weight
    return dict(sorted(vector.items()))


def batches(records: Iterable[Record], count: int, size: int) -> Iterator[list[Record]]:
    """Group records so that no group is beyond the store's limits.

    Args:
        records: In order.
        count: At most so many.
        size: And about so many bytes, unless a single one has more.
    """
    group: list[Record] = []
    total = 0
    for record in records:
        if group and (len(group) == count or total + record.bytes > size):
            yield group
            group, total = [], 0
        group.append(record)
        total += record.bytes
    if group:
        yield group


def check_name(store: str, what: str, name: str, pattern: str, accepted: str) -> str:
    """Return a collection's name, if it is one that the store accepts.

    Args:
        store: The store's word in the notation.
        what: "collection", "table" or the like.
        name: What was given.
        pattern: What it must match.
        accepted: The same in words.

    Raises:
        WrongUse: It is no such name.
    """
    if not re.fullmatch(pattern, name):
        raise WrongUse(f"{store}({what}={name!r}): {accepted}")
    return name


def cannot(store: Store, what: str, instead: str) -> WrongUse:
    """Return the error for something that a store does not do.

    Args:
        store: The store.
        what: What it does not do.
        instead: What to do.
    """
    return WrongUse(f"{store.name}: {what}; {instead}")


def too_long(store: Store, record: Record, size: int, most: int) -> BadData:
    """Return the error for a text that does not fit.

    Args:
        store: The store.
        record: Which one.
        size: Its bytes.
        most: How many fit.
    """
    return BadData(
        f'{store.name}: document "{record.doc_id}" has {size:,} bytes of text, and a field there holds at most '
        f"{most:,}; push with --no-texts and keep the texts elsewhere, or cut the documents before indexing"
    )
