"""rankhouse models: which published checkpoints are known to work, and what ``default`` stands for."""

from __future__ import annotations

import click

from rankhouse.cli import console
from rankhouse.cli.options import as_json
from rankhouse.core.errors import WrongUse
from rankhouse.page.tables import Table
from rankhouse.systems.checkpoints import CHECKPOINTS, DEFAULT, default_ranker


@click.command("models", epilog="Example:  rankhouse models && rankhouse rerank --ranker default ...")
@as_json
def command(as_json: bool) -> None:
    """List published checkpoints that are known to work, with their licences; say what "default" is here."""
    try:
        default = default_ranker()
    except WrongUse as error:
        default = f"nothing: {error}"
    if as_json:
        console.emit_json(
            {DEFAULT: default, "checkpoints": [c._asdict() | {"ranker": c.spec} for c in CHECKPOINTS]}
        )
        return
    rows = tuple((c.spec, c.uses, str(c.tokens), c.licence) for c in CHECKPOINTS)
    console.print_table(Table(("--ranker", "for", "tokens", "licence"), rows))
    console.say(f'"{DEFAULT}" is here: {default}')
