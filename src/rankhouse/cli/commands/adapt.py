"""rankhouse adapt: documents and a teacher become a ranker of one's own, without judgements."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankhouse.adaptation.options import AdaptOptions, JudgedQuestions
from rankhouse.cli import console
from rankhouse.cli.given import idle, read_change
from rankhouse.cli.options import GROWING_FOLDER, LOCAL, PATH, SOURCE, options_of
from rankhouse.cli.verb import CommandResult, verb
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import TextEncoder
from rankhouse.core.progress import Progress
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.labels.soft_scores import JOINS, members_of
from rankhouse.systems.teachers import open_teacher

if TYPE_CHECKING:
    from rankhouse.adaptation.report import AdaptResult


@verb(
    "adapt",
    "rankhouse adapt --index my.index --ranker tk --teacher 'biencoder(\"DIR\")' "
    "--minutes 20 --out mine && rankhouse rerank --ranker mine ...",
)
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@options_of(AdaptOptions)
@click.option(
    "--teacher",
    "teachers",
    type=SOURCE,
    required=True,
    multiple=True,
    help='Whose scores are learned: default, biencoder("DIR"), a folder ... Again for more, whose scores are '
    "joined; one may be a run with scores of --queries.",
)
@click.option(
    "--join", type=click.Choice([*JOINS]), default="z-score", show_default=True,
    help="What makes one score of several teachers'.",
)  # fmt: skip
@click.option(
    "--queries", type=SOURCE, help="Questions of people, without judgements, to be learned from as well."
)
@click.option(
    "--test-queries", type=SOURCE, help="Judged questions to measure by; they are not learned from."
)
@click.option("--test-qrels", type=PATH, help="Their judgements.")
@click.option("--test-run", type=PATH, help="What is reranked for them.  [default: what --first-stage finds]")
@click.option(
    "--kinds", default=",".join(PseudoOptions.kinds), show_default=True, help="Kinds of pseudo-queries."
)
@click.option("--cache", type=LOCAL, help="Keep the scores of a teacher that has no vectors in this folder.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any setting of the training.")
@click.option(
    "--out", type=GROWING_FOLDER, required=True, help="The folder to make; given again, goes on from there."
)
def command(
    options: AdaptOptions,
    index_path: Path,
    teachers: tuple[str, ...],
    join: str,
    queries: str | None,
    test_queries: str | None,
    test_qrels: Path | None,
    test_run: Path | None,
    kinds: str,
    cache: Path | None,
    changes: tuple[str, ...],
    out: Path,
) -> CommandResult:
    """Teach a ranker on questions that the documents ask; a teacher's scores are the judgements."""
    try:
        from rankhouse.adaptation.adapt import adapt_with
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    test = _test(test_queries, test_qrels, test_run)
    if len(teachers) < 2:
        idle("it joins the scores of several teachers", "join")
    if options.steps:
        idle("--steps says how long the training is", "minutes")
    pseudo = PseudoOptions(tuple(re.split(r"\s*,\s*", kinds.strip())), seed=options.seed)
    options = replace(options, pseudo=pseudo, settings=dict(map(read_change, changes)))
    people = read_queries(queries) if queries else []
    with ExitStack() as stack:
        reader = open_teacher(teachers, join, cache, stack, encoders=False)
        if all(isinstance(one, TextEncoder) for one in members_of(reader)):
            idle("vectors of a bi-encoder are kept in --out", "cache")
        result = adapt_with(
            Index.open(index_path),
            reader,
            out,
            options=options,
            show=_stages(stack),
            people=people,
            test=test,
        )
    return CommandResult(result, lambda: _tell(result, out))


def _test(queries: str | None, qrels: Path | None, run: Path | None) -> JudgedQuestions | None:
    if (queries is None) != (qrels is None):
        raise WrongUse("a test needs both --test-queries and --test-qrels")
    if queries is None or qrels is None:
        idle("there are no --test-queries that it is for", "test_run")
        return None
    return JudgedQuestions(read_queries(queries), read_qrels(qrels), None if run is None else read_run(run))


def _stages(stack: ExitStack) -> Callable[[str], Progress]:
    """Return what begins to show a part of the work, and ends the one before."""
    bar = stack.enter_context(ExitStack())

    def show(what: str) -> Progress:
        bar.close()
        return bar.enter_context(console.progress(what, None))

    return show


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
    console.say(
        f"use it with  --ranker {out}  and join it with the first stage:  rankhouse fuse RERANKED FIRST "
        f"--method 'linear(\"z-score\")' --weights {own:g},{first:g}"
    )
