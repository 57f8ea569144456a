"""rankhouse label: judges, teachers and runs say which pairs are relevant; out comes a file to learn from."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankhouse.app import console
from rankhouse.app.given import idle, unused
from rankhouse.app.options import (
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
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core import notation
from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Query, Ranker
from rankhouse.core.run import Run
from rankhouse.core.trec import read_qrels, read_run
from rankhouse.index.index import Index
from rankhouse.labels import report
from rankhouse.labels.candidates import Split
from rankhouse.labels.label import LabelResult, Plan, label
from rankhouse.labels.leaf_rules import judged, judges
from rankhouse.labels.leakage import Overlap, QuerySet, keep_apart, overlap
from rankhouse.labels.negative_sampling import NEGATIVES
from rankhouse.labels.passage_files import PassageFile, check_passages, read_passages
from rankhouse.labels.rule_notation import Openers, read
from rankhouse.labels.rules import Rule
from rankhouse.labels.soft_scores import JOINS
from rankhouse.page.tables import Table
from rankhouse.ranking.cache import CachedRanker
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


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
@click.option(
    "--join",
    type=click.Choice(list(JOINS)),
    default="z-score",
    show_default=True,
    help="What makes one score of several teachers'.",
)
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
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Label the pairs of a run by a rule and write the relevant ones with some negatives.

    A killed labelling goes on where it was when the same command is given again.
    """
    _refuse_idle(negatives, tested=bool(test_queries or test_qrels), told=as_json or report_path is not None)
    if not scores:
        idle("no scores are joined without --scores", "join")
    judgements = read_qrels(test_qrels) if test_qrels else {}
    test = QuerySet(read_queries(test_queries) if test_queries else (), judgements)
    asked, run = read_queries(queries, field=field), read_run(run_path)
    how = notation.make(negatives, NEGATIVES, "way to choose negatives")
    cut = _cut(split, passages, run, depth)
    known = judged(read_qrels(truth), by="passage", name=str(truth)) if truth else None
    index = Index.open(index_path)
    with ExitStack() as stack:
        teachers = _Teachers(ComputeOptions(precision, device, threads), cache, stack)
        openers = Openers(ranker=teachers)
        rule = read(rule_text, openers)
        pool = read(negative_rule, openers) if negative_rule else None
        shared = _guard(rule, [q for q in asked if q.id in run], test, index, allow_test=allow_test)
        plan = Plan(cut, how, depth, pool, known, ask_all, collection=index.fingerprint, shown=shown)
        plan = replace(plan, scores=scores, join=join)
        total = sum(min(depth, len(ranking.doc_ids)) for ranking in run.values())
        started = time.perf_counter()
        with console.progress("labelling", total) as show:
            done = label(rule, run, asked, index.documents, out, plan, show)
        seconds = time.perf_counter() - started
        teachers.warn_of_truncation()
        if not teachers.asked:
            unused("the rule asks no teacher", "cache", "precision", "device", "threads")
    if report_path is not None:
        report.write_report(done, report_path, f"Labels in {out.name}")
    if as_json:
        record = report.labelling_record(done) | {"seconds": round(seconds, 3)}
        console.emit_json(record | ({"overlap": shared._asdict()} if shared else {}))
    else:
        _show(done, shared, seconds)


def _refuse_idle(negatives: str, *, tested: bool, told: bool) -> None:
    """Refuse what would change nothing in this labelling."""
    if not tested:
        idle("there are no --test-queries to keep apart", "allow_test")
    if not told:
        idle("changed pairs are shown in a --report and by --json", "shown")
    if notation.parse(negatives).name == "none":
        idle("--negatives none takes no negatives", "negative_rule")


def _cut(split: str, passages: Path | None, run: Run, depth: int) -> Split:
    """Return what cuts documents into passages, or has them cut already."""
    if passages is None:
        return notation.make(split, SPLITTERS, "splitter")
    if split != "whole":
        raise WrongUse("give either --split or --passages")
    cut = read_passages(passages)
    if isinstance(cut, PassageFile):
        check_passages(cut, run, depth)
    return cut


class _Teachers:
    """Opens the rankers a rule names, with a cache around each if there is one; closed together.

    Args:
        compute: How they compute.
        cache: Where to keep scores; None keeps none.
        stack: Closes what was opened.
    """

    def __init__(self, compute: ComputeOptions, cache: Path | None, stack: ExitStack) -> None:
        self._compute, self._cache, self._stack = compute, cache, stack
        self._neural: dict[str, NeuralRanker] = {}

    @property
    def asked(self) -> bool:
        """Whether a rule named any ranker."""
        return bool(self._neural)

    def __call__(self, name: str) -> Ranker:
        ranker = self._neural[name] = open_ranker(name, self._compute)
        if self._cache is None:
            return ranker
        return self._stack.enter_context(closing(CachedRanker(ranker, self._cache)))

    def warn_of_truncation(self) -> None:
        """Say what the teachers could not read."""
        for name, ranker in self._neural.items():
            console.warn_of_truncation(ranker, name)


def _guard(
    rule: Rule, queries: list[Query], test: QuerySet, index: Index, *, allow_test: bool
) -> Overlap | None:
    """Refuse to let a teacher label test queries, and find whatever else both sides share."""
    if not test.queries and not test.qrels:
        return None
    keep_apart(rule, queries, test, allow_test=allow_test)
    qrels = {q: judge.qrels[q] for judge in judges(rule) for q in judge.qrels if judge.by == "document"}
    shared = overlap(QuerySet(queries, qrels), test, index.documents)
    if shared.leaks:
        counts = ", ".join(f"{count:,} {what} ({some})" for what, count, some in shared.rows() if count)
        console.warn(f"training and test data overlap: {counts}")
    return shared


def _show(done: LabelResult, shared: Overlap | None, seconds: float) -> None:
    tables = [report.work_table(done), report.positives_table(done.agreement)]
    if done.agreement.confusions:
        tables.append(report.confusions_table(done.agreement))
    for table in tables:
        console.print_table(table)
    if shared is not None:
        rows = tuple((what, f"{count:,}", some) for what, count, some in shared.rows())
        console.print_table(Table(("shared with the test data", "", ""), rows))
    before = f", {done.resumed:,} of the pairs answered before a kill" if done.resumed else ""
    console.say(
        f"{done.relevant:,} relevant pairs and {done.non_relevant:,} negatives written to {done.out} "
        f"in {seconds:.1f} s{before}"
    )
