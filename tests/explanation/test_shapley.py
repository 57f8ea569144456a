"""Shapley values: planted rankers are recovered exactly, and the values sum to the score."""

from itertools import permutations

import numpy as np
import pytest

from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.explanation.removal import shapley_values
from rankhouse.explanation.units import NO_WORDS

SHAPLEY = ExplainOptions(method="shapley")
FAMILIES = [
    ("pacrr", {}),
    ("matchpyramid", {}),
    ("samcnn", {"attention": None}),
    ("samcnn", {"attention": "query"}),
    ("samcnn", {"attention": "position"}),
    ("mp_hcnn", {}),
]


class Planted:
    """A ranker whose score is a formula of query and passage."""

    def __init__(self, formula):
        self.formula, self.calls, self.pairs = formula, 0, 0

    def score(self, pairs):
        self.calls += 1
        self.pairs += len(pairs)
        return np.array([self.formula(q.text.split(), p.text.split()) for q, p in pairs], np.float32)


def values(answer):
    return {part.name: part.value for part in answer.parts}


def test_a_count_of_one_word_is_recovered(pair_of):
    counting = Planted(lambda query, said: 2 + ("ships" in query) * said.count("ships"))
    answer = explain_pair(counting, pair_of("ships meet ships", "who steers ships"), SHAPLEY)
    assert values(answer) == {"who": 0, "steers": 0, "ships": 2, NO_WORDS: 2}
    assert (answer.gap, answer.exact, answer.cost) == (0, False, 7 + 3)
    assert (counting.calls, counting.pairs) == (1, 8 + 3)
    assert [word.value for word in answer.texts[0].words] == [1, 0, 1]


def test_a_threshold_on_two_words_is_shared_evenly(pair_of):
    both = Planted(lambda query, said: float({"ships", "steers"} <= set(query) & set(said)))
    answer = explain_pair(both, pair_of("he steers ships well", "who steers ships"), SHAPLEY)
    assert values(answer) == {"who": 0, "steers": 0.5, "ships": 0.5, NO_WORDS: 0}
    assert answer.parts[1].facts == {"alone": 0, "to the others": 1}
    twice = explain_pair(both, pair_of("steers ships", "ships steers ships"), SHAPLEY)
    assert list(values(twice)) == ["ships", "steers", "ships (2nd)", NO_WORDS]


def test_values_are_means_over_all_orders():
    worth = np.random.default_rng(1).normal(size=16)
    means = np.zeros(4)
    for order in permutations(range(4)):
        inside = 0
        for player in order:
            means[player] += (worth[inside | 1 << player] - worth[inside]) / 24
            inside |= 1 << player
    assert shapley_values(worth) == pytest.approx(means)


@pytest.mark.parametrize(("family", "sizes"), FAMILIES)
@pytest.mark.parametrize("query", ["who steers old ships", "ships ships", "", "zzz"])
def test_values_of_every_family_sum_to_the_score(family, sizes, query, fresh, pair_of, long_text):
    ranker = fresh(family, **sizes)
    said = pair_of(long_text, query)
    answer = explain_pair(ranker, said)
    assert answer.method == "Shapley values of query words"
    assert answer.score == ranker.score([said])[0]
    assert abs(answer.gap) <= 1e-9
    assert answer.parts[-1].value == ranker.score([pair_of(long_text, "")])[0]
    assert len(answer.parts) == len(query.split()) + 1


def test_long_queries_are_asked_in_blocks(pair_of):
    words = [f"w{i}" for i in range(23)]
    counting = Planted(lambda query, said: float(len(set(query) & set(said))))
    answer = explain_pair(counting, pair_of("w0 w1 w22", " ".join(words)), SHAPLEY)
    assert counting.pairs <= 1024 + 3
    assert values(answer)["w0 w1 w2"] == pytest.approx(2)
    assert answer.parts[-2].name == "w21 w22"
    assert answer.parts[-2].value == pytest.approx(1)
    assert any("23 words" in note for note in answer.notes)
    few = Planted(counting.formula)
    explain_pair(few, pair_of("w0", " ".join(words)), ExplainOptions(method="shapley", passes=20))
    assert few.pairs <= 16 + 1


def test_a_block_of_the_words_no_words_is_a_part_of_its_own(pair_of):
    both = Planted(lambda query, said: 1 + 2 * float("words" in query))
    answer = explain_pair(both, pair_of("w0", "no words at all"), ExplainOptions(method="shapley", passes=4))
    assert values(answer) == {"no words (2nd)": 2, "at all": 0, NO_WORDS: 1}


@pytest.mark.parametrize("family", ["pacrr", "mp_hcnn"])
def test_only_what_is_read_of_a_long_text_is_scored_again(family, fresh, pair_of, long_text):
    ranker = fresh(family, passage_length=10)
    scores, lengths = ranker.score, []
    ranker.score = lambda pairs: lengths.extend(len(pair.passage.text) for pair in pairs) or scores(pairs)
    answer = explain_pair(ranker, pair_of(long_text * 200, "ships in the harbour"))
    assert sorted(lengths)[-2] < len(long_text) * 3 < lengths[15]
    assert abs(answer.gap) <= 1e-9
    assert values(answer)[NO_WORDS] == scores([pair_of(long_text * 200, "")])[0]


def test_other_parameters_give_other_values(fresh, pair_of, long_text):
    first, again, other = (explain_pair(fresh("pacrr", seed=s), pair_of(long_text)) for s in (4, 4, 5))
    assert first.to_dict() == again.to_dict()
    assert values(first) != values(other)
