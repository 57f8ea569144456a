"""Is our bi-encoder the same as sentence-transformers'? Retrieval and reranking, measure by measure.

    python benchmarks/bi_encoder.py COLLECTIONS MODEL [--threads 1]

COLLECTIONS holds scifact and dl20 (corpus.jsonl.gz, queries, qrels, runs/bm25.run); MODEL is a
sentence-transformers folder. SciFact dev is searched exactly, DL20's BM25 run reranked, both by cosine: with
sentence-transformers' own vectors, with ours in float32, and in bfloat16 and int8 to see what they lose.
Needs sentence-transformers in the same environment; float32 on both sides, its default batch size.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import torch
from sentence_transformers import SentenceTransformer

from rankhouse.core.nouns import Document, FloatArray, Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run
from rankhouse.models import bundle
from rankhouse.nn.machine import choose, has_int8

Encode = Callable[[Sequence[str], bool], FloatArray]
MEASURES = "nDCG@10 RR@10 AP"


def main() -> None:
    """Print one line a system and collection."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", type=Path)
    parser.add_argument("model", type=Path)
    parser.add_argument("--threads", type=int, default=1)
    given = parser.parse_args()
    torch.set_num_threads(given.threads)
    systems = {
        "sentence-transformers fp32": theirs(given.model),
        "rankhouse fp32": ours(given.model, "fp32", given.threads),
        "rankhouse bf16": ours(given.model, "bf16", given.threads),
    }
    if has_int8():
        systems["rankhouse int8"] = ours(given.model, "int8", given.threads)
    print(f"{'system':<28}{'collection':<12}{'nDCG@10':>9}{'RR@10':>9}{'AP':>9}{'texts/s':>9}")
    for name, encode in systems.items():
        searched(name, encode, given.collections / "scifact")
        reranked(name, encode, given.collections / "dl20")


def theirs(folder: Path) -> Encode:
    """Open the folder with sentence-transformers."""
    model = SentenceTransformer(str(folder), device="cpu")

    def encode(texts: Sequence[str], of_queries: bool) -> FloatArray:  # the shape of Encode
        one_side = model.encode_query if of_queries else model.encode_document
        made: FloatArray = one_side(list(texts), normalize_embeddings=True, convert_to_numpy=True)
        return made

    return encode


def ours(folder: Path, precision: str, threads: int) -> Encode:
    """Open the folder with our bi-encoder."""
    ranker = bundle.open_ranker(f'biencoder("{folder}")', choose(precision, "cpu", threads))

    def encode(texts: Sequence[str], of_queries: bool) -> FloatArray:  # the shape of Encode
        vectors = ranker.encode_queries(texts) if of_queries else ranker.encode_passages(texts)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    return encode


def searched(name: str, encode: Encode, folder: Path) -> None:
    """Search all documents for every query."""
    documents = list(read_documents([folder / "corpus.jsonl.gz"]))
    queries = read_queries(folder / "queries.dev.jsonl")
    vectors, seconds = encoded(encode, documents)
    scores = encode([q.text for q in queries], True) @ vectors.T
    ids = np.array([d.id for d in documents])
    best = np.argsort(-scores, axis=1)[:, :1000]
    rankings = [(ids[row].tolist(), of[row]) for of, row in zip(scores, best, strict=True)]
    run = as_run(queries, rankings)
    tell(name, "scifact", run, read_qrels(folder / "qrels.dev.txt"), len(documents) / seconds)


def reranked(name: str, encode: Encode, folder: Path) -> None:
    """Reorder BM25's candidates."""
    texts = {d.id: d for d in read_documents([folder / "corpus.jsonl.gz"])}
    queries: list[Query] = read_queries(folder / "queries.jsonl")
    first = read_run(folder / "runs" / "bm25.run")
    wanted = sorted({doc_id for query in first for doc_id in first[query].doc_ids})
    vectors, seconds = encoded(encode, [texts[doc_id] for doc_id in wanted])
    row = {doc_id: i for i, doc_id in enumerate(wanted)}
    asked = encode([q.text for q in queries], True)
    rankings = []
    for query, point in zip(queries, asked, strict=True):
        doc_ids = list(first[query.id].doc_ids)
        rankings.append((doc_ids, vectors[[row[d] for d in doc_ids]] @ point))
    tell(name, "dl20", as_run(queries, rankings), read_qrels(folder / "qrels.txt"), len(wanted) / seconds)


def as_run(queries: Sequence[Query], rankings: Sequence[tuple[list[str], FloatArray]]) -> Run:
    """Make a run of document ids and scores for each query."""
    return Run.from_columns([q.id for q in queries], [r[0] for r in rankings], [r[1] for r in rankings])


def encoded(encode: Encode, documents: Sequence[Document]) -> tuple[FloatArray, float]:
    """Encode documents, and say how many seconds it took."""
    started = time.perf_counter()
    vectors = encode([d.full_text for d in documents], False)
    return vectors, time.perf_counter() - started


def tell(name: str, collection: str, run: Run, qrels: Qrels, speed: float) -> None:
    """Print a line of the table."""
    found = evaluate(run, qrels, MEASURES)
    numbers = "".join(f"{found.mean(m):>9.5f}" for m in MEASURES.split())
    print(f"{name:<28}{collection:<12}{numbers}{speed:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
