"""A training's folder: which training it holds, where that stands, what it keeps, and its log.

It holds ``ranker`` (the best model so far, a bundle), ``log.jsonl``, ``settings.json``, ``untaught.run``
(what the model made of validation before the first step) and, when it is done, ``outcome.json``; until then
also ``checkpoint.safetensors``. Where a head was drawn over an encoder that ranks by itself, ``encoder.run``
holds what that encoder made of validation. The log is one JSON object a line; lines of steps that will be
taken again are removed. The learning curve is drawn from it (extra: report).
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import msgspec
from torch import Tensor, nn

from rankhouse.core import progress
from rankhouse.core.arguments import changed
from rankhouse.core.errors import BadData, WrongUse, name_few
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.files import numbered_lines
from rankhouse.io.outputs import others, writing, writing_failures
from rankhouse.models import bundle
from rankhouse.models.bundle import fingerprint
from rankhouse.models.contract import Model
from rankhouse.page.charts import DASHED, Palette, on_axes, plain_axes, write
from rankhouse.training import checkpoint
from rankhouse.training.examples import Examples
from rankhouse.training.settings import Settings
from rankhouse.training.steps import Stepper
from rankhouse.training.validation import Validation

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Entry = dict[str, Any]
"""A line: {"step", "epoch", "loss", "rate", "norm", "seconds"} or
{"step", "epoch", "measure", "value", "first_stage"}, or once {"step", "epoch", "measure", "encoder"}."""


class _Line(msgspec.Struct):
    """What is read of a line again; null stands for NaN."""

    step: int
    loss: float | None = None
    value: float | None = None
    measure: str = ""
    first_stage: float | None = None
    encoder: float | None = None

    def __post_init__(self) -> None:
        if self.value is not None and not (self.measure and self.first_stage is not None):
            raise ValueError("a validation without its measure or first stage")


class TrainingLog:
    """Appends lines to a log file; every line is on disk before training goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def forget_after(self, step: int, validated: Collection[int] | None = None) -> None:
        """Take out what was logged after a step, as a training that goes on from there will log it again.

        Args:
            validated: Steps of the validations that the checkpoint knows; one it does not know will be made,
                and logged, again. None keeps all up to the step.

        Raises:
            OutputFailed: The file cannot be written.
        """

        def stays(entry: Entry) -> bool:
            known = validated is None or "value" not in entry or entry["step"] in validated
            return entry["step"] <= step and known

        entries = [] if not self._path.exists() else list(filter(stays, read_log(self._path)))
        with writing(self._path) as file:
            file.writelines(_line(entry) for entry in entries)

    def write(self, **entry: object) -> None:
        """Append a line.

        Raises:
            OutputFailed: Disk full or the like.
        """
        progress.logged(entry)
        with writing_failures(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line(entry))


def _line(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode() + "\n"


def read_log(path: Path | str) -> list[Entry]:
    """Read a training's log; a last line cut off by a kill is skipped.

    Raises:
        BadData: A line in the middle is no JSON object.
        MissingInput: No such file.
    """
    path = Path(path)
    entries: list[Entry] = []
    broken = 0
    for number, raw in numbered_lines(path):
        if broken:
            raise BadData("not a line of a training's log; remove the line, or the file", path, broken)
        try:
            msgspec.json.decode(raw, type=_Line)
            entries.append(msgspec.json.decode(raw, type=Entry))
        except UNREADABLE:
            broken = number
    return entries


def write_curve(log: Iterable[Entry], path: Path | str) -> None:
    """Draw the curve into a PNG or SVG file; the same log gives the same bytes.

    Raises:
        WrongUse: Another suffix, or a log without a step.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    entries = list(log)
    if not entries:
        raise WrongUse("the log is empty, so there is no curve to draw")
    write(on_axes(lambda axes, palette: _draw(entries, axes, palette), (7.5, 4.2)), path, "curve")


def _draw(entries: list[Entry], axes: Axes, palette: Palette) -> None:
    from matplotlib.ticker import MaxNLocator  # noqa: PLC0415 - optional, and slow to load

    losses = [entry for entry in entries if "loss" in entry]
    validations = [entry for entry in entries if "value" in entry]
    alone = "o" if len(losses) == 1 else None  # a line through one point shows nothing
    steps, values = [e["step"] for e in losses], [e["loss"] for e in losses]
    axes.plot(steps, values, color=palette.muted, marker=alone, markersize=3, linewidth=1.0)
    axes.xaxis.set_major_locator(MaxNLocator("auto", integer=True, min_n_ticks=1, steps=[1, 2, 5, 10]))
    axes.set_xlabel("step")
    axes.set_ylabel("training loss")
    if validations:
        beside = axes.twinx()
        steps, values = [e["step"] for e in validations], [e["value"] for e in validations]
        beside.plot(steps, values, color=palette.gain, marker="o", markersize=3, linewidth=1.4)
        first_stage = validations[0]["first_stage"]
        beside.axhline(first_stage, color=palette.loss, linewidth=1.0, linestyle=DASHED)
        beside.set_ylabel(f"{validations[0]['measure']} on validation")
        plain_axes(beside, palette, grid=False)
        beside.yaxis.label.set_color(palette.gain)
        best = max(range(len(values)), key=lambda i: (values[i], -i))
        if steps[0] == 0:
            beside.axhline(values[0], color=palette.gain, linewidth=0.8, linestyle=(0, (1, 2)))
        untaught = f"untaught {values[0]:.4f} (dotted); " if steps[0] == 0 else ""
        for encoder in (entry["encoder"] for entry in entries if "encoder" in entry):
            beside.axhline(encoder, color=palette.ink, linewidth=0.8, linestyle=(0, (4, 2, 1, 2)))
            untaught += f"encoder alone {encoder:.4f} (dash-dotted); "
        axes.set_title(
            f"{untaught}best {values[best]:.4f} at step {steps[best]:,}; "
            f"first stage {first_stage:.4f} (dashed)",
            fontsize=9,
            color=palette.ink,
        )


class TrainingOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """What came out; also in ``outcome.json``."""

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
    training: str = ""  # name of all that the training started from
    untaught: float = 0.0  # the validation before the first step; 0 without validation
    # what the encoder is worth by its checkpoint's own similarity, where the training began by drawing a head
    # over it; None elsewhere, and without validation
    encoder: float | None = None


class TrainingState(msgspec.Struct):
    """Where a training stands, besides its tensors."""

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


CHECKPOINT, RANKER = "checkpoint.safetensors", "ranker"
LOG, SETTINGS, OUTCOME = "log.jsonl", "settings.json", "outcome.json"
UNTAUGHT, ENCODER = "untaught.run", "encoder.run"
"""Names in a training's folder."""
KEPT = (LOG, SETTINGS, UNTAUGHT, ENCODER)
"""Files that stay as they are when a training is done; the bundle has checksums of its own."""
CURVE, VALIDATION_RUN, REPORT = "curve.svg", "validation.run", "report.html"
NUMBERS, COMMAND = "validation.json", "command.txt"
"""Read for model cards."""
PAGES = (CURVE, VALIDATION_RUN, REPORT, NUMBERS, COMMAND)
"""What the command makes of it for people, when it is done."""
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
    parts = f"{fingerprint(model)} {examples.fingerprint} {held_out} {settings.to_json().decode()}"
    if settings.loss or settings.denoise:
        parts += f" {examples.score_fingerprint}"
    return sha256(parts.encode()).hexdigest()[:32]


def finished(out: Path, training: str, settings: Settings) -> TrainingOutcome | None:
    """Return what came out of a finished training, cleared of what is left of its work; else None.

    Raises:
        WrongUse: The folder holds another finished training.
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

    Raises:
        WrongUse: The folder holds another training, or something else.
        BadModel: The checkpoint is damaged.
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

        Raises:
            OutputFailed: One cannot be written; those before are still there.
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
