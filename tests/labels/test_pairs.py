"""PAIRS files and files of passages: what is written reads back, and faults are refused with their line."""

import gzip

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, DuplicateId, MissingInput, RankhouseWarning
from rankhouse.core.nouns import Document, Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.io.files import Skips
from rankhouse.io.pairs import LabelledPair, read_pairs, write_pairs
from rankhouse.labels.candidates import PassageFile, check_passages, read_passages

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
LINE = '{"query_id":"q","query":"x","doc_id":"d","passage":0,"text":"t","label":1}\n'


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.builds(
            LabelledPair, TEXT, TEXT, TEXT, st.integers(0, 9), TEXT, st.integers(0, 1),
            st.one_of(st.none(), st.floats(-1e9, 1e9, width=32)),
        ),
        max_size=5,
    ),
    st.sampled_from([".jsonl", ".jsonl.gz", ".jsonl.zst"]),
)  # fmt: skip
def test_pairs_read_back_as_they_were_written(tmp_path, pairs, suffix):
    path = tmp_path / f"pairs{suffix}"
    assert write_pairs(pairs, path) == len(pairs)
    assert list(read_pairs(path)) == pairs


def test_a_pair_without_its_label_is_the_atom():
    found = LabelledPair("q", "x", "d", 3, "t", 1)
    assert found.pair == Pair(Query("q", "x"), Passage("d", 3, "t"))


@pytest.mark.parametrize(
    ("line", "reason"),
    [('{"query_id":"q"}', "missing required field"), ("no", "not a labelled pair"),
     ("[]", "Expected `object`"),
     (LINE.replace('"label":1', '"label":"1"'), "Expected `int`"), ('{"query_id":"\xff', "not UTF-8")],
)  # fmt: skip
def test_a_faulty_line_is_refused_with_its_number(tmp_path, line, reason):
    path = tmp_path / "pairs.jsonl"
    path.write_bytes(LINE.encode() + b"\n" + line.encode("latin1") + b"\n" + LINE.encode())
    with pytest.raises(BadData, match="pairs.jsonl, line 3: ") as caught:
        list(read_pairs(path))
    assert reason in str(caught.value)
    skips = Skips(1)
    assert len(list(read_pairs(path, skips))) == 2
    assert skips.seen[0].line == 3


def test_passages_cut_already_take_the_place_of_a_splitter(tmp_path):
    path = tmp_path / "passages.jsonl.gz"
    path.write_bytes(gzip.compress(
        b'{"id": "d#1", "doc_id": "d", "index": 1, "text": "two"}\n\n'
        b'{"doc_id": "d", "index": 0, "text": "one", "extra": 1}\n'
    ))  # fmt: skip
    split = read_passages(path)
    assert split(Document("d", "whatever")) == [Passage("d", 0, "one"), Passage("d", 1, "two")]
    assert split(Document("e", "whole", "title")) == [Passage("e", 0, "title whole")]
    assert split.dropped(Document("d", "whatever")) == 0
    assert str(split).startswith("given('passages.jsonl.gz', ")
    assert str(split) != str(PassageFile({"d": (Passage("d", 0, "one"),)}, "passages.jsonl.gz"))


def test_faulty_passages_are_refused(tmp_path):
    path = tmp_path / "passages.jsonl"
    path.write_text('{"doc_id": "d", "index": 0, "text": "one"}\n{"doc_id": "d", "text": "two"}\n')
    with pytest.raises(BadData, match="line 2: not a passage .* missing required field `index`"):
        read_passages(path)
    path.write_text('{"doc_id": "d", "index": 0, "text": "a"}\n{"doc_id": "d", "index": 0, "text": "b"}\n')
    with pytest.raises(DuplicateId, match=r'passage 0 of document "d" is given twice in passages\.jsonl'):
        read_passages(path)
    with pytest.raises(MissingInput):
        read_passages(tmp_path / "none")


def test_passages_of_other_documents_are_refused_and_missing_ones_said():
    cut = PassageFile({"d": (Passage("d", 0, "one"),)}, "cut.jsonl")
    check_passages(cut, Run.of([("q", "d", 1.0)]), 10)
    with pytest.warns(RankhouseWarning, match=r"1 of 2 candidates have no passages in cut\.jsonl .*: e"):
        check_passages(cut, Run.of([("q", "d", 1.0), ("q", "e", 2.0)]), 10)
    with pytest.raises(
        BadData, match=r"cut\.jsonl: the passages belong to none of the 1 candidates: .* d \.\.\."
    ):
        check_passages(cut, Run.of([("q", "d", 1.0), ("q", "e", 2.0)]), 1)


def test_passages_before_the_first_or_nested_too_deep_are_refused(tmp_path):
    path = tmp_path / "passages.jsonl"
    for line, said in (
        ('{"doc_id": "d", "index": -1, "text": "x"}', "index -1"),
        ('{"a": ' + "[" * 100_000, "nested more"),
    ):
        path.write_text(line)
        with pytest.raises(BadData, match=f"line 1: .*{said}"):
            read_passages(path)
