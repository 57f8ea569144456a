"""Line numbers of a TOML file's keys, so that every fault of a recipe names its line."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rankhouse.core.errors import WrongUse

Key = tuple[str | int, ...]
"""A place in a recipe: ("steps", "bm25", "model"), ("table", 0, "rows")."""


class RecipeFault(WrongUse):
    """A fault whose message begins with its place in the recipe."""


class RecipeLines:
    """Finds the line of a key of a valid TOML file, or of the nearest thing around it."""

    def __init__(self, path: Path, text: str) -> None:
        self.path = path
        self._lines: dict[Key, int] = {}
        self._said: dict[Key, str] = {}
        self._by_hand: set[Key] = set()
        around: Key = ()
        for line, statement in _statements(text):
            table = tomllib.loads(statement)
            if statement.lstrip().startswith("["):
                around = self._entered(table)
                self._lines.setdefault(around, line)
                continue
            for keys in _walk(table):
                self._lines.setdefault((*around, *keys), line)

    def _entered(self, header: dict[str, Any]) -> Key:
        """Return the place a header opens; elements of arrays of tables are counted."""
        place: Key = ()
        inside: Any = header
        while isinstance(inside, dict) and inside:
            name, inside = next(iter(inside.items()))
            place = (*place, name)
            if isinstance(inside, list):
                place = (*place, self._count(place))
                inside = inside[0]
            elif (*place, 0) in self._lines:  # [table.expect] belongs to the latest [[table]]
                place = (*place, self._count(place) - 1)
        return place

    def _count(self, place: Key) -> int:
        number = 0
        while (*place, number) in self._lines:
            number += 1
        return number

    def say(self, keys: Key, how: str, *, by_hand: bool = False) -> None:
        """Note that a key was given elsewhere: by the recipe's smallest size, or by hand (``--set k=10``)."""
        self._said[keys] = how
        if by_hand:
            self._by_hand.add(keys)

    def by_hand(self, keys: Key) -> bool:
        """Return whether a key, or what is around it, was given on the command line and not by the recipe."""
        return any(keys[:length] in self._by_hand for length in range(1, len(keys) + 1))

    def where(self, keys: Key) -> str:
        """Name the file and line of a key; of what is around it if it has none of its own."""
        for length in range(len(keys), 0, -1):
            if keys[:length] in self._said:
                return self._said[keys[:length]]
            if keys[:length] in self._lines:
                return f"{self.path}, line {self._lines[keys[:length]]}"
        return f"{self.path}, line 1" if not keys else str(self.path)

    def fault(self, keys: Key, reason: str) -> RecipeFault:
        """Make the error that says where and what."""
        return RecipeFault(f"{self.where(keys)}: {reason}")

    @contextmanager
    def naming(self, keys: Key) -> Iterator[None]:
        """Put the place of a key in front of what the block refuses, unless it names its own."""
        try:
            yield
        except RecipeFault:
            raise
        except WrongUse as error:
            raise self.fault(keys, str(error)) from error


def _statements(text: str) -> Iterator[tuple[int, str]]:
    """Cut TOML into headers and assignments: (first line from 1, text)."""
    gathered: list[str] = []
    start = 0
    for line, content in enumerate(text.splitlines(), 1):
        if not gathered and (not content.strip() or content.lstrip().startswith("#")):
            continue
        start = start if gathered else line
        gathered.append(content)
        statement = "\n".join(gathered)
        try:
            tomllib.loads(statement)
        except tomllib.TOMLDecodeError:
            continue  # a value that goes on in the next line
        yield start, statement
        gathered = []


def _walk(table: dict[str, Any]) -> Iterator[Key]:
    for name, value in table.items():
        yield (name,)
        if isinstance(value, dict):
            yield from ((name, *inner) for inner in _walk(value))
