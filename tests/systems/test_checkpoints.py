"""The ranker called default, and the list of published checkpoints."""

import json

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import rankhouse as rh
from rankhouse.models.families import PUBLISHED
from rankhouse.systems import rankers
from rankhouse.systems.rankers import CHECKPOINTS, default_ranker, minilm

installed = pytest.mark.skipif(minilm() is None, reason="all-MiniLM is not installed")


def test_listed_checkpoints_are_of_families_that_are_opened():
    assert {checkpoint.family for checkpoint in CHECKPOINTS} <= set(PUBLISHED)


@pytest.mark.slow
@installed
def test_default_is_the_installed_encoder_and_ranks(tmp_path, run):
    texts = ["Bread is baked at night.", "Pilots board ships and steer them into the harbour."]
    ranker, named = rh.open_ranker("default", device="cpu"), rh.open_ranker(default_ranker(), device="cpu")
    assert ranker.fingerprint == named.fingerprint
    assert ranker.rank("guiding vessels to port", texts).doc_ids[0] == "1"
    short = rh.open_ranker('biencoder("default", max_length=64)', device="cpu")
    assert short.model.policy["max_length"] == 64
    done = run("doctor", "default", "--json")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)[0]["kind"] == "ranker"


def test_without_the_package_default_is_a_published_cross_encoder(monkeypatch):
    monkeypatch.setattr(rankers, "PACKAGE", "no_such_package")
    assert default_ranker() == 'crossencoder("cross-encoder/ms-marco-MiniLM-L6-v2")'


def test_the_list_and_the_doctor_say_what_default_is(run):
    listed = json.loads(run("models", "--json").stdout)
    assert listed["default"] == default_ranker()
    assert [one["ranker"] for one in listed["checkpoints"]] == [c.spec for c in CHECKPOINTS]
    assert json.loads(run("doctor", "--json").stdout)["default ranker"] == default_ranker()
    assert "Apache-2.0" in run("models").stdout
