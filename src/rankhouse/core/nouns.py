"""The nouns that flow from one step to the next, up to the hits that answer a question.

Everything else is a verb that turns one into another. Answers are sequences of hits: a table on a terminal,
HTML in a notebook, rows for pandas.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from html import escape
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Protocol, Self, overload, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from rankhouse.core.errors import BadData, DuplicateId, WrongUse, name_few
from rankhouse.core.frames import SHOWN, frame, html_table, more

if TYPE_CHECKING:
    import pandas as pd


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


class _Document(NamedTuple):
    id: str
    text: str
    title: str = ""
    extra: Mapping[str, Any] = _NOTHING


class Document(_Document):
    """A text with an id. ``extra`` holds whatever else its record carried (url, date, price ...).

    >>> import rankhouse as rh
    >>> rh.Document("d1", "It lifts ships.", title="Locks").full_text
    'Locks It lifts ships.'
    """

    __slots__ = ()

    def __new__(
        cls,
        id: str,  # noqa: A002 - the field's name
        text: str,
        title: str = "",
        extra: Mapping[str, Any] = _NOTHING,
    ) -> Self:
        """Refuse, by a WrongUse, an id, text or title that is no string."""
        if not (isinstance(id, str) and isinstance(text, str) and isinstance(title, str)):
            raise WrongUse(f"Document({id!r:.40}, {text!r:.40}): id, text and title are strings")
        return tuple.__new__(cls, (id, text, title, extra))

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
    """Stored form of n passages, made by a ranker once: vectors of their words, or their token ids.

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
        """Similarity of its vectors: "dot", "cosine" or "l2"."""
        ...


@runtime_checkable
class TwoTowers(Protocol):
    """An encoder that says what its passages' vectors depend on; queries may have an encoder of their own."""

    @property
    def passage_fingerprint(self) -> str:
        """Text that changes whenever the vectors of passages could."""
        ...


Marks = tuple[tuple[int, int], ...]
"""(start, end) of the words to highlight in a text, in characters."""


class Hit(NamedTuple):
    """One document of a result.

    Attributes:
        rank: From 1.
        doc_id: Its id; for texts ranked without ids, their place in what was given.
        score: Higher is better.
        title: Its title, or "".
        text: Its text, or the extract of it that answers best; "" in a :class:`Ranking`, which has no texts.
        marks: The words to highlight in ``text``.
    """

    rank: int
    doc_id: str
    score: float
    title: str = ""
    text: str = ""
    marks: Marks = ()


class Ranking(Sequence[Hit]):
    """One query's documents, best first: its rows are :class:`Hit`, a slice is a ranking too.

    ``doc_ids`` and ``scores``, (k,) float32 descending, are its columns.

    >>> import rankhouse as rh
    >>> ranking = rh.Run.of({"q": {"a": 1.0, "b": 2.0}})["q"]
    >>> [hit.doc_id for hit in ranking], ranking[0].score
    (['b', 'a'], 2.0)
    """

    __slots__ = ("_ranks", "doc_ids", "scores")

    def __init__(self, doc_ids: tuple[str, ...], scores: FloatArray) -> None:
        self.doc_ids, self.scores, self._ranks = doc_ids, scores, range(1, len(doc_ids) + 1)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Hit | Self:
        if not isinstance(place, slice):
            return Hit(self._ranks[place], self.doc_ids[place], float(self.scores[place]))
        part = copy(self)
        part.doc_ids, part.scores = self.doc_ids[place], self.scores[place]
        part._ranks = self._ranks[place]  # noqa: SLF001 - a copy of itself
        return part

    def __len__(self) -> int:
        return len(self.doc_ids)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Ranking):
            return NotImplemented
        return self.doc_ids == other.doc_ids and bool(np.all(self.scores == other.scores))

    def __hash__(self) -> int:
        return hash(self.doc_ids)

    def __repr__(self) -> str:
        rest = f"\n... and {len(self) - SHOWN:,} more" if len(self) > SHOWN else ""
        return f"<{type(self).__name__} of {len(self)} documents>\n{self[:SHOWN]}{rest}"

    def __str__(self) -> str:
        lines = [f"{hit.rank:>3}  {hit.doc_id}  {hit.score:.4f}" for hit in self]
        return "\n".join(lines) or "nothing was found"

    def _repr_html_(self) -> str:
        rows = [(str(hit.rank), escape(hit.doc_id), f"{hit.score:.4f}") for hit in self[:SHOWN]]
        return html_table(("rank", "id", "score"), rows, (False, True, False)) + more(len(self) - SHOWN)

    def to_dict(self) -> dict[str, float]:
        """Return document id -> score, best first."""
        return dict(zip(self.doc_ids, self.scores.tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a document: rank, doc_id, score, and title and text where they are known."""
        columns = Hit._fields[:-1] if any(hit.title or hit.text for hit in self) else Hit._fields[:3]
        return frame([hit._asdict() for hit in self], columns)


class SearchResult(Ranking):
    """Answer to one question, best first: a ranking whose rows, :class:`Hit`, have titles and texts.

    It prints as a table and is shown as one in a notebook; a slice is a result too.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "pilots", "text": "Pilots steer ships."}], "pilots.index")
    >>> [hit.doc_id for hit in index.search("who steers ships?")]
    ['pilots']
    """

    __slots__ = ("_shown",)

    def __init__(self, ranking: Ranking, shown: Sequence[tuple[str, str, Marks]]) -> None:
        """Join a ranking with (title, text, marks) of each of its documents."""
        super().__init__(ranking.doc_ids, ranking.scores)
        self._shown = tuple(shown)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> Self: ...
    def __getitem__(self, place: int | slice) -> Hit | Self:
        if isinstance(place, slice):
            part = super().__getitem__(place)
            part._shown = self._shown[place]  # noqa: SLF001 - a copy of itself
            return part
        title, text, marks = self._shown[place]
        return super().__getitem__(place)._replace(title=title, text=text, marks=marks)

    def __eq__(self, other: object) -> bool:
        return self.hits == other.hits if isinstance(other, SearchResult) else NotImplemented

    __hash__ = Ranking.__hash__

    @property
    def ranking(self) -> Ranking:
        """Its documents and scores alone."""
        return Ranking(self.doc_ids, self.scores)

    @property
    def hits(self) -> list[Hit]:
        """Its rows as a list."""
        return list(self)

    def __str__(self) -> str:
        lines = []
        for hit in self:
            name = f"{hit.title}  {hit.doc_id}" if hit.title else hit.doc_id
            lines += [f"{hit.rank:>3}  {name}  {hit.score:.4f}", f"     {hit.text}"]
        return "\n".join(lines) or "nothing was found"

    def _repr_html_(self) -> str:
        rows = [
            (str(h.rank), escape(h.doc_id), f"{h.score:.4f}", f"<b>{escape(h.title)}</b> {_marked(h)}")
            for h in self[:SHOWN]
        ]
        table = html_table(("rank", "id", "score", "text"), rows, (False, True, False, True))
        return table + more(len(self) - SHOWN)


def _marked(hit: Hit) -> str:
    """Write a text as HTML with its matching words marked."""
    pieces, last = [], 0
    for start, end in hit.marks:
        pieces += [escape(hit.text[last:start]), "<mark>", escape(hit.text[start:end]), "</mark>"]
        last = end
    return "".join([*pieces, escape(hit.text[last:])])


def by_id(queries: Iterable[Query]) -> dict[str, Query]:
    """Return queries by their ids; DuplicateId if two have one id."""
    table: dict[str, Query] = {}
    for query in queries:
        if query.id in table:
            raise DuplicateId(f'query "{query.id}" is given twice; a query has one text')
        table[query.id] = query
    return table


def require_texts(ids: Sequence[str], texts: Mapping[str, Query]) -> None:
    """Refuse a run of which a query has no text among those that are given."""
    if missing := [i for i in ids if i not in texts or not texts[i].text.strip()]:
        raise BadData(
            f"{len(missing):,} of the run's {len(ids):,} queries have no text among the queries given: "
            f"{name_few(missing, quoted=True)}; give the queries the run was made with, or keep those of the "
            "run:  rankhouse subset --run RUN --ids QUERIES --out PART"
        )
