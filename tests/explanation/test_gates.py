"""DRMM and PACRR-DRMM, explained: gates, votes, words left out, and planted rankers."""

from operator import itemgetter
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch

from rankhouse.core.errors import WrongUse
from rankhouse.explanation.gates import explain_pacrr_drmm
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.explanation.units import NO_WORDS
from rankhouse.models.pacrr import PACRRDesign

SMALL, at_work, fresh, pair, random_pairs, shaken = itemgetter(
    "SMALL", "at_work", "fresh", "pair", "random_pairs", "shaken"
)(run_path(str(Path(__file__).with_name("word_rankers.py"))))


@pytest.fixture(scope="module", params=["drmm", "pacrr_drmm"])
def ranker(request):
    return at_work(shaken(fresh(request.param), 0.5))


def values_of(answer):
    return [word.value for word in answer.texts[0].words]


def test_a_part_is_gate_times_what_the_vote_has_over_that_for_nothing(ranker):
    answer = explain_pair(ranker, pair("tall river tall", "the old river runs"))
    assert [part.name for part in answer.parts] == ["tall", "river", "tall (2nd)", NO_WORDS]
    for part in answer.parts[:-1]:
        facts = part.facts
        assert part.value == pytest.approx(facts["gate"] * (facts["vote"] - facts["vote without passage"]))
    assert sum(part.facts["gate"] for part in answer.parts[:-1]) == pytest.approx(1)
    empty = float(ranker.score([pair("tall river tall", "")])[0])
    assert answer.parts[-1].value == pytest.approx(empty, abs=1e-6)


@pytest.mark.quick("drmm")
def test_a_word_is_worth_what_the_score_loses_without_it(ranker):
    for each in random_pairs(20, seed=6):
        answer = explain_pair(ranker, each)
        words = list(ranker.model.reader.words(each)[1])
        texts = [" ".join((*words[:i], *words[i + 1 :])) for i in range(len(words))]
        scores = ranker.score([each._replace(passage=each.passage._replace(text=text)) for text in texts])
        np.testing.assert_allclose(values_of(answer)[: len(words)], answer.score - scores, atol=1e-5)
        assert answer.cost <= len(words) + 1
    assert any("query words' parts are exact" in note.lower() for note in answer.notes)


def test_words_beyond_the_passes_have_no_value(ranker):
    answer = explain_pair(ranker, pair("river", "the old river runs the club"), ExplainOptions(passes=3))
    values = values_of(answer)
    assert answer.cost == 3
    assert None not in values[:2]
    assert values[5] is None
    assert abs(answer.gap) <= 1e-5
    assert any(note.startswith("Only the first 2 of ") for note in answer.notes)


def test_a_drmm_that_counts_one_word_is_recovered():
    model = fresh("drmm")
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.zero_()
        model.idf[model.reader.ids(["river"])[0]] = 1.0
        model.gate.fill_(100.0)  # of the query's words, the rarest alone is heard
        model.hidden.weight[0, -1] = 0.3
        model.out.weight[0, 0] = 1.0
        model.idf[model.reader.ids(["the"])[0]] = 0.0
    answer = explain_pair(at_work(model), pair("the river", "the old river of the river"))
    the, river, nothing = (part.value for part in answer.parts)
    twice, once = (np.tanh(np.tanh(0.3 * np.log1p(n))) for n in (2, 1))
    assert the == pytest.approx(0, abs=1e-12)
    assert river == pytest.approx(twice, abs=1e-6)
    assert nothing == pytest.approx(0, abs=1e-12)
    assert values_of(answer) == pytest.approx([0, 0, twice - once, 0, 0, twice - once], abs=1e-6)


def test_a_pacrr_drmm_that_sees_one_word_is_recovered():
    model = fresh(PACRRDesign(**SMALL, grams=1, best=2, hidden=4, aggregate="terms"))
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[model.reader.ids(["river"])[0], 0] = 1.0
        model.network[0].weight[0, :2] = 1.0  # both best matches
        model.network[2].weight[0, 0] = 1.0
        model.network[4].weight[0, 0] = 1.0
    answer = explain_pair(at_work(model), pair("the river", "the old river of the river"))
    assert [part.value for part in answer.parts] == pytest.approx([0, 1, 0])  # two matches, gate one half
    assert values_of(answer) == pytest.approx([0, 0, 0.5, 0, 0, 0.5])


def test_a_pacrr_without_gates_is_refused():
    with pytest.raises(WrongUse, match="has no gates"):
        explain_pacrr_drmm(at_work(fresh(PACRRDesign(**SMALL))), pair("river", "tree"), ExplainOptions())
