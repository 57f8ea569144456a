"""rankhouse evaluate: runs against judgements."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import OUTPUT_FILE, PATH, SEED, SOURCE, idle, skip_bad, verb
from rankhouse.core.errors import WrongUse
from rankhouse.evaluation import tables
from rankhouse.evaluation.charts import CHARTS, write_chart
from rankhouse.evaluation.compare import Comparison, compare
from rankhouse.evaluation.significance import CORRECTIONS, TESTS
from rankhouse.io.corpora import read_queries
from rankhouse.io.files import Skips
from rankhouse.io.trec import read_qrels, read_run

DEFAULT_MEASURES = "AP P@30 nDCG@10 nDCG@20 RR@10 R@1000"


@verb("evaluate", "rankhouse evaluate --qrels qrels.txt --baseline bm25.run --correction holm new.run")
@click.argument("runs", nargs=-1, required=True, type=PATH)
@click.option("--qrels", type=PATH, required=True, help="Judgements (TREC, or BEIR's TSV).")
@click.option("--measures", default=DEFAULT_MEASURES, show_default=True, help="In ir_measures' notation.")
@click.option("--baseline", type=PATH, help="The run to compare the others with; added if not among them.")
@click.option("--test", default="t", show_default=True, help=f"{' or '.join(TESTS)}.")
@click.option("--correction", default="none", show_default=True, help=f"{', '.join(CORRECTIONS)}.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of the randomization test.")
@click.option("--per-query", type=OUTPUT_FILE, help="Write every query's values here (tab-separated).")
@click.option(
    "--chart",
    type=OUTPUT_FILE,
    help="Draw the differences per query here (.png or .svg; needs --baseline); of several systems a file "
    "each, with its name.",
)
@click.option(
    "--chart-kind",
    type=click.Choice([*CHARTS]),
    default="differences",
    show_default=True,
    help="Differences, largest gain first, or gains by the query's difficulty for the baseline.",
)
@click.option(
    "--report", "report_path", type=OUTPUT_FILE, help="Write a page with tables and charts (.html)."
)
@click.option("--queries", type=SOURCE, help="Query texts, shown beside the best and worst queries.")
@skip_bad
def command(
    runs: tuple[Path, ...],
    qrels: Path,
    measures: str,
    baseline: Path | None,
    test: str,
    correction: str,
    seed: int,
    per_query: Path | None,
    chart: Path | None,
    chart_kind: str,
    report_path: Path | None,
    queries: str | None,
    skip_bad: int,
) -> CommandResult:
    """Measure RUNS against judgements: means, intervals, tests against a baseline, best and worst queries."""
    if baseline is None:
        idle("runs are tested against a --baseline", "test", "correction", "seed", "queries")
    elif test != "randomization":
        idle("only --test randomization draws anything", "seed")
    if chart is None:
        idle("it is the kind of --chart", "chart_kind")
    skips = Skips(skip_bad)
    named = name_runs(runs if baseline is None or baseline in runs else (baseline, *runs))
    base = None if baseline is None else next(name for name, path in named if path == baseline)
    if chart is not None and base is None:
        raise WrongUse("--chart draws differences to a baseline; name it with --baseline RUN")
    judged = read_qrels(qrels, skips)
    systems = {name: read_run(path, skips) for name, path in named}
    console.report_skips(skips)
    comparison = compare(
        systems, judged, measures, baseline=base, test=test, correction=correction, seed=seed
    )
    texts = {q.id: q.text for q in read_queries(queries)} if queries else {}
    if per_query is not None:
        tables.write_per_query(comparison.scores, per_query)
    if chart is not None:
        _draw(comparison, chart, chart_kind)
    if report_path is not None:
        tables.write_report(comparison, report_path, f"Evaluation against {qrels.name}", texts)
        console.say(f"written to {report_path}")
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
    for table in tables.main_tables(comparison):
        console.print_table(table)
    if comparison.challengers:
        for system in comparison.challengers:
            for title, part in zip(
                ("helped most", "hurt most"),
                tables.extremes_tables(comparison, system, comparison.measures[0], most=3, texts=texts),
                strict=True,
            ):
                if part.rows:
                    console.print_table(part, f"{system}: queries {title} ({comparison.measures[0]})")
