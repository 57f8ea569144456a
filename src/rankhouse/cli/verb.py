"""A command: its declaration, ``--json``, and how its answer is shown."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, NamedTuple

import click

from rankhouse.cli import console
from rankhouse.cli.options import FileCommand
from rankhouse.page.tables import Table


class CommandResult(NamedTuple):
    """What a command answers.

    Attributes:
        facts: What ``--json`` says.
        shown: What a person reads instead: a sentence, or what prints more than one.
        tables: What a person reads first.
        notes: Remarks behind either.
        code: The exit code.
    """

    facts: object
    shown: str | Callable[[], object] = ""
    tables: Sequence[Table] = ()
    notes: Sequence[str] = ()
    code: int = 0


def verb(name: str, example: str) -> Callable[[Callable[..., CommandResult]], click.Command]:
    """Make a command of a function that takes its options and returns its answer; ``--json`` is added."""

    def declare(work: Callable[..., CommandResult]) -> click.Command:
        @wraps(work)
        def carry_out(*, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - a command's options
            show(work(**options), as_json=as_json)

        made = click.command(name, cls=FileCommand, epilog=f"Example:  {example}")(carry_out)
        words = "Machine-readable result on standard output."
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help=words))
        return made

    return declare


def show(answer: CommandResult, *, as_json: bool) -> None:
    """Show an answer: to a machine on standard output, or to a person."""
    if as_json:
        console.emit_json(answer.facts)
    else:
        for table in answer.tables:
            console.print_table(table)
        if not isinstance(answer.shown, str):
            answer.shown()
        elif answer.shown:
            console.say(answer.shown)
    for note in answer.notes:
        console.say(f"note: {note}")
    if answer.code:
        raise click.exceptions.Exit(answer.code)
