"""Training steps by the compiled loops equal those in plain PyTorch, gradients included."""

import numpy as np
import pytest
import torch

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.samcnn import SamCNNDesign
from rankhouse.models.tk import TKDesign
from rankhouse.nn import machine

pytestmark = pytest.mark.skipif(not machine.TRAIN_LOOPS, reason="no compiled loops here")

READING = {"words": "whitespace", "min_count": 1, "width": 37}
BEFORE_NORM = {"final.bias", "text.hidden.bias", "attended.hidden.bias"}
"""Shifts that batch norm takes away again: their true gradient is zero, what is computed is rounding."""
SAMCNN = READING | {"filters": 21, "hidden": 10, "final": 7, "dropout": 0.0, "unknown": 3}
DESIGNS = {
    "tk": TKDesign(**READING, heads=4, attention_width=8, feed_forward=11),
    "tk attention first": TKDesign(**READING, heads=2, attention_width=6, order="attention-first"),
    "tk one head": TKDesign(**READING, heads=1, attention_width=20, layers=1),
    "tk of a wide head": TKDesign(**READING, heads=1, attention_width=70, layers=1),
    "tk in windows": TKDesign(**READING, heads=4, attention_width=8, windows=(5, 20)),
    "knrm": KNRMDesign(**READING),
    "conv-knrm": ConvKNRMDesign(**READING, filters=19),
    "conv-knrm of words": ConvKNRMDesign(**READING, filters=16, grams=1),
    "bicnn": SamCNNDesign(**SAMCNN, attention=None),
    "qatt": SamCNNDesign(**SAMCNN, attention="query"),
    "patt": SamCNNDesign(**SAMCNN, attention="position"),
    "patt of three words": SamCNNDesign(**SAMCNN, attention="position", filter_length=3, overlap=True),
    "qatt of one word": SamCNNDesign(**SAMCNN, attention="query", filter_length=1),
}


def texts(count, longest, seed):
    rng = np.random.default_rng(seed)
    words = [f"w{i}" for i in range(60)]
    return [" ".join(rng.choice(words, rng.integers(2, longest))) for _ in range(count)]


def pairs():
    """Ordinary pairs and awkward ones: empty, of one word, unknown words, repeated words."""
    passages = texts(12, 45, 0)
    usual = list(zip(texts(12, 7, 1), passages, strict=True))
    awkward = [
        ("", passages[0]), ("w1", ""), ("", ""), ("w2", "w2"), ("never seen", "not these"),
        ("w3 w3 w3", "w3 w3 w3 w3"), (usual[0][0], passages[1]),
    ]  # fmt: skip
    both = enumerate(usual + awkward)
    return [Pair(Query(f"q{i}", query), Passage(f"d{i}", 0, said)) for i, (query, said) in both]


def step(model, batch, weights):
    """Give scores and all gradients."""
    model.zero_grad()
    scores = model(batch)
    (scores * weights).sum().backward()
    return scores.detach(), {name: p.grad.clone() for name, p in model.named_parameters()}


def both_ways(model, chosen, monkeypatch):
    model.train()
    batch, weights = model.encode(chosen), torch.linspace(-1, 1, len(chosen)) + 0.03
    quick = step(model, batch, weights)
    monkeypatch.setattr(machine, "TRAIN_LOOPS", False)
    plain = step(model, batch, weights)
    monkeypatch.undo()
    return quick, plain


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def test_scores_and_gradients_equal_those_of_the_plain_path(design, monkeypatch):
    model = design.fresh(texts(40, 45, 0), seed=5)
    (scores, ours), (expected, theirs) = both_ways(model, pairs(), monkeypatch)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    for name, wanted in theirs.items():
        # what cancels to almost nothing is measured by the largest number beside it
        if name in BEFORE_NORM:
            continue
        far = (ours[name] - wanted).abs().max() / wanted.abs().max().clamp_min(1e-6)
        # a gradient of one number (mix) sums over all words and cancels: 1.3e-5 on AMX processors
        least = 1e-5 if wanted.numel() > 1 else 3e-5
        if getattr(design, "windows", ()):  # the logarithms of few words' kernels have steep slopes
            least *= 5
        assert far < least, f"{name} is off by {far:.1e} of its largest number"
    assert sum(float(each.abs().sum()) for each in theirs.values()) > 0


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
@pytest.mark.parametrize("awkward", [("", ""), ("w1", ""), ("", "w1"), ("w1", "w1"), ("never", "seen")])
def test_a_batch_of_nothing_but_awkward_pairs_has_finite_gradients(design, awkward, monkeypatch):
    model = design.fresh(texts(40, 45, 0), seed=5)
    query, said = awkward
    chosen = [Pair(Query("q", query), Passage("p", i, said)) for i in range(2)]
    (scores, ours), (expected, _) = both_ways(model, chosen, monkeypatch)
    torch.testing.assert_close(scores, expected, rtol=1e-5, atol=1e-6)
    assert all(gradient.isfinite().all() for gradient in ours.values())


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def test_a_step_repeats_to_the_bit(design):
    model = design.fresh(texts(40, 45, 0), seed=5).train()
    batch = model.encode(pairs())
    first, second = (step(model, batch, torch.linspace(-1, 1, len(batch))) for _ in range(2))
    assert torch.equal(first[0], second[0])
    assert all(torch.equal(first[1][name], second[1][name]) for name in first[1])


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def test_under_autocast_the_compiled_loops_stand_aside(design, monkeypatch):
    model = design.fresh(texts(40, 45, 0), seed=5)
    with torch.autocast("cpu", torch.bfloat16):
        (scores, ours), (expected, theirs) = both_ways(model, pairs(), monkeypatch)
    assert torch.equal(scores, expected)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.mark.parametrize("design", DESIGNS.values(), ids=DESIGNS.keys())
def test_padding_learns_nothing(design):
    model = design.fresh(texts(40, 45, 0), seed=5).train()
    _, gradients = step(model, model.encode(pairs()), torch.linspace(-1, 1, len(pairs())))
    assert (gradients["embedding.weight"][0] == 0).all()
    assert gradients["embedding.weight"].abs().sum() > 0
