"""How equal our rankings are to Lucene's: top ten, whole ranking, AP, for every collection and model.

    python benchmarks/lucene.py COLLECTIONS RUNS

COLLECTIONS has folders NAME with corpus.jsonl.gz, queries[.SPLIT].jsonl and qrels[.SPLIT].txt; RUNS has
Lucene's runs NAME[.SPLIT].{bm25,bm25_rm3,ql,ql_rm3}.run.gz over title and text joined by a space, k = 1000.
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from rankhouse.evaluation.measures import evaluate
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run

MODELS = {"bm25": ("bm25", ""), "bm25_rm3": ("bm25", "rm3"), "ql": ("ql", ""), "ql_rm3": ("ql", "rm3")}


def main() -> None:
    """Index every collection that has runs, search it and compare."""
    collections, runs = map(Path, sys.argv[1:3])
    print(f"{'collection':<16}{'model':<10}{'queries':>8}{'top ten':>9}{'whole':>7}{'AP':>9}{'Lucene':>9}")
    for name in sorted({path.name.split(".")[0] for path in runs.glob("*.run.gz")}):
        with tempfile.TemporaryDirectory() as scratch:
            build(read_documents([collections / name / "corpus.jsonl.gz"]), Path(scratch) / "index")
            index = Index.open(Path(scratch) / "index")
            for path in sorted(runs.glob(f"{name}.*run.gz")):
                *split, model = path.name.removesuffix(".run.gz").split(".")[1:]
                suffix = f".{split[0]}" if split else ""
                compare(index, collections / name, suffix, MODELS[model], path)


def compare(index: Index, folder: Path, suffix: str, model: tuple[str, str], path: Path) -> None:
    """Print one line of the table."""
    queries = read_queries(folder / f"queries{suffix}.jsonl")
    qrels = read_qrels(folder / f"qrels{suffix}.txt")
    ours, lucenes = retrieve(index, queries, LexicalOptions(*model)), read_run(path)
    top = sum(ours[q].doc_ids[:10] == lucenes[q].doc_ids[:10] for q in lucenes)
    whole = sum(ours[q].doc_ids == lucenes[q].doc_ids for q in lucenes)
    ap = [evaluate(run, qrels, "AP").mean("AP") for run in (ours, lucenes)]
    name = "+".join(filter(None, model))
    print(
        f"{folder.name + suffix:<16}{name:<10}{len(lucenes):>8}{top:>9}{whole:>7}{ap[0]:>9.5f}{ap[1]:>9.5f}"
    )


if __name__ == "__main__":
    main()
