"""Output of the command line: results on standard output, everything else on standard error."""

from __future__ import annotations

import re
import sys
import warnings
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TextIO

import click
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table as Grid
from rich.text import Text

from rankhouse.core import progress as progress_of
from rankhouse.core.errors import RankhouseWarning, as_called, visible
from rankhouse.io.files import Skips
from rankhouse.io.outputs import indented_json
from rankhouse.page.tables import CommandResult, Table

if TYPE_CHECKING:
    from rankhouse.models.duot5 import DuoT5Ranker
    from rankhouse.models.ranker import NeuralRanker

_SHOWN = 10  # faulty records
_WIDE = 1_000  # columns of a file or a pipe: tables keep the width they need

_not_escaped_by_json = re.compile("[\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


class _SafeConsole(Console):
    """A console on which whatever documents, ids and file names hold is text and nothing else."""

    def render_str(self, text: str, **options: Any) -> Text:  # noqa: ANN401 - handed on as they are
        """Make a text of a string; see rich."""
        return super().render_str(visible(text), **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        """Render something; see rich."""
        for segment in super().render(renderable, options):
            if segment.control or segment.text.isprintable():
                yield segment
            else:
                yield Segment(visible(segment.text), segment.style)


results = _SafeConsole(
    highlight=False, width=None if sys.stdout is not None and sys.stdout.isatty() else _WIDE
)
messages = _SafeConsole(stderr=True, highlight=False)
_told: set[str] = set()


def say(text: str) -> None:
    """Write a message for the person at the terminal to standard error."""
    messages.print(text, markup=False, soft_wrap=True)


def warn(text: str, kind: str = "warning") -> None:
    """Write a warning to standard error, unless this very text was written before."""
    if text not in _told:
        _told.add(text)
        say(f"{kind}: {text}")


def note(text: str) -> None:
    """Write a remark to standard error, unless this very text was written before, as a warning or so."""
    warn(text, "note")


def report_skips(skips: Skips) -> None:
    """Say which faulty records were skipped."""
    if not skips.seen:
        return
    number = len(skips.seen)
    count = progress_of.counted(number, "faulty record was skipped", "faulty records were skipped")
    say(f"warning: {count}:")
    for fault in skips.seen[:_SHOWN]:
        say(f"  {fault}")
    if len(skips.seen) > _SHOWN:
        say(f"  ... and {len(skips.seen) - _SHOWN} more")


def warn_of_truncation(ranker: NeuralRanker | DuoT5Ranker, name: str) -> None:
    """Say how much of the passages that a ranker has scored it could not read."""
    seen = ranker.report
    unread = progress_of.unread_tokens(seen.tokens_lost, seen.query_tokens_lost)
    if seen.truncated:
        warn(
            f"{seen.truncated:,} of {seen.seen:,} passages did not fit into {ranker.max_length} tokens, "
            f"the most that {name} reads; {unread}"
        )


def print_table(table: Table, title: str = "") -> None:
    """Print a table to standard output: numbers to the right, the best in bold, the legend below it.

    Cells are shown as text, whatever they hold.
    """
    heading = Text(visible(title)) if title else None  # a system's name may look like markup
    grid = Grid(title=heading, title_justify="left", title_style="bold", header_style="bold")
    for name, is_number in zip(table.columns, table.numeric, strict=True):
        grid.add_column(Text(visible(name)), justify="right" if is_number else "left", overflow="fold")
    for number, row in enumerate(table.rows):
        grid.add_row(
            *(
                Text(visible(cell), "bold" if (number, i) in table.strong else "")
                for i, cell in enumerate(row)
            )
        )
    results.print(grid)
    if table.legend:
        results.print(table.legend, style="dim", markup=False, soft_wrap=True)


def show(answer: CommandResult, *, as_json: bool) -> None:
    """Show an answer: to a machine on standard output, or to a person."""
    for warning in answer.warnings:
        warn(warning)
    if as_json:  # one indented document
        raw = as_called(indented_json(answer.facts).removesuffix("\n"))
        click.echo(_not_escaped_by_json.sub(lambda match: f"\\u{ord(match[0]):04x}", raw))
    else:
        for table in answer.tables:
            print_table(table)
        if not isinstance(answer.shown, str):
            answer.shown()
        elif answer.shown:
            say(answer.shown)
    for note in answer.notes:
        say(f"note: {note}")
    if answer.code:
        raise click.exceptions.Exit(answer.code)


progress = progress_of.shown
"""Shows how far a block's work is: by a bar on a terminal, elsewhere by a line every half minute."""


class _Display(progress_of.Display):
    """Progress as bars on a terminal, remarks on standard error."""

    say = staticmethod(say)
    note = staticmethod(note)

    @contextmanager
    def shown(self, label: str, total: int | None, unit: str) -> Iterator[progress_of.Progress]:
        """Show how far a block's work is. Args: as in :class:`~rankhouse.core.progress.Display`."""
        if messages.is_terminal:
            from rankhouse.page.bars import drawn

            with drawn(messages, label, total, unit) as show:
                yield show
        else:
            with super().shown(label, total, unit) as show:
                yield show


def show_progress_as_bars() -> None:
    """Let work anywhere in the package show its progress as bars, and its remarks on standard error."""
    progress_of.use(_Display())


def show_warnings_plainly() -> None:
    """Let Python warnings reach the person as one line on standard error, each text once."""
    _told.clear()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del category, filename, lineno, line
        if file is None:
            warn(str(message))
        else:
            file.write(f"warning: {message}\n")

    warnings.showwarning = show
    # Dependencies' deprecations are for developers; our own warnings are for the person.
    warnings.simplefilter("always", RankhouseWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", PendingDeprecationWarning)
