"""Routers, whose queries and documents go through different modules, against sentence-transformers."""

import json
import shutil

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.explanation.methods import explain_pair
from rankhouse.hosts.sentence_transformers import save as save_as_sentence_transformers
from rankhouse.models import bundle
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.crossencoder import open_crossencoder
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.serve.engine.served import open_served
from rankhouse.systems.rankers import ComputeOptions

from .conftest import edit_config, make_pairs
from .test_modules import TEXTS, equals_the_library, network

library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
PROMPTS = {"query": "storm harbour ", "document": "grain prices "}
CASES = ["words", "heads", "one network", "two networks", "words behind", "rules", "one route", "lengths"]


@pytest.fixture(scope="module")
def routed(tmp_path_factory):
    """From the name of a case to a folder that the library saved."""
    from sentence_transformers.base.modules import Router
    from sentence_transformers.sentence_transformer import modules as m
    from transformers import AutoTokenizer

    root, made = tmp_path_factory.mktemp("routers"), {}

    def text(kind="bert", **settings):
        folder = root / f"{kind}_plain"
        return m.Transformer(str(folder) if folder.exists() else network(kind, folder), **settings)

    def words():
        tokenizer = AutoTokenizer.from_pretrained(network("bert", root / "words"))
        return m.StaticEmbedding(tokenizer, embedding_dim=32)

    def parts(name):
        mean, cls = m.Pooling(32), m.Pooling(32, pooling_mode="cls")
        of = Router.for_query_document
        if name == "words":
            return [of([words()], [text(), mean]), m.LayerNorm(32), m.Normalize()]
        if name == "heads":
            return [text(), mean, of([m.Dense(32, 16)], [m.Dense(32, 16, activation_function=None)])]
        if name == "one network":
            both = [text("modernbert"), cls]
            return [of([*both, m.Dense(32, 16)], [*both, m.Dense(32, 16), m.Normalize()])]
        if name == "two networks":
            return [of([text("mpnet"), mean], [text("modernbert"), cls])]
        if name == "words behind":
            return [of([text(), mean], [words()])]
        if name == "rules":
            routes = {"small": [words()], "large": [text(), cls]}
            return [Router(routes, route_mappings={("query", "text"): "small", (None, None): "large"})]
        if name == "lengths":
            return [text(query_length=6, document_length=9), mean]
        return [Router({"text": [text(), mean]})]

    def make(name):
        if name not in made:
            torch.manual_seed(3)
            made[name] = str(root / name.replace(" ", "_"))
            model = library.SentenceTransformer(modules=parts(name), prompts=PROMPTS, device="cpu")
            model.save_pretrained(made[name])
        return made[name]

    return make


@pytest.mark.quick("words", "heads")
@pytest.mark.parametrize("case", CASES)
def test_both_routes_equal_the_library(case, routed, fp32, tmp_path):
    model = equals_the_library(routed(case), fp32)
    ranker, pairs = DenseRanker(model, fp32), make_pairs(20, 5)
    asked, read = ([getattr(pair, side).text for pair in pairs] for side in ("query", "passage"))
    with torch.inference_mode():  # as it learns
        np.testing.assert_allclose(
            model.query_vectors(model.encode_queries(asked)), ranker.encode_queries(asked), atol=1e-5
        )
        np.testing.assert_allclose(model(model.encode(pairs)), ranker.score(pairs), atol=1e-5)
    theirs = library.SentenceTransformer(routed(case), device="cpu")
    expected = theirs.similarity_pairwise(theirs.encode_query(asked), theirs.encode_document(read))
    np.testing.assert_allclose(ranker.score(pairs), expected, atol=1e-5)
    encoded = ranker.score_encoded(model.encode(pairs))
    np.testing.assert_array_equal(encoded, ranker.score(pairs))
    again = bundle.open_ranker(str(ranker.save(tmp_path / "bundle")), fp32)
    np.testing.assert_array_equal(again.score(pairs), encoded)
    assert again.fingerprint == ranker.fingerprint
    save_as_sentence_transformers(ranker, tmp_path / "back")
    equals_the_library(tmp_path / "back", fp32)
    back = library.SentenceTransformer(str(tmp_path / "back"), device="cpu")
    np.testing.assert_allclose(back.encode_query(TEXTS), ranker.encode_queries(TEXTS), atol=1e-5)
    np.testing.assert_allclose(back.encode_document(TEXTS), ranker.encode_passages(TEXTS), atol=1e-5)


def test_a_network_of_both_sides_learns_as_one(routed, tmp_path):
    for case, shared in (("one network", True), ("two networks", False)):
        model = open_biencoder(routed(case))
        assert (model.asked.network is model.network) == shared
        bundle.save(model, tmp_path / case)
        again = bundle.load(tmp_path / case)
        assert (again.asked.network is again.network) == shared
        batch = model.encode(make_pairs(4, 5))
        model.loss(batch, torch.ones(4, 1)).backward()
        learnt = [n for n, p in model.named_parameters() if p.grad is not None and p.grad.abs().max() > 0]
        sides = ("network.", "dense.", "asked.dense.") if shared else ("network.", "asked.network.")
        assert all(any(name.startswith(side) for name in learnt) for side in sides)


def test_asym_of_version_4_is_a_router(routed, fp32, tmp_path):
    copy = shutil.copytree(routed("heads"), tmp_path / "copy")
    listed = json.loads((copy / "modules.json").read_text())
    listed[2]["type"] = "sentence_transformers.models.Asym"
    (copy / "modules.json").write_text(json.dumps(listed))
    said = json.loads((copy / "2_Router" / "router_config.json").read_text())
    (copy / "2_Router" / "router_config.json").unlink()
    said["types"] = dict.fromkeys(said["types"], "sentence_transformers.models.Dense")
    said["parameters"] = {"allow_empty_key": True}
    (copy / "2_Router" / "config.json").write_text(json.dumps(said))
    equals_the_library(copy, fp32)
    said["structure"] = dict(zip(("QRY", "DOC"), said["structure"].values(), strict=True))
    (copy / "2_Router" / "config.json").write_text(json.dumps(said))
    with pytest.raises(BadModel, match="routes for 'QRY' and 'DOC', none for a document"):
        bundle.open_ranker(str(copy), fp32)
    (copy / "2_Router" / "config.json").write_text("{}")
    with pytest.raises(BadModel, match="Router that lists no routes"):
        bundle.open_ranker(str(copy), fp32)


def test_what_a_router_holds_is_refused_by_name(routed, fp32, tmp_path):
    copy = shutil.copytree(routed("words"), tmp_path / "copy")
    with pytest.raises(BadModel, match="bi-encoder of sentence-transformers, no crossencoder"):
        open_crossencoder(str(copy))
    with pytest.raises(WrongUse, match="two vocabularies"):
        open_biencoder(str(copy), tokenizer=str(copy))
    path = copy / "router_config.json"
    said = json.loads(path.read_text())
    for source, why in (("own.Words", "own code|code of its own"), ("LSTM", 'module ".*LSTM"')):
        named = source if "." in source else f"sentence_transformers.models.{source}"
        types = said["types"] | {"query_0_StaticEmbedding": named}
        path.write_text(json.dumps(said | {"types": types}))
        with pytest.raises(BadModel, match=why):
            bundle.open_ranker(str(copy), fp32)
    path.write_text(json.dumps(said))
    edit_config(copy / "document_0_Transformer", {"auto_map": {"AutoModel": "own.Own"}})
    with pytest.raises(BadModel, match="code of its own"):
        bundle.open_ranker(str(copy), fp32)


def test_sides_of_other_widths_are_refused(routed, tmp_path):
    from safetensors.torch import save_file

    copy = shutil.copytree(routed("words behind"), tmp_path / "copy")
    save_file(
        {"embedding.weight": torch.randn(271, 24)}, copy / "document_0_StaticEmbedding/model.safetensors"
    )
    with pytest.raises(BadModel, match="24 and 32 numbers of the two sides"):
        open_biencoder(str(copy))


@pytest.mark.quick("heads")
@pytest.mark.parametrize("case", ["words", "two networks", "heads"])
def test_a_router_is_served_and_explained_with_its_own_scores(case, routed, fp32):
    pairs = make_pairs(12, 5)
    ranker = DenseRanker(open_biencoder(routed(case)), fp32)
    served = open_served("own", routed(case), ComputeOptions("fp32", "cpu", 1))
    try:
        np.testing.assert_array_equal(served.read(pairs).result(120).scores, ranker.score(pairs))
        for side, encode in (("query", ranker.encode_queries), ("passage", ranker.encode_passages)):
            np.testing.assert_array_equal(served.encode(TEXTS, side).result(120).values, encode(TEXTS))
    finally:
        served.close()
    for pair in pairs[:4]:
        answer = explain_pair(ranker, pair)
        assert answer.score == ranker.score([pair])[0]
    folder = routed("words behind")  # no layers: a mean of words on both sides
    answer = explain_pair(DenseRanker(open_biencoder(folder), fp32), pairs[0])
    assert answer.exact
    assert sum(part.value for part in answer.parts) == pytest.approx(answer.score, abs=1e-5)
