"""A training's folder: which training it holds, where that stands, and how it is gone on with.

It holds ``ranker`` (the best model so far, a bundle), ``log.jsonl``, ``settings.json``, ``untaught.run``
(what the model made of validation before the first step) and, when it is done, ``outcome.json``; while it
goes on also ``checkpoint.safetensors``. Where a head was drawn over an encoder that ranks by itself,
``encoder.run`` holds what that encoder made of validation.
"""

from __future__ import annotations

from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple, cast

import msgspec
from torch import Tensor, nn

from rankhouse.core.arguments import changed
from rankhouse.core.errors import BadModel, WrongUse, name_few
from rankhouse.io.outputs import others
from rankhouse.models import loading
from rankhouse.models.contract import Model, fingerprint
from rankhouse.training.checkpoint import (
    load_tensors,
    random_states,
    restore_random_states,
    save_tensors,
    under,
)
from rankhouse.training.examples import Examples
from rankhouse.training.settings import Settings
from rankhouse.training.state import Outcome, TrainingState
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation

CHECKPOINT, RANKER = "checkpoint.safetensors", "ranker"
LOG, SETTINGS, OUTCOME = "log.jsonl", "settings.json", "outcome.json"
UNTAUGHT, ENCODER = "untaught.run", "encoder.run"
"""Names in a training's folder."""
CURVE, VALIDATION_RUN, REPORT = "curve.svg", "validation.run", "report.html"
"""What the command makes of it for people, when it is done."""
MARKS = (CHECKPOINT, RANKER, LOG, SETTINGS, OUTCOME, UNTAUGHT, ENCODER)
"""Each of them shows that a folder is a training's."""


def load_best(model: Model[Any], out: Path) -> None:
    """Load the weights that a training kept into a model, and set it to evaluation.

    Args:
        model: What was trained; its weights are replaced.
    """
    network = cast(nn.Module, model)
    network.load_state_dict(loading.load(out / RANKER).state_dict())
    network.eval()


def training_name(
    model: Model[Any], examples: Examples, settings: Settings, validation: Validation | None
) -> str:
    """Name a training by all that it starts from."""
    held_out = validation.fingerprint if validation else ""
    parts = f"{fingerprint(model)} {examples.fingerprint} {held_out} {settings.to_json().decode()}"
    if settings.loss or settings.denoise:
        parts += f" {examples.score_fingerprint}"
    return sha256(parts.encode()).hexdigest()[:32]


class ResumePoint(NamedTuple):
    """A checkpoint as read: state, tensors, and what of optimiser and random states is no tensor."""

    state: TrainingState
    tensors: dict[str, Tensor]
    optimiser: dict[str, Any]
    random: dict[str, Any]


def finished(out: Path, training: str, settings: Settings) -> Outcome | None:
    """Return what came out of a finished training, cleared of what is left of its work; else None.

    Raises:
        WrongUse: The folder holds another finished training.
    """
    path = out / OUTCOME
    if not path.exists():
        return None
    try:
        outcome = msgspec.json.decode(path.read_bytes(), type=Outcome)
    except msgspec.DecodeError:  # of an earlier version, or changed by hand
        outcome = None
    if outcome is None or outcome.training != training:
        raise WrongUse(
            f"{out}: holds another training, which is finished; not as it was: {_changed(out, settings)}; "
            f"rank with {out / RANKER}, or train into another folder"
        )
    (out / CHECKPOINT).unlink(missing_ok=True)
    return outcome


def resume_point(out: Path, training: str, settings: Settings) -> ResumePoint:
    """Return where a folder's training stands; a fresh start, without tensors, where there is none.

    Raises:
        WrongUse: The folder holds another training, or something else.
        BadModel: The checkpoint is damaged.
    """
    path = out / CHECKPOINT
    if not path.exists():
        _refuse_foreign(out)
        return ResumePoint(TrainingState(training), {}, {}, {})
    tensors, notes = load_tensors(path)
    try:
        point = ResumePoint(
            msgspec.convert(notes["standing"], TrainingState), tensors, notes["optimiser"], notes["random"]
        )
    except (msgspec.ValidationError, KeyError) as error:
        raise BadModel(f"{path}: not a checkpoint of this version ({error}); remove it") from error
    if point.state.training != training:
        raise WrongUse(
            f"{out}: holds another training, at step {point.state.step:,}; not as it was: "
            f"{_changed(out, settings)}; give the same to go on with it, train into another folder, or "
            "remove this one"
        )
    return point


def _changed(out: Path, settings: Settings) -> str:
    """Return which settings a folder's training has otherwise, or what else it may be."""
    unknown = "the model, the examples or the validation"
    try:
        before = Settings.from_json((out / SETTINGS).read_bytes())
    except (OSError, WrongUse):  # gone, or of an earlier version
        return f"a setting, {unknown}"
    return ", ".join(changed(before.to_dict(), settings.to_dict())) or unknown


def remove_pages(out: Path) -> None:
    """Remove what the command made of the training that stood here before."""
    for name in (CURVE, VALIDATION_RUN, REPORT):
        (out / name).unlink(missing_ok=True)


def _refuse_foreign(out: Path) -> None:
    """Refuse to train into a folder that holds anything but a training killed before its first checkpoint."""
    if not out.is_dir():
        return
    foreign = others(out, (*MARKS, CURVE, VALIDATION_RUN, REPORT), [SETTINGS])
    if not foreign and (out / SETTINGS).exists():
        try:
            Settings.from_json((out / SETTINGS).read_bytes())
        except WrongUse:  # somebody's own file of that name
            foreign = [SETTINGS]
    if foreign:
        raise WrongUse(
            f"{out}: holds something else ({name_few(sorted(foreign))}), and a training's files would "
            "stand among it; name a new or an empty folder"
        )


def restore(point: ResumePoint, model: Model[Any], stepper: Stepper) -> None:
    """Put weights, optimiser and random states back."""
    cast(nn.Module, model).load_state_dict(under("model.", point.tensors))
    stepper.restore(under("optimiser.", point.tensors), point.optimiser)
    restore_random_states(under("random.", point.tensors), point.random)


def write_checkpoint(path: Path, state: TrainingState, model: nn.Module, stepper: Stepper) -> None:
    """Write a checkpoint.

    Raises:
        OutputFailed: It cannot be written; the one before is still there.
    """
    optimiser, other = stepper.state()
    states, rest = random_states()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"optimiser.{name}": tensor for name, tensor in optimiser.items()}
    tensors |= {f"random.{name}": tensor for name, tensor in states.items()}
    notes = {"standing": msgspec.to_builtins(state), "optimiser": other, "random": rest}
    save_tensors(path, tensors, notes)
