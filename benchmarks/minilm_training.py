"""A cross-encoder and a bi-encoder from real MiniLM weights, trained by ``rankhouse train``, against BM25.

    python benchmarks/light_rankers.py prepare ../shared/data WORK --data wikiqa nfcorpus scifact
    python benchmarks/minilm_training.py train WORK MINILM [--data ...] [--seeds 1]
        [--models crossencoder similarity biencoder untaught]
    python benchmarks/minilm_training.py table WORK [--models ...]

"similarity" is the cross-encoder that begins as the similarity of the states of query and passage, with the
same settings. "untaught" is the bi-encoder as it was published. ``train`` runs the commands a person would
type and prints them: train (choosing the best step on validation), rerank of the validation and the test
run, fuse with the weight tuned on validation. A piece is one (collection, model, seed) with a folder of its
own under WORK/minilm; finished ones are not computed again, and a training that was killed goes on from its
last checkpoint. ``table`` compares with BM25 on the test. MINILM is a folder of sentence-transformers/all-
MiniLM-L6-v2. SciFact and NFCorpus: 100 BM25 documents a query, test is "dev"; WikiQA: the given candidates.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import time
from itertools import product
from pathlib import Path

import msgspec
import numpy as np

from rankhouse.evaluation.compare import compare_scores
from rankhouse.evaluation.measures import Scores, evaluate
from rankhouse.io.trec import read_qrels, read_run

DATA = ("wikiqa", "nfcorpus", "scifact")
MODELS = ("crossencoder", "biencoder")
UNTAUGHT, SIMILARITY = "untaught", "similarity"
MEASURES = ("AP", "nDCG@10", "RR@10")
SPECS = {
    "crossencoder": 'crossencoder("{folder}", new_head={seed}, max_length={length})',
    SIMILARITY: 'crossencoder("{folder}", new_head="similarity", max_length={length})',
    "biencoder": 'biencoder("{folder}", max_length={length})',
    UNTAUGHT: 'biencoder("{folder}", max_length={length})',
}
LENGTH = {"wikiqa": 96, "nfcorpus": 160, "scifact": 160}
VALID_DEPTH = {"wikiqa": 100, "nfcorpus": 20, "scifact": 20}
SETTINGS = {
    ("crossencoder", "wikiqa"): {"epochs": 2, "rate": 5e-5},
    ("crossencoder", "nfcorpus"): {
        "epochs": 1,
        "steps": 250,
        "rate": 5e-5,
        "negatives": "run(start=0, stop=100)",
        "precision": "bf16",
    },
    ("crossencoder", "scifact"): {"epochs": 3, "rate": 5e-5, "negatives": "run(start=0, stop=20)"},
    ("biencoder", "wikiqa"): {"epochs": 2, "count": 1},
    ("biencoder", "nfcorpus"): {"epochs": 1, "steps": 80, "precision": "bf16"},
    ("biencoder", "scifact"): {
        "epochs": 1,
        "count": 1,
        "negatives": "run(start=0, stop=20)",
        "precision": "bf16",
    },
}
TIMES = "seconds.json"


def command(*words: object) -> None:
    """Run rankhouse with one thread, showing the command."""
    said = ["rankhouse", *map(str, words)]
    print("$", shlex.join(said), flush=True)
    alone = {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "rankhouse", *said[1:]], check=True, env=os.environ | alone)


def train(options: argparse.Namespace) -> None:
    """Compute the pieces that are missing."""
    for name, seed, family in product(options.data, options.seeds, options.models):
        given = options.work / name
        own = options.work / options.name / f"{name}-{family}-{seed}"
        own.mkdir(parents=True, exist_ok=True)
        spec = SPECS[family].format(folder=options.minilm, seed=seed, length=LENGTH[name])
        side = {
            s: (given / f"{s}.queries.jsonl", given / f"{s}.qrels", given / f"{s}.run")
            for s in ("train", "valid", "test")
        }
        like = "crossencoder" if family == SIMILARITY else family
        settings = {**SETTINGS.get((like, name), {}), "measure": "AP"}
        changes = [f"--set={key}={value}" for key, value in settings.items()]
        ranker = spec if family == UNTAUGHT else own / "trained"
        if isinstance(ranker, Path) and not (ranker / "outcome.json").exists():
            began = time.process_time(), time.monotonic(), os.times().children_user
            command(
                "train", "--ranker", spec, "--index", given / "index",
                "--queries", side["train"][0], "--qrels", side["train"][1], "--run", side["train"][2],
                "--valid-queries", side["valid"][0], "--valid-qrels", side["valid"][1],
                "--valid-run", side["valid"][2],
                "--depth", VALID_DEPTH[name], "--seed", seed, *changes, "--out", ranker,
            )  # fmt: skip
            spent = {"wall": time.monotonic() - began[1], "cpu": os.times().children_user - began[2]}
            (own / TIMES).write_bytes(msgspec.json.encode(spent))
        for which, (queries, _, run) in side.items():
            out = own / f"{which}.run"
            if which != "train" and not out.exists():
                command(
                    "rerank", "--run", run, "--queries", queries, "--index", given / "index",
                    "--ranker", ranker, "--depth", 100, "--threads", 1, "--out", out,
                )  # fmt: skip
        if not (own / "fused.run").exists():
            command(
                "fuse", own / "valid.run", side["valid"][2], "--tune", side["valid"][1], "--measure", "AP",
                "--apply", own / "test.run", "--apply", side["test"][2], "--out", own / "fused.run",
            )  # fmt: skip


def table(options: argparse.Namespace) -> None:
    """Print every piece against BM25, with randomization tests."""
    for name in options.data:
        qrels = read_qrels(options.work / name / "test.qrels")
        systems: dict[str, Scores] = {
            "BM25": evaluate(read_run(options.work / name / "test.run"), qrels, MEASURES)
        }
        notes = {}
        for family in options.models:
            for kind, file in (("", "test.run"), (" + BM25", "fused.run")):
                paths = sorted((options.work / options.name).glob(f"{name}-{family}-*/{file}"))
                scores = [evaluate(read_run(path), qrels, MEASURES) for path in paths]
                if scores:
                    values = np.mean([s.values for s in scores], axis=0)
                    systems[family + kind] = Scores(MEASURES, scores[0].query_ids, values)
                    spent = [
                        msgspec.json.decode((p.parent / TIMES).read_bytes())
                        for p in paths
                        if (p.parent / TIMES).exists()
                    ]
                    if not kind and spent:
                        notes[family] = "training " + ", ".join(
                            f"{s['cpu'] / 60:.1f} min of one core" for s in spent
                        )
        comparison = compare_scores(systems, "BM25", "randomization", "holm")
        print(f"\n{name}: {len(comparison.query_ids)} test queries. {comparison.method}")
        for system in systems:
            cells = [comparison.cell(system, measure) for measure in MEASURES]
            said = [
                f"{c.mean:.4f}" + (f" (p {c.paired_test.corrected:.4f})" if c.paired_test else " " * 11)
                for c in cells
            ]
            print(f"  {system:<20} {'  '.join(said)}  {notes.get(system, '')}")


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("what", choices=["train", "table"])
    parser.add_argument("work", type=Path, help="the folder that light_rankers.py prepared")
    parser.add_argument("minilm", type=Path, nargs="?", help="MiniLM's folder")
    parser.add_argument("--data", nargs="+", default=list(DATA), choices=list(DATA))
    parser.add_argument("--models", nargs="+", default=list(MODELS), choices=[*MODELS, SIMILARITY, UNTAUGHT])
    parser.add_argument("--seeds", nargs="+", type=int, default=[1])
    parser.add_argument("--name", default="minilm", help="a folder for these results")
    options = parser.parse_args()
    if options.what == "table":
        table(options)
    elif options.minilm is None:
        parser.error("train needs MINILM")
    else:
        train(options)


if __name__ == "__main__":
    main()
