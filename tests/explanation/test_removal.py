"""Removal: planted rankers are recovered exactly, and long texts end in bounded time."""

import numpy as np
import pytest

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.explanation.explain import explain_pair
from rankhouse.explanation.options import ExplainOptions
from rankhouse.explanation.removal import REST

LONG = (
    "Ships bring grain from the north. The harbour was built of stone by the old town. "
    "Pilots steer ships, and ships follow them. Prices rose again this week. Nobody knows why they did."
)


class Counting:
    """The planted ranker: how often the passage says a word."""

    def __init__(self, word="ships"):
        self.word, self.calls, self.pairs = word, 0, 0

    def score(self, pairs):
        self.calls += 1
        self.pairs += len(pairs)
        return np.array([pair.passage.text.lower().count(self.word) for pair in pairs], np.float32)


def pair(text, query="who steers ships"):
    return Pair(Query("q", query), Passage("d", 0, text))


def test_a_planted_ranker_is_recovered_by_sentences():
    ranker = Counting()
    answer = explain_pair(ranker, pair(LONG))
    assert answer.method == "sentence removal"
    assert [part.value for part in answer.parts] == [1, 0, 2, 0, 0, 0]
    assert answer.parts[0].name == "sentence: Ships bring grain from the north."
    assert answer.parts[-1].name == REST
    assert (answer.score, answer.gap, answer.exact, answer.cost) == (3, 0, False, 5)
    assert (ranker.calls, ranker.pairs) == (1, 6)
    assert [word.value for word in answer.texts[0].words] == [1, 0, 2, 0, 0]


def test_short_texts_are_looked_at_word_by_word():
    answer = explain_pair(Counting(), pair("Pilots steer ships. Then ships go."))
    assert answer.method == "word removal"
    assert {part.name: part.value for part in answer.parts if part.value} == {
        "word: ships.": 1,
        "word: ships": 1,
    }
    again = explain_pair(Counting(), pair("sail ships ships"))
    assert [part.name for part in again.parts] == ["word: sail", "word: ships", "word: ships (2nd)", REST]
    one = explain_pair(Counting(), pair("ships " * 40))
    assert one.texts[0].unit == "word"


def test_an_empty_text_has_no_parts_but_the_rest():
    answer = explain_pair(Counting(), pair(" "))
    assert [part.name for part in answer.parts] == [REST]
    assert "empty" in answer.notes[0]


def test_a_method_is_refused_with_the_list():
    with pytest.raises(WrongUse, match="removal"):
        explain_pair(Counting(), pair(LONG), ExplainOptions(method="lime"))
    with pytest.raises(WrongUse, match="sentence, word"):
        ExplainOptions(unit="line")
    with pytest.raises(WrongUse, match="passes=1"):
        ExplainOptions(passes=1)


def test_scores_that_no_difference_can_be_taken_from_are_refused():
    class Endless:
        def score(self, pairs):
            return np.full(len(pairs), -np.inf, np.float32)

    with pytest.raises(BadModel, match="-inf"):
        explain_pair(Endless(), pair(LONG))


def test_a_very_long_text_is_cut_into_blocks_and_says_so():
    text = " ".join(f"Number {i} says nothing of it." for i in range(16_666)) + " Ships."
    ranker = Counting()
    answer = explain_pair(ranker, pair(text))
    assert ranker.pairs <= 25
    assert "not looked at" in answer.notes[0]
    values = [part.value for part in answer.parts]
    assert values[-2] == 1
    assert sum(values) == 1
    few = explain_pair(Counting(), pair(LONG), ExplainOptions(passes=3))
    assert [word.text for word in few.texts[0].words][
        1
    ] == "Prices rose again this week. Nobody knows why they did."
