"""Scores and speed of rankhouse with all instructions of this processor, and with fewer.

    OMP_NUM_THREADS=1 python benchmarks/instruction_sets.py WORK [--precision int8] [--kinds short long]

Model, texts and sets of instructions are those of ``benchmarks/latency.py``. Each set is a process of its
own, with one thread; they take turns in every round. Printed are the processor time of a call, the median of
its ratios to the first set's in the same round, how many scores have other bits than the first set's, the
largest of these differences in standard deviations of fp32's scores, and the correlation (Spearman) with
fp32's. int8 has no other bits in any row.
"""

from __future__ import annotations

import argparse
import io
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import numpy as np
from latency import SETS as LIMITED

SETS = {"all there are": {}} | LIMITED


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("work", type=Path)
    parser.add_argument("--precision", choices=["int8", "bf16", "fp32"], default="int8")
    parser.add_argument("--kinds", nargs="+", choices=["short", "long"], default=["short", "long"])
    parser.add_argument("--candidates", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    return parser.parse_args()


def serve(given: argparse.Namespace, kind: str) -> None:
    """Score once, write the scores; then score at each line that comes, and write the seconds."""
    from latency import Texts, checkpoint
    from rerank import ours

    path = checkpoint(given.work)
    query, texts = Texts(path, kind, given.candidates).draw(0)
    system = ours(path, given.precision, 1)
    file = io.BytesIO()
    np.save(file, system.score(query, texts))
    print(f"scores {file.getvalue().hex()}", flush=True)
    for _ in sys.stdin:
        start = time.process_time()
        system.score(query, texts)
        print(f"seconds {time.process_time() - start}", flush=True)


class Child:
    """One set of instructions."""

    def __init__(
        self, given: argparse.Namespace, kind: str, precision: str, variables: dict[str, str]
    ) -> None:
        command = [sys.executable, __file__, str(given.work), "--precision", precision, "--child", kind]
        self._process = subprocess.Popen(
            [*command, "--candidates", str(given.candidates)],
            env=os.environ | {"OMP_NUM_THREADS": "1"} | variables,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.scores = np.load(io.BytesIO(bytes.fromhex(self._read("scores"))))

    def _read(self, word: str) -> str:
        for line in self._process.stdout:
            if line.startswith(word):
                return line.removeprefix(word).strip()
        raise SystemExit("a process ended; run it alone, with --child short, to see why")

    def seconds(self) -> float:
        """Return the processor time of a call."""
        self._process.stdin.write("again\n")
        self._process.stdin.flush()
        return float(self._read("seconds"))

    def close(self) -> None:
        """End the process."""
        self._process.stdin.close()
        self._process.wait()


def spearman(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.argsort().argsort(), b.argsort().argsort())[0, 1])


def measure(given: argparse.Namespace, kind: str) -> None:
    """Print the table of one kind of texts."""
    with ExitStack() as stack:
        children = {}
        for name, variables in SETS.items():
            children[name] = Child(given, kind, given.precision, variables)
            stack.callback(children[name].close)
        exact = Child(given, kind, "fp32", {})
        exact.close()
        spent = np.array([[c.seconds() for c in children.values()] for _ in range(given.rounds)])
        first = children[next(iter(SETS))].scores
        print(f"{kind}, {given.precision}, {given.candidates} candidates, {given.rounds} rounds")
        print("| instructions | ms a call | to the first | other bits | largest difference | with fp32 |")
        print("| --- | --- | --- | --- | --- | --- |")
        for i, (name, child) in enumerate(children.items()):
            gap, ratio = np.abs(child.scores - first), np.median(spent[:, i] / spent[:, 0])
            told = f"{gap.max() / exact.scores.std():.1e} | {spearman(child.scores, exact.scores):.4f}"
            time_of_call = f"{1000 * np.median(spent[:, i]):.0f}"
            print(f"| {name} | {time_of_call} | {ratio:.2f} | {(gap > 0).sum()} | {told} |", flush=True)


def main() -> None:
    given = arguments()
    if given.child:
        serve(given, given.child)
        return
    for kind in given.kinds:
        measure(given, kind)


if __name__ == "__main__":
    main()
