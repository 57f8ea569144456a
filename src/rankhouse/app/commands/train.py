"""rankhouse train: judgements become a ranker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankhouse.app import console
from rankhouse.app.options import PATH, as_json
from rankhouse.app.rankers import Means, open_ranker
from rankhouse.core import notation
from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.trec import read_qrels, read_run, write_run
from rankhouse.evaluate import report
from rankhouse.evaluate.compare import compare
from rankhouse.index.catalogue import Index
from rankhouse.rank.pool import POOLS
from rankhouse.rank.rerank import Plan, rerank
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.base import Model
    from rankhouse.train.examples import Examples
    from rankhouse.train.standing import Outcome
    from rankhouse.train.validate import Validation


@click.command(
    "train",
    epilog="Example:  rankhouse train --ranker 'knrm(vectors=\"glove.txt\")' --index i --queries q.tsv "
    "--qrels q.qrels --run q.run --valid-queries v.tsv --valid-qrels v.qrels --valid-run v.run --out mine",
)
@click.option("--ranker", help='A model to begin: tk(...), knrm(...); or a checkpoint: crossencoder("DIR").')
@click.option("--init", help="Go on teaching a ranker trained here: its folder.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--queries", help="Training queries.")
@click.option("--qrels", type=PATH, help="Their judgements.")
@click.option("--run", "run_path", type=PATH, help="A first-stage run of them; negatives come from it.")
@click.option(
    "--pairs", type=PATH, multiple=True, help="Labelled pairs instead, as rankhouse label writes them."
)
@click.option("--valid-queries", help="Validation queries.")
@click.option("--valid-qrels", type=PATH, help="Their judgements.")
@click.option("--valid-run", type=PATH, help="Their first-stage run, reranked at every validation.")
@click.option(
    "--depth", type=click.IntRange(1), default=100, show_default=True, help="Of validation's reranking."
)
@click.option("--split", default="whole", show_default=True, help='Of its documents: "words(100)" ...')
@click.option("--pool", default="max", show_default=True, help="Of their passages' scores.")
@click.option("--epochs", type=click.IntRange(1), help="By default the family's.")
@click.option(
    "--set", "changes", multiple=True, metavar="NAME=VALUE", help="Any setting: rate=1e-4, batch=32 ..."
)
@click.option("--seed", type=click.IntRange(0), default=0, show_default=True)
@click.option("--out", type=PATH, required=True, help="The folder to make; given again, goes on from there.")
@as_json
def command(
    ranker: str | None,
    init: str | None,
    index_path: Path,
    queries: str | None,
    qrels: Path | None,
    run_path: Path | None,
    pairs: tuple[Path, ...],
    valid_queries: str | None,
    valid_qrels: Path | None,
    valid_run: Path | None,
    depth: int,
    split: str,
    pool: str,
    epochs: int | None,
    changes: tuple[str, ...],
    seed: int,
    out: Path,
    as_json: bool,
) -> None:
    """Train a ranker on judgements; the folder made is a ranker that rerank takes at once."""
    try:
        from rankhouse.train.fit import fit
        from rankhouse.train.settings import defaults
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    index = Index.open(index_path)
    model = _model(ranker, init, index, seed)
    examples = _examples(index, queries, qrels, run_path, pairs)
    plan = Plan(notation.make(split, SPLITTERS, "splitter"), notation.make(pool, POOLS, "pool"), depth)
    validation = _validation(index, valid_queries, valid_qrels, valid_run, plan)
    wanted = dict(read_change(text) for text in changes) | {"seed": seed}
    settings = defaults(model.family).but(**(wanted | ({"epochs": epochs} if epochs else {})))
    with console.progress("training", None) as show:
        outcome = fit(
            model,
            examples,
            settings,
            out,
            validation,
            use={"split": split, "pool": pool},
            progress=lambda now: show(now.step, now.steps),
        )
    _write_pages(out, index, validation)
    if as_json:
        console.emit_json(outcome)
    else:
        _tell(outcome, out)


def _model(ranker: str | None, init: str | None, index: Index, seed: int) -> Model[Any]:
    """Begin, open, or go on with a model."""
    from rankhouse.models.families import DESIGNS, FAMILIES, open_model

    if (ranker is None) == (init is None):
        raise WrongUse("give either --ranker SPEC (a model to begin, or a checkpoint) or --init DIR")
    if init is not None:
        return open_ranker(init, Means("fp32", "cpu")).model
    assert ranker is not None
    name = ranker.partition("(")[0].strip()
    notation.choose(name, FAMILIES, "family of rankers")
    if name not in DESIGNS:
        return open_model(ranker)

    def texts() -> Iterator[str]:
        return (document.full_text for document in index.documents.stream())

    return notation.make(ranker, DESIGNS, "ranker").fresh(texts(), seed=seed)


def _examples(
    index: Index, queries: str | None, qrels: Path | None, run_path: Path | None, pairs: tuple[Path, ...]
) -> Examples:
    from rankhouse.train.examples import from_judgements, read_pairs

    if pairs:
        if queries or qrels or run_path:
            raise WrongUse("--pairs holds queries and labels already; leave out --queries, --qrels and --run")
        return read_pairs(*pairs)
    if queries is None or qrels is None:
        raise WrongUse("give --queries and --qrels (and --run for negatives), or --pairs")
    first = None if run_path is None else read_run(run_path)
    return from_judgements(read_queries(queries), read_qrels(qrels), index.documents, first)


def _validation(
    index: Index, queries: str | None, qrels: Path | None, run_path: Path | None, plan: Plan
) -> Validation | None:
    from rankhouse.train.validate import Validation

    if queries is None and qrels is None and run_path is None:
        console.warn("no validation was given, so the last model is kept, good or bad")
        return None
    if queries is None or qrels is None or run_path is None:
        raise WrongUse("validation needs all of --valid-queries, --valid-qrels and --valid-run")
    return Validation(read_run(run_path), read_queries(queries), read_qrels(qrels), index.documents, plan)


def read_change(text: str) -> tuple[str, object]:
    """Read NAME=VALUE; a value that is no literal is a text."""
    import ast

    name, equals, value = text.partition("=")
    if not equals:
        raise WrongUse(f"--set {text}: write NAME=VALUE, like rate=1e-4")
    try:
        return name.strip(), ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name.strip(), value


def _write_pages(out: Path, index: Index, validation: Validation | None) -> None:
    """Draw the learning curve, and compare what was kept with the first stage on the validation queries."""
    from rankhouse.train.journal import read_log, write_curve

    try:
        write_curve(read_log(out / "log.jsonl"), out / "curve.svg")
    except MissingExtra as missing:
        console.say(f"no curve.svg: {missing}")
        return
    if validation is None:
        return
    ranker = open_ranker(str(out), Means("fp32"))
    asked = list(validation.queries)
    reranked = rerank(ranker, validation.run, asked, index.documents, validation.plan)
    write_run(reranked, out / "validation.run", "trained")
    runs = {"first stage": validation.run, "trained": reranked}
    comparison = compare(runs, validation.qrels, "AP nDCG@10 RR@10", "first stage", "randomization", "holm")
    texts = {query.id: query.text for query in asked}
    report.write_report(comparison, out / "report.html", f"Training {out.name}: validation", texts)


def _tell(outcome: Outcome, out: Path) -> None:
    """Say what came out and what to type next."""
    if outcome.measure:
        console.say(
            f"{outcome.measure} on validation: first stage {outcome.first_stage:.4f}, best "
            f"{outcome.best:.4f} after {outcome.best_step:,} of {outcome.steps:,} steps"
        )
    for remark in outcome.remarks:
        console.note(remark)
    console.say(f"trained in {outcome.seconds:.0f} s; use it with  --ranker {out}")
