"""KNRM, Conv-KNRM and TK, explained: formulas, n-grams, windows, and planted rankers."""

import math
from operator import itemgetter
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
import torch

from rankhouse.explanation.methods import explain_pair
from rankhouse.explanation.units import NO_WORDS
from rankhouse.models.knrm import ConvKNRMDesign
from rankhouse.models.tk import TKDesign

SMALL, at_work, fresh, pair, random_pairs, shaken = itemgetter(
    "SMALL", "at_work", "fresh", "pair", "random_pairs", "shaken"
)(run_path(str(Path(__file__).with_name("word_rankers.py"))))
FLOOR = 1e-10


def by_name(parts):
    return {part.name: part for part in parts}


def plant(model, word="river"):
    """Give a word the first unit vector and all others none, so that only its exact matches count."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
        model.embedding.weight[model.reader.ids([word])[0], 0] = 1.0
    return model


def values_of(answer):
    return [word.value for word in answer.texts[0].words]


def test_a_knrm_that_counts_one_word_is_recovered():
    model = plant(fresh("knrm"))
    with torch.no_grad():
        model.weight.weight[0, 0] = 100.0
    answer = explain_pair(at_work(model), pair("the river", "the old river of the river"))
    parts = by_name(answer.parts)
    assert parts["the"].value == 0
    assert parts["river"].value == pytest.approx(math.log(2 / FLOOR))
    assert [part.name for part in parts["river"].parts] == ["exact match"]
    assert parts[NO_WORDS].value == pytest.approx(2 * math.log(FLOOR))
    share = math.log(2 / FLOOR) / 2
    assert values_of(answer) == pytest.approx([0, 0, share, 0, 0, share])


def test_a_conv_knrm_that_counts_one_word_is_recovered():
    model = plant(fresh("conv_knrm"))
    with torch.no_grad():
        model.convolutions[0].weight[0, 0, 0] = 1.0
        model.weight.weight[0, 0] = 100.0
    answer = explain_pair(at_work(model), pair("the river", "the old river of the river"))
    parts = by_name(answer.parts)
    assert list(parts) == ["the", "river", "the river", "river ·", "the river ·", "river · ·", NO_WORDS]
    assert [name for name, part in parts.items() if part.value] == ["river", NO_WORDS]
    share = math.log(2 / FLOOR) / 2
    assert values_of(answer) == pytest.approx([0, 0, share, 0, 0, share])


def test_a_tk_that_counts_one_word_is_recovered():
    model = plant(fresh(TKDesign(**SMALL, heads=2, attention_width=4, layers=0)))
    with torch.no_grad():
        model.mix.fill_(1.0)
        model.head.scale.fill_(1.0)
        model.head.merge.weight[0, 1] = 1.0
        model.head.length_weight.weight[0, 0] = 7.0
    answer = explain_pair(at_work(model), pair("the river", "the old river of the river"))
    parts = by_name(answer.parts)
    assert answer.score == pytest.approx(2.0)
    assert by_name(parts["river"].parts)["length"].value == pytest.approx(2.0)
    assert by_name(parts["river"].parts)["log"].value == 0
    assert parts["the"].value == pytest.approx(0, abs=1e-12)
    assert values_of(answer) == pytest.approx([0, 0, 1, 0, 0, 1], rel=1e-6, abs=1e-12)


def test_a_tk_with_windows_that_counts_one_word_is_recovered():
    model = plant(fresh(TKDesign(**SMALL, heads=2, attention_width=4, layers=0, windows=[2])))
    with torch.no_grad():
        model.mix.fill_(1.0)
        model.head.scales.fill_(1.0)
        model.head.merge.weight.fill_(1.0)
        model.head.kernel_weights[0].weight[0, 2] = 1.0  # the kernel at 0.7 is nearest to tanh(1)
        model.head.window_weights[0].weight.fill_(1.0)
    once = math.exp(-((math.tanh(1) - 0.7) ** 2) / 0.02)
    answer = explain_pair(at_work(model), pair("river", "river river the old river of the tall"))
    assert answer.score == pytest.approx(3 * once)
    (size,) = answer.parts
    assert [part.value for part in size.parts] == pytest.approx([2 * once, once, FLOOR, FLOOR], abs=1e-6)
    assert [part.note for part in size.parts[:2]] == [
        'words 1 to 2: "river river …"',
        'words 5 to 6: "river of …"',
    ]
    assert values_of(answer) == pytest.approx([once, once, 0, 0, once, 0, 0, 0], abs=1e-6)


@pytest.mark.slow
def test_shares_are_integrated_gradients_on_the_straight_path():
    """Sundararajan et al., eq. 1, summed numerically over the soft counts of each passage word."""
    ranker = at_work(shaken(fresh("knrm"), 0.5))
    each = pair("tall river", "the old river runs of the tall tree")
    answer, seen = explain_pair(ranker, each), ranker.model.evidence(each)
    match = torch.from_numpy(seen.matches["cosine"]).double()
    centres, widths = (torch.tensor(side, dtype=torch.float64) for side in ranker.model.kernels)
    counted = (-((match[..., None] - centres) ** 2) / (2 * widths**2)).exp()  # (q, p, k)
    weights = ranker.model.weight.weight.detach().double()[0]
    steps = torch.linspace(math.log(1e-13), 0, 100_001, dtype=torch.float64)
    steps = ((steps[1:] + steps[:-1]) / 2).exp(), steps[1:].exp() - steps[:-1].exp()
    total = torch.zeros(match.shape[1], dtype=torch.float64)
    for at, width in zip(*steps, strict=True):
        sums = at * counted.sum(1, keepdim=True)
        total += width * (0.01 * weights * counted / sums * (sums > FLOOR)).sum((0, 2))
    assert values_of(answer) == pytest.approx(total.tolist(), rel=1e-3, abs=1e-6)


def test_ngrams_are_named_by_their_words_and_shared_among_them():
    ranker = at_work(shaken(fresh(ConvKNRMDesign(**SMALL, grams=2, filters=4)), 0.5))
    answer = explain_pair(ranker, pair("no words no words", "the river"))
    names = [part.name for part in answer.parts]
    assert names == [
        *("no", "words", "no (2nd)", "words (2nd)"),
        *("no words (2nd)", "words no", "no words (3rd)", "words ·", NO_WORDS),
    ]
    assert {finer.name for part in answer.parts for finer in part.parts} <= {
        "passage 1-grams",
        "passage 2-grams",
    }
    assert answer.grids[1].rows == tuple(names)
    single = at_work(shaken(fresh(ConvKNRMDesign(**SMALL, grams=1, filters=4)), 0.5))
    assert not any("n-gram" in note for note in explain_pair(single, pair("river", "tree")).notes)
    assert any("n-gram" in note for note in answer.notes)


def test_tk_shows_both_paths_as_the_paper_does():
    ranker = at_work(shaken(fresh("tk"), 0.5))
    each = pair("tall river", "the old river runs of the tall tree")
    answer, seen = explain_pair(ranker, each), ranker.model.evidence(each)
    grids = {grid.name: grid for grid in answer.grids}
    for path in ("log", "length"):
        grid = grids[f"kernel shares, {path} path"]
        assert grid.rows == ("tall", "river", NO_WORDS)
        expected = [seen.parts[f"{path} {name}"] for name in grid.columns]
        np.testing.assert_allclose(grid.values.sum(0), expected, rtol=1e-4, atol=1e-6)
    assert any("as read in its context" in note for note in answer.notes)


@pytest.mark.slow
def test_each_window_has_its_place_and_its_words():
    ranker = at_work(shaken(fresh("tk windows"), 0.3))
    for each in random_pairs(30, seed=4):
        answer = explain_pair(ranker, each)
        if not answer.parts:
            assert answer.score == 0
            continue
        assert [part.name for part in answer.parts] == ["windows of 3", "windows of 7", "windows of 50"]
        for size in answer.parts:
            scores = [window.facts["window score"] for window in size.parts]
            assert scores == sorted(scores, reverse=True)
            assert size.parts[0].name == "best window"
            assert [window.parts[-1].name for window in size.parts] == [NO_WORDS] * len(scores)
        nothing = math.fsum(w.parts[-1].value for size in answer.parts for w in size.parts)
        assert math.fsum([nothing, *filter(None, values_of(answer))]) == pytest.approx(answer.score, rel=1e-5)


def test_windows_that_would_score_far_more_without_words_stay_whole():
    model = shaken(fresh("tk windows"), 0.1)
    with torch.no_grad():
        model.head.scales.fill_(1.0)
        for layer in model.head.kernel_weights:
            layer.weight.zero_()
            layer.weight[0, 1:5] = -1.0  # these count much of an exact match, and a floor is e^92
    answer = explain_pair(at_work(model), pair("river", "river river river"))
    assert abs(answer.gap) <= 1e-5 * max(1, abs(answer.score))
    assert values_of(answer) == [None] * 3
    assert not any(window.parts for size in answer.parts for window in size.parts)
    assert any("words of windows have no values" in note for note in answer.notes)
