"""rankhouse rerank: a ranker reads the first stage's documents and orders them anew."""

from __future__ import annotations

import time
from contextlib import ExitStack, closing
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rankhouse.app import console
from rankhouse.app.options import PATH, as_json, computing
from rankhouse.app.rankers import Means, open_ranker
from rankhouse.core import notation
from rankhouse.core.corpora import read_queries
from rankhouse.core.nouns import Ranker
from rankhouse.core.trec import read_run, write_run
from rankhouse.index.catalogue import Index
from rankhouse.rank.cache import CachedRanker
from rankhouse.rank.pool import POOLS
from rankhouse.rank.rerank import Plan, Report, rerank
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.base import NeuralRanker


@click.command(
    "rerank",
    epilog="Example:  rankhouse rerank --run bm25.run --queries q.tsv --index my.index "
    "--ranker 'monot5(\"DIR\")' --depth 100 --out new.run",
)
@click.option("--run", "run_path", type=PATH, required=True, help="The first stage's run.")
@click.option("--queries", required=True, help="The texts of its queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option("--ranker", required=True, help='A bundle folder, monot5("DIR"), crossencoder("DIR") ...')
@click.option(
    "--depth", type=click.IntRange(0), default=1000, show_default=True, help="Documents read a query."
)
@click.option(
    "--split", default="whole", show_default=True, help='whole, "sentences(10, 5)", "words(100)" ...'
)
@click.option("--pool", default="max", show_default=True, help='first, max, sum, mean, "top(3)" ...')
@click.option("--tail", type=click.Choice(["keep", "drop"]), default="keep", show_default=True,
              help="What becomes of documents below the depth.")  # fmt: skip
@click.option("--cache", type=PATH, help="Keep scores in this folder, and go on from there after a kill.")
@click.option("--tag", default="rankhouse", show_default=True, help="Name of the run, in its last column.")
@click.option("--out", type=PATH, required=True, help="The run file to write.")
@computing
@as_json
def command(
    run_path: Path,
    queries: str,
    field: str,
    index_path: Path,
    ranker: str,
    depth: int,
    split: str,
    pool: str,
    tail: Literal["keep", "drop"],
    cache: Path | None,
    tag: str,
    out: Path,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Rerank a run with a neural ranker; long documents in passages, nothing lost."""
    splitter = notation.make(split, SPLITTERS, "splitter")
    plan = Plan(split=splitter, pool=notation.make(pool, POOLS, "pool"), depth=depth, tail=tail)
    first, asked, index = read_run(run_path), read_queries(queries, field=field), Index.open(index_path)
    neural = open_ranker(ranker, Means(precision, device, threads))
    report = Report()
    total = sum(min(depth, len(ranking.doc_ids)) for ranking in first.values())
    started = time.perf_counter()
    with ExitStack() as stack:
        scorer: Ranker = neural
        if cache is not None:
            scorer = stack.enter_context(closing(CachedRanker(neural, cache)))
        show = stack.enter_context(console.progress("reranking", total))
        done = rerank(
            scorer,
            first,
            asked,
            index.documents,
            plan,
            report=report,
            progress=lambda so_far, _: show(so_far),
        )
    seconds = time.perf_counter() - started
    write_run(done, out, tag)
    _warn_of_unread(neural, report)
    if as_json:
        lost = {"truncated": neural.report.truncated, "tokens_lost": neural.report.tokens_lost}
        console.emit_json({"run": str(out), "seconds": round(seconds, 3)} | vars(report) | lost)
        return
    rate = report.passages / max(seconds, 1e-9)
    console.say(
        f"{report.queries:,} queries, {report.documents:,} documents in {report.passages:,} passages "
        f"({report.cached:,} from the cache) in {seconds:.1f} s ({rate:,.0f} passages/s); written to {out}"
    )


def _warn_of_unread(neural: NeuralRanker, report: Report) -> None:
    """Say what the ranker did not read."""
    if read := neural.report.truncated:
        console.say(
            f"warning: {read:,} of {neural.report.seen:,} passages did not fit into {neural.max_length} "
            f"tokens; {neural.report.tokens_lost:,} tokens were not read (cut smaller passages with --split)"
        )
    if report.dropped_words:
        console.say(
            f"warning: {report.dropped_words:,} words are in no passage; --split says how many it keeps"
        )
