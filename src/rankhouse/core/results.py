"""Rankings that can be looked at: a table on a terminal, HTML in a notebook, rows for pandas."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING, NamedTuple, Self

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


class SearchResult(Ranking):
    """The ranking of one question, with titles and texts.

    It is a :class:`Ranking` (``doc_ids``, ``scores``) that also prints as a table, is shown as one in a
    notebook, and gives its rows as :attr:`hits`.
    """

    _shown: tuple[tuple[str, str, Marks], ...]

    def __new__(cls, ranking: Ranking, shown: Sequence[tuple[str, str, Marks]]) -> Self:
        """Join a ranking with (title, text, marks) of each of its documents."""
        self = super().__new__(cls, ranking.doc_ids, ranking.scores)
        self._shown = tuple(shown)
        return self

    def __bool__(self) -> bool:
        return bool(self.doc_ids)

    def __reduce__(self) -> tuple[object, ...]:
        return type(self), (Ranking(*self), self._shown)

    @property
    def hits(self) -> list[Hit]:
        """Its rows, best first."""
        return list(self._hits())

    def _hits(self) -> Iterator[Hit]:
        rows = zip(self.doc_ids, self.scores.tolist(), self._shown, strict=True)
        for rank, (doc_id, score, shown) in enumerate(rows, 1):
            yield Hit(rank, doc_id, score, *shown)

    def __str__(self) -> str:
        lines = []
        for hit in self._hits():
            name = f"{hit.title}  {hit.doc_id}" if hit.title else hit.doc_id
            lines += [f"{hit.rank:>3}  {name}  {hit.score:.4f}", f"     {hit.text}"]
        return "\n".join(lines) or "nothing was found"

    def __repr__(self) -> str:
        return f"<SearchResult of {len(self.doc_ids)} documents>\n{self}"

    def _repr_html_(self) -> str:
        rows = [
            (str(h.rank), escape(h.doc_id), f"{h.score:.4f}", f"<b>{escape(h.title)}</b> {_marked(h)}")
            for h in self._hits()
        ]
        return html_table(("rank", "id", "score", "text"), rows, (False, True, False, True))

    def to_dict(self) -> dict[str, float]:
        """Return document id -> score, best first."""
        return dict(zip(self.doc_ids, self.scores.tolist(), strict=True))

    def to_frame(self) -> pd.DataFrame:
        """Return one row a document: rank, doc_id, score, title, text (needs pandas)."""
        columns = Hit._fields[:-1]
        return frame([hit._asdict() for hit in self._hits()], columns)


def _marked(hit: Hit) -> str:
    """Write a text as HTML with its matching words marked."""
    pieces, last = [], 0
    for start, end in hit.marks:
        pieces += [escape(hit.text[last:start]), "<mark>", escape(hit.text[start:end]), "</mark>"]
        last = end
    return "".join([*pieces, escape(hit.text[last:])])
