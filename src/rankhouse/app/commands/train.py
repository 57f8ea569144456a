"""rankhouse train: judgements become a ranker."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from rankhouse.app import console
from rankhouse.app.given import idle, with_changes
from rankhouse.app.options import COUNT, PATH, SEED, as_json
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core import notation
from rankhouse.core.corpora import read_queries
from rankhouse.core.errors import MissingExtra, WrongUse
from rankhouse.core.locks import only_writer
from rankhouse.core.trec import read_qrels, read_run
from rankhouse.evaluation.measure_notation import graded
from rankhouse.index.index import Index
from rankhouse.ranking.pool import POOLS
from rankhouse.ranking.rerank import Plan
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.contract import Model
    from rankhouse.training.examples import Examples
    from rankhouse.training.settings import Settings
    from rankhouse.training.state import Outcome
    from rankhouse.training.validation import Validation


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
@click.option(
    "--relevant-from",
    type=COUNT,
    default=1,
    show_default=True,
    help="The lowest grade, or label, that is learned as relevant.",
)
@click.option("--valid-queries", help="Validation queries.")
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
    """Train a ranker on judgements; the folder made is a ranker that rerank takes at once."""
    try:
        from rankhouse.app.training_pages import write_pages
        from rankhouse.training.fit import fit
        from rankhouse.training.settings import defaults
    except ImportError as error:
        raise MissingExtra("training", "neural") from error
    first = os.environ.get("RANK", "0") == "0"  # torchrun's other processes neither lock nor make pages
    if first:
        click.get_current_context().with_resource(only_writer(out))
    if not (valid_queries or valid_qrels or valid_run):
        idle("it says how validation reranks, and there is none", "depth")
    wanted = with_changes(changes, epochs=epochs, seed=seed)
    index = Index.open(index_path)
    model = _model(ranker, init, index, _seed(wanted.get("seed")))
    examples = _examples(index, queries, qrels, run_path, pairs, relevant_from)
    plan = Plan(notation.make(split, SPLITTERS, "splitter"), notation.make(pool, POOLS, "pool"), depth)
    validation = _validation(index, valid_queries, valid_qrels, valid_run, plan)
    settings = _graded(defaults(model.family).but(**wanted), relevant_from)
    with console.progress("training", None) as show:
        outcome = fit(
            model,
            examples,
            settings,
            out,
            validation,
            use={"split": split, "pool": pool},
            progress=show,
        )
    if first:
        write_pages(out, index, validation, settings.measure)
    if as_json:
        console.emit_json(outcome)
    else:
        _tell(outcome, out)


def _seed(value: object) -> int:
    """Take a seed; the settings say what is wrong with one."""
    return value if isinstance(value, int) and value >= 0 else 0


def _graded(settings: Settings, least: int) -> Settings:
    """Let validation count the same grades as relevant as training does."""
    return settings if least == 1 else settings.but(measure=str(graded(settings.measure, least)[0]))


def _model(ranker: str | None, init: str | None, index: Index, seed: int) -> Model[Any]:
    """Begin, open, or go on with a model."""
    from rankhouse.models.families import DESIGNS, FAMILIES, open_model

    if (ranker is None) == (init is None):
        raise WrongUse("give either --ranker SPEC (a model to begin, or a checkpoint) or --init DIR")
    if init is not None:
        return open_ranker(init, ComputeOptions("fp32", "cpu")).model
    assert ranker is not None
    name = ranker.partition("(")[0].strip()
    notation.choose(name, FAMILIES, "family of rankers")
    if name not in DESIGNS:
        return open_model(ranker)

    def texts() -> Iterator[str]:
        return (document.full_text for document in index.documents.stream())

    return notation.make(ranker, DESIGNS, "ranker").fresh(texts(), seed=seed)


def _examples(
    index: Index,
    queries: str | None,
    qrels: Path | None,
    run_path: Path | None,
    pairs: tuple[Path, ...],
    relevant_from: int,
) -> Examples:
    from rankhouse.training.examples import from_judgements, read_pairs

    if pairs:
        if queries or qrels or run_path:
            raise WrongUse("--pairs holds queries and labels already; leave out --queries, --qrels and --run")
        return read_pairs(*pairs, relevant_from=relevant_from)
    if queries is None or qrels is None:
        raise WrongUse("give --queries and --qrels (and --run for negatives), or --pairs")
    first = None if run_path is None else read_run(run_path)
    return from_judgements(
        read_queries(queries), read_qrels(qrels), index.documents, first, relevant_from=relevant_from
    )


def _validation(
    index: Index, queries: str | None, qrels: Path | None, run_path: Path | None, plan: Plan
) -> Validation | None:
    from rankhouse.training.validation import Validation

    if queries is None and qrels is None and run_path is None:
        console.warn("no validation was given, so the last model is kept, good or bad")
        return None
    if queries is None or qrels is None or run_path is None:
        raise WrongUse("validation needs all of --valid-queries, --valid-qrels and --valid-run")
    return Validation(read_run(run_path), read_queries(queries), read_qrels(qrels), index.documents, plan)


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
