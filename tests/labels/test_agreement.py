"""Judge against teacher: numbers by hand, by brute force and by scikit-learn."""

import json
import math
import warnings
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.labels import votes
from rankhouse.labels.agreement import Confusion
from rankhouse.labels.candidates import none
from rankhouse.labels.label import LabelPlan, label
from rankhouse.labels.leaf_rules import judged, taught
from rankhouse.labels.report import grouped, record
from rankhouse.labels.votes import panel_of

agree = run_path(str(Path(__file__).with_name("in_memory.py")))["agree"]


class PassageFile:
    """A teacher whose score of passage i is the i-th number."""

    def __init__(self, scores, scale="probability"):
        self.scores, self.scale = scores, scale

    def score(self, pairs):
        return np.array([self.scores[p.index] for _, p in pairs], np.float32)


def some_pairs(n, queries=1):
    return [Pair(Query(f"q{i % queries}", "question"), Passage("d", i, f"text {i}")) for i in range(n)]


def passage_qrels(answers, queries=1):
    qrels = {f"q{q}": {} for q in range(queries)}
    for i, yes in enumerate(answers):
        qrels[f"q{i % queries}"][f"d#{i}"] = int(yes)
    return qrels


def compared(judge, scores, truth=None, queries=1, scale="probability", threshold=0.5, **more):
    a = judged(passage_qrels(judge, queries), by="passage", name="judge")
    t = taught(PassageFile(scores, scale), threshold, name="teacher")
    known = None if truth is None else judged(passage_qrels(truth, queries), by="passage", name="truth")
    who = panel_of(a & t, truth=known, ask_all=more.pop("ask_all", True))
    return agree(who, some_pairs(len(judge), queries), **more)


def test_the_worked_example_of_a_confusion():
    # 20 both, 5 only first, 10 only second, 15 neither: p_o = 0.7, p_e = 0.5, kappa = 0.4
    found = Confusion("a", "b", 20, 5, 10, 15)
    assert found.pairs == 50
    assert found.agreement == 0.7
    assert found.kappa == pytest.approx(0.4, abs=1e-15)
    assert found.precision == 2 / 3
    assert found.recall == 0.8


def test_what_cannot_be_known_is_nan():
    assert math.isnan(Confusion("a", "b", 0, 0, 0, 0).agreement)
    assert math.isnan(Confusion("a", "b", 7, 0, 0, 0).kappa)  # chance alone agrees
    assert math.isnan(Confusion("a", "b", 0, 3, 0, 9).precision)
    assert math.isnan(Confusion("a", "b", 0, 0, 3, 9).recall)
    assert Confusion("a", "b", 0, 3, 5, 0).kappa < 0


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=40))
def test_kappa_is_that_of_scikit_learn(answers):
    metrics = pytest.importorskip("sklearn.metrics", reason="scikit-learn is not installed")
    first, second = zip(*answers, strict=True)
    found = compared(first, [float(s) for s in second]).confusions[0]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it warns where chance alone agrees, and gives NaN
        expected = metrics.cohen_kappa_score(first, second, labels=[False, True])
    assert found.kappa == pytest.approx(expected, abs=1e-12, nan_ok=True)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 100), st.booleans()), min_size=1, max_size=60),
    st.integers(1, 4),
    st.integers(1, 70),
    st.booleans(),
)
def test_all_counts_are_those_of_counting_one_by_one(rows, queries, chunk, ask_all):
    judge, hundredths, truth = (list(column) for column in zip(*rows, strict=True))
    scores = [h / 100 for h in hundredths]
    found = compared(judge, scores, truth, queries, chunk=chunk, ask_all=ask_all)
    teacher = [np.float32(s) >= 0.5 for s in scores]
    rule = [j and t for j, t in zip(judge, teacher, strict=True)]
    asked = [ask_all or j for j in judge]
    expected = {
        ("judge", "teacher"): (judge, teacher, asked),
        ("truth", "judge"): (truth, judge, None),
        ("truth", "teacher"): (truth, teacher, asked),
        ("truth", "rule"): (truth, rule, None),
    }
    assert {(c.first, c.second) for c in found.confusions} == set(expected)
    for c in found.confusions:
        first, second, among = expected[c.first, c.second]
        kept = [(a, b) for a, b, k in zip(first, second, among or [True] * len(rows), strict=True) if k]
        counts = [kept.count(kind) for kind in ((True, True), (True, False), (False, True), (False, False))]
        assert [c.both, c.only_first, c.only_second, c.neither] == counts
    assert found.positives == {f"q{q}": sum(rule[q::queries]) for q in range(min(queries, len(rows)))}
    assert (found.pairs, found.judged, found.asked, found.relevant) == (
        len(rows), sum(judge), sum(asked), sum(rule))  # fmt: skip
    assert found.removed == sum(j and not r for j, r in zip(judge, rule, strict=True))
    assert found.added == 0
    assert sum(found.histogram.yes) + sum(found.histogram.no) == sum(asked)
    assert sum(found.histogram.yes) == sum(a and t for a, t in zip(asked, truth, strict=True))


def test_small_blocks_give_the_same_numbers(monkeypatch):
    generator = np.random.default_rng(1)
    judge, truth = generator.random((2, 300)) < 0.3
    scores = generator.random(300).tolist()
    whole = record(compared(judge, scores, truth, 7))
    monkeypatch.setattr(votes, "_BLOCK", 11)
    assert record(compared(judge, scores, truth, 7)) == whole


def test_calibration_compares_mean_probability_and_share_of_yes():
    scores = [0.05, 0.05, 0.05, 0.05, 0.85, 0.85, 1.0]
    found = compared([0, 0, 0, 1, 1, 0, 1], scores).calibration
    assert found.reference == "judge"
    assert found.pairs == (4, 0, 0, 0, 0, 0, 0, 0, 2, 1)
    assert found.predicted[0] == pytest.approx(0.05)
    assert (found.observed[0], found.observed[8], found.observed[9]) == (0.25, 0.5, 1.0)
    assert math.isnan(found.predicted[1])
    assert found.error == pytest.approx((4 * 0.2 + 2 * 0.35 + 0) / 7, abs=1e-6)


def test_there_is_no_calibration_without_both_kinds_of_pairs_or_without_probabilities():
    assert compared([1, 0, 1], [0.1, 0.5, 0.9], ask_all=False).calibration is None
    assert compared([1, 0, 1], [-1.0, 5.0, 9.0], scale="similarity").calibration is None
    assert compared([1, 0, 1], [-1.0, 5.0, 9.0], scale="logit").calibration is not None


def test_raw_scores_are_counted_between_their_lowest_and_highest():
    found = compared([1, 0, 1, 0], [-3.0, 5.0, 7.0, 7.0], scale="similarity", threshold=6.0).histogram
    assert (found.scale, found.edges[0], found.edges[-1], found.threshold) == ("similarity", -3.0, 7.0, 6.0)
    assert (found.yes[0], found.no[16], found.yes[-1], found.no[-1]) == (1, 1, 1, 1)
    same = compared([1, 0], [2.0, 2.0], scale="similarity").histogram
    assert same.edges[0] < same.edges[-1]
    wild = compared([1, 0], [-np.inf, np.inf], scale="similarity").histogram
    assert np.isfinite(wild.edges).all()
    assert sum(wild.yes) + sum(wild.no) == 2


def test_the_clearest_changes_come_first_with_their_texts():
    who = panel_of(
        taught(PassageFile([0.1, 0.9, 0.3, 0.7, 0.8, 0.2]), name="t"),
        judge=judged(passage_qrels([1, 1, 1, 0, 0, 0]), by="passage", name="j"),
        truth=judged(passage_qrels([0, 1, 1, 1, 0, 0]), by="passage", name="truth"),
    )
    found = agree(who, some_pairs(6), most=1)
    assert (found.removed, found.added) == (2, 2)
    removed, added = found.changes
    assert (removed.kind, removed.pair.passage.text, removed.truth) == ("removed", "text 0", False)
    assert (added.kind, added.pair.passage.text, added.truth) == ("added", "text 4", False)
    assert added.score == pytest.approx(0.8)


def test_precision_and_recall_of_label_transfer_against_passage_truth():
    # Ten passages of a relevant document, three of them truly relevant; the teacher finds two and errs once.
    truth = [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    found = compared([1] * 10, [0.9, 0.8, 0.1, 0.7, 0, 0, 0, 0, 0, 0], truth, ask_all=False)
    by_second = {c.second: c for c in found.confusions if c.first == "truth"}
    assert by_second["judge"].precision == 0.3
    assert by_second["judge"].recall == 1.0
    assert by_second["rule"].precision == by_second["rule"].recall == 2 / 3


def test_without_judge_or_teacher_what_is_left_is_still_said():
    only_teacher = agree(panel_of(taught(PassageFile([0.9, 0.1]), name="t")), some_pairs(2, 2))
    assert (only_teacher.judge, only_teacher.confusions, only_teacher.changes) == ("", (), ())
    assert only_teacher.without == ["q1"]
    assert only_teacher.histogram.reference == ""
    only_judge = agree(panel_of(judged(passage_qrels([1, 0]), by="passage")), some_pairs(2))
    assert (only_judge.histogram, only_judge.calibration, only_judge.asked) == (None, None, 0)
    assert agree(panel_of(judged({})), []).pairs == 0
    with pytest.raises(WrongUse, match=r"must be a taught\(...\) rule"):
        panel_of(judged({}), teacher=judged({}))


def test_a_labelling_finds_the_same_as_pairs_in_memory(world, teacher, tmp_path):
    rule = judged(world.qrels, name="q") & taught(teacher, 0.4, name="t")
    truth = judged({"q1": {"d5#0": 1}}, by="passage", name="truth")
    plan = LabelPlan(split=world.split, negatives=none(), truth=truth, ask_all=True, chunk=7, shown=5)
    done = label(rule, world.run, world.queries, world.documents, tmp_path / "p", plan)
    expected = agree(panel_of(rule, truth=truth, ask_all=True), world.pairs, most=5)
    assert record(done.agreement) == record(expected)
    assert done.agreement.removed > 0


def test_the_record_is_plain_json_without_nan():
    found = compared([0, 1], [0.9, 0.2], ask_all=False)
    plain = json.loads(json.dumps(record(found), allow_nan=False))
    assert plain["confusions"][0]["kappa"] is None
    assert plain["queries_without"] == ["q0"]
    assert plain["changes"][0]["text"] == "text 1"


def test_queries_are_grouped_by_their_positives_without_losing_one():
    counts = [0, 0, 1, 5, 6, 10, 11, 20, 21, 39, 40, 41, 300]
    groups = grouped({str(i): n for i, n in enumerate(counts)})
    assert [count for _, count in groups] == [2, 1, 0, 0, 0, 1, 2, 2, 3, 1, 0, 1]
    assert [name for name, _ in groups[5:9]] == ["5", "6-10", "11-20", "21-40"]
    assert sum(count for _, count in groups) == len(counts)
    assert grouped({}) == [(str(n), 0) for n in range(6)]
