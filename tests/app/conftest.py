"""The command line, called as a person calls it."""

import sys
import warnings
from typing import NamedTuple

import pytest

from rankhouse.app.cli import main

CORPUS = """{"id": "d1", "title": "Pilots", "text": "Pilots board ships and steer them into the harbour."}
{"id": "d2", "text": "The moon pulls the sea; harbours see high water twice a day."}
{"id": "d3", "text": "A lock lifts ships between two levels of water."}
{"id": "d4", "text": "the of and"}
"""


class Done(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def run(tmp_path, monkeypatch, capsys):
    """Call the program in tmp_path, in this process; gives exit code, standard output and standard error."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "110")

    def call(*arguments):
        monkeypatch.setattr(sys, "argv", ["rankhouse", *map(str, arguments)])
        with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
            main()
        return Done(ended.value.code or 0, *capsys.readouterr())

    return call


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
