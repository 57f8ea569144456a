"""One reader of PAIRS, for everybody, and what it does not take in silence."""

import json

import pytest

from rankhouse.core.errors import BadData, RankhouseWarning
from rankhouse.io import pairs as pairs_module
from rankhouse.io.pairs import Contradictions, LabelledPair, PairFiles, distinct, read_pairs
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
