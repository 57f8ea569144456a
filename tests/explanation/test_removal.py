"""Removal: planted rankers are recovered exactly, and long texts end in bounded time."""

import json
import subprocess
import sys

import numpy as np
import pytest
import torch
from torch import nn

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.explanation import methods
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.explanation.removal import REST
from rankhouse.explanation.units import numbered
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import Compute
from rankhouse.ranking.cache import CachedRanker

from .conftest import WORD_FAMILIES

SENTENCES = ExplainOptions(method="removal", unit="sentence")


class Counting:
    """The planted ranker: how often the passage says a word."""

    def __init__(self, word="ships"):
        self.word, self.calls, self.pairs = word, 0, 0

    def score(self, pairs):
        self.calls += 1
        self.pairs += len(pairs)
        return np.array([pair.passage.text.lower().count(self.word) for pair in pairs], np.float32)


def test_a_planted_ranker_is_recovered_by_sentences(pair_of, long_text):
    ranker = Counting()
    answer = explain_pair(ranker, pair_of(long_text))
    assert answer.method == "sentence removal"
    assert [part.value for part in answer.parts] == [1, 0, 2, 0, 0, 0]
    assert answer.parts[0].name == "sentence: Ships bring grain from the north."
    assert answer.parts[-1].name == REST
    assert (answer.score, answer.gap, answer.exact, answer.cost) == (3, 0, False, 5)
    assert (ranker.calls, ranker.pairs) == (1, 6)
    assert [word.value for word in answer.texts[0].words] == [1, 0, 2, 0, 0]


def test_a_calibrated_ranker_is_explained_on_its_own_scale(pair_of, long_text):
    ranker = Counting()
    ranker.scale = 'platt(0.5, -1.0, of="similarity")'
    answer = explain_pair(ranker, pair_of(long_text))
    assert (answer.score, answer.unit) == (3, "similarity")


def test_short_texts_are_looked_at_word_by_word(pair_of):
    answer = explain_pair(Counting(), pair_of("Pilots steer ships. Then ships go."))
    assert answer.method == "word removal"
    assert {part.name: part.value for part in answer.parts if part.value} == {
        "word: ships.": 1,
        "word: ships": 1,
    }
    again = explain_pair(Counting(), pair_of("sail ships ships"))
    assert [part.name for part in again.parts] == ["word: sail", "word: ships", "word: ships (2nd)", REST]
    one = explain_pair(Counting(), pair_of("ships " * 40))
    assert one.texts[0].unit == "word"


def test_numbered_names_differ_from_each_other_and_from_those_taken():
    names = ["ships", "rest", "ships", "ships (2nd)", "ships"]
    assert list(numbered(names, ("rest",))) == [
        *("ships", "rest (2nd)", "ships (2nd)", "ships (2nd) (2nd)", "ships (3rd)")
    ]


def test_an_empty_text_has_no_parts_but_the_rest(pair_of):
    answer = explain_pair(Counting(), pair_of(" "))
    assert [part.name for part in answer.parts] == [REST]
    assert "Nothing of the text" in answer.notes[0]


def test_a_method_is_refused_with_the_list(pair_of, long_text):
    with pytest.raises(WrongUse, match="removal"):
        explain_pair(Counting(), pair_of(long_text), ExplainOptions(method="lime"))
    with pytest.raises(WrongUse, match="sentence, word"):
        ExplainOptions(unit="line")
    with pytest.raises(WrongUse, match="passes=1"):
        ExplainOptions(passes=1)


def test_scores_that_no_difference_can_be_taken_from_are_refused(pair_of, long_text):
    class Endless:
        def score(self, pairs):
            return np.full(len(pairs), -np.inf, np.float32)

    with pytest.raises(BadModel, match="-inf"):
        explain_pair(Endless(), pair_of(long_text))


@pytest.mark.slow
def test_a_very_long_text_is_cut_into_blocks_and_says_so(pair_of, long_text):
    text = " ".join(f"Number {i} says nothing of it." for i in range(16_666)) + " Ships."
    ranker = Counting()
    answer = explain_pair(ranker, pair_of(text))
    assert ranker.pairs <= 25
    assert "not looked at" in answer.notes[0]
    values = [part.value for part in answer.parts]
    assert values[-2] == 1
    assert sum(values) == 1
    few = explain_pair(Counting(), pair_of(long_text), ExplainOptions(passes=3))
    assert [word.text for word in few.texts[0].words][
        1
    ] == "Prices rose again this week. Nobody knows why they did."


@pytest.mark.parametrize("name", ["crossencoder", "monot5", "crossencoder roberta", "biencoder cls"])
def test_what_a_transformer_does_not_read_is_listed_and_changes_nothing(name, opened, pair_of, long_text):
    ranker = opened(name, max_length=40)
    said = pair_of(long_text * 3)
    answer = explain_pair(ranker, said)
    assert answer.texts[0].unit == "sentence"
    words = answer.texts[0].words
    read = [word for word in words if word.read]
    assert 0 < len(read) < len(words)
    assert all((word.value is None) != word.read for word in words)
    assert any("were not read" in note for note in answer.notes)
    assert " ".join(word.text for word in words).replace(" ", "") == said.passage.text.replace(" ", "")
    begun = said.passage.text[: said.passage.text.rindex(read[-1].text[-20:], 0, 300) + 20]
    assert ranker.score([pair_of(begun)])[0] == ranker.score([said])[0]
    assert answer.score == ranker.score([said])[0]
    assert answer.gap == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("family", sorted(WORD_FAMILIES))
def test_effects_are_differences_of_scores(family, fresh, pair_of, long_text):
    ranker = fresh(family)
    said = pair_of(long_text)
    answer = explain_pair(ranker, said, ExplainOptions(method="removal"))
    assert answer.method == "word removal"
    words = long_text.split()
    for place in (0, 13, len(words) - 1):
        left = ranker.score([pair_of(" ".join(words[:place] + words[place + 1 :]))])[0]
        assert answer.parts[place].value == pytest.approx(answer.score - left, abs=1e-6)


@pytest.mark.parametrize("family", ["knrm", "mp_hcnn"])
def test_words_behind_the_limit_of_a_word_model(family, fresh, pair_of, long_text):
    ranker = fresh(family, passage_length=10)
    said = pair_of(long_text * 50)
    answer = explain_pair(ranker, said, ExplainOptions(method="removal"))
    words = answer.texts[0].words
    read = [word.text for word in words if word.read]
    assert len(words) == len(read) + 500
    assert ranker.score([pair_of(" ".join(read))])[0] == pytest.approx(answer.score, abs=1e-6)
    assert len(read) == 10 if family == "knrm" else len(read) > 10


def test_twenty_sentences_take_twenty_one_scores_in_one_call(opened, pair_of, known_words):
    ranker = opened("crossencoder")
    scores, calls = ranker.score, []
    ranker.score = lambda pairs: calls.append(len(pairs)) or scores(pairs)
    text = " ".join(f"{word.title()}!" for word in known_words[:20])
    answer = explain_pair(ranker, pair_of(text, "ships"))
    assert [word.read for word in answer.texts[0].words] == [True] * 20
    assert len(answer.parts) == 21
    assert len(calls) == 1
    assert calls[0] == 21


def test_an_irrelevant_sentence_that_is_appended_gets_less_than_the_best(minilm, pair_of):
    text = "The town has a club. Pilots board ships and steer them. Grain rose in price."
    answer = explain_pair(minilm, pair_of(f"{text} My aunt bakes bread on Sundays."), SENTENCES)
    values = [part.value for part in answer.parts[:-1]]
    assert np.argmax(values) == 1
    assert values[3] < 0.1 * values[1]


def test_a_cache_is_looked_through_and_not_filled(fresh, pair_of, long_text, tmp_path):
    ranker = fresh("pacrr")
    with CachedRanker(ranker, tmp_path / "scores") as cached:
        answer = explain_pair(cached, pair_of(long_text))
        assert cached.misses == 0
    assert answer == explain_pair(ranker, pair_of(long_text))


def test_same_bytes_again_and_other_parameters_another_answer(fresh, pair_of, long_text):
    def told(**drawn):
        answer = explain_pair(fresh("knrm", **drawn), pair_of(long_text), ExplainOptions(method="removal"))
        return json.dumps(answer.to_dict())

    assert told() == told()
    first, other = (json.loads(told(seed=seed))["parts"] for seed in (4, 5))
    assert np.argmax([part["value"] for part in first]) != np.argmax([part["value"] for part in other])


def test_a_text_without_spaces_is_read_by_its_signs(pair_of):
    answer = explain_pair(
        Counting("船"),
        pair_of("港に入る。水先人が船を導く。穀物の値段が上がった"),
        ExplainOptions(unit="word"),
    )
    assert [word.text for word in answer.texts[0].words if word.value] == ["船"]


def test_a_black_box_needs_no_torch():
    code = """
import sys
sys.modules["torch"] = None
import rankhouse as rh
from rankhouse.core.errors import WrongUse

class Counting:
    def score(self, pairs):
        return [pair.passage.text.count("ships") for pair in pairs]

why = [rh.explain(Counting(), "who steers", "ships meet ships", method=method) for method in ("", "shapley")]
print([part.value for part in why[0].parts], why[1].score)
try:
    rh.explain(Counting(), "who steers", "ships meet ships", method="gradients")
except WrongUse as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]
    parts, refusal = done.stdout.splitlines()
    assert parts == "[1.0, 0.0, 1.0, 0.0] 2.0"
    assert "no model of rankhouse: choose from removal, shapley" in refusal


class FirstWords(nn.Module):
    """A family of another package: it knows whole words, and reads the first three of a passage."""

    family, policy, scale = "first words", {"max_length": 3}, "score"
    batch_tokens, reads_words = 0, True

    def characters_read(self, pair):
        return len(" ".join(pair.passage.text.split()[:3]))


def test_a_model_says_itself_how_it_reads(pair_of):
    ranker, pair = (
        NeuralRanker(FirstWords(), Compute("fp32", torch.device("cpu"), 1)),
        pair_of("Ships bring grain from the north. They steer by stars."),
    )
    assert methods.reads_words(ranker)
    assert methods.characters_read(ranker, pair) == len("Ships bring grain")
    assert not methods.reads_words(Counting())
    assert methods.characters_read(Counting(), pair) == len(pair.passage.text)
