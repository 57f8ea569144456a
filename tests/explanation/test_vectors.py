"""Bi-encoders explained: means are sums over words; what is no mean is left to removal."""

import math

import numpy as np
import pytest
import torch
from torch import nn

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.methods import explain_pair
from rankhouse.models.biencoder import SIMILARITIES, BiEncoder, open_biencoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.nn.machine import Compute

FP32 = Compute("fp32", torch.device("cpu"), 1)
PROMPTS = ("storm harbour ", "grain prices ")


def at_work(model):
    return DenseRanker(model, FP32)


def pair(query, passage, doc_id="d"):
    return Pair(Query("q", query), Passage(doc_id, 0, passage))


def changed(model, dense=None, **policy):
    """The same network with other settings and other layers behind the pooling."""
    return BiEncoder(
        model.network,
        model.dense if dense is None else dense,
        model.text_reader.texts._tokenizer,
        {**model.policy, **policy},
        model._config,
    )


@pytest.fixture(scope="module")
def mean(checkpoint):
    return open_biencoder(checkpoint("bert_plain"), "mean", "cosine", prompts=PROMPTS)


def layers(*sizes):
    torch.manual_seed(5)
    return nn.Sequential(*(nn.Linear(*each, bias=bias) for *each, bias in sizes))


@pytest.mark.quick("sizes2-*")
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("normalised", [False, True])
@pytest.mark.parametrize("sizes", [(), ((32, 16, True),), ((32, 24, True), (24, 16, False), (16, 8, True))])
def test_parts_sum_to_the_score(mean, known_words, similarity, normalised, sizes):
    ranker = at_work(changed(mean, layers(*sizes), similarity=similarity, normalised=normalised))
    draws = np.random.default_rng(2)
    for _ in range(12):
        query, passage = (" ".join(draws.choice(known_words, draws.integers(0, n))) for n in (6, 80))
        each = pair(query, passage + "!" * int(draws.integers(0, 3)))
        answer = explain_pair(ranker, each)
        assert answer.exact
        assert answer.score == float(ranker.score([each])[0])
        assert abs(answer.gap) <= 1e-5 * max(1, abs(answer.score))
        assert len({part.name for part in answer.parts}) == len(answer.parts)
        read = [word.value for word in answer.texts[0].words if word.read]
        others = [part.value for part in answer.parts if not part.facts]
        assert math.fsum([*read, *others]) == pytest.approx(
            answer.score, abs=1e-5 * max(1, abs(answer.score))
        )


def test_equal_words_are_one_part_and_documents_are_compared_by_words(mean, known_words):
    one, two, three = known_words[:3]
    ranker = at_work(mean)
    first = explain_pair(ranker, pair(one, f"{one} {two}, {one.upper()}."))
    second = explain_pair(ranker, pair(one, f"{three} {two}"))
    assert [word.text for word in first.texts[0].words] == [one, two, ",", one.upper(), "."]
    assert {part.name for part in first.parts} == {one, two, ",", ".", "special tokens", "prompt"}
    assert next(part for part in first.parts if part.name == one).facts == {"occurrences": 2}
    assert first.texts[0].words[0].match == one
    forth, back = contrast(first, second), contrast(second, first)
    assert {p.name: p.value for p in forth.parts} == {p.name: -p.value for p in back.parts}
    assert abs(forth.gap) <= 1e-5


def test_a_word_is_not_taken_for_a_part_of_its_name(mean):
    ranker = at_work(changed(mean, layers((32, 16, True))))
    answer = explain_pair(ranker, pair("storm", "Prompt bias harbour"))
    names = [part.name for part in answer.parts]
    assert names == ["prompt (2nd)", "bias (2nd)", "harbour", "special tokens", "prompt", "bias"]


def test_words_beyond_the_limit_are_listed_and_not_read(mean, known_words):
    ranker = at_work(changed(mean, max_length=12))
    answer = explain_pair(ranker, pair(known_words[0], " ".join(known_words[1:31])))
    words = answer.texts[0].words
    assert [word.text for word in words] == known_words[1:31]
    assert [word.read for word in words].count(True) < 12
    assert words[-1].value is None
    assert any("of the passage's" in note and "tokens were not read" in note for note in answer.notes)


def test_a_planted_bi_encoder_is_recovered(mean, known_words):
    """A layer that sees only what tells one word from the rest: nearly all the score is that word's."""
    one, *others = known_words[:8]
    network = mean.network
    states = at_work(mean).token_states(mean.encode_passages([" ".join((one, *others))])).astype(np.float64)
    spans = mean.text_reader.tokens(PROMPTS[1] + " ".join((one, *others)))
    at = spans.start + next(i for i, (start, _) in enumerate(spans.spans) if start >= len(PROMPTS[1]))
    wanted = np.zeros(len(states))
    wanted[at] = 1.0
    direction = np.linalg.lstsq(states, wanted, rcond=None)[0]
    dense = nn.Sequential(nn.Linear(network.config.hidden_size, 1, bias=False))
    with torch.no_grad():
        dense[0].weight.copy_(torch.from_numpy(direction[None]).float())
    ranker = at_work(changed(mean, dense, similarity="dot", normalised=False))
    answer = explain_pair(ranker, pair("storm", " ".join((one, *others))))
    values = {part.name: part.value for part in answer.parts}
    assert values[one] == pytest.approx(answer.score, rel=1e-3)
    assert all(abs(value) < 1e-3 * abs(answer.score) for name, value in values.items() if name != one)


def test_other_weights_give_another_explanation(mean, known_words):
    each = pair(known_words[0], " ".join(known_words[:5]))
    before, after = (
        explain_pair(at_work(changed(mean, dense)), each) for dense in (None, layers((32, 16, True)))
    )
    values = [[part.value for part in answer.parts if part.facts] for answer in (before, after)]
    assert not np.allclose(*values, rtol=0.05)


def test_what_is_no_mean_is_explained_by_removal(mean, known_words):
    each = pair(known_words[0], " ".join(known_words[:5]))
    for model in (changed(mean, pooling="cls"), changed(mean, nn.Sequential(nn.Linear(32, 8), nn.Tanh()))):
        answer = explain_pair(at_work(model), each)
        assert not answer.exact
        assert answer.method == "word removal"
        assert any("no means over words" in note for note in answer.notes)
