"""The compiled loops of a training step against the plain formulas, in double precision where that is apt."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

from rankhouse.nn import machine
from rankhouse.nn.cpu import train, train_words
from rankhouse.nn.cpu.train_words import TextRows
from rankhouse.nn.layers import compiled, kernel_pooling
from rankhouse.nn.layers.convolve import WideFilters
from rankhouse.nn.layers.kernel_pooling import Kernels
from rankhouse.nn.layers.linear import affine, multiplies
from rankhouse.nn.layers.match import NORM_EPS, unit
from rankhouse.nn.layers.ragged import Ragged
from rankhouse.nn.layers.tk_encoder import OuterEpsNorm, TKEncoder

needs_loops = pytest.mark.skipif(not machine.TRAIN_LOOPS, reason="no compiled loops here")
SETS = ["AVX-512", "AVX2"] if machine.TRAIN_SET == "AVX-512" else [machine.TRAIN_SET or "none"]
LENGTHS = torch.tensor([5, 0, 1, 16, 17, 70])
ENDS = F.pad(LENGTHS.cumsum(0), (1, 0))


@pytest.fixture(params=SETS, autouse=True)
def instructions(request):
    """Run every test with each set of loops that this processor has."""
    if machine.TRAIN_LOOPS:
        assert train._train.choose(request.param == "AVX-512") == request.param
    yield
    if machine.TRAIN_LOOPS:
        train._train.choose(machine.TRAIN_SET == "AVX-512")


def near(ours, theirs, tolerance=1e-5):
    """Errors are measured by the largest number wanted."""
    theirs = theirs.to(ours.dtype)
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max().clamp_min(1e-6)


def plain_attention(qkv, heads, scale):
    """Row by row, in the numbers given."""
    rows = []
    for row in qkv[: int(ENDS[-1])].split(LENGTHS.tolist()):
        q, k, v = row.view(len(row), 3, heads, row.shape[1] // 3 // heads).permute(1, 2, 0, 3)
        rows.append(((q @ k.mT * scale).softmax(-1) @ v).transpose(0, 1).flatten(1))
    return torch.cat(rows)


@needs_loops
@pytest.mark.parametrize(("heads", "d"), [(16, 2), (3, 1), (2, 4), (5, 3), (1, 20)])
@pytest.mark.parametrize("spread", [1, 60])
def test_attention_and_its_gradient_equal_the_formula(heads, d, spread):
    torch.manual_seed(0)
    tokens = int(ENDS[-1]) + 3  # the last three belong to no row
    qkv, gradient = torch.randn(tokens, 3 * heads * d) * spread, torch.randn(tokens, heads * d)
    head = train.Head(ENDS, heads, 0.3)
    out, stats = train.attend(qkv, head)
    wide = qkv.double().requires_grad_()
    expected = plain_attention(wide, heads, 0.3)
    near(out[:-3], expected, 1e-5 * spread)
    assert (out[-3:] == 0).all()
    expected.backward(gradient[:-3].double())
    near(train.attend_back(gradient, qkv, head, out, stats), wide.grad, 1e-5 * spread)


@needs_loops
@pytest.mark.parametrize("width", [1, 16, 37, 300])
@pytest.mark.parametrize("outer", [True, False])
def test_layer_norm_and_its_gradient_equal_the_formula(width, outer):
    torch.manual_seed(0)
    x, gradient = torch.randn(130, width) * 3 + 1, torch.randn(130, width)
    layer = (OuterEpsNorm(width) if outer else nn.LayerNorm(width)).double()
    with torch.no_grad():
        layer.weight.normal_(), layer.bias.normal_()
    gain, shift = layer.weight.detach().float(), layer.bias.detach().float()
    kind = train.NormKind(layer.eps, outer)
    wide = x.double().requires_grad_()
    expected = layer(wide)
    expected.backward(gradient.double())
    found, stats = train.norm(x, gain, shift, kind)
    near(found, expected)
    if width > 1:  # with one column there is no deviation to go back by
        theirs = wide.grad, layer.weight.grad, layer.bias.grad
        for one, other in zip(train.norm_back(gradient, x, gain, stats, kind), theirs, strict=True):
            near(one, other)


def texts(rows, count=6, longest=20, seed=0):
    torch.manual_seed(seed)
    lengths = torch.tensor([longest, 0, 1, 3, longest - 1, 2])[:count]
    return TextRows(torch.randint(0, rows, (count, longest)), lengths)


@needs_loops
@pytest.mark.parametrize(("q", "d"), [(1, 5), (4, 16), (7, 33)])
def test_matches_by_rows_equal_products_though_both_sides_share_words(q, d):
    table = torch.randn(9, d, requires_grad=True)
    query, passage = texts(9, longest=max(q, 3), seed=1), texts(9)
    inside = [torch.arange(s.at.shape[1]) < s.lengths[:, None] for s in (query, passage)]
    wide = table.detach().double().requires_grad_()
    asked, said = (wide[s.at] * there[:, :, None] for s, there in zip((query, passage), inside, strict=True))
    weights = torch.randn(6, query.at.shape[1], 20)
    found, expected = compiled.match(table, query, passage), asked @ said.mT
    near(found, expected)
    assert (found[1] == 0).all()
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    near(table.grad, wide.grad)


def whole_kernels(match, kernels):
    """Every kernel of every similarity, in double precision: (..., p) -> (..., p, k)."""
    centres, widths = (torch.tensor(each, dtype=torch.float64) for each in kernels)
    return torch.exp(-((match.double().unsqueeze(-1) - centres) ** 2) / (2 * widths**2))


@needs_loops
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.int8])
@pytest.mark.parametrize(("q", "d"), [(1, 1), (6, 300), (9, 50), (17, 33), (5, 7)])
def test_counts_of_stored_rows_equal_the_formula(q, d, dtype):
    torch.manual_seed(0)
    offsets = torch.tensor([0, 9, 9, 10, 23])
    few, rows = unit(torch.randn(q, d)), torch.randn(23, d)
    scales = (rows.abs().amax(1) / 127) if dtype is torch.int8 else torch.rand(23)
    rows = (rows / scales[:, None]).round().to(dtype) if dtype is torch.int8 else rows.to(dtype)
    scales = scales / (rows.float() * scales[:, None]).norm(dim=1)
    match, kernels = few.double() @ rows.double().T * scales.double(), Kernels.usual()
    parts = whole_kernels(match, kernels).split(offsets.diff().tolist(), 1)
    expected = torch.stack([part.sum(1) for part in parts])
    found = compiled.count(few, rows, scales, offsets, tuple(kernels))
    assert not found[1].any()
    off = 1e-3 if dtype is torch.int8 else 1e-4  # words are rounded to 16 bits: 5e-6 of a similarity
    near(found, expected, off / 10)
    assert ((found - expected).abs() <= off * expected + 1e-30).all()
    assert compiled.count(few, rows[:0], scales[:0], offsets[:1], tuple(kernels)).shape == (
        0,
        *found.shape[1:],
    )


@needs_loops
@pytest.mark.parametrize("d", [16, 512, 513, 3000])
def test_sums_of_bytes_never_overflow(d):
    few = torch.stack([torch.full((d,), d**-0.5), torch.full((d,), -(d**-0.5)), torch.zeros(d)])
    rows, ends = torch.full((2, d), -128, dtype=torch.int8), torch.tensor([0, 1, 2])
    scales = torch.full((2,), d**-0.5 / 128)
    found = compiled.count(few, rows, scales, ends, ((-1.0, 0.0, 1.0), (0.1,) * 3))
    near(found[0], torch.eye(3)[[0, 2, 1]])
    few[0, 0] = torch.nan
    found = compiled.count(few, rows, scales, ends, ((-1.0, 0.0, 1.0), (0.1,) * 3))
    assert found[:, 0].isnan().all()
    assert not found[:, 1:].isnan().any()


@needs_loops
@pytest.mark.parametrize(("b", "q", "k"), [(1, 6, 11), (9, 3, 11), (1, 1, 40), (4, 0, 5)])
def test_weighed_counts_equal_the_formula(b, q, k):
    torch.manual_seed(0)
    counts, lengths = torch.rand(5, b, q, k) * 10 ** (torch.rand(5, b, q, k) * 16 - 13), torch.arange(5)
    log_weights, weights = torch.randn(b, k), torch.randn(b, k)
    wide = counts.double()
    expected = (wide.clamp_min(1e-10).log2().sum(2) * log_weights).flatten(1).sum(1)
    expected += (wide.sum(2) / (lengths[:, None, None] + 1) * weights).flatten(1).sum(1)
    found = kernel_pooling.weighed(counts, log_weights, weights, lengths)
    near(found, expected)
    counts[3, -1, :1, -1] = torch.nan
    assert kernel_pooling.weighed(counts, log_weights, weights, lengths).isnan().tolist() == [
        False,
        False,
        False,
        q > 0,
        False,
    ]


@needs_loops
@pytest.mark.parametrize("order", ["ff-first", "attention-first"])
@pytest.mark.parametrize(("t", "d", "heads"), [(1, 300, 16), (6, 300, 16), (30, 33, 3), (9, 7, 1)])
def test_a_short_text_alone_is_encoded_as_among_others(t, d, heads, order):
    torch.manual_seed(0)
    encoder = TKEncoder(d, heads, inner=2 * heads, feed_forward=21, layers=2, order=order)
    for weight in encoder.parameters():
        torch.nn.init.normal_(weight, std=0.3)
    words, rows = torch.randn(t, d), Ragged(torch.zeros(t, dtype=torch.int64), torch.tensor([t]))
    with torch.inference_mode():
        near(encoder.alone(words), encoder.along(words, rows))


@needs_loops
@pytest.mark.parametrize(
    "kernels",
    [
        Kernels.usual(),
        Kernels.usual(1e-3),
        Kernels((0.8, 0.4, 0.0, -0.4, -0.8), (0.3,) * 5),
        Kernels((-1.0, -0.5, 0.0, 0.5), (0.2,) * 4),
        Kernels((1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.0), (0.1,) * 7),
    ],
)
def test_kernels_computed_from_each_other_equal_those_by_the_formula(kernels):
    """Each similarity alone, also those farther from all kernels than cosines are."""
    match = torch.cat([torch.linspace(-1.1, 1.1, 221), torch.tensor([1.5, 2.0, 2.2, -2.1, 9.0, 1e4])])
    found = compiled.pool(match[:, None, None], torch.ones(len(match), dtype=torch.int64), tuple(kernels))
    expected = whole_kernels(match, kernels)
    assert ((found[:, 0] - expected).abs() <= 1e-5 * expected + 1e-33).all()


@pytest.mark.parametrize("storage", ["float16", "int8"])
def test_stored_passages_are_counted_part_by_part(storage, monkeypatch):
    rng, lengths = np.random.default_rng(0), np.array([3, 0, 40, 1, 1, 0, 9, 25, 0])
    offsets = np.concatenate([[0], lengths.cumsum()])
    vectors, scales = rng.normal(size=(offsets[-1], 20)).astype(np.float16) / 4, np.empty(0, np.float32)
    if storage == "int8":
        vectors, scales = (vectors * 127).astype(np.int8), np.full(offsets[-1], 1 / 127, np.float32)
    stored = torch.randn(5, 20), vectors, scales, offsets, Kernels.usual()
    whole = kernel_pooling.ragged_counts(*stored)
    assert not whole[lengths == 0].any()
    monkeypatch.setattr(kernel_pooling, "_ROWS", 7)
    monkeypatch.setattr(kernel_pooling, "_BLOCK", 16)
    monkeypatch.setattr(train_words, "_PRODUCTS", 20)
    threads = torch.get_num_threads()
    for number in (1, 3, 50):
        torch.set_num_threads(number)
        counts = kernel_pooling.ragged_counts(*stored)
        assert torch.get_num_threads() == number
        assert torch.equal(counts, whole)
    torch.set_num_threads(threads)


@needs_loops
def test_a_helping_thread_that_fails_is_no_silence(monkeypatch):
    """Its texts would be left with whatever stood in memory."""
    monkeypatch.setattr(train_words, "_PRODUCTS", 1)
    call, main, done = machine.call, threading.current_thread(), threading.Event()

    def call_elsewhere(*given):
        if threading.current_thread() is not main:
            done.set()
            raise MemoryError("too little memory")
        assert done.wait(60)
        return call(*given)

    monkeypatch.setattr(train_words.machine, "call", call_elsewhere)
    rows, offsets = torch.randn(90, 20), torch.arange(0, 91, 3)
    kernels = tuple(Kernels.usual())
    with pytest.raises(MemoryError, match="too little memory"):
        compiled.count(torch.randn(5, 20), rows, None, offsets, kernels=kernels, threads=2)


@needs_loops
def test_kernel_sums_equal_the_whole_tensor_of_kernels():
    torch.manual_seed(0)
    kernels = Kernels.usual(1e-3)
    match = torch.rand(3, 4, 37) * 2 - 1
    match[0, 0, :3] = torch.tensor([1.0, 0.9999, 1.0])
    match.requires_grad_()
    lengths = torch.tensor([37, 0, 18])
    wide = match.detach().double().requires_grad_()
    expected = (whole_kernels(wide, kernels) * (torch.arange(37) < lengths[:, None])[:, None, :, None]).sum(2)
    found, weights = compiled.pool(match, lengths, tuple(kernels)), torch.randn(3, 4, 11)
    near(found, expected)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    near(match.grad, wide.grad)


@needs_loops
def test_kernels_may_be_given_in_numbers_of_numpy():
    match, lengths, kernels = torch.rand(1, 2, 9), torch.tensor([9]), Kernels.usual()
    own = tuple(tuple(map(np.float64, each)) for each in kernels)
    compiled._gaussians.cache_clear()  # equal numbers are one key
    found = compiled.pool(match, lengths, own)
    compiled._gaussians.cache_clear()
    assert torch.equal(found, compiled.pool(match, lengths, tuple(kernels)))


def straight_sweep(words, weight, text, scales):
    """Convolve each text alone, zeros on both ends, and take the maximum: (n, s, f)."""
    k, out = weight.shape[1], []
    for at, length, factors in zip(text.at, text.lengths.tolist(), scales, strict=True):
        sweeps = []
        for scale in factors:
            wide = F.pad(words[at[:length]] * scale[:length, None], (0, 0, k - 1, k - 1)).T[None]
            sweeps.append(F.conv1d(wide, weight.transpose(1, 2))[0].amax(1))
        out.append(torch.stack(sweeps))
    return torch.stack(out)


@needs_loops
@pytest.mark.parametrize(("k", "f", "sweeps"), [(2, 21, 3), (3, 16, 1), (2, 5, 2)])
def test_sweeps_equal_a_convolution_of_each_text(k, f, sweeps):
    rows, text = torch.randn(9, 12), texts(9, seed=4)
    filters, scales = torch.randn(f, k, 12), torch.rand(6, sweeps, 20) - 0.5
    ours = [each.clone().requires_grad_() for each in (rows, filters, scales)]
    theirs = [each.double().requires_grad_() for each in (rows, filters, scales)]
    found = compiled.sweep(ours[0], ours[1], TextRows(*text), ours[2])
    expected = straight_sweep(theirs[0], theirs[1], text, theirs[2])
    near(found, expected)
    weights = torch.randn(6, sweeps, f)
    (found * weights).sum().backward()
    (expected * weights).sum().backward()
    for one, other in zip(ours, theirs, strict=True):
        near(one.grad, other.grad)


@needs_loops
@pytest.mark.parametrize("count", [1, 300])
def test_posts_met_by_query_words_equal_the_plain_path(count, monkeypatch):
    """Also where there are more of them than are multiplied at once."""
    torch.manual_seed(0)
    filters, lengths = WideFilters(12, 21, 2), torch.randint(0, 21, (count,))
    lengths[:1] = 20
    query = torch.randint(0, 9, (count, 3))
    passage = torch.randint(1, 9, (count, 20)) * (torch.arange(20) < lengths[:, None])
    weights = torch.randn(count, 3, 21)

    def step():
        words = torch.randn(9, 12, generator=torch.Generator().manual_seed(3))
        words[0] = 0
        words.requires_grad_()
        filters.zero_grad()
        found = filters.met(words, query, passage, lengths)
        (found * weights).sum().backward()
        return found.detach(), words.grad[1:], filters.weight.grad.clone(), filters.bias.grad.clone()

    quick = step()
    monkeypatch.setattr(machine, "TRAIN_LOOPS", False)
    for one, other in zip(quick, step(), strict=True):
        near(one, other)


@needs_loops
def test_grams_equal_convolutions_over_what_follows():
    torch.manual_seed(0)
    layers = [nn.Conv1d(6, 19, m) for m in (1, 2, 3)]
    rows, text = torch.randn(9, 6), texts(9, seed=2)
    ours, theirs = rows.clone().requires_grad_(), rows.clone().requires_grad_()
    weight = torch.cat([layer.weight.permute(2, 0, 1).flatten(0, 1) for layer in layers])
    products = affine(ours, weight).view(9, -1, 19)
    (found,) = compiled.grams(products, torch.stack([layer.bias for layer in layers]), (text,), NORM_EPS)
    inside = (torch.arange(20) < text.lengths[:, None])[:, :, None]
    words = (theirs[text.at] * inside).transpose(1, 2)
    made = [layer(F.pad(words, (0, i))).relu().transpose(1, 2) for i, layer in enumerate(layers)]
    expected = torch.stack([unit(each) for each in made], 1)
    near(found * inside[:, None], expected * inside[:, None])
    weights = torch.randn(found.shape) * inside[:, None]
    of = [ours, *(layer.weight for layer in layers), *(layer.bias for layer in layers)]
    got = torch.autograd.grad((found * weights).sum(), of)
    wanted = torch.autograd.grad((expected * weights).sum(), [theirs, *of[1:]])
    for one, other in zip(got, wanted, strict=True):
        near(one, other)


def test_an_affine_map_and_its_gradients_equal_torchs():
    torch.manual_seed(0)
    inputs = x, weight = torch.randn(3, 5, 7, requires_grad=True), torch.randn(4, 7, requires_grad=True)
    found, expected = affine(x, weight), F.linear(x, weight)
    torch.testing.assert_close(found, expected)
    weights = torch.randn(3, 5, 4)
    got, wanted = (torch.autograd.grad((y * weights).sum(), inputs) for y in (found, expected))
    for one, other in zip(got, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


def test_other_numbers_and_nothing_at_all_are_left_to_torch():
    full, empty = torch.ones(2, 3), torch.ones(0, 3)
    assert not multiplies(full, full.double())
    assert not multiplies(full, empty)
    with torch.autocast("cpu", torch.bfloat16):
        assert not train.fits(full)
    with torch.no_grad():  # scoring goes the same way: its bits do not depend on what stands beside a text
        assert train.fits(full) is machine.TRAIN_LOOPS
    assert affine(empty, full).shape == (0, 2)


@needs_loops
def test_not_a_number_is_not_hidden():
    """A training that has failed must be seen to have failed."""
    lost = torch.tensor([[0.0, 0.0], [float("nan"), 1.0], [1.0, 2.0]])
    text = TextRows(torch.tensor([[2, 1, 2]]), torch.tensor([3]))
    assert compiled.match(lost, text, text).isnan().any()
    assert compiled.sweep(lost, torch.ones(3, 2, 2), TextRows(*text)).isnan().all()
    match = torch.tensor([[[0.5, float("nan")]]])
    assert compiled.pool(match, torch.tensor([2]), tuple(Kernels.usual())).isnan().all()
    products = lost.view(3, 1, 2)
    assert compiled.grams(products, torch.zeros(1, 2), (text,), NORM_EPS)[0][0, 0, 1].isnan().any()
    qkv = torch.ones(3, 6)
    qkv[1, 2] = float("nan")
    assert train.attend(qkv, train.Head(torch.tensor([0, 3]), 1, 1.0))[0].isnan().all()
    assert train.norm(lost, torch.ones(2), torch.ones(2), train.NormKind(1e-6, True))[0][1].isnan().all()


@needs_loops
def test_what_the_loops_would_misread_is_refused():
    words, text = torch.ones(4, 3), texts(4)
    with pytest.raises(ValueError, match="rows 0 to 9 of 4"):
        compiled.match(words, text, TextRows(torch.tensor([[0, 9]] * 6), torch.full((6,), 2)))
    with pytest.raises(ValueError, match="a length of 20 in rows of 5"):
        compiled.match(words, text, TextRows(text.at[:, :5], text.lengths))
    with pytest.raises(ValueError, match="2 lengths of int64"):
        compiled.pool(torch.ones(2, 3, 4), torch.tensor([1.0, 2.0]), tuple(Kernels.usual()))
    for rows, scales, ends, message in (
        (words, None, [0, 2, 5], "texts begin at 0 and end at 5 of 4 rows"),
        (words, None, [0, 4, 3, 4], "texts begin at 0 and end at 4 of 4 rows, or overlap"),
        (words, torch.ones(3), [0, 4], r"4 rows of 1 torch.float32 were expected, \(3, 1\)"),
        (words.double(), None, [0, 4], "float64 came"),
    ):
        with pytest.raises(ValueError, match=message):
            compiled.count(words[:1], rows, scales, torch.tensor(ends), tuple(Kernels.usual()))
    with pytest.raises(ValueError, match="rows end at 9"):
        train.attend(torch.ones(4, 6), train.Head(torch.tensor([0, 9]), 1, 1.0))
    with pytest.raises(ValueError, match="float64 came"):
        train.norm(words.double(), words[0], words[0], train.NormKind(1e-6, True))


@needs_loops
@pytest.mark.slow
@pytest.mark.skipif(bool(machine.FORCED), reason="RANKHOUSE_CPU leaves instructions out already")
@pytest.mark.parametrize("forced", ["", "avx512", "avx512_vnni", "avx2_vnni", "avx2", "plain"])
def test_the_loops_in_use_are_named_with_their_reason(forced):
    told = subprocess.run(
        [sys.executable, "-c", "from rankhouse.nn.machine import in_use; print(in_use()['training'])"],
        env=os.environ | {"RANKHOUSE_CPU": forced}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    with_avx2 = machine.TRAIN_SET.replace("AVX-512", "AVX2")
    assert (
        told.stdout.strip()
        == {
            "": f"compiled loops with {machine.TRAIN_SET}",
            "avx512": f"compiled loops with {machine.TRAIN_SET} (RANKHOUSE_CPU=avx512)",
            "avx512_vnni": f"compiled loops with {machine.TRAIN_SET} (RANKHOUSE_CPU=avx512_vnni)",
            "avx2_vnni": f"compiled loops with {with_avx2} (RANKHOUSE_CPU=avx2_vnni)",
            "avx2": f"compiled loops with {with_avx2} (RANKHOUSE_CPU=avx2)",
            "plain": "PyTorch (RANKHOUSE_CPU=plain)",
        }[forced]
    )
