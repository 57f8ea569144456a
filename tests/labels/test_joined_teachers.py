"""Teachers besides a single ranker: a run, and several whose scores become one."""

import numpy as np
import pytest

from rankhouse.core.errors import WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.core.run import Run
from rankhouse.labels.soft_scores import JOINS, JoinedTeachers, RunTeacher, members_of


class Length:
    scale, fingerprint = "score", "length"

    def __init__(self):
        self.asked = []

    def score(self, pairs):
        self.asked += [(pair.query.id, pair.passage.doc_id) for pair in pairs]
        return np.array([len(pair.passage.text) for pair in pairs], np.float32)


class Vowels:
    scale, fingerprint = "similarity", "vowels"

    def score(self, pairs):
        return np.array([sum(map(pair.passage.text.count, "aeiou")) for pair in pairs], np.float32)


TEXTS = ["aaa", "rhythm", "eerie", "moon over the sea", "x", "queue"]
PASSAGES = [Passage(f"d{n}", 0, text) for n, text in enumerate(TEXTS)]
QUERIES = [Query("q1", "one"), Query("q2", "two")]
PAIRS = [Pair(query, passage) for query in QUERIES for passage in PASSAGES]


@pytest.mark.parametrize("join", JOINS)
def test_scores_are_joined_within_each_question(join):
    joined = JoinedTeachers([Length(), Vowels()], join)
    order = np.random.default_rng(0).permutation(len(PAIRS))
    scores = joined.score([PAIRS[place] for place in order])
    both = np.array([[len(t), sum(map(t.count, "aeiou"))] for t in TEXTS], np.float64)
    expected = np.tile(JOINS[join](both, None), 2)
    np.testing.assert_allclose(scores, expected[order], rtol=1e-6)
    assert joined.scale == "score"
    assert members_of(joined) == joined.teachers


@pytest.mark.parametrize("join", JOINS)
def test_against_a_reference_no_score_depends_on_the_pairs_beside_it(join):
    reference = JoinedTeachers([Length(), Vowels()], join).against(lambda _: PASSAGES[:4])
    one_by_one = np.concatenate([reference.score([pair]) for pair in PAIRS])
    together = JoinedTeachers([Length(), Vowels()], join).against(lambda _: PASSAGES[:4]).score(PAIRS)
    np.testing.assert_array_equal(together, one_by_one)
    alone = JoinedTeachers([Length(), Vowels()], join).score(PAIRS[:4])
    np.testing.assert_allclose(together[:4], alone, rtol=1e-6)


def test_references_are_read_once():
    length = Length()
    joined = JoinedTeachers([length, Vowels()]).against(lambda _: PASSAGES[:3])
    joined.score(PAIRS[:2])
    joined.score(PAIRS[2:])
    assert len(length.asked) == len(PAIRS) + 2 * 3


def test_a_run_scores_its_own_questions_and_what_it_lacks_is_last():
    run = RunTeacher(Run.of({"q1": {"d0": 5.0, "d1": 3.0}}))
    assert run.score(PAIRS[:3]).tolist() == [5, 3, 3]
    assert run.knows("q1")
    assert not run.knows("q2")
    with pytest.raises(WrongUse, match='no question "q2"'):
        run.score(PAIRS[-1:])
    assert run.fingerprint != RunTeacher(Run.of({"q1": {"d0": 6.0, "d1": 3.0}})).fingerprint


def test_a_run_beside_a_ranker_has_its_say_where_it_knows_the_question():
    run = RunTeacher(Run.of({"q1": {f"d{n}": float(n) for n in range(6)}}))
    joined = JoinedTeachers([Length(), run])
    scores = joined.score(PAIRS)
    both = np.array([[len(text), n] for n, text in enumerate(TEXTS)], np.float64)
    np.testing.assert_allclose(scores[:6], JOINS["z-score"](both, None), rtol=1e-6)
    np.testing.assert_allclose(scores[6:], JOINS["z-score"](both[:, :1], None), rtol=1e-6)
    runs = JoinedTeachers([run, run])
    assert not runs.knows("q2")
    with pytest.raises(WrongUse, match='no teacher knows the question "q2"'):
        runs.score(PAIRS)


def test_a_source_that_says_the_same_of_all_has_no_say_about_others_either():
    def third(_):
        return PASSAGES[:3]

    run = RunTeacher(Run.of({"q1": {"d4": 0.7, "d9": 0.1}, "q2": {"d9": 0.1}}))
    joined = JoinedTeachers([Length(), run]).against(third)
    alone = JoinedTeachers([Length(), Length()]).against(third)
    np.testing.assert_allclose(2 * joined.score(PAIRS), alone.score(PAIRS), rtol=1e-6)


def test_wrong_joins_are_refused():
    with pytest.raises(WrongUse, match="1 teachers: there is nothing to join"):
        JoinedTeachers([Length()])
    with pytest.raises(WrongUse, match="is not a known way to join scores"):
        JoinedTeachers([Length(), Vowels()], "mean")
