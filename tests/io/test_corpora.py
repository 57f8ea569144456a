"""Corpora and queries of every format, and what is said when a record is wrong."""

import gzip
import json
import os
from pathlib import Path

import pytest

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.io.corpora import corpus_files, read_documents, read_queries
from rankhouse.io.duplicate_ids import SeenIds
from rankhouse.io.files import Skips


def corpus(tmp_path, content, name="corpus.jsonl"):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def documents(path, **options):
    return list(read_documents([path], **options))


def test_reads_json_lines_of_three_dialects(tmp_path):
    path = corpus(
        tmp_path,
        '\ufeff{"id": "a", "title": "T", "text": "x"}\r\n\n{"_id": "b", "text": "y", "metadata": {"u": 1}}\n'
        '{"id": 7, "contents": "z"}\n{"docid": "e", "text": null, "title": null}',
    )
    assert documents(path) == [
        Document("a", "x", "T"),
        Document("b", "y", "", {"metadata": {"u": 1}}),
        Document("7", "z"),
        Document("e", ""),
    ]


def test_title_and_text_are_joined_by_one_space_where_both_are(tmp_path):
    assert Document("a", "x", "T").full_text == "T x"
    assert Document("a", "", "T").full_text == "T"
    assert Document("a", "x").full_text == "x"


def test_reads_tsv_gzip_and_folders_in_order_of_name(tmp_path):
    (tmp_path / "b.tsv").write_text("2\ttwo\twith tab\n")
    (tmp_path / "a.jsonl.gz").write_bytes(gzip.compress(b'{"id":"1","text":"one"}'))
    (tmp_path / "notes.md").write_text("not a corpus")
    assert documents(tmp_path) == [Document("1", "one"), Document("2", "two\twith tab")]


SGML = """<DOC>
<DOCNO> FT911-3 </DOCNO>
<HEADLINE> A &amp; B </HEADLINE>
<DATE>910514</DATE>
<TEXT>
First <b>line</b>
second.
</TEXT>
</DOC>
<DOC><DOCNO>X2</DOCNO>
<DOCHDR>http header</DOCHDR> plain body </DOC>
"""


def test_a_carriage_return_in_the_first_line_is_text_of_a_tsv_and_no_header_of_a_csv(tmp_path):
    assert documents(corpus(tmp_path, b"d1\tships\rboats\n", "c.tsv"))[0].text.split() == ["ships", "boats"]
    with pytest.raises(BadData, match="its first line has to name the columns"):
        documents(corpus(tmp_path, b"id,te\rxt\nd1,ships\n", "c.csv"))


def test_reads_trec_markup(tmp_path):
    assert documents(corpus(tmp_path, SGML, "ft.sgml")) == [
        Document("FT911-3", "First line second.", "A & B"),
        Document("X2", "plain body"),
    ]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ('{"id": "b"', "not a JSON object"),
        ('["b"]', "not a JSON object"),
        ('{"text": "x"}', r'no "id" \(or "_id"\); its keys are: text'),
        ('{"id": "b", "title": "x"}', 'no "text"'),
        ('{"id": "b", "text": 3}', '"text" must be a string, not int'),
        ('{"id": "b", "text": "x", "title": 3}', '"title" of document "b" is no string'),
        ('{"id": null, "text": "x"}', "must be a string or a whole number"),
        ('{"id": "b c", "text": "x"}', "has white space in it"),
        ('{"id": "b\\tc", "text": "x"}', "has white space in it"),
        ('{"id": "b\\u001b[31mc", "text": "x"}', "control character"),
        ('{"id": "b\\u0000c", "text": "x"}', "control character"),
        ('{"id": "", "text": "x"}', "is empty"),
        ('{"id": "a", "text": "x"}', "already given by .*line 1"),
        (b'{"id": "b", "text": "\xff"}', "byte 22 of the line .0xff. is not UTF-8"),
    ],
)
def test_a_faulty_record_names_file_line_and_reason_and_can_be_skipped(tmp_path, line, complaint):
    raw = line if isinstance(line, bytes) else line.encode()
    path = corpus(tmp_path, b'{"id": "a", "text": "x"}\n' + raw + b'\n{"id": "z", "text": "last"}\n')
    with pytest.raises(BadData, match=rf"corpus\.jsonl, line 2: .*{complaint}"):
        documents(path)
    skips = Skips(1)
    assert [d.id for d in documents(path, skips=skips)] == ["a", "z"]
    assert [fault.line for fault in skips.seen] == [2]


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ("<DOC>\n<TEXT>x</TEXT>\n</DOC>", "line 1: the record has no <DOCNO>"),
        ("\n<DOC>\n<DOCNO>1</DOCNO>\n", "line 2: the file ends inside"),
        ("<DOC>\n<DOCNO>1</DOCNO>\n<DOC>\n<DOCNO>2</DOCNO>\n</DOC>", "line 1: a <DOC> begins before"),
    ],
)
def test_faulty_markup_names_the_line(tmp_path, content, complaint):
    with pytest.raises(BadData, match=complaint):
        documents(corpus(tmp_path, content, "x.trec"))


def test_a_line_without_a_tab_is_refused(tmp_path):
    with pytest.raises(BadData, match=r"line 1: the line has no tab"):
        documents(corpus(tmp_path, "1 text", "x.tsv"))


def test_unknown_formats_and_missing_files_are_refused(tmp_path):
    with pytest.raises(WrongUse, match=r'"\.pdf" is not one of them'):
        documents(corpus(tmp_path, "", "x.pdf"))
    with pytest.raises(MissingInput, match="no such file"):
        documents(tmp_path / "none.jsonl")
    (tmp_path / "empty").mkdir()
    with pytest.raises(MissingInput, match="holds no corpus file.*rankhouse up "):
        documents(tmp_path / "empty")


def test_an_id_in_two_files_is_found_even_far_apart(tmp_path):
    many = "".join(f'{{"id": "{i}", "text": "x"}}\n' for i in range(1000))
    one, two = (
        corpus(tmp_path, many, "one.jsonl"),
        corpus(tmp_path, many[-60:].split("\n", 1)[1], "two.jsonl"),
    )
    with pytest.raises(DuplicateId, match=r'two\.jsonl, line 1: the id "998" was already given'):
        list(read_documents([one, two], seen=SeenIds(chunk=100)))
    assert len(list(read_documents([one], seen=SeenIds(chunk=7)))) == 1000


TOPICS = """<top>
<num> Number: 301
<title> International Organized Crime

<desc> Description:
Identify organizations &amp; more.

<narr> Narrative:
A relevant document.
</top>
<top>
<num> Number: 302 </num>
<title> Polio </title>
<desc> Is it gone? </desc>
</top>
"""


def test_reads_queries_of_three_formats(tmp_path):
    expected = [Query("1", "one two"), Query("2", "three")]
    lines = [{"id": "1", "text": "one two"}, {"_id": 2, "text": "three", "x": 1}]
    assert read_queries(corpus(tmp_path, "\n".join(map(json.dumps, lines)), "q.jsonl")) == expected
    assert read_queries(corpus(tmp_path, "1\tone two\r\n2\tthree\r\n", "q.tsv")) == expected
    topics = corpus(tmp_path, TOPICS, "topics.txt")
    assert read_queries(topics) == [Query("301", "International Organized Crime"), Query("302", "Polio")]
    assert [q.text for q in read_queries(topics, field="desc")] == [
        "Identify organizations & more.",
        "Is it gone?",
    ]


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("q.tsv", "id\ttext\nq1\twho steers ships?\nq2\tcold sea\n"),
        ("q.tsv", "qid\tquery\nq1\twho steers ships?\nq2\tcold sea\n"),
        ("q.tsv", "q1\twho steers ships?\nq2\tcold sea\n"),
        ("q.csv", 'query_id,domain,query\nq1,sea,who steers ships?\nq2,sea,"cold sea"\n'),
        ("q.jsonl", '{"qid": "q1", "query": "who steers ships?"}\n{"query_id": "q2", "text": "cold sea"}\n'),
        ("q.json", '[{"id": "q1", "question": "who steers ships?"},\n {"id": "q2", "text": "cold sea"}]'),
    ],
)
def test_a_line_that_names_columns_is_no_query(tmp_path, name, content):
    expected = [Query("q1", "who steers ships?"), Query("q2", "cold sea")]
    assert read_queries(corpus(tmp_path, content, name)) == expected


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no descriptors by name here")
@pytest.mark.parametrize(
    "content",
    ["1\tone\n", '{"id": 1, "text": "one"}\n', "qid,query\n1,one\n", "<top><num>1<title>one</top>"],
)
def test_queries_are_read_out_of_a_pipe(content):
    end, into = os.pipe()
    os.write(into, content.encode())
    os.close(into)
    assert read_queries(f"/dev/fd/{end}") == [Query("1", "one")]
    os.close(end)


@pytest.mark.skipif(not Path("/dev/fd").exists(), reason="no descriptors by name here")
def test_documents_out_of_a_pipe_are_refused_with_what_to_do():
    end, into = os.pipe()
    for name in (f"/dev/fd/{end}", "-"):
        with pytest.raises(
            WrongUse, match=r"not read out of a pipe: write it into a file first, like  \.\.\. > "
        ):
            list(read_documents(name))
    os.close(into)
    os.close(end)


def test_an_array_of_documents_is_read(tmp_path):
    path = corpus(tmp_path, '[\n{"id": 1, "text": "[a]"},\n\n{"id": 2,\n"text": "b"}, {"id": 3}]', "c.json")
    with pytest.raises(BadData, match=r'c\.json, line 5: the record has no "text"'):
        list(read_documents(path))
    assert [(one.id, one.text) for one in read_documents(path, 1)] == [("1", "[a]"), ("2", "b")]
    assert [one.text for one in read_documents(corpus(tmp_path, "[1]\t[{\n[]\tb\n", "c.tsv"))] == ["[{", "b"]
    assert read_queries(corpus(tmp_path, "[]\tan empty list\n", "q.tsv")) == [Query("[]", "an empty list")]


def test_tables_of_queries_name_their_columns(tmp_path):
    path = corpus(tmp_path, "id,title,desc\nq1,ships,who steers them?\n", "q.csv")
    assert read_queries(path, field="desc") == [Query("q1", "who steers them?")]
    with pytest.raises(BadData, match="line 1: its first line has to name the columns, one of id, .*qid"):
        read_queries(corpus(tmp_path, "number,words\n1,ships\n", "q.csv"))
    with pytest.raises(DuplicateId, match='"q1" was already given'):
        read_queries(corpus(tmp_path, "id\ttext\nq1\tships\nq1\tsea\n", "q.tsv"))


def test_queries_say_what_is_wrong(tmp_path):
    with pytest.raises(BadData, match=r"line 11: topic 302 has no <narr>; it has: num, title, desc"):
        read_queries(corpus(tmp_path, TOPICS, "t"), field="narr")
    with pytest.raises(DuplicateId, match='line 2: the query id "1" was already given'):
        read_queries(corpus(tmp_path, "1\ta\n1\tb\n", "q.tsv"))
    with pytest.raises(WrongUse, match="one text only"):
        read_queries(corpus(tmp_path, "1\ta\n", "q.tsv"), field="desc")
    for nothing in ("", "\n \n", "\ufeff"):
        with pytest.raises(BadData, match=r"empty\.tsv: holds no query"):
            read_queries(corpus(tmp_path, nothing, "empty.tsv"))
    assert read_queries(corpus(tmp_path, "1\t\n", "q.tsv")) == [Query("1", "")]


def test_links_within_a_folder_are_left_out_and_a_file_of_two_names_is_read_once(tmp_path):
    folder = tmp_path / "folder"
    folder.mkdir()
    elsewhere = corpus(tmp_path, '{"id": "secret", "text": "x"}')
    (folder / "b.jsonl").symlink_to(elsewhere)
    (folder / "loop.jsonl").symlink_to("loop.jsonl")
    (folder / "up").symlink_to("..", target_is_directory=True)
    with pytest.raises(MissingInput, match=r"which are not followed: b\.jsonl, loop\.jsonl; name a link"):
        documents(folder)
    (folder / "a.tsv").write_text("1\tone\n")
    (folder / "c.tsv").hardlink_to(folder / "a.tsv")
    (folder / "d.tsv").symlink_to("a.tsv")
    with pytest.warns(
        RankhouseWarning, match=r"4 symbolic links or second names .* b\.jsonl, c\.tsv, d\.tsv"
    ):
        assert documents(folder) == [Document("1", "one")]
    assert documents(folder / "b.jsonl") == [Document("secret", "x")]


def test_hidden_files_of_a_folder_are_left_out_and_named(tmp_path):
    folder = tmp_path / ".project"  # which is asked for by its name
    (folder / ".git").mkdir(parents=True)
    for number, name in enumerate((".git/a.jsonl", ".b.jsonl", "c.jsonl")):
        (folder / name).write_text(f'{{"id": "{number}", "text": "x"}}\n')
    with pytest.warns(
        RankhouseWarning, match=r"2 hidden files are not read: \.b\.jsonl, \.git/a\.jsonl; name one"
    ):
        assert [document.id for document in documents(folder)] == ["2"]
    assert [document.id for document in documents(folder / ".b.jsonl")] == ["1"]
    (folder / "c.jsonl").unlink()
    with pytest.raises(MissingInput, match=r"holds hidden files, which are not read: \.b\.jsonl"):
        documents(folder)


def test_hidden_files_of_a_collection_are_left_out(tmp_path):
    for folder in ("corpus", "queries"):
        (tmp_path / folder).mkdir()
        for name in (".a.parquet", "b.parquet"):
            (tmp_path / folder / name).touch()
    assert corpus_files(tmp_path) == [tmp_path / "corpus" / "b.parquet"]


@pytest.mark.parametrize(
    "line", ['{"id": "a", "text": "x", "text": "y"}', '{"id": "a", "id": "a", "text": "x"}']
)
def test_a_key_that_is_there_twice_is_refused(tmp_path, line):
    with pytest.raises(BadData, match=r'line 1: the key "(text|id)" is there twice; keep one of them'):
        documents(corpus(tmp_path, line))


def test_equal_keys_of_different_objects_are_fine(tmp_path):
    line = '{"id": "text", "text": "\\"text\\"", "more": {"text": 1}, "most": [{"text": 1}, {"text": 2}]}'
    assert [document.text for document in documents(corpus(tmp_path, line))] == ['"text"']


def test_a_record_without_an_id_is_told_what_to_do(tmp_path):
    with pytest.raises(BadData, match='no "id".*; its keys are: text; give each record an "id" of its own'):
        documents(corpus(tmp_path, '{"text": "x"}'))


def test_a_name_that_no_file_can_have_is_refused_in_words():
    for name in ("a" * 300, "/".join(["a" * 200] * 40)):
        with pytest.raises(MissingInput, match=r'a corpus: "a{40}\.\.\." is too long: a name has 255 bytes'):
            documents(name)
