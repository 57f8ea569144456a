"""rankhouse rerank: a ranker reads the first stage's documents and orders them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.cluster import chosen, clustered, run_clustered
from rankhouse.cli.given import idle, was_given
from rankhouse.cli.options import OUTPUT_FILE, options_of
from rankhouse.cli.shards import run_shard, sharded
from rankhouse.cli.verb import CommandResult, verb
from rankhouse.jobs.rerank import RerankJob, RerankWorker, facts_of, spread
from rankhouse.jobs.shards import ShardNumber
from rankhouse.ranking.pairwise import DEPTH as PAIRWISE_DEPTH
from rankhouse.systems.reranking import RerankResult


@verb(
    "rerank",
    "rankhouse rerank --run bm25.run --queries q.tsv --index my.index "
    "--ranker 'monot5(\"DIR\")' --depth 100 --out new.run",
)
@options_of(RerankJob)
@click.option("--out", type=OUTPUT_FILE, required=True, help="The run file to write.")
@sharded
@clustered
def command(job: RerankJob, out: Path, shard: ShardNumber | None, cluster: str | None) -> CommandResult:
    """Rerank a run with a neural ranker; long documents are read whole, in passages.

    What  rankhouse encode  kept for this very ranker (TK's words in context, token ids) is used at once.
    """
    if job.is_pairwise:
        idle("documents are compared two by two, from their texts", "pool", "stored", "alone", "cache")
        job = job if was_given("depth") else replace(job, depth=PAIRWISE_DEPTH)
    if (where := chosen(cluster)) is not None:
        return run_clustered(job, out, where, device=job.device)
    if shard is not None:
        return run_shard(job, shard, out)
    return _rerank(job, out)


def _rerank(job: RerankJob, out: Path) -> CommandResult:
    """Rerank on this machine, and report the result."""
    worker = job.open()
    if job.is_pairwise:
        console.say(
            f"{worker.total:,} comparisons: up to {job.depth:,} documents of each of "
            f"{len(job.first_stage):,} queries, every two of them in both orders"
        )
    with console.progress("comparing" if job.is_pairwise else "reranking", worker.total) as show:
        result = worker.rerank(show)
    worker.write(result, out)
    _warn(job, worker, result)
    facts = {"run": str(out)} | facts_of(result) | worker.unread
    if not job.is_pairwise:
        facts |= {"per_query": spread(result.report.times)}
    return CommandResult(facts, lambda: _tell(job, result, out))


def _warn(job: RerankJob, worker: RerankWorker, result: RerankResult) -> None:
    """Warn of texts that were not read whole."""
    seen = worker.ranker.report
    if not job.is_pairwise:
        console.warn_of_truncation(worker.ranker, job.ranker)
        if words := result.report.dropped_words:
            console.warn(f"{words:,} words are in no passage; --split says how many it keeps")
    elif seen.truncated:
        console.warn(
            f"{seen.truncated:,} of {seen.seen:,} comparisons did not fit into {worker.ranker.max_length} "
            f"tokens; {seen.tokens_lost:,} tokens were not read (cut passages with --split, and name the "
            'ranker that chooses one of each document: duot5("DIR", passages=RANKER))'
        )


def _tell(job: RerankJob, result: RerankResult, out: Path) -> None:
    report, scorer = result.report, result.stored
    rate = report.passages / max(result.seconds, 1e-9)
    cached = "" if job.is_pairwise else f"({report.cached:,} from the cache) "
    speed = f"{rate:,.0f} a second" if job.is_pairwise else f"{rate:,.0f} passages/s"
    console.say(
        f"{report.queries:,} queries, {report.documents:,} documents in {report.passages:,} {job.read} "
        f"{cached}in {result.seconds:.2f} s ({speed}); written to {out}"
    )
    if report.times:
        times = ", ".join(f"{name} {value:.3f}" for name, value in spread(report.times).items())
        console.say(f"seconds a query: {times}")
    if scorer is not None:
        state = scorer.store.state
        console.say(
            f"{scorer.scored:,} of them by kept {state.kind} ({state.dtype}, split {state.split}) in "
            f"{scorer.store.folder}; --no-stored does without"
        )
