"""One type of table, and every form it is shown in: text, Markdown, HTML, tab-separated, a DataFrame.

Beside it, what a command answers: tables and sentences for people, facts for machines.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from typing import TYPE_CHECKING, Any, NamedTuple

from rankhouse.core.frames import frame, html_table

if TYPE_CHECKING:
    import pandas as pd

BETTER, WORSE = "▲", "▼"
"""Marks behind a number that is significantly better or worse than the baseline's."""

_NO_NOTES: Mapping[tuple[int, int], str] = {}
_NO_VALUE = ("", "–", "unknown")  # say nothing about whether a column holds numbers
_NUMBER = re.compile(r"[-+<]? ?[\d.][\d.,e+-]*%?(?: (?:to|/|±) [-+]?[\d.][\d.,e+-]*)*(?: [▲▼])?").fullmatch
_in_text = re.compile(r"(?<=\s)-(?=\d+\.\d)")  # the minus of a number among words


class Table(NamedTuple):
    """Text in rows and columns.

    >>> table = Table(("system", "AP"), (("old", "0.2100"), ("new", "0.2500 ▲")), frozenset({(1, 1)}))
    >>> print(table.to_markdown(), end="")
    | system | AP |
    | --- | ---: |
    | old | 0.2100 |
    | new | **0.2500 ▲** |

    Attributes:
        rows: One text a column; the first names the row.
        strong: (row, column) of the cells that stand out: the best of their column.
        legend: Legend beside it; may be empty.
        notes: (row, column) -> a small second line of a cell, shown in HTML only.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    strong: frozenset[tuple[int, int]] = frozenset()
    legend: str = ""
    notes: Mapping[tuple[int, int], str] = _NO_NOTES

    @property
    def numeric(self) -> tuple[bool, ...]:
        """For each column but the first, whether it holds numbers: these are set to the right."""
        columns = [[row[i] for row in self.rows if row[i] not in _NO_VALUE] for i in range(len(self.columns))]
        return tuple(i > 0 and bool(cells) and all(map(_NUMBER, cells)) for i, cells in enumerate(columns))

    def select(self, columns: Iterable[int]) -> Table:
        """Return a table of some of the columns, counted from 0, with the same legend."""
        chosen = list(columns)
        place = {column: number for number, column in enumerate(chosen)}
        return Table(
            tuple(self.columns[column] for column in chosen),
            tuple(tuple(row[column] for column in chosen) for row in self.rows),
            frozenset((row, place[column]) for row, column in self.strong if column in place),
            self.legend,
            notes={
                (row, place[column]): note for (row, column), note in self.notes.items() if column in place
            },
        )

    def to_text(self) -> str:
        """Return lines of columns of equal width, numbers to the right, the legend below."""
        lines = [self.columns, *self.rows]
        widths = [max(len(line[i]) for line in lines) for i in range(len(self.columns))]
        numeric = self.numeric
        text = "\n".join(
            "  ".join(
                cell.rjust(width) if right else cell.ljust(width)
                for cell, width, right in zip(line, widths, numeric, strict=True)
            ).rstrip()
            for line in lines
        )
        return f"{text}\n{self.legend}" if self.legend else text

    def to_markdown(self) -> str:
        """Return Markdown: numbers to the right, the best bold, the legend below."""
        heads, *rows = (
            [cell.replace("|", "\\|").replace("\n", " ") for cell in row]
            for row in (self.columns, *self.rows)
        )
        for row, column in self.strong:
            rows[row][column] = f"**{rows[row][column]}**"
        rule = ["---:" if right else "---" for right in self.numeric]
        text = "\n".join(f"| {' | '.join(line)} |" for line in (heads, rule, *rows))
        return f"{text}\n\n{self.legend}\n" if self.legend else f"{text}\n"

    def to_html(self, *, styled: bool = True) -> str:
        """Return an HTML table without its legend; it reads well in a notebook, and better in a page.

        Args:
            styled: Whether it has to do without a style sheet of ours, as in a notebook.
        """
        numeric = self.numeric
        rows = [
            [self._cell(number, column, numeric[column]) for column in range(len(self.columns))]
            for number in range(len(self.rows))
        ]
        return html_table(self.columns, rows, [not right for right in numeric], styled=styled)

    def _cell(self, row: int, column: int, is_number: bool) -> str:
        text = escape(self.rows[row][column])
        text = text.replace("-", "−") if is_number else _in_text.sub("−", text)
        for mark, kind in ((BETTER, "gain"), (WORSE, "loss")):
            text = text.replace(f" {mark}", f'<span class="mark {kind}"> {mark}</span>')
        if (row, column) in self.strong:
            text = f"<strong>{text}</strong>"
        note = self.notes.get((row, column), "")
        return f"{text}<br><small>{escape(note)}</small>" if note else text

    def to_tsv(self) -> str:
        """Return lines with tabs between the columns, the heads first; no legend."""
        return "".join("\t".join(row) + "\n" for row in (self.columns, *self.rows))

    def to_frame(self) -> pd.DataFrame:
        """Return the texts as a pandas DataFrame (needs pandas)."""
        return frame([dict(zip(self.columns, row, strict=True)) for row in self.rows], self.columns)


class CommandResult(NamedTuple):
    """Result of a command, or of the work of one."""

    facts: Any  # what ``--json`` says
    shown: str | Callable[[], object] = ""  # what a person reads instead: a sentence, or what prints more
    tables: Sequence[Table] = ()  # what a person reads first
    warnings: Sequence[str] = ()  # what the user should know
    notes: Sequence[str] = ()  # remarks behind all of it
    code: int = 0  # the exit code
