"""What trec_eval's code cannot take never reaches it: odd grades, ids and levels give values or an error."""

import itertools
import re
import shutil

import pytest

from rankhouse.core.errors import BadData, WrongUse
from rankhouse.core.run import Run
from rankhouse.evaluation.measures import MOST_GAIN, evaluate

RUN = Run.of({"p": {"a": 3.0, "b": 2.0, "c": 1.0}, "q": {"a": 3.0, "b": 2.0, "c": 1.0}})
NAMES = (
    "AP", "AP@2", "Bpref", "P@5", "RR", "RR@10", "Rprec", "nDCG", "nDCG@10", "nDCG(gains={0:1,1:3})@5",
    "R@10", "SetAP", "SetF", "SetF(beta=2)", "SetP", "SetRelP", "SetR", "Success@5", "IPrec@0.1",
    "infAP", "NumRelRet", "AP(rel=3)", "Bpref(rel=3)", "Bpref(rel=2147483647)", "AP(judged_only=True)",
    "nDCG(judged_only=True)@5",
)  # fmt: skip


@pytest.mark.parametrize("lowest", [-1, -2, -5, -(2**31), -(2**70)])
def test_a_question_of_negative_grades_alone_is_worth_nothing(lowest):
    """Each of these calls ended the process, or read what another question had left behind."""
    for judged in ({"q": {"a": lowest}}, {"p": {"a": 4, "b": 0}, "q": {"a": lowest, "z": -1}}):
        for names in [[name] for name in NAMES] + [[a, b] for a, b in itertools.pairwise(NAMES)]:
            scores = evaluate(RUN, judged, names)
            assert all(scores.per_query["q"][name] == 0 for name in scores.measures), names
        counts = evaluate(RUN, judged, "NumRet Judged@2").per_query["q"]
        assert counts == {"NumRet": 3.0, "Judged@2": 0.0}


def test_other_questions_are_measured_as_without_it():
    qrels = {"p": {"a": 0, "b": 3, "c": 1, "z": 2}}
    alone = evaluate(RUN, qrels, NAMES).per_query["p"]
    assert evaluate(RUN, {"q": {"a": -2}, **qrels}, NAMES).per_query["p"] == alone
    assert alone["AP"] == pytest.approx((1 / 2 + 2 / 3) / 3)
    assert alone["AP(rel=3)"] == alone["Bpref(rel=3)"] + 0.5 == 0.5


def test_a_grade_as_high_as_files_allow_is_only_a_grade():
    """One counter a level was reserved: 17 GB, or a silent 0 where there is less memory."""
    high = 2**31 - 1
    scores = evaluate(RUN, {"q": {"b": high, "c": 1, "z": 0}}, f"AP Bpref RR AP(rel=2) AP(rel={high})")
    assert list(scores.means.values()) == pytest.approx([7 / 12, 1.0, 0.5, 0.5, 0.5])
    assert evaluate(RUN, {"q": {"b": 10**30}}, "AP").mean("AP") == 0.5


def test_ndcg_takes_gains_up_to_a_bound():
    """Its time grows with the square of the highest: 15 seconds at 300,000."""
    assert evaluate(RUN, {"q": {"b": MOST_GAIN}}, "nDCG nDCG@1").per_query["q"] == {
        "nDCG": pytest.approx(0.63093, abs=1e-5),
        "nDCG@1": 0.0,
    }
    told = 'grade of 300,000 is in the judgements (query "q", document "b"); nDCG takes grades'
    with pytest.raises(BadData, match=re.escape(told)) as error:
        evaluate(RUN, {"p": {"a": 1}, "q": {"a": 1, "b": 300_000}}, "AP nDCG@10")
    assert "up to 10,000" in str(error.value)
    assert "nDCG(gains={300000: 3})@10" in str(error.value)
    assert evaluate(RUN, {"q": {"b": 300_000}}, "AP nDCG(gains={300000: 3})@10").mean("AP") == 0.5
    with pytest.raises(BadData, match="a grade of 20,000"):
        evaluate(RUN, {"q": {"b": 1}}, "nDCG(gains={1: 20000})@10")


def test_ids_may_hold_anything():
    """They became C strings and lines: a null character cut one off, half a character ended the process."""
    names = "AP nDCG@10 RR RR@10 P@1 Judged@10 Compat" + (" ERR@10" if shutil.which("perl") else "")
    plain = evaluate({"q": Run.of({"q": {"a": 2.0, "b": 1.0}})["q"]}, {"q": {"a": 0, "b": 1}}, names)
    for first, second in (("x\0a", "x\0b"), ("\ud800", "\udc00"), ("a b", " "), ("", "\n"), ("-0", "none")):
        run = Run.of({"q": {first: 2.0, second: 1.0}})
        scores = evaluate(run, {"q": {first: 0, second: 1}}, names)
        assert scores.means == plain.means, (first, second)


def test_a_measure_does_not_depend_on_those_beside_it():
    """NumRet counted judged documents only beside a measure of judged documents."""
    qrels = {"q": {"a": 1}}
    for first, second in itertools.permutations(
        ("AP(judged_only=True)", "NumRet", "nDCG@10", "P(rel=2)@5"), 2
    ):
        both = evaluate(RUN, qrels, [first, second])
        assert both.means == evaluate(RUN, qrels, first).means | evaluate(RUN, qrels, second).means
    assert evaluate(RUN, qrels, "AP(judged_only=True) NumRet").mean("NumRet") == 3


@pytest.mark.parametrize("beta", ["1e-7", "1e300", "1e999"])
def test_a_beta_that_would_be_cut_off_is_refused(beta):
    """SetF(beta=1e-7) was computed with beta = 1."""
    with pytest.raises(WrongUse, match="beta = .* it must be 0, or from 0.0001"):
        evaluate(RUN, {"q": {"a": 1}}, f"SetF(beta={beta})")
    assert evaluate(RUN, {"q": {"a": 1}}, "SetF(beta=0.0001)").mean("SetF(beta=0.0001)") == pytest.approx(
        1 / 3, abs=1e-3
    )
