"""A checkpoint is opened as what its files say it is, or refused by name."""

import json
import shutil

import numpy as np
import pytest
from safetensors.torch import load_file, save_file

from rankhouse.core.errors import BadModel
from rankhouse.models import bundle
from rankhouse.models.biencoder import open_biencoder
from rankhouse.models.checkpoint_kinds import KINDS, kind_of, notation_of
from rankhouse.models.crossencoder import open_crossencoder

from . import tiny
from .conftest import edit_config, make_pairs, with_bert_vocabulary


@pytest.fixture
def folder(checkpoint, tmp_path):
    """Copy a checkpoint, and say another architecture."""

    def make(kind, architecture=None, **tensors):
        copy = shutil.copytree(checkpoint(kind), tmp_path / "copy")
        if architecture:
            edit_config(copy, {"architectures": [architecture]})
        if tensors:
            path = copy / "model.safetensors"
            save_file(load_file(path) | tensors, path, metadata={"format": "pt"})
        return copy

    return make


def colbert(make):
    import torch

    return make("bert_plain", "HF_ColBERT", **{"linear.weight": torch.randn(16, 32)})


def test_a_colbert_never_becomes_anything_else(folder, fp32):
    copy = colbert(folder)
    for opened in (open_biencoder, lambda path: open_biencoder(path, pooling="cls"), open_crossencoder):
        with pytest.raises(BadModel, match="is a ColBERT.*HF_ColBERT"):
            opened(str(copy))
    assert bundle.open_ranker(str(copy), fp32).family == "colbert"
    assert open_crossencoder(str(copy), new_head=1).policy["classes"] == 2, "a training may begin with it"


def test_a_splade_in_the_form_of_a_masked_language_model_is_no_biencoder(checkpoint, fp32):
    path = checkpoint("bert_masked")
    with pytest.raises(
        BadModel, match=r"predicts masked words, no biencoder \(config.json names BertForMaskedLM"
    ):
        open_biencoder(path)
    with pytest.raises(BadModel, match="never trained to be compared"):
        bundle.open_ranker(path, fp32)
    assert open_biencoder(path, pooling="mean").policy["pooling"] == "mean", (
        "to begin a training, and said so"
    )


def test_a_bare_encoder_with_tensors_that_nothing_reads_is_refused(folder):
    import torch

    copy = folder("bert_plain", **{"linear.weight": torch.randn(16, 32)})
    with pytest.raises(BadModel, match='1 tensor.* BertModel does not read, first "linear.weight"'):
        open_biencoder(str(copy))


def test_a_classifier_with_a_head_of_another_shape_is_refused(folder):
    import torch

    copy = folder("bert", **{"head.dense.weight": torch.randn(32, 32)})
    with pytest.raises(BadModel, match='first "head.dense.weight"'):
        open_crossencoder(str(copy))


@pytest.mark.parametrize(
    "kind", ["bert", "bert_nsp", "electra", "distilbert", "roberta", "deberta", "modernbert"]
)
def test_a_classifier_is_no_biencoder(kind, checkpoint):
    with pytest.raises(BadModel, match=r"is a cross-encoder, no biencoder.*open it as  crossencoder\("):
        open_biencoder(checkpoint(kind))


def test_a_biencoder_of_sentence_transformers_is_no_crossencoder(checkpoint):
    with pytest.raises(BadModel, match=r"is a bi-encoder.*no crossencoder.*open it as  biencoder\("):
        open_crossencoder(checkpoint("sentences"))
    assert open_crossencoder(checkpoint("sentences"), new_head=3).encoder_ranker


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"]}, "decoder whose prompt is not known"),
        (
            {"model_type": "qwen3", "architectures": ["Qwen3ForSequenceClassification"]},
            "decoder whose prompt is not known",
        ),
        ({"model_type": "gemma2", "architectures": ["Gemma2ForCausalLM"]}, "decoder whose prompt"),
        (
            {"model_type": "qwen3", "architectures": ["OwnForRanking"], "auto_map": {"AutoModel": "own.Own"}},
            "computed by Python code of its own.*auto_map",
        ),
        ({"model_type": "qwen3", "architectures": ["Qwen3Model"]}, "without its output layer.*lasttoken"),
        ({"model_type": "granite", "architectures": ["GraniteModel"]}, "without its output layer.*lasttoken"),
        (
            {"model_type": "modernbert-decoder", "architectures": ["ModernBertDecoderModel"]},
            "without its output layer",
        ),
        ({"model_type": "gpt2", "architectures": ["GPT2LMHeadModel"]}, "decoder whose prompt"),
        ({"model_type": "smollm3", "architectures": ["SmolLM3ForSequenceClassification"]}, "whose prompt"),
        ({"model_type": "bert", "architectures": ["BertForQuestionAnswering"]}, "does not rank"),
        ({"model_type": "bart", "architectures": ["BartModel"], "is_encoder_decoder": True}, "does not rank"),
        ({"model_type": "colpali", "architectures": ["ColPaliForRetrieval"]}, "does not rank"),
        ({"model_type": "bert"}, "names no architecture.*say its family"),
        ({"model_type": "new", "auto_map": {"AutoConfig": "own.Config"}}, "code of its own.*names new, and"),
        ({"model_type": "t5", "architectures": ["T5ForSequenceClassification"]}, "does not rank texts"),
        ({"model_type": "model2vec", "architectures": ["StaticModel"]}, "model2vec without modules.json"),
    ],
)
def test_other_networks_are_refused_by_name(config, said, tmp_path, fp32):
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(BadModel, match=said):
        bundle.open_ranker(str(tmp_path), fp32)


@pytest.mark.parametrize(
    ("modules", "extra", "key"),
    [
        (
            ["sentence_transformers.models.Transformer", "sentence_transformers.models.SpladePooling"],
            {},
            "sparse",
        ),
        (["sentence_transformers.models.Transformer", "pylate.models.Dense.Dense"], {}, "colbert"),
        (
            ["sentence_transformers.base.modules.transformer.Transformer"],
            {"model_type": "MultiVectorEncoder"},
            "colbert",
        ),
        (
            [
                "sentence_transformers.base.modules.transformer.Transformer",
                "sentence_transformers.cross_encoder.modules.logit_score.LogitScore",
            ],
            {"model_type": "CrossEncoder"},
            "decoder",
        ),
        (["modeling_own.Own"], {}, "custom"),
    ],
)
def test_modules_of_other_kinds_are_refused_by_name(modules, extra, key, checkpoint, tmp_path):
    copy = shutil.copytree(checkpoint("bert_plain"), tmp_path / "copy")
    listed = [{"idx": i, "name": str(i), "path": "", "type": name} for i, name in enumerate(modules)]
    (copy / "modules.json").write_text(json.dumps(listed))
    (copy / "config_sentence_transformers.json").write_text(json.dumps(extra))
    assert kind_of(copy).key == key
    if KINDS[key].family:
        assert notation_of(copy).startswith(KINDS[key].family)
    else:
        with pytest.raises(BadModel, match=KINDS[key].noun.split(" (")[0]):
            notation_of(copy)
    with pytest.raises(BadModel, match="no biencoder"):
        open_biencoder(str(copy))


def test_a_crossencoder_that_sentence_transformers_saved_is_found_by_its_architecture(checkpoint, tmp_path):
    library = pytest.importorskip("sentence_transformers", reason="the yardstick is not installed")
    library.CrossEncoder(checkpoint("bert_one"), device="cpu").save_pretrained(str(tmp_path / "saved"))
    assert (tmp_path / "saved" / "modules.json").is_file()
    assert notation_of(tmp_path / "saved").startswith("crossencoder(")


def test_weights_of_other_sizes_are_refused_in_words(folder):
    copy = folder("bert_one")
    edit_config(copy, {"intermediate_size": 96})
    with pytest.raises(BadModel, match=r"of other sizes than its config.json says"):
        open_crossencoder(str(copy))


def test_the_tokenizer_of_another_checkpoint_is_refused(folder, checkpoint):
    with pytest.raises(BadModel, match=r"the tokenizer has 371 words, the network vectors of 271"):
        open_crossencoder(str(folder("bert_one")), tokenizer=checkpoint("roberta"))


def test_a_folder_that_cannot_be_read_says_so(tmp_path):
    (tmp_path / "config.json").write_text("{")
    with_bert_vocabulary(tmp_path)
    with pytest.raises(BadModel, match="cannot be read"):
        notation_of(tmp_path)


@pytest.mark.parametrize("kind", ["bert_one", "sentences", "colbert", "decoder"])
def test_a_known_network_with_code_of_its_own_is_not_computed_without_it(kind, folder, tmp_path, fp32):
    if kind == "decoder":
        copy = tiny.decoder("Qwen3ForCausalLM", tmp_path / "copy")
    else:
        copy = colbert(folder) if kind == "colbert" else folder(kind)
    way = f'causal("{copy}", prompt="qwen3-reranker")' if kind == "decoder" else str(copy)
    edit_config(copy, {"auto_map": {"AutoTokenizer": ["own.Words", None]}})
    assert bundle.open_ranker(way, fp32)
    edit_config(copy, {"auto_map": {"AutoModel": "modeling_own.BothWays"}})
    with pytest.raises(BadModel, match="Python code of its own.*auto_map.*take auto_map out of config.json"):
        bundle.open_ranker(way, fp32)


def test_networks_that_transformers_took_over_are_computed_although_they_bring_their_code(tmp_path, fp32):
    copy = tiny.network("NomicBertForSequenceClassification", tmp_path / "copy", num_labels=1)
    with_bert_vocabulary(copy, generic=True)
    edit_config(copy, {"auto_map": {"AutoModel": "modeling_hf_nomic_bert.NomicBertModel"}})
    assert bundle.open_ranker(str(copy), fp32).family == "crossencoder"


def test_what_is_broken_beside_a_checkpoint_does_not_refuse_it(folder, fp32):
    """A half-written config.json in a folder that nothing reads refused all of it."""
    copy = folder("bert_one")
    (copy / "checkpoint-500").mkdir()
    (copy / "checkpoint-500/config.json").write_text("{")
    assert bundle.open_ranker(str(copy), fp32)
    (copy / "config.json").write_text("{")
    with pytest.raises(BadModel, match="cannot be read.*fetch the file again"):
        bundle.open_ranker(str(copy), fp32)


def test_an_adapter_is_refused_alone_and_beside_the_weights_that_it_changes(folder, tmp_path, fp32):
    (tmp_path / "adapter_config.json").write_text("{}")
    copy = folder("bert_one")
    (copy / "adapter_config.json").write_text("{}")
    for way in (str(tmp_path), f'crossencoder("{tmp_path}")', str(copy), f'crossencoder("{copy}")'):
        with pytest.raises(BadModel, match="holds an adapter.*merge_and_unload"):
            bundle.load(way) if way.startswith("/") else open_crossencoder(way.split('"')[1])


def test_weights_that_need_another_package_say_so(folder):
    copy = folder("bert_one")
    edit_config(copy, {"quantization_config": {"quant_method": "gptq", "bits": 4}})
    with pytest.raises(BadModel, match="need a package that is not installed.*optimum"):
        open_crossencoder(str(copy))


@pytest.mark.parametrize(
    ("name", "pooling"), [("Contriever", "mean"), ("T5EncoderModel", "mean"), ("BertModel", "cls")]
)
def test_a_bare_encoder_is_pooled_as_its_makers_do(name, pooling, folder, tmp_path, fp32):
    from transformers import T5Config, T5EncoderModel

    if name == "T5EncoderModel":
        sizes = {"vocab_size": 271, "d_model": 32, "d_kv": 8, "d_ff": 48, "num_layers": 1, "num_heads": 4}
        T5EncoderModel(T5Config(**sizes)).save_pretrained(tmp_path / "t5")
        copy = with_bert_vocabulary(tmp_path / "t5", generic=True) or tmp_path / "t5"
    else:
        copy = folder("bert_plain", name)
    assert notation_of(copy).startswith("biencoder")
    ranker = bundle.open_ranker(str(copy), fp32)
    assert ranker.model.policy["pooling"] == pooling
    ranker.save(tmp_path / "bundle")
    again = bundle.open_ranker(str(tmp_path / "bundle"), fp32).score(make_pairs(9))
    np.testing.assert_array_equal(again, ranker.score(make_pairs(9)))


def test_the_hub_is_asked_for_all_files_that_say_what_a_checkpoint_is(monkeypatch, tmp_path):
    from fnmatch import fnmatch

    import huggingface_hub

    asked = []

    def fetch(name, revision, allow_patterns):
        asked.extend(allow_patterns)
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", fetch)
    with pytest.raises(BadModel, match="no config.json"):
        open_biencoder("own/model")
    for name in (
        "artifact.metadata",
        "chat_template.jinja",
        "2_Dense/config.json",
        "2_Dense/model.safetensors",
    ):
        assert any(fnmatch(name, pattern) for pattern in asked), name
    assert not any(fnmatch(name, pattern) for name in ("modeling.py", "x.bin") for pattern in asked)
