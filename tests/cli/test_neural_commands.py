"""encode, dense search, rerank and doctor of rankers, on tiny real checkpoints."""

import json
import shutil

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from rankhouse.io.trec import read_run

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]


@pytest.fixture(scope="module")
def cross(bert):
    """A two-class BERT with its vocabulary."""
    return bert("BertForSequenceClassification", num_labels=2)


@pytest.fixture(scope="module")
def encoder(bert):
    return bert("BertModel")


def test_rerank_orders_anew_and_goes_on_from_its_cache(files, run, cross):
    asked = ["rerank", "--run", "bm25.run", "--queries", "queries.tsv", "--index", "my.index", "--json", *CPU]
    ranker = ["--ranker", f"crossencoder({str(cross)!r})", "--cache", "scores"]
    done = run(*asked, *ranker, "--depth", 1, "--out", "new.run")
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert (said["queries"], said["documents"], said["cached"]) == (2, 2, 0)
    first, second = read_run(files / "bm25.run"), read_run(files / "new.run")
    assert {q: set(second[q].doc_ids) for q in second} == {q: set(first[q].doc_ids) for q in first}
    assert all(second[q].doc_ids[0] == first[q].doc_ids[0] for q in first)
    again = run(*asked, *ranker, "--depth", 1, "--out", "again.run")
    assert json.loads(again.stdout)["cached"] == 2
    assert read_run(files / "again.run") == second
    dropped = run(*asked, *ranker, "--depth", 1, "--tail", "drop", "--out", "short.run")
    assert dropped.returncode == 0
    assert all(len(r.doc_ids) == 1 for r in read_run(files / "short.run").values())


def test_rerank_refuses_the_index_of_another_collection(files, run, cross):
    (files / "other.jsonl").write_text('{"id": "z9", "text": "dogs bark"}\n')
    assert run("index", "other.jsonl", "--out", "other.index").returncode == 0
    asked = ["rerank", "--run", "bm25.run", "--queries", "queries.tsv", "--index", "other.index", *CPU]
    ranker = ["--ranker", f"crossencoder({str(cross)!r})"]
    wrong = run(*asked, *ranker, "--out", "wrong.run")
    assert wrong.returncode == 1
    assert "no document of the run bm25.run is in this index" in wrong.stderr
    assert not (files / "wrong.run").exists()
    sharded = run(*asked, *ranker, "--shard", "1/1", "--out", "shards")
    assert sharded.returncode == 0, sharded.stderr
    merged = run("merge", "shards", "--out", "wrong.run")
    assert merged.returncode == 1
    assert "no document of the run bm25.run is in this index" in merged.stderr
    assert not (files / "wrong.run").exists()


def test_rerank_warns_of_what_was_not_read_and_splits(files, run, cross):
    (files / "long.jsonl").write_text(json.dumps({"id": "long", "text": "harbour pilots steer ships. " * 60}))
    assert run("index", "long.jsonl", "--out", "long.index").returncode == 0
    (files / "long.run").write_text("q1 Q0 long 1 1.0 t\n")
    asked = ["rerank", "--run", "long.run", "--queries", "queries.tsv", "--index", "long.index", *CPU]
    cut = run(*asked, "--ranker", f"crossencoder({str(cross)!r})", "--out", "a.run")
    assert cut.returncode == 0, cut.stderr
    assert "1 of 1 passages did not fit into 64 tokens" in cut.stderr
    whole = run(
        *asked,
        "--ranker",
        f"crossencoder({str(cross)!r})",
        "--split",
        "windows(4, 2, limit=1000)",
        "--out",
        "b.run",
    )
    assert whole.returncode == 0, whole.stderr
    assert "did not fit" not in whole.stderr


def test_rerank_says_when_it_is_the_query_that_was_cut(files, run, cross):
    (files / "short.jsonl").write_text(json.dumps({"id": "d", "text": "harbour pilots"}))
    (files / "long.tsv").write_text("q1\t" + "who steers ships " * 60 + "\n")
    (files / "short.run").write_text("q1 Q0 d 1 1.0 t\n")
    assert run("index", "short.jsonl", "--out", "short.index").returncode == 0
    asked = ["rerank", "--run", "short.run", "--queries", "long.tsv", "--index", "short.index", *CPU]
    done = run(*asked, "--ranker", f"crossencoder({str(cross)!r})", "--out", "a.run", "--json")
    assert done.returncode == 0, done.stderr
    assert "tokens were not read (all of queries: shorten these" in done.stderr
    assert "--split" not in done.stderr
    said = json.loads(done.stdout)
    assert said["tokens_lost"] == said["query_tokens_lost"] > 100


def test_vectors_of_another_precision_are_refused_with_what_to_do(files, run, encoder):
    said = f"biencoder({str(encoder)!r})"
    assert run("encode", "--index", "my.index", "--ranker", said, "--precision", "bf16").returncode == 0
    asked = ["search", "--index", "my.index", "--queries", "queries.tsv", "--model", f"dense({said!r})"]
    refused = run(*asked, "--out", "dense.run", "--precision", "fp32")
    assert refused.returncode == 1
    assert (
        "was encoded in bf16, the queries would be in fp32; search with  --precision bf16" in refused.stderr
    )
    assert "(adapt), encode again:  rankhouse encode ... --precision fp32 --overwrite" in refused.stderr
    assert run(*asked, "--out", "dense.run", "--precision", "bf16").returncode == 0
    again = run("encode", "--index", "my.index", "--ranker", said, "--precision", "fp32", "--overwrite")
    assert again.returncode == 0, again.stderr
    assert run(*asked, "--out", "new.run", "--precision", "fp32").returncode == 0


def test_encode_search_dense_and_hybrid(files, run, encoder):
    said = f"biencoder({str(encoder)!r})"
    made = run("encode", "--index", "my.index", "--ranker", said, "--json", *CPU)
    assert made.returncode == 0, made.stderr
    assert json.loads(made.stdout)["dimension"] == 32
    asked = ["search", "--index", "my.index", "--queries", "queries.tsv", *CPU]
    dense = run(*asked, "--model", f"dense({said})", "--out", "dense.run")
    assert dense.returncode == 2 or dense.returncode == 0, dense.stderr
    plain = run(*asked, "--model", f"dense({said!r})", "--out", "dense.run")
    assert plain.returncode == 0, plain.stderr
    assert all(len(r.doc_ids) == 4 for r in read_run(files / "dense.run").values())
    both = run(
        *asked, "--model", "bm25", "--model", f"dense({said!r})", "--fusion", "rrf", "--out", "both.run"
    )
    assert both.returncode == 0, both.stderr
    assert len(read_run(files / "both.run")["q1"].doc_ids) == 4
    assert run(
        "search", "--index", "my.index", "--query", "ships", "--model", f"dense({said!r})", *CPU
    ).stdout


def test_vectors_that_do_not_cover_the_index_are_refused(files, run, encoder):
    said = f"biencoder({str(encoder)!r})"
    assert run("encode", "--index", "my.index", "--ranker", said, *CPU).returncode == 0
    (files / "more.tsv").write_text("d9\tmore harbours\n")
    assert run("index", "more.tsv", "--out", "my.index", "--append").returncode == 0
    asked = ["search", "--index", "my.index", "--query", "ships", "--model", f"dense({said!r})", *CPU]
    stale = run(*asked)
    assert stale.returncode == 1
    assert "encode" in stale.stderr
    assert run("encode", "--index", "my.index", "--ranker", said, *CPU).returncode == 0
    assert run(*asked).returncode == 0


def test_the_doctor_tries_a_ranker(files, run, cross, tmp_path_factory):
    done = run("doctor", f"crossencoder({str(cross)!r})", "--corpus", "corpus.jsonl")
    assert done.returncode == 0, done.stdout
    for fact in (
        "family: crossencoder",
        "most tokens: 64",
        "alone and in company",
        "of the first 4 documents",
    ):
        assert fact in done.stdout
    broken = tmp_path_factory.mktemp("broken") / "model"
    shutil.copytree(cross, broken)
    (broken / "model.safetensors").write_bytes(b"not weights")
    ill = run("doctor", f"crossencoder({str(broken)!r})", "--json")
    assert ill.returncode == 1
    assert "cannot be loaded" in json.loads(ill.stdout)[0]["faults"][0]


def test_wrong_rankers_are_explained(files, run, encoder):
    asked = [
        "rerank",
        "--run",
        "bm25.run",
        "--queries",
        "queries.tsv",
        "--index",
        "my.index",
        "--out",
        "x.run",
    ]
    for spec, code, said in [
        (f"crossencoder({str(encoder)!r})", 1, "classifier"),
        ("nowhere", 1, "nowhere"),
        ("monot6('x')", 2, "monot5"),
    ]:
        done = run(*asked, "--ranker", spec, *CPU)
        assert done.returncode == code, done.stderr
        assert said in done.stderr
        assert "Traceback" not in done.stderr
    assert not (files / "x.run").exists()
