"""A cross-encoder begun from all-MiniLM that training does not make worse: distil first, then judge.

    python benchmarks/light_rankers.py prepare ../shared/data WORK --data trecqa wikiqa scifact nfcorpus
    python benchmarks/taught.py dl20 ../shared/data WORK
    python benchmarks/distil_first.py prepare ../shared/data WORK
    python benchmarks/distil_first.py train WORK MINILM [--seeds 1 2] [--ways judged distilled both]
    python benchmarks/distil_first.py table WORK MINILM [--seeds 1 2] [--tests dl20 scifact nfcorpus]

What is learned from are questions, sentences and judgements of TrecQA's and WikiQA's training parts; their
development parts are validation; tests are collections of which nothing was learned: TREC DL 2020 passages
(the given BM25 run), SciFact's and NFCorpus's first 100 development queries, BM25's first 50 each.
``train`` runs the commands a person would type and prints them; what is finished is not computed again.
MINILM is a folder of sentence-transformers/all-MiniLM-L6-v2. ``table`` has the mean over seeds of every
measure, question by question, compared with BM25, with the untaught encoder and with judgements alone
(randomization, Holm).
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import msgspec
import numpy as np

import rankhouse as rh
from rankhouse.core.nouns import Document, Ranking
from rankhouse.core.run import Run
from rankhouse.evaluation.compare import compare_scores
from rankhouse.evaluation.measures import Scores, evaluate
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run

SOURCES = ("trecqa", "wikiqa")
TESTS = ("dl20", "scifact", "nfcorpus")
DEPTH, ASKED = 50, 100
LENGTH = 160
MEASURES = {"dl20": ("nDCG@10", "AP(rel=2)"), "scifact": ("nDCG@10", "AP"), "nfcorpus": ("nDCG@10", "AP")}

# The pooler keeps the encoder's rate: at 1e-3, gradients vanished after a hundred steps.
HEAD = {"rates": "{'network.classifier': 3e-4}"}
WAYS: dict[str, dict[str, object]] = {
    "judged": {"epochs": 9, "steps": 300, "rate": 5e-5, "batch": 16},
    "distilled": {
        "epochs": 99,
        "steps": 500,
        "rate": 1e-4,
        "batch": 24,
        "count": 7,
        "clip": 1.0,
        "loss": "listwise-kl",
        "dropout": 0,
        **HEAD,
    },
    "both": {"epochs": 9, "steps": 150, "rate": 2e-5, "batch": 16, "layer_decay": 0.8},
}
"""Student -> settings that differ from the family's."""


def prepare(given: Path, work: Path) -> None:
    """Put TrecQA and WikiQA together under names that tell them apart."""
    own = work / "answers"
    own.mkdir(parents=True, exist_ok=True)

    def documents() -> Iterator[Document]:
        for name in SOURCES:
            for document in read_documents([given / name / "corpus.jsonl.gz"]):
                yield document._replace(id=f"{name}-{document.id}")

    build(documents(), own / "index", BuildOptions(overwrite=True))
    for side in ("train", "valid"):
        lines, qrels, rankings = [], {}, {}
        for name in SOURCES:
            lines += [
                msgspec.json.encode({"id": f"{name}-{query.id}", "text": query.text})
                for query in read_queries(work / name / f"{side}.queries.jsonl")
            ]
            for query_id, grades in read_qrels(work / name / f"{side}.qrels").items():
                qrels[f"{name}-{query_id}"] = {f"{name}-{doc_id}": grade for doc_id, grade in grades.items()}
            run = read_run(work / name / f"{side}.run")
            for query_id in run:
                ranking = run[query_id]
                doc_ids = tuple(f"{name}-{doc_id}" for doc_id in ranking.doc_ids)
                rankings[f"{name}-{query_id}"] = Ranking(doc_ids, ranking.scores)
        (own / f"{side}.queries.jsonl").write_bytes(b"\n".join(lines) + b"\n")
        write_qrels(qrels, own / f"{side}.qrels")
        write_run(Run.from_rankings(rankings), own / f"{side}.run", "bm25")
    search = ["--queries", own / "train.queries.jsonl", "--model", "bm25(k1=0.9, b=0.4)", "-k", 30]
    command("search", "--index", own / "index", *search, "--out", own / "found.run")


def command(*words: object) -> None:
    """Run rankhouse with one thread, showing the command."""
    said = ["rankhouse", *map(str, words)]
    print("$", shlex.join(said), flush=True)
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "rankhouse", *said[1:]], check=True, env=os.environ | alone)


def train(work: Path, minilm: str, chosen: argparse.Namespace) -> None:
    """Compute the trainings that are missing."""
    own = work / "answers"
    asked = ["--index", own / "index", "--queries", own / "train.queries.jsonl"]
    held_out = ["--valid-queries", own / "valid.queries.jsonl", "--valid-qrels", own / "valid.qrels"]
    held_out += ["--valid-run", own / "valid.run"]
    for seed in chosen.seeds:
        for way in chosen.ways:
            out = work / chosen.name / f"{way}-{seed}"
            if (out / "outcome.json").exists():
                continue
            fresh = f"crossencoder({minilm!r}, new_head={seed}, max_length={LENGTH})"
            begin = ["--init", out.with_name(f"distilled-{seed}")] if way == "both" else ["--ranker", fresh]
            learned = ["--qrels", own / "train.qrels", "--run", own / "train.run"]
            if way == "distilled":
                learned = ["--run", own / "found.run", "--teacher", f"biencoder({minilm!r})"]
            settings = {"measure": "AP", "precision": "bf16"} | WAYS[way] | dict(chosen.set or [])
            changes = [f"--set={name}={value}" for name, value in settings.items()]
            began = time.monotonic(), os.times().children_user
            command("train", *begin, *asked, *learned, *held_out, "--seed", seed, *changes, "--out", out)
            spent = {"wall": time.monotonic() - began[0], "cpu": os.times().children_user - began[1]}
            (out.parent / f"{way}-{seed}.seconds.json").write_bytes(msgspec.json.encode(spent))


def _test(work: Path, name: str) -> tuple[Run, rh.Index]:
    own = work / name
    first = read_run(own / "test.run")
    qrels = read_qrels(own / "test.qrels")
    asked = [query_id for query_id in first if query_id in qrels][:ASKED]
    return first.restrict(asked).top(DEPTH), rh.Index.open(own / "index")


def _reranked(ranker: str, first: Run, index: rh.Index, queries: Path, out: Path) -> Run:
    if not out.exists():
        out.parent.mkdir(parents=True, exist_ok=True)
        asked = [query for query in read_queries(queries) if query.id in first]
        write_run(rh.rerank(ranker, first, asked, index, depth=DEPTH), out, "reranked")
    return read_run(out)


def table(work: Path, minilm: str, chosen: argparse.Namespace) -> None:
    """Rerank the tests with everything, and print the comparison."""
    home, own = work / chosen.name, work / "answers"
    valid_first, valid_qrels = read_run(own / "valid.run"), read_qrels(own / "valid.qrels")
    for name in chosen.tests:
        first, index = _test(work, name)
        judged, measures = read_qrels(work / name / "test.qrels"), MEASURES[name]
        qrels = {query_id: judged[query_id] for query_id in first}
        queries = work / name / "test.queries.jsonl"
        runs: dict[str, list[Run]] = {"BM25": [first]}
        spec = f"biencoder({minilm!r})"
        runs["all-MiniLM, untaught"] = [_reranked(spec, first, index, queries, home / f"{name}-untaught.run")]
        for way in chosen.ways:
            for seed in chosen.seeds:
                folder = home / f"{way}-{seed}"
                if not (folder / "outcome.json").exists():
                    continue
                run = _reranked(str(folder), first, index, queries, home / f"{name}-{way}-{seed}.run")
                valid = read_run(folder / "validation.run")
                tuned = [valid, valid_first.restrict(list(valid))]
                joined = rh.fuse(tuned, "linear", tune=valid_qrels, measure="AP", apply=[run, first])
                runs.setdefault(way, []).append(run)
                runs.setdefault(f"{way} + BM25", []).append(joined)
        systems = {label: _mean(some, qrels, measures) for label, some in runs.items()}
        for baseline in ("BM25", "all-MiniLM, untaught", *(["judged"] if "judged" in systems else [])):
            comparison = compare_scores(systems, baseline, "randomization", "holm")
            print(f"\n{name}, {len(comparison.query_ids)} questions, against {baseline}")
            print(comparison.to_markdown(), flush=True)


def _mean(runs: list[Run], qrels: dict[str, dict[str, int]], measures: tuple[str, ...]) -> Scores:
    """Return the mean over seeds of each question's values."""
    scores = [evaluate(run, qrels, measures) for run in runs]
    return Scores(measures, scores[0].query_ids, np.mean([one.values for one in scores], axis=0))


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("prepare", "train", "table"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second")
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=list(WAYS))
    parser.add_argument("--tests", nargs="+", default=list(TESTS), choices=list(TESTS))
    parser.add_argument("--name", default="distil-first", help="A folder for these results.")
    parser.add_argument(
        "--set", action="append", type=lambda pair: pair.split("=", 1), help="NAME=VALUE for all trainings."
    )
    chosen = parser.parse_args()
    if chosen.what == "prepare":
        prepare(chosen.first, Path(chosen.second))
        return
    (train if chosen.what == "train" else table)(chosen.first, chosen.second, chosen)


if __name__ == "__main__":
    main()
