"""rankhouse label: judges, teachers and runs say which pairs are relevant; out comes a file to learn from."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, unused, verb, was_given
from rankhouse.cli.shards import ClusterChoice, ShardChoice, run_clustered, run_shard
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.jobs.label import LabelJob, Teachers, prepared
from rankhouse.page.tables import CommandResult


@verb(
    "label",
    'rankhouse label --rule \'judged("qrels.txt") & taught("DIR", threshold=0.5)\' '
    '--queries q.tsv --index my.index --run bm25.run --split "words(100)" --out pairs.jsonl.gz',
)
def command(
    *,
    job: LabelJob,
    out: Annotated[Path, Option("PAIRS file to write (JSON lines; .gz, .zst).", "output")],
    report: Annotated[
        Path | None, Option("Write a page with tables and pictures here (.html).", "output")
    ] = None,
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Label the pairs of a run by a rule and write the relevant ones with some negatives.

    A killed labelling resumes when the same command is given again.
    """
    _refuse_idle(job, shows_pairs=was_given("as_json") or shard is not None or report is not None)
    if cluster.cluster is not None:
        options = MergeOptions(report=report)
        return run_clustered(job, out, cluster.options, device=job.device, options=options)
    if shard is not None:
        idle("a page covers all shards: give --report to  rankhouse merge", "report")
        return run_shard(job, shard, out)
    return _label(job, out, report)


def _label(job: LabelJob, out: Path, page: Path | None) -> CommandResult:
    """Label here and now, and say what came of it."""
    with ExitStack() as stack:
        teachers = Teachers(job, job.cache, stack)
        ready = prepared(job, teachers)
        for leak in ready.leaks:
            console.warn(leak)
        total = sum(min(job.depth, len(ranking.doc_ids)) for ranking in ready.run.values())
        with console.progress("labelling", total) as show:
            done, result = ready.label(out, ready.plan, page, show)
        for name, ranker in teachers.neural.items():
            console.warn_of_truncation(ranker, name)
        if not teachers.neural:
            unused("the rule asks no teacher", "cache", "precision", "device", "threads")
    before = f", {done.resumed:,} of the pairs answered before a kill" if done.resumed else ""
    message = f"{result.shown} in {result.facts['seconds']:.1f} s{before}"
    return result._replace(shown=message)


def _refuse_idle(job: LabelJob, *, shows_pairs: bool) -> None:
    """Refuse what would change nothing in this labelling."""
    if not (job.test_queries or job.test_qrels):
        idle("there are no --test-queries to keep apart", "allow_test")
    if not shows_pairs:
        idle("changed pairs are shown in a --report and by --json", "shown")
    if notation.parse(job.negatives).name == "none":
        idle("--negatives none takes no negatives", "negative_rule")
    if not job.scores:
        idle("no scores are joined without --scores", "join")
