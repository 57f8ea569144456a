"""rankhouse train: judgements become a ranker."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankhouse.cli import console
from rankhouse.cli.given import idle, with_changes
from rankhouse.cli.options import (
    COUNT,
    GROWING_FOLDER,
    LOCAL,
    PATH,
    SEED,
    SOURCE,
    FileCommand,
    as_json,
    relevant_from,
)
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.jobs.teachers import joining, open_teacher

if TYPE_CHECKING:
    from rankhouse.training.folder import Outcome


@click.command(
    "train",
    cls=FileCommand,
    epilog="Example:  rankhouse train --ranker 'knrm(vectors=\"glove.txt\")' --index i --queries q.tsv "
    "--qrels q.qrels --run q.run --valid-queries v.tsv --valid-qrels v.qrels --valid-run v.run --out mine",
)
@click.option(
    "--ranker",
    type=SOURCE,
    help='A model to begin: tk(...), knrm(...); or a checkpoint: crossencoder("DIR").',
)
@click.option("--init", type=SOURCE, help="Go on teaching a ranker trained here: its folder.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--queries", type=SOURCE, help="Training queries.")
@click.option("--qrels", type=PATH, help="Their judgements.")
@click.option("--run", "run_path", type=PATH, help="A first-stage run of them; negatives come from it.")
@click.option(
    "--pairs", type=PATH, multiple=True, help="Labelled pairs instead, as rankhouse label writes them."
)
@click.option(
    "--teacher",
    "teachers",
    type=SOURCE,
    multiple=True,
    help="A ranker, or a run with scores, that is learned from; then --queries and --run will do. Again for "
    "more, whose scores are joined.",
)
@joining
@click.option("--loss", help="On scores: margin-mse, listwise-kl, pointwise.  [with --teacher: margin-mse]")
@click.option("--cache", type=LOCAL, help="Keep the teacher's scores in this folder.")
@relevant_from
@click.option("--valid-queries", type=SOURCE, help="Validation queries.")
@click.option("--valid-qrels", type=PATH, help="Their judgements.")
@click.option("--valid-run", type=PATH, help="Their first-stage run, reranked at every validation.")
@click.option("--depth", type=COUNT, default=100, show_default=True, help="Of validation's reranking.")
@click.option("--split", default="whole", show_default=True, help='Of its documents: "words(100)" ...')
@click.option("--pool", default="max", show_default=True, help="Of their passages' scores.")
@click.option("--epochs", type=COUNT, help="By default the family's.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any setting: rate=1e-4, batch=32 ..."
)
@click.option("--seed", type=SEED, help="Of all that is drawn.  [default: 0]")
@click.option(
    "--out", type=GROWING_FOLDER, required=True, help="The folder to make; given again, goes on from there."
)
@as_json
def command(
    ranker: str | None,
    init: str | None,
    index_path: Path,
    queries: str | None,
    qrels: Path | None,
    run_path: Path | None,
    pairs: tuple[Path, ...],
    teachers: tuple[str, ...],
    join: str,
    loss: str | None,
    cache: Path | None,
    relevant_from: int,
    valid_queries: str | None,
    valid_qrels: Path | None,
    valid_run: Path | None,
    depth: int,
    split: str,
    pool: str,
    epochs: int | None,
    changes: tuple[str, ...],
    seed: int | None,
    out: Path,
    as_json: bool,
) -> None:
    """Train a ranker on judgements or a teacher's scores; the folder made is one that rerank takes."""
    try:
        from rankhouse.training.teaching import TrainingData, TrainOptions, begin, train_with
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    if (ranker is None) == (init is None):
        raise WrongUse("give either --ranker SPEC (a model to begin, or a checkpoint) or --init DIR")
    if not (valid_queries or valid_qrels or valid_run):
        idle("it says how validation reranks, and there is none", "depth")
    if not teachers:
        idle("there is no --teacher whose scores are kept", "cache")
    if len(teachers) < 2:
        idle("it joins the scores of several teachers", "join")
    _check_sources(pairs=bool(pairs), queries=queries, qrels=qrels, run_path=run_path, teacher=bool(teachers))
    options = TrainOptions(split, pool, depth, with_changes(changes, epochs=epochs, seed=seed, loss=loss))
    index = Index.open(index_path)
    with ExitStack() as stack:
        data = TrainingData(
            queries=None if queries is None else read_queries(queries),
            qrels=None if qrels is None else read_qrels(qrels),
            run=None if run_path is None else read_run(run_path),
            pairs=pairs,
            relevant_from=relevant_from,
            validation=_validation(valid_queries, valid_qrels, valid_run),
            teacher=open_teacher(teachers, join, cache, stack) if teachers else None,
        )
        model = begin(str(ranker or init), index, options.seed)
        show = stack.enter_context(console.progress("training", None))
        outcome = train_with(model, index, data, out, options, show)
    if as_json:
        console.emit_json(outcome)
    else:
        _tell(outcome, out)


def _check_sources(
    *, pairs: bool, queries: str | None, qrels: Path | None, run_path: Path | None, teacher: bool
) -> None:
    if pairs and (queries or qrels or run_path):
        raise WrongUse("--pairs holds queries and labels already; leave out --queries, --qrels and --run")
    if not pairs and not teacher and (queries is None or qrels is None):
        raise WrongUse("give --queries and --qrels (and --run for negatives), or --pairs, or a --teacher")
    if not pairs and teacher and (queries is None or run_path is None):
        raise WrongUse("a --teacher scores what a first stage found: give --queries and --run, or --pairs")


def _validation(
    queries: str | None, qrels: Path | None, run_path: Path | None
) -> tuple[list[Query], Qrels, Run] | None:
    if queries is None and qrels is None and run_path is None:
        console.warn("no validation was given, so the last model is kept, good or bad")
        return None
    if queries is None or qrels is None or run_path is None:
        raise WrongUse("validation needs all of --valid-queries, --valid-qrels and --valid-run")
    return read_queries(queries), read_qrels(qrels), read_run(run_path)


def _tell(outcome: Outcome, out: Path) -> None:
    """Say what came out and what to type next."""
    if outcome.measure:
        alone = "" if outcome.encoder is None else f" (its encoder alone {outcome.encoder:.4f})"
        console.say(
            f"{outcome.measure} on validation: first stage {outcome.first_stage:.4f}, untaught "
            f"{outcome.untaught:.4f}{alone}, best {outcome.best:.4f} after {outcome.best_step:,} of "
            f"{outcome.steps:,} steps"
        )
    for remark in outcome.remarks:
        console.note(remark)
    console.say(f"trained in {outcome.seconds:.0f} s; use it with  --ranker {out}")
