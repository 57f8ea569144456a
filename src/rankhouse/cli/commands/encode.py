"""rankhouse encode: document vectors, words put into context, or token ids into the index."""

from __future__ import annotations

import time
from pathlib import Path

import click

from rankhouse.cli import console
from rankhouse.cli.console import CommandResult
from rankhouse.cli.options import GROWING_FOLDER, idle, options_of, verb
from rankhouse.cli.shards import ClusterChoice, answer_of, clustered, run_clustered, run_shard, sharded
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.index.dense import faiss
from rankhouse.index.dense.faiss import STRUCTURES
from rankhouse.index.index import Index
from rankhouse.jobs.encode import EncodeJob, EncodeWorker
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.jobs.shards import ShardNumber
from rankhouse.ranking.pool import POOLS
from rankhouse.text.split import SPLITTERS


@verb(
    "encode",
    "rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
@options_of(EncodeJob)
@click.option(
    "--vectors", default="", help='Also build a FAISS structure: flat, sq8, "hnsw(m=32)", "ivf(lists=100)".'
)
@click.option("--overwrite", is_flag=True, help="Throw away vectors of this name that another encoder made.")
@click.option("--out", type=GROWING_FOLDER, help="With --shard: the folder to write.")
@sharded
@clustered
def command(
    job: EncodeJob,
    cluster: ClusterChoice,
    vectors: str,
    overwrite: bool,
    out: Path | None,
    shard: ShardNumber | None,
) -> CommandResult:
    """Encode an index's documents; after a kill, or after adding documents, it resumes.

    A bi-encoder gives each passage a vector, for  search --model 'dense(...)'. A TK gives each word of a
    passage a vector, and  rerank  uses them at once. With --tokens, the token ids of a cross-encoder or
    monoT5 are kept for  rerank.
    """
    Index.open(job.index)
    notation.make(job.split, SPLITTERS, "splitter")
    notation.make(job.pool, POOLS, "pool")
    if vectors:
        notation.make(vectors, STRUCTURES, "vector structure")
    if shard is not None:
        return run_shard(job, shard, _shard_folder(out, vectors))
    idle("without --shard, what is encoded goes into the index", "out")
    if (where := cluster.options) is not None:
        options = MergeOptions(overwrite)
        encoded = run_clustered(job, Path(job.index), where, device=job.device, options=options)
        if not vectors:
            return encoded
        # a structure is built here, over what is encoded now
    worker = EncodeWorker(job, overwrite=overwrite)
    _refuse_idle(job, vectors, is_dense=worker.is_dense)
    started = time.perf_counter()
    with console.progress("encoding", None, "bytes") as show:
        done = worker.encode(show)
    if vectors and worker.vectors is not None:
        with console.progress("building", len(worker.vectors)) as show:
            faiss.build(worker.vectors, vectors, progress=show)
    seconds = time.perf_counter() - started
    facts, told = done.facts | {"seconds": round(seconds, 3)}, f"{done.sentence}, {seconds:.1f} s"
    return answer_of(done._replace(facts=facts, sentence=told))


def _refuse_idle(job: EncodeJob, vectors: str, *, is_dense: bool) -> None:
    """Refuse what would change nothing for this ranker."""
    if vectors and not is_dense:
        raise WrongUse(f"--vectors {vectors}: a structure is built over a bi-encoder's vectors, not these")
    if is_dense:
        idle("a bi-encoder's document has the score of its best passage", "pool")
    else:
        idle("only a bi-encoder's vectors have a name", "name")
    if job.tokens:
        idle("token ids are whole numbers", "dtype", "precision")


def _shard_folder(out: Path | None, vectors: str) -> Path:
    """Return where a shard goes; a structure is nothing that a shard could hold."""
    idle("a shard of another job is replaced in any case; --overwrite is for  rankhouse merge", "overwrite")
    if vectors:
        raise WrongUse(
            f"--vectors {vectors}: a structure is built over all vectors: merge the shards, then give the "
            "same command without --shard; it finds everything encoded and builds the structure"
        )
    if out is None:
        raise WrongUse("--shard writes a folder: say where it goes, like  --out parts/1")
    return out
