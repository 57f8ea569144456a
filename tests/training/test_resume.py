"""A killed training goes on and ends with the same bits."""

import resource
import shutil
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from rankhouse.core.errors import BadData, BadModel, OutputFailed, WrongUse
from rankhouse.core.run import Run
from rankhouse.models.bundle import load
from rankhouse.training.checkpoint import load_tensors, save_tensors
from rankhouse.training.fit import fit
from rankhouse.training.log import read_log
from rankhouse.training.settings import defaults

pytestmark = pytest.mark.filterwarnings("ignore:.*still improving when training ended")


class Killed(Exception):
    pass


def settings_for(family, **changes):
    usual = {
        "batch": 16, "measure": "AP", "rate": 0.01, "epochs": 3, "checkpoint_every": 4, "validate_every": 5,
        "log_every": 3, "patience": 0, "rates": {}, "device": "cpu", "checkpoint_seconds": 0,
    }  # fmt: skip
    return defaults(family).but(**usual | changes)


def killing(step):
    def progress(done, _):
        if done == step:
            raise Killed

    return progress


def ended(toy, fresh, out, family, settings, kills=(), validated=True):
    """Train in several runs; give outcome, weights and log without times."""
    validation = toy.validation if validated else None
    for step in kills:
        with pytest.raises(Killed):
            fit(fresh(family), toy.examples, settings, out, validation, progress=killing(step))
    model = fresh(family)
    outcome = fit(model, toy.examples, settings, out, validation)
    log = [{k: v for k, v in entry.items() if k != "seconds"} for entry in read_log(out / "log.jsonl")]
    return outcome, model.state_dict(), log


CASES = {
    "knrm adam": ("knrm", {}),
    "knrm adafactor": ("knrm", {"optimizer": "adafactor", "schedule": "linear(warmup=0.3)"}),
    "knrm adamw": ("knrm", {"optimizer": "adamw", "accumulate": 3, "clip": 0.1}),
    "conv-knrm adam": ("conv_knrm", {}),
    "samcnn sgd": ("samcnn", {"schedule": "step(every=1, factor=0.5)", "rate": 0.03}),
    "tk plateau": ("tk", {"schedule": "plateau(factor=0.5, patience=0)", "rates": {"embedding": 1e-3}}),
}


@pytest.mark.quick("knrm-adam")
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(case, marks=pytest.mark.slow if family == "samcnn" else (), id=case.replace(" ", "-"))
        for case, (family, _) in CASES.items()
    ],
)
def test_a_broken_and_resumed_training_ends_bit_equal(toy, fresh, tmp_path, case):
    family, changes = CASES[case]
    settings = settings_for(family, **changes)
    whole = ended(toy, fresh, tmp_path / "whole", family, settings)
    # Within an epoch, at its last step, right behind a checkpoint, and again before the next one.
    broken = ended(toy, fresh, tmp_path / "broken", family, settings, kills=(3, 6, 9, 10, 15))
    assert whole[1].keys() == broken[1].keys()
    assert all(torch.equal(whole[1][name], broken[1][name]) for name in whole[1])
    assert whole[2] == broken[2]
    for field in ("steps", "epochs", "best", "best_step", "validations", "stopped", "remarks"):
        assert getattr(whole[0], field) == getattr(broken[0], field)


@pytest.mark.slow
def test_without_validation_it_ends_bit_equal_too(toy, fresh, tmp_path):
    settings = settings_for("samcnn", rate=0.03, epochs=2)
    whole = ended(toy, fresh, tmp_path / "whole", "samcnn", settings, validated=False)
    broken = ended(toy, fresh, tmp_path / "b", "samcnn", settings, kills=(7, 30), validated=False)
    assert all(torch.equal(whole[1][name], broken[1][name]) for name in whole[1])
    assert whole[2] == broken[2]


@pytest.mark.quick("settings.json")
@pytest.mark.parametrize("name", ["log.jsonl", "settings.json", "untaught.run"])
def test_a_changed_file_is_refused_when_the_training_is_given_again(toy, fresh, tmp_path, name):
    def again(**options):
        fit(fresh("knrm"), toy.examples, settings_for("knrm"), tmp_path, toy.validation, **options)

    with pytest.raises(Killed):
        again(progress=killing(11))
    sound = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(sound.replace(b"1", b"2", 1))
    with pytest.raises(BadModel, match=f"{name}: was changed after it was written"):
        again()
    (tmp_path / name).write_bytes(sound)
    again()
    done = (tmp_path / name).read_bytes()
    (tmp_path / name).write_bytes(done.replace(b"1", b"2", 1))
    with pytest.raises(BadData, match=f"{name}: was changed after it was written"):
        again()


def test_what_was_done_is_not_done_again(toy, fresh, tmp_path):
    with pytest.raises(Killed):
        fit(
            fresh("knrm"), toy.examples, settings_for("knrm"), tmp_path, toy.validation,
            progress=killing(11),
        )  # fmt: skip
    told = []
    fit(
        fresh("knrm"), toy.examples, settings_for("knrm"), tmp_path, toy.validation,
        progress=lambda step, _: told.append(step),
    )  # fmt: skip
    assert told[:2] == [10, 11]  # the checkpoint is of step 10, where it validated
    assert told[-1] == 18


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::rankhouse.core.errors.RankhouseWarning")
def test_what_was_remarked_after_the_first_checkpoint_is_remarked_again(toy, fresh, tmp_path):
    settings = settings_for("knrm", rate=1e-4)
    judged = toy.validation.qrels
    perfect = Run.of([(q, d, float(grade)) for q, grades in judged.items() for d, grade in grades.items()])
    toy = SimpleNamespace(examples=toy.examples, validation=replace(toy.validation, run=perfect))
    whole = ended(toy, fresh, tmp_path / "whole", "knrm", settings)
    broken = ended(toy, fresh, tmp_path / "broken", "knrm", settings, kills=(2,))  # goes on from step 0
    assert any("steps at rate 0.0001" in remark for remark in whole[0].remarks)
    assert whole[0].remarks == broken[0].remarks


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {folder!r})
import torch
torch.set_num_threads(1)
from pathlib import Path
import conftest
from rankhouse.training.examples import from_judgements
from rankhouse.training.fit import fit
from rankhouse.training.settings import Settings
from rankhouse.training.validation import Validation

queries, documents, qrels, run = conftest.make_toy()
texts = [document.full_text for document in documents.values()]
ids = [query.id for query in queries[conftest.LEARNED:]]

def die(step, _):
    if step == 7:
        os.kill(os.getpid(), signal.SIGKILL)

fit(
    conftest.DESIGNS["samcnn"].fresh(texts, seed=1),
    from_judgements(queries[:conftest.LEARNED], qrels, documents, run),
    Settings.from_json({settings!r}),
    {out!r},
    Validation(run.restrict(ids), queries[conftest.LEARNED:], {{q: qrels[q] for q in ids}}, documents),
    progress=die,
)
"""


@pytest.mark.kill
def test_a_training_killed_by_the_system_ends_bit_equal(toy, fresh, tmp_path):
    settings = settings_for("samcnn", rate=0.03, epochs=1)
    out = tmp_path / "killed"
    script = SCRIPT.format(
        folder=str(Path(__file__).parent), settings=settings.to_json().decode(), out=str(out)
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == -signal.SIGKILL, done.stderr
    assert (out / "checkpoint.safetensors").exists()
    assert not (out / "outcome.json").exists()
    whole = ended(toy, fresh, tmp_path / "whole", "samcnn", settings)
    resumed = ended(toy, fresh, out, "samcnn", settings)
    assert all(torch.equal(whole[1][name], resumed[1][name]) for name in whole[1])
    assert whole[2] == resumed[2]


def test_another_training_in_the_folder_is_refused(toy, fresh, tmp_path):
    ways = {
        "settings": (fresh("knrm"), toy.examples, settings_for("knrm", rate=0.5)),
        "model": (fresh("knrm", seed=2), toy.examples, settings_for("knrm")),
        "examples": (fresh("knrm"), toy.examples.restrict(["q1", "q2"]), settings_for("knrm")),
    }
    with pytest.raises(Killed):
        fit(
            fresh("knrm"), toy.examples, settings_for("knrm"), tmp_path, toy.validation,
            progress=killing(6),
        )  # fmt: skip
    for what, (model, examples, settings) in ways.items():
        named = "rate \\(was 0.0" if what == "settings" else "the model, the examples or the validation"
        with pytest.raises(WrongUse, match=f"holds another training, at step 5; not as it was: {named}"):
            fit(model, examples, settings, tmp_path, toy.validation)


def test_a_damaged_checkpoint_is_said(toy, fresh, tmp_path):
    (tmp_path / "checkpoint.safetensors").write_bytes(b"rubbish")
    with pytest.raises(BadModel, match="remove it to start again"):
        fit(fresh("knrm"), toy.examples, settings_for("knrm"), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("changes", "filled", "at"), [({}, 8, 6), ({"checkpoint_every": 0}, 5, 0)], ids=["checkpoint", "ranker"]
)
def test_a_full_disk_leaves_the_best_and_the_last_checkpoint(toy, fresh, tmp_path, changes, filled, at):
    """A limit on file sizes stands for the full disk: the system refuses to write on."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fill(step, _):
        if step == filled:  # the next file to be written comes right behind
            resource.setrlimit(resource.RLIMIT_FSIZE, (4_000, hard))

    settings, out = settings_for("knrm", **changes), tmp_path / "full"
    try:
        with pytest.raises(OutputFailed, match="what was kept before is still there"):
            fit(fresh("knrm"), toy.examples, settings, out, toy.validation, progress=fill)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert load_tensors(out / "checkpoint.safetensors")[1]["standing"]["step"] == at
    assert load(out / "ranker").family == "knrm"
    whole = ended(toy, fresh, tmp_path / "whole", "knrm", settings)
    resumed = ended(toy, fresh, out, "knrm", settings)
    assert all(torch.equal(whole[1][name], resumed[1][name]) for name in whole[1])
    assert whole[2] == resumed[2]


@pytest.mark.slow
def test_what_a_kill_left_half_written_is_mended(toy, fresh, tmp_path):
    settings, out = settings_for("knrm"), tmp_path / "broken"
    with pytest.raises(Killed):
        fit(fresh("knrm"), toy.examples, settings, out, toy.validation, progress=killing(8))
    left = out / ".ranker.abc.part"  # killed when the old ranker had made room and the new was not yet there
    shutil.copytree(out / "ranker", left / "ranker")
    (out / "ranker").rename(left / "replaced")
    whole = ended(toy, fresh, tmp_path / "whole", "knrm", settings)
    resumed = ended(toy, fresh, out, "knrm", settings)
    assert all(torch.equal(whole[1][name], resumed[1][name]) for name in whole[1])
    assert not list(out.glob(".*"))


def test_tensors_that_share_memory_are_written_once(tmp_path):
    table, other = torch.rand(100, 100), torch.rand(100, 100)
    path = tmp_path / "state.safetensors"
    save_tensors(path, {"a": table, "b": table, "c": other[:2], "d": other.T}, {"x": [1, 2.5, "y"]})
    tensors, said = load_tensors(path)
    assert said == {"x": [1, 2.5, "y"]}
    assert torch.equal(tensors["a"], table)
    assert torch.equal(tensors["b"], table)
    assert torch.equal(tensors["c"], other[:2])
    assert torch.equal(tensors["d"], other.T)
    assert path.stat().st_size < 100 * 100 * 4 * 2 + 5_000
