"""rankhouse pretrain: from files to a T5 that train and rerank take, and plain refusals."""

import json
from pathlib import Path

import pytest

pytest.importorskip("torch")

from rankhouse.models.monot5 import open_monot5

TINY = Path(__file__).parents[1] / "tiny" / "questions"
SPIECE = Path(__file__).parents[1] / "golden" / "monot5" / "spiece.model"
SMALL = (
    "--d-model",
    16,
    "--layers",
    1,
    "--heads",
    2,
    "--d-ff",
    16,
    "--steps",
    3,
    "--batch",
    4,
    "--length",
    24,
)


@pytest.mark.slow
def test_a_collection_becomes_a_t5_that_learns_to_rank(run, tmp_path):
    corpus = TINY / "corpus.jsonl.gz"
    code, said, told = run("pretrain", corpus, "--vocabulary", SPIECE, *SMALL, "--out", "t5", "--json")
    assert code == 0, told
    outcome = json.loads(said)
    assert outcome["steps"] == 3
    assert outcome["parameters"] == sum(p.numel() for p in open_monot5("t5").network.parameters())

    assert run("index", corpus, "--out", "i")[0] == 0
    learn = ("--queries", TINY / "queries.train.jsonl", "--qrels", TINY / "qrels.train.txt")
    given = ("--run", TINY / "runs" / "candidates.train.run")
    quick = ("--set", "batch=8", "--set", "accumulate=1", "--epochs", 1)
    code, _, told = run(
        "train", "--ranker", 'monot5("t5")', "--index", "i", *learn, *given, *quick, "--out", "m"
    )
    assert code == 0, told
    code, _, told = run(
        "train", "--init", 'monot5("t5")', "--index", "i", *learn, *given, *quick, "--out", "n"
    )
    assert code == 0, told
    weights = [Path(name, "ranker", "weights.safetensors") for name in "mn"]
    assert weights[0].read_bytes() == weights[1].read_bytes()

    code, _, told = run("pretrain", corpus, "--init", "t5", *SMALL[8:], "--out", "further")
    assert code == 0, told
    assert "loss on held-out text" in told


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "give either --vocabulary"),
        (("--vocabulary", SPIECE, "--size", "huge"), "choose from: base, mini, small, tiny"),
        (("--vocabulary", SPIECE, "--set", "stepps=3"), 'did you mean "steps"'),
        (("--vocabulary", SPIECE, "--set", "density=2"), "density=2"),
        (("--vocabulary", SPIECE, "--set", 'precision="int4"'), "int4"),
        (("--init", "t5", "--d-model", 64), "the sizes are those of t5; leave out d_model"),
        (("--vocabulary", SPIECE, "--d-model", 130, "--heads", 4), "d_model=130, heads=4, d_kv=0: give"),
        (("--vocabulary", SPIECE, "--d-model", "99999999999999999999"), "1<=x<=65536"),
        (("--vocabulary", SPIECE, "--length", "99999999999999999999"), "8<=x<=65536"),
        (("--vocabulary", "nothing.model"), "nothing.model: there is no such file"),
    ],
)
def test_what_is_wrong_is_said(arguments, said, run):
    code, _, told = run("pretrain", TINY / "corpus.jsonl.gz", *arguments, "--out", "t5")
    assert code in (1, 2)
    assert said in told
    assert not Path("t5").exists()
