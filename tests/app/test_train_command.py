"""rankhouse train: from files to a ranker that rerank takes at once."""

import json
import random

import pytest

pytest.importorskip("torch")

from rankhouse.core.trec import read_run


@pytest.fixture
def world(tmp_path, run):
    """Notes of which a relevant one holds the whole question."""
    rng = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    corpus, queries, qrels, rows = [], [], [], []
    for q in range(24):
        asked = rng.sample(words, 3)
        queries.append(f"q{q}\t{' '.join(asked)}\n")
        for d in range(8):
            own = asked if d < 2 else [asked[d % 3], *rng.sample(words, 2)]
            text = " ".join(own + rng.sample(words, 5))
            corpus.append(json.dumps({"id": f"q{q}d{d}", "text": text}) + "\n")
            qrels.append(f"q{q} 0 q{q}d{d} {int(d < 2)}\n")
            rows.append(f"q{q} Q0 q{q}d{d} 1 {rng.random():.5f} t\n")
    (tmp_path / "corpus.jsonl").write_text("".join(corpus))
    for name, part in (("train", slice(0, 18)), ("valid", slice(18, 24))):
        (tmp_path / f"{name}.tsv").write_text("".join(queries[part]))
        (tmp_path / f"{name}.qrels").write_text("".join(qrels[part.start * 8 : part.stop * 8]))
        (tmp_path / f"{name}.run").write_text("".join(rows[part.start * 8 : part.stop * 8]))
    assert run("index", "corpus.jsonl", "--out", "i").returncode == 0
    return tmp_path


TRAIN = ["train", "--index", "i", "--queries", "train.tsv", "--qrels", "train.qrels", "--run", "train.run"]
VALID = ["--valid-queries", "valid.tsv", "--valid-qrels", "valid.qrels", "--valid-run", "valid.run"]
SETTINGS = [
    "--epochs",
    3,
    "--set",
    "rate=0.01",
    "--set",
    "rates={}",
    "--set",
    "batch=16",
    "--set",
    "device=cpu",
]


def test_a_trained_ranker_is_used_at_once_and_reported(world, run):
    pytest.importorskip("matplotlib")
    done = run(
        *TRAIN, *VALID, "--ranker", "knrm(min_count=1, width=16)", *SETTINGS, "--out", "mine", "--json"
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["best"] > said["first_stage"]
    for name in ("report.html", "curve.svg", "log.jsonl", "settings.json", "validation.run"):
        assert (world / "mine" / name).exists()
    again = run(
        *("rerank", "--run", "valid.run", "--queries", "valid.tsv", "--index", "i", "--precision", "fp32"),
        *("--ranker", "mine", "--out", "new.run"),
    )
    assert again.returncode == 0, again.stderr
    new, kept = read_run(world / "new.run"), read_run(world / "mine" / "validation.run")
    assert {q: new[q].doc_ids for q in new} == {q: kept[q].doc_ids for q in kept}


def test_several_files_of_pairs_are_learned_and_validation_reads_passages(world, run):
    some = []
    for line in (world / "train.tsv").read_text().splitlines():
        query_id, asked = line.split("\t")
        for d in range(4):
            text = f"{asked} note" if d < 2 else "note"
            pair = {"query_id": query_id, "query": asked, "doc_id": f"{query_id}d{d}", "text": text}
            some.append(json.dumps(pair | {"label": int(d < 2)}))
    (world / "a.jsonl").write_text("\n".join(some[:40]))
    (world / "b.jsonl").write_text("\n".join(some[40:]))
    done = run(
        *("train", "--index", "i", "--pairs", "a.jsonl", "--pairs", "b.jsonl", *VALID),
        *(
            "--split",
            "windows(4, 4, limit=None)",
            "--pool",
            "top(2)",
            "--ranker",
            "knrm(min_count=1, width=16)",
        ),
        *(*SETTINGS, "--out", "parts", "--json"),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["steps"] == 9  # 36 relevant pairs of both files by 16, three times
    use = json.loads((world / "parts" / "ranker" / "manifest.json").read_text())["use"]
    assert use == {"split": "windows(4, 4, limit=None)", "pool": "top(2)"}


def test_wrong_use_is_explained(world, run):
    for arguments, said in [
        ([*TRAIN, "--out", "x"], "either --ranker SPEC"),
        ([*TRAIN, "--ranker", "knmr()", "--out", "x"], "knrm"),
        ([*TRAIN[:3], "--ranker", "knrm(min_count=1)", "--out", "x"], "give --queries and --qrels"),
        ([*TRAIN, "--ranker", "knrm(min_count=1)", "--valid-run", "valid.run", "--out", "x"], "needs all of"),
        ([*TRAIN, *VALID, "--ranker", "knrm(min_count=1)", "--set", "rate", "--out", "x"], "NAME=VALUE"),
        ([*TRAIN, *VALID, "--ranker", "knrm(min_count=1)", "--set", "rat=1", "--out", "x"], "rate"),
    ]:
        done = run(*arguments)
        assert done.returncode == 2, (arguments, done.stderr)
        assert said in done.stderr
        assert not (world / "x").exists()
