"""Losses of a ranker that reads only a share of the documents, chosen by its word embeddings.

    python benchmarks/taught.py dl20 ../shared/data WORK
    python benchmarks/see.py WORK/dl20 'crossencoder("DIR")' [--keep 0.25 0.5 0.75] [--depth 100]
    python benchmarks/see.py WORK/dl20 --pool WORK/pool     # an index of the candidates, to teach from

For each share: nDCG@10 beside that of reading everything, the paired interval of the difference, pairs read,
and the same share by rank alone (a cut of the first stage), which needs no words. The folder is one that
``light_rankers.py prepare`` or ``taught.py dl20`` wrote; scores are kept in it, so that a pair is read once.
"""

from __future__ import annotations

import argparse
import math
from functools import partial
from pathlib import Path

import rankhouse as rh
from rankhouse.index.lexical.build import BuildOptions, build


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("ranker", nargs="?")
    parser.add_argument("--pool", type=Path)
    parser.add_argument("--keep", type=float, nargs="+", default=[0.25, 0.5, 0.75])
    parser.add_argument("--depth", type=int, default=100)
    asked = parser.parse_args()
    qrels = rh.read_qrels(asked.folder / "test.qrels")
    queries = [one for one in rh.read_queries(asked.folder / "test.queries.jsonl") if one.id in qrels]
    first = rh.read_run(asked.folder / "test.run").top(asked.depth).restrict([one.id for one in queries])
    index = rh.Index.open(asked.folder / "index")
    if asked.pool:
        pooled = dict.fromkeys(doc_id for ranking in first.values() for doc_id in ranking.doc_ids)
        build((index.documents[doc_id] for doc_id in pooled), asked.pool, BuildOptions(overwrite=True))
        return
    read = partial(rh.rerank, rh.open_ranker(asked.ranker), cache=asked.folder / "scores")
    whole = read(first, queries, index, depth=asked.depth)
    runs = {"first stage": first, "all": whole}
    for keep in asked.keep:
        runs[f"see {keep:g}"] = read(first, queries, index, depth=asked.depth, see=keep)
        runs[f"best {keep:g}"] = read(first, queries, index, depth=math.ceil(keep * asked.depth))
        kept = sum(math.ceil(round(keep * len(ranking), 9)) for ranking in first.values())
        print(f"see {keep:g}: {kept:,} of {sum(map(len, first.values())):,} pairs read")
    print(rh.compare(runs, qrels, "nDCG@10", baseline="all").to_markdown())


if __name__ == "__main__":
    main()
