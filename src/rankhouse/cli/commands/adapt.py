"""rankhouse adapt: documents and a teacher become a ranker of one's own, without judgements."""

from __future__ import annotations

import shlex
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from rankhouse.adaptation.options import AdaptJob
from rankhouse.cli import console
from rankhouse.cli.options import idle, read_change, record_command, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import needs
from rankhouse.core.nouns import TextEncoder
from rankhouse.core.progress import stages
from rankhouse.labels.soft_scores import members_of
from rankhouse.page.tables import CommandResult
from rankhouse.systems.teachers import SystemTeacher

if TYPE_CHECKING:
    from rankhouse.adaptation.report import AdaptResult


@verb(
    "adapt",
    "rankhouse adapt --index my.index --ranker tk --teacher 'biencoder(\"DIR\")' "
    "--minutes 20 --out mine && rankhouse rerank --ranker mine ...",
)
def command(
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
    return CommandResult(result, lambda: _tell(result, out))


def _tell(result: AdaptResult, out: Path) -> None:
    """Say what came out and what to type next."""
    for name, value in result.test.items():
        console.say(f"nDCG@10 on the test: {name} {value:.4f}")
    if not result.student_weight:
        console.warn(
            "on held-out questions the student adds nothing to the first stage; give it more time "
            "(--minutes) or a stronger teacher"
        )
    own, first = result.student_weight, 1 - result.student_weight
    console.say(f"learned from {result.questions:,} questions in {result.steps:,} steps")
    if result.encode:
        dense = f'dense("{out}", name="{out.name}")'
        console.say(f"its vectors of all documents:  {result.encode}  and then  {dense}  in any --system")
    console.say(f"as one system:  rankhouse search --system {shlex.quote(result.system)}")
    console.say(
        f"use it with  --ranker {out}  and join it with the first stage:  rankhouse fuse RERANKED FIRST "
        f"--method 'linear(\"z-score\")' --weights {own:g},{first:g}"
    )
