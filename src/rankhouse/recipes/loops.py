"""Loops: which passes each step makes, and the two marks by which values refer to them.

``{variable}`` of a loop, and ``@name`` of data or a step: ``@name[fold=*]/inner``, where brackets choose or
collect passes of a loop, and a path leads into a folder. A sign after a letter or a digit (``nDCG@20``) is
none; ``@@`` is the sign itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from itertools import product
from typing import Any, NamedTuple

from rankhouse.core.errors import WrongUse, did_you_mean
from rankhouse.recipes.lines import Key
from rankhouse.recipes.parse import Recipe, RecipeFile, label

_VARIABLE = re.compile(r"\{([A-Za-z_]\w*)((?:\.\w+)*)\}")
_REFERENCE = re.compile(r"(?<![\w)\]@])@(?:(@)|([A-Za-z_][\w-]*)(?:\[([^\]]*)\])?((?:/[\w.+=-]+)*))")
ALL = "*"

Bindings = Mapping[str, Any]
"""Loop variable -> its value."""


class Reference(NamedTuple):
    """``@name[fixed]/inner``."""

    name: str  # a data entry or a step
    fixed: tuple[tuple[str, str], ...]  # loop variable, the label of its value or "*" for all
    inner: str  # the path inside; "" for the thing itself
    text: str  # as it was written

    @property
    def collects(self) -> bool:
        """Whether it stands for a list."""
        return any(value == ALL for _, value in self.fixed)


def texts(value: object) -> Iterator[str]:
    """Stream every text inside a value."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for one in value.values():
            yield from texts(one)
    elif isinstance(value, list | tuple):
        for one in value:
            yield from texts(one)


def variables(value: object) -> list[tuple[str, tuple[str, ...]]]:
    """List the loop variables that stand in a value, each once, with the path to the entry they ask for."""
    found = (match for text in texts(value) for match in _VARIABLE.finditer(text))
    return list(dict.fromkeys((match[1], _path(match)) for match in found))


def _path(match: re.Match[str]) -> tuple[str, ...]:
    return tuple(filter(None, match[2].split(".")))


def references(value: object) -> list[Reference]:
    """List the references that stand in a value; WrongUse where brackets cannot be read."""
    return [
        _reference(match) for text in texts(value) for match in _REFERENCE.finditer(text) if match[1] is None
    ]


def _reference(match: re.Match[str]) -> Reference:
    fixed = []
    for part in filter(None, (match[3] or "").split(",")):
        name, equals, value = part.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise WrongUse(f'"{match[0]}": write  [fold=*]  for all, or  [fold=1]  for one')
        fixed.append((name.strip(), value.strip()))
    return Reference(match[2], tuple(fixed), match[4].removeprefix("/"), match[0])


def fill(value: Any, bindings: Bindings) -> Any:  # noqa: ANN401 - whatever TOML holds goes in and out
    """Put the values of loop variables in; a text that is one variable becomes its value, number or text.

    An entry of a value may name other variables: ``{ name = "BERT", ranker = 'bert(seed={seed})' }``. Raises
    WrongUse for a variable, or an entry of a table among its values, that does not exist.
    """

    def filled(text: str) -> object:
        if whole := _VARIABLE.fullmatch(text):
            return _value(whole, bindings)
        return _VARIABLE.sub(lambda match: str(_value(match, bindings)), text)

    return _change_texts(value, filled)


def _change_texts(value: Any, change: Callable[[str], object]) -> Any:  # noqa: ANN401 - as in fill
    """Change every text inside a value; lists that come of it become part of the list around them."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {name: _change_texts(one, change) for name, one in value.items()}
    if isinstance(value, list | tuple):
        changed = [_change_texts(one, change) for one in value]
        return [one for part in changed for one in (part if isinstance(part, list) else [part])]
    return value


def _value(match: re.Match[str], bindings: Bindings) -> object:
    if match[1] not in bindings:
        raise WrongUse(
            f'"{match[0]}" is no loop variable here; there are: {", ".join(bindings) or "none"} '
            "(declare it under [loop])"
        )
    value = entry(bindings[match[1]], match[1], _path(match))
    return fill(value, {name: one for name, one in bindings.items() if name != match[1]})


def entry(value: Any, variable: str, path: tuple[str, ...]) -> Any:  # noqa: ANN401 - as in fill
    """Return what a variable stands for: its value or a row's name (no path), or an entry of a row."""
    if isinstance(value, Mapping) and not path:
        return value["name"]
    for name in path:
        if not isinstance(value, Mapping) or name not in value:
            written = ".".join((variable, *path))
            has = ", ".join(value) if isinstance(value, Mapping) else "none"
            raise WrongUse(f'"{{{written}}}": this value has no entry "{name}"; its entries are: {has}')
        value = value[name]
    return value


def resolve(value: Any, look_up: Callable[[Reference], list[str]]) -> Any:  # noqa: ANN401 - as in fill
    """Put paths in for references; one that collects becomes a list and must stand alone."""

    def path_in(text: str) -> object:
        whole = _REFERENCE.fullmatch(text)
        if whole and whole[1] is None:
            reference = _reference(whole)
            paths = look_up(reference)
            return paths if reference.collects else paths[0]

        def one(match: re.Match[str]) -> str:
            if match[1] is not None:
                return "@"
            reference = _reference(match)
            if reference.collects:
                raise WrongUse(f'"{text}": {reference.text} is a list and must be the whole value')
            return look_up(reference)[0]

        return _REFERENCE.sub(one, text)

    return _change_texts(value, path_in)


Pass = tuple[str, tuple[tuple[str, str], ...]]
"""A step and the labels of its loop variables: ("knrm", (("seed", "1"), ("fold", "2")))."""


class Loops:
    """The loops of a recipe.

    Raises WrongUse: an unknown reference or variable, steps in a circle; with the line.
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
