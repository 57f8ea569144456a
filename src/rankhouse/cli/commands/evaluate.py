"""rankhouse evaluate, paired-wins: runs against judgements, and against each other."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import click

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.qrels import RelevantFrom, from_grade
from rankhouse.evaluation import significance
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.evaluation.report import (
    CHARTS,
    extremes_tables,
    main_tables,
    write_chart,
    write_per_query,
    write_report,
)
from rankhouse.io.corpora import read_queries
from rankhouse.io.files import SkipBad, Skips
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.page.tables import CommandResult

DEFAULT_MEASURES = "AP P@30 nDCG@10 nDCG@20 RR@10 R@1000"


@verb("evaluate", "rankhouse evaluate --qrels qrels.txt --baseline bm25.run --correction holm new.run")
def command(
    *,
    runs: Annotated[tuple[Path, ...], Option(positional=True)],
    qrels: Annotated[Path, Option("Judgements (TREC, or a table, JSON or Parquet that names its columns).")],
    measures: Annotated[str, Option("In ir_measures' notation.")] = DEFAULT_MEASURES,
    baseline: Annotated[
        Path | None, Option("The run to compare the others with; added if not among them.")
    ] = None,
    test: Annotated[str, Option(f"{' or '.join(significance.TESTS)}.", beside="baseline")] = "t",
    correction: Annotated[str, Option(f"{', '.join(significance.CORRECTIONS)}.", beside="baseline")] = "none",
    seed: Annotated[
        int, Option("Of the randomization test.", least=0, most=2**32 - 1, beside="baseline")
    ] = 0,
    per_query: Annotated[
        Path | None, Option("Write every query's values here (tab-separated).", "output")
    ] = None,
    chart: Annotated[
        Path | None,
        Option(
            "Draw the differences per query here (.png or .svg; needs --baseline); of several systems a file "
            "each, with its name.",
            "output",
            beside="baseline",
        ),
    ] = None,
    chart_kind: Annotated[
        str,
        Option(
            "Differences, largest gain first, or gains by the query's difficulty for the baseline.",
            choices=tuple(CHARTS),
            beside="chart",
        ),
    ] = "differences",
    report: Annotated[Path | None, Option("Write a page with tables and charts (.html).", "output")] = None,
    queries: Annotated[
        str | None,
        Option("Query texts, shown beside the best and worst queries.", "source", beside="baseline"),
    ] = None,
    skip_bad: SkipBad = 0,
) -> CommandResult:
    """Measure RUNS against judgements: means, intervals, tests against a baseline, best and worst queries."""
    if test != "randomization":
        idle("only --test randomization draws anything", "seed")
    skips = Skips(skip_bad)
    named = name_runs(runs if baseline is None or baseline in runs else (baseline, *runs))
    base = None if baseline is None else next(name for name, path in named if path == baseline)
    judged = read_qrels(qrels, skips)
    systems = {name: read_run(path, skips) for name, path in named}
    console.report_skips(skips)
    comparison = compare(
        systems, judged, measures, baseline=base, test=test, correction=correction, seed=seed
    )
    texts = {q.id: q.text for q in read_queries(queries)} if queries else {}
    if per_query is not None:
        write_per_query(comparison.scores, per_query)
    if chart is not None:
        _draw(comparison, chart, chart_kind)
    if report is not None:
        write_report(comparison, report, f"Evaluation against {qrels.name}", texts)
        console.say(f"written to {report}")
    return CommandResult(comparison.to_dict(), lambda: show(comparison, texts), notes=comparison.remarks)


def name_runs(paths: tuple[Path, ...]) -> list[tuple[str, Path]]:
    """Name runs by their files, by the whole path where names repeat."""
    unique = list(dict.fromkeys(paths))
    stems = [path.name.removesuffix(".gz").removesuffix(".zst").removesuffix(".run") for path in unique]
    return [
        (stem if stems.count(stem) == 1 else str(path), path)
        for stem, path in zip(stems, unique, strict=True)
    ]


def _draw(comparison: Comparison, path: Path, kind: str) -> None:
    """Draw the first measure for every challenger; several get their names into the file's."""
    for system in comparison.challengers:
        several = len(comparison.challengers) > 1
        target = path.with_stem(f"{path.stem}-{Path(system).name}") if several else path
        write_chart(comparison, system, comparison.measures[0], target, kind=kind)
        console.say(f"written to {target}")


def show(comparison: Comparison, texts: dict[str, str]) -> None:
    """Print the tables of a comparison."""
    for table in main_tables(comparison):
        console.print_table(table)
    measure = comparison.measures[0]
    for system in comparison.challengers:
        parts = extremes_tables(comparison, system, measure, most=3, texts=texts)
        for title, part in zip(("helped most", "hurt most"), parts, strict=True):
            if part.rows:
                console.print_table(part, f"{system}: queries {title} ({measure})")


@verb("paired-wins", "rankhouse paired-wins human.run both.run --qrels test.qrels --chart fifths.svg")
def paired_wins_command(
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
    wins = significance.paired_wins(
        read_run(first),
        read_run(second),
        from_grade(read_qrels(qrels), relevant_from),
        names=called,
        ranges=ranges,
    )
    if chart is not None:
        from rankhouse.evaluation.report import write_wins_chart

        write_wins_chart(wins, chart)
    return CommandResult(
        significance.record(wins), tables=(significance.counts_table(wins), significance.ranges_table(wins))
    )


def _names(given: str | None, first: Path, second: Path) -> tuple[str, str]:
    if given is None:
        return (first.stem, second.stem) if first.stem != second.stem else (str(first), str(second))
    one, comma, two = (word.strip() for word in given.partition(","))
    if not one or not comma or not two or "," in two:
        raise click.BadParameter(f'"{given}": two names with a comma between them', param_hint="--names")
    return one, two
