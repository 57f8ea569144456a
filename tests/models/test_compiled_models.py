"""Rankers whose widths the compiled loops take: near fp32, each score its own, none made of nonsense."""

import math

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.monot5 import open_monot5
from rankhouse.models.ranker import NeuralRanker
from rankhouse.nn import machine
from rankhouse.nn.machine import Compute

KINDS = ["wide_bert", "wide_electra", "wide_t5", "wide_t5_1_1", "wide_modernbert", "wide_mpnet"]
PRECISIONS = ["bf16", "int8"]
pytestmark = pytest.mark.skipif(
    not machine.has_int8(), reason="not compiled, or this processor lacks the instructions"
)


def opened(kind, checkpoint):
    opening = open_monot5 if "t5" in kind else open_crossencoder
    return opening(checkpoint(kind))


def compute(precision, threads=1):
    return Compute(precision, torch.device("cpu"), threads)


@pytest.mark.quick("wide_bert", "wide_t5", "wide_modernbert")
@pytest.mark.parametrize("kind", KINDS)
def test_bf16_and_int8_scores_are_near_those_of_fp32(kind, checkpoint, many):
    model = opened(kind, checkpoint)
    exact, bf16, int8 = (NeuralRanker(model, compute(p)).score(many) for p in ("fp32", "bf16", "int8"))
    assert np.ptp(exact) > 0.1, "scores that hardly differ would prove nothing"
    assert np.corrcoef(exact, bf16)[0, 1] > 0.995
    assert np.corrcoef(exact, int8)[0, 1] > 0.95
    assert np.abs(exact - bf16).max() < 0.1 * np.ptp(exact)
    assert np.abs(exact - int8).max() < 0.35 * np.ptp(exact)
    assert np.abs(exact - int8).mean() > np.abs(exact - bf16).mean() > 0, "each precision is its own"


@pytest.mark.quick("*-fp32", "wide_bert-int8", "wide_t5_1_1-int8", "wide_modernbert-int8", "wide_mpnet-int8")
@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_score_is_the_same_whatever_stands_beside_it(kind, precision, checkpoint, many):
    model = opened(kind, checkpoint)
    every = NeuralRanker(model, compute(precision)).score(many)
    small = NeuralRanker(model, compute(precision), budget=64).score(many)
    backwards = NeuralRanker(model, compute(precision)).score(many[::-1])[::-1]
    both = NeuralRanker(model, compute(precision, 2)).score(many)
    alone = np.concatenate([NeuralRanker(model, compute(precision)).score([pair]) for pair in many[:10]])
    near = 1e-3 * np.ptp(
        every
    )  # PyTorch's own bf16 products, of a row's few last numbers, may round otherwise
    for other in (small, backwards, both):
        np.testing.assert_allclose(other, every, atol=near)
    np.testing.assert_allclose(alone, every[:10], atol=near)


@pytest.mark.parametrize("precision", PRECISIONS)
def test_vectors_are_near_those_of_fp32(precision, checkpoint):
    model = open_biencoder(checkpoint("wide_bert_encoder"), pooling="mean", similarity="cosine")
    texts = ["grain prices rose", "", "the harvest in the north was poor", "salt " * 30]
    exact, other = (
        DenseRanker(model, compute(p)).encode_passages(texts).astype(np.float64) for p in ("fp32", precision)
    )
    cosine = (exact * other).sum(1) / np.linalg.norm(exact, axis=1) / np.linalg.norm(other, axis=1)
    assert (cosine > 0.995).all()


@pytest.mark.parametrize("precision", PRECISIONS)
@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts_get_a_finite_score(kind, precision, checkpoint):
    ranker = NeuralRanker(opened(kind, checkpoint), compute(precision))
    for text in ("", " ", "x" * 100_000, "storm " * 5_000):
        sides = [(Query("q", "grain"), Passage("d", 0, text)), (Query("q", text), Passage("d", 0, "grain"))]
        assert np.isfinite(ranker.score([Pair(*side) for side in sides])).all()


@pytest.mark.parametrize("precision", ["fp32", *PRECISIONS])
@pytest.mark.parametrize("kind", ["wide_bert", "wide_t5"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_damaged_weights_give_an_error_and_no_score(kind, precision, wrong, checkpoint, pairs):
    model = opened(kind, checkpoint)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(
                ("layer.0.output.dense.weight", "encoder.block.0.layer.1.DenseReluDense.wo.weight")
            ):
                weight[3, 5] = wrong
    with pytest.raises(BadModel, match="not a number"):
        NeuralRanker(model, compute(precision)).score(pairs)


@pytest.mark.parametrize("kind", ["deberta", "modernbert", "bert"])
def test_int8_is_refused_where_another_precision_would_be_computed(kind, checkpoint, pairs):
    with pytest.raises(WrongUse, match='precision="int8" cannot be had here'):
        NeuralRanker(open_crossencoder(checkpoint(kind)), compute("int8")).score(pairs)


def test_precisions_have_fingerprints_of_their_own(checkpoint):
    model = open_crossencoder(checkpoint("wide_bert"))
    names = {NeuralRanker(model, compute(p)).fingerprint for p in ("fp32", "bf16", "int8")}
    assert len(names) == 3
