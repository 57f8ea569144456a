"""A recipe killed at random points ends with the same files as one that was left in peace."""

import hashlib
import json
import multiprocessing
import os
import random
import runpy
import signal
import time
from pathlib import Path

import pytest

pytestmark = pytest.mark.kill

pytest.importorskip("torch")

RECIPE = Path(__file__).with_name("tiny.toml")
SILENCE = Path(__file__).with_name("in_silence.py")
SMALLER = ["--set", "loop.seed=[1]", "--set", "loop.depth=[20]"]
KILLS = 10
VOLATILE = {"seconds", "started", "checksums"}  # times, and what is made of them; all else must be the same


@pytest.fixture(scope="module")
def starting():
    """A process that has everything imported, from which runs are forked in no time."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    context = multiprocessing.get_context("forkserver")
    stations = (
        "index",
        "search",
        "folds",
        "subset",
        "train",
        "rerank",
        "combine",
        "label",
        "evaluate",
        "run",
    )
    context.set_forkserver_preload(
        [
            *(f"rankhouse.cli.commands.{name}" for name in stations),
            "rankhouse.training.fit",
            "rankhouse.models.bundle",
            "torch._dynamo",  # the optimiser would load it at its first step
            "ir_measures",
            "jinja2",
            "matplotlib.backends.backend_svg",
        ]
    )

    def start(out: Path):
        said = {"ARGUMENTS": [str(RECIPE), "--out", str(out), *SMALLER], "LOG": f"{out}.log"}
        # A function that every process can import, wherever these tests stand.
        process = context.Process(target=runpy.run_path, args=(str(SILENCE), said, "__main__"))
        process.start()
        return process

    return start


def without_times(value):
    if isinstance(value, dict):
        return {k: without_times(v) for k, v in value.items() if k not in VOLATILE}
    return [without_times(v) for v in value] if isinstance(value, list) else value


def contents(out: Path) -> dict[str, object]:
    """Every file, hidden ones too; times taken out of JSON, and hashes of files that hold times."""
    found: dict[str, object] = {}
    for path in sorted(out.rglob("*")):
        name = str(path.relative_to(out))
        if not path.is_file() or name in (".lock", ".hashes.json"):
            continue
        if path.suffix in (".json", ".jsonl"):
            lines = path.read_text().splitlines() if path.suffix == ".jsonl" else [path.read_text()]
            read = without_times([json.loads(line) for line in lines])
            found[name] = forget_hashes(read)
        elif path.name == "report.html":
            found[name] = path.read_text().partition("<h2>Steps</h2>")[0]
        else:
            found[name] = hashlib.sha256(path.read_bytes()).hexdigest()
    return found


def forget_hashes(read):
    """Records hold hashes of files that hold times; those files are compared themselves."""
    for record in read:
        steps = record.get("steps") if isinstance(record, dict) else None
        for step in steps if isinstance(steps, list) else [record]:
            if isinstance(step, dict) and isinstance(step.get("files"), dict):
                step["files"] = sorted(step["files"])
    return read


def test_ten_kills_change_nothing(tmp_path, starting):
    whole, broken = tmp_path / "whole", tmp_path / "broken"
    began = time.perf_counter()
    process = starting(whole)
    process.join()
    took = time.perf_counter() - began
    assert process.exitcode == 0, Path(f"{whole}.log").read_text()
    rng = random.Random(20)
    killed = 0
    for _ in range(KILLS):
        process = starting(broken)
        # Whatever the machine's speed, a kill falls somewhere in a fifth of what a whole run takes.
        process.join(rng.uniform(0.02, 0.2) * took)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
    process = starting(broken)
    process.join()
    assert process.exitcode == 0, Path(f"{broken}.log").read_text()
    assert killed, "no run was alive when it was to be killed"
    left, peaceful = contents(broken), contents(whole)
    assert sorted(left) == sorted(peaceful)
    assert [name for name in peaceful if left[name] != peaceful[name]] == []
