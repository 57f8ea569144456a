"""TREC runs and qrels: what is written reads back, what is wrong is named."""

import os
import re
import threading
from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.qrels import judgements, relevant, restrict
from rankhouse.core.run import Run
from rankhouse.io import trec
from rankhouse.io.files import Skips
from rankhouse.io.readers import tables
from rankhouse.io.trec import read_qrels, read_run, run_tag, write_qrels, write_run

ids = st.text("abé1-", min_size=1, max_size=3)
some = st.dictionaries(
    ids, st.dictionaries(ids, st.floats(width=32, allow_nan=False), min_size=1), max_size=4
)


@settings(max_examples=60)
@given(some, st.sampled_from(["run", "run.gz", "run.zst"]))
def test_a_run_reads_back_bit_for_bit(tmp_path_factory, data, name):
    path = tmp_path_factory.mktemp("runs") / name
    run = Run.from_rankings(data)
    write_run(run, path)
    with nullcontext() if data else pytest.warns(RankhouseWarning, match="the run has no rows"):
        assert read_run(path) == run


def test_a_written_run_looks_as_trec_wants_it(tmp_path):
    write_run(Run.of([("q", "a", 1.5), ("q", "b", 0.1)]), tmp_path / "run", tag="me")
    assert (tmp_path / "run").read_text() == "q Q0 a 1 1.5 me\nq Q0 b 2 0.1 me\n"
    with pytest.raises(WrongUse, match="white space"):
        write_run(Run.of([]), tmp_path / "run", tag="my tag")


def test_a_run_may_come_back_to_a_query_and_disagree_with_its_ranks(tmp_path):
    (tmp_path / "run").write_text("q 0 a 1 1 t\np 0 a 1 1 t\nq\t0\tb\t2\t3\tt\r\n\n")
    run = read_run(tmp_path / "run")
    assert run == Run.of([("q", "a", 1), ("p", "a", 1), ("q", "b", 3)])
    assert list(run) == ["q", "p"]
    assert run["q"].scores.dtype == np.float32


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("q Q0 d 1 t", "5 columns where 6 are needed: query Q0 document rank score tag"),
        ("q Q0 d e 1 2.0 t", "7 columns"),
        ("q Q0 d 1 nan t", '"nan" is not a number'),
        ("q Q0 d 1 2,5 t", '"2,5" is not a number'),
        ("q Q0 d 1 1e300 t", "the score 1e300 is beyond 3.4e.38, the largest of 32 bits"),
        ("q Q0 a 1 2 t", 'document "a" was already given'),
    ],
)
def test_a_faulty_run_line_is_named_and_can_be_skipped(tmp_path, line, complaint):
    (tmp_path / "run").write_text(f"q Q0 a 1 3 t\n{line}\nq Q0 z 3 1 t\n")
    with pytest.raises(BadData, match=rf"run, line 2: .*{complaint}"):
        read_run(tmp_path / "run")
    assert read_run(tmp_path / "run", Skips(1))["q"].doc_ids == ("a", "z")


def test_qrels_read_back(tmp_path):
    qrels = {"q": {"a": 1, "b": 0, "c": -1}, "p": {"a": 2}}
    write_qrels(qrels, tmp_path / "qrels.gz")
    assert read_qrels(tmp_path / "qrels.gz") == qrels
    assert relevant(qrels, "q") == {"a"}
    assert relevant(qrels, "p", at_least=3) == relevant(qrels, "none") == set()
    assert judgements(restrict(qrels, ["p", "none"])) == 1


def test_qrels_of_beir_are_known_by_their_header(tmp_path):
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\nq\ta\t1\n")
    assert read_qrels(tmp_path / "qrels.tsv") == {"q": {"a": 1}}


@pytest.mark.parametrize(
    ("line", "kind", "complaint"),
    [
        ("q 0 b", BadData, "3 columns where 4 are needed"),
        ("q 0 b 1.5", BadData, '"1.5" is no whole number'),
        ("q 0 a 2", DuplicateId, r'document "a" was already judged for query "q" \(grade 1\)'),
    ],
)
def test_a_faulty_judgement_is_named_and_can_be_skipped(tmp_path, line, kind, complaint):
    (tmp_path / "qrels").write_text(f"q 0 a 1\n{line}\nq 0 z 0\n")
    with pytest.raises(kind, match=rf"qrels, line 2: .*{complaint}"):
        read_qrels(tmp_path / "qrels")
    assert read_qrels(tmp_path / "qrels", Skips(1)) == {"q": {"a": 1, "z": 0}}


def test_a_missing_run_is_named(tmp_path):
    with pytest.raises(MissingInput, match="none"):
        read_run(tmp_path / "none")


@pytest.mark.parametrize(
    ("grade", "complaint"),
    [("1_0", "is no whole number"), ("١", "is no whole number"), ("9" * 20, "is beyond 2,147,483,647"),
     ("-" + "9" * 5000, "is beyond"), ("2147483648", "is beyond"), ("1.0", "is no whole number")],
)  # fmt: skip
def test_a_grade_that_others_would_read_differently_is_refused(tmp_path, grade, complaint):
    (tmp_path / "qrels").write_text(f"q 0 a 1\nq 0 b {grade}\nq 0 c -2147483647\n")
    with pytest.raises(BadData, match=f"qrels, line 2: .*{complaint}"):
        read_qrels(tmp_path / "qrels")
    assert read_qrels(tmp_path / "qrels", Skips(1)) == {"q": {"a": 1, "c": -(2**31) + 1}}


def test_a_score_in_python_s_own_spelling_is_refused(tmp_path):
    (tmp_path / "run").write_text("q Q0 a 1 1_0 t\n")
    with pytest.raises(BadData, match='line 1: the score "1_0" is not a number'):
        read_run(tmp_path / "run")


@pytest.mark.parametrize("tag", ["\udcff", "a\x1b[31m"])
def test_a_tag_that_no_file_should_hold_is_refused(tmp_path, tag):
    with pytest.raises(WrongUse, match="control character or is not UTF-8"):
        write_run(Run.of([("q", "a", 1.5)]), tmp_path / "run", tag)
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("name", ["", " ", "a b", "a\tb", "a\n", "\u3000a", "a\u2028b"])
def test_an_id_that_no_column_can_hold_is_refused(tmp_path, name):
    for run in (Run.of([("q", "a", 2.0), ("q", name, 1.0)]), Run.of([(name, "a", 2.0)])):
        with pytest.raises(WrongUse, match="cannot stand in a column"):
            write_run(run, tmp_path / "run")
    with pytest.raises(WrongUse, match="cannot stand in a column"):
        write_qrels({"q": {"b c": 1, name: 1, "": 0}}, tmp_path / "qrels")
    assert not any(tmp_path.iterdir())


RUN = Run.of([("q", "a", 2.5), ("q", "b", 1.0), ("p", "a", 0.5)])


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("run.csv", "query_id,doc_id,rank,score\nq,a,1,2.5\nq,b,2,1.0\np,a,1,.5\n"),
        ("run.tsv", "qid\tdocno\tscore\tname\nq\ta\t2.5\tx\nq\tb\t1\tx\np\ta\t0.5\tx\n"),
        ("results.csv", 'score,QID,"docid"\n2.5,q,"a"\n1,q,b\n.5,p,a\n'),
        (
            "run.jsonl",
            (
                '{"query_id": "q", "doc_id": "a", "score": 2.5}\n'
                '{"qid": "q", "docno": "b", "score": 1}\n\n{"q_id": "p", "corpus-id": "a", "score": 0.5}\n'
            ),
        ),
        ("run.json", '{"q": {"a": 2.5, "b": 1}, "p": {"a": 0.5}}'),
        ("trec.csv", "q Q0 a 1 2.5 t\nq Q0 b 2 1 t\np Q0 a 1 .5 t\n"),
        ("trec.parquet", "q Q0 a 1 2.5 t\nq Q0 b 2 1 t\np Q0 a 1 .5 t\n"),
        ("quoted.tsv", '"qid"\t"docno"\t"score"\n"q"\t"a"\t2.5\n"q"\t"b"\t1\n"p"\t"a"\t0.5\n'),
        ("blank.csv", "\nqid,docno,score\nq,a,2.5\nq,b,1\np,a,0.5\n"),
        (
            "upper.jsonl",
            (
                '{"QID": "q", "DocNo": "a", "Score": 2.5}\n{"qid": "q", "docno": "b", "score": 1}\n'
                '{"qid": "p", "docno": "a", "score": 0.5}\n'
            ),
        ),
        (
            "array.json",
            (
                '[{"qid": "q", "docno": "a", "score": 2.5},\n{"qid": "q", "docno": "b", "score": 1},\n'
                '{"qid": "p", "docno": "a", "score": 0.5}]'
            ),
        ),
        ("unclosed.csv", 'qid,docno,score,text\nq,a,2.5,5" wide\nq,b,1,"two\nlines"\np,a,0.5,"a ""b"""\n'),
        ("pretty.json", '{\n  "q": {\n    "a": 2.5,\n    "b": 1.0\n  },\n  "p": {"a": 0.5}\n}\n'),
    ],
)
def test_a_run_of_another_program_is_read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_run(tmp_path / name) == RUN


def test_a_run_in_parquet_is_read(tmp_path):
    pa = pytest.importorskip("pyarrow")
    from pyarrow import parquet

    rows = [{"qid": 1, "docno": "a", "score": 2.5}, {"qid": 1, "docno": "b", "score": 1.0}]
    parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "run.parquet")
    assert read_run(tmp_path / "run.parquet") == Run.of([("1", "a", 2.5), ("1", "b", 1.0)])
    (tmp_path / "run.parquet").rename(tmp_path / "other.run")
    assert read_run(tmp_path / "other.run") == Run.of([("1", "a", 2.5), ("1", "b", 1.0)])
    columns = [pa.array(["1"]), pa.array(["a"]), pa.array([1.0]), pa.array([2.0])]
    parquet.write_table(pa.table(columns, names=["qid", "docno", "score", "score"]), tmp_path / "two.parquet")
    with pytest.raises(BadData, match='the column "score" is there twice'):
        read_run(tmp_path / "two.parquet")


def test_the_ranks_of_ms_marco_become_scores(tmp_path):
    (tmp_path / "run.tsv").write_text("1048585\t7187158\t1\n1048585\t7187157\t2\n2\t7187158\t1\n")
    run = read_run(tmp_path / "run.tsv")
    assert run == Run.of([("1048585", "7187158", 1), ("1048585", "7187157", 0.5), ("2", "7187158", 1)])
    (tmp_path / "run.tsv").write_text("1048585\t7187158\t1\n2\t7187158\t1\n1048585\t7187157\t2\n")
    assert read_run(tmp_path / "run.tsv") == run


@pytest.mark.parametrize(
    ("name", "text", "complaint"),
    [
        (
            "run.csv",
            "a,b\n1,2\n",
            "line 1: its first line has to name the columns, one of query-id, query_id",
        ),
        (
            "run.csv",
            "qid,docno,score,Score\n1,2,3,4\n",
            'line 1: the column "score" is named twice; keep one',
        ),
        (
            "run.csv",
            "qid,docno\n1,2\n",
            'line 2: the row of the run has no column "score"; it has qid, docno',
        ),
        ("run.csv", "qid,docno,score\n1,2\n", "line 2: the row has 2 columns, the first line names 3"),
        ("run.csv", "qid,docno,score\n1,2,high\n", 'line 2: the score "high" is not a number'),
        ("run.jsonl", '{"qid": "1", "score": 1}\n', 'line 1: the row of the run has no column "corpus-id"'),
        ("run.jsonl", '{"qid": "1", "docno": "a", "score": 1}\n{"qid"}\n', "line 2: no JSON object of ids"),
        ("run.json", '{"q": {"a": "high"}}', "no JSON of {query: {document: number}}"),
        ("run.tsv", "q\ta\t1\nq\tb\t0\n", 'line 2: the rank "0" is no whole number from 1'),
        ("run.tsv", "q\ta\t1\nq\tb\n", "line 2: 2 columns where 3 are needed: query document rank"),
    ],
)
def test_a_fault_in_a_run_of_another_program_is_named(tmp_path, name, text, complaint):
    (tmp_path / name).write_text(text)
    with pytest.raises(BadData, match=re.escape(complaint)):
        read_run(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("qrels.csv", "query_id,doc_id,relevance\nq,a,1\nq,b,0\n"),
        ("qrels.tsv", "qid\titeration\tdocno\tlabel\nq\t0\ta\t1\nq\t0\tb\t0\n"),
        (
            "qrels.jsonl",
            (
                '{"query_id": "q", "doc_id": "a", "relevance": 1}\n'
                '{"query_id": "q", "doc_id": "b", "relevance": 0}\n'
            ),
        ),
        ("qrels.json", '{"q": {"a": 1, "b": 0}}'),
        ("pandas.csv", "qid,docno,label\nq,a,1.0\nq,b,0.0\n"),
        ("trec.csv", "q 0 a 1\nq 0 b 0\n"),
    ],
)
def test_judgements_of_another_program_are_read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    assert read_qrels(tmp_path / name) == {"q": {"a": 1, "b": 0}}


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
@pytest.mark.parametrize(
    "text",
    [
        "q Q0 a 1 2.5 t\nq Q0 b 2 1 t\np Q0 a 1 0.5 t\n",
        "qid,docno,score\nq,a,2.5\nq,b,1\np,a,0.5\n",
        '{"q": {"a": 2.5, "b": 1},\n "p": {"a": 0.5}}',
    ],
)
def test_a_run_is_read_once_so_that_it_may_come_out_of_a_pipe(tmp_path, text):
    os.mkfifo(tmp_path / "run")
    writer = threading.Thread(target=(tmp_path / "run").write_text, args=(text,), daemon=True)
    writer.start()
    assert read_run(tmp_path / "run") == RUN
    writer.join()


@pytest.mark.parametrize("text", ['q,a,1,"open\nq,b,2,c\nq,d,3,e\n', 'q,a,1,"open\nq,b,2,c\nq,d,3,"e"\n'])
def test_a_quotation_mark_that_nothing_closes_takes_one_row_and_not_the_others(tmp_path, text):
    (tmp_path / "run.csv").write_text(f"qid,docno,score,text\n{text}")
    with pytest.raises(BadData, match="line 2: a quotation mark begins a cell and none ends it"):
        read_run(tmp_path / "run.csv")
    skips = Skips(1)
    assert read_run(tmp_path / "run.csv", skips) == Run.of([("q", "b", 2), ("q", "d", 3)])
    assert [fault.line for fault in skips.seen] == [2]


def test_many_open_quotation_marks_take_their_rows_and_each_line_is_read_twice_at_most(tmp_path, monkeypatch):
    rows = "".join(f'q,d{n},{n},"abc def\n' for n in range(20_000))
    (tmp_path / "run.csv").write_text(f"qid,docno,score,text\n{rows}")
    skips, read, whole = Skips(30_000), [], tables.as_text
    monkeypatch.setattr(tables, "as_text", lambda *given: read.append(1) or whole(*given))
    assert read_run(tmp_path / "run.csv", skips).rows == 1  # nothing comes behind the last mark
    assert len(skips.seen) == 19_999
    assert len(read) < 2 * 20_001


def test_text_behind_the_mark_that_ends_a_cell_of_several_lines_is_named(tmp_path):
    (tmp_path / "run.csv").write_text('qid,docno,score,text\nq,a,1,"one\ntwo" tail\nq,b,2,x\n')
    with pytest.raises(BadData, match="line 2: a quotation mark begins a cell and none ends it well"):
        read_run(tmp_path / "run.csv")


def test_malformed_records_to_pass_over_may_be_a_number(tmp_path):
    (tmp_path / "run").write_text("q Q0 a 1 2.5 t\nq Q0 b\n")
    assert len(read_run(tmp_path / "run", 1)) == 1
    for wrong in (-1, True, "all"):
        with pytest.raises(WrongUse, match="skips is of type"):
            read_run(tmp_path / "run", wrong)


def test_rows_in_any_order_are_read_without_a_look_at_those_before(tmp_path, monkeypatch):
    rows = [(f"q{n % 50}", f"d{n}") for n in range(5000)]
    (tmp_path / "run").write_text("".join(f"{q} Q0 {d} 1 {n} t\n" for n, (q, d) in enumerate(rows)))
    made = []
    monkeypatch.setattr(
        trec, "_finished", lambda rows, whole=trec._finished: made.append(len(rows)) or whole(rows)
    )
    assert read_run(tmp_path / "run") == Run.of([(q, d, n) for n, (q, d) in enumerate(rows)])
    assert sum(made) < 2 * len(rows)


def test_only_a_trec_run_has_a_tag(tmp_path):
    texts = {
        "a.run": ("q Q0 a 1 2.5 bm25\n", "bm25"),
        "b.run": ("", ""),
        "c.json": ('{"q": {"a": 1,  "b": 2, "c": 3}}', ""),
        "d.tsv": ("qid\tQ0\tdocno\trank\tscore\ttag\nq\t0\ta\t1\t2\tt\n", ""),
    }
    for name, (text, tag) in texts.items():
        (tmp_path / name).write_text(text)
        assert run_tag(tmp_path / name) == tag
    (tmp_path / "e.parquet").write_bytes(b"PAR1\x15 \x9a \xff \0 \1 \2")
    assert run_tag(tmp_path / "e.parquet") == ""
