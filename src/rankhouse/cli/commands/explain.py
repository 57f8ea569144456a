"""rankhouse explain: why a document scores what it scores, and why it stands above another."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click
from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.given import read_numbers
from rankhouse.cli.options import (
    COUNT,
    FROM_ZERO,
    OUTPUT_FILE,
    PATH,
    SOURCE,
    idle,
    options_of,
    verb,
    was_given,
)
from rankhouse.core.errors import WrongUse, visible
from rankhouse.explanation import report
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.show import LEGEND, MarkedText, TitledTable, blocks
from rankhouse.index.index import Index
from rankhouse.io.trec import read_run
from rankhouse.systems.execution import Execution, before_ranker
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.names import find_query
from rankhouse.systems.notation import system
from rankhouse.systems.on_record import OnRecord, read_tag
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.short_forms import asked_form
from rankhouse.systems.stage import as_stage

_SHORT = (
    "models", "feedback", "ranker", "fusion", "weights", "first_stage", "k", "depth", "split", "pool",
)  # fmt: skip
STYLES = {"gain": "bold green", "loss": "magenta", "match": "cyan", "unread": "dim", "": ""}


@verb("explain", 'rankhouse explain --index my.index --query "who steers ships?" --doc d1 --against d2')
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--query", required=True, metavar="TEXT|ID", help="The query's text; with --queries, its id.")
@click.option("--queries", type=SOURCE, help="A file of queries, of which --query names one.")
@click.option("--field", "field_name", default="", help="Which text of the queries, if they have several.")
@click.option("--system", "expression", type=SOURCE,
              help='"bm25 % 100 >> crossencoder(\'DIR\')": what ranks, as one expression.')  # fmt: skip
@click.option("--model", "models", type=SOURCE, multiple=True,
              help="Short for a --system: bm25, dense(RANKER) ...; several are fused.")  # fmt: skip
@click.option("--feedback", default="", help='For example "rm3(terms=10, docs=10, weight=0.5)".')
@click.option(
    "--ranker", type=SOURCE, help='What reranks: a bundle folder, monot5("DIR"), crossencoder("DIR") ...'
)
@click.option("--fusion", default="", help="How several --model, and with them the --ranker, are joined: "
              "rrf, linear ...  [default: z-scores of models; a ranker alone]")  # fmt: skip
@click.option("--weights", help="Of the fusion, with commas, the ranker's last: 0.3,0.7.")
@click.option("--run", "run_path", type=PATH, help="The run that this model or ranker made.")
@click.option("--first-stage", type=PATH, help="The run from which the ranker takes its documents.")
@click.option("--before", type=PATH, help="An earlier run: why did the document move from there to --run?")
@click.option("--doc", help="The document asked about.")
@click.option("--against", default="", metavar="ID", help="Why does --doc stand above this one, or below?")
@click.option(
    "--top", type=COUNT, metavar="N", help="Instead of --doc: the first N, and what separates them."
)
@click.option("-k", type=COUNT, default=1000, show_default=True, help="Documents per query of each --model.")
@click.option("--depth", type=FROM_ZERO, default=1000, show_default=True,
              help="Documents of the first stage that the ranker reads.")  # fmt: skip
@click.option(
    "--split", default="", help='"sentences(10, 5)" ...  [default: whole; as kept, where encode kept it]'
)
@click.option("--pool", default="", help='first, max, sum, "top(3)" ...  [default: max; as kept]')
@click.option("--method", default="", help="removal, shapley, gradients.  [default: what suits the ranker]")
@click.option("--unit", default="", help="What is left out at a time: sentence or word.")
@click.option("--passes", type=COUNT, default=1024, show_default=True, help="Most pairs scored per document.")
@click.option("--out", type=OUTPUT_FILE, help="Write a page (.html) or Markdown (.md).")
@options_of(ComputeOptions)
def command(
    compute: ComputeOptions,
    index_path: Path,
    query: str,
    queries: str | None,
    field_name: str,
    expression: str | None,
    models: tuple[str, ...],
    feedback: str,
    ranker: str | None,
    fusion: str,
    weights: str | None,
    run_path: Path | None,
    first_stage: Path | None,
    before: Path | None,
    doc: str | None,
    against: str,
    top: int | None,
    k: int,
    depth: int,
    split: str,
    pool: str,
    method: str,
    unit: str,
    passes: int,
    out: Path | None,
) -> CommandResult:
    """Say why a document scores what it scores, why it stands above another, or why it moved.

    The answer names what each word, passage and stage adds. The parts sum to the score, or to the difference
    of two; what an estimate leaves is stated. Give --doc, --doc with --against, or --top.
    """
    _refuse_idle(models, ranker, expression, doc, against=against, top=top)
    if out is not None:
        report.check_target(out)
    work = Execution(
        Index.open(index_path),
        [find_query(query, queries, field_name, runs=(run_path, first_stage, before))],
        compute,
    )
    stage = replace(as_stage(ranker), split=split, pool=pool, depth=depth) if ranker else None
    shares = None if weights is None else read_numbers("--weights", weights)
    if expression is None:
        whole = asked_form(models, feedback, fusion, shares, k=k, stage=stage, record=_on_file(first_stage))
    else:
        whole = system(expression)
    earlier, found = _on_file(before), before_ranker(whole)
    if earlier is not None and found is not None and first_stage is None and (models or expression):
        earlier = earlier.made_by(found)
    named = () if doc is None else (doc,)
    options = ExplainOptions(method, unit, passes)
    question = Question(named, against, top, run=_on_file(run_path), before=earlier, options=options)
    with console.progress("explaining", None):
        answer = ask(work, whole, question)
    if out is not None:
        report.write(answer, out)
        console.say(f"written to {out}")
    return CommandResult(answer.to_dict(), "" if out is not None else lambda: show(answer))


def _on_file(path: Path | None) -> OnRecord | None:
    return None if path is None else OnRecord(read_run(path), path.name, read_tag(path))


def _refuse_idle(
    models: tuple[str, ...],
    ranker: str | None,
    expression: str | None,
    doc: str | None,
    against: str,
    top: int | None,
) -> None:
    """Refuse what would change nothing here, and a question that is none or two."""
    if expression is not None:
        idle("--system says what ranks", *_SHORT)
    if (doc is None) == (top is None):
        raise WrongUse("give either --doc ID, with --against ID to hold it against another, or --top N")
    if was_given("against") and not against:
        raise WrongUse("--against is empty: name the document that --doc is compared with, or leave it out")
    if top is not None:
        idle("--top tells of the whole ranking", "against", "before")
    if ranker is None and expression is None:
        idle("it is for a --ranker", "first_stage", "depth", "split", "pool", "method", "unit", "passes")
        if len(models) < 2:
            idle("it says how several --model, or a --ranker with them, are joined", "fusion", "weights")


def show(answer: Answer) -> None:
    """Print an answer on the screen: sentence, tables, and the words that were read, coloured and signed."""
    for block in blocks(answer):
        match block:
            case TitledTable():
                console.print_table(block.table, block.title)
            case MarkedText():
                console.results.print(Text(visible(f"{block.title}:"), style="bold"))
                console.results.print(coloured(block), soft_wrap=not console.results.is_terminal)
            case str() if block == LEGEND:
                console.results.print(LEGEND, style="dim", markup=False, soft_wrap=True)
            case _:
                console.results.print(Text(visible(block)), soft_wrap=True)


def coloured(text: MarkedText) -> Text:
    """Return a text with its words in colour; each keeps its sign, so that colour is never needed."""
    line = Text()
    for place, (word, kind) in enumerate(text.words):
        line.append(" " if place else "")
        line.append(visible(word), style=STYLES[kind])
    if text.more:
        line.append(f" ... and {text.more:,} more words", style="dim")
    return line
