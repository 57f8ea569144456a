"""TREC runs and qrels: what is written reads back, what is wrong is named."""

from contextlib import nullcontext

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, RankhouseWarning, WrongUse
from rankhouse.core.qrels import judgements, relevant, restrict
from rankhouse.core.run import Run
from rankhouse.io.files import Skips
from rankhouse.io.trec import read_qrels, read_run, write_qrels, write_run

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
