"""rankhouse paired-wins: for which queries only one of two runs has a right document on top."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT_FILE, PATH, relevant_from, verb
from rankhouse.core.qrels import from_grade
from rankhouse.evaluation.paired_wins import counts_table, paired_wins, ranges_table, record
from rankhouse.io.trec import read_qrels, read_run


@verb("paired-wins", "rankhouse paired-wins human.run both.run --qrels test.qrels --chart fifths.svg")
@click.argument("first", type=PATH)
@click.argument("second", type=PATH)
@click.option("--qrels", type=PATH, required=True, help="Judgements; queries with a relevant document count.")
@click.option(
    "--ranges", type=click.IntRange(1), default=5, show_default=True, help="Of equal size, by FIRST's score."
)
@click.option("--names", help='What to call them, like "human,both"; by default by their files.')
@click.option("--chart", type=OUTPUT_FILE, help="Draw the ranges here (.png or .svg).")
@relevant_from
def command(
    first: Path,
    second: Path,
    qrels: Path,
    ranges: int,
    names: str | None,
    chart: Path | None,
    relevant_from: int,
) -> CommandResult:
    """Count queries with a right top document in FIRST only, SECOND only, both, neither; also by distance."""
    called = _names(names, first, second)
    wins = paired_wins(
        read_run(first),
        read_run(second),
        from_grade(read_qrels(qrels), relevant_from),
        names=called,
        ranges=ranges,
    )
    if chart is not None:
        from rankhouse.evaluation.charts import write_wins_chart

        write_wins_chart(wins, chart)
    return CommandResult(record(wins), tables=(counts_table(wins), ranges_table(wins)))


def _names(given: str | None, first: Path, second: Path) -> tuple[str, str]:
    if given is None:
        return (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    one, comma, two = (word.strip() for word in given.partition(","))
    if not one or not comma or not two or "," in two:
        raise click.BadParameter(f'"{given}": two names with a comma between them', param_hint="--names")
    return one, two
