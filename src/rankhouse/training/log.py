"""The log of a training, one JSON object a line, and the picture of its learning curve (extra: report)."""

from __future__ import annotations

import io
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

import msgspec

from rankhouse.core.errors import BadData, MissingExtra, WrongUse, writing_failures
from rankhouse.core.files import numbered_lines
from rankhouse.core.outputs import replacing, writing

Entry = dict[str, Any]
"""A line: {"step", "epoch", "loss", "rate", "norm", "seconds"} or
{"step", "epoch", "measure", "value", "first_stage"}."""


class Journal:
    """Appends lines to a log file; every line is on disk before training goes on."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def forget_after(self, step: int, validated: Collection[int] | None = None) -> None:
        """Take out what was logged after a step, as a training that goes on from there will log it again.

        Args:
            step: The checkpoint's.
            validated: Steps of the validations that the checkpoint knows; one it does not know will be made,
                and logged, again. None keeps all up to the step.

        Raises:
            OutputFailed: The file cannot be written.
        """

        def stays(entry: Entry) -> bool:
            known = validated is None or "value" not in entry or entry["step"] in validated
            return entry["step"] <= step and known

        kept = [] if not self._path.exists() else list(filter(stays, read_log(self._path)))
        with writing(self._path) as file:
            file.writelines(_line(entry) for entry in kept)

    def write(self, **entry: object) -> None:
        """Append a line.

        Raises:
            OutputFailed: Disk full or the like.
        """
        with writing_failures(self._path), self._path.open("a", encoding="utf-8") as file:
            file.write(_line(entry))


def _line(entry: Entry) -> str:
    return msgspec.json.encode(entry).decode() + "\n"


def read_log(path: Path | str) -> list[Entry]:
    """Read a training's log; a last line cut off by a kill is passed over.

    Raises:
        BadData: A line in the middle is no JSON object.
        MissingInput: No such file.
    """
    path = Path(path)
    entries: list[Entry] = []
    broken = 0
    for number, raw in numbered_lines(path):
        if broken:
            raise BadData("not a line of a training's log", path, broken)
        try:
            entries.append(msgspec.json.decode(raw, type=Entry))
        except msgspec.DecodeError:
            broken = number
    return entries


def write_curve(log: Iterable[Entry], path: Path | str) -> None:
    """Draw loss, validation and the first stage over steps; the same log gives the same bytes.

    Args:
        log: From :func:`read_log`.
        path: A .png or .svg file.

    Raises:
        WrongUse: Another suffix, or a log without a step.
        MissingExtra: matplotlib is not installed.
        OutputFailed: The file cannot be written.
    """
    path = Path(path)
    kind = path.suffix.lower().removeprefix(".")
    if kind not in ("png", "svg"):
        raise WrongUse(f'"{path}": curves are written as .png or .svg; give the file one of these endings')
    entries = list(log)
    if not entries:
        raise WrongUse("the log is empty, so there is no curve to draw")
    try:
        import matplotlib as mpl  # noqa: PLC0415 - optional, and slow to load
    except ImportError as error:
        raise MissingExtra("drawing learning curves", "report") from error
    drawn = io.BytesIO()
    with mpl.rc_context():
        mpl.rcdefaults()  # whatever the user's own settings say
        mpl.rcParams.update({"svg.hashsalt": "curve", "svg.fonttype": "none", "font.size": 9.0})
        no_dates = {"Software": None} if kind == "png" else {"Date": None, "Creator": None}
        _figure(entries).savefig(drawn, format=kind, dpi=160, metadata=no_dates)
    with replacing(path) as temporary, writing_failures(path):
        temporary.write_bytes(drawn.getvalue())


def _figure(entries: list[Entry]) -> Any:  # noqa: ANN401 - matplotlib is optional
    from matplotlib.figure import Figure  # noqa: PLC0415 - optional, and slow to load

    losses = [entry for entry in entries if "loss" in entry]
    validations = [entry for entry in entries if "value" in entry]
    figure = Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    axes.plot([e["step"] for e in losses], [e["loss"] for e in losses], color="#656d76", linewidth=1.0)
    axes.set_xlabel("step")
    axes.set_ylabel("training loss", color="#656d76")
    axes.spines[["top", "right"]].set_visible(False)
    if validations:
        beside = axes.twinx()
        steps, values = [e["step"] for e in validations], [e["value"] for e in validations]
        beside.plot(steps, values, color="#2370b3", marker="o", markersize=3, linewidth=1.4)
        first_stage = validations[0]["first_stage"]
        beside.axhline(first_stage, color="#c4541d", linewidth=1.0, linestyle=(0, (4, 3)))
        beside.set_ylabel(f"{validations[0]['measure']} on validation", color="#2370b3")
        beside.spines["top"].set_visible(False)
        best = max(range(len(values)), key=lambda i: (values[i], -i))
        if steps[0] == 0:
            beside.axhline(values[0], color="#2370b3", linewidth=0.8, linestyle=(0, (1, 2)))
        untaught = f"untaught {values[0]:.4f} (dotted); " if steps[0] == 0 else ""
        axes.set_title(
            f"{untaught}best {values[best]:.4f} at step {steps[best]:,}; "
            f"first stage {first_stage:.4f} (dashed)",
            fontsize=9,
        )
    return figure
