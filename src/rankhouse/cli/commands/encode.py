"""rankhouse encode: document vectors, words put into context, or token ids into the index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rankhouse.cli import console
from rankhouse.cli.cluster import chosen, clustered, run_clustered
from rankhouse.cli.given import idle
from rankhouse.cli.options import ADDED_TO, GROWING_FOLDER, SOURCE, FileCommand, as_json, computing
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.index.dense import faiss
from rankhouse.index.dense.faiss import STRUCTURES
from rankhouse.index.dense.vectors import vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import precomputed_folder
from rankhouse.jobs.command import run_shard, sharded
from rankhouse.jobs.encode_job import EncodeJob
from rankhouse.jobs.encoding import (
    Encoding,
    Source,
    encode_vectors,
    keep_passages,
    losses,
    passages_facts,
    vectors_facts,
)
from rankhouse.jobs.jobs import MergeOptions
from rankhouse.jobs.slices import Shard
from rankhouse.ranking.pool import POOLS
from rankhouse.systems.precomputed import Storage
from rankhouse.systems.rankers import ComputeOptions, open_ranker
from rankhouse.text.split import SPLITTERS


@click.command(
    "encode",
    cls=FileCommand,
    epilog="Example:  rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
@click.option("--index", "index_path", type=ADDED_TO, required=True, help="The index folder.")
@click.option(
    "--ranker", type=SOURCE, required=True, help='A bundle folder of a TK or bi-encoder, or biencoder("DIR").'
)
@click.option("--tokens", is_flag=True, help="Keep the token ids that a cross-encoder or monoT5 reads.")
@click.option(
    "--vectors", default="", help='Also build a FAISS structure: flat, sq8, "hnsw(m=32)", "ivf(lists=100)".'
)
@click.option("--split", default="whole", show_default=True, help="How documents are cut into passages.")
@click.option("--pool", default="max", show_default=True, help="TK: how rerank is to pool passages.")
@click.option(
    "--dtype",
    type=click.Choice(["float32", "float16", "int8"]),
    help="Number format of vectors; int8 for TK only.  [default: float32; TK: float16]",
)
@click.option("--name", default="default", show_default=True, help="Keeps several encoders' vectors apart.")
@click.option("--overwrite", is_flag=True, help="Throw away vectors of this name that another encoder made.")
@click.option("--out", type=GROWING_FOLDER, help="With --shard: the part to write.")
@sharded
@clustered
@computing
@as_json
def command(
    index_path: Path,
    ranker: str,
    tokens: bool,
    vectors: str,
    split: str,
    pool: str,
    dtype: Storage | None,
    name: str,
    overwrite: bool,
    out: Path | None,
    shard: Shard | None,
    cluster: str | None,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Encode an index's documents; after a kill, or after adding documents, it goes on where it was.

    A bi-encoder gives each passage a vector, for  search --model 'dense(...)'. A TK gives each word of a
    passage a vector, and  rerank  uses them at once. With --tokens, the token ids of a cross-encoder or
    monoT5 are kept for  rerank.
    """
    index = Index.open(index_path)
    notation.make(split, SPLITTERS, "splitter")
    notation.make(pool, POOLS, "pool")
    if vectors:
        notation.make(vectors, STRUCTURES, "vector structure")
    job = EncodeJob(str(index_path), ranker, tokens, split, pool, dtype, name, precision, device, threads)
    if shard is not None:
        run_shard(job, shard, _part_folder(out, vectors), as_json=as_json)
        return
    idle("without --shard, what is encoded goes into the index", "out")
    if (where := chosen(cluster)) is not None:
        merging = MergeOptions(overwrite)
        run_clustered(
            job, index_path, where, as_json=as_json, device=device, options=merging, tell=not vectors
        )
        if not vectors:
            return  # a structure is built here, over what is encoded now
    opened = open_ranker(ranker, ComputeOptions(precision, device, threads))
    encoding = Encoding(opened, split, pool, dtype, tokens, overwrite)
    if vectors and not encoding.is_dense:
        raise WrongUse(f"--vectors {vectors}: a structure is built over a bi-encoder's vectors, not these")
    if encoding.is_dense:
        idle("a bi-encoder's document has the score of its best passage", "pool")
    else:
        idle("only a bi-encoder's vectors have a name", "name")
    if tokens:
        idle("token ids are whole numbers", "dtype", "precision")
    started = time.perf_counter()
    facts, sentence = (
        _dense(index, encoding, name, vectors) if encoding.is_dense else _passages(index, encoding)
    )
    seconds = time.perf_counter() - started
    if as_json:
        console.emit_json(facts | {"seconds": round(seconds, 3)})
    else:
        console.say(f"{sentence}, {seconds:.1f} s")


def _part_folder(out: Path | None, vectors: str) -> Path:
    """Return where a part goes; a structure is nothing that a part could hold."""
    idle("a part of another job is replaced in any case; --overwrite is for  rankhouse merge", "overwrite")
    if vectors:
        raise WrongUse(
            f"--vectors {vectors}: a structure is built over all vectors: merge the parts, then give the "
            "same command without --shard; it finds everything encoded and builds the structure"
        )
    if out is None:
        raise WrongUse("--shard makes a part: say where it goes, like  --out parts/1")
    return out


def _dense(index: Index, encoding: Encoding, name: str, vectors: str) -> tuple[dict[str, Any], str]:
    """Encode every passage as a vector; build a structure over them if one is named."""
    source = Source(index.documents.stream(), len(index), index.fingerprint)
    with console.progress("encoding", None, "bytes") as show:
        stored = encode_vectors(encoding, source, vectors_folder(index.path, name), index.by_text(show))
    if vectors:
        with console.progress("building", len(stored)) as show:
            faiss.build(stored, vectors, progress=show)
    return vectors_facts(stored)


def _passages(index: Index, encoding: Encoding) -> tuple[dict[str, Any], str]:
    """Store what the ranker makes of every passage: its words in context, or its token ids."""
    source = Source(index.documents.stream(), len(index), index.fingerprint)
    with console.progress("encoding", None, "bytes") as show:
        stored = keep_passages(encoding, source, precomputed_folder(index.path), index.by_text(show))
    for loss in losses(stored, encoding.ranker.max_length):
        console.warn(loss)
    return passages_facts(stored)
