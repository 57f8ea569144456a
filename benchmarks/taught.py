"""Students taught without judgements (``rankhouse adapt``), against BM25 and the teacher.

    python benchmarks/light_rankers.py prepare ../shared/data WORK --data nfcorpus scifact wikiqa trecqa
    python benchmarks/taught.py dl20 ../shared/data WORK
    python benchmarks/taught.py adapt WORK MINILM [--data dl20 nfcorpus ...] [--steps 2000] [--name taught]
    python benchmarks/taught.py table WORK MINILM [--data ...] [--name taught]
    python benchmarks/taught.py encoder ../shared/data WORK [--data cacm ...] [--steps 100] [--extra ...]
    python benchmarks/taught.py parts ../shared/data WORK [--data dl20 ...] [--minutes 20]

``dl20`` prepares TREC DL 2020 passages: the given BM25 run is reranked, and grades from 2 up count for AP.
``adapt`` runs the command a person would type; test questions are kept apart, and their judgements serve
reports only. MINILM is a folder of sentence-transformers/all-MiniLM-L6-v2. One seed; a folder that was
finished is not computed again. ``table`` reranks the test run, 100 documents a query, alone and joined with
BM25 by the weight that ``adapt`` chose, and tests against BM25 (randomization, Holm).

``encoder`` teaches all-MiniLM (``default``) what the sum of BM25 and all-MiniLM finds, encodes the documents
again, and searches the whole index: BM25, the encoder untaught and taught, and the sum with either; tested
against the untaught encoder and against the untaught sum. Test questions and judgements serve the table only.

``parts`` teaches a TK from all-MiniLM within so many minutes and says what each part of it took, in seconds
of the clock and of the processor.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path

import msgspec

import rankhouse as rh
from rankhouse.adaptation.adapt import adapt_with
from rankhouse.adaptation.options import AdaptJob
from rankhouse.core.progress import Progress, ignore
from rankhouse.index.lexical.build import BuildOptions, build
from rankhouse.io.corpora import read_documents, read_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run

DATA = ("dl20", "nfcorpus", "scifact", "wikiqa", "trecqa")
DEPTH = 100


def prepare_dl20(given: Path, work: Path) -> None:
    own = work / "dl20"
    own.mkdir(parents=True, exist_ok=True)
    build(read_documents([given / "dl20" / "corpus.jsonl.gz"]), own / "index", BuildOptions(overwrite=True))
    queries = read_queries(given / "dl20" / "queries.jsonl")
    lines = (msgspec.json.encode({"id": query.id, "text": query.text}) for query in queries)
    (own / "test.queries.jsonl").write_bytes(b"\n".join(lines) + b"\n")
    write_qrels(read_qrels(given / "dl20" / "qrels.txt"), own / "test.qrels")
    write_run(read_run(given / "dl20" / "runs" / "bm25.run"), own / "test.run", "bm25")


def adapt(work: Path, teacher: str, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        own, out = work / data, work / chosen.name / data
        if (out / "adapted.json").exists():
            continue
        command = [
            "rankhouse",
            "adapt",
            "--index",
            str(own / "index"),
            "--teacher",
            teacher,
            "--out",
            str(out),
        ]
        command += ["--steps", str(chosen.steps), *(chosen.extra or [])]
        command += [
            "--test-queries",
            str(own / "test.queries.jsonl"),
            "--test-qrels",
            str(own / "test.qrels"),
        ]
        print(shlex.join(command), flush=True)
        subprocess.run(command, check=True)


def table(work: Path, teacher: str, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        own, out = work / data, work / chosen.name / data
        if not (out / "adapted.json").exists():
            continue
        adapted = msgspec.json.decode((out / "adapted.json").read_bytes())
        weight = adapted.get("student_weight", adapted.get("pupil_weight"))  # its name until version 0.2
        queries, first = read_queries(own / "test.queries.jsonl"), read_run(own / "test.run").top(DEPTH)
        index, qrels = rh.Index.open(own / "index"), read_qrels(own / "test.qrels")
        first = first.restrict([query.id for query in queries if query.id in qrels])
        alone = rh.rerank(str(out), first, queries, index, depth=DEPTH)
        runs = {"BM25": first, "student": alone}
        for share in sorted({0.3, 0.5, 0.7, weight}):
            joined = rh.fuse([alone, first], 'linear("z-score")', weights=[share, 1 - share])
            runs[f"student {share:g} + BM25" + (" (chosen)" if share == weight else "")] = joined
        runs["teacher"] = rh.rerank(teacher, first, queries, index, depth=DEPTH)
        measures = "nDCG@10 AP(rel=2) RR@10" if data == "dl20" else "nDCG@10 AP RR@10"
        comparison = rh.compare(
            runs, qrels, measures, baseline="BM25", test="randomization", correction="holm"
        )
        print(f"\n{data}\n{comparison.to_markdown()}", flush=True)


WORDS = "bm25(k1=0.9, b=0.4)"
PLACES = {"nfcorpus": ".dev", "scifact": ".dev", "trecqa": ".test", "wikiqa": ".test"}
"""Collections whose test is a part of their questions -> what the names of its files have."""


def encoder(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        own, out, source = work / data, work / chosen.name / data, given / data
        index, taught = own / "index", f"{chosen.name}-{data}"
        hybrid = f"0.3 * {WORDS} + 0.7 * dense(default)"
        if not index.exists():
            command("index", source / "corpus.jsonl.gz", "--out", index)
        command("encode", "--index", index, "--ranker", "default")
        if not (out / "adapted.json").exists():
            learned = ["--ranker", 'biencoder("default")', "--teacher", hybrid, "--steps", chosen.steps]
            command("adapt", "--index", index, *learned, "--out", out, *(chosen.extra or []))
        command("encode", "--index", index, "--ranker", out, "--name", taught)
        side = PLACES.get(data, "")
        queries, qrels = source / f"queries{side}.jsonl", read_qrels(source / f"qrels{side}.txt")
        dense = f"dense({str(out)!r}, name={taught!r})"
        systems = {
            "BM25": WORDS,
            "all-MiniLM": "dense(default)",
            "BM25 + all-MiniLM": hybrid,
            "taught": dense,
            "BM25 + taught": f"0.3 * {WORDS} + 0.7 * {dense}",
        }
        asked = [query for query in read_queries(queries) if query.id in qrels]
        for baseline in ("all-MiniLM", "BM25 + all-MiniLM"):
            table = rh.compare(
                systems,
                asked,
                qrels,
                index,
                "nDCG@10 AP",
                baseline=baseline,
                test="randomization",
                correction="holm",
            )
            print(f"\n{data}, {len(asked)} questions, against {baseline}\n{table.to_markdown()}", flush=True)


def parts(given: Path, work: Path, chosen: argparse.Namespace) -> None:
    for data in chosen.data:
        index, out = work / data / "index", work / chosen.name / data
        if not index.exists():
            command("index", given / data / "corpus.jsonl.gz", "--out", index)
        began: list[tuple[str, float, float]] = []

        def show(name: str, began: list[tuple[str, float, float]] = began) -> Progress:
            began.append((name, time.monotonic(), time.process_time()))
            return ignore

        job = AdaptJob(index=index, teachers=("default",), minutes=chosen.minutes)
        show("opening")
        with ExitStack() as stack:
            result = adapt_with(job.adaptation(out, {}, show, stack))
        show("end")
        print(f"\n{data}: {result.questions:,} questions, {result.steps:,} steps\n")
        print("| part | seconds | of the processor |\n|---|---:|---:|")
        for (name, clock, own), (_, clock_after, own_after) in pairwise(began):
            print(f"| {name} | {clock_after - clock:.0f} | {own_after - own:.0f} |")


def command(*words: object) -> None:
    said = ["rankhouse", *map(str, words)]
    print("$", shlex.join(said), flush=True)
    subprocess.run([sys.executable, "-m", *said], check=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("dl20", "adapt", "table", "encoder", "parts"))
    parser.add_argument("first", type=Path)
    parser.add_argument("second")
    parser.add_argument("--data", nargs="+", default=DATA)
    parser.add_argument("--steps", type=int, default=2000, help="Minutes would depend on the machine's load.")
    parser.add_argument("--minutes", type=float, default=20.0)
    parser.add_argument("--name", default="taught")
    parser.add_argument("--extra", nargs=argparse.REMAINDER, help="Further options of rankhouse adapt.")
    chosen = parser.parse_args()
    if chosen.what == "dl20":
        prepare_dl20(chosen.first, Path(chosen.second))
        return
    if chosen.what in ("encoder", "parts"):
        (encoder if chosen.what == "encoder" else parts)(chosen.first, Path(chosen.second), chosen)
        return
    teacher = f"biencoder({str(chosen.second)!r})"
    (adapt if chosen.what == "adapt" else table)(chosen.first, teacher, chosen)


if __name__ == "__main__":
    sys.exit(main())
