"""One reader of PAIRS, for everybody, and what it does not take in silence."""

import json
import re
import threading

import pytest

from rankhouse.core.errors import BadData, RankhouseWarning
from rankhouse.io import pairs as pairs_module
from rankhouse.io.outputs import writing as open_output
from rankhouse.io.pairs import LabelledPair, PairFiles, read_pairs
from rankhouse.labels.label_noise import Contradictions, distinct
from rankhouse.training.examples import from_pairs as read_examples

KNOWN = {"query_id": "q", "query": "x", "doc_id": "d", "text": "t"}


def written(tmp_path, *records, mark=b""):
    path = tmp_path / "pairs.jsonl"
    lines = [one if isinstance(one, str) else json.dumps(KNOWN | one) for one in records]
    path.write_bytes(mark + "\n".join(lines).encode())
    return path


@pytest.mark.parametrize("read", [lambda path: list(read_pairs(path)), read_examples])
@pytest.mark.parametrize(
    ("record", "complaint"),
    [
        ({"label": -1}, "the label -1 is neither"),
        ({"label": 10**20}, "the label 1" + "0" * 20 + " is neither"),
        ({"label": 0.5}, "the label 0.5 is no whole number"),
        ({"label": 1, "passage": -1}, "the passage -1 is no place"),
        ({"label": 1, "more": json.loads("[" * 900 + "]" * 900)}, None),
        ('{"query_id": "\\ud800"}', "half of a surrogate pair"),
        ('{"a": ' + "[" * 100_000, "nested more than"),
    ],
)
def test_both_readers_name_the_line_of_a_faulty_pair(tmp_path, read, record, complaint):
    path = written(tmp_path, {"label": 1}, record)
    if complaint is None:
        assert len(read(path)) == 2
        return
    with pytest.raises(BadData, match=rf"pairs\.jsonl, line 2: .*{complaint}"):
        read(path)


def test_both_readers_take_what_other_programs_write(tmp_path):
    path = written(tmp_path, {"label": 1.0}, {"label": False, "passage": 1}, mark=b"\xef\xbb\xbf")
    assert list(read_pairs(path)) == [
        LabelledPair("q", "x", "d", 0, "t", 1),
        LabelledPair("q", "x", "d", 1, "t", 0),
    ]
    examples = read_examples(path)
    assert examples.label.tolist() == [1, 0]
    assert [passage.index for passage in examples.fetch([0, 1])] == [0, 1]


@pytest.mark.parametrize("has_pread", [True, False], ids=["elsewhere", "Windows"])
def test_pairs_are_read_again_by_number(tmp_path, monkeypatch, has_pread):
    if not has_pread:
        monkeypatch.delattr(pairs_module.os, "pread")
    written = [LabelledPair("q", "who?", f"d{n}", 0, "text " * n, n % 2) for n in range(5)]
    pairs_module.write_pairs(written, tmp_path / "pairs.jsonl")
    files = PairFiles([tmp_path / "pairs.jsonl"])
    assert [pair for _, _, pair in files.scan()] == written
    assert [files[number] for number in (4, 0, 2)] == [written[4], written[0], written[2]]


def test_training_says_that_labels_are_grades_or_contradict_each_other(tmp_path):
    with pytest.warns(RankhouseWarning, match="there are labels up to 2; all from 1 up count as relevant"):
        read_examples(written(tmp_path, {"label": 2}, {"label": 0, "passage": 1}))
    both = written(
        tmp_path, {"label": 0, "passage": 7}, {"label": 1, "passage": 1}, {"label": 1, "passage": 7}
    )
    with pytest.warns(RankhouseWarning, match='1 pair labelled both .*query "q" with passage 7 of "d"'):
        read_examples(both)
    read_examples(written(tmp_path, {"label": 1}, {"label": 1}))  # the same twice contradicts nothing


def test_contradictions_are_named_by_their_places():
    seen = Contradictions()
    for place, (doc_id, label) in enumerate(
        [("a", 1), ("b", 0), ("a", 1), ("b", 0), ("a", 0), ("c", 1), ("b", 2)], 1
    ):
        seen.add(LabelledPair("q", "x", doc_id, 0, "t", label), place)
    assert seen.found() == [(1, 5), (2, 7)]
    assert Contradictions().found() == []


def test_pairs_whose_hashes_are_equal_are_two_pairs():
    first, second = (LabelledPair("q", "x", "d", number, text="t", label=1) for number in (0, 2**61 - 1))
    assert hash((0,)) == hash((2**61 - 1,))
    assert list(distinct([first, second], lambda pair: pair.label, "labels")) == [first, second]


TRIPLES = "who steers?\tA helmsman steers.\tBread rises.\nwho steers?\tA helmsman steers.\tRain falls.\n"


@pytest.mark.parametrize("name", ["triples.tsv", "triples.tsv.gz"])
def test_triples_of_texts_are_pairs(tmp_path, name):
    with open_output(tmp_path / name) as out:
        out.write(TRIPLES)
    pairs = list(read_pairs(tmp_path / name))
    assert [(one.query, one.text, one.label) for one in pairs] == [
        ("who steers?", "A helmsman steers.", 1),
        ("who steers?", "Bread rises.", 0),
        ("who steers?", "A helmsman steers.", 1),
        ("who steers?", "Rain falls.", 0),
    ]
    assert pairs[0] == pairs[2]
    assert len({one.doc_id for one in pairs}) == 3
    examples = read_examples(tmp_path / name)
    assert [query.text for query in examples.queries] == ["who steers?"]
    assert examples.label.tolist() == [1, 0, 1, 0]
    assert [one.text for one in examples.fetch([3, 0])] == ["Rain falls.", "A helmsman steers."]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("who?\tA helmsman.\t ", "neither a labelled pair nor a triple"),
        ("who?\tA helmsman.", "the line has 2 columns"),
        ("1185869\t0\t2942565", "a triple of ids has no texts"),
        ("q7\tMARCO_D12.3\td-9", "a triple of ids has no texts"),
        (
            "who steers?\tA helmsman steers.\t1",
            'the third text is the number "1", not a passage; of labelled pairs, a line is',
        ),
        ("who steers?\tA helmsman steers.\t0.9", 'the third text is the number "0.9"'),
    ],
)
def test_a_faulty_triple_is_named(tmp_path, line, complaint):
    (tmp_path / "triples.tsv").write_text(f"{TRIPLES}{line}\n")
    for read in (read_examples, lambda path: list(read_pairs(path))):
        with pytest.raises(BadData, match=rf"triples\.tsv, line 3: .*{complaint}"):
            read(tmp_path / "triples.tsv")


@pytest.mark.parametrize(
    "record",
    [
        {"anchor": "who?", "positive": "A helmsman.", "negative": "Rain falls."},
        {"query": "who?", "pos": ["A helmsman."], "neg": ["Rain falls."], "prompt": ""},
        {
            "query_id": "who?",
            "query": "who?",
            "positive_passages": [{"docid": "a", "title": "A", "text": "helmsman."}],
            "negative_passages": [{"docid": "b", "title": "", "text": "Rain falls."}],
        },
    ],
)
def test_records_of_a_query_with_its_passages_are_pairs(tmp_path, record):
    path = tmp_path / "triplets.jsonl"
    path.write_text(f"{json.dumps(record)}\n{json.dumps(record | {'query': 'where?', 'query_id': '2'})}\n")
    pairs = list(read_pairs(path))
    assert [(one.text, one.label) for one in pairs[:2]] == [("A helmsman.", 1), ("Rain falls.", 0)]
    assert (pairs[0].query_id, pairs[0].query) == ("who?", "who?")
    examples = read_examples(path)
    assert [one.text for one in examples.fetch([3, 0])] == ["Rain falls.", "A helmsman."]


def test_several_negatives_and_none_are_read_and_an_empty_passage_is_refused(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"anchor": "who?", "positive": "a", "negative_1": "b", "negative_2": "c", "neg_scores": [1]}\n'
        '{"query": "who?", "pos": ["d"]}\n{"anchor": "who?", "positive": "e", "negative": null}\n'
    )
    assert "".join(f"{one.text}{one.label}" for one in read_pairs(path)) == "a1b0c0d1e1"
    path.write_text('{"query": "who?", "pos": ["d"], "neg": [""]}\n')
    with pytest.raises(BadData, match=r"a\.jsonl, line 1: the query or one of its passages is empty"):
        list(read_pairs(path))


def test_the_names_above_triples_are_no_triple(tmp_path):
    (tmp_path / "triples.tsv").write_text(f"query\tpositive\tnegative\n{TRIPLES}")
    assert len(list(read_pairs(tmp_path / "triples.tsv"))) == 4
    assert len(read_examples(tmp_path / "triples.tsv").label) == 4


def test_a_query_without_passages_is_no_pair(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"query": "who?", "pos": [], "neg": []}\n')
    with pytest.raises(BadData, match="line 1: not a labelled pair"):
        list(read_pairs(tmp_path / "a.jsonl"))


def test_triples_of_single_words_are_texts(tmp_path):
    text = "什么是港口\t港口是船舶停靠的地方\t谷物价格上涨\ndog\tcat\tmouse\n"
    (tmp_path / "triples.tsv").write_text(text, "utf-8")
    assert [one.text for one in read_pairs(tmp_path / "triples.tsv")][2:] == ["cat", "mouse"]


def test_records_of_other_shapes(tmp_path):
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"query": "who?", "positive": "a", "negatives": ["b", "c"]}\n'
        '{"query_id": 7, "query": "who?", "positive_passages": [{"docid": 3, "title": null, "text": "d"}]}\n'
    )
    pairs = list(read_pairs(path))
    assert "".join(f"{one.text}{one.label}" for one in pairs) == "a1b0c0d1"
    assert (pairs[-1].query_id, pairs[-1].doc_id) == ("7", "3")
    path.write_text('{"query": "who?", "pos": ["a"], "pos": ["b"]}\n')
    with pytest.raises(BadData, match='line 1: the key "pos" is there twice'):
        list(read_pairs(path))


@pytest.mark.skipif(not hasattr(pairs_module.os, "mkfifo"), reason="no named pipes here")
def test_training_reads_a_pipe(tmp_path):
    pairs_module.os.mkfifo(tmp_path / "pairs")
    writer = threading.Thread(target=(tmp_path / "pairs").write_text, args=(TRIPLES,), daemon=True)
    writer.start()
    assert read_examples(tmp_path / "pairs").label.tolist() == [1, 0, 1, 0]
    writer.join()


TABLES = {
    "array.json": '[{"query": "who?", "positive": "a", "negative": "b"},\n{"query": "how?", "answer": "c"}]',
    "pretty.json": json.dumps(
        [{"query": "who?", "pos": ["a"], "neg": ["b"]}, {"question": "how?", "answer": "c"}], indent=1
    ),
    "labels.csv": "sentence1,sentence2,label\nwho?,a,1\nwho?,b,0\nhow?,c,1\n",
    "named.tsv": "Query_ID\tQuery\tDoc_ID\tPassage\tText\tLabel\n"
    "who?\twho?\ta\t0\ta\t1\nwho?\twho?\tb\t0\tb\t0\nhow?\thow?\tc\t0\tc\t1\n",
    "answers.csv": "question, answer, negative\nwho?, a, b\nhow?, c,\n",
    "lists.csv": 'query,pos,neg\nwho?,"[""a""]","[""b""]"\nhow?,c,\n',
    "true.csv": "query_id,query,doc_id,text,label\n1,who?,2,a,true\n1,who?,3,b,false\n2,how?,4,c,true\n",
    "labels.jsonl": '{"query": "who?", "passage": "a", "label": true}\n'
    '{"query": "who?", "passage": "b", "label": 0.0}\n{"query": "how?", "document": "c", "label": 1}\n',
}


@pytest.mark.parametrize("name", TABLES)
def test_tables_and_arrays_of_pairs_are_read(tmp_path, name):
    (tmp_path / name).write_text(TABLES[name])
    pairs = list(read_pairs(tmp_path / name))
    assert [(one.query, one.text, one.label) for one in pairs] == [
        ("who?", "a", 1),
        ("who?", "b", 0),
        ("how?", "c", 1),
    ]
    examples = read_examples(tmp_path / name)
    assert [one.text for one in examples.fetch([2, 0, 1])] == ["c", "a", "b"]
    both = PairFiles([tmp_path / name, tmp_path / name])
    assert [pair for _, _, pair in both.scan()] == pairs * 2
    assert [both[number] for number in (4, 3, 0)] == [pairs[1], pairs[0], pairs[0]]


def test_pairs_in_parquet_are_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"query": "who?", "pos": ["a"], "neg": ["b"], "pos_scores": [2.5], "neg_scores": [-1]}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [(one.text, one.label, one.score) for one in read_pairs(tmp_path / "a.parquet")] == [
        ("a", 1, 2.5),
        ("b", 0, -1.0),
    ]
    assert read_examples(tmp_path / "a.parquet").score.tolist() == [2.5, -1.0]


def test_content_decides_what_a_file_named_csv_holds(tmp_path):
    (tmp_path / "a.csv").write_text(json.dumps(KNOWN | {"label": 1}) + "\n")
    (tmp_path / "b.csv").write_text("who?\ta, b\tc\n")
    (tmp_path / "c.csv").write_text("anchor,positive\nwho?,[1] a\n")
    assert [[one.text for one in read_pairs(tmp_path / f"{name}.csv")] for name in "abc"] == [
        ["t"],
        ["a, b", "c"],
        ["[1] a"],
    ]
    assert read_examples(tmp_path / "b.csv").label.tolist() == [1, 0]


def test_two_texts_alone_are_a_relevant_pair(tmp_path):
    (tmp_path / "a.csv").write_text("sentence1,sentence2\nwho?,a\n")
    (tmp_path / "b.jsonl").write_text('{"question": "who?", "passage": "a"}\n')
    for name in ("a.csv", "b.jsonl"):
        assert [(one.query, one.text, one.label) for one in read_pairs(tmp_path / name)] == [("who?", "a", 1)]


@pytest.mark.parametrize("text", ["SELECT id, query, text, x", "a | query | text | b"])
def test_a_record_whose_text_names_columns_is_no_table(tmp_path, text):
    (tmp_path / "a.jsonl").write_text(json.dumps(KNOWN | {"query": text, "label": 1}) + "\n")
    assert [one.query for one in read_pairs(tmp_path / "a.jsonl")] == [text]
    assert read_examples(tmp_path / "a.jsonl").label.tolist() == [1]


def test_bytes_and_whole_numbers_in_columns_of_pairs(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"query_id": 1, "query": "who?", "doc_id": 2, "text": "a", "label": 1}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "a.parquet")
    assert [(one.query_id, one.doc_id) for one in read_pairs(tmp_path / "a.parquet")] == [("1", "2")]
    parquet.write_table(pa.table({"query": [b"abc"], "text": ["x"], "label": [1]}), tmp_path / "b.parquet")
    with pytest.raises(BadData, match='line 1: the "query" holds bytes and no text'):
        list(read_pairs(tmp_path / "b.parquet"))


def test_a_score_without_a_label_is_a_teacher_s(tmp_path):
    (tmp_path / "a.csv").write_text('sentence1,sentence2,score\nwho?,"a\nb",0.75\nwho?,c,1\n')
    pairs = list(read_pairs(tmp_path / "a.csv"))
    assert [(one.text, one.label, one.score) for one in pairs] == [("a\nb", -1, 0.75), ("c", -1, 1.0)]


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        ("a.jsonl", '{"query": "q", "pos": ["a"], "negs": ["b"]}', 'line 1: the key "negs" is not known'),
        (
            "a.jsonl",
            '{"query": "q", "pos": ["a", "b"], "pos_scores": [1]}',
            'the "pos_scores" are not as many as the 2 passages of "pos"',
        ),
        (
            "a.jsonl",
            '{"query": "q", "positive": "a", "negative": "b", "label": 3.5}',
            'the "label" of a record with several passages says nothing of one of them',
        ),
        (
            "a.csv",
            "sentence1,sentence2,label\nq,a,0.5\n",
            "line 2: the label 0.5 is no whole number; call it",
        ),
        (
            "a.csv",
            "sentence1,sentence2,label\nq,a,yes\n",
            "line 2: the text or the label 'yes' cannot be read",
        ),
        (
            "a.csv",
            "q,doc,y\nq,a,1\n",
            "line 1: its first line has to name the columns: query, text and label",
        ),
        (
            "a.jsonl",
            '{"query": "q", "pos": ["a"], "neg": ["b"], "neg_scores": [1]}',
            'there are "pos_scores" or "neg_scores" only; give both or neither',
        ),
        ("a.csv", "sentence1,sentence2,lable\nq,a,0\n", "line 2: not a labelled pair"),
        ("a.csv", "query,pos,neg\nq,\"['x', 'y']\",b\n", "line 2: the list in pos is no JSON"),
        ("a.csv", "sentence1,sentence2,label\nq,a,1\nq,,1\n", "line 3: the query or one of its passages"),
        ("a.csv", "query,text,label\nq,a,-3\n", "line 2: the label -3 is neither"),
        ("a.json", '[{"anchor": "a", "positive": "b"},\n', "line 1: is no whole JSON array"),
        ("a.json", '[{"anchor": "a", "positive": "b"},\n\n\n{"anchor": 5}]', "line 4: not a labelled pair"),
    ],
)
def test_a_fault_in_pairs_of_another_program_is_named(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    for read in (read_examples, lambda path: list(read_pairs(path))):
        with pytest.raises(BadData, match=re.escape(complaint)):
            read(tmp_path / name)


def test_a_record_of_many_passages_is_decoded_once_for_all_of_them(tmp_path, monkeypatch):
    lines = [json.dumps({"query": q, "pos": ["a"], "neg": ["b"] * 50 + [q]}) for q in ("who?", "how?")]
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    files = PairFiles([tmp_path / "a.jsonl"])
    assert sum(1 for _ in files.scan()) == 104
    decoded = []
    monkeypatch.setattr(
        pairs_module,
        "pairs_of",
        lambda *given, whole=pairs_module.pairs_of: decoded.append(1) or whole(*given),
    )
    assert [one.text for one in files(range(104))].count("b") == 100
    assert files[51].text == "who?"
    assert len(decoded) == 3
