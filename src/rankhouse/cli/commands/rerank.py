"""rankhouse rerank: a ranker reads the first stage's documents and orders them anew."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from rankhouse.cli import console
from rankhouse.cli.given import idle, was_given
from rankhouse.cli.options import FROM_ZERO, LOCAL, OUTPUT_FILE, PATH, SOURCE, FileCommand, as_json, computing
from rankhouse.cli.ray_command import run_clustered
from rankhouse.cluster.ray_options import chosen, clustered
from rankhouse.core.nouns import Query
from rankhouse.core.run import Run
from rankhouse.index.index import Index
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_run, write_run
from rankhouse.jobs.command import run_shard, sharded
from rankhouse.jobs.rerank_job import RerankJob, facts_of, spread
from rankhouse.jobs.slices import Shard
from rankhouse.ranking.pairwise import DEPTH as PAIRWISE_DEPTH
from rankhouse.ranking.pairwise import comparisons
from rankhouse.ranking.rerank_plan import Report
from rankhouse.systems.pairwise import PairwiseSystem, is_pairwise, open_pairwise
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.systems.reranking import RerankOptions, RerankResult, rerank_with
from rankhouse.systems.run_tags import ranker_tag

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker

_OF_PAIRS = ("pool", "stored", "alone", "cache")


@click.command(
    "rerank",
    cls=FileCommand,
    epilog="Example:  rankhouse rerank --run bm25.run --queries q.tsv --index my.index "
    "--ranker 'monot5(\"DIR\")' --depth 100 --out new.run",
)
@click.option("--run", "run_path", type=PATH, required=True, help="The first stage's run.")
@click.option("--queries", type=SOURCE, required=True, help="The texts of its queries.")
@click.option("--field", default="", help="Which text of the queries, where they have several.")
@click.option("--index", "index_path", type=PATH, required=True, help="The index that holds the documents.")
@click.option(
    "--ranker", type=SOURCE, required=True, help='A bundle folder, monot5("DIR"), crossencoder("DIR") ...'
)
@click.option("--depth", type=FROM_ZERO, default=1000, show_default=True,
              help="Documents read a query; 50 by default for duot5.")  # fmt: skip
@click.option(
    "--split", help='"sentences(10, 5)", "words(100)" ...  [default: whole; as kept, where encode kept it]'
)
@click.option("--pool", help='first, max, sum, mean, "top(3)" ...  [default: max; as kept]')
@click.option("--stored/--no-stored", default=None,
              help="Insist on, or refuse, what encode kept.  [default: used if there]")  # fmt: skip
@click.option("--tail", type=click.Choice(["keep", "drop"]), default="keep", show_default=True,
              help="What becomes of documents below the depth.")  # fmt: skip
@click.option("--alone", is_flag=True, help="Queries one by one, as people ask them, and the time of each.")
@click.option("--cache", type=LOCAL, help="Keep scores in this folder, and go on from there after a kill.")
@click.option(
    "--tag", help="Name of the run, in its last column.  [default: the ranker's family and fingerprint]"
)
@click.option("--out", type=OUTPUT_FILE, required=True, help="The run file to write.")
@sharded
@clustered
@computing
@as_json
def command(
    run_path: Path,
    queries: str,
    field: str,
    index_path: Path,
    ranker: str,
    depth: int,
    split: str | None,
    pool: str | None,
    stored: bool | None,
    tail: Literal["keep", "drop"],
    alone: bool,
    cache: Path | None,
    tag: str | None,
    out: Path,
    shard: Shard | None,
    cluster: str | None,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Rerank a run with a neural ranker; long documents in passages, nothing lost.

    What  rankhouse encode  kept for this very ranker (TK's words in context, token ids) is used at once.
    """
    depth = _depth_of(ranker, depth)
    where = chosen(cluster)
    if shard is not None or where is not None:
        job = RerankJob(
            str(run_path), queries, str(index_path), ranker, field, depth, split or "", pool or "", tail,
            alone, stored, str(cache) if cache else None, tag, precision, device, threads,
        )  # fmt: skip
        if where is not None:
            run_clustered(job, out, where, as_json=as_json, device=device)
        elif shard is not None:
            run_shard(job, shard, out, as_json=as_json)
        return
    first, asked, index = read_run(run_path), read_queries(queries, field=field), Index.open(index_path)
    compute = ComputeOptions(precision, device, threads)
    if is_pairwise(ranker):
        options = RerankOptions(split or "", depth=depth, tail=tail)
        _compare(open_pairwise(ranker, compute), (first, asked, index), options, out, tag or "", as_json)
        return
    neural = open_ranker(ranker, compute)
    options = RerankOptions(split or "", pool or "", depth, tail, alone=alone, stored=stored, cache=cache)
    with console.progress("reranking", sum(min(depth, len(r.doc_ids)) for r in first.values())) as show:
        result = rerank_with(neural, first, asked, index, options, show)
    write_run(result.run, out, tag or ranker_tag(neural))
    console.warn_of_truncation(neural, ranker)
    report, scorer = result.report, result.stored
    if report.dropped_words:
        console.warn(f"{report.dropped_words:,} words are in no passage; --split says how many it keeps")
    if as_json:
        facts = facts_of(result) | _unread(neural) | {"per_query": spread(report.times)}
        console.emit_json({"run": str(out)} | facts)
        return
    _tell(report, result.seconds, out)
    if scorer is not None:
        state = scorer.store.state
        console.say(
            f"{scorer.scored:,} of them by kept {state.kind} ({state.dtype}, split {state.split}) in "
            f"{scorer.store.folder}; --no-stored does without"
        )


def _tell(report: Report, seconds: float, out: Path) -> None:
    rate = report.passages / max(seconds, 1e-9)
    console.say(
        f"{report.queries:,} queries, {report.documents:,} documents in {report.passages:,} passages "
        f"({report.cached:,} from the cache) in {seconds:.2f} s ({rate:,.0f} passages/s); written to {out}"
    )
    if report.times:
        times = ", ".join(f"{name} {value:.3f}" for name, value in spread(report.times).items())
        console.say(f"seconds a query: {times}")


def _unread(neural: NeuralRanker) -> dict[str, int]:
    return {"truncated": neural.report.truncated, "tokens_lost": neural.report.tokens_lost}


def _depth_of(ranker: str, depth: int) -> int:
    """Return how many documents of a query are read; refuse what has no meaning for one that compares."""
    if not is_pairwise(ranker):
        return depth
    idle("documents are compared two by two, from their texts", *_OF_PAIRS)
    return depth if was_given("depth") else PAIRWISE_DEPTH


def _compare(
    system: PairwiseSystem,
    stage: tuple[Run, Sequence[Query], Index],
    options: RerankOptions,
    out: Path,
    tag: str,
    as_json: bool,
) -> None:
    """Rerank by comparisons, whose number is said first, and write the run."""
    plan, total = system.plan(options), comparisons(stage[0], options.depth)
    console.say(
        f"{total:,} comparisons: up to {options.depth:,} documents of each of {len(stage[0]):,} queries, "
        "every two of them in both orders"
    )
    with console.progress("comparing", total) as show:
        result = system.rerank(*stage, plan, show)
    write_run(result.run, out, tag or ranker_tag(system.ranker))
    _tell_compared(system, result, out, as_json=as_json)


def _tell_compared(system: PairwiseSystem, result: RerankResult, out: Path, *, as_json: bool) -> None:
    report, seen = result.report, system.ranker.report
    if seen.truncated:
        console.warn(
            f"{seen.truncated:,} of {seen.seen:,} comparisons did not fit into {system.ranker.max_length} "
            f"tokens; {seen.tokens_lost:,} tokens were not read (cut passages with --split, and name the "
            'ranker that chooses one of each document: duot5("DIR", passages=RANKER))'
        )
    if as_json:
        lost = {"truncated": seen.truncated, "tokens_lost": seen.tokens_lost}
        console.emit_json({"run": str(out)} | facts_of(result) | lost)
        return
    rate = report.passages / max(result.seconds, 1e-9)
    console.say(
        f"{report.queries:,} queries, {report.documents:,} documents in {report.passages:,} comparisons in "
        f"{result.seconds:.2f} s ({rate:,.0f} a second); written to {out}"
    )
