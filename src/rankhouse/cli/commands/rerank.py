"""rankhouse rerank: a ranker reads the first stage's documents and orders them again."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb, was_given
from rankhouse.cli.shards import ClusterChoice, ShardChoice, run_clustered, run_shard
from rankhouse.core.arguments import Option
from rankhouse.jobs.rerank import RerankJob
from rankhouse.page.tables import CommandResult
from rankhouse.ranking.pairwise import DEPTH as PAIRWISE_DEPTH


@verb(
    "rerank",
    "rankhouse rerank --run bm25.run --queries q.tsv --index my.index "
    "--ranker 'monot5(\"DIR\")' --depth 100 --out new.run",
)
def command(
    *,
    job: RerankJob,
    out: Annotated[Path, Option("The run file to write.", "output")],
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Rerank a run with a neural ranker; long documents are read whole, in passages.

    What  rankhouse encode  kept for this very ranker (TK's words in context, token ids) is used at once.
    """
    if job.is_pairwise:
        idle("documents are compared two by two, from their texts", "pool", "stored", "alone", "cache")
        job = job if was_given("depth") else replace(job, depth=PAIRWISE_DEPTH)
    if cluster.cluster is not None:
        return run_clustered(job, out, cluster.options, device=job.device)
    if shard is not None:
        return run_shard(job, shard, out)
    worker = job.open()
    if job.is_pairwise:
        console.say(
            f"{worker.total:,} comparisons: up to {job.depth:,} documents of each of "
            f"{len(job.first_stage):,} queries, each pair of them in both orders"
        )
    with console.progress("comparing" if job.is_pairwise else "reranking", worker.total) as show:
        return worker.whole(out, show)
