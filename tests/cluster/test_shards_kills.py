"""Shards and merges that are killed at any change of the file system, and run again: the same bytes."""

import multiprocessing
import os
import runpy
import signal
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rankhouse.io.outputs import lock_of
from rankhouse.io.scratch import try_lock
from rankhouse.jobs.shards import load_shard

pytestmark = pytest.mark.kill

KILLING = Path(__file__).parents[1] / "cli" / "killing.py"
CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
SMALL = ["--segment-tokens", "400", "--workers", "1"]
MOST = 200


@pytest.fixture(scope="module")
def start():
    """Run a command in a process of its own, which kills itself at the n-th change beside a name."""
    if not hasattr(os, "fork"):
        pytest.skip("needs fork")
    context = multiprocessing.get_context("forkserver")
    commands = [f"rankhouse.cli.commands.{name}" for name in ("index", "rerank", "label", "merge")]
    jobs = [f"rankhouse.cluster.{name}_job" for name in ("index", "encode", "rerank", "label")]
    context.set_forkserver_preload([*commands, *jobs, "rankhouse.models.bundle"])

    def run(arguments, after="", kill=0):
        given = {"FOLDER": str(Path.cwd()), "ARGUMENTS": [*map(str, arguments)], "AFTER": after, "KILL": kill}
        process = context.Process(target=runpy.run_path, args=(str(KILLING), given, "__main__"))
        process.start()
        process.join()
        assert process.exitcode in (0, -signal.SIGKILL), Path("log.txt").read_text()
        return process.exitcode != 0

    return run


def kills(start, arguments, after, look, step=1):
    """Kill a command at one change after the other, looking each time at what is left, until it is done."""
    for number in range(1, MOST, step):
        if not start(arguments, after, number):
            return number
        look()
    raise AssertionError(f"more than {MOST} changes")


@pytest.fixture
def rerank(knrm):
    usual = ["--run", "first.run", "--queries", "queries.tsv", "--index", "my.index", "--ranker", knrm, *CPU]
    return ["rerank", *usual]


def test_a_shard_killed_anywhere_is_absent_or_whole_and_goes_on(start, done, rerank, contents):
    for number in (1, 2, 3):
        done(*rerank, "--shard", f"{number}/3", "--out", f"parts/{number}")
    done(*rerank, "--out", "whole.run")
    part = Path("parts/2")
    before = contents(part)["rows.run"]
    for path in part.iterdir():
        path.unlink()
    part.rmdir()

    def look():
        if part.exists():
            load_shard(part).verify()

    assert kills(start, [*rerank, "--shard", "2/3", "--out", part], "parts", look) > 3
    assert contents(part)["rows.run"] == before
    assert sorted(path.name for path in Path("parts").iterdir()) == ["1", "2", "3"]  # nothing is left behind
    done("merge", "parts", "--out", "new.run")
    assert Path("new.run").read_bytes() == Path("whole.run").read_bytes()


@pytest.mark.parametrize("command", ["index", "encode", "label"])
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_a_merge_killed_anywhere_leaves_all_or_nothing(start, done, knrm, command, contents, bert):
    if command == "index":
        lines = [f"d{i}\t{'ships harbour tide ' * (i % 7)}\n" for i in range(60)]
        Path("corpus.tsv").write_text("".join(lines))
        whole, out, arguments = Path("whole.index"), Path("new.index"), ["index", "corpus.tsv", *SMALL]
    elif command == "encode":
        encoder = f"biencoder({str(bert('BertModel'))!r})"
        whole, out = Path("my.index/vectors/default"), Path("my.index/vectors/default")
        arguments = ["encode", "--index", "my.index", "--ranker", encoder, *CPU]
    else:
        whole, out = Path("whole.jsonl"), Path("new.jsonl")
        rule = 'judged("qrels.txt") & taught("knrm", threshold=0.0, scale="score")'
        usual = ["--queries", "queries.tsv", "--index", "my.index", "--run", "first.run", *CPU]
        arguments = ["label", "--rule", rule, *usual]
    done(*arguments, *(["--out", whole] if command != "encode" else []))
    expected = contents(whole)
    if command == "encode":
        for path in out.iterdir():
            path.unlink()
        out.rmdir()
    for number in (1, 2, 3):
        done(*arguments, "--shard", f"{number}/3", "--out", f"parts/{number}")
    parts = contents("parts")

    def look():
        assert contents("parts") == parts
        if out.exists():
            assert contents(out) == expected

    target, step = ("my.index" if command == "encode" else out), (5 if command == "index" else 1)
    more = ["--overwrite"] if command == "index" else []  # one that was killed at its very end is replaced
    number = kills(start, ["merge", "parts", "--out", target, *more], out.name, look, step)
    assert number > 2
    assert contents(out) == expected
    assert not [path for path in Path().rglob(".*") if path.name.endswith((".part", "labelling"))]


def test_two_processes_never_write_one_part(run, done, rerank):
    Path("parts").mkdir()
    lock = try_lock(lock_of(Path("parts/1").resolve()))
    refused = run(*rerank, "--shard", "1/2", "--out", "parts/1")
    assert refused.returncode == 2
    assert "another process is writing it" in refused.stderr
    lock.release()
    done(*rerank, "--shard", "1/2", "--out", "parts/1")
