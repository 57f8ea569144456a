"""Integrated gradients: complete but for a gap that shrinks with the steps, and is told."""

import json

import numpy as np
import pytest
import torch

from rankhouse.core.errors import WrongUse
from rankhouse.explanation.gradients import integrated_gradients
from rankhouse.explanation.methods import ExplainOptions, explain_pair
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn.machine import Compute

GRADIENTS = ExplainOptions(method="gradients")
NAMES = ["crossencoder", "crossencoder roberta", "monot5"]


@pytest.mark.quick("crossencoder")
@pytest.mark.parametrize("name", NAMES)
def test_the_gap_is_told_and_shrinks_with_the_steps(name, opened, pair_of, long_text):
    ranker = opened(name)
    said = pair_of(long_text[:80])
    gaps = []
    for steps in (2, 16, 128):
        answer = explain_pair(ranker, said, ExplainOptions(method="gradients", steps=steps))
        assert answer.score == ranker.score([said])[0]
        assert answer.cost == steps + 2
        assert not answer.exact
        gaps.append(abs(answer.gap))
    assert gaps[2] < gaps[1] < gaps[0]
    moved = abs(answer.score - answer.parts[-1].value)
    assert gaps[2] < 0.01 * moved + 1e-4
    assert "in 128 steps" in answer.notes[0]


@pytest.mark.quick("crossencoder*")
@pytest.mark.parametrize("name", NAMES)
def test_word_pieces_are_joined_to_words(name, opened, pair_of):
    text = "Pilots steer the ships, unheard-of  things"
    ranker = opened(name)
    answer = explain_pair(ranker, pair_of(text), GRADIENTS)
    assert [word.text for word in answer.texts[0].words] == text.split()
    found = integrated_gradients(ranker, pair_of(text), 32)
    assert len(found.tokens) > len(text.split())
    values = [part.value for part in answer.parts[:-1]]
    assert np.sum(values) == pytest.approx(found.tokens.sum())
    assert np.ptp(values) > 0
    with pytest.raises(WrongUse, match="removal"):
        explain_pair(ranker, pair_of(text), ExplainOptions(method="gradients", unit="sentence"))


def test_a_linear_model_is_recovered_exactly(opened, pair_of, monkeypatch):
    """A planted ranker: the sum of one direction of the word vectors, so each token adds what it holds."""
    ranker = opened("crossencoder")
    table = ranker.model.network.get_input_embeddings()
    monkeypatch.setattr(type(ranker.model), "forward", lambda self, batch: table(batch.ids.pad()).sum((1, 2)))
    said = pair_of("ships bring grain")
    ids = ranker.model.encode([said]).ids.values
    tokens = ranker.model.pair_reader.passage_tokens(said)
    found = integrated_gradients(ranker, said, 1)
    held = (table.weight[ids] - table.weight[0]).sum(1)[tokens.start : tokens.start + len(tokens.spans)]
    assert found.tokens == pytest.approx(held.detach().numpy(), rel=1e-4)
    assert found.gap == pytest.approx(0, abs=1e-4)


def test_other_precisions_are_explained_in_fp32_and_say_so(opened, pair_of, long_text):
    exact = opened("crossencoder")
    quick = NeuralRanker(exact.model, Compute("bf16", torch.device("cpu"), 1))
    first, second = (explain_pair(ranker, pair_of(long_text), GRADIENTS) for ranker in (exact, quick))
    assert first.parts == second.parts
    assert "bf16" in second.notes[1]
    assert not any("fp32" in note for note in first.notes)
    assert second.gap - first.gap == pytest.approx(second.score - first.score)


def test_what_is_not_read_is_listed(opened, pair_of, long_text):
    answer = explain_pair(opened("monot5", max_length=40), pair_of(long_text), GRADIENTS)
    read = [word.read for word in answer.texts[0].words]
    assert 0 < sum(read) < len(read)
    assert "were not read" in answer.notes[-1]
    assert len(answer.parts) == sum(read) + 1


def test_the_model_is_left_as_it_was(opened, pair_of):
    ranker = opened("crossencoder")
    ranker.model.train()
    told = [json.dumps(explain_pair(ranker, pair_of("ships bring grain"), GRADIENTS).to_dict()) for _ in "ab"]
    assert told[0] == told[1]
    assert ranker.model.training
    assert not ranker.model.network.get_input_embeddings()._forward_hooks
    with torch.no_grad():
        ranker.model.network.classifier.weight.mul_(-1)
    turned = NeuralRanker(ranker.model, ranker.compute)
    assert json.dumps(explain_pair(turned, pair_of("ships bring grain"), GRADIENTS).to_dict()) != told[0]


def test_an_empty_passage_has_its_baseline_only(opened, pair_of):
    answer = explain_pair(opened("crossencoder"), pair_of(""), GRADIENTS)
    assert [part.name for part in answer.parts] == ["no words"]
    assert answer.gap == pytest.approx(0, abs=1e-4)


def test_tokens_of_nothing_but_white_space_are_a_part(opened, pair_of):
    answer = explain_pair(opened("crossencoder roberta"), pair_of(" \n "), GRADIENTS)
    assert [part.name for part in answer.parts] == ["white space", "no words"]
    assert answer.texts[0].words == ()
    assert abs(answer.gap) < 0.1 * abs(answer.parts[0].value) + 1e-3


def test_rankers_without_tokens_are_refused_with_the_list(fresh, opened, pair_of):
    for ranker in (fresh("knrm"), opened("biencoder cls")):
        with pytest.raises(WrongUse, match="crossencoder, monot5.*choose from removal, shapley"):
            explain_pair(ranker, pair_of("ships"), GRADIENTS)
