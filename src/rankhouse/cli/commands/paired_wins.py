"""rankhouse paired-wins: for which queries only one of two runs has a right document on top."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from rankhouse.cli.options import verb
from rankhouse.core.arguments import Option
from rankhouse.core.qrels import RelevantFrom, from_grade
from rankhouse.evaluation.paired_wins import counts_table, paired_wins, ranges_table, record
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.page.tables import CommandResult


@verb("paired-wins", "rankhouse paired-wins human.run both.run --qrels test.qrels --chart fifths.svg")
def command(
    *,
    first: Annotated[Path, Option(positional=True)],
    second: Annotated[Path, Option(positional=True)],
    qrels: Annotated[Path, Option("Judgements; queries with a relevant document count.")],
    ranges: Annotated[int, Option("Of equal size, by FIRST's score.", least=1)] = 5,
    names: Annotated[
        str | None, Option('What to call them, like "human,both"; by default by their files.')
    ] = None,
    chart: Annotated[Path | None, Option("Draw the ranges here (.png or .svg).", "output")] = None,
    relevant_from: RelevantFrom = 1,
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
