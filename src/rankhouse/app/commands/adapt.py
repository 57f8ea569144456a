"""rankhouse adapt: documents and a teacher become a ranker of one's own, without judgements."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rankhouse.app import console
from rankhouse.app.given import idle, read_change
from rankhouse.app.options import (
    COUNT,
    FINITE,
    FROM_ZERO,
    GROWING_FOLDER,
    LOCAL,
    PATH,
    SEED,
    SOURCE,
    FileCommand,
    as_json,
)
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.nouns import Ranker, TextEncoder
from rankhouse.core.progress import Progress
from rankhouse.core.trec import read_qrels
from rankhouse.index.index import Index
from rankhouse.labels.pseudo_queries import PseudoOptions
from rankhouse.ranking.cache import CachedRanker

if TYPE_CHECKING:
    from rankhouse.app.adapt.report import AdaptResult


@click.command(
    "adapt",
    cls=FileCommand,
    epilog="Example:  rankhouse adapt --index my.index --ranker tk --teacher 'biencoder(\"DIR\")' "
    "--minutes 20 --out mine && rankhouse rerank --ranker mine ...",
)
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option(
    "--ranker",
    type=SOURCE,
    default="tk",
    show_default=True,
    help="The pupil: tk, knrm, or a design, a checkpoint.",
)
@click.option(
    "--teacher",
    type=SOURCE,
    required=True,
    help='Whose scores are learned: default, biencoder("DIR"), a folder ...',
)
@click.option(
    "--queries", type=SOURCE, help="Questions of people, without judgements, to be learned from as well."
)
@click.option(
    "--test-queries", type=SOURCE, help="Judged questions to measure by; they are not learned from."
)
@click.option("--test-qrels", type=PATH, help="Their judgements.")
@click.option("--minutes", type=FINITE, default=0.0, help="How long all of it may take.  [default: no limit]")
@click.option("--steps", type=FROM_ZERO, default=0, help="Of the training.  [default: 3000, or by --minutes]")
@click.option("--questions", type=COUNT, default=100_000, show_default=True, help="Most pseudo-queries.")
@click.option("--kinds", default="", help="Kinds of pseudo-queries: title,heading,first,span,question ...")
@click.option("--depth", type=COUNT, default=100, show_default=True, help="Documents to be reranked.")
@click.option("--cache", type=LOCAL, help="Keep the scores of a teacher that has no vectors in this folder.")
@click.option("--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any setting of the training.")
@click.option("--seed", type=SEED, default=0, show_default=True, help="Of all that is drawn.")
@click.option(
    "--out", type=GROWING_FOLDER, required=True, help="The folder to make; given again, goes on from there."
)
@as_json
def command(
    index_path: Path,
    ranker: str,
    teacher: str,
    queries: str | None,
    test_queries: str | None,
    test_qrels: Path | None,
    minutes: float,
    steps: int,
    questions: int,
    kinds: str,
    depth: int,
    cache: Path | None,
    changes: tuple[str, ...],
    seed: int,
    out: Path,
    as_json: bool,
) -> None:
    """Teach a ranker on questions that the documents ask; a teacher's scores are the judgements."""
    try:
        from rankhouse.app.adapt.adapt import adapt_with
        from rankhouse.app.adapt.options import AdaptOptions, JudgedQuestions
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    if (test_queries is None) != (test_qrels is None):
        raise WrongUse("a test needs both --test-queries and --test-qrels")
    if steps:
        idle("--steps says how long the training is", "minutes")
    pseudo = PseudoOptions(seed=seed)
    if kinds:
        pseudo = PseudoOptions(kinds=tuple(kind.strip() for kind in kinds.split(",")), seed=seed)
    options = AdaptOptions(
        ranker=ranker,
        pseudo=pseudo,
        questions=questions,
        depth=depth,
        steps=steps,
        minutes=minutes,
        settings=dict(map(read_change, changes)),
        seed=seed,
    )
    test = None
    if test_queries is not None and test_qrels is not None:
        test = JudgedQuestions(read_queries(test_queries), read_qrels(test_qrels))
    people = read_queries(queries) if queries else []
    with ExitStack() as stack:
        bar = stack.enter_context(ExitStack())

        def show(what: str) -> Progress:
            bar.close()  # one part of the work is shown at a time
            return bar.enter_context(console.progress(what, None))

        reader = _teacher(teacher, cache, stack)
        result = adapt_with(Index.open(index_path), reader, out, options, show, people, test)
        bar.close()
    if as_json:
        console.emit_json(result)
    else:
        _tell(result, out)


def _teacher(spec: str, cache: Path | None, stack: ExitStack) -> Ranker:
    reader = open_ranker(spec, ComputeOptions())
    if isinstance(reader, TextEncoder):
        idle("this teacher has vectors, which --out keeps", "cache")
    return reader if cache is None else stack.enter_context(CachedRanker(reader, cache))


def _tell(result: AdaptResult, out: Path) -> None:
    """Say what came out and what to type next."""
    for name, value in result.test.items():
        console.say(f"nDCG@10 on the test: {name} {value:.4f}")
    if not result.pupil_weight:
        console.warn(
            "on held-out questions the pupil adds nothing to the first stage; give it more time (--minutes) "
            "or a stronger teacher"
        )
    own, first = result.pupil_weight, 1 - result.pupil_weight
    console.say(f"learned from {result.questions:,} questions in {result.steps:,} steps")
    console.say(
        f"use it with  --ranker {out}  and join it with the first stage:  rankhouse fuse RERANKED FIRST "
        f"--method 'linear(\"z-score\")' --weights {own:g},{first:g}"
    )
