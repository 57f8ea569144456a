"""A pair's score has the same bits in any batch, order, budget, number of pairs and of threads."""

import random
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.cedr_design import CEDRDesign
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.drmm import DRMMDesign
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.knrm import ConvKNRMDesign, KNRMDesign
from rankhouse.models.matchpyramid import MatchPyramidDesign
from rankhouse.models.monot5 import open_monot5
from rankhouse.models.mp_hcnn import MPHCNNDesign
from rankhouse.models.pacrr import PACRRDesign
from rankhouse.models.ranker import NeuralRanker
from rankhouse.models.samcnn import SamCNNDesign
from rankhouse.models.tk import TKDesign
from rankhouse.nn import machine
from rankhouse.nn.layers import linear as linear_layer
from rankhouse.nn.layers.linear import Linear, PerHead, multiply, row_sums
from rankhouse.nn.machine import Compute

CPU = torch.device("cpu")
READ = {"words": "whitespace(lower=True)", "min_count": 1, "width": 50}
DESIGNS = {
    "knrm": KNRMDesign(**READ),
    "conv_knrm": ConvKNRMDesign(**READ),
    "tk": TKDesign(**READ),
    "tk attention-first": TKDesign(order="attention-first", **READ),
    "tk windows": TKDesign(windows=(20, 50), passage_length=300, **READ),
    "drmm": DRMMDesign(**READ),
    "pacrr": PACRRDesign(**READ),
    "pacrr_drmm": PACRRDesign(aggregate="terms", **READ),
    "matchpyramid": MatchPyramidDesign(**READ),
    "matchpyramid dot": MatchPyramidDesign(similarity="dot", **READ),
    "samcnn": SamCNNDesign(**READ),
    "samcnn query": SamCNNDesign(attention="query", **READ),
    "samcnn position": SamCNNDesign(attention="position", overlap=True, **READ),
    "mp_hcnn": MPHCNNDesign(**READ),
}


def open_cedr(head, folder):
    return CEDRDesign(folder, head).fresh([], seed=1)


OPENED = {
    "cross-encoder": (open_crossencoder, "wide_bert", NeuralRanker),
    "cross-encoder, narrow": (open_crossencoder, "bert", NeuralRanker),
    "cross-encoder, ELECTRA": (open_crossencoder, "wide_electra", NeuralRanker),
    "cross-encoder, ModernBERT": (open_crossencoder, "wide_modernbert", NeuralRanker),
    "cross-encoder, MPNet": (open_crossencoder, "wide_mpnet", NeuralRanker),
    "cross-encoder, by length": (open_crossencoder, "deberta", NeuralRanker),
    **{
        f"CEDR-{head}": (partial(open_cedr, head), "wide_bert", NeuralRanker)
        for head in ("knrm", "pacrr", "drmm")
    },
    "cross-encoder, similarity": (
        partial(open_crossencoder, new_head="similarity"),
        "wide_bert",
        NeuralRanker,
    ),
    "monoT5": (open_monot5, "wide_t5", NeuralRanker),
    "monoT5 1.1": (open_monot5, "wide_t5_1_1", NeuralRanker),
    "bi-encoder": (open_biencoder, "wide_bert_encoder", DenseRanker),
}
ONLY_PLAIN = ("cross-encoder, narrow", "cross-encoder, by length")


def worded(n=90, seed=0):
    """Pairs of queries of 1 to 9 words and passages of 0 to 150."""
    rng = random.Random(seed)

    def text(words):
        return " ".join(f"w{int(rng.paretovariate(0.6)) % 900}" for _ in range(words))

    queries = [Query(f"q{i}", text(words)) for i, words in enumerate((1, 2, 3, 3, 5, 9))]
    lengths = [0, 1, 2, *(rng.randint(3, 150) for _ in range(n - 3))]
    return [Pair(rng.choice(queries), Passage(f"d{i}", 0, text(words))) for i, words in enumerate(lengths)]


def assert_same_in_any_company(make, pairs):
    """Score pairs alone, in random parts and orders, by large and small batches and by two threads."""
    whole = make(1, 0).score(pairs)
    rng = random.Random(1)
    for size, budget, threads in ((1, 0, 1), (1, 0, 1), (1, 0, 1), (2, 0, 1), (7, 0, 1), (40, 0, 1),
                                  (len(pairs), 0, 1), (len(pairs), 260, 1), (len(pairs), 20_000, 1),
                                  (len(pairs), 0, 2)):  # fmt: skip
        rows = rng.sample(range(len(pairs)), size)
        assert np.array_equal(make(threads, budget).score([pairs[i] for i in rows]), whole[rows]), (
            f"{size} pairs, budget {budget}, {threads} threads"
        )
    ranker = make(2, 0)
    parts = [ranker.model.encode(pairs[start : start + 17]) for start in range(0, len(pairs), 17)]
    assert np.array_equal(ranker.score_encoded(type(parts[0]).join(parts)), whole)


@pytest.mark.quick("[!m]*-True", "knrm-*", "samcnn-*")
@pytest.mark.parametrize("compiled", [True, False])
@pytest.mark.parametrize("family", DESIGNS)
def test_a_word_level_score_has_the_same_bits_in_any_company(family, compiled, monkeypatch):
    if compiled and not machine.TRAIN_LOOPS:
        pytest.skip("the compiled loops are not here")
    monkeypatch.setattr(machine, "TRAIN_LOOPS", compiled)
    pairs = worded()
    model = DESIGNS[family].fresh([p.passage.text for p in pairs] + [p.query.text for p in pairs], seed=1)
    assert_same_in_any_company(
        lambda threads, budget: NeuralRanker(model.eval(), Compute("fp32", CPU, threads), budget), pairs
    )


@pytest.mark.quick("bi-encoder-fp32", "bi-encoder-int8", "monoT5 1.1-int8", "cross-encoder-fp32")
@pytest.mark.parametrize("precision", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize("kind", OPENED)
def test_a_transformers_score_has_the_same_bits_in_any_company(kind, precision, checkpoint, many):
    if precision == "int8" and (kind in ONLY_PLAIN or not machine.has_int8()):
        pytest.skip("no int8 for this")
    opened, name, ranker = OPENED[kind]
    model = opened(checkpoint(name))
    assert_same_in_any_company(
        lambda threads, budget: ranker(model, Compute(precision, CPU, threads), budget),
        many[:80],
    )


@pytest.mark.parametrize("storage", ["float32", "float16", "int8"])
@pytest.mark.parametrize("family", ["tk", "tk windows", "conv_knrm", "knrm"])
def test_a_stored_passages_score_has_the_same_bits_in_any_company(family, storage):
    pairs = worded()
    texts = [pair.passage.text for pair in pairs]
    model = DESIGNS[family].fresh(texts, seed=1)
    query = pairs[-1].query.text
    whole = model.score_stored(query, model.store_passages(texts, storage))
    rng = random.Random(2)
    for size in (1, 1, 2, 5, 40, len(texts)):
        rows = rng.sample(range(len(texts)), size)
        some = model.store_passages([texts[i] for i in rows], storage)
        assert np.array_equal(model.score_stored(query, some), whole[rows])


@settings(max_examples=40)
@given(
    rows=st.integers(1, 700),
    inside=st.sampled_from([11, 32, 300, 384, 768, 1536]),
    outside=st.sampled_from([1, 2, 48, 384]),
    precision=st.sampled_from(["fp32", "bf16"]),
)
def test_a_row_of_a_product_does_not_depend_on_the_rows_beside_it(rows, inside, outside, precision):
    torch.manual_seed(0)
    compute = Compute(precision, CPU, 1)
    layer = Linear(torch.randn(outside, inside), torch.randn(outside), compute)
    x = torch.randn(900, inside, dtype=compute.dtype)
    assert torch.equal(layer(x[90 : 90 + rows].clone()), layer(x)[90 : 90 + rows])


@given(rows=st.integers(1, 90), columns=st.integers(1, 90), inside=st.sampled_from([2, 11, 100, 300]))
def test_a_number_of_a_product_does_not_depend_on_rows_or_columns_beside_it(rows, columns, inside):
    torch.manual_seed(0)
    x, weight = torch.randn(100, inside), torch.randn(100, inside)
    part = multiply(x[5 : 5 + rows].clone(), weight[3 : 3 + columns].clone())
    assert torch.equal(part, multiply(x, weight)[5 : 5 + rows, 3 : 3 + columns])


@given(rows=st.integers(1, 40), precision=st.sampled_from(["fp32", "bf16"]))
def test_a_head_does_not_depend_on_the_rows_beside_it(rows, precision):
    torch.manual_seed(0)
    compute = Compute(precision, CPU, 1)
    heads = PerHead(torch.randn(4, 96, 32), compute)
    x = torch.randn(60, 4, 32, dtype=compute.dtype)
    assert torch.equal(heads(x[7 : 7 + rows]), heads(x)[7 : 7 + rows])
    plain = torch.einsum("nhi,hoi->nho", x.float(), heads._weight.float().transpose(1, 2))
    torch.testing.assert_close(heads(x).float(), plain, rtol=0.02, atol=0.05)


@given(rows=st.integers(1, 40), places=st.integers(1, 300), more=st.integers(0, 200))
def test_zeros_behind_a_row_do_not_change_its_sum(rows, places, more):
    torch.manual_seed(0)
    x = torch.rand(rows, places)
    with torch.inference_mode():
        assert_sums_stay(x, more)


def assert_sums_stay(x, more):
    sums = row_sums(x)
    assert torch.equal(row_sums(torch.nn.functional.pad(x, (0, more))), sums)
    assert torch.equal(row_sums(x[:1]), sums[:1])
    torch.testing.assert_close(sums, x.sum(1))


@pytest.mark.parametrize("is_x86", sorted({linear_layer._IS_X86, False}))
def test_a_products_row_has_the_same_bits_beside_any_number_of_rows(is_x86, monkeypatch):
    """ARM's kernels sum the rows that are left over from groups of 6 or 8 in another order."""
    monkeypatch.setattr(linear_layer, "_IS_X86", is_x86)
    rng = torch.Generator().manual_seed(0)
    x, weight = torch.randn(100, 40, generator=rng), torch.randn(24, 40, generator=rng)
    with torch.inference_mode():
        layer = linear_layer.linear(weight, None, Compute("fp32", CPU, 1))
        whole = linear_layer.multiply(x, weight), layer(x)
        torch.testing.assert_close(whole[0], x @ weight.T)
        for count in (*range(1, 27), 64, 99):
            few = linear_layer.multiply(x[:count], weight), layer(x[:count])
            assert all(torch.equal(a, b[:count]) for a, b in zip(few, whole, strict=True)), count
            if count <= len(weight):
                narrow = linear_layer.multiply(x, weight[:count])
                assert narrow.is_contiguous()  # the compiled loops take nothing else
                assert torch.equal(narrow, whole[0][:, :count]), count
