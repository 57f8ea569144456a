"""Documents, queries and judgements out of Arrow files and SQLite databases."""

import json
import sqlite3
from contextlib import closing

import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.nouns import Query
from rankhouse.io.corpora import corpus_files, read_documents, read_queries
from rankhouse.io.files import Meter
from rankhouse.io.trec import read_qrels
from rankhouse.ranking.score_file import ScoreFile


def database(path, *statements):
    with closing(sqlite3.connect(path)) as connection:
        for statement in statements:
            connection.execute(statement)
        connection.commit()
    return path


NOTES = (
    "CREATE TABLE notes (title TEXT, text TEXT, tag TEXT)",
    "INSERT INTO notes VALUES ('Ships', 'They sail.', 'sea'), (NULL, 'Trains', NULL)",
)


def test_the_rows_of_a_database_s_only_table_are_documents(tmp_path):
    meter = Meter()
    path = database(tmp_path / "notes.db", *NOTES)
    first, second = read_documents(path, meter=meter)
    assert (first.id, first.title, first.text, first.extra) == ("1", "Ships", "They sail.", {"tag": "sea"})
    assert (second.id, second.title, second.text) == ("2", "", "Trains")
    assert meter.bytes > 0
    assert not [name for name in tmp_path.iterdir() if name != path]  # nothing is written beside it


def test_of_several_tables_the_one_called_documents_is_read(tmp_path):
    body = "CREATE TABLE body (number INTEGER PRIMARY KEY, words TEXT) WITHOUT ROWID"
    path = database(tmp_path / "a.sqlite", *NOTES, body, "INSERT INTO body VALUES (7, 'seven')")
    with pytest.raises(BadData, match="holds the tables body, notes; say .* CREATE VIEW documents"):
        list(read_documents(path))
    database(path, "CREATE VIEW documents AS SELECT number AS id, words AS text FROM body")
    assert [(one.id, one.text) for one in read_documents(path)] == [("7", "seven")]


def test_full_text_tables_are_read_and_cells_without_text_named(tmp_path):
    path = database(
        tmp_path / "a.sqlite3",
        "CREATE VIRTUAL TABLE mail USING fts5(title, text)",
        "INSERT INTO mail VALUES ('a', 'ships'), ('b', X'00ff')",
    )
    with pytest.raises(BadData, match=r'a\.sqlite3, line 2: the "text" must be a string, not bytes'):
        list(read_documents(path))
    assert [one.text for one in read_documents(path, 1)] == ["ships"]


def test_what_is_no_database_or_holds_scores_is_no_corpus(tmp_path):
    (tmp_path / "berkeley.db").write_bytes(b"\0\x05\x16")
    ScoreFile(tmp_path / "scores.sqlite", timeout=1.0).close()
    (tmp_path / "a.tsv").write_text("1\tships\n")
    assert corpus_files(tmp_path) == [tmp_path / "a.tsv"]
    for name in ("berkeley.db", "scores.sqlite"):
        with pytest.raises(WrongUse, match="a corpus file ends in"):
            list(read_documents(tmp_path / name))
    (tmp_path / "torn.db").write_bytes(b"SQLite format 3\0" + b"x" * 200)
    with pytest.raises(BadData, match="cannot be read as an SQLite database"):
        list(read_documents(tmp_path / "torn.db"))
    database(tmp_path / "empty.db", "CREATE TABLE a (b)", "DROP TABLE a")
    with pytest.raises(BadData, match="holds no table"):
        list(read_documents(tmp_path / "empty.db"))


def test_queries_and_judgements_come_out_of_a_database(tmp_path):
    path = database(
        tmp_path / "q.sqlite",
        "CREATE TABLE q (qid, query)",
        "INSERT INTO q VALUES (1, 'ships'), ('b', 'sea')",
    )
    assert read_queries(path) == [Query("1", "ships"), Query("b", "sea")]
    path = database(
        tmp_path / "j.sqlite", "CREATE TABLE j (qid, docno, relevance)", "INSERT INTO j VALUES (1, 'd', 2)"
    )
    assert read_qrels(path) == {"1": {"d": 2}}


@pytest.fixture
def arrow(tmp_path):
    """A dataset of two splits, as the library datasets saves it."""
    pa = pytest.importorskip("pyarrow")
    for split, shards in {"train": 2, "test": 1}.items():
        folder = tmp_path / "set" / split
        folder.mkdir(parents=True)
        for note in ("dataset_info.json", "state.json"):
            (folder / note).write_text(json.dumps({"_data_files": []}, indent=1))
        for shard in range(shards):
            rows = [{"id": f"{split}{shard}-{n}", "text": f"text {n}", "n": n} for n in range(5)]
            table = pa.Table.from_pylist(rows)
            path = folder / f"data-{shard:05}-of-{shards:05}.arrow"
            with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, table.schema) as out:
                out.write_table(table, 2)
    (tmp_path / "set" / "dataset_dict.json").write_text('{"splits": ["train", "test"]}')
    return tmp_path / "set"


def test_a_dataset_on_disk_is_read(arrow):
    assert len(list(read_documents(arrow))) == 15
    documents = list(read_documents(arrow / "train"))
    assert [one.id for one in documents] == [f"train{shard}-{n}" for shard in (0, 1) for n in range(5)]
    assert documents[3].extra == {"n": 3}


def test_arrow_files_with_a_footer_are_read_and_torn_ones_named(arrow, tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import feather

    feather.write_feather(pa.table({"id": ["a", "b"], "text": ["x", "y"]}), str(tmp_path / "a.feather"))
    assert [one.id for one in read_documents(tmp_path / "a.feather")] == ["a", "b"]
    whole = arrow / "test" / "data-00000-of-00001.arrow"
    (tmp_path / "torn.arrow").write_bytes(whole.read_bytes()[:700])
    with pytest.raises(BadData, match="is no whole Arrow file"):
        list(read_documents(tmp_path / "torn.arrow"))


def test_state_json_without_rows_beside_it_is_a_corpus_like_any_other(tmp_path):
    (tmp_path / "state.json").write_text('{"id": 1, "text": "ships"}\n')
    assert [one.text for one in read_documents(tmp_path)] == ["ships"]


def test_generated_columns_and_names_in_capitals_count_in_a_database(tmp_path):
    made = "CREATE TABLE t (key TEXT, TEXT TEXT, Id TEXT GENERATED ALWAYS AS ('K' || key))"
    path = database(tmp_path / "a.db", made, "INSERT INTO t (key, TEXT) VALUES ('a', 'ships')")
    assert [(one.id, one.text, one.extra) for one in read_documents(path)] == [("Ka", "ships", {"key": "a"})]
    database(tmp_path / "b.db", "CREATE TABLE sqliteXdata (text)", "INSERT INTO sqliteXdata VALUES ('sea')")
    assert [one.text for one in read_documents(tmp_path / "b.db")] == ["sea"]


def test_only_the_row_whose_text_is_not_utf8_is_refused(tmp_path):
    rows = "('1', 'ships'), ('2', CAST(x'ff41' AS TEXT)), ('3', 'sails')"
    path = database(
        tmp_path / "mixed.db", "CREATE TABLE texts (id TEXT, text TEXT)", f"INSERT INTO texts VALUES {rows}"
    )
    with pytest.raises(BadData, match="line 2"):
        list(read_documents(path))
    assert [document.id for document in read_documents(path, skips=1)] == ["1", "3"]


def test_a_column_whose_name_is_not_utf8_is_said_so(tmp_path):
    path = database(tmp_path / "names.db", "CREATE TABLE texts (id TEXT, text TEXT, qqqqqq TEXT)")
    path.write_bytes(path.read_bytes().replace(b"qqqqqq", b"q\xff\xffqqq"))
    with pytest.raises(BadData, match="names.db: cannot be read as an SQLite database .*utf-8"):
        list(read_documents(path))
