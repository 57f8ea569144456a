"""Late interaction against sentence-transformers, which reads the same three forms of checkpoints."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.explanation.methods import explain_pair
from rankhouse.hosts.sentence_transformers import save as save_as_sentence_transformers
from rankhouse.models import bundle
from rankhouse.models.colbert_checkpoint import open_colbert
from rankhouse.models.families import open_model
from rankhouse.models.ranker import NeuralRanker

from .conftest import edit_config, make_pairs
from .tiny import native, pylate, stanford, with_marks

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
pytest.importorskip("sentence_transformers.multi_vector_encoder", reason="the yardstick is too old")
TEXTS = [
    "",
    "storm",
    "storm, harbour.",
    "grain prices rose " * 30,
    *(p.passage.text for p in make_pairs(12, 5)),
]
NETWORKS = ["BertModel", "DistilBertModel", "ModernBertModel", "MPNetModel"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """From a name in transformers to a tiny encoder whose vocabulary has ColBERT's marks."""
    root = tmp_path_factory.mktemp("plain")
    return lambda name: with_marks(name, root / name) if not (root / name).is_dir() else root / name


def equals_the_library(folder, compute):
    theirs = library.MultiVectorEncoder(str(folder), device="cpu")
    model = open_colbert(str(folder))
    with torch.inference_mode():
        for side, read, asked in ((theirs.encode_query, model.encode_queries, True),
                                  (theirs.encode_document, model.encode_passages, False)):  # fmt: skip
            expected = side(TEXTS, convert_to_numpy=True, show_progress_bar=False)
            ours = model._scorer_of(compute, query=asked)(read(TEXTS))
            for own, other in zip(ours.rows(), expected, strict=True):
                np.testing.assert_allclose(own, other, atol=1e-5)
    pairs = make_pairs(25, 6)
    sides = [[side.text for side in part] for part in zip(*pairs, strict=True)]
    expected = theirs.similarity_pairwise(
        theirs.encode_query(sides[0]), theirs.encode_document(sides[1])
    ).numpy()
    assert np.ptp(expected) > 0.1
    scores = NeuralRanker(model, compute).score(pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-4)
    alone = np.concatenate([NeuralRanker(model, compute).score([pair]) for pair in pairs])
    np.testing.assert_array_equal(alone, scores)
    for ranker in (
        NeuralRanker(model, compute, budget=100),
        NeuralRanker(model, compute._replace(threads=2)),
    ):
        np.testing.assert_array_equal(ranker.score(pairs[::-1])[::-1], scores)
    batch = model.encode(pairs)
    torch.testing.assert_close(model(batch), torch.from_numpy(scores), atol=1e-4, rtol=1e-5)  # as it learns
    loss = model.loss(model.encode(pairs[:6]), torch.ones(3, 2))
    loss.backward()
    assert all(weight.grad is not None for weight in model.dense.parameters())
    return model


EXPANSION = {"strategy": "fixed", "length": 16}


@pytest.mark.quick("BertModel")
@pytest.mark.parametrize("name", NETWORKS)
def test_vectors_and_scores_equal_the_library(name, plain, fp32, tmp_path):
    native(plain(name), tmp_path / "own", EXPANSION, skiplist_words=[".", ","])
    model = equals_the_library(tmp_path / "own", fp32)
    bundle.save(model, tmp_path / "bundle")
    again = NeuralRanker(bundle.load(tmp_path / "bundle"), fp32).score(make_pairs(6))
    np.testing.assert_array_equal(
        again, NeuralRanker(bundle.load(tmp_path / "own"), fp32).score(make_pairs(6))
    )


@pytest.mark.quick("None*")
@pytest.mark.parametrize(
    ("expansion", "mask", "more"),
    [
        (None, {}, {}),
        (
            EXPANSION | {"attend": True},
            {"skiplist_words": ["."], "skiplist_tasks": ["query", "document"]},
            {},
        ),
        ({"strategy": "min", "length": 8}, {}, {"similarity": "meanmaxsim"}),
        (EXPANSION, {}, {"prompts": ("storm: ", "")}),
    ],
)
def test_every_way_to_fill_queries_up(expansion, mask, more, plain, fp32, tmp_path):
    native(plain("BertModel"), tmp_path / "own", expansion, **more, **mask)
    equals_the_library(tmp_path / "own", fp32)


@pytest.mark.parametrize(
    "said", [{}, {"attend_to_mask_tokens": True, "mask_punctuation": False, "query_maxlen": 24}]
)
def test_stanfords_form(said, plain, fp32, tmp_path):
    stanford(plain("BertModel"), tmp_path / "own", **said)
    ranker = NeuralRanker(equals_the_library(tmp_path / "own", fp32), fp32)
    save_as_sentence_transformers(ranker, tmp_path / "back")
    again = NeuralRanker(equals_the_library(tmp_path / "back", fp32), fp32)
    np.testing.assert_array_equal(again.score(make_pairs(9)), ranker.score(make_pairs(9)))


@pytest.mark.quick("BertModel-said0")
@pytest.mark.parametrize(
    ("name", "said"),
    [("BertModel", {}),
     ("ModernBertModel", {"attend_to_expansion_tokens": True, "skiplist_words": ["storm"]}),
     ("BertModel", {"prompts": {"query": "[unused0] storm ", "document": "grain "},
                    "query_prefix": "[unused0] "}),
     ("BertModel", {"do_query_expansion": False, "query_prefix": "[Q] ", "skiplist_words": None})],
)  # fmt: skip
def test_pylates_form(name, said, plain, fp32, tmp_path):
    pylate(plain(name), tmp_path / "own", **said)
    ranker = NeuralRanker(equals_the_library(tmp_path / "own", fp32), fp32)
    assert ranker.model.policy["similarity"] == "MaxSim"  # the fingerprint, too, is that of older bundles
    save_as_sentence_transformers(ranker, tmp_path / "back")
    equals_the_library(tmp_path / "back", fp32)
    edit_config(tmp_path / "own", {"similarity_fn_name": "XTR"}, "config_sentence_transformers.json")
    with pytest.raises(BadModel, match="compares by 'XTR'; read here are maxsim and meanmaxsim"):
        open_colbert(str(tmp_path / "own"))


@pytest.mark.parametrize(("storage", "near"), [("float32", 1e-5), ("float16", 0.02), ("int8", 0.1)])
def test_stored_passages_score_as_brute_force_does(storage, near, plain, fp32, tmp_path):
    stanford(plain("BertModel"), tmp_path / "own")
    model = open_colbert(str(tmp_path / "own"))
    texts = [pair.passage.text for pair in make_pairs(60, 9)]
    rows = model.store_passages(texts, storage)
    values = rows.values.astype(np.float64) * (rows.scales[:, None] if len(rows.scales) else 1)
    query = (
        model.token_vectors(model.encode_queries(["grain harbour"]), query=True)
        .values.detach()
        .double()
        .numpy()
    )
    parts = np.split(values @ query.T, rows.offsets[1:-1])
    exact = np.array([part.max(0).sum() for part in parts])
    stored = model.score_stored("grain harbour", rows)
    np.testing.assert_allclose(stored, exact, atol=1e-4)
    pairs = [Pair(Query("q", "grain harbour"), Passage("d", 0, text)) for text in texts]
    np.testing.assert_allclose(stored, NeuralRanker(model, fp32).score(pairs), atol=near)
    assert rows.values.itemsize * rows.values.shape[1] + 4 * bool(len(rows.scales)) <= {"int8": 20}.get(
        storage, 64
    )


def test_what_is_no_late_interaction_model_is_refused(plain, checkpoint, tmp_path):
    with pytest.raises(BadModel, match="is a cross-encoder, no colbert"):
        open_colbert(checkpoint("bert_one"))
    stanford(plain("BertModel"), tmp_path / "own")
    with pytest.raises(BadModel, match="is a ColBERT checkpoint .*, no biencoder"):
        open_model(f'biencoder("{tmp_path / "own"}")')
    weights = load_file(tmp_path / "own" / "model.safetensors")
    del weights["linear.weight"]
    save_file(weights, tmp_path / "own" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadModel, match='holds no tensor "linear.weight"'):
        open_colbert(str(tmp_path / "own"))
    native(plain("BertModel"), tmp_path / "pictures", EXPANSION, keep_only_token_ids=[5])
    with pytest.raises(BadModel, match="tokens of pictures only"):
        open_colbert(str(tmp_path / "pictures"))
    stanford(plain("BertModel"), tmp_path / "l2", similarity="l2")
    with pytest.raises(BadModel, match="compares by 'l2'"):
        open_colbert(str(tmp_path / "l2"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", "{}"),
        ("modules.json", "[7]"),
        ("2_MultiVectorMask/config.json", "[]"),
        ("1_Dense/config.json", "[]"),
        ("config_sentence_transformers.json", '{"prompts": 7}'),
        ("sentence_bert_config.json", '{"query_length": "x"}'),
        ("artifact.metadata", '{"query_maxlen": "x"}'),
        ("artifact.metadata", "[]"),
    ],
)
def test_damaged_settings_are_refused_in_words(file, content, plain, tmp_path):
    if file == "artifact.metadata":
        stanford(plain("BertModel"), tmp_path / "late")
    else:
        native(plain("BertModel"), tmp_path / "late", EXPANSION)
    (tmp_path / "late" / file).write_text(content)
    with pytest.raises(BadModel, match="late"):
        open_model(f'colbert("{tmp_path / "late"}")')


@pytest.mark.quick("None-maxsim", "expansion1-meanmaxsim")
@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
@pytest.mark.parametrize("expansion", [None, EXPANSION])
def test_each_word_of_a_query_is_explained_by_what_it_matches(similarity, expansion, plain, fp32, tmp_path):
    own = {"similarity": similarity, "skiplist_words": [".", ","], "skiplist_tasks": ["query", "document"]}
    native(plain("BertModel"), tmp_path / "own", expansion, **own)
    ranker = NeuralRanker(open_colbert(str(tmp_path / "own")), fp32)
    for pair in [*make_pairs(5, 3), Pair(Query("1", "storm, storm"), Passage("d", 0, "grain " * 80))]:
        answer = explain_pair(ranker, pair)
        assert answer.exact
        assert answer.score == ranker.score([pair])[0]
        assert sum(part.value for part in answer.parts) == pytest.approx(answer.score, abs=1e-5)
        [text] = answer.texts
        by_word = sum(word.value for word in text.words if word.read)
        to_words = {part.name: part.value for part in answer.parts}
        assert len(answer.query_words) == len([p for p in to_words if p not in ("prompt", "special tokens")])
        assert abs(by_word) <= sum(abs(value) for value in to_words.values()) + 1e-5
        [cosines] = answer.grids
        assert cosines.values.shape == (len(answer.query_words), len([w for w in text.words if w.read]))
    assert [part.name for part in answer.parts][:3] == ["storm", ",", "storm (2nd)"]
    assert any("were not read" in note for note in answer.notes)


def test_a_word_that_is_left_out_of_a_query_is_said_to_be(plain, fp32, tmp_path):
    own = {"skiplist_words": [","], "skiplist_tasks": ["query", "document"]}
    native(plain("BertModel"), tmp_path / "own", None, **own)
    ranker = NeuralRanker(open_colbert(str(tmp_path / "own")), fp32)
    answer = explain_pair(ranker, Pair(Query("1", "storm , grain"), Passage("d", 0, "storm, harbour")))
    notes = {part.name: part.note for part in answer.parts}
    assert notes[","] == "is left out"
    assert notes["storm"].startswith("matches ")


@pytest.mark.parametrize("said", [{}, {"prompts": {"query": "harbour: ", "document": "grain "}}])
def test_tokens_of_an_encoder_of_means_are_compared_untrained(checkpoint, fp32, tmp_path, said):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    reader = Transformer(str(checkpoint("bert_plain")), max_seq_length=40)
    theirs = SentenceTransformer(
        modules=[reader, Pooling(reader.get_embedding_dimension(), "mean")], device="cpu", **said
    )
    theirs.save_pretrained(str(tmp_path / "own"))
    with pytest.raises(BadModel, match="no colbert"):
        open_colbert(str(tmp_path / "own"))
    model = open_colbert(str(tmp_path / "own"), from_encoder=True)
    sides = [[side.text for side in part] for part in zip(*make_pairs(20, 6), strict=True)]
    vectors = [
        [
            torch.nn.functional.normalize(one, dim=1)
            for one in encode(texts, output_value="token_embeddings", show_progress_bar=False)
        ]
        for encode, texts in zip((theirs.encode_query, theirs.encode_document), sides, strict=True)
    ]
    expected = [
        float((query[1:-1] @ passage.T).amax(1).mean()) for query, passage in zip(*vectors, strict=True)
    ]
    assert np.ptp(expected) > 0.01
    ranker = NeuralRanker(model, fp32)
    np.testing.assert_allclose(ranker.score(make_pairs(20, 6)), expected, atol=1e-5)
    assert said or ranker.score([("", "grain")]).tolist() == [0.0]  # no token of the question counts
    ranker.save(tmp_path / "bundle")
    again = bundle.open_ranker(str(tmp_path / "bundle"), fp32)
    np.testing.assert_array_equal(again.score(make_pairs(20, 6)), ranker.score(make_pairs(20, 6)))
    shown = model.matches("storm harbour", "the harbour", fp32)
    assert shown.is_mean
    assert shown.asked.tolist()[0] is shown.asked.tolist()[-1] is False
    assert shown.read.all()


@pytest.mark.parametrize("pooling", ["cls", "max"])
def test_vectors_of_tokens_that_make_no_mean_are_not_compared(checkpoint, tmp_path, pooling):
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer

    reader = Transformer(str(checkpoint("bert_plain")))
    modules = [reader, Pooling(reader.get_embedding_dimension(), pooling)]
    SentenceTransformer(modules=modules, device="cpu").save_pretrained(str(tmp_path / "own"))
    with pytest.raises(BadModel, match="otherwise than as the mean of its tokens' vectors"):
        open_colbert(str(tmp_path / "own"), from_encoder=True)
    with pytest.raises(BadModel, match="is a cross-encoder"):
        open_colbert(checkpoint("bert_one"), from_encoder=True)
