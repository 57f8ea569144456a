"""rankhouse encode: vectors or impacts of documents, words in context, or token ids into the index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

from rankhouse.cli import console
from rankhouse.cli.options import idle, verb
from rankhouse.cli.shards import ClusterChoice, ShardChoice, run_clustered, run_shard
from rankhouse.core import notation
from rankhouse.core.arguments import Option
from rankhouse.core.errors import WrongUse
from rankhouse.index.dense import faiss
from rankhouse.index.dense.faiss import STRUCTURES
from rankhouse.index.index import Index
from rankhouse.jobs.encode import EncodeJob, EncodeWorker
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.page.tables import CommandResult


@verb(
    "encode",
    "rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
def command(
    *,
    job: EncodeJob,
    vectors: Annotated[
        str, Option('Also build a FAISS structure: flat, sq8, "hnsw(m=32)", "ivf(lists=100)".')
    ] = "",
    overwrite: Annotated[bool, Option("Replace vectors of this name that another encoder made.")] = False,
    out: Annotated[Path | None, Option("With --shard: the folder to write.", "growing")] = None,
    shard: ShardChoice = None,
    cluster: ClusterChoice,
) -> CommandResult:
    """Encode an index's documents; after a kill, or after adding documents, it resumes.

    A bi-encoder gives each passage a vector, for  search --model 'dense(...)'; a sparse encoder gives each
    document weights of words, for  search --system 'sparse(...)'. A TK gives each word of a
    passage a vector, and  rerank  uses them at once. With --tokens, the token ids of a cross-encoder or
    monoT5 are kept for  rerank.
    """
    Index.open(job.index)
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
    _refuse_idle(job, vectors, worker)
    started = time.perf_counter()
    with console.progress("encoding", None, "bytes") as show:
        done = worker.encode(show)
    if vectors and worker.vectors is not None:
        with console.progress("building", len(worker.vectors)) as show:
            faiss.build(worker.vectors, vectors, progress=show)
    seconds = time.perf_counter() - started
    facts, told = done.facts | {"seconds": round(seconds, 3)}, f"{done.shown}, {seconds:.1f} s"
    return done._replace(facts=facts, shown=told)


def _refuse_idle(job: EncodeJob, vectors: str, worker: EncodeWorker) -> None:
    """Refuse what would change nothing for this ranker."""
    if vectors and not worker.is_dense:
        raise WrongUse(f"--vectors {vectors}: a structure is built over a bi-encoder's vectors, not these")
    if worker.is_dense:
        idle("a bi-encoder's document has the score of its best passage", "pool")
    elif worker.is_sparse:
        idle("a document has the largest weight of each word in any passage", "pool")
    else:
        idle("only vectors of a bi-encoder and impacts of a sparse encoder have a name", "name")
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
