"""How the command line speaks: results on standard output, everything else on standard error."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol, TextIO

import click
import msgspec
from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from rankhouse.core.errors import RankhouseWarning

results = Console(highlight=False)
messages = Console(stderr=True, highlight=False)


def say(text: str) -> None:
    """Write a message for the person at the terminal to standard error."""
    messages.print(text, markup=False, soft_wrap=True)


def emit_json(data: object) -> None:
    """Write a machine-readable result to standard output: one indented JSON document."""
    raw = msgspec.json.format(msgspec.json.encode(data), indent=2)
    click.echo(raw.decode())


def table(columns: Sequence[str], rows: Iterable[Sequence[object]], title: str = "") -> Table:
    """Lay out a table: the first column as text, the others right-aligned."""
    made = Table(title=title or None, title_justify="left", title_style="bold", header_style="bold")
    for position, name in enumerate(columns):
        made.add_column(name, justify="left" if position == 0 else "right", overflow="fold")
    for row in rows:
        made.add_row(*(cell if isinstance(cell, str) else str(cell) for cell in row))
    return made


class Show(Protocol):
    """Moves a progress bar."""

    def __call__(self, done: int, of: int | None = None) -> None:
        """Show how much is done, and of how much if that was not known before."""
        ...


@contextmanager
def progress(label: str, total: int | None, unit: str = "") -> Iterator[Show]:
    """Show a bar with an estimate while the block runs, on a terminal only.

    Args:
        label: What is being done.
        total: How much there is to do; None when nobody knows.
        unit: "bytes" shows shares only, anything else counts.

    Yields:
        What takes how much is done so far, and how much there is if that is known only now.
    """
    columns = [TextColumn("{task.description}"), BarColumn(), TaskProgressColumn()]
    counts = [] if unit == "bytes" else [MofNCompleteColumn()]
    bar = Progress(
        *columns,
        *counts,
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=messages,
        disable=not messages.is_terminal,
        transient=True,
    )
    with bar:
        task = bar.add_task(label, total=total)

        def show(done: int, of: int | None = None) -> None:
            bar.update(task, completed=done, total=total if of is None else of)

        yield show


def show_warnings_plainly() -> None:
    """Let Python warnings reach the person as one line on standard error, each text once."""
    told: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        del category, filename, lineno, line
        text = f"warning: {message}"
        if text not in told:
            told.add(text)
            (say if file is None else lambda t: file.write(f"{t}\n"))(text)

    warnings.showwarning = show
    # Dependencies' deprecations are for developers; our own warnings are for the person.
    warnings.simplefilter("always", RankhouseWarning)
    warnings.simplefilter("ignore", DeprecationWarning)
    warnings.simplefilter("ignore", PendingDeprecationWarning)
