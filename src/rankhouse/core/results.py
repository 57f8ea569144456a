"""Answers to a question as sequences of hits: a table on a terminal, HTML in a notebook, rows for pandas."""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from html import escape
from typing import TYPE_CHECKING, NamedTuple, Self, overload

import numpy as np

from rankhouse.core.frames import SHOWN, frame, html_table, more
from rankhouse.core.nouns import FloatArray

if TYPE_CHECKING:
    import pandas as pd

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
        return f"<{type(self).__name__} of {len(self)} documents>\n{self}"

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
    """What answers one question, best first: a ranking whose rows, :class:`Hit`, have titles and texts.

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
