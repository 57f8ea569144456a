"""The compiled loops against PyTorch: the same numbers, each from its own row only, and nothing hidden."""

import math
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.nn import machine
from rankhouse.nn.cpu import infer
from rankhouse.nn.layers.attention import FusedAttention, RowLayout, SelfAttention, attention
from rankhouse.nn.layers.linear import Linear, PlainNorm, layer_norm, linear, root_mean_square
from rankhouse.nn.layers.prenorm import Rotary
from rankhouse.nn.machine import Compute, choose

BF16, INT8 = Compute("bf16"), Compute("int8")
ACTIVATIONS = {
    "none": lambda y: y,
    "relu": torch.relu,
    "gelu": F.gelu,
    "gelu_tanh": lambda y: F.gelu(y, approximate="tanh"),
}
SIZES = st.lists(st.integers(1, 140), min_size=1, max_size=6)
needs_compiled = pytest.mark.skipif(
    not machine.INFER_LOOPS, reason="not compiled, or this processor lacks the instructions"
)
pytestmark = pytest.mark.filterwarnings("error")


@pytest.fixture(scope="module", params=[False, True], ids=["AVX-512", "AMX"], autouse=True)
def tiles(request):
    """Run all of this file with AMX, where there is that, and without."""
    if not machine.INFER_LOOPS:
        yield
        return
    infer._infer.use_tiles(request.param)
    yield
    infer._infer.use_tiles(machine.TILES)


def some(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


@needs_compiled
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 40), inside=st.integers(1, 12), outside=st.integers(1, 12), seed=st.integers(0, 99)
)
def test_bf16_products_are_products_of_rounded_numbers(rows, inside, outside, seed):
    weight, bias = some(16 * outside, 16 * inside, seed=seed), some(16 * outside, seed=seed + 1)
    x, residual = some(rows, 16 * inside, seed=seed + 2).bfloat16(), some(rows, 16 * outside, seed=seed + 3)
    layer = infer.PackedLinear(weight, bias)
    exact = x.double() @ weight.bfloat16().double().T + bias.double()
    added = layer.add(x, residual.clone()) - residual
    torch.testing.assert_close(added.double(), exact, atol=2e-5, rtol=1e-5)
    torch.testing.assert_close(layer(x).double(), exact, atol=1e-4, rtol=2**-8)
    multiplied = layer.multiply(x, residual.bfloat16())
    torch.testing.assert_close(
        multiplied.double(), exact * residual.bfloat16().double(), atol=1e-4, rtol=2**-7
    )


@needs_compiled
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_activations_follow_the_product_exactly(activation):
    grid = torch.linspace(-12, 12, 2048).bfloat16()
    x = torch.zeros(len(grid), 16).bfloat16()
    x[:, 0] = grid
    layer = infer.PackedLinear(torch.eye(16), None, activation)
    expected = ACTIVATIONS[activation](grid.double())
    torch.testing.assert_close(layer(x)[:, 0].double(), expected, atol=1e-5, rtol=2**-8)


@needs_compiled
@pytest.mark.parametrize("inner", [64, 1536])
@pytest.mark.parametrize("rows", [1, 40, 300])
@pytest.mark.parametrize("activation", ["gelu", "silu"])
def test_two_products_at_once_have_the_bits_of_one_after_the_other(activation, rows, inner):
    up = infer.PackedLinear(some(inner, 128), some(inner), activation)
    down = infer.PackedLinear(some(96, inner, seed=1), some(96, seed=2))
    x, residual = some(rows, 128, seed=3).bfloat16(), some(rows, 96, seed=4)
    expected = down.add(up(x), residual.clone())
    assert torch.equal(up.feed(x, down, residual.clone()), expected)


@needs_compiled
@pytest.mark.parametrize("biased", [False, True])
def test_a_product_and_attention_at_once_have_the_bits_of_one_after_the_other(biased):
    """Some rows at a time: the three parts of 3,000 numbers are larger than what stays near the processor."""
    sizes, heads = torch.tensor([1, 40, 33, 200, 64, 7, 130]), 6
    ends, x = RowLayout(sizes, BF16).ends, some(int(sizes.sum()), 64).bfloat16()
    product = infer.PackedLinear(some(3 * heads * 160, 64) / 8, some(3 * heads * 160, seed=1))
    bias = some(heads, 2 * 300 + 1, seed=2) if biased else None
    expected = infer.attend(product(x), ends, heads, bias)
    assert torch.equal(product.attend(x, ends, heads, bias), expected)
    with pytest.raises(ValueError, match="rows end at 475, there are 474 tokens"):
        product.attend(x[1:], ends, heads)


def one_by_one(function, rows):
    """Apply to each row alone and put the results together."""
    return torch.cat([function(rows[i : i + 1]) for i in range(len(rows))])


@needs_compiled
def test_a_row_has_the_same_bits_alone_and_in_a_batch():
    product = infer.PackedLinear(some(208, 112), some(208), "gelu")
    x = some(23, 112).bfloat16()
    assert torch.equal(product(x), one_by_one(product, x))
    norm = infer.FusedNorm(some(112), some(112), 1e-6)
    assert torch.equal(norm(x.float())[1], one_by_one(lambda row: norm(row)[1], x.float()))


@pytest.mark.slow
@needs_compiled
@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, d=st.sampled_from([16, 32, 48, 64, 80, 96]), biased=st.booleans())
def test_compiled_attention_is_softmax_of_each_row_alone(sizes, d, biased):
    heads, tokens = 3, sum(sizes)
    qkv = (some(tokens, 3 * heads * d) * (1 if d < 64 else 0.7)).bfloat16()
    table, centre = some(heads, 2 * 180 + 1), 180
    layout = RowLayout(torch.tensor(sizes), BF16)
    heard = FusedAttention(heads)(qkv, layout, table if biased else None)
    start = 0
    for size in sizes:
        q, k, v = qkv[start : start + size].double().view(size, 3, heads, d).permute(1, 2, 0, 3)
        scores = q @ k.transpose(1, 2)
        if biased:
            places = torch.arange(size)
            scores += table[:, centre + places - places[:, None]].double()
        exact = (torch.softmax(scores * math.log(2), -1) @ v).transpose(0, 1).reshape(size, -1)
        torch.testing.assert_close(heard[start : start + size].double(), exact, atol=0.03, rtol=0.02)
        alone = FusedAttention(heads)(
            qkv[start : start + size].contiguous(),
            RowLayout(torch.tensor([size]), BF16),
            table if biased else None,
        )
        assert torch.equal(alone, heard[start : start + size])
        start += size


@needs_compiled
@pytest.mark.parametrize("size", [30.0, 3000.0, -3000.0])
def test_compiled_attention_bears_scores_of_any_size(size):
    q, k, v = some(3, 20, 16)
    qkv = torch.cat([q + size, k.sign() * 0.1 + 1.5, v], 1).bfloat16()
    heard = FusedAttention(1)(qkv, RowLayout(torch.tensor([13, 7]), BF16))
    assert heard.isfinite().all()
    assert heard.abs().max() <= v.bfloat16().abs().max()


@needs_compiled
@pytest.mark.parametrize("d", [16, 32, 64, 128, 512])
def test_compiled_attention_adds_the_largest_products_there_can_be(d):
    qkv = torch.full((5, 3 * d), 0.3)
    qkv[2, d : 2 * d] = 8.0  # read by all queries alone
    qkv[:, 2 * d :] = some(5, d)
    heard = FusedAttention(1)(qkv.bfloat16(), RowLayout(torch.tensor([5]), BF16))
    torch.testing.assert_close(heard.float(), qkv[2, 2 * d :].expand(5, d), atol=0.02, rtol=0.01)


@needs_compiled
@settings(max_examples=30, deadline=None)
@given(sizes=SIZES, heads=st.integers(1, 9), width=st.sampled_from([32, 64, 160]))
def test_compiled_single_queries_read_their_own_row(sizes, heads, width):
    queries = (some(len(sizes), heads, width) / width**0.5).bfloat16()
    x = some(sum(sizes), width, seed=1).bfloat16()
    heard = infer.attend_once(queries, x, RowLayout(torch.tensor(sizes), BF16).ends)
    for query, row, ours in zip(queries.double(), torch.split(x.double(), sizes), heard, strict=True):
        exact = torch.softmax(query @ row.T, -1) @ row
        torch.testing.assert_close(ours.double(), exact, atol=0.005, rtol=2**-7)


@needs_compiled
@settings(max_examples=40, deadline=None)
@given(
    sizes=SIZES,
    heads=st.integers(1, 5),
    d=st.sampled_from([16, 32, 48]),
    most=st.sampled_from([None, 1, 9, 64]),
)
def test_compiled_first_tokens_read_their_own_row(sizes, heads, d, most):
    queries = some(len(sizes), heads, d).bfloat16()
    both = some(sum(sizes), 2 * heads * d, seed=1).bfloat16()
    ends = RowLayout(torch.tensor(sizes), BF16).ends
    heard = infer.attend_first(queries, both, ends, most)
    for i, row in enumerate(both.split(sizes)):
        k, v = row[:most].float().view(-1, 2, heads, d).permute(1, 2, 0, 3)
        exact = F.scaled_dot_product_attention(queries[i].float()[:, None], k, v, scale=1.0)[:, 0]
        torch.testing.assert_close(heard[i].float(), exact, atol=1e-3, rtol=2**-8)
        alone = RowLayout(torch.tensor(sizes[i : i + 1]), BF16).ends
        assert torch.equal(infer.attend_first(queries[i : i + 1], row.contiguous(), alone, most)[0], heard[i])


@needs_compiled
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float32])
@pytest.mark.parametrize("d", [16, 64, 96])
def test_compiled_turns_have_the_bits_of_complex_numbers(d, dtype, monkeypatch):
    x, rotary = some(23, 3 * 2 * d).to(dtype), Rotary(1e4 ** (-torch.arange(d // 2) / (d // 2)), 1.2)
    turn, chosen = rotary.at(torch.arange(23) * 40), torch.tensor([3, 0, 22])
    compiled = turn(x.clone(), 4), turn(x[:3].clone(), 6, chosen)
    monkeypatch.setattr(machine, "INFER_LOOPS", False)
    monkeypatch.setattr(machine, "INT8_LOOPS", False)
    assert torch.equal(compiled[0], turn(x.clone(), 4))
    assert torch.equal(compiled[1], turn(x[:3].clone(), 6, chosen))
    assert torch.equal(compiled[0][:, 4 * d :], x[:, 4 * d :])
    assert not torch.equal(compiled[0][1:], x[1:])


@needs_compiled
def test_norms_equal_plain_ones_up_to_rounding():
    x, gain, shift = some(9, 96) * 3 + 1, some(96), some(96)
    exact = F.layer_norm(x, (96,), gain, shift, 1e-6)
    state, rows = layer_norm(gain, shift, 1e-6, BF16)(x.clone())
    torch.testing.assert_close(state, exact, atol=1e-5, rtol=1e-5)
    assert ((rows.float() - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()
    before = x.clone()
    state, rows = infer.FusedNorm(None, None, 1e-6)(x)
    exact = root_mean_square(x, 1e-6)
    assert torch.equal(state, before)
    assert ((rows.float() - exact).abs() <= 2**-8 * exact.abs() + 1e-6).all()


@needs_compiled
@pytest.mark.parametrize("wrong", [math.nan, math.inf])
def test_what_is_no_number_is_never_rounded_to_one(wrong):
    """A damaged weight must be seen in the score, and in no other row."""
    x = some(8, 64)
    x[5, 17] = wrong
    _, rows = infer.FusedNorm(some(64), some(64), 1e-6)(x.clone())
    out = infer.PackedLinear(some(32, 64), None, "gelu").add(rows, torch.zeros(8, 32))
    assert not out[5].isfinite().any()
    assert out[[0, 1, 2, 3, 4, 6, 7]].isfinite().all()
    for activation in ACTIVATIONS:
        product = infer.PackedLinear(some(32, 64), None, activation)
        assert product(x.bfloat16())[5].isnan().any() or math.isinf(wrong)
    heard = FusedAttention(1)(x[:, :48].bfloat16().contiguous(), RowLayout(torch.tensor([3, 5]), BF16))
    assert heard[:3].isfinite().all()
    assert not heard[3:].isfinite().all()


@needs_compiled
@pytest.mark.parametrize(
    "x",
    [
        torch.zeros(4, 32),
        torch.zeros(4, 48).bfloat16(),
        torch.zeros(32, 4).bfloat16().T,
        torch.zeros(32).bfloat16(),
    ],
    ids=["float32", "too wide", "transposed", "no rows"],
)
def test_rows_the_loops_would_misread_are_refused(x):
    with pytest.raises(ValueError, match="rows of 32"):
        infer.PackedLinear(some(16, 32), None)(x)


@needs_compiled
def test_tables_and_ends_the_loops_would_read_beyond_are_refused():
    qkv, ends = torch.zeros(20, 48).bfloat16(), torch.tensor([0, 20])
    infer.attend(qkv, ends, 1, torch.zeros(1, 2 * 52 + 1))
    for bias in (torch.zeros(1, 2 * 51 + 1), torch.zeros(2, 2 * 52 + 1), torch.zeros(1, 2 * 52 + 1).double()):
        with pytest.raises(ValueError, match="bias|rows of"):
            infer.attend(qkv, ends, 1, bias)
    with pytest.raises(ValueError, match="there are 20 tokens"):
        infer.attend(qkv, torch.tensor([0, 21]), 1)
    with pytest.raises(ValueError, match="1 rows of 21 tokens"):
        infer.attend_once(
            torch.zeros(1, 2, 32).bfloat16(), torch.zeros(20, 32).bfloat16(), torch.tensor([0, 21])
        )
    with pytest.raises(ValueError, match="4 rows were multiplied into 3"):
        infer.PackedLinear(some(16, 32), None).add(torch.zeros(4, 32).bfloat16(), torch.zeros(3, 16))
    layers = [infer.PackedLinear(some(*shape), None) for shape in ((16, 32), (48, 16))]
    with pytest.raises(ValueError, match="rows of 48 torch.float32 were expected"):
        layers[0].feed(torch.zeros(4, 32).bfloat16(), layers[1], torch.zeros(4, 16))


def test_without_the_compiled_loops_pytorch_takes_over(monkeypatch):
    monkeypatch.setattr(machine, "INFER_LOOPS", False)
    monkeypatch.setattr(machine, "WIDE_LOOPS", False)
    assert isinstance(linear(some(32, 32), None, BF16), Linear)
    assert isinstance(attention(2, 16, BF16), SelfAttention)
    assert isinstance(layer_norm(some(32), some(32), 1e-6, BF16), PlainNorm)
    with pytest.raises(WrongUse, match="AVX2"):
        machine.require_int8(INT8, "this encoder", (32,))
    with pytest.raises(WrongUse, match="AVX2"):
        choose("int8", "cpu")


@pytest.mark.skipif(not machine.TILES, reason="this processor, or its system, lacks AMX")
def test_amx_is_shared_with_onednn_and_between_threads():
    weight, x = some(64, 96), some(70, 96).bfloat16()
    theirs, ours = Linear(weight, None, BF16), infer.PackedLinear(weight, None)
    infer._infer.use_tiles(True)
    qkv, ends = some(70, 96).bfloat16(), torch.tensor([0, 40, 70])
    expected = theirs(x), ours(x), infer.attend(qkv, ends, 1)

    def again(_):
        return all(
            torch.equal(a, b)
            for _ in range(50)
            for a, b in zip((theirs(x), ours(x), infer.attend(qkv, ends, 1)), expected, strict=True)
        )

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(again, range(8)))


def test_fp32_and_odd_widths_are_left_to_pytorch():
    assert isinstance(linear(some(32, 32), None, Compute("fp32")), Linear)
    assert isinstance(linear(some(32, 24), None, BF16), Linear)


@needs_compiled
def test_int8_is_refused_where_something_else_would_be_computed():
    with pytest.raises(WrongUse, match="not for CUDA"):
        machine.require_int8(INT8._replace(device=torch.device("cuda")), "this encoder", (32,))
    with pytest.raises(WrongUse, match="not this DebertaV2Model"):
        machine.require_int8(INT8, "DebertaV2Model")
    with pytest.raises(WrongUse, match="T5 with its decoder, .* not this T5EncoderModel"):
        machine.require_int8(INT8, "T5EncoderModel")
    with pytest.raises(WrongUse, match="multiples of 16"):
        machine.require_int8(INT8, "this T5", (32, 24))
    machine.require_int8(INT8, "this T5", (32, 48))
    machine.require_int8(BF16, "anything", (7,))


@needs_compiled
def test_int8_is_chosen_only_when_asked_for():
    assert choose("int8", "cpu").precision == "int8"
    assert choose("auto", "cpu").precision in {"bf16", "fp32"}
    assert choose("int8", "cpu").unquantised == choose("fp32", "cpu")._replace(steady=True)
