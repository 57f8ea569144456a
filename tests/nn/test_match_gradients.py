"""Match matrices in training: quick gradients equal those of the plain formula."""

import pytest
import torch
from torch import nn

from rankhouse.nn.layers.match import NORM_EPS, cosines, dots, unit, word_cosines
from rankhouse.nn.layers.tk_encoder import OuterEpsNorm


def scaled(x):
    return x / (x.norm(dim=-1, keepdim=True) + NORM_EPS)


def sides(seed):
    draw = torch.Generator().manual_seed(seed)
    query, passage = torch.randn(3, 4, 8, generator=draw), torch.randn(3, 6, 8, generator=draw)
    return query.requires_grad_(), passage.requires_grad_(), torch.randn(3, 4, 6, generator=draw)


@pytest.mark.parametrize(
    ("quick", "plain"),
    [
        (cosines, lambda q, p: scaled(q) @ scaled(p).transpose(1, 2)),
        (dots, lambda q, p: q @ p.transpose(1, 2)),
        (lambda q, p: dots(unit(q), unit(p)), lambda q, p: scaled(q) @ scaled(p).transpose(1, 2)),
    ],
)
def test_matches_and_their_gradients_equal_the_formula(quick, plain):
    query, passage, weights = sides(0)
    found, wanted = quick(query, passage), plain(query, passage)
    torch.testing.assert_close(found, wanted)
    got = torch.autograd.grad((found * weights).sum(), (query, passage))
    expected = torch.autograd.grad((wanted * weights).sum(), (query, passage))
    for one, other in zip(got, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("match", [cosines, lambda q, p: dots(unit(q), unit(p))])
def test_a_zero_vector_matches_nothing_and_no_gradient_is_lost_to_it(match):
    query, passage, weights = sides(1)
    with torch.no_grad():
        passage[:, 2] = 0
    found = match(query, passage)
    assert (found[:, :, 2] == 0).all()
    masked = found * weights * (torch.arange(6) != 2)
    for gradient in torch.autograd.grad(masked.sum(), (query, passage)):
        assert gradient.isfinite().all()
        assert gradient.abs().max() < 100


def test_word_matches_in_training_equal_those_in_scoring_and_padding_learns_nothing():
    torch.manual_seed(0)
    words = nn.Embedding(20, 8, padding_idx=0)
    query, passage = torch.randint(0, 20, (3, 4)), torch.randint(0, 20, (3, 6))
    query[0, 3] = passage[1, 5] = 0
    learned = word_cosines(words, query, passage)
    with torch.no_grad():
        torch.testing.assert_close(learned, word_cosines(words, query, passage), rtol=1e-5, atol=1e-6)
    weights = torch.randn(3, 4, 6)
    (learned * weights).sum().backward()
    plain = scaled(words(query)) @ scaled(words(passage)).transpose(1, 2)
    (wanted,) = torch.autograd.grad((plain * weights).sum(), words.weight)
    torch.testing.assert_close(words.weight.grad, wanted, rtol=1e-4, atol=1e-6)
    assert (words.weight.grad[0] == 0).all()


def test_the_norm_with_its_constant_outside_the_root_has_the_formula_s_gradients():
    torch.manual_seed(0)
    norm = OuterEpsNorm(16)
    with torch.no_grad():
        norm.weight.uniform_(0.5, 2)
        norm.bias.uniform_(-1, 1)
    x = torch.randn(5, 3, 16, requires_grad=True)
    weights = torch.randn(5, 3, 16)
    plain = norm.weight * (x - x.mean(-1, keepdim=True)) / (x.std(-1, correction=0, keepdim=True) + 1e-6)
    wanted = torch.autograd.grad(((plain + norm.bias) * weights).sum(), (x, norm.weight, norm.bias))
    found = torch.autograd.grad((norm(x) * weights).sum(), (x, norm.weight, norm.bias))
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)
