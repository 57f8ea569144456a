"""Chains of sentence-transformers modules against the library itself."""

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
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.ranker import NeuralRanker

from . import tiny
from .conftest import WORDS, edit_config, make_pairs, with_bert_vocabulary

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
POOLINGS = ["cls", "mean", "max", "weightedmean", "lasttoken", "mean_sqrt_len_tokens", ["cls", "max", "mean"]]
TEXTS = [
    "",
    "storm",
    "grain prices rose " * 30,
    "naïve harbour",
    *(p.passage.text for p in make_pairs(12, 5)),
]


NETWORKS = {
    "bert": ("BertModel", {}),
    "modernbert": (
        "ModernBertModel",
        {"local_attention": 4, "num_hidden_layers": 4},
    ),  # two tokens either way
    "mpnet": ("MPNetModel", {}),
    "qwen3": ("Qwen3Model", {}),
}


def network(kind, folder):
    """Write a tiny encoder of an architecture."""
    name, settings = NETWORKS[kind]
    with_bert_vocabulary(tiny.network(name, folder, **settings), generic=kind != "bert")
    return str(folder)


@pytest.fixture(scope="module")
def chains(tmp_path_factory):
    """From a kind of encoder and what follows it to a folder that the library saved."""
    from sentence_transformers.sentence_transformer import modules
    from transformers.utils import logging

    logging.disable_progress_bar()
    root, made = tmp_path_factory.mktemp("chains"), {}

    def head():
        norm = modules.LayerNorm(32)
        torch.manual_seed(2)
        with torch.no_grad():
            norm.norm.weight.add_(torch.randn(32) / 3)
            norm.norm.bias.add_(torch.randn(32) / 3)
        first = modules.Dense(32, 32, bias=False, activation_function=torch.nn.GELU())
        return [first, norm]

    def make(kind, then, pooling="mean"):
        name = f"{kind}_{then}"
        if name not in made:
            encoder = modules.Transformer(network(kind, root / f"{name}_plain"))
            parts = [encoder, modules.Pooling(32, pooling_mode=pooling)]
            folder = made[name] = str(root / name)
            if then == "scores":
                last = modules.Dense(32, 1, activation_function=None, module_output_name="scores")
                library.CrossEncoder(modules=[*parts, *head(), last], device="cpu").save_pretrained(folder)
            else:
                parts += {
                    "": [],
                    "normalise": [modules.Normalize()],
                    "layers": [*head(), modules.Normalize(), modules.Dense(32, 16, activation_function=None)],
                }[then]
                prompts = {"query": "storm ", "document": "", "Clustering": "grain harbour "}
                library.SentenceTransformer(modules=parts, prompts=prompts, device="cpu").save_pretrained(
                    folder
                )
        return made[name]

    return make


def equals_the_library(folder, fp32, atol=1e-5):
    """Compare vectors of both sides; return the model."""
    model, theirs = open_biencoder(str(folder)), library.SentenceTransformer(str(folder), device="cpu")
    ranker = DenseRanker(model, fp32)
    for ours, expected in (
        (ranker.encode_queries(TEXTS), theirs.encode_query(TEXTS, show_progress_bar=False)),
        (ranker.encode_passages(TEXTS), theirs.encode_document(TEXTS, show_progress_bar=False)),
    ):
        np.testing.assert_allclose(ours, expected, atol=atol)
    alone = np.concatenate([ranker.encode_passages([text]) for text in TEXTS])
    np.testing.assert_allclose(ranker.encode_passages(TEXTS[::-1])[::-1], alone, atol=1e-6)
    with torch.inference_mode():  # as it learns: padded, in transformers' own code
        np.testing.assert_allclose(model.vectors(model.encode_passages(TEXTS)), alone, atol=1e-5)
    return model


@pytest.mark.quick("bert-*", "modernbert-normalise")
@pytest.mark.parametrize(
    ("kind", "then"),
    [
        ("bert", "layers"),
        ("modernbert", "normalise"),
        ("modernbert", "layers"),
        ("mpnet", "normalise"),
        ("qwen3", "normalise"),
    ],
)
def test_vectors_of_a_chain_equal_the_library(kind, then, chains, fp32, tmp_path):
    model = equals_the_library(chains(kind, then, "lasttoken" if kind == "qwen3" else "mean"), fp32)
    bundle.save(model, tmp_path / "bundle")
    again = DenseRanker(bundle.load(tmp_path / "bundle"), fp32).encode_passages(TEXTS)
    np.testing.assert_array_equal(again, DenseRanker(model, fp32).encode_passages(TEXTS))


@pytest.mark.slow
def test_modernbert_of_every_length_across_its_window(fp32, tmp_path):
    import transformers

    settings = {"local_attention": 128, "num_hidden_layers": 4, "global_attn_every_n_layers": 3}
    folder = tiny.network("ModernBertModel", tmp_path / "own", max_position_embeddings=704, **settings)
    with_bert_vocabulary(folder, generic=True)
    edit_config(folder, {"model_max_length": 702}, "tokenizer_config.json")
    ranker = DenseRanker(open_biencoder(str(folder), pooling="mean"), fp32)
    draws = np.random.default_rng(1)
    texts = [" ".join(draws.choice(WORDS, length)) for length in range(700)]
    encoded = ranker.model.encode_passages(texts)
    vectors = ranker.encode_passages(texts)
    network = transformers.AutoModel.from_pretrained(folder).eval()
    rows = encoded.ids.values.split(encoded.lengths.tolist())
    assert encoded.lengths.tolist() == list(range(2, 702))
    for row, vector in zip(rows, vectors, strict=True):
        with torch.inference_mode():
            expected = network(input_ids=row[None]).last_hidden_state[0].mean(0)
        np.testing.assert_allclose(vector, expected, atol=1e-5, err_msg=f"{len(row)} tokens")


@pytest.mark.quick("cls", "mean", "lasttoken")
@pytest.mark.parametrize("pooling", POOLINGS, ids=str)
def test_every_pooling_equals_the_library(pooling, chains, fp32, tmp_path):
    copy = shutil.copytree(chains("bert", ""), tmp_path / "copy")
    settings = {"embedding_dimension": 32, "pooling_mode": pooling, "include_prompt": True}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(settings))
    equals_the_library(copy, fp32, atol=1e-4 if pooling == "mean_sqrt_len_tokens" else 1e-5)


def test_poolings_of_version_2_stand_in_the_librarys_order(chains, fp32, tmp_path):
    copy = shutil.copytree(chains("bert", ""), tmp_path / "copy")
    old = {"word_embedding_dimension": 32, "pooling_mode_mean_tokens": True, "pooling_mode_cls_token": True}
    (copy / "1_Pooling" / "config.json").write_text(json.dumps(old))
    assert equals_the_library(copy, fp32).policy["pooling"] == "cls+mean"


def test_a_folder_that_lowers_case_does_so(chains, fp32, tmp_path):
    copy = shutil.copytree(chains("bert", ""), tmp_path / "copy")
    described = json.loads((copy / "tokenizer.json").read_text())
    described["normalizer"]["lowercase"] = False
    (copy / "tokenizer.json").write_text(json.dumps(described))
    edit = json.loads((copy / "tokenizer_config.json").read_text()) | {"do_lower_case": False}
    (copy / "tokenizer_config.json").write_text(json.dumps(edit))
    texts = ["STORM harbour", "storm harbour"]

    def vectors(lower):
        own = json.loads((copy / "sentence_bert_config.json").read_text()) | {"do_lower_case": lower}
        (copy / "sentence_bert_config.json").write_text(json.dumps(own))
        theirs = library.SentenceTransformer(str(copy), device="cpu").encode(texts, show_progress_bar=False)
        ours = DenseRanker(open_biencoder(str(copy)), fp32).encode_passages(texts)
        np.testing.assert_allclose(ours, theirs, atol=1e-5)
        return ours

    assert np.ptp(vectors(lower=True), axis=0).max() == 0
    assert np.ptp(vectors(lower=False), axis=0).max() > 0.01


def test_prompts_are_chosen_by_name(chains, fp32):
    folder = chains("bert", "layers")
    model = open_biencoder(folder, prompts=("Clustering", "my own: "))
    assert (model.policy["query_prompt"], model.policy["passage_prompt"]) == ("grain harbour ", "my own: ")
    theirs = library.SentenceTransformer(folder, device="cpu")
    expected = theirs.encode(TEXTS, prompt_name="Clustering", show_progress_bar=False)
    np.testing.assert_allclose(DenseRanker(model, fp32).encode_queries(TEXTS), expected, atol=1e-5)


@pytest.mark.quick("bert-mean")
@pytest.mark.parametrize(("kind", "pooling"), [("modernbert", "cls"), ("bert", "mean"), ("mpnet", "mean")])
def test_a_crossencoder_of_modules_equals_the_library(kind, pooling, chains, fp32, tmp_path):
    folder = chains(kind, "scores", pooling)
    pairs = [Pair(Query("q", q), Passage("d", 0, p)) for q in ("storm", "grain prices") for p in TEXTS]
    texts = [(pair.query.text, pair.passage.text) for pair in pairs]
    theirs = library.CrossEncoder(folder, device="cpu")
    whole = [len(theirs.tokenizer(*pair).input_ids) <= 64 for pair in texts]  # theirs cuts the query, too
    expected = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    ranker = bundle.open_ranker(folder, fp32)
    scores = ranker.score(pairs)
    np.testing.assert_allclose(scores[whole], expected[whole], atol=1e-5)
    assert sum(whole) > 20
    assert np.ptp(expected) > 0.1, "scores that hardly differ would prove nothing"
    with torch.inference_mode():
        model = ranker.model
        np.testing.assert_allclose(model(model.encode(pairs)), scores, atol=1e-5)
    np.testing.assert_allclose([ranker.score([pair])[0] for pair in pairs[::-1]][::-1], scores, atol=1e-6)
    ranker.save(tmp_path / "bundle")
    np.testing.assert_array_equal(bundle.open_ranker(str(tmp_path / "bundle"), fp32).score(pairs), scores)
    save_as_sentence_transformers(ranker, tmp_path / "back")
    back = library.CrossEncoder(str(tmp_path / "back"), device="cpu")
    np.testing.assert_allclose(back.predict(texts)[whole], expected[whole], atol=1e-5)
    likely = NeuralRanker(open_crossencoder(folder, scale="probability"), fp32)
    np.testing.assert_allclose(likely.score(pairs)[whole], theirs.predict(texts)[whole], atol=1e-5)
    save_as_sentence_transformers(likely, tmp_path / "likely")
    back = library.CrossEncoder(str(tmp_path / "likely"), device="cpu")
    np.testing.assert_allclose(back.predict(texts)[whole], theirs.predict(texts)[whole], atol=1e-5)


@pytest.mark.parametrize("scale", ["logprob", "probability", "log-odds", "logit"])
def test_a_chain_of_two_classes_is_written_as_one_number(scale, chains, fp32, tmp_path):
    from safetensors.torch import save_file

    folder = shutil.copytree(chains("bert", "scores"), tmp_path / "own")
    torch.manual_seed(5)
    save_file(
        {"linear.weight": torch.randn(2, 32), "linear.bias": torch.randn(2)},
        folder / "4_Dense" / "model.safetensors",
    )
    edit_config(folder / "4_Dense", {"out_features": 2})
    ranker = NeuralRanker(open_crossencoder(str(folder), scale=scale), fp32)
    pairs = [pair for pair in make_pairs(20, 5) if len(pair.passage.text) < 150]
    save_as_sentence_transformers(ranker, tmp_path / "back")
    back = library.CrossEncoder(str(tmp_path / "back"), device="cpu")
    texts = [(pair.query.text, pair.passage.text) for pair in pairs]
    np.testing.assert_allclose(back.predict(texts, show_progress_bar=False), ranker.score(pairs), atol=1e-5)


@pytest.mark.parametrize("layout", ["plain", "model2vec"])
def test_word_vectors_equal_the_library(layout, checkpoint, fp32, tmp_path):
    from safetensors.torch import save_file
    from sentence_transformers.sentence_transformer import modules
    from transformers import AutoTokenizer

    torch.manual_seed(4)
    table = modules.StaticEmbedding(AutoTokenizer.from_pretrained(checkpoint("bert")), embedding_dim=24)
    folder = tmp_path / "static"
    library.SentenceTransformer(modules=[table, modules.Normalize()], device="cpu").save_pretrained(
        str(folder)
    )
    if layout == "model2vec":
        shared = {
            "embeddings": torch.randn(50, 24),
            "mapping": torch.randint(50, (271,)),
            "weights": torch.rand(271),
        }
        save_file(shared, folder / "model.safetensors")
    model = equals_the_library(folder, fp32)
    assert model.policy["max_length"] > 10_000
    bundle.save(model, tmp_path / "bundle")
    again = bundle.open_ranker(str(tmp_path / "bundle"), fp32)
    np.testing.assert_array_equal(again.encode_queries(TEXTS), DenseRanker(model, fp32).encode_queries(TEXTS))
    save_file({"embeddings": torch.randn(50, 24)}, folder / "model.safetensors")
    with pytest.raises(BadModel, match="50 vectors for 271 tokens"):
        open_biencoder(str(folder))


def test_a_layer_of_another_width_is_refused(chains, tmp_path):
    from safetensors.torch import save_file

    copy = shutil.copytree(chains("bert", "layers"), tmp_path / "copy")
    save_file({"linear.weight": torch.randn(32, 48)}, copy / "2_Dense" / "model.safetensors")
    with pytest.raises(BadModel, match="reads vectors of width 48, and the modules before it give 32"):
        open_biencoder(str(copy))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            {"activation_function": "transformers.activations.GELUActivation"},
            "activation transformers.*torch.nn",
        ),
        ({"activation_function": "torch.nn.modules.activation.MultiheadAttention"}, "MultiheadAttention"),
        ({"module_input_name": "token_embeddings"}, "reads token_embeddings"),
    ],
)
def test_layers_that_cannot_be_computed_are_refused(change, said, chains, tmp_path):
    copy = shutil.copytree(chains("bert", "layers"), tmp_path / "copy")
    edit_config(copy / "2_Dense", change)
    with pytest.raises(BadModel, match=said):
        open_biencoder(str(copy))


def test_a_residual_equals_the_library(chains, fp32, tmp_path):
    from sentence_transformers.sentence_transformer import modules

    torch.manual_seed(3)
    parts = [modules.Transformer(network("bert", tmp_path / "plain")), modules.Pooling(32)]
    parts.append(modules.Dense(32, 32, activation_function=torch.nn.GELU(), use_residual=True))
    parts.append(modules.Dense(32, 16, bias=False, use_residual=True, activation_function=None))
    library.SentenceTransformer(modules=parts, device="cpu").save_pretrained(str(tmp_path / "own"))
    model = equals_the_library(tmp_path / "own", fp32)
    bundle.save(model, tmp_path / "bundle")
    again = bundle.open_ranker(str(tmp_path / "bundle"), fp32).encode_queries(TEXTS)
    np.testing.assert_array_equal(again, DenseRanker(model, fp32).encode_queries(TEXTS))
    save_as_sentence_transformers(DenseRanker(model, fp32), tmp_path / "back")
    equals_the_library(tmp_path / "back", fp32)


def test_pickled_layers_are_read_where_that_is_allowed(chains, fp32, tmp_path):
    from safetensors.torch import load_file

    folder = chains("bert", "layers")
    copy = shutil.copytree(folder, tmp_path / "copy")
    for path in copy.glob("*_Dense/model.safetensors"):
        torch.save(load_file(path), path.with_name("pytorch_model.bin"))
        path.unlink()
    with pytest.raises(BadModel, match="2_Dense.*allow_pickle=True"):
        open_biencoder(str(copy))
    vectors = [
        DenseRanker(open_biencoder(str(path), allow_pickle=True), fp32).encode_queries(TEXTS)
        for path in (folder, copy)
    ]
    np.testing.assert_array_equal(*vectors)


def test_layers_that_are_damaged_or_not_allowed_are_named(chains, tmp_path):
    from safetensors.torch import load_file, save

    copy = shutil.copytree(chains("bert", "layers"), tmp_path / "copy")
    path = next(copy.glob("*_Dense/model.safetensors"))
    tensors, pickled = load_file(path), path.with_name("pytorch_model.bin")
    for content in (b"junk", save({"other": tensors["linear.weight"]})):
        path.write_bytes(content)
        with pytest.raises(BadModel, match='_Dense" cannot be read .*fetch the folder again'):
            open_biencoder(str(copy))
    path.rename(path.with_name("quantised.safetensors"))
    for allowed in (False, True):
        with pytest.raises(BadModel, match='_Dense" holds no model.safetensors'):
            open_biencoder(str(copy), allow_pickle=allowed)
    torch.save(tensors, pickled)
    with pytest.raises(BadModel, match='_Dense" holds no model.safetensors'):
        open_biencoder(str(copy))
    assert open_biencoder(str(copy), allow_pickle=True).policy["dense"]
    pickled.write_bytes(b"junk")
    with pytest.raises(BadModel, match='_Dense" cannot be read'):
        open_biencoder(str(copy), allow_pickle=True)


@pytest.mark.parametrize("said", [None, "", "dot", "cosine"])
def test_scores_compare_vectors_as_the_library_does(said, chains, fp32, tmp_path):
    copy = shutil.copytree(chains("bert", ""), tmp_path / "paraphrase-own")
    path = copy / "config_sentence_transformers.json"
    settings = json.loads(path.read_text()) | {"similarity_fn_name": said}
    path.write_text(json.dumps({k: v for k, v in settings.items() if v != ""}))
    theirs = library.SentenceTransformer(str(copy), device="cpu")
    pairs = make_pairs(20, 5)
    sides = [pair.query.text for pair in pairs], [pair.passage.text for pair in pairs]
    vectors = theirs.encode_query(sides[0]), theirs.encode_document(sides[1])
    expected = theirs.similarity_pairwise(*vectors).numpy()
    np.testing.assert_allclose(bundle.open_ranker(str(copy), fp32).score(pairs), expected, rtol=1e-5)


def test_a_name_says_dot_product_where_the_folder_does_not(chains, tmp_path):
    for name, similarity in (("multi-qa-own-dot-v1", "dot"), ("own-tas-b", "dot"), ("own-dotted", "cosine")):
        copy = shutil.copytree(chains("bert", ""), tmp_path / name)
        (copy / "config_sentence_transformers.json").unlink()
        assert open_biencoder(str(copy)).policy["similarity"] == similarity, name
    for name in ("models--own--msmarco-tas-b/snapshots/0a1b2c", "one@host/own-dot-v1"):
        assert open_biencoder(str(shutil.copytree(copy, tmp_path / name))).policy["similarity"] == "dot"
    (copy / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "manhattan"}')
    with pytest.raises(BadModel, match="by 'manhattan'; read here are dot, cosine, euclidean.*similarity="):
        open_biencoder(str(copy))
    assert open_biencoder(str(copy), similarity="l2").policy["similarity"] == "l2"


@pytest.mark.parametrize("kind", ["chain", "classifier"])
def test_a_prompt_before_the_queries_of_a_crossencoder_is_read(kind, chains, checkpoint, fp32, tmp_path):
    own = {"prompts": {"web": "storm harbour: "}, "default_prompt_name": "web"}
    folder = tmp_path / "own"
    if kind == "chain":
        shutil.copytree(chains("bert", "scores"), folder)
        edit_config(folder, own, name="config_sentence_transformers.json")
    else:
        library.CrossEncoder(checkpoint("bert_one"), device="cpu", **own).save_pretrained(str(folder))
    pairs = [pair for pair in make_pairs(20, 5) if len(pair.passage.text) < 150]
    theirs = library.CrossEncoder(str(folder), device="cpu")
    texts = [(pair.query.text, pair.passage.text) for pair in pairs]
    expected = theirs.predict(texts, activation_fn=torch.nn.Identity(), show_progress_bar=False)
    plain = theirs.predict(texts, prompt="", activation_fn=torch.nn.Identity(), show_progress_bar=False)
    assert np.abs(expected - plain).max() > 0.01
    ranker = bundle.open_ranker(str(folder), fp32)
    np.testing.assert_allclose(ranker.score(pairs), expected, atol=1e-5)
    bundle.save(ranker.model, tmp_path / "bundle")
    again = bundle.open_ranker(str(tmp_path / "bundle"), fp32).score(pairs)
    np.testing.assert_array_equal(again, ranker.score(pairs))
    save_as_sentence_transformers(ranker, tmp_path / "back")
    back = library.CrossEncoder(str(tmp_path / "back"), device="cpu")
    np.testing.assert_allclose(back.predict(texts, show_progress_bar=False), expected, atol=1e-5)
    np.testing.assert_allclose(
        bundle.open_ranker(str(tmp_path / "back"), fp32).score(pairs), expected, atol=1e-5
    )
