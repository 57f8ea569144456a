"""Bundles: what is saved scores the same when it is opened again, and nothing damaged is opened."""

import json
from importlib import import_module

import numpy as np
import pytest
import torch

from rankhouse.core.errors import BadModel, MissingInput, OutputFailed, WrongUse
from rankhouse.models.bundle import fingerprint, load, open_ranker, read_manifest, save
from rankhouse.models.encoder_rankers import DenseRanker
from rankhouse.models.families import DESIGNS, FAMILIES, open_model
from rankhouse.models.knrm import KNRMDesign
from rankhouse.models.ranker import NeuralRanker
from rankhouse.training.settings import Settings, defaults

SPECS = {
    "t5": 'monot5("{}", targets=("hot", "cold"), max_length=48)',
    "t5_1_1": 'monot5("{}")',
    "bert": 'crossencoder("{}", scale="probability")',
    "bert_nsp": 'crossencoder("{}")',
    "roberta": 'crossencoder("{}", max_length=40)',
    "deberta": 'crossencoder("{}")',
    "bert_plain": 'biencoder("{}", similarity="l2", prompts=("storm ", ""))',
    "sentences_cls": 'biencoder("{}")',
}


@pytest.fixture
def bundle(checkpoint, tmp_path):
    save(open_model(f'crossencoder("{checkpoint("bert")}")'), tmp_path / "ranker", {"pool": "max"})
    return tmp_path / "ranker"


@pytest.mark.parametrize("kind", SPECS)
def test_a_saved_ranker_scores_the_same(kind, checkpoint, pairs, fp32, tmp_path):
    first = open_ranker(SPECS[kind].format(checkpoint(kind)), fp32)
    save(first.model, tmp_path / "ranker")
    second = open_ranker(str(tmp_path / "ranker"), fp32)
    np.testing.assert_array_equal(first.score(pairs), second.score(pairs))
    assert first.fingerprint == second.fingerprint
    assert first.max_length == second.max_length
    assert isinstance(second, DenseRanker) == ("biencoder" in SPECS[kind])
    assert not list((tmp_path / "ranker").glob("*.bin"))
    save(second.model, tmp_path / "again")
    assert fingerprint(load(tmp_path / "again")) == fingerprint(first.model)


def test_a_model_trained_here_is_saved_and_opened_like_the_others(pairs, fp32, tmp_path):
    model = KNRMDesign(vectors="").fresh(
        text for pair in pairs for text in (pair.query.text, pair.passage.text)
    )
    before = NeuralRanker(model, fp32).score(pairs)
    save(model, tmp_path / "knrm")
    np.testing.assert_array_equal(open_ranker(str(tmp_path / "knrm"), fp32).score(pairs), before)


def test_the_manifest_says_what_it_is_and_how_to_use_it(bundle):
    manifest = read_manifest(bundle)
    assert manifest.family == "crossencoder"
    assert manifest.policy["scale"] == "logprob"
    assert manifest.use == {"pool": "max"}
    assert {"python", "torch", "transformers"} <= set(manifest.versions)
    assert sorted(p.name for p in bundle.iterdir()) == [
        "config.json",
        "manifest.json",
        "tokenizer.json",
        "weights.safetensors",
    ]


def test_tied_weights_are_stored_once_and_stay_tied(checkpoint, tmp_path):
    save(open_model(f'monot5("{checkpoint("t5")}")'), tmp_path / "ranker")
    assert read_manifest(tmp_path / "ranker").shared
    network = load(tmp_path / "ranker").network
    assert network.lm_head.weight is network.shared.weight


def test_the_fingerprint_changes_with_policy_vocabulary_weights_and_precision(checkpoint, fp32, bf16):
    spec = f'crossencoder("{checkpoint("bert")}"'
    model = open_model(spec + ")")
    names = {
        fingerprint(model),
        fingerprint(open_model(spec + ', scale="logit")')),
        fingerprint(open_model(spec + ", max_length=40)")),
        fingerprint(open_model(f'crossencoder("{checkpoint("bert_tanh")}")')),
    }
    with torch.no_grad():
        model.network.classifier.bias[0] += 1e-6
    names.add(fingerprint(model))
    model._tokenizer.add_tokens(["storms"])
    names.add(fingerprint(model))
    assert len(names) == 6
    assert NeuralRanker(model, fp32).fingerprint != NeuralRanker(model, bf16).fingerprint
    assert fingerprint(open_model(spec + ")")) == fingerprint(open_model(spec + ")"))


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "weights.safetensors"])
def test_a_missing_file_is_named(bundle, name):
    (bundle / name).unlink()
    with pytest.raises(BadModel, match=name):
        load(bundle)


def test_changed_content_is_noticed(bundle):
    weights = bytearray((bundle / "weights.safetensors").read_bytes())
    weights[-3] ^= 1
    (bundle / "weights.safetensors").write_bytes(weights)
    with pytest.raises(BadModel, match="not what was saved"):
        load(bundle)


def test_cut_weights_are_noticed(bundle):
    weights = (bundle / "weights.safetensors").read_bytes()
    (bundle / "weights.safetensors").write_bytes(weights[: len(weights) // 2])
    with pytest.raises(BadModel, match="incomplete or damaged"):
        load(bundle)


def edit(bundle, **change):
    manifest = json.loads((bundle / "manifest.json").read_text())
    # As an older version wrote it: without the checksum, by which any other change is refused.
    (bundle / "manifest.json").write_text(json.dumps(manifest | {"crc32": None} | change))


def test_a_manifest_that_was_changed_is_refused(bundle):
    text = (bundle / "manifest.json").read_text()
    manifest = json.loads(text)
    (bundle / "manifest.json").write_text(json.dumps(manifest | {"use": {"pool": "sum"}}))
    with pytest.raises(BadModel, match=r"manifest\.json\" was changed after it was written"):
        load(bundle)


def test_manifests_of_another_kind_version_or_family_are_refused(bundle):
    good = (bundle / "manifest.json").read_text()
    for change, reason in (
        ({"format": 3}, "update rankhouse"),
        ({"kind": "rankhouse index"}, "not a ranker"),
        ({"family": "monot7"}, "does not know"),
        ({"assets": ["../secret"]}, "plain file name"),
        ({"policy": {"max_length": 64}}, "do not fit together"),
        ({"policy": [1]}, "cannot be read"),
    ):
        (bundle / "manifest.json").write_text(good)
        edit(bundle, **change)
        with pytest.raises(BadModel, match=reason):
            load(bundle)
    (bundle / "manifest.json").write_text("{")
    with pytest.raises(BadModel, match="cannot be read"):
        load(bundle)


@pytest.mark.parametrize(
    ("kind", "family"),
    [("bert", "crossencoder"), ("bert_nsp", "crossencoder"), ("sentences", "biencoder"), ("t5", "monot5")],
)
def test_a_published_checkpoint_without_its_family_is_opened_by_what_its_files_say(
    kind, family, checkpoint, pairs, fp32
):
    folder = checkpoint(kind)
    scores = open_ranker(folder, fp32).score(pairs)
    np.testing.assert_array_equal(scores, open_ranker(f'{family}("{folder}")', fp32).score(pairs))


def test_what_is_neither_folder_nor_family_is_refused(tmp_path, fp32):
    with pytest.raises(MissingInput, match="no folder.*default;  rankhouse models"):
        open_ranker(str(tmp_path / "nothing"), fp32)
    with pytest.raises(BadModel, match=r"manifest.json"):
        open_ranker(str(tmp_path), fp32)
    with pytest.raises(WrongUse, match="monot5"):
        open_ranker('monoT5("x")', fp32)
    with pytest.raises(WrongUse, match="rankhouse train"):
        open_ranker('tk(vectors="glove.txt")', fp32)
    with pytest.raises(WrongUse, match="accepted"):
        open_ranker('monot5("x", target="true")', fp32)


def test_a_folder_that_is_no_bundle_is_not_overwritten(bundle, tmp_path):
    model = load(bundle)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "thesis.tex").write_text("precious")
    with pytest.raises(WrongUse, match=r"holds something else \(thesis\.tex\)"):
        save(model, tmp_path / "mine")
    save(model, bundle)
    (tmp_path / "file").write_text("x")
    with pytest.raises((WrongUse, OutputFailed)):
        save(model, tmp_path / "file")


def test_every_family_is_published_or_designed():
    assert {"monot5", "crossencoder", "biencoder", "tk", "knrm", "samcnn"} <= set(FAMILIES)
    assert all((family.open is None) != (family.design is None) for family in FAMILIES.values())
    assert all(callable(family.rebuild) for family in FAMILIES.values())
    assert DESIGNS["pacrr_drmm"]().aggregate == "terms"


@pytest.mark.parametrize("name", FAMILIES)
def test_a_familys_line_names_what_there_is(name):
    family = FAMILIES[name]
    module, _, method = family.explain.partition(".")
    assert callable(getattr(import_module(f"rankhouse.explanation.{module}"), method))
    own = {"biencoder": "DenseRanker", "sparse": "SparseRanker"}
    assert family.ranker.__name__ == own.get(name, "NeuralRanker")
    if family.settings is not None:
        assert Settings(**family.settings) == defaults(name)


def test_a_manifest_whose_checksum_lost_its_name_is_refused(bundle):
    path = bundle / "manifest.json"
    path.write_text(path.read_text().replace('"crc32"', '"crc3r"'))
    with pytest.raises(BadModel, match="was changed after it was written"):
        load(bundle)


def test_a_calibration_is_kept_and_a_bundle_without_one_is_written_as_before(
    checkpoint, pairs, fp32, tmp_path
):
    plain = open_ranker(f'crossencoder("{checkpoint("bert")}")', fp32)
    plain.save(tmp_path / "plain")
    fields = json.loads((tmp_path / "plain" / "manifest.json").read_text())
    assert fields["format"] == 1
    assert "calibration" not in fields
    plain.calibration = 'platt(0.5, -1.25, of="logprob")'
    plain.save(tmp_path / "fitted")
    assert read_manifest(tmp_path / "fitted").format == 2  # older versions refuse it, rather than overlook it
    fitted = open_ranker(str(tmp_path / "fitted"), fp32)
    assert fitted.scale == plain.scale == plain.calibration
    assert fitted.fingerprint == plain.fingerprint
    np.testing.assert_array_equal(fitted.score(pairs), plain.score(pairs))
    fitted.save(tmp_path / "again")
    names = sorted(path.name for path in (tmp_path / "fitted").iterdir())
    assert names == sorted(path.name for path in (tmp_path / "plain").iterdir())
    for name in names:
        assert (tmp_path / "again" / name).read_bytes() == (tmp_path / "fitted" / name).read_bytes()


def test_a_calibration_that_was_changed_or_is_none_is_refused(checkpoint, fp32, tmp_path):
    ranker = open_ranker(f'crossencoder("{checkpoint("bert")}")', fp32)
    ranker.calibration = "platt(0.5, -1.25)"
    ranker.save(tmp_path / "fitted")
    manifest = tmp_path / "fitted" / "manifest.json"
    manifest.write_text(manifest.read_text().replace("platt(0.5", "platt(9.5"))
    with pytest.raises(BadModel, match="was changed after it was written"):
        open_ranker(str(tmp_path / "fitted"), fp32)
    ranker.calibration = "sigmoid(1)"
    ranker.save(tmp_path / "other")
    with pytest.raises(BadModel, match="the calibration in manifest.json cannot be read"):
        open_ranker(str(tmp_path / "other"), fp32)


@pytest.mark.parametrize("names", [("settings.json", "log.jsonl"), ("plan.json", "questions")])
def test_a_training_that_has_not_ended_is_named_as_one(tmp_path, names):
    (tmp_path / names[0]).write_text("{}")
    with pytest.raises(BadModel, match="is no ranker saved by rankhouse"):
        read_manifest(tmp_path)
    (tmp_path / names[1]).write_text("")
    with pytest.raises(BadModel, match="is an unfinished training; give its command again"):
        read_manifest(tmp_path)
