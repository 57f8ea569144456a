"""rankhouse merge: shards become what one machine would have written."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT, OUTPUT_FILE, PATH, idle, verb
from rankhouse.cli.shards import answer_of
from rankhouse.jobs.jobs import MergeOptions, merge
from rankhouse.jobs.shards import read_shards


@verb("merge", "rankhouse merge parts/* --out new.run")
@click.argument("parts", nargs=-1, required=True, type=PATH)
@click.option(
    "--out",
    type=OUTPUT,
    required=True,
    help="What the command writes without --shard; for encode, the index.",
)
@click.option("--overwrite", is_flag=True, help="Replace an index, or vectors, that are there.")
@click.option("--report", type=OUTPUT_FILE, help="Of labels: write the page here (.html).")
def command(parts: tuple[Path, ...], out: Path, overwrite: bool, report: Path | None) -> CommandResult:
    """Join PARTS, the shards that index, encode, rerank or label made with --shard, in any order.

    A shard is a folder; a folder that holds shards stands for all of them. The result is byte for byte what
    the command writes without --shard. A shard that is missing, there twice, damaged or of another job is
    named.
    """
    found = read_shards(parts)
    made_by = found[0].manifest.command
    if made_by != "label":
        idle(f"these are shards of {made_by}; a page is written of labels", "report")
    if made_by in ("rerank", "label"):
        idle(f"these are shards of {made_by}, whose file is replaced in any case", "overwrite")
    with console.progress("merging", None) as show:
        result = merge(found, out, MergeOptions(overwrite, report, show))
    return answer_of(result)
