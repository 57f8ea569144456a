"""rankhouse models: published checkpoints whose formats are read, and what ``default`` stands for."""

from __future__ import annotations

from rankhouse.cli.options import verb
from rankhouse.core.errors import WrongUse
from rankhouse.page.tables import CommandResult, Table
from rankhouse.systems.checkpoints import CHECKPOINTS, DEFAULT, default_ranker


@verb("models", "rankhouse models && rankhouse rerank --ranker default ...")
def command() -> CommandResult:
    """List published checkpoints whose formats are read, with licences and prompts; say what "default" is."""
    try:
        default = default_ranker()
    except WrongUse as error:
        default = f"nothing: {error}"
    rows = tuple((c.spec, c.uses, f"{c.tokens:,}", c.licence, c.prompt) for c in CHECKPOINTS)
    table = Table(("--ranker", "for", "tokens", "licence", "prompt"), rows)
    facts = {DEFAULT: default, "checkpoints": [c._asdict() | {"ranker": c.spec} for c in CHECKPOINTS]}
    return CommandResult(facts, f'"{DEFAULT}" is here: {default}', [table])
