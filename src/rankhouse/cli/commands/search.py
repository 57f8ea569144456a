"""rankhouse search: queries become a run, or one query becomes a page to read."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import click
from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.given import idle
from rankhouse.cli.options import COUNT, OUTPUT_FILE, PATH, SOURCE, FileCommand, as_json, computing, skip_bad
from rankhouse.core.errors import RankhouseWarning, WrongUse, name_few, visible
from rankhouse.core.nouns import Query
from rankhouse.core.results import Hit, SearchResult
from rankhouse.core.run import Run
from rankhouse.index.parts.parted_index import AnyIndex, PartedIndex, open_index
from rankhouse.io.corpora import read_queries
from rankhouse.io.files import Skips
from rankhouse.io.trec import write_run
from rankhouse.jobs.parts import refuse_incomplete, with_documents
from rankhouse.systems.exclude_self import own_entries, without
from rankhouse.systems.execution import Execution, with_snippets
from rankhouse.systems.notation import system
from rankhouse.systems.pairwise import PairwiseSystem
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.short_forms import short_form
from rankhouse.systems.system import Dense, Fused, Lexical, Reranked, System

T = TypeVar("T")


@click.command(
    "search",
    cls=FileCommand,
    epilog="Example:  rankhouse search --index my.index --queries queries.tsv --feedback rm3 --out rm3.run",
)
@click.argument("words", nargs=-1, type=SOURCE, metavar='[INDEX] ["TEXT"]')
@click.option("--index", "index_paths", type=PATH, multiple=True,
              help="The index folder; several, or a folder of parts, are searched as one.")  # fmt: skip
@click.option("--cluster", default="", metavar="ray|ADDRESS",
              help="Search on Ray, a worker a part: ray (started here), or a cluster's address.")  # fmt: skip
@click.option("--partial", is_flag=True, help="On a cluster: do without the parts that do not answer.")
@click.option("--queries", type=SOURCE, help="Queries: .jsonl, .tsv, TREC topics, or ir_datasets:NAME.")
@click.option("--query", help="One query, answered on the screen.")
@click.option(
    "--field", "field_name", default="", help='Which text of the queries: "title", "desc", a JSON key ...'
)
@click.option("--system", "expression", type=SOURCE,
              help='"bm25 % 100 >> crossencoder(\'DIR\')": what ranks, as one expression.')  # fmt: skip
@click.option("--model", "models", type=SOURCE, multiple=True, default=["bm25"], show_default=True,
              help="Short for a --system: bm25, ql, jm, dense(RANKER); several are fused.")  # fmt: skip
@click.option("--feedback", default="", help='Of the --model: "rm3(terms=10, docs=10, weight=0.5)".')
@click.option(
    "--fusion", default="rrf", show_default=True, help="How several models are fused: rrf, linear ..."
)
@click.option("-k", type=COUNT, help="Documents a query.  [default: 1000; 10 with --query]")
@click.option(
    "--own",
    default="keep",
    show_default=True,
    help='Where queries are documents too: "id" leaves out the one of the query\'s id, "same" if its text is '
    "the query's as well.",
)
@click.option("--tag", default="rankhouse", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=OUTPUT_FILE, help="The run file to write (TREC; .gz and .zst compress).")
@computing
@skip_bad
@as_json
def command(
    words: tuple[str, ...],
    index_paths: tuple[Path, ...],
    cluster: str,
    partial: bool,
    queries: str | None,
    query: str | None,
    field_name: str,
    expression: str | None,
    models: tuple[str, ...],
    feedback: str,
    fusion: str,
    k: int | None,
    own: str,
    tag: str,
    out: Path | None,
    precision: str,
    device: str,
    threads: int,
    skip_bad: int,
    as_json: bool,
) -> None:
    """Rank the documents of an index for many queries (a TREC run) or for one (a table with snippets).

    A --system is written in Python's precedence: a >> RANKER reranks, a % k keeps the best k, a + 0.7 * b
    sums z-scores; rrf(a, b) and linear(a, b, weights=[...]) fuse, bm25(feedback=rm3) expands.
    """
    index_paths, query = _asked(words, index_paths, query)
    if (queries is None) == (query is None):
        raise WrongUse("give either --queries FILE or --query TEXT")
    whole = short_form(models, feedback, fusion) if expression is None else system(expression)
    _refuse_idle(whole, precision, device, one_query=query is not None, short=expression is None)
    if queries is not None and out is None:
        raise WrongUse("--queries needs --out RUN, the run file to write")
    most = k or (1000 if query is None else 10)
    compute = ComputeOptions(precision, device, threads)

    def find(some: AnyIndex, asked: list[Query], most: int) -> Run:
        best = short_form(models, feedback, fusion, k=most) if expression is None else whole % most
        return ask(some, asked, best, compute)

    with opened(index_paths, cluster, partial=partial) as index:
        if query is not None:
            result = answering(index, lambda some: _answer(some, query, most, find), partial=partial)[0]
            show_answer(index, query, result, as_json=as_json)
        if queries is None or out is None:
            return
        skips = Skips(skip_bad)
        asked = read_queries(queries, skips, field_name)
        console.report_skips(skips)
        started = time.perf_counter()
        (run, entries), missing = answering(
            index, lambda some: _without_own(own, some, asked, k=most, find=find), partial=partial
        )
        seconds = time.perf_counter() - started
    warn_of_empty(run, asked)
    write_run(run, out, tag)
    if as_json:
        facts = {"run": str(out), "queries": len(run), "rows": run.rows, "seconds": round(seconds, 3)}
        facts |= ({"missing_parts": list(missing)} if partial else {}) | {"own": len(entries)}
        console.emit_json(facts | {"without_results": [q for q in run if not run[q].doc_ids]})
    else:
        console.say(f"{len(run):,} queries, {run.rows:,} rows written to {out} in {seconds:.2f} s")


@contextmanager
def opened(paths: Sequence[Path], cluster: str, *, partial: bool) -> Iterator[AnyIndex]:
    """Yield an index, or several as one: opened here, or held by a cluster as long as the block runs.

    Args:
        cluster: "ray", or a cluster's address; "" for here.

    Raises:
        PartFailed: A part does not answer.
        BadData: A folder of parts lacks a slice.
        RankhouseError: An index cannot be opened, or nobody answers at the address.
    """
    if not partial:
        refuse_incomplete(paths)
    paths = with_documents(paths)
    if not cluster:
        idle("only a --cluster has parts that may not answer", "partial")
        yield open_index(paths)
        return
    from rankhouse.cluster.search import search_cluster
    from rankhouse.cluster.session import ClusterOptions, read_address

    with search_cluster(ClusterOptions(read_address(cluster))) as held:
        yield held.index(paths, partial=partial)


def answering(index: AnyIndex, work: Callable[[AnyIndex], T], *, partial: bool) -> tuple[T, tuple[str, ...]]:
    """Return what a search finds, and the names of the parts that it was done without."""
    if not partial or not isinstance(index, PartedIndex):
        return work(index), ()
    result, living = index.partial(work)
    if living.missing:
        console.warn(f"partial result: no answer from {' and '.join(living.missing)}")
    return result, living.missing


def _answer(
    index: AnyIndex, query: str, k: int, find: Callable[[AnyIndex, list[Query], int], Run]
) -> SearchResult:
    """Search for one query, with the stretches of text that answer it best."""
    return with_snippets(index, query, find(index, [Query("query", query)], k)["query"])


def _without_own(
    rule: str,
    index: AnyIndex,
    queries: list[Query],
    k: int,
    find: Callable[[AnyIndex, list[Query], int], Run],
) -> tuple[Run, set[str]]:
    """Search for many queries: the run, and which of them are documents themselves."""
    entries = own_entries(rule, queries, index.documents)
    if rule != "keep":
        console.say(
            f"{len(entries):,} of {len(queries):,} queries are entries themselves, left out of theirs"
        )
    return without(find(index, queries, k + bool(entries)), entries, k), entries


def _asked(
    words: tuple[str, ...], indexes: tuple[Path, ...], query: str | None
) -> tuple[tuple[Path, ...], str | None]:
    """Return the index and the question, which may stand without the names of their options."""
    if len(words) > 2 or (len(words) == 2 and (indexes or query is not None)):
        raise WrongUse(
            f'{" ".join(words):.80}: write  rankhouse search INDEX "TEXT" , or --index and --query'
        )
    if words and not indexes:
        indexes, words = (Path(words[0]),), words[1:]
    if words:
        query = words[0]
    if not indexes:
        raise WrongUse('no index is named:  rankhouse search INDEX "TEXT" , or --index INDEX')
    return indexes, query


def _refuse_idle(whole: System, precision: str, device: str, *, one_query: bool, short: bool) -> None:
    """Refuse what would change nothing in this search."""
    if not short:
        idle("--system says what ranks", "models", "feedback", "fusion")
    if one_query:
        idle("they are for --queries", "out", "tag", "own", "field_name", "skip_bad")
    if not any(isinstance(part, Fused) for part in whole.walk()):
        idle("it says how several --model are fused", "fusion")
    if not any(isinstance(part, Lexical) for part in whole.walk()):
        idle("lexical models have feedback, dense ones have none", "feedback")
    if not any(isinstance(part, Dense | Reranked) for part in whole.walk()):
        reason = f"{whole} computes on the processor, in a precision of its own"
        if precision != "auto":
            idle(reason, "precision")
        if device not in {"auto", "cpu"}:
            idle(reason, "device")


def ask(index: AnyIndex, queries: list[Query], whole: System, compute: ComputeOptions) -> Run:
    """Rank by a system, with one bar over all its stages."""
    with console.progress("searching", None) as show:
        work = Execution(index, queries, compute, show)
        run = work.run(whole)
    for name, ranker in work.rankers.items():
        if not isinstance(ranker, PairwiseSystem):
            console.warn_of_truncation(ranker, name)
    return run


def warn_of_empty(run: Run, queries: Sequence[Query], why: str = "share no term with the index") -> None:
    """Say which queries found nothing, and why a TREC run cannot name them."""
    empty = [query for query in queries if not run[query.id].doc_ids]
    if empty:
        named = name_few([f'{query.id} ("{query.text[:40]}")' for query in empty])
        warnings.warn(
            f"{len(empty)} of {len(queries)} queries {why} and are absent from the run file: {named}",
            RankhouseWarning,
            stacklevel=2,
        )


def show_answer(index: AnyIndex, query: str, result: SearchResult, *, as_json: bool = False) -> None:
    """Show an answer on the screen: rank, score, title, and the best stretch of text, words highlighted."""
    hits = result.hits
    if as_json:
        keys = ("rank", "id", "score", "title", "snippet")
        console.emit_json([dict(zip(keys, hit, strict=False)) for hit in hits])
        return
    if not hits:
        kept = ", ".join(dict.fromkeys(index.analyzer(query)))
        kept = kept or "nothing: only stop words or punctuation"
        console.say(f'no document holds a term of "{query}" (terms after analysis: {kept})')
        return
    for hit in hits:
        head = Text(f"{hit.rank:>3}  ", style="dim")
        head.append(visible(hit.title or hit.doc_id), style="bold")
        head.append(f"  {hit.doc_id}  {hit.score:.4f}" if hit.title else f"  {hit.score:.4f}", style="dim")
        console.results.print(head, soft_wrap=True)
        print_stretch(hit)


def print_stretch(hit: Hit) -> None:
    """Print a hit's stretch of text, indented, its matching words highlighted."""
    text = Text(visible(hit.text))
    for start, end in hit.marks:
        text.stylize("bold yellow", start, end)
    for line in text.wrap(console.results, 95):
        console.results.print(Text("     ").append_text(line), soft_wrap=True)
