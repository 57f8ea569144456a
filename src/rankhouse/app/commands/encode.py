"""rankhouse encode: document vectors, words put into context, or token ids into the index."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from rankhouse.app import console
from rankhouse.app.given import idle
from rankhouse.app.options import PATH, as_json, computing
from rankhouse.app.precomputed import Storage, TokenPrecomputer, VectorPrecomputer
from rankhouse.app.rankers import ComputeOptions, open_ranker
from rankhouse.core import notation
from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Encoder, TextEncoder
from rankhouse.index.dense import faiss
from rankhouse.index.dense.encode import EncodeOptions, encode
from rankhouse.index.dense.structures import STRUCTURES
from rankhouse.index.dense.vectors import vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.precomputed.read import precomputed_folder
from rankhouse.index.precomputed.write import PrecomputeOptions, precompute
from rankhouse.ranking.pool import POOLS
from rankhouse.text.split import SPLITTERS

if TYPE_CHECKING:
    from rankhouse.models.ranker import NeuralRanker


@click.command(
    "encode",
    epilog="Example:  rankhouse encode --index my.index --ranker 'biencoder(\"DIR\")' && "
    "rankhouse search --index my.index --query TEXT --model 'dense(\"DIR\")'",
)
@click.option("--index", "index_path", type=PATH, required=True, help="The index folder.")
@click.option("--ranker", required=True, help='A bundle folder of a TK or bi-encoder, or biencoder("DIR").')
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
    opened: Any = open_ranker(ranker, ComputeOptions(precision, device, threads))
    options = _Options(split, pool, dtype, overwrite)
    is_dense = isinstance(opened, TextEncoder) and not tokens
    if vectors and not is_dense:
        raise WrongUse(f"--vectors {vectors}: a structure is built over a bi-encoder's vectors, not these")
    if is_dense:
        idle("a bi-encoder's document has the score of its best passage", "pool")
    else:
        idle("only a bi-encoder's vectors have a name", "name")
    if tokens:
        idle("token ids are whole numbers", "dtype", "precision")
    started = time.perf_counter()
    if is_dense:
        facts, sentence = _dense(index, opened, options, name, vectors)
    else:
        facts, sentence = _precompute(index, opened, options, tokens=tokens)
    seconds = time.perf_counter() - started
    if as_json:
        console.emit_json(facts | {"seconds": round(seconds, 3)})
    else:
        console.say(f"{sentence}, {seconds:.1f} s")


class _Options(NamedTuple):
    """What the options say of the encoding; no dtype is the usual one."""

    split: str
    pool: str
    dtype: Storage | None
    overwrite: bool


def _dense(
    index: Index, encoder: Encoder, options: _Options, name: str, vectors: str
) -> tuple[dict[str, object], str]:
    """Encode every passage as a vector; build a structure over them if one is named."""
    if options.dtype == "int8":
        raise WrongUse('--dtype int8: a bi-encoder\'s vectors are float32 or float16; see --vectors "sq8"')
    splitter = notation.make(options.split, SPLITTERS, "splitter")
    dtype = options.dtype or "float32"
    job = EncodeOptions(len(index), index.fingerprint, splitter, dtype=dtype, overwrite=options.overwrite)
    folder = vectors_folder(index.path, name)
    with console.progress("encoding", None, "bytes") as show:
        stored = encode(encoder, index.documents.stream(), folder, job, index.by_text(show))
    if vectors:
        with console.progress("building", len(stored)) as show:
            faiss.build(stored, vectors, progress=show)
    facts: dict[str, object] = {"vectors": len(stored), "dimension": stored.dimension}
    return facts, f"{len(stored):,} vectors of {stored.dimension} numbers in {stored.folder}"


def _precompute(
    index: Index, ranker: NeuralRanker, options: _Options, *, tokens: bool
) -> tuple[dict[str, object], str]:
    """Store what the ranker makes of every passage: its words in context, or its token ids."""
    maker = TokenPrecomputer(ranker) if tokens else VectorPrecomputer(ranker, options.dtype or "float16")
    splitter = notation.make(options.split, SPLITTERS, "splitter")
    job = PrecomputeOptions(
        len(index), index.fingerprint, splitter, options.pool, maker.chunk, overwrite=options.overwrite
    )
    with console.progress("encoding", None, "bytes") as show:
        parent, shown = precomputed_folder(index.path), index.by_text(show)
        stored = precompute(maker, index.documents.stream(), parent, job, shown)
    state = stored.state
    if state.cut:
        console.warn(
            f"{state.cut:,} of {state.passages:,} passages did not fit into {ranker.max_length} "
            f"tokens; {state.lost:,} tokens are not kept (cut smaller passages with --split)"
        )
    if state.dropped_words:
        console.warn(f"{state.dropped_words:,} words are in no passage; --split says how many")
    each = stored.nbytes / max(1, state.documents)
    facts: dict[str, object] = {
        "kept": str(stored.folder), "kind": state.kind, "dtype": state.dtype, "documents": state.documents,
        "passages": state.passages, "rows": state.rows, "bytes": stored.nbytes,
        "bytes_a_document": round(each, 1), "truncated": state.cut, "tokens_lost": state.lost,
        "without_text": state.without_text,
    }  # fmt: skip
    what = "token ids" if tokens else f"words in context ({state.dtype} vectors)"
    return facts, (
        f"{state.rows:,} {what} of {state.passages:,} passages in {stored.folder}: "
        f"{stored.nbytes / 1e6:,.1f} MB, {each:,.0f} bytes a document"
    )
