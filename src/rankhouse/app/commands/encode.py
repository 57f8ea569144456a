"""rankhouse encode: document vectors into the index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from rankhouse.app import console
from rankhouse.app.options import PATH, as_json, computing
from rankhouse.app.rankers import Means, open_ranker
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.index import dense_faiss
from rankhouse.index.catalogue import Index
from rankhouse.index.dense import vectors_folder
from rankhouse.index.dense_encode import Encoding, encode
from rankhouse.text.split import SPLITTERS


@click.command(
    "encode",
    epilog="Example:  rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
@click.option("--index", "index_path", type=PATH, required=True, help="The index folder.")
@click.option("--ranker", required=True, help='The encoder: a bundle folder or biencoder("DIR").')
@click.option(
    "--vectors", default="", help='Also build a FAISS structure: flat, sq8, "hnsw(m=32)", "ivf(lists=100)".'
)
@click.option(
    "--split", default="whole", show_default=True, help="One vector a passage; documents get their best."
)
@click.option("--dtype", type=click.Choice(["float32", "float16"]), default="float32", show_default=True)
@click.option("--name", default="default", show_default=True, help="Keeps several encoders' vectors apart.")
@click.option("--overwrite", is_flag=True, help="Throw away vectors of this name that another encoder made.")
@computing
@as_json
def command(
    index_path: Path,
    ranker: str,
    vectors: str,
    split: str,
    dtype: str,
    name: str,
    overwrite: bool,
    precision: str,
    device: str,
    threads: int,
    as_json: bool,
) -> None:
    """Encode an index's documents; after a kill, or after adding documents, it goes on where it was."""
    index = Index.open(index_path)
    splitter = notation.make(split, SPLITTERS, "splitter")
    if vectors:
        notation.make(vectors, dense_faiss.STRUCTURES, "vector structure")
    encoder: Any = open_ranker(ranker, Means(precision, device, threads))
    if not hasattr(encoder, "encode_passages"):
        raise WrongUse(f"{ranker}: is no encoder of texts; vectors need a bi-encoder")
    job = Encoding(len(index), index.fingerprint, splitter, dtype=dtype, overwrite=overwrite)
    started = time.perf_counter()
    with console.progress("encoding", len(index)) as show:
        made = encode(
            encoder,
            index.documents.stream(),
            vectors_folder(index_path, name),
            job,
            lambda done, _: show(done),
        )
    if vectors:
        with console.progress("building", len(made)) as show:
            dense_faiss.build(made, vectors, progress=lambda done, _: show(done))
    seconds = time.perf_counter() - started
    if as_json:
        console.emit_json({"vectors": len(made), "dimension": made.dimension, "seconds": round(seconds, 3)})
    else:
        console.say(f"{len(made):,} vectors of {made.dimension} numbers in {made.folder}, {seconds:.1f} s")
