"""Progress of a call: a bar for people, reports for programs, and the switch for both."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from rankhouse.core import progress as core
from rankhouse.core.arguments import checked
from rankhouse.core.progress import OnProgress, OnStep
from rankhouse.page.bars import Bars

core.use(Bars(), instead=False)


@checked
def progress(on: bool) -> None:
    """Show how far long work is, or do not; ``RANKHOUSE_PROGRESS=0`` in the environment does the same.

    In a notebook and on a terminal it is a bar, elsewhere a line on standard error every half minute.

    >>> import rankhouse as rh
    >>> rh.progress(False)  # from here on nothing is shown
    >>> rh.progress(True)

    Args:
        on: Whether it is shown. A call with ``on_progress=`` shows nothing by itself.
    """
    core.switch(on)


@contextmanager
def working(
    label: str, total: int | None, unit: str, on_progress: OnProgress | None, on_step: OnStep | None = None
) -> Iterator[core.Progress]:
    """Show how far a block's work is, or report it to a program."""
    with core.heard_by(on_progress, on_step), core.shown(label, total, unit) as show:
        yield show
