"""Labels in shards of the queries: the same PAIRS file, figures and page as one labelling."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")
from rankhouse.jobs import jobs

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
RULES = {
    "judge and teacher": 'judged("qrels.txt") & taught("knrm", threshold=0.0, scale="score")',
    "best of teacher": 'taught("knrm", threshold=-9.0, scale="score", best=1) | ranked("first.run", 2)',
    "judge": 'judged("qrels.txt")',
}
MORE = {
    "random": ["--negatives", "random(2, depths=(2, None), seed=3)"],
    "collection": ["--negatives", 'random(1, scope="collection")'],
    "document": ["--negatives", 'random(1, scope="document")', "--ask-all"],
    "all": ["--negatives", "all", "--negative-rule", '~taught("knrm", threshold=0.2, scale="score")'],
    "scores": ["--scores", "--join", "ranks"],
    "none": ["--negatives", "none", "--truth", "truth.txt"],
}


@pytest.fixture
def label(knrm):
    Path("truth.txt").write_text("q0 0 d01#0 1\nq2 0 d30#1 1\n")
    usual = ["--queries", "queries.tsv", "--index", "my.index", "--run", "first.run", "--depth", "10"]
    return lambda rule, *more: ["label", "--rule", RULES[rule], *usual, "--split", "words(16)", *CPU, *more]


def without_times(text):
    said = json.loads(text)
    return {name: value for name, value in said.items() if name not in ("seconds", "out", "command", "parts")}


@pytest.mark.quick("none-judge")
@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("more", MORE)
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_labels_of_shards_are_the_labels(done, label, rule, more):
    pytest.importorskip("matplotlib")
    if (rule, more) == ("judge", "scores"):
        pytest.skip("the rule scores nothing")
    command = label(rule, *MORE[more])
    said = done(*command, "--out", "whole.jsonl.gz", "--report", "whole.html", "--json").stdout
    for n in (1, 4, 11):
        for number in range(n, 0, -1):
            done(*command, "--shard", f"{number}/{n}", "--out", f"parts{n}/{number}")
        merged = done("merge", f"parts{n}", "--out", "new.jsonl.gz", "--report", "new.html", "--json").stdout
        assert Path("new.jsonl.gz").read_bytes() == Path("whole.jsonl.gz").read_bytes()
        pages = [
            Path(name).read_text().replace("new.jsonl", "whole.jsonl") for name in ("new.html", "whole.html")
        ]
        assert pages[0] == pages[1]
        ours, theirs = without_times(merged), without_times(said)
        assert {name: ours[name] for name in theirs} == theirs
    assert not list(Path().glob(".*labelling"))


def test_shards_and_merge_each_read_the_run_once(done, label, monkeypatch):
    read, original = [], jobs.read_run
    monkeypatch.setattr(jobs, "read_run", lambda path: (read.append(path), original(path))[1])
    done(*label("judge"), "--shard", "1/1", "--out", "parts/1")
    done("merge", "parts", "--out", "new.jsonl")
    assert read == ["first.run", "first.run"]


def test_test_queries_are_kept_apart_in_shards_too(run, done, label):
    Path("test.tsv").write_text(Path("queries.tsv").read_text().splitlines()[0].replace("q0", "t1") + "\n")
    command = label("judge and teacher", "--test-queries", "test.tsv")
    refused = run(*command, "--shard", "1/2", "--out", "parts/1")
    assert refused.returncode == 2
    assert "test queries" in refused.stderr
    assert not Path("parts/1").exists()
    for number in (1, 2):
        said = done(*command, "--allow-test", "--shard", f"{number}/2", "--out", f"parts/{number}")
        assert number > 1 or "training and test data overlap" in said.stderr
    whole = json.loads(done(*command, "--allow-test", "--out", "whole.jsonl", "--json").stdout)
    merged = json.loads(done("merge", "parts", "--out", "new.jsonl", "--json").stdout)
    assert merged["overlap"] == whole["overlap"]
    assert merged["overlap"]["queries"]
    assert Path("new.jsonl").read_bytes() == Path("whole.jsonl").read_bytes()


def test_inputs_that_changed_before_the_merge_are_named(run, done, label, monkeypatch):
    for number in (1, 2):
        done(*label("judge"), "--shard", f"{number}/2", "--out", f"parts/{number}")
    Path("elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    elsewhere = run("merge", "../parts", "--out", "new.jsonl")
    assert elsewhere.returncode == 1
    assert "merge in the folder where the shards were made" in elsewhere.stderr
    monkeypatch.chdir("..")
    assert "relevant pairs and" in done("merge", "parts", "--out", "new.jsonl").stderr
    with Path("queries.tsv").open("a") as file:
        file.write("q99\tmore\n")
    refused = run("merge", "parts", "--out", "again.jsonl")
    assert refused.returncode == 1
    assert "queries: changed since" in refused.stderr
    refused = run(*label("judge"), "--shard", "1/2", "--out", "p", "--report", "page.html")
    assert refused.returncode == 2
    assert "give --report to  rankhouse merge" in refused.stderr
