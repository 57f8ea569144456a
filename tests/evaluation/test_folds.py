"""Folds: every query is tested once, never where it was learned from, and always the same way."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.evaluation.folds import Folds, deal, read_folds, write_folds

IDS = [str(i) for i in range(301, 351)]


@given(
    st.lists(st.text(min_size=1), min_size=5, max_size=40, unique=True), st.integers(2, 5), st.integers(0, 99)
)
def test_every_query_is_in_one_fold_and_sizes_differ_by_one_at_most(ids, count, seed):
    folds = deal(ids, count, seed)
    assert sorted(folds.query_ids) == sorted(ids)
    sizes = [len(fold) for fold in folds.folds]
    assert len(sizes) == count
    assert max(sizes) - min(sizes) <= 1


def test_folds_depend_on_queries_and_seed_and_nothing_else():
    assert deal(IDS, 5, 7) == deal(reversed(IDS), 5, 7)
    assert deal(IDS, 5, 7) != deal(IDS, 5, 8)
    # From `printf "7\t301" | sha256sum` and so on, sorted: a change would silently change every experiment.
    assert deal(IDS[:10], 3, 7).folds == (
        ("301", "304", "307", "309"),
        ("305", "306", "310"),
        ("302", "303", "308"),
    )


def test_a_round_tests_on_one_fold_chooses_on_the_next_and_learns_from_the_rest():
    folds = deal(IDS, 5, 1)
    for number in range(5):
        train, valid, test = folds.split(number)
        assert test == folds.folds[number]
        assert valid == folds.folds[(number + 1) % 5]
        assert sorted(train + valid + test) == sorted(IDS)
        assert len(train) == 30
    whole = folds.split(4, validate=False)
    assert whole.valid == ()
    assert len(whole.train) == 40


def test_folds_survive_the_file(tmp_path):
    folds = deal(["q 1", 'q"2', "q3", "é", "q5"], 2, 3)
    write_folds(folds, tmp_path / "folds.json")
    assert read_folds(tmp_path / "folds.json") == folds


def test_published_folds_need_no_seed(tmp_path):
    (tmp_path / "folds.json").write_text('{"folds": [["1"], ["2", "3"]]}')
    assert read_folds(tmp_path / "folds.json") == Folds(None, (("1",), ("2", "3")))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (
            '{"folds": [["1", "2"], ["2", "3"]]}',
            r"1 queries stand in more than one place.* 2 \(folds 0 and 1\)",
        ),
        ('{"folds": [["1", "1"], ["3"]]}', r"1 \(folds 0 and 0\)"),
        ('{"folds": [["1"], []]}', "the sizes found are: 1, 0"),
        ('{"folds": [["1"]]}', "the sizes found are: 1"),
        ('{"folds": []}', "the sizes found are: none"),
        ('{"folds": [[1], [2]]}', r"Expected `str`, got `int` - at `\$.folds"),
        ('{"folds": {"a": 1}}', "Expected `array`"),
        ('{"fold": [["1"], ["2"]]}', "unknown field `fold`"),
        ("{", "Input data was truncated"),
        ("", "a fold file holds"),
        ('{"seed": "x", "folds": [["1"], ["2"]]}', "Expected `int | null`, got `str`"),
    ],
)
def test_a_wrong_fold_file_is_refused_with_its_fault(tmp_path, content, said):
    path = tmp_path / "folds.json"
    path.write_text(content)
    with pytest.raises(BadData, match=said.replace("|", r"\|")) as caught:
        read_folds(path)
    assert str(path) in str(caught.value)


def test_wrong_wishes_are_refused(tmp_path):
    with pytest.raises(MissingInput):
        read_folds(tmp_path / "none.json")
    with pytest.raises(WrongUse, match="6 folds of 5 queries"):
        deal(IDS[:5], 6)
    with pytest.raises(WrongUse, match="1 folds"):
        deal(IDS, 1)
    with pytest.raises(BadData, match="queries given twice: 301"):
        deal([*IDS, "301"], 5)
    with pytest.raises(WrongUse, match="fold 5 was asked for; there are folds 0 to 4"):
        deal(IDS, 5).split(5)
    with pytest.raises(WrongUse, match="two folds leave nothing"):
        deal(IDS, 2).split(0)


def test_a_fold_file_may_begin_with_a_byte_order_mark(tmp_path):
    path = tmp_path / "folds.json"
    path.write_bytes(b'\xef\xbb\xbf{"folds": [["a"], ["b"]]}')
    assert read_folds(path).folds == (("a",), ("b",))
