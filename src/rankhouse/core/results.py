"""What answers a question: a table on a terminal, HTML in a notebook, rows for pandas."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Self, overload

from rankhouse.core.frames import SHOWN, html_table, more
from rankhouse.core.run import Hit, Marks, Ranking


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
