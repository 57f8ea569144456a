"""Sparse encoders against sentence-transformers: weights, scores, every form a folder has."""

import json
import shutil

import numpy as np
import pytest
import torch

from rankhouse.core import progress
from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.explanation.methods import explain_pair
from rankhouse.hosts.sentence_transformers import save as save_as_sentence_transformers
from rankhouse.models import bundle
from rankhouse.models.checkpoint_kinds import kind_of
from rankhouse.models.encoder_rankers import SparseRanker
from rankhouse.models.families import open_model
from rankhouse.models.sparse import open_sparse

from . import tiny
from .conftest import WIDE, WORDS, edit_config, make_pairs

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
TEXTS = ["", "storm", "grain prices rose " * 30, *(pair.passage.text for pair in make_pairs(17, 5))]
NETWORKS = ["BertForMaskedLM", "DistilBertForMaskedLM", "ModernBertForMaskedLM", "RobertaForMaskedLM",
            "MPNetForMaskedLM", "DebertaV2ForMaskedLM"]  # fmt: skip


@pytest.fixture(scope="module")
def masked(tmp_path_factory):
    """From a name in transformers to a tiny language model."""
    root = tmp_path_factory.mktemp("masked")

    def make(name):
        return str(root / name if (root / name).is_dir() else tiny.masked(name, root / name))

    return make


def equals_the_library(folder, compute, model):
    theirs = library.SparseEncoder(folder, device="cpu")
    ranker = SparseRanker(model, compute)
    for ours, expected in (
        (ranker.query_weights(TEXTS), theirs.encode_query(TEXTS, convert_to_sparse_tensor=False)),
        (ranker.passage_weights(TEXTS), theirs.encode_document(TEXTS, convert_to_sparse_tensor=False)),
    ):
        assert (expected > 0).any(1)[1:].all()
        np.testing.assert_allclose(ours.toarray(), expected, atol=1e-5, rtol=1e-5)
    pairs = make_pairs(20, 6)
    queries, passages = ([side.text for side in sides] for sides in zip(*pairs, strict=True))
    expected = theirs.similarity_pairwise(theirs.encode_query(queries), theirs.encode_document(passages))
    scores = ranker.score(pairs)
    np.testing.assert_allclose(scores, expected, atol=1e-4, rtol=1e-5)
    np.testing.assert_array_equal(np.concatenate([ranker.score([pair]) for pair in pairs]), scores)
    np.testing.assert_array_equal(SparseRanker(model, compute, budget=90).score(pairs[::-1])[::-1], scores)
    with torch.inference_mode():  # as it learns: padded, in transformers' own code
        np.testing.assert_allclose(model(model.encode(pairs)), expected, atol=1e-4, rtol=1e-5)
        np.testing.assert_allclose(model.scorer(compute)(model.encode(pairs)), expected, atol=1e-4, rtol=1e-5)


@pytest.mark.quick("Bert*")
@pytest.mark.parametrize("name", NETWORKS)
def test_weights_and_scores_equal_the_library(name, masked, fp32, tmp_path):
    folder = tiny.splade(masked(name), tmp_path / "splade")
    model = bundle.load(folder)
    assert model.family == "sparse"
    equals_the_library(folder, fp32, model)
    bundle.save(model, tmp_path / "bundle")
    again = SparseRanker(bundle.load(tmp_path / "bundle"), fp32)
    np.testing.assert_array_equal(again.score(make_pairs(5)), SparseRanker(model, fp32).score(make_pairs(5)))
    save_as_sentence_transformers(again, tmp_path / "back")
    equals_the_library(str(tmp_path / "back"), fp32, bundle.load(tmp_path / "back"))


def test_a_network_that_pytorch_computes_gives_the_same_bits_in_any_batch(fp32, tmp_path):
    folder = str(tiny.masked("AlbertForMaskedLM", tmp_path, **WIDE))
    ranker = SparseRanker(open_sparse(folder), fp32)
    texts = [f"{word} grain {other}" for word in WORDS[:20] for other in WORDS[20:24]]
    alone = [ranker.passage_weights([text]).toarray()[0] for text in texts]
    np.testing.assert_array_equal(ranker.passage_weights(texts).toarray(), alone)


@pytest.mark.quick("max-log1p*")
@pytest.mark.parametrize(
    ("pooling", "activation", "table"),
    [
        ("sum", "relu", False),
        ("max", "log1p_relu", True),
        ("sum", "log1p_relu", False),
        ("max", "relu", True),
    ],
)
def test_every_pooling_and_a_table_for_queries(pooling, activation, table, masked, fp32, tmp_path):
    folder = tiny.splade(masked("BertForMaskedLM"), tmp_path / "splade", pooling, activation, table)
    model = open_sparse(folder)
    equals_the_library(folder, fp32, model)
    if table:
        bundle.save(model, tmp_path / "bundle")
        again = SparseRanker(bundle.load(tmp_path / "bundle"), fp32)
        np.testing.assert_array_equal(
            again.query_weights(TEXTS).toarray(), SparseRanker(model, fp32).query_weights(TEXTS).toarray()
        )
        save_as_sentence_transformers(again, tmp_path / "back")
        equals_the_library(str(tmp_path / "back"), fp32, model)
        equals_the_library(str(tmp_path / "back"), fp32, open_sparse(str(tmp_path / "back")))


def test_the_side_of_queries_does_not_learn_alone(masked):
    model = open_sparse(masked("BertForMaskedLM"))
    model.learn("both")
    with pytest.raises(WrongUse, match=r'tower="query": a sparse has no encoder of queries alone'):
        model.learn("query")
    assert model.asked is None


def test_a_table_reads_its_own_length_and_no_other_vocabulary(masked, fp32, tmp_path):
    folder = tiny.splade(masked("BertForMaskedLM"), tmp_path / "splade", table=True)
    assert "table_length" not in open_sparse(folder).policy  # as in older bundles: the fingerprint is theirs
    own = tmp_path / "splade" / "query_0_SparseStaticEmbedding"
    edit_config(own, {"model_max_length": 8}, "tokenizer_config.json")
    model = open_sparse(folder)
    equals_the_library(folder, fp32, model)
    assert model.encode_queries(["storm " * 20]).lengths.tolist() == [8]
    words = json.loads((own / "tokenizer.json").read_text())
    words["normalizer"]["lowercase"] = False
    (own / "tokenizer.json").write_text(json.dumps(words))
    edit_config(own, {"do_lower_case": False}, "tokenizer_config.json")
    with pytest.raises(BadModel, match="by another vocabulary than passages"):
        open_sparse(folder)


def test_settings_that_change_weights_are_refused_by_name(masked, tmp_path):
    folder = tiny.splade(masked("BertForMaskedLM"), tmp_path / "splade")
    edit_config(tmp_path / "splade", {"max_active_dims": 16}, "config_sentence_transformers.json")
    with pytest.raises(BadModel, match="keeps the 16 largest weights of a text"):
        open_sparse(folder)
    edit_config(tmp_path / "splade", {"max_active_dims": None}, "config_sentence_transformers.json")
    edit_config(tmp_path / "splade", {"query_length": 8}, "sentence_bert_config.json")
    with pytest.raises(BadModel, match="cuts queries and passages at other lengths"):
        open_sparse(folder)


def test_a_table_of_words_in_json_is_read(masked, fp32, tmp_path):
    folder = tmp_path / "splade"
    tiny.splade(masked("BertForMaskedLM"), folder, table=True)
    place = next(folder.glob("query_0_*"))
    (place / "model.safetensors").unlink()
    (place / "idf.json").write_text(json.dumps({"storm": 2.5, "grain": 0.5, "no such word": 9.0}))
    (place / "config.json").write_text(json.dumps({"path": "idf.json", "frozen": True}))
    weights = SparseRanker(open_sparse(str(folder), prompts=("", "")), fp32).query_weights(
        ["storm storm grain north"]
    )
    assert sorted(weights.data.tolist()) == [0.5, 2.5]


def test_a_bare_language_model_is_a_splade_only_where_that_is_said(masked, fp32):
    folder = masked("BertForMaskedLM")
    assert kind_of(bundle.Path(folder)).key == "masked"
    with pytest.raises(BadModel, match="if it is a SPLADE, open it as  sparse"):
        bundle.load(folder)
    ranker = SparseRanker(open_model(f'sparse("{folder}")'), fp32)
    from transformers import AutoModelForMaskedLM, AutoTokenizer

    network, tokenizer = AutoModelForMaskedLM.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        logits = network.eval()(**tokenizer("grain prices rose", return_tensors="pt")).logits[0]
    expected = logits.amax(0).relu().log1p()
    np.testing.assert_allclose(
        ranker.passage_weights(["grain prices rose"]).toarray()[0], expected, atol=1e-5
    )


def test_what_is_no_sparse_encoder_is_refused(masked, checkpoint, tmp_path):
    with pytest.raises(BadModel, match="is a cross-encoder, no sparse"):
        open_sparse(checkpoint("bert_one"))
    with pytest.raises(WrongUse, match='pooling="mean" is not known; choose from: max, sum'):
        open_sparse(masked("BertForMaskedLM"), pooling="mean")
    folder = tmp_path / "splade"
    tiny.splade(masked("BertForMaskedLM"), folder)
    with pytest.raises(BadModel, match="no biencoder"):
        open_model(f'biencoder("{folder}")')
    modules = json.loads((folder / "modules.json").read_text())
    shutil.copytree(folder, tmp_path / "third")
    third = [
        *modules,
        {"idx": 2, "name": "2", "path": "2_Own", "type": "sentence_transformers.models.SparseAutoEncoder"},
    ]
    (tmp_path / "third" / "modules.json").write_text(json.dumps(third))
    with pytest.raises(BadModel, match="a chain of Transformer, SpladePooling, SparseAutoEncoder"):
        open_sparse(str(tmp_path / "third"))
    tiny.splade(masked("BertForMaskedLM"), tmp_path / "cosine")
    edit_config(tmp_path / "cosine", {"similarity_fn_name": "cosine"}, "config_sentence_transformers.json")
    with pytest.raises(BadModel, match="compares by 'cosine'"):
        open_sparse(str(tmp_path / "cosine"))


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("modules.json", "{}"),
        ("modules.json", '[{"type": null, "path": 3}]'),
        ("modules.json", "[7]"),
        ("1_SpladePooling/config.json", "[]"),
        ("1_SpladePooling/config.json", '{"pooling_strategy": -1}'),
        ("config.json", "[]"),
        ("config_sentence_transformers.json", "[]"),
        ("config_sentence_transformers.json", '{"prompts": 7}'),
        ("sentence_bert_config.json", '{"max_seq_length": "x"}'),
        ("tokenizer.json", "{}"),
    ],
)
def test_damaged_settings_are_refused_in_words(file, content, masked, tmp_path):
    tiny.splade(masked("BertForMaskedLM"), tmp_path / "splade")
    (tmp_path / "splade" / file).write_text(content)
    for way in (str(tmp_path / "splade"), f'sparse("{tmp_path / "splade"}")'):
        with pytest.raises(BadModel, match="splade"):
            bundle.load(way) if way.startswith("/") else open_model(way)


def test_special_tokens_in_texts_stay_text(masked, fp32):
    ranker = SparseRanker(open_sparse(masked("BertForMaskedLM")), fp32)
    plain, spelled = (
        ranker.score([Pair(Query("q", "grain"), Passage("d", 0, text))]) for text in ("storm [SEP]", "storm")
    )
    assert plain != spelled
    ids = ranker.model.encode_passages(["storm [SEP]"]).ids.values.tolist()
    assert ids.count(3) == 1


@pytest.mark.parametrize("table", [False, True])
def test_a_score_is_explained_by_the_vocabulary(table, masked, fp32, tmp_path):
    ranker = SparseRanker(
        open_sparse(tiny.splade(masked("BertForMaskedLM"), tmp_path / "own", table=table)), fp32
    )
    for pair in [*make_pairs(5, 3), Pair(Query("1", "storm storm"), Passage("d", 0, "grain storm " * 60))]:
        answer = explain_pair(ranker, pair)
        assert answer.exact
        assert sum(part.value for part in answer.parts) == pytest.approx(answer.score, rel=1e-5)
        values = [part.value for part in answer.parts]
        assert values == sorted(values, reverse=True)
        for part in answer.parts[:5]:
            assert part.facts["query"] * part.facts["passage"] == pytest.approx(part.value)
        in_text = sum(part.value for part in answer.parts if "the passage" not in part.note)
        in_text -= sum(
            p.value for p in answer.parts if p.name in ("[CLS]", "[SEP]") and "passage" not in p.note
        )
        [text] = answer.texts
        assert sum(w.value for w in text.words if w.read) == pytest.approx(in_text, rel=1e-5)
    assert any("were not read" in note for note in answer.notes)


def test_progress_does_not_begin_again_with_each_part_of_the_texts(masked, fp32, tmp_path):
    ranker = SparseRanker(open_sparse(tiny.splade(masked("BertForMaskedLM"), tmp_path / "splade")), fp32)
    told = []
    with progress.part(0, 1, told.append):
        ranker.score([Pair(Query("q", "storm"), Passage(f"d{n}", 0, f"grain {n}")) for n in range(300)])
    assert told == sorted(told)
    assert len(set(told)) > 2
