"""A TK that pools in windows, taught without judgements on documents of some 800 words, beside other ways.

    python benchmarks/long_documents.py prepare DATA WORK
    python benchmarks/long_documents.py adapt WORK --name windows --ranker TK [--extra --steps 500 ...]
    python benchmarks/long_documents.py table WORK [--names passages cut windows ...]

Documents are sections of QMSum's meetings: neighbouring passages until they have ``--words`` words. A section
is relevant to a question where one of its passages is. ``prepare`` indexes sections and passages and encodes
both by all-MiniLM, sections in passages of 100 words of which the best one counts. The questions of the
development set are the test; those of the training are learned without judgements, beside what documents
ask. The teacher is a sum of BM25 and these vectors.

``adapt`` teaches a student on sections, or with ``--on passages`` on passages, by the command that a person
would type; ``--extra`` hands on what follows. ``table`` reranks the first 50 sections that BM25 finds for
each test question, by every student alone and joined at the weight that its ``adapt`` chose, and tests
against BM25 (randomization, Holm); a student of passages reads each section in passages of 100 words, of
which the best counts. A folder or run that is there already is not computed again.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shlex
import subprocess
import sys
from itertools import groupby
from pathlib import Path

import numpy as np

import rankhouse as rh
from rankhouse.core.qrels import Qrels
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import evaluate
from rankhouse.evaluation.significance import holm, randomization_test, t_interval
from rankhouse.io.corpora import read_queries
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run

WORDS = "bm25(k1=0.9, b=0.4)"
PASSAGES = "words(100)"
MEASURES = ("nDCG@10", "AP")
DEPTH = 50


def command(*words: object) -> None:
    """Run ``rankhouse``, and say what it took of the processor."""
    said, begun = ["rankhouse", *map(str, words)], os.times()
    print("$", shlex.join(said), flush=True)
    subprocess.run([sys.executable, "-m", *said], check=True)
    spent = os.times()
    print(f"{sum(spent[2:4]) - sum(begun[2:4]):.0f} s of a processor", flush=True)


def prepare(given: Path, work: Path, words: int) -> None:
    """Write sections, passages and questions with what is relevant; index and encode both."""
    work.mkdir(parents=True, exist_ok=True)
    source, section_of = given / "qmsum", dict[str, str]()
    with gzip.open(source / "passages.jsonl.gz", "rt", encoding="utf-8") as file:
        passages = [json.loads(line) for line in file]
    lines = list[str]()
    for meeting, every in groupby(passages, lambda one: one["doc_id"]):
        texts, number = list[str](), 0
        for passage in every:
            section_of[passage["id"]] = f"{meeting}.{number}"
            texts.append(passage["text"])
            if sum(len(text.split()) for text in texts) >= words:
                lines.append(json.dumps({"id": f"{meeting}.{number}", "text": "\n".join(texts)}))
                texts, number = [], number + 1
        if texts:
            lines.append(json.dumps({"id": f"{meeting}.{number}", "text": "\n".join(texts)}))
    (work / "sections.jsonl").write_text("\n".join(lines) + "\n")
    whole = [json.dumps({"id": one["id"], "text": one["text"]}) for one in passages]
    (work / "passages.jsonl").write_text("\n".join(whole) + "\n")
    for part, name in (("dev", "test"), ("train", "train")):
        judged = read_qrels(source / f"passage_qrels.{part}.txt")
        write_qrels(
            {q: {section_of[p]: g for p, g in judged[q].items() if g > 0} for q in judged},
            work / f"{name}.qrels",
        )
        asked = [query for query in read_queries(source / f"queries.{part}.jsonl") if query.id in judged]
        texts = [json.dumps({"id": query.id, "text": query.text}) for query in asked]
        (work / f"{name}.jsonl").write_text("\n".join(texts) + "\n")
    for kind, split in (("sections", ["--split", PASSAGES]), ("passages", [])):
        if not (work / kind).exists():
            command("index", work / f"{kind}.jsonl", "--out", work / kind)
        command("encode", "--index", work / kind, "--ranker", "default", *split)
    search = ("search", "--index", work / "sections", "--queries", work / "test.jsonl", "--model", WORDS)
    command(*search, "-k", DEPTH, "--out", work / "test.run")


def teacher(share: float) -> str:
    """Return the sum that teaches, as a system."""
    return f"{1 - share:g} * {WORDS} + {share:g} * dense(default)"


def adapt(work: Path, chosen: argparse.Namespace) -> None:
    """Teach one student."""
    out = work / "students" / chosen.name
    if not (out / "adapted.json").exists():
        learned = [
            "--index",
            work / chosen.on,
            "--teacher",
            teacher(chosen.share),
            "--queries",
            work / "train.jsonl",
        ]
        command("adapt", *learned, "--ranker", chosen.ranker, *chosen.extra, "--out", out)


def reranked(work: Path, name: str) -> tuple[Run, float]:
    """Return what a student makes of BM25's sections, and the weight that was chosen for it."""
    out, run = work / "students" / name, work / "runs" / f"{name}.run"
    run.parent.mkdir(exist_ok=True)
    adapted = json.loads((out / "adapted.json").read_text())
    plan = json.loads((out / "plan.json").read_text())
    if not run.exists():
        on_passages = plan["index"] != rh.Index.open(work / "sections").fingerprint
        split = ["--split", PASSAGES, "--pool", "max"] if on_passages else []
        asked = ["--run", work / "test.run", "--queries", work / "test.jsonl", "--index", work / "sections"]
        command("rerank", *asked, "--ranker", out, *split, "--depth", DEPTH, "--tail", "drop", "--out", run)
    return read_run(run), adapted["student_weight"]


def table(work: Path, names: list[str], share: float) -> None:
    """Print what each is worth on the test questions, and its difference from BM25."""
    first, qrels = read_run(work / "test.run").top(DEPTH), read_qrels(work / "test.qrels")
    runs, found = {"BM25": first}, work / "runs" / f"teacher-{share:g}.run"
    found.parent.mkdir(exist_ok=True)
    if not found.exists():
        queries, index = read_queries(work / "test.jsonl"), rh.Index.open(work / "sections")
        for label, system in {f"teacher-{share:g}": teacher(share), "vectors": "dense(default)"}.items():
            run = rh.system(f"({system}) % {DEPTH}").run(queries, index)
            write_run(run, work / "runs" / f"{label}.run", label)
    runs |= {"all-MiniLM in passages": read_run(work / "runs" / "vectors.run"), "teacher": read_run(found)}
    for name in names:
        alone, weight = reranked(work, name)
        runs[name] = alone
        runs[f"{name}, joined at {weight:g}"] = joined(alone, first, weight)
    print(compared(runs, qrels))
    students = {label: run for label, run in runs.items() if label.partition(",")[0] in names}
    for summed in (True, False):  # against the first of them
        some = {label: run for label, run in students.items() if (", joined" in label) == summed}
        if len(some) > 1:
            print(f"\n{compared(some, qrels)}")


def joined(run: Run, first: Run, weight: float) -> Run:
    """Return the sum of z-scores."""
    return rh.fuse([run, first], 'linear("z-score")', weights=[weight, 1 - weight])


def compared(runs: dict[str, Run], qrels: Qrels) -> str:
    """Return the table in Markdown, with differences from the first; Holm's correction is over its rows."""
    values = {
        measure: {
            name: np.asarray(evaluate(run, qrels, (measure,)).of(measure)) for name, run in runs.items()
        }
        for measure in MEASURES
    }
    first, *others = runs
    head = " | ".join(
        f"{measure} | difference from {first}, 95 % interval | p | Holm" for measure in MEASURES
    )
    lines, cells = [f"| {len(qrels)} questions | {head} |", "|---" * (1 + 4 * len(MEASURES)) + "|"], {}
    for measure, by_name in values.items():
        gains = {name: by_name[name] - by_name[first] for name in others}
        p = randomization_test(np.array(list(gains.values())))
        for (name, gain), raw, corrected in zip(gains.items(), p, holm(p), strict=True):
            mean, low, high = t_interval(gain)
            cells[measure, name] = f"{mean:+.3f} ({low:+.3f} to {high:+.3f}) | {raw:.4f} | {corrected:.4f}"
    for name in runs:
        row = (f"{values[m][name].mean():.3f} | {cells.get((m, name), ' | | ')}" for m in MEASURES)
        lines.append(f"| {name} | {' | '.join(row)} |")
    return "\n".join(lines)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("do", choices=("prepare", "adapt", "table"))
    parser.add_argument(
        "folders", type=Path, nargs="+", metavar="DATA WORK", help="WORK alone but for prepare."
    )
    parser.add_argument("--words", type=int, default=700, help="Words from which on a section ends.")
    parser.add_argument("--share", type=float, default=0.5, help="Of the vectors in the teacher's sum.")
    parser.add_argument("--on", choices=("sections", "passages"), default="sections")
    parser.add_argument("--name", default="windows")
    parser.add_argument("--ranker", default="tk")
    parser.add_argument("--names", nargs="*", default=["windows"])
    parser.add_argument(
        "--extra", nargs=argparse.REMAINDER, default=[], help="Options of rankhouse adapt; last."
    )
    chosen = parser.parse_args()
    work = chosen.folders[-1]
    if chosen.do == "prepare":
        prepare(chosen.folders[0], work, chosen.words)
    elif chosen.do == "adapt":
        adapt(work, chosen)
    else:
        table(work, chosen.names, chosen.share)


if __name__ == "__main__":
    main()
