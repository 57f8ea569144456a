"""What a step may write: nothing that a recipe names leads out of the result's folder.

A recipe may come from anybody, so what its steps write beside their outputs is checked before anything runs:
``./name`` stays in the step's own folder, and a cache in the result's; also where symbolic links lie on the
way. What is read may be anywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from rankhouse.recipes.read import commands
from rankhouse.recipes.read.lines import Lines
from rankhouse.recipes.read.references import references

OWN_FILE = "./"
"""How the name of a file begins that a step writes beside its output."""


class Bounds:
    """Refuses what a step would write outside."""

    def __init__(self, lines: Lines, out: Path, program: commands.Program) -> None:
        self._lines, self._out, self._program = lines, out, program

    def check(self, step: str, command: click.Command, options: Mapping[str, Any], folder: Path) -> None:
        """Check every option of a step that names what it writes, and every ``./name``.

        Raises:
            RecipeFault: A path that leads out, or a reference where a name is needed.
        """
        for key, value in options.items():
            place = ("steps", step, key)
            for text in value if isinstance(value, list) else [value]:
                if not isinstance(text, str):
                    continue
                if text.startswith(OWN_FILE):
                    self._refuse_outside(place, text, text.removeprefix(OWN_FILE), folder)
                elif commands.writes(self._program, commands.parameter_of(command, key)):
                    self._check_written(place, text)

    def _check_written(self, place: tuple[str, str, str], text: str) -> None:
        if references(text):
            raise self._lines.fault(
                place,
                f'"{text}" would write into data or into the output of another step; write "./name" for a '
                "file beside the step's own output",
            )
        if place[-1] != commands.CACHE:
            raise self._lines.fault(
                place,
                f'"{text}" would be written outside the step\'s folder; write "./name" for a file beside its '
                "output",
            )
        if not self._lines.by_hand(place):  # the person at the keyboard may share scores among results
            self._refuse_outside(place, text, text, Path())

    def _refuse_outside(self, place: tuple[str, str, str], text: str, inner: str, folder: Path) -> None:
        """Refuse a path that leaves a folder of the result, by its name or by a symbolic link."""
        path = Path(inner)
        base = self._out.resolve() / folder
        named_outside = path.is_absolute() or ".." in path.parts or inner.startswith("~")
        if named_outside or not (base / path).resolve().is_relative_to(base):
            whose = "the result's folder" if folder == Path() else "the step's folder"
            hint = (
                f"; a cache elsewhere can be given by hand:  --set {'.'.join(place)}=PATH"
                if place[-1] == commands.CACHE
                else ""
            )
            raise self._lines.fault(
                place, f'"{text}" leads out of {whose}; give a name inside it, without "..", "/" or "~"{hint}'
            )
