"""A recipe killed at random points ends with the same files as one that was left in peace."""

import hashlib
import json
import multiprocessing
import os
import random
import signal
import time
from pathlib import Path

import pytest

pytest.importorskip("torch")

RECIPE = Path(__file__).with_name("tiny.toml")
SMALLER = ["--set", "loop.seed=[1]", "--set", "loop.depth=[20]"]
KILLS = 10
VOLATILE = {"seconds", "started"}  # times; everything else must be the same


def carry_out(out: str) -> None:
    """Run the recipe in a process of its own, in silence."""
    import sys
    import warnings

    import torch

    from rankhouse.app.cli import main

    os.environ["OMP_NUM_THREADS"] = "1"
    torch.set_num_threads(1)
    for stream in (1, 2):
        os.dup2(os.open(f"{out}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND), stream)
    sys.stdout, sys.stderr = os.fdopen(1, "w", closefd=False), os.fdopen(2, "w", closefd=False)
    warnings.simplefilter("default")
    sys.argv = ["rankhouse", "run", str(RECIPE), "--out", out, *SMALLER]
    main()


@pytest.fixture(scope="module")
def starting():
    """A process that has everything imported, from which runs are forked in no time."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    context = multiprocessing.get_context("forkserver")
    stations = ("index", "search", "folds", "select", "train", "rerank", "concat", "label", "evaluate", "run")
    context.set_forkserver_preload(
        [
            *(f"rankhouse.app.commands.{name}" for name in stations),
            "rankhouse.train.fit",
            "rankhouse.models.bundle",
            "torch._dynamo",  # the optimiser would load it at its first step
            "ir_measures",
            "jinja2",
            "matplotlib.backends.backend_svg",
        ]
    )
    return lambda out: context.Process(target=carry_out, args=(str(out),))


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
    process = starting(whole)
    began = time.perf_counter()
    process.start()
    process.join()
    took = time.perf_counter() - began
    assert process.exitcode == 0, Path(f"{whole}.log").read_text()
    rng = random.Random(20)
    killed = 0
    for _ in range(KILLS):
        process = starting(broken)
        process.start()
        # Whatever the machine's speed, a kill falls somewhere in a fifth of what a whole run takes.
        process.join(rng.uniform(0.02, 0.2) * took)
        if process.is_alive():
            os.kill(process.pid, signal.SIGKILL)
            killed += 1
        process.join()
    process = starting(broken)
    process.start()
    process.join()
    assert process.exitcode == 0, Path(f"{broken}.log").read_text()
    assert killed, "no run was alive when it was to be killed"
    left, peaceful = contents(broken), contents(whole)
    assert sorted(left) == sorted(peaceful)
    assert [name for name in peaceful if left[name] != peaceful[name]] == []
