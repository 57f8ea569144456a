"""Attention within a window, and with a bias by distance, against the whole table of scores."""

import math

import pytest
import torch

from rankhouse.nn.cpu import wide
from rankhouse.nn.layers import attention
from rankhouse.nn.layers.attention import FusedAttention, RowLayout, SelfAttention
from rankhouse.nn.layers.prenorm import Rotary, interleaved
from rankhouse.nn.machine import Compute

LENGTHS = [1, 2, 8, 9, 10, 31, 32, 33, 40, 47, 48, 100]


def written_out(qkv, lengths, heads, window):
    """Attend row by row over all scores, in base e."""
    out, start = [], 0
    for length in lengths:
        q, k, v = qkv[start : start + length].double().view(length, 3, heads, -1).permute(1, 2, 0, 3)
        place = torch.arange(length)
        scores = q @ k.transpose(1, 2)
        scores.masked_fill_((place[:, None] - place).abs() > window, -torch.inf)
        out.append((torch.softmax(scores, -1) @ v).transpose(0, 1).reshape(length, -1))
        start += length
    return torch.cat(out).float()


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_window_hides_what_is_farther(precision):
    compute, heads, window = Compute(precision), 3, 8
    torch.manual_seed(0)
    qkv = torch.randn(sum(LENGTHS), 3 * heads * 16)
    attend = SelfAttention(heads, compute, window)
    folded = qkv.clone()
    folded[:, : heads * 16] *= attend.fold
    layout = RowLayout(torch.tensor(LENGTHS), compute)
    heard = attend(folded.to(compute.dtype), layout).float()
    near = 1e-5 if precision == "fp32" else 0.15
    expected = written_out(qkv, LENGTHS, heads, window)
    torch.testing.assert_close(heard, expected, atol=near, rtol=0)
    far = written_out(qkv, LENGTHS, heads, 1000)
    assert (expected - far).abs().max() > 0.5, "a window that hides nothing would prove nothing"


@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("biased", [False, True])
def test_matrices_that_are_computed_apart_have_the_same_bits(monkeypatch, window, biased):
    compute, heads = Compute("fp32"), 6
    torch.manual_seed(0)
    qkv, layout = torch.randn(2 * 100, 3 * heads * 16), RowLayout(torch.tensor([100, 100]), compute)
    added = torch.randn(1, heads, 100, 100) if biased else None
    attend = SelfAttention(heads, compute, window)
    told = (lambda _: added) if biased else None
    whole = attend(qkv, layout, told)
    for near in (0, 2 * 100 * 100, 4 * 100 * 100, 7 * 100 * 100):
        monkeypatch.setattr(attention, "_NEAR", near)
        assert torch.equal(attend(qkv, layout, told), whole)


def test_the_compiled_loops_are_given_the_window_as_a_bias(monkeypatch):
    def attend(qkv, ends, heads, bias):
        """Do what ``wide.attend`` documents."""
        out, centre = [], bias.shape[1] // 2
        for start, end in zip(ends.tolist(), ends.tolist()[1:], strict=False):
            q, k, v = qkv[start:end].view(end - start, 3, heads, -1).permute(1, 2, 0, 3)
            place = torch.arange(end - start)
            scores = q @ k.transpose(1, 2) + bias[:, centre + place - place[:, None]]
            weights = torch.softmax(scores * math.log(2), -1)
            out.append((weights @ v).transpose(0, 1).reshape(end - start, -1))
        return torch.cat(out)

    monkeypatch.setattr(wide, "attend", attend)
    torch.manual_seed(0)
    qkv, heads = torch.randn(sum(LENGTHS), 3 * 2 * 16), 2
    layout = RowLayout(torch.tensor(LENGTHS), Compute())
    attend = FusedAttention(heads, 8)
    folded = qkv.clone()
    folded[:, : heads * 16] *= attend.fold
    torch.testing.assert_close(attend(folded, layout), written_out(qkv, LENGTHS, heads, 8), atol=1e-5, rtol=0)


def test_products_of_turned_queries_and_keys_depend_on_their_distance_only():
    heads, d = 2, 8
    rotary = Rotary(1 / 100 ** (torch.arange(4) / 4))
    torch.manual_seed(0)
    one = torch.randn(1, 3 * heads * d)
    rows = one.repeat(30, 1)
    turned = rotary.at(torch.arange(30))(rows.clone(), 2 * heads)
    torch.testing.assert_close(turned[:, 2 * heads * d :], rows[:, 2 * heads * d :])
    q, k = turned.view(30, 3, heads, d)[:, 0], turned.view(30, 3, heads, d)[:, 1]
    scores = torch.einsum("ihd,jhd->hij", q, k)
    for distance in (-7, 0, 3, 12):
        diagonal = scores.diagonal(distance, 1, 2)
        torch.testing.assert_close(diagonal, diagonal[:, :1].expand_as(diagonal), atol=1e-5, rtol=1e-5)
    chosen = torch.tensor([4, 17])
    part = rotary.at(torch.arange(30))(one[:, : heads * d].repeat(2, 1), heads, chosen)
    torch.testing.assert_close(part, turned[chosen, : heads * d])


def test_interleaved_rows_keep_products():
    torch.manual_seed(0)
    weight, x = torch.randn(16, 5), torch.randn(3, 5)
    plain = (x @ weight.T).view(3, 2, 8)
    beside = (x @ interleaved(weight, 2).T).view(3, 2, 8)
    torch.testing.assert_close(beside[..., ::2], plain[..., :4])
    torch.testing.assert_close(beside[..., 1::2], plain[..., 4:])
