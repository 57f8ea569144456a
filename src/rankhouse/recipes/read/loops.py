"""Which passes of a loop each step makes, and which pass of another step each refers to."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

from rankhouse.core.errors import did_you_mean
from rankhouse.recipes.read.lines import Key
from rankhouse.recipes.read.parse import Recipe, RecipeFile, label
from rankhouse.recipes.read.references import ALL, Bindings, Reference, entry, fill, references, variables

Pass = tuple[str, tuple[tuple[str, str], ...]]
"""A step and the labels of its loop variables: ("knrm", (("seed", "1"), ("fold", "2")))."""


class Loops:
    """The loops of a recipe.

    Raises:
        WrongUse: An unknown reference or variable, steps in a circle; with the line.
    """

    def __init__(self, file: RecipeFile) -> None:
        self._recipe: Recipe = file.recipe
        self._lines = file.lines
        self._members: dict[str, tuple[str, ...]] = {}
        for name in self._recipe.steps:
            self.members(name)

    def members(self, step: str, inside: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Name the loop variables a step depends on, in the order of [loop]."""
        if step in inside:
            circle = [*inside[inside.index(step) :], step]
            named = ", ".join(f"{name} ({self._lines.where(('steps', name))})" for name in circle[:-1])
            raise self._lines.fault(
                ("steps", step), f"steps in a circle: {' needs '.join(circle)}; they are {named}"
            )
        if step not in self._members:
            used: set[str] = set()
            for key, value in self._recipe.steps[step].options.items():
                used |= self.needed(value, ("steps", step, key), (*inside, step))
            self._members[step] = tuple(name for name in self._recipe.loop if name in used)
        return self._members[step]

    def needed(self, value: object, place: Key, inside: tuple[str, ...] = ()) -> set[str]:
        """Name the variables that a value depends on: its own, and those of the steps it refers to."""
        names = set(self.own(value, place))
        for bindings in self.passes(tuple(names)):
            for reference in self.references(fill(value, bindings), place):
                if reference.name not in self._recipe.data:
                    of_step = set(self.members(reference.name, inside))
                    self._check_fixed(reference, of_step, place)
                    names |= of_step - {name for name, _ in reference.fixed}
        return names

    def own(self, value: object, place: Key, inside: tuple[str, ...] = ()) -> tuple[str, ...]:
        """Name the variables a value writes in braces, and those that their values write in turn."""
        names: set[str] = set()
        for name, path in variables(value):
            if name not in self._recipe.loop:
                there = ", ".join(self._recipe.loop) or "none"
                raise self._lines.fault(
                    place, f'"{{{name}}}" is no loop variable; there are: {there} (declare it under [loop])'
                )
            if name in inside:
                circle = " uses ".join(f'"{one}"' for one in (*inside, name))
                raise self._lines.fault(("loop", inside[0]), f"loop variables in a circle: {circle}")
            names.add(name)
            for one in self._recipe.loop[name]:
                with self._lines.naming(place):
                    names.update(self.own(entry(one, name, path), place, (*inside, name)))
        return tuple(name for name in self._recipe.loop if name in names)

    def passes(self, names: tuple[str, ...]) -> Iterator[dict[str, Any]]:
        """Stream all combinations of the values of some variables."""
        for values in product(*(self._recipe.loop[name] for name in names)):
            yield dict(zip(names, values, strict=True))

    def fill(self, value: Any, bindings: Bindings, place: Key) -> Any:  # noqa: ANN401 - as in references.fill
        """Put values in; a fault says its line."""
        with self._lines.naming(place):
            return fill(value, bindings)

    def references(self, value: object, place: Key) -> list[Reference]:
        """List the references in a value and check that each names something."""
        with self._lines.naming(place):
            result = references(value)
        there = [*self._recipe.steps, *self._recipe.data]
        for reference in result:
            if reference.name not in there:
                guess = did_you_mean(reference.name, there, '"@')
                raise self._lines.fault(
                    place,
                    f'"{reference.text}" is no step and no data entry{guess}; steps: '
                    f"{', '.join(self._recipe.steps)}; data: {', '.join(self._recipe.data) or 'none'} "
                    "(write @@ for the sign itself)",
                )
        return result

    def _check_fixed(self, reference: Reference, members: set[str], place: Key) -> None:
        for name, value in reference.fixed:
            if name not in members:
                has = ", ".join(sorted(members)) or "no loop variable"
                raise self._lines.fault(
                    place, f'"{reference.text}": {reference.name} does not depend on "{name}" but on {has}'
                )
            labels = [label(one) for one in self._recipe.loop[name]]
            if value != ALL and value not in labels:
                raise self._lines.fault(
                    place, f'"{reference.text}": {name} has no value "{value}"; it has: {", ".join(labels)}'
                )

    def targets(self, reference: Reference, bindings: Mapping[str, Any]) -> list[Pass]:
        """List the passes of a step that a reference stands for: one, or all that it collects."""
        fixed, names = dict(reference.fixed), self.members(reference.name)
        choices: list[list[str]] = []
        for name in names:
            value = fixed.get(name)
            if value == ALL:
                choices.append([label(one) for one in self._recipe.loop[name]])
            else:
                choices.append([value if value is not None else label(bindings[name])])
        return [(reference.name, tuple(zip(names, one, strict=True))) for one in product(*choices)]


def labels_of(bindings: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    """Return the short names of bound values."""
    return tuple((name, label(value)) for name, value in bindings.items())


def said(labels: tuple[tuple[str, str], ...]) -> str:
    """Write labels for people: "seed=1 fold=2"."""
    return " ".join(f"{name}={value}" for name, value in labels)
