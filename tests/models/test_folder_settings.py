"""What folders of sentence-transformers say besides modules: followed as the library does, or refused."""

import json
import shutil

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.hosts.sentence_transformers import save as save_as_sentence_transformers
from rankhouse.models import bundle
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.causal import open_causal
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.encoder_rankers import DenseRanker

from . import tiny
from .conftest import edit_config, make_pairs
from .test_causal import CHAT
from .test_modules import TEXTS, equals_the_library, network

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
SETTINGS = "config_sentence_transformers.json"
TRANSFORMER = "sentence_bert_config.json"


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """From a kind of encoder to a folder that the library saved."""
    from sentence_transformers.sentence_transformer import modules

    root, made = tmp_path_factory.mktemp("saved"), {}

    def make(kind="bert"):
        if kind not in made:
            plain, made[kind] = network(kind, root / f"{kind}_plain"), root / kind
            parts = [modules.Transformer(plain), modules.Pooling(32), modules.Normalize()]
            library.SentenceTransformer(modules=parts, device="cpu").save_pretrained(str(made[kind]))
        return made[kind]

    return make


@pytest.mark.quick("dot")
@pytest.mark.parametrize("similarity", ["cosine", "dot"])
def test_vectors_are_cut_to_their_first_numbers(similarity, saved, fp32, tmp_path):
    copy = shutil.copytree(saved(), tmp_path / "copy")
    edit_config(copy, {"truncate_dim": 12, "similarity_fn_name": similarity}, SETTINGS)
    ranker = DenseRanker(equals_the_library(copy, fp32), fp32)
    assert ranker.encode_queries(["storm"]).shape == (1, 12)
    save_as_sentence_transformers(ranker, tmp_path / "back")
    equals_the_library(tmp_path / "back", fp32)
    again = bundle.open_ranker(str(ranker.save(tmp_path / "bundle")), fp32)
    np.testing.assert_array_equal(again.encode_queries(TEXTS), ranker.encode_queries(TEXTS))


@pytest.mark.parametrize(
    "prompts",
    [
        {"query": "", "document": "grain "},
        {"query": "storm ", "document": ""},
        {"query": None, "document": None},
        {"document": "grain ", "passage": "storm "},
    ],
)
def test_an_empty_prompt_of_a_side_is_not_the_default_one(prompts, saved, fp32, tmp_path):
    copy = shutil.copytree(saved(), tmp_path / "copy")
    said = json.loads((copy / SETTINGS).read_text())
    said |= {"prompts": {"query": ""} | prompts | {"web": "harbour "}, "default_prompt_name": "web"}
    (copy / SETTINGS).write_text(json.dumps(said))
    equals_the_library(copy, fp32)


def test_a_decoder_that_reads_both_ways_is_computed_so(saved, fp32, tmp_path):
    causal = DenseRanker(open_biencoder(str(saved("qwen3"))), fp32).encode_passages(TEXTS)
    copy = shutil.copytree(saved("qwen3"), tmp_path / "copy")
    edit_config(copy, {"is_causal": False})
    model = equals_the_library(copy, fp32)
    assert np.abs(DenseRanker(model, fp32).encode_passages(TEXTS) - causal).max() > 0.01


def test_mpnet_counts_positions_from_its_own_padding(saved, fp32, tmp_path):
    copy = shutil.copytree(saved("mpnet"), tmp_path / "copy")
    for number in (0, 1):
        edit_config(copy, {"pad_token_id": number})
        model = open_biencoder(str(copy))
        assert model.policy["max_length"] == 64
        theirs = library.SentenceTransformer(str(copy), device="cpu")
        texts = ["storm", "grain zzz prices", "grain prices rose " * 30]
        expected = np.concatenate([theirs.encode([text], show_progress_bar=False) for text in texts])
        np.testing.assert_allclose(DenseRanker(model, fp32).encode_passages(texts), expected, atol=1e-5)


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"processing_kwargs": {"text": {"add_special_tokens": False}}}, "add_special_tokens"),
        ({"config_args": {"is_causal": False}}, "is_causal"),
        ({"modality_config": {"text": {"method_output_name": "pooler_output"}}}, "pooler_output"),
        ({"modality_config": {"message": {}}}, "chat template"),
        ({"transformer_task": "fill-mask"}, "fill-mask"),
    ],
)
def test_settings_of_a_transformer_that_change_vectors_are_refused(said, why, saved, tmp_path):
    copy = shutil.copytree(saved(), tmp_path / "copy")
    edit_config(copy, said, TRANSFORMER)
    with pytest.raises(BadModel, match=f"cannot be computed here.*{why}"):
        open_biencoder(str(copy))
    edit_config(copy, dict.fromkeys(said), TRANSFORMER)
    harmless = {"model_args": {"torch_dtype": "bfloat16", "add_pooling_layer": False}, "unpad_inputs": False}
    edit_config(copy, harmless, TRANSFORMER)
    assert open_biencoder(str(copy))


def uncased(folder, **said):
    """Let a folder's tokenizer keep the case of texts, and its Transformer module say this."""
    path = folder / "tokenizer.json"
    words = json.loads(path.read_text())
    if words["normalizer"]:
        words["normalizer"]["lowercase"] = False
    path.write_text(json.dumps(words))
    edit_config(folder, {"do_lower_case": False}, "tokenizer_config.json")
    path = folder / TRANSFORMER
    path.write_text(json.dumps((json.loads(path.read_text()) if path.is_file() else {}) | said))


def test_the_case_of_texts_is_lowered_for_every_family(fp32, tmp_path):
    texts = ["STORM Harbour", "Grain prices"]
    tiny.splade(tiny.masked("BertForMaskedLM", tmp_path / "plain"), tmp_path / "sparse")
    uncased(tmp_path / "sparse", max_seq_length=40, do_lower_case=True)
    theirs = library.SparseEncoder(str(tmp_path / "sparse"), device="cpu")
    expected = theirs.encode_document(texts, convert_to_sparse_tensor=False)
    ours = bundle.open_ranker(str(tmp_path / "sparse"), fp32).passage_weights(texts).toarray()
    np.testing.assert_allclose(ours, expected, atol=1e-5)
    tiny.pylate(tiny.with_marks("BertModel", tmp_path / "marks"), tmp_path / "colbert")
    uncased(tmp_path / "colbert", max_seq_length=40, do_lower_case=True)
    theirs = library.MultiVectorEncoder(str(tmp_path / "colbert"), device="cpu")
    stored = bundle.load(tmp_path / "colbert").store_passages(texts, "float32").values
    np.testing.assert_allclose(stored, np.concatenate(theirs.encode_document(texts)), atol=1e-5)


def test_a_decoder_reads_texts_as_its_module_says(tmp_path):
    tiny.decoder("Qwen3ForSequenceClassification", tmp_path)
    (tmp_path / "modules.json").write_text(
        json.dumps([{"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"}])
    )
    pairs = [Pair(Query("q", "Storm"), Passage("d", 0, text)) for text in ("GRAIN", "grain")]
    for lower in (False, True):
        uncased(tmp_path, max_seq_length=500, do_lower_case=lower)
        model = open_causal(str(tmp_path), prompt="qwen3-reranker")
        assert model.policy["max_length"] == 500
        ids = [model.encode([pair]).ids.values.tolist() for pair in pairs]
        assert (ids[0] == ids[1]) == lower


def test_texts_that_lose_their_beginnings_are_refused(saved, checkpoint, tmp_path):
    copy = shutil.copytree(saved(), tmp_path / "copy")
    edit_config(copy, {"truncation_side": "left"}, "tokenizer_config.json")
    with pytest.raises(BadModel, match='cuts the beginnings of long texts.*"truncation_side": "right"'):
        open_biencoder(str(copy))
    copy = shutil.copytree(checkpoint("bert_one"), tmp_path / "cross")
    edit_config(copy, {"truncation_side": "left"}, "tokenizer_config.json")
    with pytest.raises(BadModel, match="cuts the beginnings of long texts"):
        open_crossencoder(str(copy))


def test_word_vectors_that_lose_beginnings_are_refused(checkpoint, tmp_path):
    from sentence_transformers.sentence_transformer import modules
    from transformers import AutoTokenizer

    words = modules.StaticEmbedding(AutoTokenizer.from_pretrained(checkpoint("bert")), embedding_dim=8)
    library.SentenceTransformer(modules=[words], device="cpu").save_pretrained(str(tmp_path / "own"))
    path = tmp_path / "own" / "tokenizer.json"
    cut = {"direction": "Left", "max_length": 5, "strategy": "LongestFirst", "stride": 0}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"truncation": cut}))
    with pytest.raises(BadModel, match="long texts lose their beginnings"):
        open_biencoder(str(tmp_path / "own"))


@pytest.mark.parametrize("named", [True, False])
def test_layers_behind_a_classifier_are_not_left_out(named, checkpoint, tmp_path):
    from sentence_transformers.sentence_transformer import modules

    first = modules.Transformer(checkpoint("bert_one"), transformer_task="sequence-classification")
    last = modules.Dense(1, 1, activation_function=None, module_input_name="scores")
    folder = str(tmp_path / "own")
    library.CrossEncoder(modules=[first, last], device="cpu").save_pretrained(folder)
    with pytest.raises(BadModel, match=r'has a module ".*Dense" at place 1'):
        open_crossencoder(folder) if named else bundle.load(folder)


def test_a_classifier_of_sentence_transformers_reads_texts_as_it_says(checkpoint, fp32, tmp_path):
    folder = tmp_path / "own"
    library.CrossEncoder(checkpoint("bert_one"), device="cpu").save_pretrained(str(folder))
    edit_config(folder, {"max_seq_length": 12}, TRANSFORMER)
    assert open_crossencoder(str(folder)).policy["max_length"] == 12
    edit_config(folder, {"processing_kwargs": {"text": {"stride": 3}}}, TRANSFORMER)
    with pytest.raises(BadModel, match="stride"):
        open_crossencoder(str(folder))


def test_options_of_a_chat_template_are_passed_on(fp32, tmp_path):
    from sentence_transformers.cross_encoder.modules import LogitScore
    from sentence_transformers.sentence_transformer import modules

    plain = tiny.decoder("Qwen3ForCausalLM", tmp_path / "plain")
    ending = "{%- if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    (plain / "chat_template.jinja").write_text(CHAT + ending)
    given = {"chat_template": {"add_generation_prompt": True}}
    first = modules.Transformer(str(plain), transformer_task="text-generation", processing_kwargs=given)
    yes, no = first.tokenizer.convert_tokens_to_ids(["yes", "no"])
    theirs = library.CrossEncoder(modules=[first, LogitScore(yes, no)], device="cpu")
    theirs.save_pretrained(str(tmp_path / "own"))
    pairs = make_pairs(10, 5)
    texts = [(p.query.text, p.passage.text) for p in pairs]
    expected = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    np.testing.assert_allclose(
        bundle.open_ranker(str(tmp_path / "own"), fp32).score(pairs), expected, atol=1e-4
    )
    listed = json.loads((tmp_path / "own" / "modules.json").read_text())
    listed.append({"idx": 2, "name": "2", "path": "2_D", "type": "sentence_transformers.models.Dense"})
    (tmp_path / "own" / "modules.json").write_text(json.dumps(listed))
    with pytest.raises(BadModel, match="more than a Transformer and LogitScore"):
        bundle.load(tmp_path / "own")


def test_a_network_without_states_of_tokens_is_refused_at_once(tmp_path):
    import transformers

    sizes = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "intermediate_size": 48}
    own = transformers.DPRConfig(**sizes, vocab_size=271, max_position_embeddings=66)
    for name in ("DPRQuestionEncoder", "BeitModel"):
        config = own if name.startswith("DPR") else transformers.BeitConfig(**sizes, image_size=32)
        folder = tmp_path / name
        getattr(transformers, name)(config).save_pretrained(folder)
        shutil.copy(tiny.GOLDEN / "bert" / "vocab.txt", folder)
        transformers.BertTokenizerFast(str(folder / "vocab.txt")).save_pretrained(folder)
        with pytest.raises(BadModel, match=f"is a {name}"):
            bundle.load(folder)
