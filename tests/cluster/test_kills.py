"""Workers, nodes and the command itself are killed at random points: nothing is lost, and nothing differs."""

import random
import shutil
import time
from pathlib import Path
from runpy import run_path
from types import SimpleNamespace

import pytest

pytestmark = pytest.mark.kill

pytest.importorskip("torch")
tools = SimpleNamespace(**run_path(str(Path(__file__).with_name("world.py"))))
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
FIRST = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index"]
KILLS, AT_ONCE = ["worker", "worker", "node", "command", "command"], 2
"""Kinds of kills, and the number that one job sees."""


@pytest.fixture
def jobs(knrm, world, done):
    """Command -> (its words, what it writes by itself and what on the cluster); the first is written."""
    from rankhouse.models import bundle
    from rankhouse.models.tk import TKDesign

    design = TKDesign(words="whitespace", min_count=1, width=12, heads=2)
    bundle.save(design.fresh([document.text for document in world], seed=1), Path("tk"))

    def make(name):
        if name == "encode":
            words, out = ["encode", "--ranker", "tk", "--split", "words(16)", *CPU, "--index"], "new.index"
            shutil.copytree("my.index", out)
            whole = "my.index"
        elif name == "label":
            rule = f'judged("qrels.txt") | taught({knrm!r}, threshold=0.0)'
            words, whole, out = ["label", *FIRST, "--rule", rule, *CPU, "--out"], "whole.jsonl", "new.jsonl"
        else:
            words, whole, out = ["rerank", *FIRST, "--ranker", knrm, *CPU, "--out"], "whole.run", "new.run"
        done(*words, whole)
        return [*words, out], whole, out

    return make


@pytest.mark.parametrize("name", ["encode", "rerank", "label"])
def test_killed_at_random_points_it_gives_the_same_bytes(name, jobs, contents, cluster):
    words, whole, out = jobs(name)
    cluster.sick(0.4)
    story = list(zip(random.sample(KILLS, AT_ONCE), sorted(random.choices(range(9), k=AT_ONCE)), strict=True))
    process = cluster.command(*words)
    try:
        for kill, point in story:
            if not tools.wait_for_parts(out, point, process):
                break
            time.sleep(random.random() / 4)
            if kill == "command":
                process.kill()
                process.wait()
                process = cluster.command(*words)
            else:
                cluster.kill(kill)
        assert process.wait(300) == 0, (story, Path("log.txt").read_text())
    finally:
        process.kill()
        process.wait()
    assert contents(out) == contents(whole), story
    assert not Path(f"{out}.parts").exists()


@pytest.mark.parametrize(("name", "sick"), [("encode", ["d29"]), ("rerank", ["q0", "q3"])])
def test_what_kills_every_worker_is_named_and_the_rest_is_done(name, sick, jobs, contents, cluster):
    words, whole, out = jobs(name)
    before = contents(out) if Path(out).exists() else None
    cluster.sick(0, *sick)
    assert cluster.command(*words).wait(300) == 1
    said = Path("log.txt").read_text()
    units = 40 if name == "encode" else 9
    assert f"{len(sick)} of {units} " in said
    assert f"killed 3 workers each: {', '.join(sick)} (" in said
    assert "give the same command again" in said
    assert "raylet" not in said  # Ray's own news of deaths
    assert (contents(out) if Path(out).exists() else None) == before  # nothing half-written
    cluster.sick(0)
    assert cluster.command(*words).wait(300) == 0
    assert f"{units - len(sick)} of {units} " in Path("log.txt").read_text()  # were done before
    assert contents(out) == contents(whole)
