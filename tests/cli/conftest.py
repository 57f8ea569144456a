"""The command line, called as a person calls it."""

import pytest

CORPUS = """{"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."}
{"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."}
{"id": "d3", "text": "A lock lifts ships between two levels of water."}
{"id": "d4", "text": "the of and"}
"""


@pytest.fixture
def files(tmp_path, run):
    """A small world: corpus, index, queries, qrels, two runs."""
    (tmp_path / "corpus.jsonl").write_text(CORPUS)
    (tmp_path / "queries.tsv").write_text("q1\tpilots steer ships\nq2\thigh water\nq3\tthe of\n")
    (tmp_path / "qrels.txt").write_text("q1 0 d1 1\nq2 0 d2 1\nq2 0 d3 0\nq3 0 d4 1\n")
    assert run("index", "corpus.jsonl", "--out", "my.index").returncode == 0
    assert (
        run("search", "--index", "my.index", "--queries", "queries.tsv", "--out", "bm25.run").returncode == 0
    )
    searched = run(
        "search", "--index", "my.index", "--queries", "queries.tsv", "--model", "ql", "--out", "ql.run"
    )
    assert searched.returncode == 0
    return tmp_path
