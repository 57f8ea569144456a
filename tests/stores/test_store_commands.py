"""push, pull, and what comes after them, on the command line."""

import json
import os

import pytest

from rankhouse.io.corpora import read_documents
from rankhouse.io.trec import read_run

from .conftest import _need

CPU = ["--precision", "fp32", "--device", "cpu", "--threads", "1"]
BM25 = "bm25(k1=0.9, b=0.4)"
CORPUS = """{"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."}
{"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."}
{"id": "d3", "text": "A lock lifts ships between two levels of water."}
{"id": "d4", "text": "the of and"}
"""


@pytest.fixture
def files(tmp_path, run):
    (tmp_path / "corpus.jsonl").write_text(CORPUS)
    (tmp_path / "queries.tsv").write_text("q1\tpilots steer ships\nq2\thigh water\n")
    assert run("index", "corpus.jsonl", "--out", "my.index").returncode == 0
    return tmp_path


@pytest.mark.quick("qdrant_edge")
@pytest.mark.parametrize("kind", ["qdrant", "qdrant_edge"])
def test_push_pull_and_rerank(files, run, bert, kind):
    pytest.importorskip("transformers")
    _need(kind)
    store, made = f'{kind}("store", collection="papers")', f"biencoder({str(bert('BertModel'))!r})"
    assert run("encode", "--index", "my.index", "--ranker", made, *CPU).returncode == 0
    asked = [
        "push",
        "--index",
        "my.index",
        "--to",
        store,
        "--impacts",
        BM25,
        "--vectors",
        "default",
        "--json",
    ]
    first = run(*asked)
    assert first.returncode == 0, first.stderr
    said = json.loads(first.stdout)
    assert (said["written"], said["documents"], said["dimension"], said["impacts"]) == (4, 4, 32, BM25)
    assert json.loads(run(*asked).stdout)["written"] == 0

    pull = ["pull", "--from", store, "--queries", "queries.tsv"]
    for more in ([], ["--feedback", "rm3"]):
        pulled = run(
            *pull,
            *more,
            *(["--index", "my.index"] if more else []),
            "--out",
            "a.run",
            "--documents",
            "d.jsonl",
        )
        assert pulled.returncode == 0, pulled.stderr
        own = ["search", "--index", "my.index", "--queries", "queries.tsv", "--model", BM25, *more]
        assert run(*own, "--out", "b.run").returncode == 0
        ours, theirs = read_run(files / "b.run"), read_run(files / "a.run")
        assert {q: theirs[q].doc_ids for q in theirs} == {q: ours[q].doc_ids for q in ours}
    dense = run(*pull, "--model", f"dense({made!r})", "--out", "dense.run", *CPU)
    assert dense.returncode == 0, dense.stderr
    own = ["search", "--index", "my.index", "--queries", "queries.tsv", "--model", f"dense({made!r})", *CPU]
    assert run(*own, "--out", "own.run").returncode == 0
    ours, theirs = read_run(files / "own.run"), read_run(files / "dense.run")
    assert {q: theirs[q].doc_ids for q in theirs} == {q: ours[q].doc_ids for q in ours}

    ranker = f"crossencoder({str(bert('BertForSequenceClassification', num_labels=2))!r})"
    for system in (f"(bm25 + 0.5 * dense({made!r})) % 3", f"bm25(feedback=rm3) % 3 >> {ranker}", "bm25 % 2"):
        index = ["--index", "my.index"] if "rm3" in system else []
        compute = CPU if "dense" in system or ">>" in system else []
        pulled = run(*pull, "--system", system, *index, "--out", "system.run", *compute)
        assert pulled.returncode == 0, pulled.stderr
        own = ["search", "--index", "my.index", "--queries", "queries.tsv", "--system", system, *compute]
        assert run(*own, "--out", "own.run").returncode == 0
        ours, theirs = read_run(files / "own.run"), read_run(files / "system.run")
        assert {q: theirs[q].doc_ids for q in theirs} == {q: ours[q].doc_ids for q in ours}, system

    # The documents may live in the store only: what was pulled is indexed, and reranked like any other run.
    assert {d.id for d in read_documents(files / "d.jsonl")} == {"d1", "d2", "d3"}
    assert run("index", "d.jsonl", "--out", "pulled.index").returncode == 0
    done = []
    for index in ("my.index", "pulled.index"):
        rerank = [
            "rerank",
            "--run",
            "a.run",
            "--queries",
            "queries.tsv",
            "--index",
            index,
            "--ranker",
            ranker,
        ]
        assert run(*rerank, "--out", f"{index}.run", *CPU).returncode == 0
        done.append(read_run(files / f"{index}.run"))
    assert done[0] == done[1]
    assert run("fuse", "a.run", "dense.run", "--method", "rrf", "--out", "fused.run").returncode == 0


def test_wrong_use(files, run):
    _need("qdrant_edge")
    store = 'qdrant_edge("store", collection="papers")'
    pull = ["pull", "--from", store, "--queries", "queries.tsv", "--out", "a.run"]
    absent = run(*pull)
    assert (absent.returncode, "there is no such collection; fill it with" in absent.stderr) == (1, True)
    assert not (files / "a.run").exists()
    assert run("push", "--index", "my.index", "--to", store).returncode == 2  # keeps nothing without vectors
    assert run("push", "--index", "my.index", "--to", store, "--impacts", BM25).returncode == 0
    for more, said in (
        (["--model", "bm25"], '"bm25" is not a known model of a store'),
        (["--feedback", "rm3"], "needs --index"),
        (["--index", "my.index"], "--index would change nothing here"),
        (["--device", "cpu"], "--device would change nothing here"),
        (["--model", "text"], "has no text search that ranks"),
        (["--system", "ql"], "holds impacts of bm25; write bm25"),
        (["--system", "bm25", "--model", "impacts"], "--system says what ranks"),
        (["--system", "bm25", "--threads", "1"], "--threads would change nothing here"),
        (["--system", "bm25", "--index", "my.index"], "only feedback reads the index"),
        (["--system", "bm25(feedback=rm3)"], "name the index they are in"),
        (["--system", "bm25 + dense('D', vectors='hnsw')"], "a store holds one set of vectors"),
        (["--documents", "queries.tsv"], "would be lost"),
    ):
        wrong = run(*pull, *more)
        assert wrong.returncode == 2, more
        assert said in " ".join(wrong.stderr.split()), wrong.stderr
    other = run("push", "--index", "my.index", "--to", store, "--impacts", "ql")
    assert other.returncode == 2
    assert f"holds {BM25} impacts instead of ql(mu=1000); name another one, or --overwrite it" in other.stderr
    secret = run("push", "--index", "my.index", "--to", 'qdrant("https://u:hunter2@h", collection="c")')
    assert secret.returncode == 2
    assert "hunter2" not in secret.stderr + secret.stdout


@pytest.mark.parametrize("kind", ["qdrant", "qdrant_edge", "lancedb", "milvus"])
def test_a_refused_push_leaves_no_folder(files, run, kind):
    _need(kind)
    store = f'{kind}("store.db", {"table" if kind == "lancedb" else "collection"}="papers")'
    refused = run("push", "--index", "my.index", "--to", store, "--impacts", "nothing")
    assert refused.returncode == 2, refused.stderr
    assert not (files / "store.db").exists()
    what = ["--impacts", BM25] if kind != "lancedb" else []
    assert run("push", "--index", "my.index", "--to", store, *what).returncode == 0
    run("push", "--index", "my.index", "--to", store, "--impacts", "nothing")
    assert (files / "store.db").exists()


@pytest.mark.parametrize("kind", ["opensearch", "elasticsearch"])
def test_a_live_search_engine(files, run, kind):
    """Against a real server: RANKHOUSE_OPENSEARCH_URL or RANKHOUSE_ELASTICSEARCH_URL names it."""
    url = os.environ.get(f"RANKHOUSE_{kind.upper()}_URL")
    if not url:
        pytest.skip(f"RANKHOUSE_{kind.upper()}_URL names no server")
    _need(kind)
    store = f'{kind}({url!r}, index="rankhouse-test")'
    for model in (BM25, "ql"):
        push = ["push", "--index", "my.index", "--to", store, "--impacts", model, "--overwrite"]
        assert run(*push).returncode == 0
        for more in ([], ["--feedback", "rm3"]):
            index = ["--index", "my.index"] if more else []
            assert (
                run(
                    "pull", "--from", store, "--queries", "queries.tsv", *more, *index, "--out", "a.run"
                ).returncode
                == 0
            )
            own = ["search", "--index", "my.index", "--queries", "queries.tsv", "--model", model, *more]
            assert run(*own, "--out", "b.run").returncode == 0
            ours, theirs = read_run(files / "b.run"), read_run(files / "a.run")
            assert {q: theirs[q].doc_ids for q in theirs} == {q: ours[q].doc_ids for q in ours}
