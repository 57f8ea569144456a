"""Workers, nodes and the command itself are killed at random points: nothing is lost, and nothing differs."""

import random
import shutil
import signal
import time
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

tools = SimpleNamespace(**run_path(str(Path(__file__).with_name("ray_world.py"))))
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@pytest.fixture(scope="module")
def cluster():
    """Two real nodes; skips where Ray cannot start."""
    try:
        world = tools.World()
    except RuntimeError as error:
        pytest.skip(f"Ray cannot start here: {error}")
    yield world
    world.stop()


@pytest.fixture
def jobs(knrm, done):
    """Command -> (its words, its output here, its output on the cluster)."""
    first = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]
    rerank = ["rerank", *first, "--ranker", knrm, "--split", "words(16)", *CPU]
    return {"rerank": (rerank, "whole.run", "new.run")}


KILLS = ["worker", "worker", "node", "command", "command"]


@pytest.mark.parametrize("name", ["rerank"])
def test_killed_at_random_points_it_gives_the_same_bytes(name, jobs, done, contents, cluster, tmp_path):
    words, whole, out = jobs[name]
    done(*words, "--out", whole)
    cluster.sick(0.15)
    kills = random.sample(KILLS, len(KILLS))
    points = sorted(random.choices(range(10), k=len(kills)))
    story = list(zip(kills, points, strict=True))
    process = cluster.command(tmp_path, *words, "--out", out)
    try:
        for kill, point in story:
            if not tools.wait_for_parts(out, point, process):
                break
            time.sleep(random.random() / 4)
            if kill == "command":
                process.send_signal(signal.SIGKILL)
                process.wait()
                before = tools.parts_of(out)
                process = cluster.command(tmp_path, *words, "--out", out)
            elif kill == "worker":
                cluster.kill_worker()
            else:
                cluster.kill_node()
        assert process.wait(180) == 0, (story, Path("log.txt").read_text())
    finally:
        process.kill()
    assert contents(out) == contents(whole), story
    assert not Path(f"{out}.parts").exists()
    assert "Traceback" not in Path("log.txt").read_text()
