"""rankhouse train: judgements become a ranker."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, record_command, verb, with_changes
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.jobs.train import TrainJob
from rankhouse.page.tables import CommandResult

if TYPE_CHECKING:
    from rankhouse.training.folder import TrainingOutcome


@verb(
    "train",
    "rankhouse train --ranker 'knrm(vectors=\"glove.txt\")' --index i --queries q.tsv "
    "--qrels q.qrels --run q.run --valid-queries v.tsv --valid-qrels v.qrels --valid-run v.run --out mine",
)
def command(
    *,
    job: TrainJob,
    out: Annotated[Path, Option("The folder to make; given again, the work resumes.", "growing")],
) -> CommandResult:
    """Train a ranker on judgements or a teacher's scores; the folder it makes is one that rerank takes."""
    _check(job)
    settings = with_changes(job.changes, epochs=job.epochs, seed=job.seed, loss=job.loss)
    with console.progress("training", None) as show:
        outcome = job.train(out, settings, show)
    from rankhouse.training.folder import COMMAND

    if not (out / COMMAND).exists():  # it may resume, or be finished already
        record_command(out / COMMAND)
    return CommandResult(outcome, lambda: _tell(outcome, out))


def _check(job: TrainJob) -> None:
    """Refuse options that contradict each other, lack another, or change nothing."""
    if (job.ranker is None) == (job.init is None):
        raise WrongUse("give either --ranker SPEC (a new model, or a checkpoint) or --init DIR")
    if not job.teachers:
        idle("there is no --teacher whose scores are kept", "cache")
    if len(job.teachers) < 2:
        idle("it joins the scores of several teachers", "join")
    if job.pairs and (job.queries or job.qrels or job.run):
        raise WrongUse("--pairs holds queries and labels already; leave out --queries, --qrels and --run")
    if not job.pairs and not job.teachers and (job.queries is None or job.qrels is None):
        raise WrongUse("give --queries and --qrels (and --run for negatives), or --pairs, or a --teacher")
    if not job.pairs and job.teachers and (job.queries is None or job.run is None):
        raise WrongUse("a --teacher scores what a first stage found: give --queries and --run, or --pairs")
    validation = (job.valid_queries, job.valid_qrels, job.valid_run)
    if job.valid_sets and any(validation):
        raise WrongUse(
            "--valid-set brings its own queries, judgements and run; leave out the other --valid-*"
        )
    if job.valid_sets:
        return
    if not any(validation):
        idle("it says how validation reranks, and there is none", "depth")
        console.warn("no validation was given, so the last model is kept, good or bad")
    elif not all(validation):
        raise WrongUse("validation needs all of --valid-queries, --valid-qrels and --valid-run")


def _tell(outcome: TrainingOutcome, out: Path) -> None:
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
