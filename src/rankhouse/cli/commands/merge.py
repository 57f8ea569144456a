"""rankhouse merge: shards become what one machine would have written."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.jobs.jobs import MergeOptions, merge
from rankhouse.jobs.shards import read_shards
from rankhouse.page.tables import CommandResult


@verb("merge", "rankhouse merge shards/* --out new.run")
def command(
    *,
    parts: Annotated[tuple[Path, ...], Option(positional=True, metavar="SHARD...")],
    out: Annotated[Path, Option("The command's output without --shard; for encode, the index.", "place")],
    overwrite: Annotated[bool, Option("Replace an index, or vectors, that are there.")] = False,
    report: Annotated[Path | None, Option("Of labels: write the page here (.html).", "output")] = None,
) -> CommandResult:
    """Join the shards that index, encode, rerank or label made with --shard, in any order.

    A shard is a folder; a folder that holds shards stands for all of them. The result is byte for byte what
    the command writes without --shard. A shard that is missing, given twice, damaged or of another job is
    named.
    """
    found = read_shards(parts)
    made_by = found[0].manifest.command
    if made_by != "label":
        idle(f"these are shards of {made_by}; only labels have a page", "report")
    if made_by in ("rerank", "label"):
        idle(f"these are shards of {made_by}, whose file is replaced in any case", "overwrite")
    with console.progress("merging", None) as show:
        return merge(found, out, MergeOptions(overwrite, report, show))
