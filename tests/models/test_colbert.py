"""Late interaction against sentence-transformers, which reads the same three forms of checkpoints."""

import json
import shutil
import string

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from rankhouse.core.errors import BadModel
from rankhouse.core.nouns import Pair, Passage, Query
from rankhouse.explanation.methods import explain_pair
from rankhouse.models import bundle
from rankhouse.models.colbert_checkpoint import open_colbert
from rankhouse.models.families import open_model
from rankhouse.models.ranker import NeuralRanker

from .conftest import GOLDEN, SIZES, make_pairs, shaken

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
    import transformers

    root = tmp_path_factory.mktemp("plain")
    words = (GOLDEN / "bert" / "vocab.txt").read_text().splitlines()

    def make(name):
        folder = root / name
        if not folder.is_dir():
            vocabulary = [*words, "[unused0]", "[unused1]", ".", ","]
            vocabulary = list(dict.fromkeys(vocabulary))
            (root / "vocab.txt").write_text("\n".join(vocabulary))
            own = {"vocab_size": len(vocabulary), "max_position_embeddings": 66, "pad_token_id": 0, **SIZES}
            if name.startswith("Distil"):
                own |= {"dim": 32, "n_layers": 2, "n_heads": 4, "hidden_dim": 48, "activation": "gelu"}
            if name.startswith("MPNet"):
                own |= {"pad_token_id": 1}
            if name.startswith("ModernBert"):
                own |= {"cls_token_id": 2, "sep_token_id": 3, "bos_token_id": 2, "eos_token_id": 3}
            config = getattr(transformers, name.removesuffix("Model") + "Config")(**own)
            torch.manual_seed(1)
            shaken(getattr(transformers, name)(config)).save_pretrained(folder)
            tokenizer = transformers.BertTokenizerFast(str(root / "vocab.txt"), model_max_length=64)
            tokenizer.save_pretrained(folder)
        return folder

    return make


def native(folder, plain, name, expansion, similarity="maxsim", prompts=("[unused0] ", "[unused1] "), **mask):
    """Save as sentence-transformers 6 does."""
    from sentence_transformers.multi_vector_encoder.modules import MultiVectorMask
    from sentence_transformers.sentence_transformer.modules import Dense, Normalize, Transformer

    reader = Transformer(str(plain(name)), document_length=50, query_expansion=expansion)
    reader.tokenizer.add_special_tokens({"additional_special_tokens": ["[unused0]", "[unused1]"]})
    torch.manual_seed(2)
    dense = Dense(
        32, 16, bias=False, activation_function=torch.nn.Identity(), module_input_name="token_embeddings"
    )
    model = library.MultiVectorEncoder(
        modules=[reader, dense, MultiVectorMask(**mask), Normalize(module_input_name="token_embeddings")],
        prompts=dict(zip(("query", "document"), prompts, strict=True)),
        similarity_fn_name=similarity,
        device="cpu",
    )
    model.save_pretrained(str(folder))


def stanford(folder, plain, name="BertModel", **said):
    """Save as Stanford's code does: all weights in one file, settings in artifact.metadata."""
    shutil.copytree(plain(name), folder)
    weights = load_file(folder / "model.safetensors")
    torch.manual_seed(2)
    own = {f"bert.{key}": value for key, value in weights.items()} | {"linear.weight": torch.randn(16, 32)}
    save_file(own, folder / "model.safetensors", metadata={"format": "pt"})
    config = json.loads((folder / "config.json").read_text()) | {"architectures": ["HF_ColBERT"]}
    (folder / "config.json").write_text(json.dumps(config))
    usual = {"query_token_id": "[unused0]", "doc_token_id": "[unused1]", "query_maxlen": 16, "doc_maxlen": 40}
    (folder / "artifact.metadata").write_text(json.dumps(usual | said))


def pylate(folder, plain, name, **said):
    """Save as PyLate does: transformer and projection, all else in config_sentence_transformers.json."""
    shutil.copytree(plain(name), folder)
    (folder / "1_Dense").mkdir()
    torch.manual_seed(2)
    save_file({"linear.weight": torch.randn(16, 32)}, folder / "1_Dense" / "model.safetensors")
    dense = {"in_features": 32, "out_features": 16, "bias": False, "use_residual": False,
             "activation_function": "torch.nn.modules.linear.Identity"}  # fmt: skip
    (folder / "1_Dense" / "config.json").write_text(json.dumps(dense))
    modules = [
        {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
        {"idx": 1, "name": "1", "path": "1_Dense", "type": "pylate.models.Dense.Dense"},
    ]
    (folder / "modules.json").write_text(json.dumps(modules))
    usual = {"model_type": "ColBERT", "query_prefix": "[unused0]", "document_prefix": "[unused1]",
    "query_length": 16,
             "document_length": 40, "attend_to_expansion_tokens": False,
             "skiplist_words": list(string.punctuation),
             "similarity_fn_name": "MaxSim", "prompts": {}}  # fmt: skip
    (folder / "config_sentence_transformers.json").write_text(json.dumps(usual | said))


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


@pytest.mark.parametrize("name", NETWORKS)
def test_vectors_and_scores_equal_the_library(name, plain, fp32, tmp_path):
    native(tmp_path / "own", plain, name, EXPANSION, skiplist_words=[".", ","])
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
    native(tmp_path / "own", plain, "BertModel", expansion, **more, **mask)
    equals_the_library(tmp_path / "own", fp32)


@pytest.mark.parametrize(
    "said", [{}, {"attend_to_mask_tokens": True, "mask_punctuation": False, "query_maxlen": 24}]
)
def test_stanfords_form(said, plain, fp32, tmp_path):
    stanford(tmp_path / "own", plain, **said)
    equals_the_library(tmp_path / "own", fp32)


@pytest.mark.parametrize(
    ("name", "said"),
    [("BertModel", {}),
     ("ModernBertModel", {"attend_to_expansion_tokens": True, "skiplist_words": ["storm"]}),
     ("BertModel", {"do_query_expansion": False, "query_prefix": "[Q] ", "skiplist_words": None})],
)  # fmt: skip
def test_pylates_form(name, said, plain, fp32, tmp_path):
    pylate(tmp_path / "own", plain, name, **said)
    equals_the_library(tmp_path / "own", fp32)


@pytest.mark.parametrize(("storage", "near"), [("float32", 1e-5), ("float16", 0.02), ("int8", 0.1)])
def test_stored_passages_score_as_brute_force_does(storage, near, plain, fp32, tmp_path):
    stanford(tmp_path / "own", plain)
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
    stanford(tmp_path / "own", plain)
    with pytest.raises(BadModel, match="is a ColBERT checkpoint .*, no biencoder"):
        open_model(f'biencoder("{tmp_path / "own"}")')
    weights = load_file(tmp_path / "own" / "model.safetensors")
    del weights["linear.weight"]
    save_file(weights, tmp_path / "own" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(BadModel, match='holds no tensor "linear.weight"'):
        open_colbert(str(tmp_path / "own"))
    native(tmp_path / "pictures", plain, "BertModel", EXPANSION, keep_only_token_ids=[5])
    with pytest.raises(BadModel, match="tokens of pictures only"):
        open_colbert(str(tmp_path / "pictures"))


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
        stanford(tmp_path / "late", plain)
    else:
        native(tmp_path / "late", plain, "BertModel", EXPANSION)
    (tmp_path / "late" / file).write_text(content)
    with pytest.raises(BadModel, match="late"):
        open_model(f'colbert("{tmp_path / "late"}")')


@pytest.mark.parametrize("similarity", ["maxsim", "meanmaxsim"])
@pytest.mark.parametrize("expansion", [None, EXPANSION])
def test_each_word_of_a_query_is_explained_by_what_it_matches(similarity, expansion, plain, fp32, tmp_path):
    own = {"similarity": similarity, "skiplist_words": [".", ","], "skiplist_tasks": ["query", "document"]}
    native(tmp_path / "own", plain, "BertModel", expansion, **own)
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
    native(tmp_path / "own", plain, "BertModel", None, **own)
    ranker = NeuralRanker(open_colbert(str(tmp_path / "own")), fp32)
    answer = explain_pair(ranker, Pair(Query("1", "storm , grain"), Passage("d", 0, "storm, harbour")))
    notes = {part.name: part.note for part in answer.parts}
    assert notes[","] == "is left out"
    assert notes["storm"].startswith("matches ")
