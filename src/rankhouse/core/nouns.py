"""The nouns that flow from one step to the next. Everything else is a verb that turns one into another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

FloatArray = NDArray[np.float32]

_NOTHING: Mapping[str, Any] = MappingProxyType({})


class Query(NamedTuple):
    """A question, as a person or a topic file asks it.

    >>> import rankhouse as rh
    >>> rh.Query("q1", "who steers ships?").text
    'who steers ships?'
    """

    id: str
    text: str


class Document(NamedTuple):
    """A text with an id. ``extra`` holds whatever else its record carried (url, date, price ...).

    >>> import rankhouse as rh
    >>> rh.Document("d1", "It lifts ships.", title="Locks").full_text
    'Locks It lifts ships.'
    """

    id: str
    text: str
    title: str = ""
    extra: Mapping[str, Any] = _NOTHING

    def __reduce__(self) -> tuple[object, ...]:
        """Be pickled and copied with a plain dictionary of extra fields."""
        return Document, (self.id, self.text, self.title, dict(self.extra))

    @property
    def full_text(self) -> str:
        """Title and text joined by a space: what is indexed and what an unsplit passage says."""
        return f"{self.title} {self.text}" if self.title and self.text else self.title or self.text


class Documents(Protocol):
    """The documents by id: a dict, or the index's document store."""

    def __getitem__(self, doc_id: str, /) -> Document:
        """Return a document; KeyError where there is none of that id."""
        ...


class Passage(NamedTuple):
    """A part of a document. A document that was not split is a passage of one, index 0.

    >>> import rankhouse as rh
    >>> rh.Passage("d1", 0, "It lifts ships.").doc_id
    'd1'
    """

    doc_id: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which no one asks of a passage
    text: str


class Pair(NamedTuple):
    """The atom: scored by rankers, labelled by rules, learned from.

    >>> import rankhouse as rh
    >>> pair = rh.Pair(rh.Query("q1", "ships?"), rh.Passage("d1", 0, "It lifts ships."))
    >>> pair.passage.text
    'It lifts ships.'
    """

    query: Query
    passage: Passage


class StoredPassage(NamedTuple):
    """A passage of which an index stores what a ranker makes of its text; the text itself is not read.

    Attributes:
        doc_id: Its document.
        index: Its place in the document, from 0, as in :class:`Passage`.
        row: Its number in the store.
    """

    doc_id: str
    index: int  # type: ignore[assignment]  # hides tuple.index, which no one asks of a passage
    row: int


class StoredPair(NamedTuple):
    """A query and a stored passage: the atom where texts are not read."""

    query: Query
    passage: StoredPassage


Storage = Literal["float32", "float16", "int8"]
"""Number formats of stored vectors."""


class PassageRows(NamedTuple):
    """What a ranker makes of n passages once, to be stored: vectors of their words, or their token ids.

    Attributes:
        values: (t, d) rows of all passages, end to end, in their number format on disk.
        scales: (t,) float32 factors of int8 rows; empty for other formats.
        offsets: (n + 1,) int64; passage i is ``values[offsets[i]:offsets[i + 1]]``.
        lost: (n,) tokens of each passage that were cut off.
    """

    values: NDArray[Any]
    scales: FloatArray
    offsets: NDArray[np.int64]
    lost: NDArray[Any]

    @property
    def lengths(self) -> NDArray[np.int64]:
        """(n,) rows of each passage."""
        return np.diff(self.offsets)


class Ranker(Protocol):
    """Anything that says how well passages answer queries.

    Two more attributes are asked of a ranker where it has them: ``scale``, the kind of number its scores are
    (``core.scores.scale_of``), and ``fingerprint``, a text that changes whenever its scores could
    (:func:`fingerprint_of`). Caches need the second, pools and rules with thresholds the first.

    >>> import numpy as np, rankhouse as rh
    >>> class Longest:
    ...     def score(self, pairs):
    ...         return np.array([len(pair.passage.text) for pair in pairs], np.float32)
    >>> ranker: rh.Ranker = Longest()
    >>> ranker.score([rh.Pair(rh.Query("q", "?"), rh.Passage("d", 0, "four"))]).tolist()
    [4.0]
    """

    def score(self, pairs: Sequence[Pair]) -> FloatArray:
        """Score pairs: (n,) float32, higher is better, in the order given, each independent of the others."""
        ...


def fingerprint_of(ranker: Ranker) -> str:
    """Return the text that changes whenever a ranker's scores could; "" where it declares none."""
    return str(getattr(ranker, "fingerprint", ""))


@runtime_checkable
class TextEncoder(Protocol):
    """Anything that turns texts into vectors, each independent of the others."""

    def encode_passages(self, texts: Sequence[str]) -> FloatArray:
        """Encode n passages: (n, d) float32."""
        ...

    def encode_queries(self, texts: Sequence[str]) -> FloatArray:
        """Encode n queries: (n, d) float32."""
        ...


class Encoder(TextEncoder, Protocol):
    """An encoder whose vectors can be stored: it says which ones they are and how they are compared."""

    @property
    def fingerprint(self) -> str:
        """Text that changes whenever the vectors could."""
        ...

    @property
    def similarity(self) -> str:
        """How its vectors are compared: "dot", "cosine" or "l2"."""
        ...
