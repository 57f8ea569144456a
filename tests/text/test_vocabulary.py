import random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, MissingInput, WrongUse
from rankhouse.text.vocabulary import PADDING, UNKNOWN, Vocabulary

TEXTS = [["the", "cat", "the"], ["a", "cat"], ["the", "dog", "a"], []]


def test_frequent_words_come_first_and_equal_ones_by_name():
    vocabulary = Vocabulary.count(TEXTS, min_count=2)
    assert vocabulary.words == ("the", "a", "cat")
    assert vocabulary.ids(["the", "cat", "dog", ""]) == [2, 4, UNKNOWN, UNKNOWN]
    assert len(vocabulary) == 5
    assert "dog" not in vocabulary


def test_rare_words_are_left_out_at_five_by_default():
    texts = [["often"] * 5 + ["rare"] * 4]
    assert Vocabulary.count(texts).words == ("often",)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.lists(st.text(max_size=3), max_size=6), max_size=6), st.integers(0, 99))
def test_the_order_of_texts_changes_nothing(texts, seed):
    texts = [*texts, ["x"]]
    shuffled = random.Random(seed).sample(texts, len(texts))
    first, second = Vocabulary.count(texts, 1), Vocabulary.count(iter(shuffled), 1)
    assert first == second
    assert Vocabulary.from_json(first.to_json()) == first
    assert first.ids(first.words) == list(range(2, len(first)))


def test_texts_are_read_once_as_a_stream():
    assert Vocabulary.count((text for text in TEXTS), 1).documents == 4


def test_idf_counts_texts_not_occurrences():
    idf = Vocabulary.count(TEXTS, min_count=1).idf
    assert idf[PADDING] == 0
    assert idf[UNKNOWN] == pytest.approx(np.log(5))
    assert idf[2] == pytest.approx(np.log(5 / 3))  # "the": three times, in two texts


def test_an_empty_vocabulary_says_what_was_counted():
    with pytest.raises(BadData, match=r"5 times or more in 4 texts with 4 distinct words.*lower min_count"):
        Vocabulary.count(TEXTS)
    with pytest.raises(BadData):
        Vocabulary.count([])
    with pytest.raises(WrongUse, match="min_count=0"):
        Vocabulary.count(TEXTS, 0)


def test_it_survives_a_file(tmp_path):
    path = tmp_path / "made" / "vocabulary.json"
    vocabulary = Vocabulary.count([["naïve", "日本"]] * 3, 1)
    vocabulary.save(path)
    assert Vocabulary.load(path) == vocabulary
    with pytest.raises(MissingInput):
        Vocabulary.load(tmp_path / "absent.json")


def edited(change):
    good = Vocabulary.count(TEXTS, 1).to_json()
    return change(good)


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (b"{}", "no vocabulary of this program"),
        (b"\xff", "no vocabulary of this program"),
        (edited(lambda j: j.replace(b'_vocabulary":1', b'_vocabulary":9')), "version 9"),
        (edited(lambda j: j.replace(b'"words":["the",', b'"words":[')), "rows"),
        (edited(lambda j: j.replace(b'"cat"', b'"the"')), "twice"),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(tmp_path, content, reason):
    path = tmp_path / "vocabulary.json"
    path.write_bytes(content)
    with pytest.raises(BadData, match=reason):
        Vocabulary.load(path)
