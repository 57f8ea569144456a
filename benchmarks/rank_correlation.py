"""How int8 orders real candidates beside fp32, and which instruction sets give the same bits.

    OMP_NUM_THREADS=1 python benchmarks/rank_correlation.py RANKER COLLECTION [--queries 20]
        [--candidates 100] [--split test] [--run RUN] [--sets all avx512 avx2] [--precisions int8 bf16]

RANKER is a trained one, 'biencoder("DIR")' or a bundle's folder: a random head orders documents by noise.
COLLECTION holds corpus.jsonl.gz and queries.jsonl (with --split, queries.SPLIT.jsonl). Candidates are the
best by BM25 over its documents, or those of a run. Each set is a process of its own, which RANKHOUSE_CPU
limits. Printed: the mean over queries of Spearman's correlation of the scores with fp32's (of the first set),
the lowest one, pairs a processor second, the first line whose scores are equal to the bit, and a hash of all
scores, to be compared with another machine's.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import pickle
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from scipy.stats import spearmanr

SETS = {"all": "", "avx512": "avx512", "avx2": "avx2"}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("ranker")
    parser.add_argument("collection", type=Path)
    parser.add_argument("--queries", type=int, default=20)
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--split", default="")
    parser.add_argument("--run", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--precisions", nargs="+", choices=["int8", "bf16"], default=["int8"])
    parser.add_argument("--child", nargs=2, help=argparse.SUPPRESS)
    return parser.parse_args()


def candidates(given: argparse.Namespace) -> list[tuple[str, list[str]]]:
    """Return queries and the texts of their candidates."""
    import rankhouse as rh

    name = f"queries.{given.split}.jsonl" if given.split else "queries.jsonl"
    queries = list(rh.read_queries(given.collection / name))
    documents = list(rh.read_documents(given.collection / "corpus.jsonl.gz"))
    step = max(1, len(queries) // given.queries)
    queries = queries[::step][: given.queries]
    if given.run:
        ranked = {q: list(ranking.doc_ids) for q, ranking in rh.read_run(given.run).items()}
    else:
        with tempfile.TemporaryDirectory() as folder:
            index = rh.Index.build(documents, f"{folder}/c.index")
            ranked = {q.id: list(index.search(q.text, k=given.candidates).doc_ids) for q in queries}
    texts = {each.id: each.text for each in documents}
    return [(q.text, [texts[d] for d in ranked[q.id][: given.candidates]]) for q in queries if q.id in ranked]


def serve(ranker: str, precision: str, file: Path) -> None:
    """Score the candidates in a file, and write scores and seconds beside it."""
    import torch

    from rankhouse.core.nouns import Pair, Passage, Query
    from rankhouse.models.bundle import open_ranker
    from rankhouse.nn.machine import choose, in_use

    torch.set_num_threads(1)
    model = open_ranker(ranker, choose(precision, "cpu", 1))
    asked = pickle.loads(file.read_bytes())  # our own file
    scores, seconds = [], 0.0
    for query, texts in asked:
        pairs = [Pair(Query("q", query), Passage(str(i), 0, text)) for i, text in enumerate(texts)]
        start = time.process_time()
        scores.append(np.asarray(model.score(pairs)))
        seconds += time.process_time() - start
    file.with_suffix(".scores").write_bytes(pickle.dumps((scores, seconds, in_use()[precision])))


def scored(given: argparse.Namespace, precision: str, limit: str, file: Path) -> tuple[list, float, str]:
    """Return what another process scores, limited to some instructions."""
    command = [sys.executable, __file__, given.ranker, str(given.collection), "--child", precision, str(file)]
    subprocess.run(command, env=os.environ | {"RANKHOUSE_CPU": SETS[limit]}, check=True)
    return pickle.loads(file.with_suffix(".scores").read_bytes())  # our own file


def main() -> None:
    given = arguments()
    if given.child:
        serve(given.ranker, given.child[0], Path(given.child[1]))
        return
    asked = candidates(given)
    print(f"{given.collection.name}: {len(asked)} queries, {sum(len(t) for _, t in asked):,} pairs")
    print("| precision | set | correlation, mean | lowest | pairs/s | bits equal to | hash | computed by |")
    print("| --- | --- | ---: | ---: | ---: | --- | --- | --- |")
    seen: dict[bytes, str] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "asked"
        file.write_bytes(pickle.dumps(asked))
        exact, _, _ = scored(given, "fp32", given.sets[0], file)
        for precision in given.precisions:
            for limit in given.sets:
                scores, seconds, by = scored(given, precision, limit, file)
                each = [spearmanr(a, b).statistic for a, b in zip(scores, exact, strict=True) if len(a) > 1]
                digest = hashlib.sha256(np.concatenate(scores).tobytes()).digest()
                first = seen.setdefault(digest, f"{precision} {limit}")
                same = "" if first == f"{precision} {limit}" else first
                rate = sum(map(len, scores)) / seconds
                line = f"{np.mean(each):.4f} | {min(each):.4f} | {rate:.1f} | {same} | {digest.hex()[:12]}"
                print(f"| {precision} | {limit} | {line} | {by} |", flush=True)


if __name__ == "__main__":
    main()
