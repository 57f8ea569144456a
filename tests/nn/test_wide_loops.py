"""int8: exact products, loops against PyTorch, and the same bits by every set of instructions."""

import hashlib
import os
import shutil
import subprocess
import sys

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file
from torch.nn import functional as F

from rankhouse.core.errors import WrongUse
from rankhouse.nn import machine
from rankhouse.nn.cpu import infer, onednn_int8, wide
from rankhouse.nn.layers.attention import FusedAttention, RowLayout, attend_once
from rankhouse.nn.layers.linear import Gated, linear
from rankhouse.nn.machine import Compute, choose

needs_loops = pytest.mark.skipif(not machine.has_int8(), reason="not compiled, or no AVX2 and no NEON")
needs_both = pytest.mark.skipif(
    not (machine.INT8_LOOPS and machine.has_int8()), reason="this processor has one kind of loops"
)
INT8 = Compute("int8")


@pytest.fixture(params=["AMX", "AVX-512", "AVX2"])
def loops(request, monkeypatch):
    """Compute with each kind of loops that this processor has."""
    if request.param == "AMX" and not machine.TILES:
        pytest.skip("this processor, or its system, lacks AMX")
    if request.param == "AVX-512" and not machine.INT8_LOOPS:
        pytest.skip("this processor lacks AVX512_VNNI")
    use(request.param, monkeypatch)
    yield request.param
    if machine.TILES:
        infer._infer.use_tiles(machine.TILES)


def use(kind, monkeypatch):
    """Compute with "AMX", "AVX-512" or "AVX2", and oneDNN's products."""
    monkeypatch.setattr(machine, "INT8_LOOPS", kind != "AVX2")
    if kind != "AVX2":
        infer._infer.use_tiles(kind == "AMX")


def with_each(monkeypatch, compute):
    """Return results of ``compute`` with each kind of loops, which are lists of tensors."""
    results = []
    for kind in ["AMX"] * machine.TILES + ["AVX-512", "AVX2"]:
        use(kind, monkeypatch)
        results.append(compute())
    infer._infer.use_tiles(machine.TILES)
    return results


def equal(results):
    """Return whether all results have the same bits."""
    return all(torch.equal(*pair) for other in results[1:] for pair in zip(results[0], other, strict=True))


@needs_both
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    rows=st.integers(1, 90),
    inside=st.sampled_from([16, 48, 64, 384, 1536]),
    outside=st.sampled_from([16, 80, 208]),
    activation=st.sampled_from(["none", "relu", "gelu", "gelu_tanh", "silu"]),
    seed=st.integers(0, 99),
)
def test_products_have_the_same_bits_with_every_set(rows, inside, outside, activation, seed, monkeypatch):
    x, weight, bias = some(rows, inside, seed=seed), some(outside, inside, seed=seed + 1), some(outside)
    x[0] *= 1e3
    second, residual = some(32, outside, seed=seed + 2), some(rows, 32, seed=3)
    if inside > 999:
        weight[0], x[-1] = 9.0, 9.0  # the largest sums
    given_bias = bias if seed % 2 else None

    def compute():
        up = wide.QuantisedLinear(weight, given_bias, activation, feeds=True)
        made = up(x)
        down = wide.QuantisedLinear(second, None)
        gated = wide.QuantisedLinear(torch.cat([weight, weight.flip(0)]), None, activation, gated=True)
        return [
            wide.QuantisedLinear(weight, given_bias, activation)(x),
            made.values[:rows],
            made.scales,
            up.feed(x, down, residual.clone()),
            gated(x),
            wide.QuantisedLinear(weight, given_bias).add(x, some(rows, outside, seed=5)),
        ]

    assert equal(with_each(monkeypatch, compute))


@needs_both
@pytest.mark.parametrize("rows", [1, 2, 33])
def test_norms_have_the_same_bits_with_every_set(rows, monkeypatch):
    x, gain, shift = some(rows, 112) * 3 + 1, some(112), some(112)

    def compute():
        results = []
        for given_gain, given_shift in ((gain, shift), (gain, None), (None, None)):
            normed, made = wide.WideNorm(given_gain, given_shift, 1e-6)(x.clone())
            results += [normed, made.values[:rows], made.scales]
        return results

    assert equal(with_each(monkeypatch, compute))


@needs_both
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    sizes=st.lists(st.integers(1, 150), min_size=1, max_size=6),
    d=st.sampled_from([16, 32, 48, 64, 96]),
    size=st.sampled_from([0.1, 1.0, 30.0]),
    biased=st.booleans(),
    seed=st.integers(0, 99),
)
def test_attention_has_the_same_bits_with_every_set(sizes, d, size, biased, seed, monkeypatch):
    ends, heads = RowLayout(torch.tensor(sizes), INT8).ends, 3
    qkv = some(sum(sizes), 3 * heads * d, seed=seed)
    qkv[:, : heads * d] *= size
    bias = some(heads, 2 * 190 + 1, seed=seed + 1) if biased else None
    x, weight = some(sum(sizes), 64, seed=seed + 2), some(3 * heads * d, 64, seed=seed + 3)

    def compute():
        by_product = wide.QuantisedLinear(weight, None).attend(x, ends, heads, bias)
        return [wide.attend(qkv, ends, heads, bias), by_product]

    assert equal(with_each(monkeypatch, compute))


@needs_both
@pytest.mark.parametrize("d", [32, 512])
def test_attention_adds_the_largest_products_with_the_same_bits(d, monkeypatch):
    qkv = torch.ones(200, 3 * d)
    qkv[::2, : 2 * d] = -1
    qkv[:, 2 * d :] = some(200, 1).sign()
    ends = torch.tensor([0, 70, 200])
    assert equal(with_each(monkeypatch, lambda: [wide.attend(qkv, ends, 1)]))


def some(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def rounded(x, most):
    """Round rows symmetrically: whole numbers, and what they are multiplied by."""
    scale = x.abs().amax(1, keepdim=True).clamp_min(1e-30) / most
    return torch.round(x / scale), scale


@needs_loops
@settings(max_examples=30)
@given(
    rows=st.integers(1, 600),
    inside=st.sampled_from([16, 32, 384, 1536]),
    outside=st.sampled_from([16, 48, 384]),
    seed=st.integers(0, 9),
)
def test_products_are_whole_numbers_times_their_scales(rows, inside, outside, seed):
    x, weight, bias = some(rows, inside, seed=seed), some(outside, inside, seed=seed + 1), some(outside)
    rows_given, (b, of_columns) = wide._bytes(x), rounded(weight, 63)
    a, of_rows = rows_given.values[: len(x)].double() - 128, rows_given.scales[:, None]
    torch.testing.assert_close((a * of_rows).float(), x, atol=float(x.abs().max()) / 250, rtol=0)
    exact = (a @ b.double().T) * of_rows * of_columns.T + bias
    product = wide.QuantisedLinear(weight, bias)
    torch.testing.assert_close(product(x).double(), exact, atol=1e-4, rtol=1e-5)
    start = some(rows, outside, seed=5)
    torch.testing.assert_close(product.add(x, start.clone()).double(), exact + start, atol=1e-4, rtol=1e-5)
    torch.testing.assert_close(
        product.multiply(x, start.clone()).double(), exact * start, atol=1e-3, rtol=1e-4
    )
    assert torch.equal(product(x[-1:]), product(x)[-1:])


@needs_loops
@pytest.mark.parametrize("activation", ["none", "relu", "gelu", "gelu_tanh", "silu"])
def test_activations_gates_and_bytes(activation, loops):
    plain = {"none": lambda x: x, "relu": F.relu, "gelu": F.gelu, "silu": F.silu,
             "gelu_tanh": lambda x: F.gelu(x, approximate="tanh")}[activation]  # fmt: skip
    x, up, gate = some(37, 64), some(96, 64, seed=1), some(96, 64, seed=2)
    raw_up, raw_gate = wide.QuantisedLinear(up, some(96))(x), wide.QuantisedLinear(gate, some(96, seed=3))(x)
    acted = wide.QuantisedLinear(up, some(96), activation)(x)
    torch.testing.assert_close(acted, plain(raw_up), atol=2e-6, rtol=2e-6)
    fed = wide.QuantisedLinear(up, some(96), activation, feeds=True)(x)
    assert torch.equal(fed.values[:37], wide._bytes(acted).values[:37])
    assert torch.equal(fed.scales, wide._bytes(acted).scales)
    both = Gated((up, some(96)), (gate, some(96, seed=3)), INT8, activation)(x)
    shown = (both.values[:37].float() - 128) * both.scales[:, None]
    torch.testing.assert_close(shown, plain(raw_up) * raw_gate, atol=float(both.scales.max()), rtol=0)
    far = torch.tensor([[-1e30, -200.0, -30.0, -5.0, 5.0, 30.0, 200.0, 1e30] * 2])
    few = wide.WideLinear(torch.eye(16), None, activation)(far)
    torch.testing.assert_close(few, plain(far), atol=1e-5, rtol=1e-5)


@needs_loops
def test_rows_are_rounded_to_the_nearest_byte(loops):
    x = torch.tensor([[0.0] * 16, [1.0, -1.0, 0.5, -0.5] * 4, [127.0, 2.5, 3.5, -2.5] * 4])
    values, scales = wide._bytes(x)
    assert values[:3].tolist() == [[128] * 16, [255, 1, 192, 64] * 4, [255, 130, 132, 126] * 4]
    np.testing.assert_allclose(scales, [1e-30 / 127, 1 / 127, 1], rtol=1e-6)


@needs_loops
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf")])
def test_what_is_not_finite_stays_seen(wrong, loops):
    x = some(3, 32)
    x[1, 7] = wrong
    out = wide.QuantisedLinear(some(16, 32), None)(x)
    assert out[1].isnan().all()
    assert out[[0, 2]].isfinite().all()
    weight = some(16, 32)
    weight[5, 3] = wrong
    broken = ~wide.QuantisedLinear(weight, None)(some(3, 32)).isfinite()
    assert broken[:, 5].all()
    assert not broken[:, :5].any()


@needs_loops
def test_norms(loops):
    x, gain, shift = some(20, 48), some(48, seed=1), some(48, seed=2)
    normed, rows = wide.WideNorm(gain, shift, 1e-5)(x.clone())
    torch.testing.assert_close(normed, F.layer_norm(x, (48,), gain, shift, 1e-5), atol=1e-5, rtol=1e-5)
    assert torch.equal(rows.values[:20], wide._bytes(normed).values[:20])
    kept, exact = wide.WideNorm(None, None, 1e-6, exact=True)(x)
    assert kept is x
    expected = x * torch.rsqrt(x.square().mean(1, keepdim=True) + 1e-6)
    torch.testing.assert_close(exact, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(wide.WideNorm(gain, None, 1e-5, exact=True)(x.clone())[1],
                               F.layer_norm(x, (48,), gain, None, 1e-5), atol=1e-5, rtol=1e-5)  # fmt: skip


@needs_loops
@pytest.mark.parametrize("window", [None, 8])
@pytest.mark.parametrize("d", [16, 32, 48])
def test_attention_equals_pytorchs(d, window, loops):
    heads, lengths = 3, torch.tensor([1, 2, 15, 16, 17, 40, 130])
    qkv = some(int(lengths.sum()), 3 * heads * d)
    layout = RowLayout(lengths, INT8)
    folded = qkv.clone()
    attend = FusedAttention(heads, window)
    folded[:, : heads * d] *= attend.fold
    heard, start = attend(folded, layout), 0
    for length in lengths.tolist():
        q, k, v = qkv[start : start + length].view(length, 3, heads, d).permute(1, 2, 0, 3)
        far = (torch.arange(length)[:, None] - torch.arange(length)).abs() > (window or length)
        mask = torch.zeros(length, length).masked_fill_(far, -torch.inf)
        expected = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=1.0)
        own = heard[start : start + length]
        # values are rounded to 1023 steps of a column's largest, and weights to 32766
        torch.testing.assert_close(own, expected.transpose(0, 1).reshape(length, -1), atol=8e-3, rtol=0)
        alone = attend(folded[start : start + length].clone(), RowLayout(torch.tensor([length]), INT8))
        assert torch.equal(alone, own)
        start += length


@needs_loops
@pytest.mark.parametrize("place", [0, 1, 2])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf")])
def test_what_is_not_finite_stays_seen_behind_attention(wrong, place, loops):
    qkv = some(8, 3 * 32)
    qkv[5, 32 * place + 7] = wrong
    heard = wide.attend(qkv, torch.tensor([0, 3, 8]), 2)
    assert heard[:3].isfinite().all()
    assert heard[5].isnan().any()
    bias = torch.zeros(2, 2 * 40 + 1)
    bias[1, 40] = wrong
    spoilt = wide.attend(some(8, 3 * 32), torch.tensor([0, 3, 8]), 2, bias)
    assert spoilt[:, 16:].isnan().all()
    assert spoilt[:, :16].isfinite().all()


@needs_loops
@pytest.mark.parametrize("d", [16, 32, 64, 128, 512])
def test_attention_adds_the_largest_products_there_can_be(d, loops):
    qkv = torch.full((5, 3 * d), 0.3)
    qkv[2, d : 2 * d] = 8.0  # read by all queries alone
    qkv[:, 2 * d :] = some(5, d)
    heard = wide.attend(qkv, torch.tensor([0, 5]), 1)
    torch.testing.assert_close(heard, qkv[2, 2 * d :].expand(5, d), atol=8e-3, rtol=0)


@needs_loops
def test_attention_to_one_of_many_and_to_all_alike(loops):
    """Weights of 16 bits lose the smallest ones only: those of 2000 equal tokens are 1 / 2000 each."""
    qkv = torch.zeros(2000, 48)
    qkv[:, 32:] = some(2000, 16)
    ends = torch.tensor([0, 2000])
    torch.testing.assert_close(wide.attend(qkv, ends, 1)[7], qkv[:, 32:].mean(0), atol=1e-3, rtol=0)
    qkv[:, 0], qkv[777, 16] = 20.0, 5.0
    torch.testing.assert_close(wide.attend(qkv, ends, 1)[7], qkv[777, 32:], atol=8e-3, rtol=0)


@needs_loops
@settings(max_examples=30)
@given(
    rows=st.integers(1, 70),
    inside=st.integers(1, 60),
    eights=st.integers(1, 5),
    size=st.integers(1, 70),
    seed=st.integers(0, 9),
)
def test_our_own_product_of_bytes_is_exact(rows, inside, eights, size, seed):
    outside = 8 * eights
    weight = (some(outside, 4 * inside, seed=seed) * size).clamp(-63, 63).round().to(torch.int8)
    x = torch.randint(1, 256, (rows, 4 * inside), generator=torch.Generator().manual_seed(seed))
    x[0], weight[0], weight[-1] = 255, 63, -63
    exact = (x.double() - 128) @ weight.double().T
    given_rows = x.to(torch.uint8)
    whole = torch.empty(rows, outside)
    units = torch.ones(rows), torch.ones(outside), None, 0, 0, whole, None, None
    wide.GroupedProduct(weight)(given_rows, units)
    assert torch.equal(whole.double(), exact)
    if machine.has_onednn() and onednn_int8.is_exact():
        product = onednn_int8.multiply(given_rows, onednn_int8.pack(weight), outside)
        assert torch.equal(product.double(), exact)


@needs_loops
@pytest.mark.skipif(
    not (machine.has_onednn() and onednn_int8.is_exact()), reason="no exact product by oneDNN"
)
@pytest.mark.parametrize("kind", ["stored", "fed", "gated", "added"])
def test_products_by_oneDNN_and_by_our_own_loop_are_equal_to_the_bit(kind, monkeypatch):
    """150 rows are more than are multiplied at once."""
    monkeypatch.setattr(machine, "INT8_LOOPS", False)
    weight, bias, x, residual = some(96, 64, seed=1), some(96), some(150, 64, seed=2), some(150, 96, seed=3)
    results = []
    for grouped in (False, True):
        monkeypatch.setattr(machine, "GROUPED", grouped)
        how = {"feeds": kind != "stored", "gated": kind == "gated"}
        if kind == "added":
            results.append([wide.QuantisedLinear(weight, bias).add(x, residual.clone())])
            continue
        made = wide.QuantisedLinear(weight, bias, "gelu", **how)(x)
        results.append([made] if kind == "stored" else [made.values[:150], made.scales])
    assert all(torch.equal(*pair) for pair in zip(*results, strict=True))


@needs_loops
@pytest.mark.skipif(not machine.GROUPED, reason="oneDNN multiplies here")
def test_a_weight_that_is_packed_is_not_kept_twice():
    product = wide.QuantisedLinear(some(256, 512), None)
    kept = [one for one in (product._weight, *product._own._packed) if isinstance(one, torch.Tensor)]
    assert sum(one.untyped_storage().nbytes() for one in kept) < 1.6 * 256 * 512


@needs_loops
def test_one_query_a_head():
    lengths = torch.tensor([1, 7, 8, 33])
    x, queries = some(49, 64), some(4, 5, 64, seed=1)
    exact = attend_once(queries.double(), x.double(), RowLayout(lengths, Compute("fp32")))
    torch.testing.assert_close(
        wide.attend_once(queries, x, RowLayout(lengths, INT8).ends).double(), exact, atol=1e-4, rtol=1e-4
    )
    first = wide.attend_first(some(4, 2, 16, seed=2), some(49, 64), RowLayout(lengths, INT8).ends, 9)
    start = 0
    for row, length in enumerate(lengths.tolist()):
        k, v = some(49, 64)[start : start + length][:9].view(-1, 2, 2, 16).permute(1, 2, 0, 3)
        q = some(4, 2, 16, seed=2)[row][:, None]
        expected = F.scaled_dot_product_attention(q, k, v, scale=1.0)[:, 0]
        torch.testing.assert_close(first[row], expected, atol=1e-5, rtol=1e-5)
        start += length


@needs_loops
def test_what_does_not_fit_is_refused(loops):
    product = wide.QuantisedLinear(some(16, 32), None)
    with pytest.raises(ValueError, match="rows of 32 torch.uint8 were expected"):
        product(wide.ByteRows.empty(3, 16))
    with pytest.raises(ValueError, match="rows of 16 torch.float32 were expected"):
        product.add(some(3, 32), some(3, 16).double())
    with pytest.raises(ValueError, match="rows end at 9, there are 8 tokens"):
        wide.attend(some(8, 96), torch.tensor([0, 9]), 2)
    with pytest.raises(ValueError, match="too small for 2 heads"):
        wide.attend(some(8, 96), torch.tensor([0, 8]), 2, some(2, 21))


@needs_loops
def test_int8_is_refused_where_products_come_out_wrong(monkeypatch):
    monkeypatch.setattr(machine, "INT8_LOOPS", False)
    monkeypatch.setattr(machine, "GROUPED", False)
    right = onednn_int8.multiply

    def saturating(rows, packed, columns):  # as oneDNN would with weights up to 127, without VNNI
        return right(rows, packed, columns).clamp(max=32767 * 128)

    monkeypatch.setattr(onednn_int8, "multiply", saturating)
    onednn_int8.is_exact.cache_clear()
    try:
        with pytest.raises(WrongUse, match='precision="int8" cannot be had here'):
            choose("int8", "cpu")
        assert "wrong here" in machine.in_use()["int8"]
    finally:
        onednn_int8.is_exact.cache_clear()


SCORES = """
import sys, torch
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.ranker import NeuralRanker
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.nn.machine import Compute
words = "storm grain harbour price ship north milk salt bread week".split()
texts = [" ".join(words[(i * j) % 10] for j in range(1, 2 + 3 * i)) for i in range(18)]
pairs = [Pair(Query("q", "grain harbour"), Passage("d", 0, text)) for text in texts]
for precision in sys.argv[2:]:
    ranker = NeuralRanker(open_crossencoder(sys.argv[1]), Compute(precision, torch.device("cpu"), 1))
    print(ranker.score(pairs).tobytes().hex())
"""


EVERYWHERE = "4ed57db11f574840"
"""Of the int8 scores below: a processor on which the test fails gives other bits."""


def give_weights(file):
    """Overwrite weights with small whole numbers over 1024: no random numbers of one library's version."""
    rng, weights = np.random.Generator(np.random.PCG64(0)), load_file(file)
    for name in sorted(weights):
        if weights[name].is_floating_point():
            drawn = rng.integers(-128, 128, tuple(weights[name].shape)) / 1024
            weights[name] = torch.tensor(drawn + name.endswith("LayerNorm.weight"), dtype=torch.float32)
    save_file(weights, file, {"format": "pt"})


def scores_with(folder, *precisions, emulator=(), **variables):
    told = subprocess.run(
        [*emulator, sys.executable, "-c", SCORES, str(folder), *(precisions or ["int8"])],
        env=os.environ | variables, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return told.stdout + (told.stderr.strip().splitlines() or [""])[-1]


@pytest.mark.slow
@pytest.mark.skipif(not machine.has_int8(), reason="no int8 on this processor")
def test_int8_scores_are_equal_to_the_bit_with_fewer_instructions(bert):
    folder = bert("BertForSequenceClassification", num_labels=1, hidden_size=64, intermediate_size=96)
    give_weights(folder / "model.safetensors")
    once = scores_with(folder, RANKHOUSE_CPU="avx2")
    assert len(once.strip()) == 18 * 8
    assert hashlib.sha256(bytes.fromhex(once.strip())).hexdigest()[:16] == EVERYWHERE
    for forced in ("", "avx512", "avx512_vnni", "avx2_vnni"):  # all there is: AMX, AVX-512, or AVX2 again
        assert scores_with(folder, RANKHOUSE_CPU=forced) == once
    for variables in (
        {"ONEDNN_MAX_CPU_ISA": "SSE41"},
        {"ONEDNN_MAX_CPU_ISA": "AVX512_CORE_VNNI"},
        {"OMP_NUM_THREADS": "2"},
        {"ATEN_CPU_CAPABILITY": "default"},
        {"MKL_ENABLE_INSTRUCTIONS": "SSE4_2"},
    ):
        assert scores_with(folder, **({"RANKHOUSE_CPU": "avx2"} | variables)) == once
    plain, refused = scores_with(folder, "fp32", "int8", RANKHOUSE_CPU="plain").splitlines()
    assert len(plain) == 18 * 8
    assert "cannot be had here" in refused
    assert (
        'RANKHOUSE_CPU="sse" is not known; choose from: avx2, avx2_vnni, avx512, avx512_vnni, plain'
        in scores_with(folder, RANKHOUSE_CPU="sse")
    )


@pytest.mark.slow
@pytest.mark.outside
@pytest.mark.skipif(shutil.which("qemu-x86_64") is None, reason="no qemu-x86_64")
@pytest.mark.parametrize("processor", ["Haswell", "Nehalem"])
def test_int8_scores_of_emulated_processors(bert, processor):
    """Haswell has AVX2, FMA and nothing newer; Nehalem has SSE4.2, and falls back to fp32 by PyTorch."""
    folder = bert("BertForSequenceClassification", num_labels=1, hidden_size=64, intermediate_size=96)
    give_weights(folder / "model.safetensors")
    emulator = "qemu-x86_64", "-cpu", processor
    if processor == "Haswell":
        emulated = scores_with(folder, emulator=emulator).splitlines()[0]  # what QEMU warns of comes behind
        assert hashlib.sha256(bytes.fromhex(emulated)).hexdigest()[:16] == EVERYWHERE
        return
    # OpenBLAS takes instructions that a Nehalem lacks where QEMU runs on AMD's.
    variables = {"OPENBLAS_CORETYPE": "Nehalem"}
    emulated, refused = scores_with(folder, "fp32", "int8", emulator=emulator, **variables).splitlines()
    here = scores_with(folder, "fp32", RANKHOUSE_CPU="plain")
    given, expected = (np.frombuffer(bytes.fromhex(each.strip()), "<f4") for each in (emulated, here))
    np.testing.assert_allclose(given, expected, atol=1e-5)
    assert "cannot be had here" in refused


@needs_both
@settings(max_examples=40)
@given(
    rows=st.integers(1, 20),
    inside=st.integers(1, 70),
    outside=st.integers(1, 150),
    activation=st.sampled_from(["none", "relu", "gelu", "gelu_tanh", "silu"]),
    halved=st.booleans(),
)
def test_products_of_few_rows_have_the_same_bits_with_AVX512(rows, inside, outside, activation, halved):
    weight = some(outside, inside)
    product = wide.WideLinear(weight, some(outside, seed=1), activation, halved=halved)
    x = some(rows, inside, seed=2)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(machine, "INT8_LOOPS", False)
        expected = product(x)
    assert torch.equal(product(x), expected)
    weight = weight.bfloat16() if halved else weight
    exact = F.linear(x.double(), weight.double(), some(outside, seed=1).double())
    if activation == "none":
        torch.testing.assert_close(expected.double(), exact, atol=1e-4, rtol=1e-4)


def test_products_of_few_rows_do_without_int8_or_not_at_all():
    steady = INT8.unquantised
    if machine.has_int8():
        assert isinstance(linear(some(48, 32), some(48), steady), wide.WideLinear)
        x = some(5, 32)
        torch.testing.assert_close(
            linear(some(48, 32), some(48), steady)(x),
            F.linear(x, some(48, 32), some(48)),
            atol=1e-5,
            rtol=1e-5,
        )
    assert steady.precision in {"bf16", "fp32"}
