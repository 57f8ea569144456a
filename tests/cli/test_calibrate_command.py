"""rankhouse calibrate: the scores stay, the thresholds become probabilities, the bundle keeps them."""

import json

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.scores import probabilities
from rankhouse.io.pairs import LabelledPair, write_pairs
from rankhouse.io.trec import read_run
from rankhouse.labels.leaf_rules import taught
from rankhouse.models.bundle import read_manifest
from rankhouse.systems.rankers import ComputeOptions, open_ranker

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
WORDS = [
    "harbour",
    "pilots",
    "steer",
    "ships",
    "tide",
    "water",
    "high",
    "grain",
    "prices",
    "storm",
    "coal",
    "cranes",
    "night",
]


@pytest.fixture(scope="module")
def cross(bert):
    """A two-class BERT with its vocabulary."""
    return f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})"


@pytest.fixture
def world(tmp_path, run, cross):
    """Forty documents, eight queries, judgements that follow the ranker's own order, with errors."""
    generator = np.random.default_rng(0)
    texts = {f"d{i}": " ".join(generator.choice(WORDS, 6)) for i in range(40)}
    queries = {f"q{i}": " ".join(generator.choice(WORDS, 3)) for i in range(8)}
    lines = [json.dumps({"id": d, "text": text}) for d, text in texts.items()]
    (tmp_path / "corpus.jsonl").write_text("\n".join(lines))
    (tmp_path / "queries.tsv").write_text("".join(f"{q}\t{text}\n" for q, text in queries.items()))
    assert run("index", "corpus.jsonl", "--out", "my.index").returncode == 0
    searched = ("search", "--index", "my.index", "--queries", "queries.tsv", "-k", 20, "--out", "first.run")
    assert run(*searched).returncode == 0
    ranker = open_ranker(cross, ComputeOptions("fp32", "cpu", 1))
    first = read_run(tmp_path / "first.run")
    pairs = [Pair(Query(q, queries[q]), Passage(d, 0, texts[d])) for q in first for d in first[q].doc_ids]
    logits = ranker.score(pairs)
    yes = generator.random(len(pairs)) < 1 / (1 + np.exp(-(logits - np.median(logits)) * 4 / logits.std()))
    rows = [f"{p.query.id} 0 {p.passage.doc_id} {int(r)}\n" for p, r in zip(pairs, yes, strict=True)]
    (tmp_path / "qrels.txt").write_text("".join(rows))
    write_pairs(
        (LabelledPair.of(p, int(r)) for p, r in zip(pairs, yes, strict=True)), tmp_path / "pairs.jsonl"
    )
    return tmp_path, pairs, logits, yes


def asked(ranker, *more):
    given = ("--run", "first.run", "--queries", "queries.tsv", "--index", "my.index", "--qrels", "qrels.txt")
    return ("calibrate", "--ranker", ranker, *given, *CPU, *more)


@pytest.mark.quick("isotonic")
@pytest.mark.parametrize("method", ["platt", "isotonic"])
def test_a_calibrated_bundle_scores_as_before_and_means_probabilities(world, run, cross, method):
    folder, pairs, logits, yes = world
    pytest.importorskip("matplotlib")
    page = ("--report", "page.html", "--chart", "figure.svg", "--json")
    done = run(*asked(cross, "--method", method, "--out", "mine", *page))
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["pairs"], said["relevant"], said["queries"]) == (len(pairs), yes.sum(), 8)
    assert said["goodness"][-1]["brier"]["mean"] < said["goodness"][0]["brier"]["mean"]
    assert "<svg" in (folder / "page.html").read_text()
    assert (folder / "figure.svg").exists()

    ranker = open_ranker(str(folder / "mine"), ComputeOptions("fp32", "cpu", 1))
    plain = open_ranker(cross, ComputeOptions("fp32", "cpu", 1))
    assert ranker.scale == said["scale"] == read_manifest(folder / "mine").calibration
    assert ranker.scale.startswith(method)
    np.testing.assert_array_equal(ranker.score(pairs), logits)
    assert ranker.fingerprint == plain.fingerprint
    p = probabilities(ranker.score(pairs), ranker.scale)
    assert abs(p.mean() - yes.mean()) < 0.02
    rule = taught(ranker, threshold=0.5)
    from rankhouse.labels.rules import ChunkScores

    answers = rule.ask(ChunkScores(pairs), np.arange(len(pairs)))
    np.testing.assert_array_equal(answers, p >= 0.5)
    assert 0 < answers.sum() < len(pairs)

    for name, spec in (("before", cross), ("after", "mine")):
        reranked = ("--run", "first.run", "--queries", "queries.tsv", "--index", "my.index", *CPU)
        assert (
            run("rerank", *reranked, "--ranker", spec, "--out", f"{name}.run", "--tag", "t").returncode == 0
        )
    assert (folder / "before.run").read_bytes() == (folder / "after.run").read_bytes()
    in_shares = ("rerank", *reranked, "--ranker", "mine", "--pool", 'max(scale="probability")')
    assert run(*in_shares, "--out", "shares.run").returncode == 0
    shares, after = read_run(folder / "shares.run"), read_run(folder / "after.run")
    for q in after:
        np.testing.assert_allclose(
            sorted(shares[q].scores), sorted(probabilities(after[q].scores, ranker.scale)), rtol=1e-5
        )


@pytest.mark.slow
def test_pairs_and_documents_give_the_same_fit_and_a_bundle_is_calibrated_again_in_place(world, run, cross):
    folder = world[0]
    assert run(*asked(cross, "--out", "one")).returncode == 0
    of_pairs = run("calibrate", "--ranker", cross, "--pairs", "pairs.jsonl", *CPU, "--out", "two")
    assert of_pairs.returncode == 0, of_pairs.stderr
    first = read_manifest(folder / "one").calibration
    assert read_manifest(folder / "two").calibration == first
    assert run(*asked("one", "--out", "one", "--split", "words(100)")).returncode == 0
    assert read_manifest(folder / "one").calibration == first
    assert read_manifest(folder / "one").use == {"split": "words(100)"}
    done = run("doctor", "one")
    assert "platt(" in done.stdout + done.stderr


def test_only_what_was_judged_counts_where_that_is_wanted(world, run, cross):
    folder, pairs, _, yes = world
    rows = [r for r in (folder / "qrels.txt").read_text().splitlines() if not r.endswith("d7 0")]
    half = [r for i, r in enumerate(rows) if r.endswith(" 1") or i % 2]
    (folder / "qrels.txt").write_text("\n".join(half) + "\n")
    whole = json.loads(run(*asked(cross, "--json", "--out", "a")).stdout)
    part = json.loads(run(*asked(cross, "--json", "--judged-only", "--out", "b")).stdout)
    assert (whole["pairs"], whole["relevant"]) == (len(pairs), yes.sum())
    assert (part["pairs"], part["relevant"]) == (len(half), yes.sum())


def test_wrong_use_is_said_plainly(world, run, cross):
    folder = world[0]
    neither = run("calibrate", "--ranker", cross, "--out", "x")
    assert neither.returncode == 2
    assert "give --run, --queries, --index and --qrels, or --pairs" in neither.stderr
    some = run("calibrate", "--ranker", cross, "--run", "first.run", "--out", "x")
    assert "a run needs all of" in some.stderr
    both = run(*asked(cross, "--pairs", "pairs.jsonl", "--out", "x"))
    assert both.returncode == 2
    idle = run("calibrate", "--ranker", cross, "--pairs", "pairs.jsonl", "--split", "whole", "--out", "x")
    assert "--split would change nothing here" in idle.stderr
    mean = run(*asked(cross, "--pool", "mean", "--out", "x"))
    assert mean.returncode == 2
    assert "calibrate with max or first" in mean.stderr
    (folder / "qrels.txt").write_text("q1 0 d1 1\n")
    few = run(*asked(cross, "--out", "x"))
    assert few.returncode == 1
    assert "at least 5 of each" in few.stderr
    assert not (folder / "x").exists()


def test_scores_of_pairs_are_kept(world, run, cross):
    folder = world[0]
    rows = [
        {
            "query_id": f"q{n}",
            "query": "ships",
            "doc_id": "d",
            "passage": 0,
            "text": f"ships {n}",
            "label": n % 2,
        }
        for n in range(12)
    ]
    (folder / "pairs.jsonl").write_text("\n".join(map(json.dumps, rows)) + "\n")
    given = ("calibrate", "--ranker", cross, "--pairs", "pairs.jsonl", "--json", "--out")
    done = [run(*given, "x", *cache) for cache in ((), ("--cache", "scores"), ("--cache", "scores"))]
    assert all(one.returncode == 0 for one in done)
    assert len({one.stdout for one in done}) == 1
    assert "scores: 12" in run("doctor", "scores").stdout


def test_a_training_keeps_the_calibration_in_its_own_bundle(world, run, cross):
    """Onto the folder of the training it was refused, which is what --ranker names."""
    folder, *_ = world
    (folder / "mine").mkdir()
    open_ranker(cross, ComputeOptions("fp32", "cpu", 1)).save(folder / "mine" / "ranker")
    (folder / "mine" / "log.jsonl").write_text("{}\n")
    done = run(*asked("mine", "--out", "mine"))
    assert done.returncode == 0, done.stderr
    assert read_manifest(folder / "mine" / "ranker").calibration.startswith("platt(")
    assert sorted(path.name for path in (folder / "mine").iterdir()) == ["log.jsonl", "ranker"]
    other = run(*asked(cross, "--out", "mine"))
    assert other.returncode == 2
    assert "log.jsonl" in other.stderr
