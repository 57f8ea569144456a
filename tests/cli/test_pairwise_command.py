"""rankhouse rerank with duoT5: behind another ranker, its cost said first, for the best few only."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import rankhouse as rh
from rankhouse.io.trec import read_run
from rankhouse.systems.rankers import ComputeOptions
from rankhouse.systems.reranking import open_reranker

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
GOLDEN = Path(__file__).parents[1] / "golden" / "monot5"


@pytest.fixture
def duo(tmp_path):
    shutil.copytree(GOLDEN / "tiny_t5_v1_0", tmp_path / "t5")
    shutil.copy(GOLDEN / "spiece.model", tmp_path / "t5")
    return str(tmp_path / "t5")


def asked(ranker, *more):
    given = ("--run", "bm25.run", "--queries", "queries.tsv", "--index", "my.index")
    return ("rerank", *given, "--ranker", ranker, *CPU, *more)


def test_it_orders_what_monot5_ordered_and_says_its_cost_first(files, run, duo):
    first = run(*asked(f"monot5({duo!r})", "--out", "mono.run"))
    assert first.returncode == 0, first.stderr
    sizes = [len(ranking.scores) for ranking in read_run(files / "mono.run").values()]
    spec = f"duot5({duo!r})"
    done = run(
        *asked(spec, "--out", "duo.run")[:1], "--run", "mono.run", *asked(spec, "--out", "duo.run")[3:]
    )
    assert done.returncode == 0, done.stderr
    total = sum(k * (k - 1) for k in sizes)
    assert f"{total} comparisons: up to 50 documents of each of {len(sizes)} queries" in done.stderr
    assert f"in {total} comparisons in" in done.stderr
    assert (files / "duo.run").read_text().split()[5].startswith("duot5-")
    duo_run = read_run(files / "duo.run")
    index, queries = rh.Index.open(files / "my.index"), rh.read_queries(str(files / "queries.tsv"))[:2]
    same = rh.rerank(spec, str(files / "mono.run"), queries, index)
    for query_id in duo_run:
        assert same[query_id].doc_ids == duo_run[query_id].doc_ids
        np.testing.assert_allclose(same[query_id].scores, duo_run[query_id].scores, atol=0.05)  # bf16
        k = len(duo_run[query_id].scores)
        assert duo_run[query_id].scores.sum() == pytest.approx(k * (k - 1), rel=1e-4)  # every two share 2


def test_depth_and_json(files, run, duo):
    done = run(*asked(f"duot5({duo!r}, aggregate='sum')", "--depth", 2, "--json", "--out", "duo.run"))
    said = json.loads(done.stdout)
    assert said["documents"] == sum(min(2, len(r.scores)) for r in read_run(files / "bm25.run").values())
    assert said["truncated"] == 0


@pytest.mark.slow
def test_long_documents_are_cut_and_counted_or_their_passages_chosen(files, run, duo):
    long = {"id": "long", "text": "Harbour pilots steer ships. " * 200}
    (files / "long.jsonl").write_text(
        "\n".join(json.dumps(d) for d in (long, {"id": "s", "text": "High water."}))
    )
    assert run("index", "long.jsonl", "--out", "my.index2").returncode == 0
    (files / "bm25.run").write_text("q1 Q0 long 1 2.0 t\nq1 Q0 s 2 1.0 t\n")
    given = (
        "--run",
        "bm25.run",
        "--queries",
        "queries.tsv",
        "--index",
        "my.index2",
        *CPU,
        "--out",
        "duo.run",
    )
    cut = run("rerank", *given, "--ranker", f"duot5({duo!r})")
    assert "2 of 2 comparisons did not fit into 512 tokens" in cut.stderr
    assert "1 query, 2 documents in " in cut.stderr + cut.stdout
    chosen = f'duot5({duo!r}, passages="monot5({duo!r})")'
    whole = run("rerank", *given, "--ranker", chosen, "--split", "sentences(2, 2)")
    assert whole.returncode == 0, whole.stderr
    assert "did not fit" not in whole.stderr
    alone = run("rerank", *given, "--ranker", f"duot5({duo!r})", "--split", "sentences(2, 2)")
    assert alone.returncode == 2
    assert "name the ranker that chooses" in alone.stderr


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (("--pool", "mean"), "--pool would change nothing here"),
        (("--cache", "scores"), "--cache would change nothing here"),
        (("--alone",), "--alone would change nothing here"),
    ],
)
def test_what_has_no_meaning_for_comparisons_is_refused(files, run, duo, more, said):
    done = run(*asked(f"duot5({duo!r})", *more, "--out", "x.run"))
    assert done.returncode == 2
    assert said in done.stderr


def test_wrong_arguments_and_places_are_refused(files, run, duo):
    for spec, said in (
        (f"duot5({duo!r}, aggregate='max')", "sum, sym-sum"),
        (f"duot5({duo!r}, aggregate=1)", "texts in quotes"),
        (f"duot5({duo!r}, best=1)", "accepted: duot5(path"),
    ):
        done = run(*asked(spec, "--out", "x.run"))
        assert done.returncode == 2, done.stderr
        assert said in done.stderr
    label = ("--rule", f"taught({f'duot5({duo!r})'!r})", "--run", "bm25.run", "--queries", "queries.tsv")
    done = run("label", *label, "--index", "my.index", *CPU, "--out", "pairs.jsonl")
    assert done.returncode == 2
    assert "compares the documents of a list two by two" in done.stderr
    assert "rerank, behind a ranker that does" in done.stderr
    with pytest.raises(rh.RankhouseError, match="pool and cache"):
        rh.rerank(f"duot5({duo!r})", {"q1": {"d1": 1.0}}, {"q1": "x"}, files / "my.index", pool="max")
    assert open_reranker(f"duot5({duo!r})", ComputeOptions("fp32", "cpu", 1)).aggregate == "sym-sum"
