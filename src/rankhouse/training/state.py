"""Where a training stands: what a checkpoint says, how it is written, and how it is found again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from torch import Tensor, nn

from rankhouse.core.errors import BadModel, WrongUse
from rankhouse.core.outputs import others, writing
from rankhouse.training.checkpoint import (
    load_tensors,
    random_states,
    restore_random_states,
    save_tensors,
    under,
)
from rankhouse.training.settings import Settings
from rankhouse.training.steps import Stepper

CHECKPOINT, RANKER = "checkpoint.safetensors", "ranker"
LOG, SETTINGS, OUTCOME, UNTAUGHT = "log.jsonl", "settings.json", "outcome.json", "untaught.run"
"""Names in a training's folder."""
CURVE, VALIDATION_RUN, REPORT = "curve.svg", "validation.run", "report.html"
"""What the command makes of it for people, when it is done."""
_OWN = (RANKER, CHECKPOINT, LOG, OUTCOME, UNTAUGHT, CURVE, VALIDATION_RUN, REPORT)


class Outcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; also in ``outcome.json``.

    Attributes:
        family: The model's.
        steps: Steps taken.
        epochs: Epochs finished.
        measure: What validation measured; "" without validation.
        first_stage: What the validation run is worth as it is; 0 without validation.
        best: The best validation, that of the model that is kept; 0 without validation.
        best_step: Steps the kept model had been taught.
        validations: (step, value) of all.
        stopped: Why training ended before its last epoch; "" if it did not.
        remarks: What was noticed.
        seconds: How long it took, all sittings together.
        training: Name of all that the training started from.
    """

    family: str
    steps: int
    epochs: int
    measure: str
    first_stage: float
    best: float
    best_step: int
    validations: list[tuple[int, float]]
    stopped: str
    remarks: list[str]
    seconds: float
    training: str = ""

    def write(self, path: Path) -> None:
        """Write as JSON."""
        with writing(path) as file:
            file.write(msgspec.json.format(msgspec.json.encode(self), indent=2).decode() + "\n")


class Standing(msgspec.Struct):
    """Where a training stands, besides its tensors.

    Attributes:
        training: Name of all that the training started from.
        step: Steps taken.
        epoch: Epochs finished.
        batch: Batches of this epoch done.
        validations: (step, value) of all so far.
        best_step: Step of what is kept; -1 when nothing is.
        losses: Those not yet in the log.
        stopped: Why training ended early; "" while it goes on.
        remarks: What was noticed, by kind.
        seconds: How long it took until this checkpoint.
    """

    training: str
    step: int = 0
    epoch: int = 0
    batch: int = 0
    validations: list[tuple[int, float]] = []
    best_step: int = -1
    losses: list[float] = []
    stopped: str = ""
    remarks: dict[str, str] = {}
    seconds: float = 0.0

    @property
    def values(self) -> list[float]:
        """Values of all validations."""
        return [value for _, value in self.validations]

    @property
    def best(self) -> float:
        """The best validation; nan before the first."""
        return max(self.values, default=float("nan"))

    @property
    def waited(self) -> int:
        """Validations since the best one."""
        return sum(1 for step, _ in self.validations if step > self.best_step)


class Found(NamedTuple):
    """A checkpoint as read: standing, tensors, and what of optimiser and random states is no tensor."""

    standing: Standing
    tensors: dict[str, Tensor]
    optimiser: dict[str, Any]
    random: dict[str, Any]


def finished(out: Path, training: str) -> Outcome | None:
    """Return what came out of a finished training, cleared of what is left of its work; else None.

    Args:
        out: The training's folder.
        training: Name of all that the training started from.

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
            f"{out}: holds another training, which is finished; model, examples, settings or validation "
            f"differ: rank with {out / RANKER}, or train into another folder"
        )
    _mend(out)
    (out / CHECKPOINT).unlink(missing_ok=True)
    return outcome


def find(out: Path, training: str) -> Found:
    """Return where a folder's training stands; a fresh start, without tensors, where there is none.

    Raises:
        WrongUse: The folder holds another training, or something else.
        BadModel: The checkpoint is damaged.
    """
    _mend(out)
    path = out / CHECKPOINT
    if not path.exists():
        _refuse_foreign(out)
        return Found(Standing(training), {}, {}, {})
    tensors, said = load_tensors(path)
    try:
        found = Found(msgspec.convert(said["standing"], Standing), tensors, said["optimiser"], said["random"])
    except (msgspec.ValidationError, KeyError) as error:
        raise BadModel(f"{path}: not a checkpoint of this version ({error}); remove it") from error
    if found.standing.training != training:
        raise WrongUse(
            f"{out}: holds another training, at step {found.standing.step:,}: model, examples, settings or "
            "validation differ; give the same ones to go on with it, train into another folder, or remove "
            "this one"
        )
    return found


def remove_pages(out: Path) -> None:
    """Remove what the command made of the training that stood here before."""
    for name in (CURVE, VALIDATION_RUN, REPORT):
        (out / name).unlink(missing_ok=True)


def _refuse_foreign(out: Path) -> None:
    """Refuse to train into a folder that holds anything but a training killed before its first checkpoint."""
    if not out.is_dir():
        return
    foreign = others(out, _OWN, [SETTINGS])
    if not foreign and (out / SETTINGS).exists():
        try:
            Settings.from_json((out / SETTINGS).read_bytes())
        except WrongUse:  # somebody's own file of that name
            foreign = [SETTINGS]
    if foreign:
        raise WrongUse(
            f"{out}: holds something else ({', '.join(sorted(foreign)[:5])}), and a training's files would "
            "stand among it; name a new or an empty folder"
        )


def _mend(out: Path) -> None:
    """Clear away what a kill in the middle of writing left; a ranker caught between two names comes back."""
    for left in out.glob(".*.part"):
        if (left / "replaced").is_dir() and not (out / RANKER).exists():
            (left / "replaced").rename(out / RANKER)
        shutil.rmtree(left, ignore_errors=True)


def go_on(found: Found, model: nn.Module, stepper: Stepper) -> None:
    """Put weights, optimiser and random states back."""
    model.load_state_dict(under("model.", found.tensors))
    stepper.restore(under("optimiser.", found.tensors), found.optimiser)
    restore_random_states(under("random.", found.tensors), found.random)


def take_down(path: Path, standing: Standing, model: nn.Module, stepper: Stepper) -> None:
    """Write a checkpoint.

    Raises:
        OutputFailed: It cannot be written; the one before is still there.
    """
    optimiser, other = stepper.state()
    states, rest = random_states()
    tensors = {f"model.{name}": tensor for name, tensor in model.state_dict().items()}
    tensors |= {f"optimiser.{name}": tensor for name, tensor in optimiser.items()}
    tensors |= {f"random.{name}": tensor for name, tensor in states.items()}
    said = {"standing": msgspec.to_builtins(standing), "optimiser": other, "random": rest}
    save_tensors(path, tensors, said)
