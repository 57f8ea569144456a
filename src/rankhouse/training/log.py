"""The log of a training, one JSON object a line, and the learning curve drawn from it (extra: report).

Lines of steps that will be taken again are removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from rankhouse.core import progress
from rankhouse.core.errors import BadData, WrongUse
from rankhouse.io.decoding import UNREADABLE
from rankhouse.io.files import numbered_lines
from rankhouse.io.outputs import writing, writing_failures
from rankhouse.page.charts import DASHED, Palette, on_axes, plain_axes, write

if TYPE_CHECKING:
    from matplotlib.axes import Axes


Entry = dict[str, Any]
"""A line: {"step", "epoch", "loss", "rate", "norm", "seconds"} or
{"step", "epoch", "measure", "value", "first_stage"}, or once {"step", "epoch", "measure", "encoder"}."""


class _Line(msgspec.Struct):
    """Fields of a line that are read again; null stands for NaN."""

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
