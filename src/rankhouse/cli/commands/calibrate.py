"""rankhouse calibrate: which probability a ranker's score stands for, fitted on judged pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.evaluation import calibration
from rankhouse.jobs.calibration import CalibrateJob
from rankhouse.page.charts import chart_kind
from rankhouse.page.tables import CommandResult
from rankhouse.systems.rankers import bundle_folder, open_ranker, use_of

_OF_RUNS = ("field", "judged_only", "depth", "split", "pool")


@verb(
    "calibrate",
    "rankhouse calibrate --ranker mine --run valid.run --queries valid.tsv --index my.index "
    "--qrels valid.qrels --out mine.calibrated --report calibration.html",
)
def command(
    *,
    job: CalibrateJob,
    out: Annotated[Path, Option("The bundle to write; it may be --ranker itself.", "local")],
    report: Annotated[Path | None, Option("Write a page here (.html).", "output")] = None,
    chart: Annotated[
        Path | None, Option("Draw the reliability diagram here (.png or .svg).", "output")
    ] = None,
) -> CommandResult:
    """Fit the probability that a score stands for, and keep it in the ranker's bundle.

    Scores and rankings stay as they are; thresholds and relevance scores become probabilities that hold.
    """
    if chart is not None:
        chart_kind(chart)  # another ending is refused before any work is done
    if bool(job.pairs) == any((job.run, job.queries, job.index, job.qrels)):
        raise WrongUse("give --run, --queries, --index and --qrels, or --pairs")
    neural = open_ranker(job.ranker, job)
    given = {name: value for name, value in (("split", job.split), ("pool", job.pool)) if value}
    use = {**use_of(job.ranker), **given}
    if job.pairs:
        idle("--pairs are labelled passages, and all of them are read", *_OF_RUNS)
    with console.progress("scoring", None) as show:
        judged = job.judged(neural, use, show)
    result = calibration.calibrate(judged, job.method, job.seed)
    neural.calibration = str(result.scale)
    is_own = out.exists() and Path(job.ranker).exists() and out.samefile(job.ranker)
    neural.save(bundle_folder(str(out)) if is_own else out, use)
    if report is not None:
        calibration.write_report(result, report, f"Calibration of {job.ranker}")
    if chart is not None:
        calibration.write_figure(result, chart)
    console.warn_of_truncation(neural, job.ranker)
    _warn_of_few(result)
    text = (
        f"fitted on {result.pairs:,} pairs of {result.queries:,} queries, {result.relevant:,} relevant; "
        f"use it with  --ranker {out}"
    )
    return CommandResult(
        calibration.calibration_record(result) | {"out": str(out)}, text, [calibration.goodness_table(result)]
    )


def _warn_of_few(result: calibration.CalibrationResult) -> None:
    if result.method == "isotonic" and result.pairs < calibration.ISOTONIC_LEAST:
        console.warn(
            f"isotonic regression on {result.pairs:,} pairs fits noise; try it from "
            f"{calibration.ISOTONIC_LEAST:,} on, and use --method platt below that"
        )
