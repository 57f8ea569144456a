"""Two processes told to write one output: one writes it, the other says why it does not, nothing is mixed."""

import json
import os
import random
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("torch")
TINY = Path(__file__).parents[1]
TRIALS = 2
START = "import sys; from rankhouse.cli.main import main; sys.argv[0] = 'rankhouse'; main()"


def once(folder, *arguments):
    done = subprocess.run(
        [sys.executable, "-c", START, *map(str, arguments)],
        cwd=folder, capture_output=True, text=True, check=False, env=os.environ | {"OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    return done.returncode, done.stderr


def at_once(folder, *arguments):
    """Start a command twice at the same moment: one succeeds, the other does too or is refused."""
    with ThreadPoolExecutor(2) as pool:
        ended = sorted(pool.map(lambda _: once(folder, *arguments), range(2)))
    (first, said), (second, refused) = ended
    assert first == 0, said
    assert second == 0 or (second == 2 and "another process is writing it" in refused), ended
    return second == 2


@pytest.fixture
def world(tmp_path):
    rng = random.Random(0)
    words = [f"word{i}" for i in range(60)]
    corpus, queries, qrels, rows = [], [], [], []
    for q in range(40):
        asked = rng.sample(words, 3)
        queries.append(f"q{q}\t{' '.join(asked)}\n")
        for d in range(20):
            text = " ".join([*(asked if d < 2 else [asked[d % 3]]), *rng.choices(words, k=40)])
            corpus.append(json.dumps({"id": f"q{q}d{d}", "text": text}) + "\n")
            qrels.append(f"q{q} 0 q{q}d{d} {int(d < 2)}\n")
            rows.append(f"q{q} Q0 q{q}d{d} 1 {rng.random():.5f} t\n")
    for name, lines in {"c.jsonl": corpus, "q.tsv": queries, "qrels": qrels, "r.run": rows}.items():
        (tmp_path / name).write_text("".join(lines))
    assert once(tmp_path, "index", "c.jsonl", "--out", "i")[0] == 0
    return tmp_path


@pytest.mark.slow
def test_one_label_writes_a_file(world):
    label = (
        *("label", "--rule", 'judged("qrels")', "--queries", "q.tsv", "--index", "i", "--run", "r.run"),
        *("--split", "words(5)", "--out"),
    )
    assert once(world, *label, "alone.jsonl")[0] == 0
    for trial in range(TRIALS):
        at_once(world, *label, f"{trial}.jsonl")
        assert (world / f"{trial}.jsonl").read_bytes() == (world / "alone.jsonl").read_bytes()
    assert not list(world.glob(".*"))


@pytest.mark.slow
def test_one_train_writes_a_folder(world):
    train = (
        *("train", "--index", "i", "--queries", "q.tsv", "--qrels", "qrels", "--run", "r.run"),
        *("--ranker", "knrm(min_count=1, width=8)", "--epochs", "2", "--set", "batch=8", "--set"),
        *("device=cpu", "--out"),
    )
    assert once(world, *train, "alone")[0] == 0
    for trial in range(TRIALS):
        at_once(world, *train, trial)
        logs = [
            [
                {k: v for k, v in json.loads(line).items() if k != "seconds"}
                for line in log.read_text().splitlines()
            ]
            for log in (world / "alone" / "log.jsonl", world / f"{trial}" / "log.jsonl")
        ]
        assert logs[0] == logs[1]
        weights = [
            [path.read_bytes() for path in (world / name / "ranker").rglob("*.safetensors")]
            for name in ("alone", str(trial))
        ]
        assert weights[0]
        assert weights[0] == weights[1]


@pytest.mark.slow
def test_one_run_works_in_a_result(world):
    (world / "r.toml").write_text(
        'title = "t"\n[data]\ncorpus = "c.jsonl"\nqueries = "q.tsv"\n[loop]\nk1 = [0.5, 0.9, 1.2]\n'
        '[steps.index]\nstation = "index"\ncorpus = "@corpus"\n'
        '[steps.bm25]\nstation = "search"\nindex = "@index"\nqueries = "@queries"\nmodel = "bm25(k1={k1})"\n'
    )
    assert once(world, "run", "r.toml", "--out", "alone")[0] == 0
    alone = {path.name: path.read_bytes() for path in (world / "alone").rglob("*.run")}
    for trial in range(TRIALS):
        at_once(world, "run", "r.toml", "--out", trial)
        assert {path.name: path.read_bytes() for path in (world / str(trial)).rglob("*.run")} == alone


@pytest.mark.slow
def test_one_pretrain_writes_a_folder(world):
    pretrain = (
        *("pretrain", "c.jsonl", "--vocabulary", TINY / "golden" / "monot5" / "spiece.model", "--steps", "3"),
        *(
            "--batch",
            "4",
            "--length",
            "16",
            "--d-model",
            "16",
            "--heads",
            "2",
            "--layers",
            "1",
            "--d-ff",
            "16",
        ),
    )
    for trial in range(TRIALS):
        at_once(world, *pretrain, "--out", trial)
        log = [
            json.loads(line)["step"] for line in (world / str(trial) / "log.jsonl").read_text().splitlines()
        ]
        assert log == sorted(log)
        assert len(log) == 3  # held out before and after, and one line of losses
        assert (world / str(trial) / "outcome.json").exists()
