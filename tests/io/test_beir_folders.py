"""Folders in BEIR's layout, wherever a corpus, queries or judgements are named."""

import shutil
from pathlib import Path

import pytest

import rankhouse as rh
from rankhouse.io.corpora import corpus_files, read_documents, read_queries
from rankhouse.io.trec import read_qrels

TINY = Path(__file__).parents[1] / "tiny" / "beir"


@pytest.fixture
def folder(tmp_path):
    return shutil.copytree(TINY, tmp_path / "set")


def test_a_folder_is_its_corpus_its_judged_queries_and_its_test_split(folder):
    assert [document.id for document in read_documents(folder)] == ["locks", "pilots", "grain", "tides"]
    assert [query.id for query in read_queries(folder)] == [
        "tides",
        "steer",
    ]  # not that of the training split
    assert read_qrels(folder) == {"tides": {"locks": 1}, "steer": {"pilots": 2, "tides": 1}}


def test_a_folder_with_a_development_split_only_is_read_by_it(folder):
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "dev.tsv")
    assert [query.id for query in read_queries(folder)] == ["tides", "steer"]


def test_a_folder_without_judgements_is_refused_with_the_layout(folder):
    (folder / "qrels" / "test.tsv").unlink()
    for read in (read_queries, read_qrels):
        with pytest.raises(rh.RankhouseError, match=r"qrels/test\.tsv or qrels/dev\.tsv; name a file, or"):
            read(folder)


def test_other_folders_are_read_as_before(folder):
    shutil.rmtree(folder / "qrels")
    assert [path.name for path in corpus_files(folder)] == ["corpus.jsonl", "queries.jsonl"]


def test_commands_take_the_folder(folder, run):
    assert run("index", folder, "--out", "i").returncode == 0
    assert run("search", "--index", "i", "--queries", folder, "--out", "a.run").returncode == 0
    done = run("evaluate", "a.run", "--qrels", folder, "--measures", "R@10", "--json")
    assert done.returncode == 0, done.stderr
    assert rh.evaluate("a.run", folder, "R@10")["R@10"] == 1.0


def test_an_index_may_hold_titles_or_texts_alone(folder, run):
    for field in ("title", "text"):
        assert run("index", folder, "--field", field, "--out", field).returncode == 0
    titles, texts = rh.Index.open("title"), rh.Index.open("text")
    assert [titles.documents[name].text for name in titles.documents] == [
        "Locks",
        "Pilots",
        "Grain",
    ]  # tides has none
    assert len(texts.documents) == 4
    assert texts.documents["locks"].title == ""
    assert not titles.search("water").doc_ids
    wrong = run("index", folder, "--field", "body", "--out", "x")
    assert wrong.returncode == 2
    assert "title" in wrong.stderr


def test_shards_of_one_field_make_the_whole(folder, run):
    run("index", folder, "--field", "title", "--out", "whole")
    for part in ("1/2", "2/2"):
        assert (
            run("index", folder, "--field", "title", "--shard", part, "--out", f"p{part[0]}").returncode == 0
        )
    done = run("merge", "p1", "p2", "--out", "merged")
    assert done.returncode == 0, done.stderr
    ids = [list(rh.Index.open(name).documents) for name in ("whole", "merged")]
    assert ids[0] == ids[1] == ["locks", "pilots", "grain"]
