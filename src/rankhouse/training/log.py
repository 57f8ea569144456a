"""The log of a training, one JSON object a line; lines of steps that will be taken again are removed."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Any

import msgspec

from rankhouse.core.errors import BadData
from rankhouse.io.files import numbered_lines
from rankhouse.io.outputs import writing, writing_failures

Entry = dict[str, Any]
"""A line: {"step", "epoch", "loss", "rate", "norm", "seconds"} or
{"step", "epoch", "measure", "value", "first_stage"}, or once {"step", "epoch", "measure", "encoder"}."""


class TrainingLog:
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

        entries = [] if not self._path.exists() else list(filter(stays, read_log(self._path)))
        with writing(self._path) as file:
            file.writelines(_line(entry) for entry in entries)

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
