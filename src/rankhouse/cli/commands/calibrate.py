"""rankhouse calibrate: which probability a ranker's score stands for, fitted on judged pairs."""

from __future__ import annotations

from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.given import idle
from rankhouse.cli.options import (
    FROM_ZERO,
    LOCAL,
    OUTPUT_FILE,
    PATH,
    SEED,
    SOURCE,
    FileCommand,
    as_json,
    computing,
    relevant_from,
)
from rankhouse.core.errors import WrongUse
from rankhouse.evaluation.calibration import (
    ISOTONIC_LEAST,
    METHODS,
    CalibrationResult,
    calibrate,
    calibration_record,
    goodness_table,
    write_figure,
    write_report,
)
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.pairs import read_pairs
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.jobs.calibration import JudgedRun, judged_documents, judged_pairs
from rankhouse.page.charts import chart_kind
from rankhouse.systems.rankers import ComputeOptions, open_ranker, use_of
from rankhouse.systems.reranking import RerankOptions

_OF_RUNS = ("field", "judged_only", "depth", "split", "pool", "cache")


@click.command(
    "calibrate",
    cls=FileCommand,
    epilog="Example:  rankhouse calibrate --ranker mine --run valid.run --queries valid.tsv --index my.index "
    "--qrels valid.qrels --out mine.calibrated --report calibration.html",
)
@click.option(
    "--ranker", type=SOURCE, required=True, help='A bundle folder, monot5("DIR"), crossencoder("DIR") ...'
)
@click.option("--run", "run_path", type=PATH, help="Candidates of validation queries.")
@click.option("--queries", type=SOURCE, help="The texts of its queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, help="The index that holds the documents.")
@click.option("--qrels", type=PATH, help="Judgements; what nobody judged is not relevant.")
@click.option("--judged-only", is_flag=True, help="Leave out what nobody judged.")
@click.option("--pairs", type=PATH, multiple=True, help="Labelled pairs instead, as label writes them.")
@relevant_from
@click.option("--depth", type=FROM_ZERO, default=100, show_default=True, help="Documents read a query.")
@click.option("--split", help='"sentences(10, 5)" ...  [default: as the bundle says, else whole]')
@click.option("--pool", help="max or first.  [default: as the bundle says, else max]")
@click.option("--method", type=click.Choice([*METHODS]), default="platt", show_default=True,
              help="A logistic curve, or a curve that only has to rise (for many pairs).")  # fmt: skip
@click.option("--cache", type=LOCAL, help="Keep scores in this folder, and go on from there after a kill.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of folds and intervals.")
@click.option("--out", type=LOCAL, required=True, help="The bundle to write; it may be --ranker itself.")
@click.option("--report", "report_path", type=OUTPUT_FILE, help="Write a page here (.html).")
@click.option("--chart", type=OUTPUT_FILE, help="Draw the reliability diagram here (.png or .svg).")
@computing
@as_json
def command(
    ranker: str,
    run_path: Path | None,
    queries: str | None,
    field: str,
    index_path: Path | None,
    qrels: Path | None,
    judged_only: bool,
    pairs: tuple[Path, ...],
    relevant_from: int,
    depth: int,
    split: str | None,
    pool: str | None,
    method: str,
    cache: Path | None,
    seed: int,
    out: Path,
    report_path: Path | None,
    chart: Path | None,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Fit the probability that a score stands for, and keep it in the ranker's bundle.

    Scores and rankings stay as they are; thresholds and relevance scores become probabilities that come true.
    """
    if chart is not None:
        chart_kind(chart)  # another ending is refused before any work is done
    if bool(pairs) == any((run_path, queries, index_path, qrels)):
        raise WrongUse("give --run, --queries, --index and --qrels, or --pairs")
    neural = open_ranker(ranker, ComputeOptions(precision, device, threads))
    use = {**use_of(ranker), **{name: v for name, v in (("split", split), ("pool", pool)) if v}}
    if pairs:
        idle("--pairs are labelled passages, and all of them are read", *_OF_RUNS)
        judged = judged_pairs(neural, (p for path in pairs for p in read_pairs(path)), relevant_from)
    elif run_path is None or queries is None or index_path is None or qrels is None:
        raise WrongUse("a run needs all of --run, --queries, --index and --qrels")
    else:
        texts, index = read_queries(queries, field=field), Index.open(index_path)
        source = JudgedRun(
            read_run(run_path),
            texts,
            read_qrels(qrels),
            index=index,
            relevant_from=relevant_from,
            judged_only=judged_only,
        )
        options = RerankOptions(
            split=use.get("split", ""), pool=use.get("pool", ""), depth=depth, cache=cache
        )
        with console.progress("scoring", None) as show:
            judged = judged_documents(neural, source, options, show)
    result = calibrate(judged, method, seed)
    neural.calibration = str(result.scale)
    neural.save(out, use)
    if report_path is not None:
        write_report(result, report_path, f"Calibration of {ranker}")
    if chart is not None:
        write_figure(result, chart)
    console.warn_of_truncation(neural, ranker)
    _warn_of_few(result)
    if as_json:
        console.emit_json(calibration_record(result) | {"out": str(out)})
        return
    console.print_table(goodness_table(result))
    console.say(
        f"fitted on {result.pairs:,} pairs of {result.queries:,} queries, {result.relevant:,} relevant; "
        f"use it with  --ranker {out}"
    )


def _warn_of_few(result: CalibrationResult) -> None:
    if result.method == "isotonic" and result.pairs < ISOTONIC_LEAST:
        console.warn(
            f"isotonic regression on {result.pairs:,} pairs follows chance; it is worth a try from "
            f"{ISOTONIC_LEAST:,} on, below that take --method platt"
        )
