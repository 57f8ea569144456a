"""The ranker and its engine: a score depends on its pair alone; memory on the window; errors come through."""

import random
import threading

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.families import open_model
from rankhouse.models.knrm import KNRMDesign
from rankhouse.models.ranker import Engine, NeuralRanker
from rankhouse.nn import machine
from rankhouse.nn.layers.ragged import Packed, Ragged
from rankhouse.nn.machine import Compute, choose

KINDS = {
    "t5": "monot5",
    "t5_1_1": "monot5",
    "bert": "crossencoder",
    "roberta": "crossencoder",
    "deberta": "crossencoder",
    "bert_plain": "biencoder",
}


@pytest.fixture(params=KINDS)
def model(request, checkpoint):
    return open_model(f'{KINDS[request.param]}("{checkpoint(request.param)}", max_length=48)')


@pytest.mark.quick("bert", "t5")
def test_a_pair_scores_the_same_alone_in_any_batch_in_any_order(model, many, fp32):
    alone = np.concatenate([NeuralRanker(model, fp32, budget=64).score([pair]) for pair in many[:40]])
    shuffled = list(range(40))
    random.Random(0).shuffle(shuffled)
    tried = {
        "one batch": NeuralRanker(model, fp32, budget=100_000).score(many[:40]),
        "small batches": NeuralRanker(model, fp32, budget=100).score(many[:40]),
        "other neighbours": NeuralRanker(model, fp32).score(many)[:40],
        "twice": NeuralRanker(model, fp32).score(many[:40] * 2)[40:],
        "other order": NeuralRanker(model, fp32).score([many[i] for i in shuffled])[np.argsort(shuffled)],
    }
    for name, scores in tried.items():
        np.testing.assert_allclose(scores, alone, atol=1e-5, err_msg=name)


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(chosen=st.lists(st.integers(0, 119), max_size=12), budget=st.integers(1, 400))
def test_any_choice_of_pairs_gives_each_its_own_score(chosen, budget, checkpoint, many, fp32):
    model = open_cached(checkpoint)
    every = EVERY.setdefault("scores", NeuralRanker(model, fp32).score(many))
    scores = NeuralRanker(model, fp32, budget).score([many[i] for i in chosen])
    np.testing.assert_allclose(scores, every[chosen], atol=1e-5)


EVERY = {}


def open_cached(checkpoint):
    if "model" not in EVERY:
        EVERY["model"] = open_model(f'crossencoder("{checkpoint("bert")}")')
    return EVERY["model"]


@pytest.mark.quick("bert")
def test_two_threads_give_what_one_gives(model, many, fp32):
    expected = NeuralRanker(model, fp32).score(many)
    two = NeuralRanker(model, fp32._replace(threads=2), budget=256)
    np.testing.assert_allclose(two.score(many), expected, atol=1e-5)
    assert two.report.seen == len(many)


def test_nothing_gives_nothing(model, fp32):
    assert NeuralRanker(model, fp32).score([]).shape == (0,)


def test_training_after_opening_is_seen_by_the_next_ranker(checkpoint, pairs, fp32):
    model = open_model(f'crossencoder("{checkpoint("bert_one")}")')
    before = NeuralRanker(model, fp32).score(pairs)
    model.train()
    loss = model.loss(model.encode(pairs), torch.ones(len(pairs), 1))
    loss.backward()
    torch.optim.SGD(model.parameters(), 0.1).step()
    model.eval()
    with torch.inference_mode():
        expected = model(model.encode(pairs))
    after = NeuralRanker(model, fp32).score(pairs)
    np.testing.assert_allclose(after, expected, atol=2e-5)
    assert np.abs(after - before).max() > 1e-3


def test_ranking_leaves_a_model_in_training_as_it_was(model, pairs, fp32):
    model.train()
    NeuralRanker(model, fp32).score(pairs)
    assert model.training
    assert all(p.requires_grad and not p.is_inference() for p in model.parameters())


def rows_of(sizes):
    return Packed(Ragged.of([[1] * n for n in sizes]), torch.zeros(len(sizes), dtype=torch.int64))


def test_no_more_than_two_windows_are_held_at_once(fp32):
    """The engine may encode one window ahead of the one it computes: that bounds its memory."""
    encoded, most = [], []
    done = np.zeros(1)

    def encode(window):
        encoded.append(len(window))
        return rows_of([3] * len(window))

    def each(batch):
        done[0] += len(batch)
        most.append(sum(encoded) - done[0])
        return torch.zeros(len(batch))

    out = np.ones(1_000, np.float32)
    Engine(fp32, budget=60, window=50).run(list(range(1_000)), encode, each, out)
    assert not out.any()
    assert max(most) <= 2 * 50
    assert sum(encoded) == 1_000


def test_encoding_overlaps_computing(fp32):
    """The next window is encoded in another thread before the current one is through."""
    second_window, threads = threading.Event(), {}

    def encode(window):
        threads["encoding"] = threading.get_ident()
        if window[0] == 10:
            second_window.set()
        return rows_of([2] * len(window))

    def each(batch):
        threads["computing"] = threading.get_ident()
        assert second_window.wait(60)  # set by the other thread, or never
        return torch.zeros(len(batch))

    Engine(fp32, budget=1_000, window=10).run(list(range(20)), encode, each, np.empty(20, np.float32))
    assert threads["encoding"] != threads["computing"]


@pytest.mark.parametrize("threads", [1, 2])
def test_an_error_comes_through_from_either_side(threads, fp32):
    compute = fp32._replace(threads=threads)

    def fail(_):
        raise BadModel("broken on purpose")

    out = np.empty(100, np.float32)
    with pytest.raises(BadModel, match="on purpose"):
        Engine(compute, window=10).run(list(range(100)), fail, lambda b: torch.zeros(len(b)), out)
    with pytest.raises(BadModel, match="on purpose"):
        Engine(compute, window=10).run(list(range(100)), lambda w: rows_of([2] * len(w)), fail, out)


def test_where_memory_does_not_suffice_the_batch_is_halved(fp32):
    sizes = []

    def each(batch):
        if len(batch) > 3:
            raise torch.OutOfMemoryError("pretended by the test: this machine cannot run out on command")
        sizes.append(len(batch))
        return batch.lengths.float()

    engine = Engine(fp32, budget=64)
    out = np.empty(40, np.float32)
    engine.run(list(range(40)), lambda w: rows_of([i % 7 + 1 for i in w]), each, out)
    np.testing.assert_array_equal(out, np.arange(40) % 7 + 1)
    assert engine.budget < 64


def test_what_is_lost_is_counted(fp32):
    engine = Engine(fp32)
    batch = Packed(Ragged.of([[1]] * 3), torch.tensor([0, 4, 2]), None, torch.tensor([0, 1, 2]))
    engine.run([0, 1, 2], lambda _: batch, lambda b: torch.zeros(len(b)), np.empty(3, np.float32))
    assert (engine.report.seen, engine.report.truncated, engine.report.tokens_lost) == (3, 2, 6)
    assert engine.report.query_tokens_lost == 3


@pytest.mark.quick("bert", "t5")
def test_what_is_lost_of_queries_is_told_from_what_is_lost_of_passages(model, fp32):
    long, ranker = "grain " * 200, NeuralRanker(model, fp32)
    ranker.score([Pair(Query("q", "storm"), Passage("d", 0, long))])
    assert ranker.report.query_tokens_lost == 0 < ranker.report.tokens_lost
    ranker = NeuralRanker(model, fp32)
    ranker.score([Pair(Query("q", long), Passage("d", 0, "storm"))])
    assert ranker.report.query_tokens_lost == ranker.report.tokens_lost > 100


def test_batches_are_as_large_as_suits_model_and_device(checkpoint, fp32):
    words = KNRMDesign(min_count=1, width=8).fresh(["a few words"])
    encoder = open_model(f'crossencoder("{checkpoint("bert")}")')
    assert NeuralRanker(words, fp32).engine.budget > NeuralRanker(encoder, fp32).engine.budget
    assert NeuralRanker(words, fp32, budget=60).engine.budget == 60


def test_settings_are_settled_once():
    assert choose("fp32", "cpu") == Compute("fp32", torch.device("cpu"), 0)
    assert choose("bf16", "cpu", 3).threads == 3
    assert choose("auto", "cpu").precision == ("bf16" if machine.has_bf16() else "fp32")
    assert choose("bf16").dtype is torch.bfloat16


@pytest.mark.skipif(torch.cuda.is_available(), reason="says what happens without CUDA")
def test_cuda_asked_for_and_absent_is_refused():
    assert choose("auto", "auto").device.type == "cpu"
    for device in ("cuda", "cuda:1"):
        with pytest.raises(WrongUse, match="nvidia-smi"):
            choose("auto", device)


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        (("fp8",), "auto, bf16, fp32"),
        (("auto", "gpu"), "cpu"),
        (("auto", "xpu"), "not supported"),
        (("auto", "cpu", 0), "1 thread or more"),
    ],
)
def test_settings_that_are_not_known_are_refused(arguments, reason):
    with pytest.raises(WrongUse, match=reason):
        choose(*arguments)


def test_the_number_of_threads_is_put_back_after_an_error(fp32):
    def fail(_):
        raise RuntimeError("on purpose")

    with pytest.raises(RuntimeError):
        Engine(fp32._replace(threads=2)).run([0], lambda w: rows_of([2]), fail, np.empty(1, np.float32))
    assert torch.get_num_threads() == 1


@pytest.mark.parametrize("design", ["knrm", "biencoder"])
def test_texts_are_scored_as_their_pairs_and_anything_else_is_refused_in_words(checkpoint, fp32, design):
    model = KNRMDesign(min_count=1, width=8).fresh(["ships sail the sea"])
    if design == "biencoder":
        model = open_model(f'biencoder("{checkpoint("bert_plain")}", max_length=48)')
    ranker = (DenseRanker if design == "biencoder" else NeuralRanker)(model, fp32)
    texts = [("ships", "sail the sea"), ("sea", "sail")]
    pairs = [Pair(Query("q", query), Passage("d", 0, text)) for query, text in texts]
    assert ranker.score(texts).tolist() == ranker.score(pairs).tolist()
    assert ranker.score([list(texts[0])]).tolist() == ranker.score(pairs[:1]).tolist()
    named = ranker.rank("ships", {"a": "sail the sea", "b": "sail"})
    assert sorted(named.doc_ids) == ["a", "b"]
    records = [{"id": "a", "text": "sail the sea"}, {"id": 7, "text": "sail"}]
    assert sorted(ranker.rank("ships", records).doc_ids) == ["7", "a"]
    pd = pytest.importorskip("pandas")
    assert sorted(ranker.rank("ships", pd.DataFrame(records)).doc_ids) == ["7", "a"]
    assert sorted(ranker.rank("ships", pd.Series(["x", "y"], index=["a", "b"])).doc_ids) == ["a", "b"]
    for wrong in ("ab", None, [5], ["ab"], [("a",)], [("a", 5)], [(5, "a")]):
        with pytest.raises(WrongUse, match="is of type .*; give a"):
            ranker.score(wrong)
    for wrong in (None, 5, [5], {"a": None}):
        with pytest.raises(WrongUse, match="is of type .*; give a"):
            ranker.rank("ships", wrong)
    with pytest.raises(WrongUse, match="text of a hit may be an extract; give whole documents"):
        ranker.rank("ships", named)
