"""rankhouse search: queries become a run, or one query becomes a page to read."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

from rich.text import Text

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse, name_few, visible, warn
from rankhouse.core.nouns import Hit, Query, SearchResult
from rankhouse.core.progress import counted
from rankhouse.core.run import Run
from rankhouse.index.lexical.manifest import FILE
from rankhouse.index.sharded.sharded_index import AnyIndex, ShardedIndex
from rankhouse.io.files import Skips
from rankhouse.io.trec import write_run
from rankhouse.jobs.search import SearchJob
from rankhouse.jobs.shards import refuse_incomplete, with_documents
from rankhouse.page.tables import CommandResult
from rankhouse.systems.execution import open_index, with_snippets
from rankhouse.systems.names import own_entries, without
from rankhouse.systems.system import Dense, FusedSystem, Lexical, RerankedSystem, Sparse
from rankhouse.text.analyze import Analyzer

T = TypeVar("T")


@verb("search", "rankhouse search --index my.index --queries queries.tsv --feedback rm3 --out rm3.run")
def command(
    *,
    words: Annotated[
        tuple[str, ...], Option(kind="source", positional=True, metavar='[INDEX] ["TEXT"]')
    ] = (),
    job: SearchJob,
    out: Annotated[
        Path | None, Option("The run file to write (TREC; .gz and .zst compress).", "output")
    ] = None,
) -> CommandResult:
    """Rank the documents of an index for many queries (a TREC run) or for one (a table with snippets).

    A --system is written in Python's precedence: a >> RANKER reranks, a % k keeps the best k, a + 0.7 * b
    sums z-scores; rrf(a, b) and linear(a, b, weights=[...]) fuse, bm25(feedback=rm3) expands.
    """
    job = with_words(words, job, "search")
    if (job.queries is None) == (job.query is None):
        raise WrongUse("give either --queries FILE or --query TEXT")
    _refuse_idle(job)
    if job.query is not None:
        return _answer(job, job.query)
    if job.queries is None or out is None:
        raise WrongUse("--queries needs --out RUN, the run file to write")
    with opened(job) as index:
        from rankhouse.io.corpora import read_queries

        skips = Skips(job.skip_bad)
        asked = read_queries(job.queries, skips, job.field)
        console.report_skips(skips)
        started = time.perf_counter()
        (run, entries), missing = answering(index, job, lambda some: _without_own(job, some, asked))
        seconds = time.perf_counter() - started
    warn_of_empty(run, asked)
    write_run(run, out, job.tag)
    facts = {"run": str(out), "queries": len(run), "rows": run.rows, "seconds": round(seconds, 3)}
    facts |= ({"missing_parts": list(missing)} if job.partial else {}) | {"own": len(entries)}
    facts |= {"without_results": [q for q in run if not run[q].doc_ids]}
    return CommandResult(
        facts,
        f"{counted(len(run), 'query', 'queries')}, {counted(run.rows, 'row')} written to {out} "
        f"in {seconds:.2f} s",
    )


@contextmanager
def opened(job: SearchJob) -> Iterator[AnyIndex]:
    """Yield an index, or several as one: opened here, or held by a cluster as long as the block runs.

    Raises ShardFailed where a shard does not answer, BadData where a folder of shards lacks one,
    RankhouseError where an index cannot be opened, or nobody answers at the address.
    """
    paths: Sequence[Path] = job.index
    if not all((path / FILE).is_file() for path in paths):  # else they are indexes, not shards of one
        if not job.partial:
            refuse_incomplete(paths)
        paths = with_documents(paths)
    if not job.cluster:
        yield open_index(paths)
        return
    from rankhouse.cluster.search import search_cluster
    from rankhouse.cluster.session import ClusterOptions, read_address

    with search_cluster(ClusterOptions(read_address(job.cluster))) as held:
        yield held.index(paths, partial=job.partial)


def answering(index: AnyIndex, job: SearchJob, search: Callable[[AnyIndex], T]) -> tuple[T, tuple[str, ...]]:
    """Return what a search finds, and the names of the shards that did not answer."""
    if not job.partial or not isinstance(index, ShardedIndex):
        return search(index), ()
    result, living = index.partial(search)
    if living.missing:
        console.warn(f"partial result: no answer from {' and '.join(living.missing)}")
    return result, living.missing


def _answer(job: SearchJob, query: str) -> CommandResult:
    """Search for one query, with the stretches of text that answer it best."""

    def find(some: AnyIndex) -> SearchResult:
        return with_snippets(some, query, _find(job, some, [Query("query", query)], job.k or 10)["query"])

    with opened(job) as index:
        result = answering(index, job, find)[0]
        keys = ("rank", "id", "score", "title", "snippet")
        facts = [dict(zip(keys, hit, strict=False)) for hit in result.hits]
        return CommandResult(facts, partial(show_answer, index.analyzer, query, result))


def _without_own(job: SearchJob, index: AnyIndex, queries: list[Query]) -> tuple[Run, set[str]]:
    """Search for many queries: the run, and which of them are documents themselves."""
    entries, k = own_entries(job.own, queries, index.documents), job.k or 1000
    if job.own != "keep":
        console.say(
            f"{len(entries):,} of {len(queries):,} queries are entries themselves, left out of theirs"
        )
    return without(_find(job, index, queries, k + bool(entries)), entries, k), entries


def _find(job: SearchJob, index: AnyIndex, queries: list[Query], k: int) -> Run:
    """Return the best k documents a query, with one bar over all stages."""
    with console.progress("searching", None, "work") as show:
        work = job.work(index, queries, show)
        run = work.run(job.best(k))
    for name, ranker in work.rankers.items():
        console.warn_of_truncation(ranker, name)
    return run


def with_words(words: tuple[str, ...], given: Any, command: str) -> Any:  # noqa: ANN401 - options of a command
    """Return options with index and question, which may stand without the names of their options."""
    if len(words) > 2 or (len(words) == 2 and (given.index or given.query is not None)):
        raise WrongUse(
            f'{" ".join(words):.80}: write  rankhouse {command} INDEX "TEXT" , or --index and --query'
        )
    if words and not given.index:
        given, words = replace(given, index=(Path(words[0]),)), words[1:]
    if not given.index:
        raise WrongUse(f'no index is named:  rankhouse {command} INDEX "TEXT" , or --index INDEX')
    if words and given.queries is None and os.path.isfile(words[0]):  # noqa: PTH113 - Path raises for long ones
        warn(f'"{words[0]}" is searched for as a question; the questions of this file are asked by --queries')
    return replace(given, query=words[0]) if words else given


def _refuse_idle(job: SearchJob) -> None:
    """Refuse what would change nothing in this search."""
    whole = job.best()
    if job.system is not None:
        idle("--system says what ranks", "models", "feedback", "fusion")
    if job.query is not None:
        idle("of use only with --queries", "out", "tag", "own", "field", "skip_bad")
    if not any(isinstance(part, FusedSystem) for part in whole.walk()):
        idle("it says how several --model are fused", "fusion")
    if not any(isinstance(part, Lexical) for part in whole.walk()):
        idle("lexical models have feedback, dense ones have none", "feedback")
    if not any(isinstance(part, Dense | Sparse | RerankedSystem) for part in whole.walk()):
        reason = f"{whole} computes on the processor, in a precision of its own"
        if job.precision != "auto":
            idle(reason, "precision")
        if job.device not in {"auto", "cpu"}:
            idle(reason, "device")


def warn_of_empty(run: Run, queries: Sequence[Query], why: str = "share no term with the index") -> None:
    """Say which queries found nothing, and why a TREC run cannot name them."""
    empty = [query for query in queries if not run[query.id].doc_ids]
    if empty:
        named = name_few([f'{query.id} ("{query.text[:40]}")' for query in empty])
        warn(f"{len(empty)} of {len(queries)} queries {why} and are absent from the run file: {named}")


def show_answer(analyzer: Analyzer, query: str, result: SearchResult) -> None:
    """Show an answer on the screen: rank, score, title, and the best stretch of text, words highlighted."""
    hits = result.hits
    if not hits:
        kept = ", ".join(dict.fromkeys(analyzer(query)))
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
