"""Pools: passage scores become one document score, on a scale that is said."""

import json
import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.notation import make
from rankhouse.core.scores import convert, scale_of
from rankhouse.ranking.pool import POOLS, Pool, best, first, mean, top, total, weighted

GOLDEN = json.loads((Path(__file__).parents[1] / "golden" / "passage_pooling.json").read_text())

floats = st.floats(-1e4, 1e4, width=32)
scores_of_passages = st.lists(floats, min_size=1, max_size=40)
every_pool = st.sampled_from([best(), total(), mean(), top(1), top(3), top(99), weighted(1.0, 0.5, 0.25)])


class Declares:
    def __init__(self, scale):
        self.scale = scale

    def score(self, pairs):
        return np.zeros(len(pairs), np.float32)


class DeclaresNothing:
    def score(self, pairs):
        return np.zeros(len(pairs), np.float32)


def test_the_pools_say_what_they_are_called():
    scores = [1.0, 5.0, -2.0, 4.0]
    assert make("first", POOLS, "pool")(scores) == 1.0
    assert make("max", POOLS, "pool")(scores) == 5.0
    assert make("sum", POOLS, "pool")(scores) == 8.0
    assert make("mean", POOLS, "pool")(scores) == 2.0
    assert make("top(2)", POOLS, "pool")(scores) == 4.5
    assert make("weighted(1.0, 0.5, 0.25)", POOLS, "pool")(scores) == 7.25


def test_first_is_the_passage_with_index_0_wherever_it_stands():
    assert first()([3.0, 9.0, 1.0], indexes=[2, 0, 1]) == 9.0
    with pytest.raises(WrongUse, match="index 0"):
        first()([3.0, 9.0], indexes=[2, 1])


def test_missing_passages_are_skipped():
    assert top(5)([1.0, 2.0]) == 1.5
    assert weighted(1.0, 0.5, 0.25)([3.0]) == 3.0


@pytest.mark.parametrize("number", range(len(GOLDEN["birch"]["cases"])))
def test_weighted_is_birchs_sentence_score(number):
    case = GOLDEN["birch"]["cases"][number]
    pool = weighted(*[1.0, case["beta"], case["gamma"]][: case["topk"]])
    for query, doc, _, score in case["ranking"]:
        sentences = GOLDEN["birch"]["sentence_scores"][query][doc]
        document = GOLDEN["birch"]["doc_scores"][query][doc]
        ours = case["alpha"] * document + (1 - case["alpha"]) * pool(sentences)
        assert ours == pytest.approx(score, rel=1e-9)


def test_max_and_mean_are_pygaggles():
    golden = GOLDEN["pygaggle"]
    ends = golden["doc_end_indexes"]
    for i, (start, end) in enumerate(pairwise(ends)):
        assert best()(golden["segment_scores"][start:end]) == golden["max"][i]
        assert mean()(golden["segment_scores"][start:end]) == pytest.approx(golden["mean"][i], rel=1e-12)


@given(scores_of_passages, every_pool, st.randoms(use_true_random=False))
def test_the_order_of_passages_changes_no_bit(scores, pool, random):
    shuffled = list(scores)
    random.shuffle(shuffled)
    assert pool(shuffled) == pool(scores)


def test_sums_are_exact():
    assert total()([2.0**60, 1.0, -(2.0**60)]) == 1.0
    assert mean()([2.0**60, 3.0, -(2.0**60)]) == 1.0


@given(floats)
def test_a_document_of_one_passage_keeps_its_score(score):
    for pool in (first(), best(), total(), mean(), top(1), top(7), weighted(1.0, 0.5)):
        assert pool([score]) == score


@given(scores_of_passages)
def test_top_1_is_max_and_top_all_is_mean(scores):
    assert top(1)(scores) == best()(scores) == weighted(1.0)(scores)
    assert top(len(scores))(scores) == mean()(scores) == top(len(scores) + 5)(scores)


@given(scores_of_passages, every_pool, st.integers(0, 39), st.floats(0, 100, width=32))
def test_a_better_passage_never_makes_a_document_worse(scores, pool, place, gain):
    raised = list(scores)
    raised[place % len(scores)] += gain
    assert pool(raised) >= pool(scores)


@pytest.mark.parametrize(
    "text",
    [
        "first",
        "max",
        "sum",
        "mean",
        "top(3)",
        "weighted(1.0, 0.5)",
        "mean(scale='probability')",
        "top(2, scale='logit')",
        "weighted(1.0, 0.25, scale='logprob')",
    ],
)
def test_notation_reads_back(text):
    pool = make(text, POOLS, "pool")
    assert str(pool) == text
    assert str(make(str(pool), POOLS, "pool")) == text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("top(0)", "top(0): k is"),
        ("top(1.5)", "k=1.5, but it takes a whole number"),
        ("top(True)", "k=True, but it takes a whole number"),
        ("top", "accepted: top(k"),
        ("weighted()", "one finite weight for each"),
        ("weighted(1, 1e999)", "weights=inf, but it takes a finite number"),
        ("weighted('a')", "weights='a', but it takes a finite number"),
        ("maximum", "choose from: first, max, mean, sum, top, weighted"),
        ("mean(scale='percent')", "choose from: logit, logprob, probability, score"),
    ],
)
def test_what_is_no_pool_is_refused_with_what_is(text, said):
    with pytest.raises(WrongUse) as error:
        make(text, POOLS, "pool")
    assert said in str(error.value)


def test_no_passages_cannot_be_pooled():
    for pool in (first(), best(), mean()):
        with pytest.raises(WrongUse, match="no passage to pool"):
            pool([])


logits = st.floats(-15, 15, width=32)


@given(st.lists(logits, min_size=1, max_size=20))
def test_scales_lead_into_each_other(values):
    logit = np.array(values, np.float64)
    probability = convert(logit, "logit", "probability")
    logprob = convert(logit, "logit", "logprob")
    np.testing.assert_allclose(probability, 1 / (1 + np.exp(-logit)), rtol=1e-12)
    np.testing.assert_allclose(logprob, np.log(probability), rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(convert(probability, "probability", "logit"), logit, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(convert(logprob, "logprob", "logit"), logit, rtol=1e-6, atol=1e-9)
    np.testing.assert_allclose(convert(logprob, "logprob", "probability"), probability, rtol=1e-12)
    np.testing.assert_allclose(convert(probability, "probability", "logprob"), logprob, rtol=1e-9, atol=1e-9)


@given(
    st.sampled_from(["logit", "probability", "logprob"]),
    st.sampled_from(["logit", "probability", "logprob"]),
    st.lists(st.floats(0, 1, width=32), min_size=2, max_size=20),
)
def test_a_change_of_scale_keeps_the_order_and_certainty_stays_finite(said, wanted, shares):
    values = np.sort(np.array(shares, np.float64))
    if said == "logit":
        values = values * 60 - 30
    elif said == "logprob":
        values = (values - 1) * 80
    carried = convert(values, said, wanted)
    assert np.isfinite(carried).all()
    assert (np.diff(carried) >= 0).all()


def test_certainty_is_bounded():
    zero_and_one = np.array([0.0, 1.0])
    low, high = convert(zero_and_one, "probability", "logit")
    assert -88 < low < -86
    assert 17 < high < 18
    assert convert(np.array([0.0]), "logprob", "logit")[0] == pytest.approx(87.3, abs=0.1)
    assert convert(np.array([-math.inf]), "logprob", "probability")[0] == 0


def test_scale_changes_what_mean_prefers():
    steady, mixed = [2.0, 2.0], [9.0, -4.0]
    assert mean(scale="logit")(mixed, "logit") > mean(scale="logit")(steady, "logit")
    assert mean(scale="probability")(mixed, "logit") < mean(scale="probability")(steady, "logit")


def test_without_scale_scores_are_taken_as_they_come():
    assert mean()([-1.0, -3.0], "logprob") == -2.0
    assert mean(scale="probability")([-1.0, -3.0], "logprob") == (math.exp(-1) + math.exp(-3)) / 2


@pytest.mark.parametrize("said", ["score", "similarity"])
def test_what_is_no_probability_cannot_become_one(said):
    with pytest.raises(WrongUse, match=f'this one gives "{said}"'):
        mean(scale="probability").check(Declares(said))
    assert mean().check(Declares(said)) == said


def test_a_ranker_declares_its_scale_or_none():
    assert scale_of(Declares("logit")) == "logit"
    assert scale_of(DeclaresNothing()) == "score"
    with pytest.raises(WrongUse, match="scale of a ranker"):
        scale_of(Declares("stars"))


def test_a_score_outside_its_declared_scale_is_refused():
    with pytest.raises(BadModel, match=r'declares scale "probability" but gave 1\.5'):
        mean(scale="logit")([0.5, 1.5], "probability")
    with pytest.raises(BadModel, match=r'declares scale "logprob" but gave 0\.7'):
        mean(scale="probability")([0.7], "logprob")
    assert mean(scale="logprob")([1.0001], "probability") == 0  # bf16 goes a little too far


def test_pools_are_plain_values():
    assert isinstance(best(), Pool)
    assert best().first_only is False
    assert first().first_only
    assert [name for name, make_pool in POOLS.items() if name not in ("top", "weighted") and make_pool()] == [
        "first",
        "max",
        "sum",
        "mean",
    ]
