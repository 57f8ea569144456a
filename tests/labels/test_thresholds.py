"""Thresholds of a teacher, chosen on judged pairs that it scored."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.io.pairs import LabelledPair
from rankhouse.labels.rule_notation import Openers, read
from rankhouse.labels.thresholds import ScoredPairs, choose_threshold, kept_at, read_threshold, scored_pairs

VALUES = st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=2, max_size=40).filter(
    lambda rows: 0 < sum(right for _, right in rows) < len(rows)
)


def scored(rows):
    return ScoredPairs(
        np.array([value / 10 for value, _ in rows]), np.array([right for _, right in rows]), "probability"
    )


@given(VALUES)
def test_no_other_threshold_has_a_larger_f1(rows):
    pairs = scored(rows)
    chosen = choose_threshold(pairs)
    assert chosen == kept_at(pairs, chosen.threshold)
    assert chosen.f1 == max(kept_at(pairs, value).f1 for value in set(pairs.values.tolist()))


@given(VALUES, st.sampled_from([0.3, 0.6, 0.9, 1.0]))
def test_the_highest_threshold_that_keeps_enough_is_chosen(rows, least):
    pairs = scored(rows)
    chosen = choose_threshold(pairs, f"recall({least})")
    assert chosen.recall >= least
    higher = [value for value in pairs.values.tolist() if value > chosen.threshold]
    assert all(kept_at(pairs, value).recall < least for value in higher)


def test_the_lowest_threshold_that_is_precise_enough_is_chosen():
    pairs = scored([(9, True), (8, False), (7, True), (6, True), (5, False), (4, False)])
    assert choose_threshold(pairs, "precision(0.75)") == (0.6, 4, 3, 3)
    with pytest.raises(BadData, match=r"right in 1 of 2 pairs"):
        choose_threshold(scored([(9, True), (9, False)]), "precision(0.9)")
    with pytest.raises(WrongUse, match="above 0 and at most 1"):
        choose_threshold(pairs, "recall(0)")


def pair(doc, score, scale="logit", query="q1"):
    return LabelledPair(query, "words", doc, 0, "text", -1, score, scale)


def test_logits_are_compared_as_probabilities_and_pairs_without_a_score_are_passed_over():
    pairs = scored_pairs(
        [pair("a", 0.0), pair("b", 2.0), LabelledPair("q1", "w", "c", 0, "t", 1)], {"q1": {"b": 1}}
    )
    assert pairs.values.tolist() == pytest.approx([0.5, 1 / (1 + np.exp(-2))])
    assert pairs.right.tolist() == [False, True]
    assert choose_threshold(pairs).threshold == pairs.values[1]


@pytest.mark.parametrize(
    ("pairs", "reason"),
    [
        ([LabelledPair("q1", "w", "a", 0, "t", 1)], "no pair has a score"),
        ([pair("a", 1.0), pair("b", 0.5, "probability")], "different scales"),
        ([pair("b", 1.0)], "1 of the 1 scored pairs"),
        ([pair("a", 1.0)], "0 of the 1 scored pairs"),
    ],
)
def test_pairs_that_cannot_settle_a_threshold_are_refused(pairs, reason):
    with pytest.raises(BadData, match=reason):
        scored_pairs(pairs, {"q1": {"b": 1}})


class Teacher:
    scale, fingerprint = "probability", "t"

    def score(self, pairs):
        return np.array([float(p.passage.doc_id) for p in pairs], np.float32)


def test_a_rule_takes_the_file_in_place_of_a_number(tmp_path):
    (tmp_path / "t.json").write_text(json.dumps({"threshold": 0.25, "f1": 1}))
    rule = read(f'taught("t", threshold="{tmp_path}/t.json")', Openers(ranker=lambda name: Teacher()))
    assert str(rule) == "taught('t', threshold=0.25)"
    with pytest.raises(WrongUse, match="rankhouse threshold"):
        read_threshold(str(tmp_path / "none.json"))
    (tmp_path / "bad.json").write_text("[]")
    with pytest.raises(BadData, match="no threshold can be read"):
        read_threshold(str(tmp_path / "bad.json"))
