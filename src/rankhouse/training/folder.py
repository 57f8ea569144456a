"""A training's folder: which training it holds, where that stands, and what it keeps.

It holds ``ranker`` (the best model so far, a bundle), ``log.jsonl``, ``settings.json``, ``untaught.run``
(what the model made of validation before the first step) and, when it is done, ``outcome.json``; until then
also ``checkpoint.safetensors``. Where a head was drawn over an encoder that ranks by itself, ``encoder.run``
holds what that encoder made of validation.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any, cast

import msgspec
from torch import Tensor, nn

from rankhouse.core.arguments import changed
from rankhouse.core.errors import WrongUse, name_few
from rankhouse.io.outputs import others
from rankhouse.models import bundle
from rankhouse.models.bundle import fingerprint
from rankhouse.models.contract import Model
from rankhouse.training import checkpoint
from rankhouse.training.examples import Examples
from rankhouse.training.settings import Settings
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """Result of a training; also in ``outcome.json``."""

    family: str
    steps: int  # steps taken
    epochs: int  # epochs finished
    measure: str  # what validation measured; "" without validation
    first_stage: float  # what the validation run is worth as it is; 0 without validation
    best: float  # the best validation, that of the model that is kept; 0 without validation
    best_step: int  # steps the kept model had been taught
    validations: list[tuple[int, float]]  # (step, value) of all
    stopped: str  # why training ended before its last epoch; "" if it did not
    remarks: list[str]
    seconds: float  # how long it took, over all resumptions
    ended: str = ""  # why training ended, early or not; "" in those of earlier versions
    training: str = ""  # name of all that the training started from
    untaught: float = 0.0  # the validation before the first step; 0 without validation
    # what the encoder is worth by its checkpoint's own similarity, where the training began by drawing a head
    # over it; None elsewhere, and without validation
    encoder: float | None = None


class TrainingState(msgspec.Struct):
    """State of a training, besides its tensors."""

    training: str  # name of all that the training started from
    step: int = 0
    epoch: int = 0
    batch: int = 0  # batches of this epoch done
    validations: list[tuple[int, float]] = []  # (step, value) of all so far
    encoder: float | None = None  # what the encoder is worth without a head; see :class:`TrainingOutcome`
    best_step: int = -1  # step of what is kept; -1 when nothing is
    losses: list[float] = []  # those not yet in the log
    stopped: str = ""  # why training ended early; "" while it goes on
    remarks: dict[str, str] = {}
    seconds: float = 0.0  # how long it took until this checkpoint

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


CHECKPOINT, RANKER = "checkpoint.safetensors", bundle.RANKER
LOG, SETTINGS, OUTCOME = "log.jsonl", "settings.json", "outcome.json"
UNTAUGHT, ENCODER = "untaught.run", "encoder.run"
"""Names in a training's folder."""
KEPT = (LOG, SETTINGS, UNTAUGHT, ENCODER)
"""Files that stay as they are when a training is done; the bundle has checksums of its own."""
CURVE, VALIDATION_RUN, REPORT = "curve.svg", "validation.run", "report.html"
NUMBERS, COMMAND = "validation.json", "command.txt"
"""Read for model cards."""
PAGES = (CURVE, VALIDATION_RUN, REPORT, NUMBERS, COMMAND)
"""Files that the command writes for people, when the training is done."""
MARKS = (CHECKPOINT, RANKER, LOG, SETTINGS, OUTCOME, UNTAUGHT, ENCODER)
"""Each of them shows that a folder is a training's."""


def load_best(model: Model[Any], out: Path) -> None:
    """Replace a model's weights by those that a training kept, and set it to evaluation."""
    network = cast(nn.Module, model)
    network.load_state_dict(bundle.load(out / RANKER).state_dict())
    network.eval()


def training_name(
    model: Model[Any], examples: Examples, settings: Settings, validation: Validation | None
) -> str:
    """Name a training by all that it starts from."""
    held_out = validation.fingerprint if validation else ""
    parts = f"{fingerprint(model)} {examples.fingerprint} {held_out} {settings.identity()}"
    if settings.loss or settings.denoise:
        parts += f" {examples.score_fingerprint}"
    return sha256(parts.encode()).hexdigest()[:32]


def finished(out: Path, training: str, settings: Settings) -> TrainingOutcome | None:
    """Return what came out of a finished training, cleared of what is left of its work; else None.

    Raises WrongUse: the folder holds another finished training.
    """
    path = out / OUTCOME
    if not path.exists():
        return None
    outcome = checkpoint.read_outcome(path, TrainingOutcome)
    if outcome is None or outcome.training != training:
        raise WrongUse(
            f"{out}: holds another training, which is finished; not as it was: {_changed(out, settings)}; "
            f"rank with {out / RANKER}, or train into another folder"
        )
    (out / CHECKPOINT).unlink(missing_ok=True)
    return outcome


def resume_point(
    out: Path, training: str, settings: Settings
) -> tuple[checkpoint.Checkpoint[TrainingState], dict[str, Tensor]]:
    """Return where a folder's training stands, and its tensors: none for a fresh start.

    Raises WrongUse: the folder holds another training, or something else; BadModel: the checkpoint is
    damaged.
    """
    path = out / CHECKPOINT
    if not path.exists():
        _refuse_foreign(out)
        return checkpoint.Checkpoint(TrainingState(training), {}), {}
    point, tensors = checkpoint.load_state(path, checkpoint.Checkpoint[TrainingState])
    state = point.standing
    if state.training != training:
        raise WrongUse(
            f"{out}: holds another training, at step {state.step:,}; not as it was: "
            f"{_changed(out, settings)}; give the same to go on with it, train into another folder, or "
            "remove this one"
        )
    return point, tensors


def _changed(out: Path, settings: Settings) -> str:
    """Return which settings a folder's training has otherwise, or what else it may be."""
    unknown = "the model, the examples or the validation"
    try:
        before = Settings.from_json((out / SETTINGS).read_bytes())
    except (OSError, WrongUse):  # gone, or of an earlier version
        return f"a setting, {unknown}"
    return ", ".join(changed(before.to_dict(), settings.to_dict())) or unknown


def _refuse_foreign(out: Path) -> None:
    """Refuse to train into a folder that holds anything but a training killed before its first checkpoint."""
    if not out.is_dir():
        return
    foreign = others(out, (*MARKS, *PAGES), [SETTINGS])
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


@dataclass
class Snapshots:
    """Keeps the best model of a training and where the training stands."""

    model: Model[Any]
    stepper: Stepper
    out: Path
    use: Mapping[str, str]
    seconds: float
    _best: dict[str, Tensor] | None = None
    _saved: float = field(default_factory=time.monotonic)
    _cost: float = 0.0

    @property
    def _network(self) -> nn.Module:
        return cast(nn.Module, self.model)

    @property
    def due(self) -> bool:
        """Whether a kill would now lose more work than writing costs: a twentieth of the time at most."""
        return time.monotonic() - self._saved >= (self.seconds and max(self.seconds, 20 * self._cost))

    def remember(self) -> None:
        """Take the model as it is now for the best."""
        self._best = {name: t.detach().to("cpu", copy=True) for name, t in self._network.state_dict().items()}

    def save(self, state: TrainingState) -> None:
        """Write the best model and a checkpoint.

        Raises OutputFailed: one cannot be written; those before are still there.
        """
        began = time.monotonic()
        self.write_best()
        path, optimiser = self.out / CHECKPOINT, self.stepper.optimiser
        beside = checkpoint.sums_of(self.out, KEPT)
        checkpoint.save_state(
            path, state, self._network, optimiser, random=checkpoint.random_states(), beside=beside
        )
        self._saved = time.monotonic()
        self._cost = self._saved - began

    def write_best(self) -> None:
        """Write the best model, unless it stands there already; the one before stays where that fails."""
        if self._best is None:
            return
        now = {name: tensor.detach().clone() for name, tensor in self._network.state_dict().items()}
        self._network.load_state_dict(self._best)
        try:
            with checkpoint.saving(self.out / RANKER):
                bundle.save(self.model, self.out / RANKER, self.use)
        finally:
            self._network.load_state_dict(now)
        self._best = None
