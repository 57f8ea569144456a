"""rankhouse explain, figure: why a document scores what it scores, and pictures of what is in a ranker.

Pictures of numbers stay with the command that computes them, where people of the field look for them:
per-query differences and gain by difficulty are ``evaluate --chart``, shares of axioms ``axioms --out``. What
``figure`` draws needs the model itself and explains no score.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any

from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.commands.search import with_words
from rankhouse.cli.options import idle, read_numbers, verb, was_given
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, needs, visible
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.qrels import RelevantFrom, from_grade, relevant
from rankhouse.explanation import report
from rankhouse.explanation.contrast import Answer
from rankhouse.explanation.methods import ExplainOptions
from rankhouse.explanation.show import LEGEND, MarkedText, TitledTable, blocks
from rankhouse.index.index import Index
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.page.charts import chart_kind
from rankhouse.page.tables import CommandResult
from rankhouse.systems.execution import Execution, before_ranker, open_index
from rankhouse.systems.explaining import Question, ask
from rankhouse.systems.names import find_query, unknown
from rankhouse.systems.notation import system
from rankhouse.systems.on_record import OnRecord, read_record
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.short_forms import SystemText, asked_form
from rankhouse.systems.stage import as_stage
from rankhouse.systems.system import Dense, RerankedSystem, System

_SHORT = (
    "models", "feedback", "ranker", "fusion", "weights", "first_stage", "k", "depth", "split", "pool",
)  # fmt: skip
STYLES = {"gain": "bold green", "loss": "magenta", "match": "cyan", "unread": "dim", "": ""}


@dataclass(frozen=True, kw_only=True)
class ExplainChoices(ExplainOptions, ComputeOptions):
    """The options of ``rankhouse explain``."""

    index: Annotated[
        tuple[Path, ...],
        Option("The index folder; several, or a folder of shards, are explained as one.", "input"),
    ] = ()
    query: Annotated[str | None, Option("The query's text; with --queries, its id.", metavar="TEXT|ID")] = (
        None
    )
    queries: Annotated[str | None, Option("A file of queries, of which --query names one.", "source")] = None
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = ""
    system: SystemText = None
    models: Annotated[
        tuple[str, ...],
        Option("Short for a --system: bm25, dense(RANKER) ...; several are fused.", "source", flag="--model"),
    ] = ()
    feedback: Annotated[str, Option('For example "rm3(terms=10, docs=10, weight=0.5)".')] = ""
    ranker: Annotated[
        str | None, Option('What reranks: a bundle folder, monot5("DIR"), crossencoder("DIR") ...', "source")
    ] = None
    fusion: Annotated[
        str,
        Option(
            "The fusion of several --model, and with them the --ranker: rrf, linear ...",
            default="z-scores of models; a ranker alone",
        ),
    ] = ""
    weights: Annotated[str | None, Option("Of the fusion, with commas, the ranker's last: 0.3,0.7.")] = None
    run: Annotated[Path | None, Option("The run that this model or ranker made.", "input")] = None
    first_stage: Annotated[
        Path | None, Option("The run from which the ranker takes its documents.", "input")
    ] = None
    before: Annotated[
        Path | None, Option("An earlier run: why did the document move from there to --run?", "input")
    ] = None
    doc: Annotated[str | None, Option("The document asked about.")] = None
    against: Annotated[str, Option("Why does --doc stand above this one, or below?", metavar="ID")] = ""
    top: Annotated[
        int | None, Option("Instead of --doc: the first N, and what separates them.", least=1, metavar="N")
    ] = None
    k: Annotated[int, Option("Documents per query of each --model.", least=1, flag="-k")] = 1000
    depth: Annotated[int, Option("Documents of the first stage that the ranker reads.", least=0)] = 1000
    split: Annotated[
        str, Option('"sentences(10, 5)" ...', default="whole; as kept, where encode kept it")
    ] = ""
    pool: Annotated[str, Option('first, max, sum, "top(3)" ...', default="max; as kept")] = ""
    out: Annotated[Path | None, Option("Write a page (.html) or Markdown (.md).", "output")] = None


@verb("explain", 'rankhouse explain my.index "who steers ships?" --doc d1 --against d2')
def command(
    *,
    words: Annotated[
        tuple[str, ...], Option(kind="source", positional=True, metavar='[INDEX] ["TEXT|ID"]')
    ] = (),
    given: ExplainChoices,
) -> CommandResult:
    """Say why a document scores what it scores, why it stands above another, or why it moved.

    The answer names what each word, passage and stage adds. The parts sum to the score, or to the difference
    of two; what an estimate leaves is stated. Give --doc, --doc with --against, or --top.
    """
    given = with_words(words, given, "explain")
    if given.query is None:
        raise WrongUse('no question is asked:  rankhouse explain INDEX "TEXT" , or --query TEXT')
    _refuse_idle(given)
    if given.out is not None:
        report.check_target(given.out)
    runs = (given.run, given.first_stage, given.before)
    query = find_query(given.query, given.queries, given.field, runs=runs)
    work = Execution(open_index(given.index), [query], given)
    run, first, earlier = (None if path is None else read_record(path) for path in runs)
    whole = _system(given, first) if given.system is None else system(given.system)
    if not any(isinstance(part, RerankedSystem | Dense) for part in whole.walk()):
        idle("no ranker and no encoder reads a text", "method", "unit", "passes")
    found = before_ranker(whole)
    if earlier is not None and found is not None and first is None and (given.models or given.system):
        earlier = earlier.made_by(found)
    named = () if given.doc is None else (given.doc,)
    question = Question(named, given.against, given.top, run=run, before=earlier, options=given)
    with console.progress("explaining", None):
        answer = ask(work, whole, question)
    if given.out is not None:
        report.write(answer, given.out)
        console.say(f"written to {given.out}")
    return CommandResult(answer.to_dict(), "" if given.out is not None else lambda: show(answer))


def _system(given: ExplainChoices, first: OnRecord | None) -> System:
    """Return the system that the options are short for."""
    stage = None
    if given.ranker:
        stage = replace(as_stage(given.ranker), split=given.split, pool=given.pool, depth=given.depth)
    weights = None if given.weights is None else read_numbers("--weights", given.weights)
    return asked_form(
        given.models, given.feedback, given.fusion, weights, k=given.k, stage=stage, record=first
    )


def _refuse_idle(given: ExplainChoices) -> None:
    """Refuse what would change nothing here, and a question that is none or two."""
    if given.system is not None:
        idle("--system says what ranks", *_SHORT)
    if (given.doc is None) == (given.top is None):
        raise WrongUse("give either --doc ID, with --against ID to compare it with another, or --top N")
    if was_given("against") and not given.against:
        raise WrongUse("--against is empty: name the document that --doc is compared with, or leave it out")
    if given.top is not None:
        idle("--top explains the whole ranking", "against", "before")
    if given.ranker is None and given.system is None:
        idle("it is for a --ranker", "first_stage", "depth", "split", "pool")
        if len(given.models) < 2:
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


@verb(
    "figure",
    "rankhouse figure vectors --ranker bicnn --ranker patt --run ql.run --qrels qrels.txt "
    "--queries q.tsv --query MB111 --index my.index --out map.png",
)
def figure_command(
    *,
    kind: Annotated[str, Option(choices=("vectors", "attention"), positional=True)],
    rankers: Annotated[
        tuple[str, ...], Option("A ranker; for vectors, repeat for more.", "source", flag="--ranker")
    ],
    queries: Annotated[str, Option("A file with the query's text.", "source")],
    field: Annotated[str, Option("The text field of the queries, if they have several.")] = "",
    query: Annotated[str, Option("The id of one query.")],
    index: Annotated[Path, Option("The index that holds the documents.")],
    docs: Annotated[
        tuple[str, ...], Option("For attention: a document's id; repeat for more.", flag="--doc")
    ] = (),
    run: Annotated[Path | None, Option("For vectors: the run whose documents are drawn.")] = None,
    qrels: Annotated[Path | None, Option("For vectors: which of them are relevant.")] = None,
    relevant_from: RelevantFrom = 1,
    depth: Annotated[int, Option("For vectors: how many of them.", least=5, most=10_000)] = 1000,
    seed: Annotated[int, Option("For vectors: seed of the t-SNE.", least=0, most=2**32 - 1)] = 0,
    out: Annotated[Path, Option("The picture (.png or .svg).", "output")],
    compute: ComputeOptions,
) -> CommandResult:
    """Draw what rankers see of one query: KIND is vectors or attention.

    vectors: a t-SNE of a run's documents as rankers see them (samCNN, bi-encoders), the relevant ones marked.
    attention: the weights that samCNN lays on the words of documents. Neither explains a score.
    """
    chart_kind(out)
    asked, held = find_query(query, queries, field), Index.open(index)
    shown: list[dict[str, Any]]
    if kind == "attention":
        idle("it belongs to the kind vectors", "run", "qrels", "depth", "seed", "relevant_from")
        if not docs or len(rankers) > 1:
            raise WrongUse("figure attention draws one --ranker and one --doc ID or more")
        if absent := [doc_id for doc_id in docs if doc_id not in held.documents]:
            raise unknown("document", absent[0], held.documents, "the index")
        shown = _draw_attention(rankers[0], compute, _pairs(asked, held, docs), out)
    else:
        idle("it belongs to the kind attention", "docs")
        if run is None or qrels is None:
            raise WrongUse("figure vectors needs --run RUN, whose documents it draws, and --qrels QRELS")
        first = read_run(run)
        if asked.id not in first:
            raise unknown("query", asked.id, first, str(run))
        ranked = first[asked.id].doc_ids[:depth]
        held.require(ranked)
        pairs = _pairs(asked, held, ranked)
        good = relevant(from_grade(read_qrels(qrels), relevant_from), asked.id)
        marks = [pair.passage.doc_id in good for pair in pairs]
        shown = _draw_vectors(rankers, compute, pairs, marks=marks, seed=seed, out=out)
    return CommandResult(shown)


def _pairs(query: Query, index: Index, doc_ids: Sequence[str]) -> list[Pair]:
    documents = index.documents.fetch(doc_ids)
    return [Pair(query, Passage(document.id, 0, document.full_text)) for document in documents]


def _draw_vectors(
    rankers: Sequence[str],
    compute: ComputeOptions,
    pairs: list[Pair],
    marks: list[bool],
    seed: int,
    out: Path,
) -> list[dict[str, Any]]:
    with needs("neural", "a picture of vectors"):
        from rankhouse.explanation.pictures import map_pairs, write_maps
    names = [Path(spec).name if Path(spec).is_dir() else spec for spec in rankers]
    maps = [
        map_pairs(name, open_ranker(spec, compute), pairs, relevant=marks, seed=seed)
        for name, spec in zip(names, rankers, strict=True)
    ]
    query = pairs[0].query
    write_maps(maps, f"{query.id}: {query.text}", out)
    return [one.to_dict() for one in maps]


def _draw_attention(
    ranker: str, compute: ComputeOptions, pairs: list[Pair], out: Path
) -> list[dict[str, Any]]:
    with needs("neural", "a picture of attention"):
        from rankhouse.explanation.pictures import attention_over, write_attention
    opened = open_ranker(ranker, compute)
    answers = [attention_over(opened, pair) for pair in pairs]
    query = pairs[0].query
    write_attention(answers, f"{query.id}: {query.text}", out)
    return [answer.to_dict() for answer in answers]
