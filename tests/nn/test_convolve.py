import pytest
import torch
from torch.nn import functional as F

from rankhouse.nn.layers.convolve import ProductTable, WideFilters, following_sums


def straightforward(words, filters, lengths):
    """Convolve each text alone with zeros on both ends: (n, f)."""
    k = filters.weight.shape[1]
    out = []
    for text, length in zip(words, lengths.tolist(), strict=True):
        wide = F.pad(text[:length], (0, 0, k - 1, k - 1)).T[None]
        if wide.shape[2] < k:
            out.append(torch.zeros(filters.weight.shape[0]))
            continue
        places = F.conv1d(wide, filters.weight.transpose(1, 2), filters.bias)
        out.append(places[0].relu().amax(1))
    return torch.stack(out)


def sample(k, seed=0, n=4, p=7, d=5, f=6, q=3):
    torch.manual_seed(seed)
    filters = WideFilters(d, f, k)
    lengths = torch.tensor([7, 3, 1, 0])[:n]
    words = torch.randn(n, p, d) * (torch.arange(p) < lengths[:, None])[:, :, None]
    return filters, words, lengths, torch.randn(n, q, d)


def rows_of(words):
    """Every place a word of its own: (u, d) with a row of zeros first, and (n, 1, p) its row."""
    n, p, d = words.shape
    return F.pad(words.reshape(n * p, d), (0, 0, 1, 0)), torch.arange(1, n * p + 1).view(n, 1, p)


def inside(lengths, p=7):
    return (torch.arange(p) < lengths[:, None])[:, None]


def scaled_maxima(filters, words, lengths, scales):
    rows, index = rows_of(words)
    return filters.maxima(rows, index * inside(lengths), lengths, scales)


def injected_maxima(filters, words, lengths, query):
    """Every query token times every word, as rows of their own."""
    n, p, d = words.shape
    rows = F.pad((query[:, :, None] * words[:, None]).reshape(-1, d), (0, 0, 1, 0))
    index = torch.arange(1, len(rows)).view(n, -1, p)
    return filters.maxima(rows, index * inside(lengths), lengths)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_pooling_reads_each_text_to_its_true_end(k):
    filters, words, lengths, _ = sample(k)
    rows, index = rows_of(words)
    expected = straightforward(words, filters, lengths)
    torch.testing.assert_close(filters.maxima(rows, index * inside(lengths), lengths)[:, 0], expected)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_what_stands_beyond_the_end_is_not_pooled(k):
    filters, words, lengths, _ = sample(k)
    rows, index = rows_of(words)
    wider = F.pad(index * inside(lengths), (0, 3))
    found = filters.maxima(rows, wider, lengths)[:, 0]
    torch.testing.assert_close(found, straightforward(words, filters, lengths))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_scaling_products_equals_scaling_words(k):
    filters, words, lengths, _ = sample(k)
    scales = torch.rand(4, 3, 7) * 2 - 1
    expected = [straightforward(words * scales[:, i, :, None], filters, lengths) for i in range(3)]
    torch.testing.assert_close(scaled_maxima(filters, words, lengths, scales), torch.stack(expected, 1))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_injecting_query_words_equals_multiplying_posts(k):
    filters, words, lengths, query = sample(k)
    expected = [straightforward(words * query[:, i, None], filters, lengths) for i in range(3)]
    torch.testing.assert_close(injected_maxima(filters, words, lengths, query), torch.stack(expected, 1))


@pytest.mark.parametrize("k", [1, 2, 3])
def test_a_table_of_products_gives_the_same_maxima(k):
    filters, _, lengths, query = sample(k)
    vectors = torch.randn(9, 5)
    vectors[0] = 0
    at = torch.randint(1, 9, (4, 7)) * (torch.arange(7) < lengths[:, None])
    scales = torch.rand(4, 3, 7)
    with torch.no_grad():
        table = ProductTable(vectors, filters)
        plain = straightforward(vectors[at], filters, lengths)
        torch.testing.assert_close(table.maxima(at, lengths)[:, 0], plain)
        slow = filters.maxima(vectors, at[:, None], lengths, scales)
        torch.testing.assert_close(table.maxima(at, lengths, scales), slow)
        assert table.rows == len(at.unique())
        assert table.maxima(at[:0], lengths[:0], scales[:0]).shape == (0, 3, len(filters.bias))
        injected = ProductTable(vectors, filters, factor=query[0, 0])
        plain = straightforward(vectors[at] * query[0, 0], filters, lengths)
        torch.testing.assert_close(injected.maxima(at, lengths)[:, 0], plain)


@pytest.mark.parametrize("k", [1, 2, 3])
@pytest.mark.parametrize("padding", [0, 2])
def test_sums_of_following_words_equal_a_padded_convolution(k, padding):
    torch.manual_seed(0)
    words, layer = torch.nn.Embedding(9, 5, padding_idx=0), torch.nn.Conv1d(5, 6, k)
    ids = F.pad(torch.randint(1, 9, (3, 4)), (0, padding))
    with torch.no_grad():
        expected = layer(F.pad(words(ids).transpose(1, 2), (0, k - 1))).transpose(1, 2)
        torch.testing.assert_close(following_sums(words, layer, ids), expected)


@pytest.mark.parametrize("k", [1, 2, 3])
def test_gradients_equal_those_of_the_plain_convolution(k):
    filters, words, lengths, query = sample(k, seed=2)
    scales = (torch.rand(4, 3, 7) * 2 - 1).requires_grad_()
    words.requires_grad_()
    query.requires_grad_()
    weights = torch.randn(4, 3, 6)
    inputs = [words, query, scales, filters.weight, filters.bias]

    def plain():
        scaled = [straightforward(words * scales[:, i, :, None], filters, lengths) for i in range(3)]
        injected = [straightforward(words * query[:, i, None], filters, lengths) for i in range(3)]
        return (torch.stack(scaled, 1) * weights).sum() + (torch.stack(injected, 1) * weights**2).sum()

    def quick():
        scaled = scaled_maxima(filters, words, lengths, scales)
        injected = injected_maxima(filters, words, lengths, query)
        return (scaled * weights).sum() + (injected * weights**2).sum()

    used = inside(lengths)
    for ours, theirs in zip(
        torch.autograd.grad(quick(), inputs), torch.autograd.grad(plain(), inputs), strict=True
    ):
        # Gradients of padding are never used: its rows are masked.
        mask = used.transpose(1, 2) if ours.shape == words.shape else used
        mask = mask if ours.shape in {words.shape, scales.shape} else torch.ones(())
        torch.testing.assert_close(ours * mask, theirs * mask, rtol=1e-4, atol=1e-5)
        assert theirs.abs().sum() > 0
