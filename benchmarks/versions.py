"""The speed of checkouts of this project, side by side: scoring by every family, searching.

    python benchmarks/versions.py TREE TREE ... [--rounds 5] [--families knrm tk ...] [--lengths drawn]
    python benchmarks/versions.py TREE TREE ... --search DIR 200000
    python benchmarks/versions.py TREE TREE ... --serve 20000

The trees take turns in every round, each in a process of its own, on one thread. Printed are processor
milliseconds, least and median of the rounds, with their ratios to the first tree's, and the ratio of the
least wall times. Extensions have to be compiled in each tree; this environment's packages serve all.

Scoring: one query of 6 words and 1,000 passages of 75 (``--lengths drawn``: of 10 to 75), 200 for
transformers, which have MiniLM's shape; from strings to scores by a new ranker, the best of ``--repeat``
calls after one that is not counted. "next": by a ranker that scored the passages for another query before.

Searching: the whole command ``rankhouse search`` with 300 queries, in an index that the same tree has made of
a folder (corpus.jsonl.gz, queries.dev.jsonl) or of so many synthetic documents (first_stage.py); the later
trees also search the first tree's index. "no search" is a command that only loads the program.

Serving: ``rankhouse serve`` with an index of so many synthetic documents, made by the same tree, and a
cross-encoder of MiniLM's shape; the processor's time of the whole process a request, over 300 questions to
/search by bm25 and 20 to /rerank with 20 passages, one after the other, after a tenth that is not counted.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

Seconds = tuple[float, float]
"""Of the processor, on the wall."""

READING = {"words": "whitespace", "min_count": 1, "width": 300}
SAMCNN = {"QAtt": "query", "PAtt": "position", "BiCNN": None}
WORD_LEVEL = ["knrm", "conv_knrm", "tk", "drmm", "pacrr", "pacrr_drmm", "matchpyramid", "mp_hcnn"]
TRANSFORMERS = {
    "crossencoder fp32": "fp32",
    "crossencoder bf16": "bf16",
    "crossencoder int8": "int8",
    "biencoder fp32": "fp32",
}
NAMES = [*WORD_LEVEL, *SAMCNN, *TRANSFORMERS]
TRANSFORMER_PASSAGES, COLD_QUERIES, SERVED_PASSAGES = 200, 300, 20
TICK = os.sysconf("SC_CLK_TCK")
COMMAND = ("-m", "rankhouse")


def write_texts(folder: Path, lengths: str) -> None:
    """Write what children score: texts.json, a cross-encoder and its encoder alone, by today's code."""
    import numpy as np
    from rerank import make_checkpoint, tokenizer_of
    from transformers import BertModel, logging
    from word_level import collection

    query, texts = collection(1000)
    if lengths == "drawn":
        most = np.random.default_rng(1).integers(10, 76, len(texts))
        texts = [" ".join(text.split()[:n]) for text, n in zip(texts, most, strict=True)]
    (folder / "texts.json").write_text(json.dumps([query, texts]))
    logging.set_verbosity_error()  # that its head is left out is meant
    BertModel.from_pretrained(make_checkpoint("minilm", folder)).save_pretrained(folder / "biencoder")
    tokenizer_of("minilm").save_pretrained(folder / "biencoder")
    (folder / "minilm").rename(folder / "crossencoder")


def score_families(folder: Path, families: Sequence[str], repeat: int) -> None:
    """In a child: print seconds by family. Names that all versions have are used, no others."""
    import torch

    from rankhouse.core.nouns import Pair, Passage, Query
    from rankhouse.models.families import DESIGNS, FAMILIES, open_model

    try:
        from rankhouse.nn.machine import choose
    except ImportError:  # a tree of before
        from rankhouse.nn.compute import choose

    torch.set_num_threads(1)
    asked, texts = json.loads((folder / "texts.json").read_text())

    def pairs(query: str, some: Sequence[str]) -> list[Pair]:
        return [Pair(Query(query, query), Passage(f"d{i}", 0, text)) for i, text in enumerate(some)]

    found: dict[str, Seconds] = {}
    for name in families:
        if name in TRANSFORMERS:
            family = name.split()[0]
            model = open_model(f'{family}("{folder / family}")')
            these = pairs(asked, texts[:TRANSFORMER_PASSAGES])
        else:
            own = {"attention": SAMCNN[name], "overlap": False} if name in SAMCNN else {}
            model = DESIGNS["samcnn" if own else name](**READING, **own).fresh(texts)
            these = pairs(asked, texts)
        table, compute = FAMILIES[model.family], choose(TRANSFORMERS.get(name, "fp32"), "cpu", 1)
        new_ranker = partial(table.ranker, model, compute)
        found[name] = least_seconds(new_ranker, these, repeat)
        if name in SAMCNN:
            before = pairs(" ".join(texts[0].split()[:6]), texts)
            found[f"{name} next"] = least_seconds(new_ranker, these, repeat, before)
    print(json.dumps(found))


def least_seconds(
    new_ranker: Callable[[], Any], pairs: Sequence[Any], repeat: int, before: Sequence[Any] = ()
) -> Seconds:
    """Return the least seconds of ``repeat`` calls by new rankers, after one that is not counted.

    Args:
        new_ranker: Opens one.
        pairs: What it scores.
        repeat: Calls that are counted.
        before: Pairs that it has scored already.
    """
    taken = []
    for _ in range(repeat + 1):
        ranker = new_ranker()
        if before:
            ranker.score(before)
        started = time.process_time(), time.perf_counter()
        ranker.score(pairs)
        taken.append((time.process_time() - started[0], time.perf_counter() - started[1]))
    return min(t[0] for t in taken[1:]), min(t[1] for t in taken[1:])


def run_in(tree: Path, *command: str) -> str:
    """Run Python with a tree's sources, and none beside this file, and return what it prints."""
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree / "src")}
    whole = [sys.executable, "-P", *command]
    done = subprocess.run(whole, check=False, capture_output=True, text=True, env=environment)
    if done.returncode:
        raise SystemExit(f"{tree}: {done.stderr}")
    return done.stdout


def scores_of(tree: Path, folder: Path, options: argparse.Namespace) -> dict[str, Seconds]:
    """Return seconds by family of one tree in one round."""
    printed = run_in(tree, __file__, "--child", str(folder), str(options.repeat), *options.families)
    return {name: tuple(seconds) for name, seconds in json.loads(printed.splitlines()[-1]).items()}


def write_collection(folder: Path, what: str) -> tuple[Path, Path]:
    """Return a corpus and 300 queries: of a folder, or drawn."""
    if not what.isdigit():
        lines = (Path(what) / "queries.dev.jsonl").read_text().splitlines(keepends=True)
        queries = folder / "queries.jsonl"
        queries.write_text("".join(lines[:COLD_QUERIES]))
        return Path(what) / "corpus.jsonl.gz", queries
    from first_stage import write_synthetic

    write_synthetic(folder, int(what))
    queries = folder / "queries.tsv"
    queries.write_text("".join(queries.read_text().splitlines(keepends=True)[:COLD_QUERIES]))
    return folder / "corpus.tsv", queries


def search_commands(folder: Path, what: str, trees: Sequence[Path]) -> dict[tuple[Path, str], list[str]]:
    """Index a collection with every tree; return the searches by tree and by what they are called."""
    corpus, queries = write_collection(folder, what)
    analyzer = ["--analyzer", "whitespace"] if what.isdigit() else []
    commands = {}
    for number, tree in enumerate(trees):
        index = str(folder / f"index{number}")
        run_in(tree, *COMMAND, "index", str(corpus), "--out", index, *analyzer)
        search = [
            *COMMAND,
            "search",
            "--queries",
            str(queries),
            "--out",
            str(folder / "found.run"),
            "--index",
        ]
        commands[tree, f"search {what}"] = [*search, index]
        commands[tree, "no search"] = [*COMMAND, "search", "--help"]
        if number:
            commands[tree, f"search {what}, first index"] = [*search, str(folder / "index0")]
    return commands


def command_seconds(tree: Path, command: Sequence[str]) -> Seconds:
    """Return the seconds of one command."""
    before, started = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    run_in(tree, *command)
    wall, after = time.perf_counter() - started, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def served_seconds(tree: Path, folder: Path, index: Path, queries: Sequence[str]) -> dict[str, Seconds]:
    """Return the seconds of a request of each kind to a tree's service."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    ranker = f'crossencoder("{folder / "crossencoder"}")'
    options = ["--ranker", f"ce={ranker}", "--precision", "fp32", "--threads", "1", "--port", str(port)]
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree / "src")}
    passages = json.loads((folder / "texts.json").read_text())[1][:SERVED_PASSAGES]
    bodies = {
        "search": [{"query": query, "system": "bm25"} for query in queries],
        "rerank": [{"query": query, "documents": passages} for query in queries[:SERVED_PASSAGES]],
    }
    with (folder / "serve.log").open("w") as log:
        command = [sys.executable, "-P", *COMMAND, "serve", str(index), *options]
        process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
    try:
        while not is_ready(port):
            if process.poll() is not None:
                raise SystemExit(f"{tree}: {(folder / 'serve.log').read_text()[-3000:]}")
            time.sleep(0.2)
        return {f"serve {path}": asked(process.pid, port, path, bodies[path]) for path in bodies}
    finally:
        process.terminate()
        process.wait(60)


def is_ready(port: int) -> bool:
    """Return whether a service has opened all that it serves."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz") as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, ConnectionError):
        return False


def asked(pid: int, port: int, path: str, bodies: Sequence[Mapping[str, Any]]) -> Seconds:
    """Return the seconds of a request; a tenth of them is sent before, and not counted."""

    def ask(body: Mapping[str, Any]) -> None:
        head = {"Content-Type": "application/json"}
        url = f"http://127.0.0.1:{port}/{path}"
        with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), head)) as answer:
            answer.read()

    def used() -> float:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICK

    first = len(bodies) // 10
    for body in bodies[:first]:
        ask(body)
    before, started = used(), time.perf_counter()
    for body in bodies[first:]:
        ask(body)
    counted = len(bodies) - first
    return (used() - before) / counted, (time.perf_counter() - started) / counted


def show(trees: Sequence[Path], found: Mapping[tuple[Path, str], list[Seconds]]) -> None:
    """Print a line for every tree and what it did."""
    print(f"{'':<34}{'tree':<14}{'least ms':>10}{'median':>10}{'ratio':>8}{'median':>8}{'wall':>8}")
    for name in dict.fromkeys(name for _, name in found):
        usual = found[trees[0], name.removesuffix(", first index")]
        for tree in trees:
            if (tree, name) not in found:
                continue
            least, middle, wall = figures(found[tree, name])
            first = figures(usual)
            print(
                f"{name:<34}{tree.name:<14}{1000 * least:>10.1f}{1000 * middle:>10.1f}"
                f"{least / first[0]:>8.3f}{middle / first[1]:>8.3f}{wall / first[2]:>8.3f}"
            )


def figures(taken: Sequence[Seconds]) -> tuple[float, float, float]:
    """Return least and median processor time, and least wall time."""
    return min(t[0] for t in taken), statistics.median(t[0] for t in taken), min(t[1] for t in taken)


def main() -> None:
    """Read the arguments and measure, or be a child that does."""
    if sys.argv[1:2] == ["--child"]:
        folder, repeat, *families = sys.argv[2:]
        score_families(Path(folder), families, int(repeat))
        return
    layout = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=layout)
    parser.add_argument("trees", nargs="+", type=lambda name: Path(name).resolve())
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--families", nargs="*", default=NAMES, choices=NAMES)
    parser.add_argument("--lengths", choices=["one", "drawn"], default="one")
    parser.add_argument("--search", nargs="*", default=[], help="folders, or numbers of documents")
    parser.add_argument("--serve", type=int, default=0, help="documents of the index that is served")
    options = parser.parse_args()
    found: dict[tuple[Path, str], list[Seconds]] = {}
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        commands: dict[tuple[Path, str], list[str]] = {}
        for number, what in enumerate(options.search):
            (part := folder / str(number)).mkdir()
            commands |= search_commands(part, what, options.trees)
        if not options.search or options.serve:
            write_texts(folder, options.lengths)
        scores = not options.search and not options.serve
        if options.serve:
            corpus, queries = write_collection(folder, str(options.serve))
            asks = [line.split("\t")[1] for line in queries.read_text().splitlines()]
            indexes = {tree: folder / f"served{number}" for number, tree in enumerate(options.trees)}
            for tree, index in indexes.items():
                run_in(tree, *COMMAND, "index", str(corpus), "--out", str(index), "--analyzer", "whitespace")
        for _ in range(options.rounds):
            for key, command in commands.items():
                found.setdefault(key, []).append(command_seconds(key[0], command))
            for tree in options.trees:
                taken = scores_of(tree, folder, options) if scores else {}
                if options.serve:
                    taken |= served_seconds(tree, folder, indexes[tree], asks)
                for name, seconds in taken.items():
                    found.setdefault((tree, name), []).append(seconds)
            print(".", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    show(options.trees, found)


if __name__ == "__main__":
    main()
