"""The guard: no teacher on test queries, and what both sides share."""

import numpy as np
import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Document, Query
from rankhouse.core.sameness import normalised
from rankhouse.labels.leaf_rules import judged, taught
from rankhouse.labels.leakage import QuerySet, keep_apart, overlap


class Silent:
    scale, fingerprint = "logit", "silent"

    def score(self, pairs):
        return np.zeros(len(pairs), np.float32)


TRAIN = [Query("1", "How do pilots steer?"), Query("2", "What is C++?"), Query("3", "tides")]
TEST = [Query("9", "how do  PILOTS steer"), Query("2", "What is C#?")]


def test_words_make_a_query_whatever_its_case_width_and_punctuation():
    assert normalised(" Ｈｏｗ do\tpilots—steer?! ") == "how do pilots steer"
    assert normalised("cafe\u0301") == normalised("CAF\u00c9")
    assert normalised("Straße") == normalised("STRASSE")
    assert len({normalised(text) for text in ("C", "C#", "C++", "50%", "50")}) == 5
    assert normalised("...") == ""


def test_a_teacher_is_kept_off_test_queries_with_other_ids():
    with pytest.raises(WrongUse) as caught:
        keep_apart(judged({}) & taught(Silent()), TRAIN, QuerySet(TEST))
    assert "1 of the queries to be labelled are test queries (1)" in str(caught.value)
    assert "--allow-test" in str(caught.value)


def test_it_may_label_them_when_told_to_and_a_judge_always_may():
    assert keep_apart(taught(Silent()), TRAIN, QuerySet(TEST), allow_test=True).queries == (("1", "9"),)
    assert keep_apart(judged({}), TRAIN, QuerySet(TEST)).queries == (("1", "9"),)
    assert not keep_apart(taught(Silent()), TRAIN[1:], QuerySet(TEST)).leaks


def test_equal_ids_decide_only_where_a_text_is_missing():
    assert overlap(QuerySet(TRAIN), QuerySet(TEST)).ids == ()
    assert overlap(QuerySet(TRAIN), QuerySet((), {"2": {"d": 1}, "7": {}})).ids == ("2",)
    with pytest.raises(WrongUse, match="are test queries"):
        keep_apart(taught(Silent()), TRAIN, QuerySet((), {"3": {"d": 1}}))


def test_shared_documents_copies_and_pairs_are_found():
    train = QuerySet(TRAIN, {"1": {"a": 1, "b": 1, "c": 0}, "2": {"x": 1}})
    test = QuerySet(TEST, {"9": {"a": 2, "b": 0, "c": 1}, "2": {"y": 1}})
    documents = {
        "x": Document("x", "A lock lifts ships."),
        "y": Document("y", "lifts ships", "A LOCK"),
        "a": Document("a", "a"),
    }
    found = overlap(train, test, documents)
    assert found.queries == (("1", "9"),)
    assert found.documents == ("a",)
    assert found.copies == (("x", "y"),)
    assert found.pairs == (("1", "9", "a"),)
    assert found.leaks
    assert [count for _, count, _ in found.rows()] == [1, 0, 1, 1, 1]


def test_documents_of_one_collection_are_no_leak():
    found = overlap(QuerySet(TRAIN[:1], {"1": {"a": 1}}), QuerySet(TEST[1:], {"2": {"a": 1}}))
    assert found.documents == ("a",)
    assert not found.leaks


def test_many_shared_things_are_named_by_the_first_few():
    many = [Query(str(n), f"question {n}") for n in range(9)]
    with pytest.raises(WrongUse, match=r"9 of the queries .* test queries \(0, 1, 2 \.\.\.\)"):
        keep_apart(taught(Silent()), many, QuerySet(many))
