"""Rankings that can be looked at: a table on a terminal, HTML in a notebook, rows for pandas."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple, overload

from rankhouse.core.frames import frame, html_table
from rankhouse.core.run import Ranking

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
        text: Its text, or the extract of it that answers best.
        marks: The words to highlight in ``text``.
    """

    rank: int
    doc_id: str
    score: float
    title: str
    text: str
    marks: Marks = ()


class SearchResult(Sequence[Hit]):
    """What answers one question, best first: its rows are :class:`Hit`, a slice is a result too.

    It prints as a table and is shown as one in a notebook; ``doc_ids`` and ``scores``, (k,) float32
    descending, are its columns.

    >>> import rankhouse as rh
    >>> index = rh.Index.build([{"id": "pilots", "text": "Pilots steer ships."}], "pilots.index")
    >>> [hit.doc_id for hit in index.search("who steers ships?")]
    ['pilots']
    """

    def __init__(self, ranking: Ranking, shown: Sequence[tuple[str, str, Marks]]) -> None:
        """Join a ranking with (title, text, marks) of each of its documents."""
        self.doc_ids, self.scores = ranking
        self._shown, self._ranks = tuple(shown), range(1, len(self.doc_ids) + 1)

    @overload
    def __getitem__(self, place: int) -> Hit: ...
    @overload
    def __getitem__(self, place: slice) -> SearchResult: ...
    def __getitem__(self, place: int | slice) -> Hit | SearchResult:
        if isinstance(place, slice):
            part = SearchResult(Ranking(self.doc_ids[place], self.scores[place]), self._shown[place])
            part._ranks = self._ranks[place]
            return part
        rank, (title, text, marks) = self._ranks[place], self._shown[place]
        return Hit(rank, self.doc_ids[place], float(self.scores[place]), title, text=text, marks=marks)

    def __len__(self) -> int:
        return len(self.doc_ids)

    def __eq__(self, other: object) -> bool:
        return self.hits == other.hits if isinstance(other, SearchResult) else NotImplemented

    def __hash__(self) -> int:
        return hash(self.doc_ids)

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

    def __repr__(self) -> str:
        return f"<SearchResult of {len(self.doc_ids)} documents>\n{self}"

    def _repr_html_(self) -> str:
        rows = [
            (str(h.rank), escape(h.doc_id), f"{h.score:.4f}", f"<b>{escape(h.title)}</b> {_marked(h)}")
            for h in self
        ]
        return html_table(("rank", "id", "score", "text"), rows, (False, True, False, True))

    def to_dict(self) -> dict[str, float]:
        """Return document id -> score, best first."""
        return dict(zip(self.doc_ids, self.scores.tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a document: rank, doc_id, score, title, text (needs pandas)."""
        columns = Hit._fields[:-1]
        return frame([hit._asdict() for hit in self], columns)


def _marked(hit: Hit) -> str:
    """Write a text as HTML with its matching words marked."""
    pieces, last = [], 0
    for start, end in hit.marks:
        pieces += [escape(hit.text[last:start]), "<mark>", escape(hit.text[start:end]), "</mark>"]
        last = end
    return "".join([*pieces, escape(hit.text[last:])])
