"""The paths that a step may name: what it reads stands under [data], what it writes stays in the result.

A recipe may come from anybody, so what its steps write beside their outputs is checked before anything runs:
``./name`` stays in the step's own folder, and a cache in the result's; also where symbolic links lie on the
way. What is read may be anywhere.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from rankhouse.recipes.read.commands import CACHE, StepCommand
from rankhouse.recipes.read.parse import RecipeFile
from rankhouse.recipes.read.references import references

OWN_FILE = "./"
"""How the name of a file begins that a step writes beside its output."""


class Bounds:
    """Refuses paths in the options of steps, with the line."""

    def __init__(self, file: RecipeFile, out: Path) -> None:
        self._lines, self._folder, self._out = file.lines, file.folder, out

    def check_read(self, step: str, command: StepCommand, options: Mapping[str, Any]) -> None:
        """Refuse literal paths of what is read: recipes name such files under [data]."""
        for key, text in _texts(options):
            if text.startswith(OWN_FILE) or command.writes(key) or references(text):
                continue
            if command.names_a_file(key, text, self._folder):
                raise self._lines.fault(
                    ("steps", step, key),
                    f'"{text}" comes from outside; name it under [data] and refer to it as "@name" '
                    '(a file the step writes beside its output is "./name")',
                )

    def check_written(
        self, step: str, command: StepCommand, options: Mapping[str, Any], folder: Path
    ) -> None:
        """Refuse paths of what is written that lead out of the step's folder (a cache: of the result's)."""
        for key, text in _texts(options):
            place = ("steps", step, key)
            if text.startswith(OWN_FILE):
                self._refuse_outside(place, text, text.removeprefix(OWN_FILE), folder)
            elif not command.writes(key):
                continue
            elif references(text):
                raise self._lines.fault(
                    place,
                    f'"{text}" would write into data or into the output of another step; write "./name" for '
                    "a file beside the step's own output",
                )
            elif key != CACHE:
                raise self._lines.fault(
                    place,
                    f'"{text}" would be written outside the step\'s folder; write "./name" for a file beside '
                    "its output",
                )
            elif not self._lines.by_hand(place):  # the person at the keyboard may share scores among results
                self._refuse_outside(place, text, text, Path())

    def _refuse_outside(self, place: tuple[str, str, str], text: str, inner: str, folder: Path) -> None:
        """Refuse a path that leaves a folder of the result, by its name or by a symbolic link."""
        path = Path(inner)
        base = self._out.resolve() / folder
        named_outside = path.is_absolute() or ".." in path.parts or inner.startswith("~")
        if named_outside or not (base / path).resolve().is_relative_to(base):
            whose = "the result's folder" if folder == Path() else "the step's folder"
            by_hand = f"; a cache elsewhere can be given by hand:  --set {'.'.join(place)}=PATH"
            hint = by_hand if place[-1] == CACHE else ""
            raise self._lines.fault(
                place, f'"{text}" leads out of {whose}; give a name inside it, without "..", "/" or "~"{hint}'
            )


def _texts(options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Stream (key, text) of options, those in lists too."""
    for key, value in options.items():
        texts = value if isinstance(value, list) else [value]
        yield from ((key, text) for text in texts if isinstance(text, str))
