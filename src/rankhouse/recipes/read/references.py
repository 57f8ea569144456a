"""The two marks inside a recipe's values: ``{variable}`` of a loop, and ``@name`` of data or a step.

``@name[fold=*]/inner``: brackets choose or collect passes of a loop, a path leads into a folder. A sign after
a letter or a digit (``nDCG@20``) is none; ``@@`` is the sign itself.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rankhouse.core.errors import WrongUse

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
