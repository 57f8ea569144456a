"""Rows end to end, batches by budget, and attention over rows of any length."""

import math

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.nn.layers import attention
from rankhouse.nn.layers.attention import RowLayout, SelfAttention, attend_once, group
from rankhouse.nn.layers.linear import Linear
from rankhouse.nn.layers.ragged import Ragged, TwoSided, within_budget
from rankhouse.nn.machine import Compute

ROWS = st.lists(st.lists(st.integers(0, 99), max_size=9), min_size=1, max_size=12)
SIZES = st.lists(st.integers(1, 40), min_size=1, max_size=20)
CPU = torch.device("cpu")


@given(rows=ROWS, data=st.data())
def test_taking_rows_takes_them_whole_and_in_order(rows, data):
    chosen = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=20))
    part = Ragged.of(rows).take(torch.tensor(chosen, dtype=torch.int64))
    assert [r.tolist() for r in torch.split(part.values, part.lengths.tolist())] == [rows[i] for i in chosen]


@given(rows=ROWS)
def test_padding_and_mask_agree(rows):
    ragged = Ragged.of(rows)
    padded, mask = ragged.pad(-1), ragged.mask()
    assert padded[mask].tolist() == [v for row in rows for v in row]
    assert (padded[~mask] == -1).all()
    assert ragged.positions().tolist() == [i for row in rows for i in range(len(row))]


@given(sizes=st.lists(st.integers(0, 60), max_size=40), budget=st.integers(1, 300))
def test_every_row_is_in_one_batch_within_the_budget(sizes, budget):
    lengths = torch.tensor(sizes, dtype=torch.int64)
    batches = [rows.tolist() for rows in within_budget(lengths, budget)]
    assert sorted(i for rows in batches for i in rows) == list(range(len(sizes)))
    for rows in batches:
        cost = max(sizes[i] for i in rows) * len(rows)
        assert cost <= budget or len(rows) == 1
    longest = [sizes[rows[0]] for rows in batches]
    assert longest == sorted(longest, reverse=True)


def test_batches_waste_almost_nothing():
    """Lengths as of a thousand passages: rectangles, which only attention needs, are 95 % full."""
    torch.manual_seed(0)
    lengths = torch.exp(torch.randn(1000) * 0.45 + 4.2).long().clamp(8, 512)
    computed = sum(len(rows) * int(lengths[rows].max()) for rows in within_budget(lengths, 2048))
    assert computed < 1.05 * int(lengths.sum())


@pytest.mark.slow
@given(parts=st.lists(ROWS, min_size=1, max_size=4))
def test_joined_blocks_are_their_rows_one_after_the_other(parts):
    joined, whole = (
        Ragged.join([Ragged.of(rows) for rows in parts]),
        Ragged.of([r for rows in parts for r in rows]),
    )
    assert joined.values.tolist() == whole.values.tolist()
    assert joined.lengths.tolist() == whole.lengths.tolist()


def test_two_sides_are_taken_together():
    batch = TwoSided(Ragged.of([[1], [2, 2]]), Ragged.of([[3, 3], [4]]), torch.tensor([0, 5]))
    part = batch.take(torch.tensor([1]))
    assert (part.query.values.tolist(), part.passage.values.tolist()) == ([2, 2], [4])
    assert part.lost.tolist() == [5]
    assert batch.lengths.tolist() == [3, 3]


@given(sizes=SIZES)
def test_groups_cover_all_tokens_and_are_as_wide_as_each_rows_own_length_says(sizes):
    groups = group(torch.tensor(sizes))
    assert sum(g.rows for g in groups) == len(sizes)
    assert [g.start for g in groups] == [sum(h.tokens for h in groups[:i]) for i in range(len(groups))]
    assert sum(g.tokens for g in groups) == sum(sizes)
    assert [g.length for g in groups for _ in range(g.rows)] == sizes


def long_way(qkv, sizes, heads, scale=1.0):
    """Softmax attention of every row alone, in float64."""
    width = qkv.shape[1] // 3
    out = []
    for row in torch.split(qkv.double(), sizes):
        q, k, v = row.view(len(row), 3, heads, -1).permute(1, 2, 0, 3)
        weights = torch.softmax(q @ k.transpose(1, 2) * scale, -1)
        out.append((weights @ v).transpose(0, 1).reshape(len(row), width))
    return torch.cat(out)


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_attention_of_each_row_is_its_own(sizes, seed):
    torch.manual_seed(seed)
    qkv = torch.randn(sum(sizes), 3 * 16)
    compute = Compute()
    heard = SelfAttention(4, compute)(qkv, RowLayout(torch.tensor(sizes), compute))
    torch.testing.assert_close(heard.double(), long_way(qkv, sizes, 4), atol=1e-5, rtol=1e-5)


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_base_two_attention_is_softmax_within_bf16(sizes, seed):
    torch.manual_seed(seed)
    compute = Compute("bf16")
    attend = SelfAttention(4, compute)
    qkv = torch.randn(sum(sizes), 3 * 16).bfloat16()
    folded = torch.cat([(qkv[:, :16].float() * attend.fold).bfloat16(), qkv[:, 16:]], 1)
    heard = attend(folded, RowLayout(torch.tensor(sizes), compute))
    expected = long_way(folded, sizes, 4, scale=math.log(2))
    assert (heard.double() - expected).abs().max() < 0.06


@pytest.mark.parametrize("size", [30.0, 300.0, -300.0])
def test_scores_beyond_base_twos_range_are_computed_the_long_way(size):
    """Rows whose scores all are far above or below zero over- or underflow 2**s."""
    torch.manual_seed(0)
    compute = Compute("bf16")
    q, k, v = torch.randn(3, 20, 16)
    qkv = torch.cat([q + size, k.sign() * 0.1 + 1.5, v], 1).bfloat16()
    heard = SelfAttention(4, compute)(qkv, RowLayout(torch.tensor([13, 7]), compute))
    assert heard.isfinite().all()
    expected = long_way(qkv, [13, 7], 4, scale=math.log(2))
    assert (heard.double() - expected).abs().mean() < 0.3 * expected.abs().mean()


def test_the_long_way_is_taken_only_where_needed(monkeypatch):
    called = []
    softmax = torch.softmax
    monkeypatch.setattr(attention.torch, "softmax", lambda *a: called.append(1) or softmax(*a))
    compute = Compute("bf16")
    attend, groups = SelfAttention(2, compute), RowLayout(torch.tensor([5, 5]), compute)
    attend(torch.ones(10, 24).bfloat16(), groups)
    assert not called
    attend(torch.full((10, 24), 40.0).bfloat16(), groups)
    assert called


@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, seed=st.integers(0, 99))
def test_single_queries_read_their_own_row_only(sizes, seed):
    torch.manual_seed(seed)
    queries, x = torch.randn(len(sizes), 3, 8), torch.randn(sum(sizes), 8)
    heard = attend_once(queries, x, RowLayout(torch.tensor(sizes), Compute()))
    for query, row, ours in zip(queries, torch.split(x, sizes), heard, strict=True):
        torch.testing.assert_close(ours, torch.softmax(query @ row.T, -1) @ row, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh"])
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_linear_layers_laid_out_for_the_processor_equal_plain_ones(activation, precision):
    torch.manual_seed(0)
    weight, bias, x = torch.randn(24, 16), torch.randn(24), torch.randn(7, 16)
    after = {
        "none": lambda y: y,
        "relu": torch.relu,
        "gelu": torch.nn.functional.gelu,
        "gelu_tanh": lambda y: torch.nn.functional.gelu(y, approximate="tanh"),
    }[activation]
    compute = Compute(precision)
    with torch.inference_mode():
        for b in (bias, None):
            ours = Linear(weight, b, compute, activation)(x.to(compute.dtype)).float()
            expected = after(torch.nn.functional.linear(x, weight, b))
            limit = 1e-5 if precision == "fp32" else 0.15
            torch.testing.assert_close(ours, expected, atol=limit, rtol=limit)
