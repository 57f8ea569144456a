"""Workers, machines and the command itself are killed at random points; the result must be the same bytes.

    python -m benchmarks.cluster_faults [--points 20] [--commands encode,rerank,label]
                                        [--victims worker,node,command,termination] [--seed 1]

Real raylets on this machine (two nodes of one processor), a small collection, every chunk 0.1 s longer than
its work. Each run is killed at up to seven points: after so many finished shards and up to a quarter of a
second; a killed command is given again. A termination is SIGTERM to a command with a Ray of its own, at any
moment from its start to its end: it must say so and exit with 143, unless it had not begun. A table says how
many kills there were and what differed.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import random
import runpy
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

import rankhouse as rh
from rankhouse.cli.main import cli

ROOT = Path(__file__).parents[1]
VICTIMS = ("worker", "node", "command", "termination")
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
FIRST = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]
WORDS = "ships harbour water pilots tide lock canal grain price night coast lamp rope song moon sea"
SLOW = 0.1
A_RUN = 7  # kills


class Kind(NamedTuple):
    """A command and its outputs, by itself and on the cluster."""

    words: list[str]
    whole: str
    out: str


class Row(NamedTuple):
    """Result of all kills of one kind."""

    command: str
    victim: str
    kills: int
    runs: int
    differing: int
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--points", type=int, default=20)
    parser.add_argument("--commands", default="encode,rerank,label")
    parser.add_argument("--victims", default=",".join(VICTIMS))
    parser.add_argument("--seed", type=int, default=1)
    given = parser.parse_args()
    chance = random.Random(given.seed)
    tools = SimpleNamespace(**runpy.run_path(str(ROOT / "tests" / "cluster" / "world.py")))
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        kinds = make_world()
        cluster = tools.World()
        try:
            cluster.sick(SLOW)
            print("| command | killed | times | runs | results that differ | s |\n|---|---|---|---|---|---|")
            for name in given.commands.split(","):
                call(kinds[name].words, kinds[name].whole)
                for victim in given.victims.split(","):
                    row = (
                        terminate(cluster, name, kinds[name], given.points, chance)
                        if victim == "termination"
                        else attack(tools, cluster, name, kinds[name], victim, given.points, chance)
                    )
                    print(f"| {' | '.join(map(str, row))} |", flush=True)
        finally:
            cluster.stop()


def make_world() -> dict[str, Kind]:
    """Write a small collection, a first stage and two rankers; return what is run."""
    from rankhouse.models import bundle
    from rankhouse.models.knrm import KNRMDesign
    from rankhouse.models.tk import TKDesign

    words = WORDS.split()
    chance = random.Random(0)
    documents = [rh.Document(f"d{i}", " ".join(chance.choices(words, k=3 + i % 61))) for i in range(240)]
    index = rh.Index.build(documents, "my.index", workers=1)
    queries = {f"q{i}": " ".join(chance.choices(words, k=1 + i % 5)) for i in range(48)}
    Path("queries.tsv").write_text("".join(f"{query}\t{text}\n" for query, text in queries.items()))
    run = index.retrieve(queries, k=20)
    rh.write_run(run, "first.run")
    rh.write_qrels({query: {run[query].doc_ids[0]: 1} for query in run}, "qrels.txt")
    texts = [document.text for document in documents]
    bundle.save(KNRMDesign(width=8, min_count=1, words="whitespace").fresh(texts, seed=1), Path("knrm"))
    bundle.save(TKDesign(words="whitespace", min_count=1, width=12, heads=2).fresh(texts, seed=1), Path("tk"))
    rule = 'judged("qrels.txt") | taught("knrm", threshold=0.0)'
    shutil.copytree("my.index", "whole.index")
    return {
        "encode": Kind(["encode", "--ranker", "tk", *CPU, "--index"], "whole.index", "new.index"),
        "rerank": Kind(["rerank", *FIRST, "--ranker", "knrm", *CPU, "--out"], "whole.run", "new.run"),
        "label": Kind(["label", *FIRST, "--rule", rule, *CPU, "--out"], "whole.jsonl.gz", "new.jsonl.gz"),
    }


def attack(
    tools: Any,  # noqa: ANN401 - what runpy gave
    cluster: Any,  # noqa: ANN401
    name: str,
    kind: Kind,
    victim: str,
    points: int,
    chance: random.Random,
) -> Row:
    """Kill until there were enough kills, and compare after each run."""
    kills = runs = differing = 0
    started = time.perf_counter()
    while kills < points:
        fresh(name, kind.out)
        runs += 1
        process = cluster.command(*kind.words, kind.out)
        for point in sorted(chance.choices(range(11), k=min(A_RUN, points - kills))):
            if not tools.wait_for_parts(kind.out, point, process):
                break
            time.sleep(chance.random() / 4)
            if process.poll() is not None:
                break
            hit = True
            if victim == "command":
                process.kill()
                process.wait()
                process = cluster.command(*kind.words, kind.out)
            else:
                hit = cluster.kill(victim)
            kills += hit
        code = process.wait(600)
        same = code == 0 and digest(kind.out) == digest(kind.whole) and not Path(f"{kind.out}.parts").exists()
        if not same:
            differing += 1
            print(f"{name}, {victim}: exit code {code}\n{Path('log.txt').read_text()}")
    return Row(name, victim, kills, runs, differing, round(time.perf_counter() - started))


def terminate(cluster: Any, name: str, kind: Kind, points: int, chance: random.Random) -> Row:  # noqa: ANN401
    """Terminate a command at random moments of its life; each goes on where the one before it was."""
    started, at_once = time.perf_counter(), "--cluster-workers=2"
    fresh(name, kind.out)
    cluster.command(*kind.words, kind.out, at_once, at="ray").wait(600)
    life, wrong, kills, runs = time.perf_counter() - started, 0, 0, 1
    fresh(name, kind.out)
    while kills < points:
        process = cluster.command(*kind.words, kind.out, at_once, at="ray")
        time.sleep(chance.random() * life)
        process.terminate()
        code, said = process.wait(600), Path("log.txt").read_text()
        kills += code != 0
        if code == 0:
            runs += 1
            wrong += digest(kind.out) != digest(kind.whole)
            fresh(name, kind.out)
        elif (code, said) != (-signal.SIGTERM, "") and (code, said.splitlines()[-1:]) != (
            143,
            ["terminated"],
        ):
            wrong += 1
            print(f"{name}, terminated: exit code {code}\n{said}")
    return Row(name, "termination", kills, runs, wrong, round(time.perf_counter() - started))


def fresh(name: str, out: str) -> None:
    """Put an output back to where it was before the command."""
    path = Path(out)
    remove: Callable[[Path], None] = (
        shutil.rmtree if path.is_dir() else lambda one: one.unlink(missing_ok=True)
    )
    remove(path)
    if name == "encode":
        shutil.copytree("my.index", out)


def call(words: list[str], out: str) -> None:
    """Call the command by itself."""
    cli.main([*words, out], standalone_mode=False)


def digest(path: str) -> dict[str, str]:
    """Hash a file, or every file of a folder; locks are no content."""
    files = [Path(path)] if Path(path).is_file() else [one for one in Path(path).rglob("*") if one.is_file()]
    return {
        os.path.relpath(one, path): hashlib.sha256(one.read_bytes()).hexdigest()
        for one in files
        if not one.name.endswith(".lock")
    }


if __name__ == "__main__":
    main()
