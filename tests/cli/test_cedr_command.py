"""CEDR from the command line: begun on a checkpoint, trained, reranked with, explained by removal."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from rankhouse.io.trec import read_run

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@pytest.mark.slow
def test_a_cedr_is_trained_and_used_like_any_ranker(files, run, bert):
    spec = f"cedr_pacrr({str(bert('BertModel'))!r}, query_length=8, passage_length=12)"
    given = ("--queries", "queries.tsv", "--index", "my.index")
    data = ("--qrels", "qrels.txt", "--run", "bm25.run", "--set", "negatives=any", "--set", "steps=3")
    trained = run("train", "--ranker", spec, *given, *data, "--out", "mine")
    assert trained.returncode == 0, trained.stderr
    assert (
        run("rerank", "--run", "bm25.run", *given, "--ranker", "mine", *CPU, "--out", "a.run").returncode == 0
    )
    assert (files / "a.run").read_text().split()[5].startswith("cedr_pacrr-")
    reranked, first = read_run(files / "a.run"), read_run(files / "bm25.run")
    assert {q: set(reranked[q].doc_ids) for q in reranked} == {q: set(first[q].doc_ids) for q in first}

    (files / "long.jsonl").write_text(
        json.dumps({"id": "d1", "text": "Pilots steer ships. " * 3 + "High water. " * 9})
    )
    assert run("index", "long.jsonl", "--out", "long.index").returncode == 0
    asked = ("--index", "long.index", "--query", "pilots steer ships", "--ranker", "mine", "--doc", "d1")
    why = run("explain", *asked, "--json", *CPU)
    assert why.returncode == 0, why.stderr
    said = json.loads(why.stdout)
    assert said["method"] == "sentence removal"
    assert sum(part["value"] for part in said["parts"]) == pytest.approx(said["score"], abs=1e-4)
    assert any("longer than the ranker's limit" in note for note in said["notes"])

    untrained = run("rerank", "--run", "bm25.run", *given, "--ranker", spec, *CPU, "--out", "b.run")
    assert untrained.returncode == 2
    assert "is not published, it is trained" in untrained.stderr
