"""Settings: typed, frozen, read back as written."""

from types import SimpleNamespace

import msgspec
import pytest
from torch import nn

from rankhouse.core.errors import WrongUse
from rankhouse.models.families import DESIGNS, FAMILIES
from rankhouse.training import folder
from rankhouse.training.optimizer import parameter_groups
from rankhouse.training.settings import Settings, defaults


@pytest.mark.parametrize("family", [name for name, one in FAMILIES.items() if one.settings is not None])
def test_every_familys_settings_are_read_back_as_written(family):
    settings = defaults(family)
    assert Settings.from_json(settings.to_json()) == settings


def test_the_papers_numbers_are_the_defaults():
    tk, posts, monot5 = defaults("tk"), defaults("samcnn"), defaults("monot5")
    assert (tk.optimizer, tk.rate, tk.rates["embedding"], tk.rates["encoder"], tk.batch) == (
        "adam", 1e-3, 1e-4, 1e-4, 64,
    )  # fmt: skip
    assert (tk.validate_every, tk.patience, tk.schedule) == ("auto", 35, "plateau(factor=0.5, patience=10)")
    assert (posts.rate, posts.by_query, posts.count) == (0.03, 256, 0)
    assert posts.optimizer == "sgd(momentum=0.9, weight_decay=1e-4)"
    assert posts.schedule == "step(every=5, factor=0.75)"
    assert (monot5.optimizer, monot5.rate, monot5.schedule, monot5.batch, monot5.count) == (
        "adafactor", 1e-3, "constant", 128, 1,
    )  # fmt: skip
    assert (defaults("crossencoder").rate, defaults("crossencoder").batch) == (1e-5, 16)
    assert defaults("biencoder").rate == 2e-5


def test_every_family_has_settings_that_fit_it(toy):
    texts = [document.full_text for document in toy.documents.values()]
    for name, design in DESIGNS.items():
        if name.startswith("cedr"):  # begun on a checkpoint: tests/models/test_cedr.py
            continue
        sizes = {"heads": 2, "attention_width": 4} if name == "tk" else {}
        model = design(width=8, min_count=1, **sizes).fresh(texts)
        settings = defaults(model.family)
        groups = parameter_groups(model, settings.rate, settings.rates)
        assert {group["lr"] for group in groups} >= {settings.rate}
        learning = sum(parameter.requires_grad for parameter in model.parameters())
        assert sum(len(group["params"]) for group in groups) == learning


@pytest.mark.parametrize("stack", ["bert.encoder.layer", "model.layers", "encoder.block"])
def test_rates_fall_from_layer_to_layer_below_the_head_and_frozen_parts_stay_frozen(stack):
    layers = nn.Sequential(*(nn.Linear(2, 2, bias=False) for _ in range(3)))
    model = nn.Module()
    place, _, last = f"network.{stack}".rpartition(".")
    for name, part in [
        (f"{place}.{last}", layers),
        ("network.embeddings.words", nn.Embedding(3, 2)),
        ("network.classifier", nn.Linear(2, 2, bias=False)),
        ("network.pooler", nn.Linear(2, 2, bias=False)),
    ]:
        at = model
        for step in name.split(".")[:-1]:
            if step not in dict(at.named_children()):
                at.add_module(step, nn.Module())
            at = at.get_submodule(step)
        at.add_module(name.split(".")[-1], part)
    groups = parameter_groups(model, 1e-2, {"network.classifier": 0.5, "network.pooler": 0}, 0.5)
    rate_of = {id(parameter): group["lr"] for group in groups for parameter in group["params"]}
    rates = {name: rate_of.get(id(parameter)) for name, parameter in model.named_parameters()}
    assert rates == {
        f"network.{stack}.2.weight": 5e-3,
        f"network.{stack}.1.weight": 2.5e-3,
        f"network.{stack}.0.weight": 1.25e-3,
        "network.embeddings.words.weight": 6.25e-4,
        "network.classifier.weight": 0.5,
        "network.pooler.weight": None,
    }


def test_a_decay_from_layer_to_layer_is_refused_where_there_are_none():
    with pytest.raises(WrongUse, match="no layers one above the other"):
        parameter_groups(nn.Linear(2, 2), 1e-2, {}, 0.5)


def test_settings_do_not_change_but_give_changed_ones():
    settings = defaults("tk")
    assert settings.but(epochs=7, rate=0.5).epochs == 7
    assert settings.epochs == 3
    with pytest.raises(AttributeError):
        settings.epochs = 7


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"epochs": 0}, "1 or more"),
        ({"epochs": "many"}, "int"),
        ({"epoch": 3}, 'did you mean "epochs"'),
        ({"rate": 0.0}, "above 0"),
        ({"rate": float("inf")}, "above 0"),
        ({"rates": {"encoder": -1.0}}, "above 0"),
        ({"accumulate": 33}, "parts"),
        ({"optimizer": "adma"}, 'did you mean "adam"'),
        ({"optimizer": "adam(rate=3)"}, "accepted"),
        ({"schedule": "cosine"}, "linear"),
        ({"negatives": "run(5, 5)"}, "stop"),
        ({"measure": "AP P@5"}, "one measure"),
        ({"measure": "APP"}, "APP"),
        ({"precision": "fp8"}, "precision"),
        ({"layer_decay": 0.0}, "at most 1"),
        ({"layer_decay": 1.5}, "at most 1"),
        ({"dropout": 1.0}, "below 1"),
        ({"dropout": -0.1}, "0 or more"),
    ],
)
def test_what_is_not_accepted_is_said(changes, said):
    with pytest.raises(WrongUse, match=said.replace("(", r"\(")):
        Settings().but(**changes)


@pytest.mark.parametrize("text", ["{", '{"epochs": 0}', '{"rate": "fast"}', '{"speed": 1}', "[]"])
def test_a_faulty_file_is_refused(text):
    with pytest.raises(WrongUse):
        Settings.from_json(text)


def test_settings_left_out_have_their_defaults(tmp_path):
    assert Settings.from_json('{"epochs": 9}') == Settings(epochs=9)
    Settings(epochs=9).write(tmp_path / "settings.json")
    assert msgspec.json.decode((tmp_path / "settings.json").read_bytes())["epochs"] == 9


def test_a_training_begun_before_a_setting_existed_keeps_its_name(monkeypatch):
    """The name was noted before there was ``tower``; a new setting belongs in ``_LATER``."""
    monkeypatch.setattr(folder, "fingerprint", lambda model: "m")
    examples = SimpleNamespace(fingerprint="e", score_fingerprint="s")
    noted = "d522ef724f58de7cf542b683d4f8f3f4"
    assert folder.training_name(None, examples, Settings(), None) == noted
    assert folder.training_name(None, examples, Settings(tower="query"), None) != noted
