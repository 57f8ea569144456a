"""rankhouse and tantivy side by side under search-benchmark-game's protocol, in one run.

    python benchmarks/arena/arena.py [--documents 200000] [--rounds 3] [--tantivy PYTHON] [--queries FILE]
    python benchmarks/arena/arena.py --corpus corpus.jsonl.gz --tantivy PYTHON

Both engines are the executables beside this file, a process each on one core, asked line by line as the
game's client asks, in turns round by round; the time of a query is the least of all rounds, after one that
is not counted. The corpus is that of zipf_collection.py, or JSON lines (title and text in lower case, letters
only, as the game prepares Wikipedia). Queries are those of the game's file (JSON lines of {"query", "tags"}),
or 200 of the collection, each as a union, an intersection and a phrase. PYTHON is an interpreter that has
tantivy.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
COMMANDS = ("TOP_10", "TOP_10_COUNT", "TOP_1000", "COUNT")
KINDS = {"union": "{}", "intersection": "+{}", "phrase": "{}"}
Queries = list[tuple[str, str]]
"""Kind and query."""


def prepared(corpus: Path) -> Iterator[dict[str, str]]:
    """Read a collection as the game prepares it."""
    with (gzip.open if corpus.suffix == ".gz" else open)(corpus, "rt") as lines:
        for record in map(json.loads, lines):
            text = f"{record.get('title', '')} {record['text']}".lower()
            yield {"id": str(record.get("id", record.get("_id"))), "text": re.sub("[^a-z]+", " ", text)}


def of_zipf(folder: Path, documents: int) -> Iterator[dict[str, str]]:
    """Make a synthetic collection."""
    sys.path.insert(0, str(HERE.parent))
    import zipf_collection

    zipf_collection.write(folder, documents, queries=200)
    for line in (folder / "corpus.tsv").open():
        doc_id, text = line.rstrip("\n").split("\t", 1)
        yield {"id": doc_id, "text": text}


def in_kinds(texts: list[str]) -> Queries:
    """Ask for the same words in three ways."""
    found: Queries = []
    for words in map(str.split, texts):
        found += [("union", " ".join(words)), ("intersection", " ".join(f"+{word}" for word in words))]
        found.append(("phrase", f'"{" ".join(words)}"'))
    return found


def read_queries(path: Path) -> Queries:
    """Read the game's file."""
    records = map(json.loads, path.open())
    return [(next((t for t in r["tags"] if t in KINDS), "other"), r["query"]) for r in records]


class Engine:
    """An engine of which a process answers."""

    def __init__(self, name: str, python: str, folder: Path) -> None:
        self.name, self._python, self.index = name, python, folder / name

    def _command(self, program: str) -> list[str]:
        core = str(max(os.sched_getaffinity(0)))
        return [
            "taskset",
            "-c",
            core,
            self._python,
            str(HERE / f"{program}.py"),
            str(self.index),
            "--engine",
            self.name,
        ]

    def build(self, corpus: Path) -> float:
        """Build the index; return the seconds."""
        started = time.perf_counter()
        with corpus.open() as lines:
            subprocess.run(self._command("build_index"), stdin=lines, check=True)
        return time.perf_counter() - started

    def started(self) -> subprocess.Popen[str]:
        """Start what answers queries."""
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        return subprocess.Popen(self._command("do_query"), **pipes, text=True, bufsize=1)


def measure(
    engines: list[Engine], command: str, queries: Queries, rounds: int
) -> list[tuple[list[str], np.ndarray]]:
    """Return each engine's answers, and the microseconds of each; the engines take turns round by round."""
    times = np.full((len(engines), rounds + 1, len(queries)), np.inf)
    answers = [[""] * len(queries) for _ in engines]
    with ExitStack() as stack:
        processes = [stack.enter_context(engine.started()) for engine in engines]
        for number in range(rounds + 1):
            for which, process in enumerate(processes):
                assert process.stdin is not None
                assert process.stdout is not None
                for place, (_, query) in enumerate(queries):
                    started = time.perf_counter()
                    process.stdin.write(f"{command}\t{query}\n")
                    answers[which][place] = process.stdout.readline().strip()
                    times[which, number, place] = (time.perf_counter() - started) * 1e6
    return list(zip(answers, times[:, 1:].min(1), strict=True))


def show(engines: list[Engine], queries: Queries, rounds: int) -> None:
    """Measure all commands and print the table."""
    print(
        "\n| command | kind | engine | median µs | p90 | p99 | unsupported |\n|---|---|---|---|---|---|---|"
    )
    kinds = np.array([kind for kind, _ in queries])
    for command in COMMANDS:
        measured = measure(engines, command, queries, rounds)
        for kind in dict.fromkeys(kinds.tolist()):
            for engine, (answers, times) in zip(engines, measured, strict=True):
                is_done = np.array([answer != "UNSUPPORTED" for answer in answers])
                some = times[(kinds == kind) & is_done]
                left_out = int(((kinds == kind) & ~is_done).sum())
                numbers = np.percentile(some, [50, 90, 99]) if len(some) else []
                shown = " | ".join(f"{number:,.0f}" for number in numbers) or "– | – | –"
                print(f"| {command} | {kind} | {engine.name} | {shown} | {left_out} |", flush=True)
        if len(measured) > 1 and command.endswith("COUNT"):
            pairs = zip(measured[0][0], measured[1][0], strict=True)
            both = [one == other for one, other in pairs if "UNSUPPORTED" not in (one, other)]
            print(f"| {command} | | equal counts: {sum(both)} of {len(both)} | | | | |", flush=True)


def main() -> None:
    """Read the arguments and run."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--corpus", type=Path)
    parser.add_argument("--queries", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--tantivy", metavar="PYTHON", help="leave tantivy out without it")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder, titles = Path(scratch), []
        records = prepared(options.corpus) if options.corpus else of_zipf(folder, options.documents)
        with (folder / "corpus.json").open("w") as out:
            for number, record in enumerate(records):
                out.write(json.dumps(record) + "\n")
                if options.corpus and number % 100 == 0:
                    titles.append(" ".join(record["text"].split()[:3]))
        if not options.corpus:
            titles = [line.split("\t")[1] for line in (folder / "queries.tsv").read_text().splitlines()]
        queries = read_queries(options.queries) if options.queries else in_kinds(titles[:200])
        engines = [Engine("rankhouse", sys.executable, folder)]
        engines += [Engine("tantivy", options.tantivy, folder)] if options.tantivy else []
        for engine in engines:
            print(f"{engine.name}: built in {engine.build(folder / 'corpus.json'):.1f} s", flush=True)
        show(engines, queries, options.rounds)


if __name__ == "__main__":
    main()
