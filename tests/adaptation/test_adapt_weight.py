"""The weight of a student beside the first stage: the best one on held-out questions."""

import numpy as np
import pytest

pytest.importorskip("torch")

from rankhouse.adaptation.adapt import weigh
from rankhouse.adaptation.options import JudgedQuestions
from rankhouse.adaptation.student import HeldOut
from rankhouse.core.nouns import Document, Query
from rankhouse.core.progress import ignore
from rankhouse.core.run import Run

DOCS = {name: Document(name, name) for name in "abcdef"}


class Preference:
    """A ranker that puts the documents of a query in a given order."""

    scale, fingerprint = "score", "preference"

    def __init__(self, orders):
        self.orders = orders

    def score(self, pairs):
        return np.array([-self.orders[p.query.id].index(p.passage.doc_id) for p in pairs], np.float32)


class Library:
    documents = DOCS


def asked(first, wanted, name="q"):
    """Queries, what the first stage finds for each, and its relevant document."""
    ids = [f"{name}{n}" for n in range(len(wanted))]
    run = Run.of(
        {q: {d: float(-place) for place, d in enumerate(order)} for q, order in zip(ids, first, strict=True)}
    )
    return [Query(q, q) for q in ids], run, {q: {d: 1} for q, d in zip(ids, wanted, strict=True)}


def weight(first, student, wanted, judged=([], [], [])):
    """The weight chosen where query n's relevant document is wanted[n], of judged questions likewise."""
    queries, run, qrels = asked(first, wanted)
    own, found, grades = asked(judged[0], judged[2], "own")
    apart = HeldOut(queries, run, qrels, qrels)
    orders = zip([query.id for query in (*queries, *own)], (*student, *judged[1]), strict=True)
    given = JudgedQuestions(own, grades, found) if own else None
    return weigh(Preference(dict(orders)), apart, Library(), 100, ignore, given)


def test_of_equally_good_weights_the_nearest_to_equal_shares_is_chosen(capsys):
    found = weight(["bacdef"] * 8, ["abcdef"] * 8, "a" * 8)
    assert found.values["student"] == 1 > found.values["first stage"]
    assert found.student == 0.6  # from there on the student's choice between the two leaders counts for more
    assert "warning" not in capsys.readouterr().err


def test_a_student_that_only_harms_has_no_say_and_is_reported(capsys):
    found = weight(["abcdef"] * 8, ["fedcba"] * 8, "a" * 8)
    assert found.student < 0.5
    assert found.values["joined"] == found.values["first stage"] == 1
    said = " ".join(capsys.readouterr().err.split())
    assert "warning: alone the student ranks the 8 held-out questions worse than the first stage" in said
    assert f"nDCG@10 {found.values['student']:.3f} and 1.000" in said
    assert "joining them does not help" in said


def test_the_best_mean_is_chosen_and_joining_that_helps_is_said(capsys):
    # The student alone is best on seven questions of eight, and puts the relevant document of one last.
    first, student = ["bacdef"] * 7 + ["abcdef"], ["acbdef"] * 7 + ["fedcba"]
    found = weight(first, student, "a" * 8)
    assert found.student == 0.4
    assert found.values["joined"] == 1 > found.values["student"] > found.values["first stage"]
    first, student = ["bacdef"] * 8, ["acbdef"] * 2 + ["bcadef"] * 6
    found = weight(first, student, "a" * 8)
    said = " ".join(capsys.readouterr().err.split())
    assert f"joined they have {found.values['joined']:.3f}" in said


def test_judged_questions_choose_beside_held_out_ones(capsys):
    # The student is right where pseudo-queries ask, and wrong where people do.
    pseudo = ["bacdef"] * 8, ["abcdef"] * 8, "a" * 8
    wrong = ["abcdef"], ["fedcba"], "a"
    assert weight(*pseudo).student == 0.6
    assert weight(*pseudo, [one * 2 for one in wrong]).student == 0.6  # few count for little
    assert weight(*pseudo, [one * 400 for one in wrong]).student < 0.5
    said = " ".join(capsys.readouterr().err.split())
    assert "on 400 judged questions that chose it too: nDCG@10 1.000 first stage, " in said


def test_a_single_question_is_enough_to_choose():
    assert 0 <= weight(["ab"], ["ba"], "b").student <= 1
