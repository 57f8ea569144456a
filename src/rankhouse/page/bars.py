"""Progress as people see it from Python: a bar in a notebook, a bar on a terminal, else lines."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from html import escape
from typing import Any

from rankhouse.core import progress
from rankhouse.core.errors import visible


@contextmanager
def drawn(console: Any, label: str, total: int | None, unit: str) -> Iterator[progress.Progress]:  # noqa: ANN401 - rich's, which is imported when it is used
    """Draw a bar on a console of rich: share, counts, the time that is left; it goes when the work is done.

    The units "bytes", "words" and "work" show shares only, anything else counts.
    """
    from rich import progress as rich  # noqa: PLC0415 - slow to load

    columns = [rich.TextColumn("{task.description}"), rich.BarColumn(), rich.TaskProgressColumn()]
    counts = [] if unit in progress.UNCOUNTED else [rich.MofNCompleteColumn()]
    left = [rich.TimeElapsedColumn(), rich.TextColumn("left"), rich.TimeRemainingColumn()]
    with rich.Progress(*columns, *counts, *left, console=console, transient=True) as bar:
        task = bar.add_task(visible(label), total=total)

        def show(done: float, total: int | None = total) -> None:
            bar.update(task, completed=done, total=total)

        yield show


class _NotebookBar(progress.Lines):
    """A bar in the output of a notebook's cell, redrawn twice a second; it goes when the work is done."""

    every = 0.5

    def __init__(self, label: str, total: int | None, unit: str) -> None:
        super().__init__(label, total, unit, self._draw)
        self._handle: Any = None

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        if self._handle is not None:
            self._handle.update(_html(""))

    def _draw(self, line: str) -> None:
        share = f' value="{self.done}" max="{self.total}"' if self.total else ""
        bar = f'<progress{share} style="width:16em;vertical-align:middle"></progress> '
        shown = _html(f'<div class="rankhouse-progress">{bar}{escape(visible(line))}</div>')
        if self._handle is None:
            from IPython.display import display  # noqa: PLC0415 - there, since a notebook runs

            self._handle = display(shown, display_id=True)
        else:
            self._handle.update(shown)


def _html(text: str) -> Any:  # noqa: ANN401 - of IPython
    from IPython.display import HTML  # noqa: PLC0415 - there, since a notebook runs

    return HTML(text)


def in_notebook() -> bool:
    """Whether this is the kernel of a notebook."""
    ipython = sys.modules.get("IPython")
    return type(ipython.get_ipython()).__name__ == "ZMQInteractiveShell" if ipython else False


class Bars(progress.Display):
    """Bars in a notebook and on a terminal, lines anywhere else; remarks on standard error."""

    @contextmanager
    def shown(self, label: str, total: int | None, unit: str) -> Iterator[progress.Progress]:
        """Show how far a block's work is."""
        if in_notebook():
            with _NotebookBar(label, total, unit) as bar:
                yield bar
        elif sys.stderr is not None and sys.stderr.isatty():
            from rich.console import Console  # noqa: PLC0415 - slow to load

            with drawn(Console(stderr=True), label, total, unit) as show:
                yield show
        else:
            with super().shown(label, total, unit) as show:
                yield show
