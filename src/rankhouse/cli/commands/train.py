"""rankhouse train, adapt, pretrain: judgements, a teacher, or texts alone become a ranker."""

from __future__ import annotations

import math
import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec

from rankhouse.adaptation.options import AdaptJob
from rankhouse.cli import console
from rankhouse.cli.options import idle, read_change, record_command, verb, with_changes
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs
from rankhouse.core.nouns import TextEncoder
from rankhouse.core.progress import counted, stages
from rankhouse.jobs.train import TrainJob
from rankhouse.labels.soft_scores import members_of
from rankhouse.page.tables import CommandResult
from rankhouse.systems.teachers import SystemTeacher

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from rankhouse.adaptation.adapt import AdaptResult
    from rankhouse.models.monot5 import MonoT5
    from rankhouse.training.folder import TrainingOutcome
    from rankhouse.training.pretrain import PretrainingOutcome
    from rankhouse.training.t5_pretraining import T5Shape


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
            f"{counted(outcome.steps, 'step')}"
        )
    for remark in outcome.remarks:
        console.note(remark)
    if outcome.ended:
        console.say(f"training ended: {outcome.ended}")
    console.say(f"trained in {outcome.seconds:.0f} s; use it with  --ranker {out}")


@verb(
    "adapt",
    "rankhouse adapt --index my.index --ranker tk --teacher 'biencoder(\"DIR\")' "
    "--minutes 20 --out mine && rankhouse rerank --ranker mine ...",
)
def adapt_command(
    *,
    job: AdaptJob,
    out: Annotated[Path, Option("The folder to make; given again, the work resumes.", "growing")],
) -> CommandResult:
    """Teach a ranker with questions made from the documents; a teacher's scores serve as judgements."""
    with needs("neural", "training"):
        from rankhouse.adaptation.adapt import adapt_with
        from rankhouse.training.folder import COMMAND
    settings = dict(map(read_change, job.changes))
    if job.test_queries is None:
        idle("it is for --test-queries, which are not given", "test_run")
    if len(job.teachers) < 2:
        idle("it joins the scores of several teachers", "join")
    if job.steps:
        idle("--steps says how long the training is", "minutes")
    with ExitStack() as stack:
        work = job.adaptation(out, settings, stages(stack), stack)
        if all(isinstance(one, TextEncoder | SystemTeacher) for one in members_of(work.teacher)):
            idle("vectors of a bi-encoder are kept in --out, and so are a system's lists", "cache")
        result = adapt_with(work)
    record_command(out / COMMAND)  # each time: more steps may have been given
    return CommandResult(result, lambda: _tell_of_adapting(result, job, out))


def _tell_of_adapting(result: AdaptResult, job: AdaptJob, out: Path) -> None:
    """Say what came out and what to type next."""
    for name, value in result.test.items():
        console.say(f"nDCG@10 on the test: {name} {value:.4f}")
    if not result.student_weight:
        console.warn(
            "on held-out questions the student adds nothing to the first stage; give it more time "
            "(--minutes) or a stronger teacher"
        )
    own, first = result.student_weight, 1 - result.student_weight
    console.say(f"learned from {counted(result.questions, 'question')} in {counted(result.steps, 'step')}")
    if result.encode:
        dense = f'dense("{out}", name="{out.name}")'
        console.say(f"its vectors of all documents:  {result.encode}  and then  {dense}  in any --system")
    index, expression = shlex.quote(str(job.index)), shlex.quote(result.system)
    console.say(f"as one system:  rankhouse search {index} QUESTION --system {expression}")
    console.say(
        f"use it with  --ranker {out}  and join it with the first stage:  rankhouse fuse RERANKED FIRST "
        f"--method 'linear(\"z-score\")' --weights {own:g},{first:g}"
    )


@verb("pretrain", "rankhouse pretrain corpus.jsonl.gz --vocabulary spiece.model --steps 2000 --out my-t5")
def pretrain_command(
    *,
    sources: Annotated[tuple[str, ...], Option(kind="source", positional=True, metavar="CORPUS...")],
    vocabulary: Annotated[
        Path | None, Option("T5's spiece.model, a tokenizer.json, or a folder with one.")
    ] = None,
    init: Annotated[
        str | None, Option("Continue from a T5: a checkpoint's folder or hub name.", "source")
    ] = None,
    size: Annotated[str, Option("tiny, mini, small or base, as above.")] = "tiny",
    style: Annotated[str | None, Option("T5 1.0 or 1.1 (default).", choices=("1.0", "1.1"))] = None,
    d_model: Annotated[int | None, Option("Width.", least=1, most=65_536)] = None,
    layers: Annotated[
        int | None, Option("Layers of the encoder, and as many of the decoder.", least=1, most=65_536)
    ] = None,
    heads: Annotated[int | None, Option("Attention heads.", least=1, most=65_536)] = None,
    d_ff: Annotated[
        int | None, Option("Inner width of the feed-forward parts.", least=1, most=65_536)
    ] = None,
    steps: Annotated[int, Option("Training steps.", least=0)] = 1000,
    batch: Annotated[int, Option("Rows per step.", least=1)] = 32,
    length: Annotated[int, Option("Tokens per input.", least=8, most=65_536)] = 128,
    rate: Annotated[float, Option("Learning rate.")] = 0.01,
    changes: Annotated[
        tuple[str, ...], Option("Any other setting: density=0.15 ...", flag="--set", metavar="NAME=VALUE")
    ] = (),
    seed: Annotated[int, Option("Of all random draws.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The folder to make; given again, the work resumes.", "growing")],
) -> CommandResult:
    """Pre-train a T5 by span corruption; the folder it makes opens as monot5("DIR").

    Sizes (width, layers, heads, inner width): tiny 128, 2, 4, 256; mini 256, 4, 4, 512; small and base as
    in T5 1.1.
    """
    with needs("neural", "pre-training"):
        from rankhouse.training.pretrain import PretrainingSettings, pretrain
    if init is not None:
        idle("the sizes are those of --init", "size")
    shape = {"style": style, "d_model": d_model, "layers": layers, "heads": heads, "d_ff": d_ff}
    start = _start(vocabulary, init, size, {name: value for name, value in shape.items() if value})
    wanted = with_changes(changes, steps=steps, batch=batch, length=length, rate=rate, seed=seed)
    settings = PretrainingSettings().but(**wanted)
    with console.progress("reading, then pre-training", None) as show:
        outcome = pretrain(sources, start, settings, out, reading=show, progress=show)
    return CommandResult(outcome, lambda: _tell_of_pretraining(outcome, out))


def _start(
    vocabulary: Path | None, init: str | None, size: str, changes: dict[str, object]
) -> MonoT5 | tuple[T5Shape, Tokenizer]:
    """Open a T5 to go on with, or say what a fresh one is like."""
    from rankhouse.models.monot5 import open_monot5
    from rankhouse.training.t5_pretraining import SIZES, read_tokenizer

    if (vocabulary is None) == (init is None):
        raise WrongUse("give either --vocabulary (T5's spiece.model) for a fresh T5, or --init DIR to go on")
    if init is not None:
        if changes:
            raise WrongUse(f"--init: the sizes are those of {init}; leave out {', '.join(changes)}")
        return open_monot5(init)
    assert vocabulary is not None
    chosen = notation.choose(size, SIZES, "size of a T5")
    if "d_model" in changes or "heads" in changes:
        changes = {"d_kv": 0} | changes
    return msgspec.structs.replace(chosen, **changes), read_tokenizer(vocabulary)


def _tell_of_pretraining(outcome: PretrainingOutcome, out: Path) -> None:
    """Say what came out and what to type next."""
    console.say(
        f"{outcome.parameters:,} parameters, {outcome.tokens:,} tokens read "
        f"({outcome.tokens / outcome.collection_tokens:.2f} times the collection) in {outcome.seconds:.0f} s"
    )
    console.say(
        f"loss on held-out text {outcome.held_out_at_start:.3f} before, {outcome.held_out:.3f} now "
        f"(perplexity {math.exp(min(outcome.held_out, 700)):,.0f})"
    )
    console.say(f"fine-tune it with  rankhouse train --ranker 'monot5(\"{out}\")' ...")
