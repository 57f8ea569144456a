"""Cross-encoder students of documents' labels and of transferred ones (docs/qa-docrank.md).

    python benchmarks/label_students.py train DATA WORK MINILM RANKER [--data qmsum scifact] [--seeds 0 1 2]
    python benchmarks/label_students.py table DATA WORK MINILM RANKER [--data ...] [--seeds ...]

DATA holds the collections, MINILM is a folder of all-MiniLM-L6-v2, the teacher. RANKER names the
cross-encoder that each seed's students begin as, ``{seed}`` in it is the seed: docs/adapt.md has the command
for them (``benchmarks/taught.py adapt WORK MINILM --data dl20 --name pairs-$SEED ...``). Every seed and
collection has two students of equal steps: one learns all passages of relevant documents as relevant
(DOC-LABELLED), one those that the teacher prefers. The last model is kept.

Each student reads the best passages by BM25 of the first stage's first documents, and a document counts as
much as its best passage; its weight beside the first stage is chosen on held-out training questions. What is
finished is not computed again. ``table`` prints means over seeds, intervals of the differences over questions
(each question's mean over the seeds), and randomization tests, Holm over all of a collection's; a system
that is not finished with every seed is left out.
"""

from __future__ import annotations

import argparse
import gzip
import os
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import msgspec
import numpy as np
from numpy.typing import NDArray

import rankhouse as rh
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.evaluation.significance import holm, randomization_test, t_interval
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_run
from rankhouse.text.split import Words, readable

Floats = NDArray[np.float64]
RANKHOUSE = [sys.executable, "-m", "rankhouse.cli.main"]
WEIGHTS = tuple(number / 10 for number in range(11))
"""Shares of a student in the sum with the first stage, tried on validation."""


@dataclass(frozen=True)
class Collection:
    """A collection, and how it is cut, found, labelled and read.

    Attributes:
        limit: Words of a passage.
        best: Passages of a relevant document that the teacher labels relevant.
        model: The first stage.
        depth: Its documents that are reranked.
        read: Passages of each that are read.
        held_out: Training questions for the weight.
        measures: The first chooses the weight.
    """

    limit: int
    best: int
    model: str
    depth: int
    read: int
    held_out: int
    measures: tuple[str, ...]


COLLECTIONS = {
    "qmsum": Collection(60, 8, "ql", 5, 5, 60, ("AP", "nDCG@20")),
    "scifact": Collection(50, 1, "bm25(k1=0.9, b=0.4)", 10, 3, 80, ("nDCG@10", "AP")),
}
SETTINGS = {
    "steps": 100,
    "batch": 16,
    "rate": 5e-5,
    "dropout": 0,
    "precision": "bf16",
    "negatives": "given",
    "validate_every": 0,
}
LABELS = ("DOC-LABELLED", "transferred")


def rankhouse(*words: object) -> None:
    """Run a command, and say how long the processor worked on it."""
    begun = os.times()
    subprocess.run([*RANKHOUSE, *map(str, words)], check=True)
    spent = os.times()
    seconds = sum(spent[2:4]) - sum(begun[2:4])
    print(f"{time.strftime('%H:%M:%S')} {words[0]} {words[-1]}: {seconds:.0f} s of a processor", flush=True)


class Study:
    """One collection's files: ``own`` is their folder."""

    def __init__(self, name: str, chosen: argparse.Namespace) -> None:
        self.name, self.how = name, COLLECTIONS[name]
        self.given: Path = chosen.data_folder / name
        self.own: Path = chosen.work / name
        self.teacher, self.start = f"biencoder('{chosen.minilm}')", chosen.ranker
        self.own.mkdir(parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Index documents and passages, hold out questions, find documents, label passages of the others."""
        self._index()
        self._ask()
        for part in ("train", "valid", "test"):
            if not (self.own / f"{part}.run").exists():
                search = ("search", "--index", self.own / "index", "--queries", self.own / f"{part}.jsonl")
                rankhouse(*search, "--model", self.how.model, "-k", 100, "--out", self.own / f"{part}.run")
        for labels in LABELS:
            if not self.pairs(labels).exists():
                self._label(labels)
        for part in ("valid", "test"):
            if not (self.own / f"{part}.passages.run").exists():
                write_run(self._passages(part), self.own / f"{part}.passages.run", "bm25")

    def pairs(self, labels: str) -> Path:
        """Return the file of the pairs with these labels."""
        return self.own / f"{labels}.pairs.jsonl.gz"

    def qrels(self, part: str) -> Qrels:
        """Return the judgements of a part's questions."""
        judged = read_qrels(self.given / f"qrels.{'dev' if part == 'test' else 'train'}.txt")
        return {query: judged[query] for query in self.run(part) if query in judged}

    def run(self, part: str) -> Run:
        """Return the first stage's documents, as many as are reranked."""
        return read_run(self.own / f"{part}.run").top(self.how.depth)

    def found(self, part: str) -> Run:
        """Return the first stage's first 100."""
        return read_run(self.own / f"{part}.run")

    def _index(self) -> None:
        if (self.own / "passages").exists():
            return
        rankhouse("index", self.given / "corpus.jsonl.gz", "--out", self.own / "index")
        split = Words(self.how.limit)
        with gzip.open(self.own / "passages.jsonl.gz", "wt", encoding="utf-8") as file:
            for document in read_documents([self.given / "corpus.jsonl.gz"]):
                for passage in readable(document, split):
                    row = {"id": f"{passage.doc_id}#{passage.index}", "text": passage.text}
                    file.write(msgspec.json.encode(row).decode() + "\n")
        rankhouse("index", self.own / "passages.jsonl.gz", "--out", self.own / "passages")

    def _ask(self) -> None:
        """Write the questions: those of the test, and the training's without them, in two parts."""
        test = list(read_queries(self.given / "queries.dev.jsonl"))
        asked = {query.text.lower() for query in test}
        rest = [q for q in read_queries(self.given / "queries.train.jsonl") if q.text.lower() not in asked]
        held = set(np.random.default_rng(0).permutation(len(rest))[: self.how.held_out].tolist())
        parts = {
            "test": test,
            "valid": [query for place, query in enumerate(rest) if place in held],
            "train": [query for place, query in enumerate(rest) if place not in held],
        }
        for part, queries in parts.items():
            lines = (msgspec.json.encode({"id": query.id, "text": query.text}) for query in queries)
            (self.own / f"{part}.jsonl").write_bytes(b"\n".join(lines) + b"\n")

    def _label(self, labels: str) -> None:
        rule = f'judged("{self.given / "qrels.train.txt"}")'
        if labels == "transferred":
            rule += f' & taught("{self.teacher}", threshold=0, best={self.how.best})'
        words = [
            "label",
            "--rule",
            rule,
            "--queries",
            self.own / "train.jsonl",
            "--index",
            self.own / "index",
        ]
        words += ["--run", self.own / "train.run", "--split", f"words({self.how.limit})"]
        words += ["--negatives", "random(1, depths=(1, 50))", "--precision", "int8", "--threads", 1]
        rankhouse(*words, "--test-queries", self.own / "test.jsonl", "--out", self.pairs(labels))

    def _passages(self, part: str) -> Run:
        """Return what is read: of each document found, the best passages by BM25."""
        index, queries = rh.Index.open(self.own / "passages"), read_queries(self.own / f"{part}.jsonl")
        documents, rankings = self.run(part), {}
        every = index.retrieve(queries, "bm25(k1=0.9, b=0.4)", k=100_000, threads=1)
        for query in documents:
            taken: dict[str, dict[str, float]] = {doc_id: {} for doc_id in documents[query].doc_ids}
            for passage, score in zip(every[query].doc_ids, every[query].scores, strict=True):
                kept = taken.get(passage.rpartition("#")[0])
                if kept is not None and len(kept) < self.how.read:
                    kept[passage] = float(score)
            rankings[query] = {passage: score for kept in taken.values() for passage, score in kept.items()}
        return Run.from_rankings(rankings)

    def train(self, labels: str, seed: int) -> None:
        """Train a student, and let it read."""
        out = self.own / f"{labels}-{seed}"
        if not (out / "outcome.json").exists():
            sets = [word for name, value in SETTINGS.items() for word in ("--set", f"{name}={value}")]
            words = ["train", "--init", self.start.format(seed=seed), "--index", self.own / "index", *sets]
            rankhouse(*words, "--epochs", 1000, "--pairs", self.pairs(labels), "--seed", seed, "--out", out)
        self.read(f"{labels}-{seed}", str(out))

    def read(self, system: str, ranker: str) -> None:
        """Rerank the documents found by their best passage; those below keep their order."""
        for part in ("valid", "test"):
            out = self.own / f"{system}.{part}.run"
            if out.exists():
                continue
            words = ["rerank", "--run", self.own / f"{part}.passages.run", "--index", self.own / "passages"]
            words += ["--queries", self.own / f"{part}.jsonl", "--ranker", ranker, "--precision", "int8"]
            whole = self.own / f"{system}.{part}.passages.run"
            rankhouse(*words, "--threads", 1, "--out", whole)
            passages, best = read_run(whole), {}
            for query in passages:
                scores: dict[str, float] = {}
                for passage, score in zip(passages[query].doc_ids, passages[query].scores, strict=True):
                    scores.setdefault(passage.rpartition("#")[0], float(score))
                best[query] = scores
            write_run(Run.from_rankings(best), out, system)

    def systems(self, seeds: list[int]) -> dict[str, list[tuple[Run, Run]]]:
        """Return runs of validation and test, seed by seed, of systems that are finished with all seeds."""
        rows = {"teacher": ["teacher"], "untaught": [f"untaught-{seed}" for seed in seeds]}
        rows |= {labels: [f"{labels}-{seed}" for seed in seeds] for labels in LABELS}
        found = {}
        for row, names in rows.items():
            pairs = [(self.own / f"{name}.valid.run", self.own / f"{name}.test.run") for name in names]
            if all(path.exists() for pair in pairs for path in pair):
                found[row] = [(read_run(valid), read_run(test)) for valid, test in pairs]
        return found


def below(run: Run, first: Run) -> Run:
    """Append what the first stage found besides, below, in its order."""
    rankings = {}
    for query in first:
        scores = (
            dict(zip(run[query].doc_ids, map(float, run[query].scores), strict=True)) if query in run else {}
        )
        lowest = min(scores.values(), default=0.0)
        rest = [doc_id for doc_id in first[query].doc_ids if doc_id not in scores]
        rankings[query] = scores | {doc_id: lowest - 1 - place for place, doc_id in enumerate(rest)}
    return Run.from_rankings(rankings)


def joined(study: Study, valid: Run, test: Run) -> tuple[float, Run]:
    """Return the weight that is best on validation (of equal ones the nearest to .5), and the test's sum."""
    first = study.how.measures[0]
    tried = []
    for weight in WEIGHTS:
        both = rh.fuse([valid, study.run("valid")], 'linear("z-score")', weights=[weight, 1 - weight])
        value = evaluate(below(both, study.found("valid")), study.qrels("valid"), (first,)).of(first)
        tried.append((float(np.mean(value)), -abs(weight - 0.5), weight))
    weight = max(tried)[2]
    both = rh.fuse([test, study.run("test")], 'linear("z-score")', weights=[weight, 1 - weight])
    return weight, below(both, study.found("test"))


def table(study: Study, seeds: list[int]) -> str:
    """Return a collection's tables in Markdown: effectiveness, and differences."""
    measures, judged = study.how.measures, study.qrels("test")
    first, systems = study.found("test"), study.systems(seeds)
    runs, weights = {"first stage": [first]}, {}
    for row, pairs in systems.items():
        sums = [joined(study, *pair) for pair in pairs]
        runs[row] = [below(test, first) for _, test in pairs]
        runs[f"{row}, joined"] = [run for _, run in sums]
        weights[f"{row}, joined"] = ", ".join(f"{weight:g}" for weight, _ in sums)
    values = {
        row: {measure: per_query(every, judged, measure) for measure in measures}
        for row, every in runs.items()
    }
    lines = [f"{study.name}, {len(judged)} questions", ""]
    lines += [f"| | {' | '.join(measures)} | {measures[0]} of each seed | weights |", "|---|---|---|---|---|"]
    for row, every in values.items():
        means = " | ".join(f"{every[measure].mean():.3f}" for measure in measures)
        seeded = ", ".join(f"{value:.3f}" for value in every[measures[0]].mean(axis=1))
        lines.append(f"| {row} | {means} | {seeded} | {weights.get(row, '')} |")
    return "\n".join([*lines, "", *differences({row: every[measures[0]] for row, every in values.items()})])


def per_query(runs: list[Run], judged: Qrels, measure: str) -> Floats:
    """Return (seeds, queries) values of a measure."""
    return np.array([evaluate(run, judged, (measure,)).of(measure) for run in runs])


def differences(values: dict[str, Floats]) -> list[str]:
    """Return the rows of the differences that matter, over each query's mean of the seeds."""
    asked = [(f"transferred{end}", f"DOC-LABELLED{end}") for end in ("", ", joined")]
    asked += [(f"{row}{end}", f"untaught{end}") for end in ("", ", joined") for row in LABELS]
    asked += [(row, "first stage") for row in values if row != "first stage"]
    asked = [pair for pair in asked if all(row in values for row in pair)]
    gains = np.array([values[one].mean(axis=0) - values[other].mean(axis=0) for one, other in asked])
    p = randomization_test(gains)
    lines = [f"| difference ({len(asked)} tests) | mean, 95 % interval | p | Holm |", "|---|---|---|---|"]
    for (one, other), gain, raw, corrected in zip(asked, gains, p, holm(p), strict=True):
        mean, low, high = t_interval(gain)
        lines.append(
            f"| {one} − {other} | {mean:+.3f} ({low:+.3f} to {high:+.3f}) | {raw:.4f} | {corrected:.4f} |"
        )
    return lines


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("do", choices=("train", "table"))
    parser.add_argument("data_folder", type=Path, metavar="DATA")
    parser.add_argument("work", type=Path, metavar="WORK")
    parser.add_argument("minilm", metavar="MINILM")
    parser.add_argument("ranker", metavar="RANKER")
    parser.add_argument("--data", nargs="+", choices=COLLECTIONS, default=list(COLLECTIONS))
    parser.add_argument("--seeds", nargs="+", type=int, default=[0, 1, 2])
    chosen = parser.parse_args()
    studies = [Study(name, chosen) for name in chosen.data]
    if chosen.do == "table":
        for study in studies:
            print(table(study, chosen.seeds), flush=True)
        return
    for study in studies:
        study.prepare()
    for seed in chosen.seeds:
        for study in studies:
            for labels in LABELS:
                study.train(labels, seed)
    for study in studies:
        study.read("teacher", study.teacher)
        for seed in chosen.seeds:
            study.read(f"untaught-{seed}", chosen.ranker.format(seed=seed))


if __name__ == "__main__":
    main()
