"""rankhouse label: judges, teachers and runs say which pairs are relevant; out comes a file to learn from."""

from __future__ import annotations

import time
from contextlib import ExitStack
from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.given import idle, unused
from rankhouse.cli.options import (
    COUNT,
    FROM_ZERO,
    LOCAL,
    OUTPUT_FILE,
    PATH,
    SOURCE,
    FileCommand,
    as_json,
    computing,
)
from rankhouse.cli.ray_command import run_clustered
from rankhouse.cluster.ray_options import chosen, clustered
from rankhouse.core import notation
from rankhouse.jobs.command import run_shard, sharded
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.jobs.label_job import LabelJob
from rankhouse.jobs.labelling import Teachers, label_facts, label_sentence, label_tables, leaks, prepared
from rankhouse.jobs.slices import Shard
from rankhouse.jobs.teachers import joining
from rankhouse.labels import report
from rankhouse.labels.label import label
from rankhouse.systems.rankers import ComputeOptions


@click.command(
    "label",
    cls=FileCommand,
    epilog='Example:  rankhouse label --rule \'judged("qrels.txt") & taught("DIR", threshold=0.5)\' '
    '--queries q.tsv --index my.index --run bm25.run --split "words(100)" --out pairs.jsonl.gz',
)
@click.option(
    "--rule",
    "rule_text",
    type=SOURCE,
    required=True,
    help="judged(QRELS), taught(RANKER), ranked(RUN, k); join by & | ~.",
)
@click.option("--queries", type=SOURCE, required=True, help="The texts of the run's queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--run", "run_path", type=PATH, required=True, help="The candidates.")
@click.option("--depth", type=COUNT, default=1000, show_default=True, help="Documents a query.")
@click.option(
    "--split", default="whole", show_default=True, help='whole, "words(100)", "sentences(10, 5)" ...'
)
@click.option(
    "--passages", type=PATH, help='Passages cut already, JSON lines of {"doc_id", "index", "text"}.'
)
@click.option(
    "--negatives",
    default="random(1)",
    show_default=True,
    help='none, all, "all(depths=(1, 50))", "random(2, depths=(10, 100), seed=1)" ...',
)
@click.option(
    "--negative-rule",
    type=SOURCE,
    help="Which pairs may be negatives; by default what no judge calls relevant.",
)
@click.option("--scores", is_flag=True, help="Write every pair that was scored, with score and scale.")
@joining
@click.option("--truth", type=PATH, help='Judgements of passages ("d#3" is passage 3 of d), to measure by.')
@click.option(
    "--ask-all", is_flag=True, help="The teacher reads every pair: a whole comparison, same labels."
)
@click.option(
    "--shown", type=FROM_ZERO, default=25, show_default=True, help="Changed pairs in page and JSON."
)
@click.option("--test-queries", type=SOURCE, help="Queries kept for testing: a teacher must not label them.")
@click.option("--test-qrels", type=PATH, help="Their judgements, to find relevant pairs on both sides.")
@click.option("--allow-test", is_flag=True, help="Let the teacher label test queries all the same.")
@click.option("--cache", type=LOCAL, help="Keep the teacher's scores in this folder.")
@click.option("--out", type=OUTPUT_FILE, required=True, help="PAIRS file to write (JSON lines; .gz, .zst).")
@click.option(
    "--report", "report_path", type=OUTPUT_FILE, help="Write a page with tables and pictures here (.html)."
)
@sharded
@clustered
@computing
@as_json
def command(
    rule_text: str,
    queries: str,
    field: str,
    index_path: Path,
    run_path: Path,
    depth: int,
    split: str,
    passages: Path | None,
    negatives: str,
    negative_rule: str | None,
    scores: bool,
    join: str,
    truth: Path | None,
    ask_all: bool,
    shown: int,
    test_queries: str | None,
    test_qrels: Path | None,
    allow_test: bool,
    cache: Path | None,
    out: Path,
    report_path: Path | None,
    shard: Shard | None,
    cluster: str | None,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Label the pairs of a run by a rule and write the relevant ones with some negatives.

    A killed labelling goes on where it was when the same command is given again.
    """
    told = as_json or shard is not None or report_path is not None
    _refuse_idle(negatives, tested=bool(test_queries or test_qrels), told=told)
    if not scores:
        idle("no scores are joined without --scores", "join")
    job = LabelJob(
        rule_text, queries, str(index_path), str(run_path), field, depth, split, _text(passages), negatives,
        negative_rule, scores, join, _text(truth), ask_all, shown, test_queries, _text(test_qrels),
        allow_test, _text(cache), precision, device, threads,
    )  # fmt: skip
    if (where := chosen(cluster)) is not None:
        options = MergeOptions(report=report_path)
        run_clustered(job, out, where, as_json=as_json, device=device, options=options)
        return
    if shard is not None:
        idle("a page is of all slices: give --report to  rankhouse merge", "report_path")
        run_shard(job, shard, out, as_json=as_json)
        return
    _label(job, out, report_path, as_json=as_json)


def _text(path: Path | None) -> str | None:
    return None if path is None else str(path)


def _label(job: LabelJob, out: Path, page: Path | None, *, as_json: bool) -> None:
    """Label here and now, and say what came of it."""
    with ExitStack() as stack:
        compute = ComputeOptions(job.precision, job.device, job.threads)
        teachers = Teachers(compute, Path(job.cache) if job.cache else None, stack)
        ready = prepared(job, teachers)
        for leak in leaks(ready.shared):
            console.warn(leak)
        total = sum(min(job.depth, len(ranking.doc_ids)) for ranking in ready.run.values())
        started = time.perf_counter()
        with console.progress("labelling", total) as show:
            done = label(ready.rule, ready.run, ready.queries, ready.index.documents, out, ready.plan, show)
        seconds = time.perf_counter() - started
        for name, ranker in teachers.neural.items():
            console.warn_of_truncation(ranker, name)
        if not teachers.neural:
            unused("the rule asks no teacher", "cache", "precision", "device", "threads")
    if page is not None:
        report.write_report(done, page, f"Labels in {out.name}")
    if as_json:
        console.emit_json(label_facts(done, ready.shared, seconds))
        return
    for table in label_tables(done, ready.shared):
        console.print_table(table)
    before = f", {done.resumed:,} of the pairs answered before a kill" if done.resumed else ""
    console.say(f"{label_sentence(done)} in {seconds:.1f} s{before}")


def _refuse_idle(negatives: str, *, tested: bool, told: bool) -> None:
    """Refuse what would change nothing in this labelling."""
    if not tested:
        idle("there are no --test-queries to keep apart", "allow_test")
    if not told:
        idle("changed pairs are shown in a --report and by --json", "shown")
    if notation.parse(negatives).name == "none":
        idle("--negatives none takes no negatives", "negative_rule")
