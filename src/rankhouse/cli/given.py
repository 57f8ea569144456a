"""Values that options take as text: ``NAME=VALUE`` of ``--set``, and numbers with commas between them."""

from __future__ import annotations

import ast
from collections.abc import Sequence

from rankhouse.cli.options import was_given
from rankhouse.core.errors import WrongUse

_DEEPEST = 50  # brackets in brackets of a --set


def read_change(text: str) -> tuple[str, object]:
    """Read NAME=VALUE, else WrongUse; a value that is no literal is a text."""
    name, equals, value = text.partition("=")
    if not equals:
        raise WrongUse(f"--set {text[:80]}: write NAME=VALUE, like rate=1e-4")
    if any(value.count(bracket) > _DEEPEST for bracket in "[{("):
        raise WrongUse(f"--set {text[:60]} ...: is nested too deeply; no setting is")
    try:
        return name.strip(), ast.literal_eval(value)
    except (SyntaxError, ValueError):
        return name.strip(), value


def read_numbers(option: str, text: str) -> tuple[float, ...]:
    """Read what was given to an option as numbers with commas between them; WrongUse for anything else."""
    try:
        return tuple(float(part) for part in text.split(","))
    except ValueError:
        raise WrongUse(f"{option} {text}: write numbers with commas between them, like 0.7,0.3") from None


def with_changes(changes: Sequence[str], **options: object) -> dict[str, object]:
    """Lay ``--set NAME=VALUE`` over options of the same names; None is an option that was not given.

    Raises WrongUse for a setting given in two ways, with two values.
    """
    wanted: dict[str, object] = {}
    for name, value in map(read_change, changes):
        other = wanted.get(name, options[name] if name in options and was_given(name) else value)
        if other != value:
            raise WrongUse(f"{name} was given twice, as {other} and by --set {name}={value}; give it once")
        wanted[name] = value
    return {name: value for name, value in options.items() if value is not None} | wanted
