import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.nn.cpu import train, train_words
from rankhouse.nn.layers.kernel_pooling import (
    Kernels,
    log_counts,
    ragged_counts,
    soft_counts,
    windowed_counts,
    windowed_logs,
)
from rankhouse.nn.layers.match import cosines, unit, word_cosines

KERNELS = Kernels.usual(1e-3)


def straightforward(match, mask, kernels=KERNELS):
    """The whole tensor (n, q, p, k), as the papers write it."""
    mu, sigma = torch.tensor(kernels.centres), torch.tensor(kernels.widths)
    each = torch.exp(-((match.unsqueeze(-1) - mu) ** 2) / (2 * sigma**2))
    return each * mask[:, None, :, None]


def sample(n=3, q=4, p=9, seed=0):
    rng = torch.Generator().manual_seed(seed)
    match = torch.rand(n, q, p, generator=rng) * 2 - 1
    match[0, 0, 0] = 1.0
    lengths = torch.randint(0, p + 1, (n,), generator=rng)
    return match, torch.arange(p) < lengths[:, None]


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 4), st.integers(1, 5), st.integers(1, 30), st.integers(0, 1000))
def test_soft_counts_equal_the_sum_of_the_whole_tensor(n, q, p, seed):
    match, mask = sample(n, q, p, seed)
    torch.testing.assert_close(
        soft_counts(match, mask, KERNELS), straightforward(match, mask).sum(2), rtol=2e-5, atol=1e-6
    )


def test_gradients_equal_those_of_the_whole_tensor():
    match, mask = sample(seed=3)
    first, second = match.clone().requires_grad_(), match.clone().requires_grad_()
    weights = torch.randn(3, 4, 11)
    (soft_counts(first, mask, KERNELS) * weights).sum().backward()
    (straightforward(second, mask).sum(2) * weights).sum().backward()
    torch.testing.assert_close(first.grad, second.grad, rtol=1e-4, atol=1e-4)


def test_gradients_pass_the_numerical_check():
    match, mask = sample(2, 2, 5, seed=5)
    double = match.double().requires_grad_()
    wide = Kernels((0.9, 0.1, -0.5), (0.1, 0.2, 0.1))
    assert torch.autograd.gradcheck(lambda m: soft_counts(m, mask, wide), double)
    assert torch.autograd.gradcheck(lambda m: windowed_counts(m, mask, wide, (2, 3, 9)), double)


@settings(max_examples=30, deadline=None)
@given(st.integers(1, 20), st.lists(st.integers(1, 25), min_size=1, max_size=3), st.integers(0, 99))
def test_windows_are_slices_of_the_passage(p, sizes, seed):
    match, mask = sample(2, 3, p, seed)
    each = straightforward(match, mask)
    for size, counts in zip(sizes, windowed_counts(match, mask, KERNELS, sizes), strict=True):
        expected = torch.stack([part.sum(2) for part in each.split(size, dim=2)], dim=2)
        torch.testing.assert_close(counts, expected, rtol=2e-5, atol=1e-6)


@pytest.mark.parametrize("sizes", [(10, 20, 30), (20, 50, 150), (7, 9), (8, 24, 4000), (40,), (100,)])
@pytest.mark.parametrize("p", [1, 40, 73])
def test_logs_of_windows_have_the_values_and_gradients_of_the_whole_tensor(sizes, p):
    match, mask = sample(3, 4, p, seed=p)
    asked = torch.arange(4) < torch.tensor([[4], [0], [2]])
    first, second = match.clone().requires_grad_(), match.double().requires_grad_()
    found = windowed_logs(first, asked, mask, kernels=KERNELS, sizes=sizes)
    each, wanted = straightforward(second, mask), []
    for size in sizes:
        counts = torch.stack([part.sum(2) for part in each.split(size, dim=2)], dim=2)
        wanted.append((counts.clamp_min(1e-10).log() * asked[:, :, None, None]).sum(1))
    with torch.no_grad():
        without = windowed_logs(match, asked, mask, kernels=KERNELS, sizes=sizes)
    for logs, plain, expected in zip(found, without, wanted, strict=True):
        torch.testing.assert_close(logs, expected.float(), rtol=1e-4, atol=1e-3)
        torch.testing.assert_close(plain, expected.float(), rtol=1e-4, atol=1e-3)
    weights = [torch.randn(logs.shape) for logs in found]
    for results in (found, wanted):
        sum((logs * own).sum() for logs, own in zip(results, weights, strict=True)).backward()
    assert (first.grad - second.grad).abs().max() <= 3e-5 * second.grad.abs().max()


@pytest.mark.parametrize("learned", [True, False])
def test_kernels_are_computed_once_for_all_windows_and_for_true_words_only(learned, monkeypatch):
    if not train.fits(torch.ones(1)):
        pytest.skip("no compiled loops on this machine")
    computed, pool = [], train_words.pool

    def counted(match, lengths, kernels):
        computed.append(int(lengths.sum()))
        return pool(match, lengths, kernels)

    monkeypatch.setattr(train_words, "pool", counted)
    match, asked = (
        torch.rand(2, 3, 200, requires_grad=learned),
        torch.tensor([[True] * 3, [True, False, False]]),
    )
    passages = torch.arange(200) < torch.tensor([[200], [130]])
    windowed_logs(match, asked, passages, kernels=KERNELS, sizes=(20, 30, 50, 80))
    assert sum(computed) == 3 * 200 + 130


@pytest.mark.parametrize("sizes", [(20, 50), (8, 24, 4000), (30,)])
def test_logs_of_windows_have_the_same_bits_alone_and_padded(sizes):
    match, mask = sample(5, 4, 130, seed=7)
    asked = torch.arange(4) < torch.tensor([[4], [1], [0], [3], [2]])
    with torch.inference_mode():
        whole = windowed_logs(match, asked, mask, kernels=KERNELS, sizes=sizes)
        for pair, (q, p) in enumerate(zip(asked.sum(1).tolist(), mask.sum(1).tolist(), strict=True)):
            cut = match[pair : pair + 1, : max(1, q), : max(1, p)].contiguous()
            sides = asked[pair : pair + 1, : cut.shape[1]], mask[pair : pair + 1, : cut.shape[2]]
            for alone, beside in zip(
                windowed_logs(cut, *sides, kernels=KERNELS, sizes=sizes), whole, strict=True
            ):
                assert torch.equal(alone[0], beside[pair, : alone.shape[1]])


def test_padding_and_empty_passages_count_exactly_nothing():
    match, _ = sample()
    counts = soft_counts(match, torch.zeros(3, 9, dtype=torch.bool), KERNELS)
    assert torch.equal(counts, torch.zeros(3, 4, 11))


def test_no_count_is_a_number_too_small_for_the_processor():
    match = torch.linspace(-1, 1, 20001)[None, None]
    for k in range(11):
        kernel = Kernels((KERNELS.centres[k],), (KERNELS.widths[k],))
        values = windowed_counts(match, torch.ones(1, 20001, dtype=torch.bool), kernel, (1,))[0]
        assert values[(values != 0)].min() > np.finfo(np.float32).tiny


def test_a_zero_vector_matches_nothing():
    assert torch.equal(cosines(torch.zeros(1, 1, 4), torch.ones(1, 2, 4)), torch.zeros(1, 1, 2))


@pytest.mark.parametrize("repeat", [1, 50])
def test_looking_matches_up_equals_computing_them(repeat):
    table = torch.nn.Embedding(30, 8, padding_idx=0)
    query = torch.randint(0, 30, (1, 4)).repeat(repeat, 1)
    passage = torch.randint(0, 30, (repeat, 12))
    with torch.no_grad():
        quick = word_cosines(table, query, passage)
    torch.testing.assert_close(quick, cosines(table(query), table(passage)), rtol=1e-5, atol=1e-6)


def test_logs_have_a_floor_a_base_and_a_mask():
    counts = torch.tensor([[[8.0, 0.0], [4.0, 4.0]]])
    logs = log_counts(counts, torch.tensor([[True, False]]), base=2)
    assert logs.tolist() == [[3.0, pytest.approx(np.log2(1e-10), rel=1e-6)]]
    assert log_counts(counts, torch.tensor([[False, True]]))[0, 0] == pytest.approx(np.log(4.0))


@pytest.mark.parametrize(("storage", "tolerance"), [("float32", 1e-5), ("float16", 2e-2), ("int8", 0.4)])
def test_stored_vectors_give_the_counts_of_fresh_ones(storage, tolerance):
    rng = torch.Generator().manual_seed(1)
    lengths = [3, 0, 7, 1, 0]
    vectors = unit(torch.randn(sum(lengths), 16, generator=rng))
    query = unit(torch.randn(4, 16, generator=rng))
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    scales = np.empty(0, np.float32)
    stored = vectors.numpy().astype(storage if storage != "int8" else np.float32)
    if storage == "int8":
        scales = np.abs(stored).max(1) / 127
        stored = (stored / scales[:, None]).round().astype(np.int8)
    wide = Kernels.usual()
    counts = ragged_counts(query, stored, scales, offsets, wide)
    for i, length in enumerate(lengths):
        match = (query @ vectors[offsets[i] : offsets[i] + length].T)[None]
        expected = straightforward(match, torch.ones(1, length, dtype=torch.bool), wide).sum(2)[0]
        torch.testing.assert_close(counts[i], expected, rtol=tolerance, atol=tolerance / 10)
    assert ragged_counts(query, stored[:0], scales[:0], np.zeros(1, np.int64), wide).shape == (0, 4, 11)
    assert ragged_counts(query[:0], stored, scales, offsets, wide).shape == (5, 0, 11)
