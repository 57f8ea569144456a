"""Whether the values written in a notation are of the kinds that a factory's annotations name.

Checked here once for every table: a factory may take it that its numbers are numbers, finite ones, and that
its whole numbers fit 64 bits.
"""

from __future__ import annotations

import inspect
import math
import sys
import types
from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

_LARGEST = 2**63
_KINDS: dict[object, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a text in quotes",
    type(None): "None",
}


def fault(factory: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
    """Return what is wrong with the first argument that a factory's annotations do not allow.

    Args:
        factory: A function, a class, or a ``functools.partial`` of one.
        args: Literals by place.
        kwargs: Literals by name.

    Returns:
        For example ``k1='x', but it takes a finite number``; "" where nothing is wrong.

    Raises:
        TypeError: Arguments that the factory's signature does not take.
    """
    signature = inspect.signature(factory)
    hints = _hints(factory)
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        several = signature.parameters[name].kind is inspect.Parameter.VAR_POSITIONAL
        for one in value if several else (value,):
            if name in hints and not _is(one, hints[name]):
                return f"{name.rstrip('_')}={_short(one)}, but it takes {_said(hints[name])}"
    return ""


def _hints(factory: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations by parameter; one that cannot be looked up is left out."""
    while isinstance(factory, partial):
        factory = factory.func
    try:
        return get_type_hints(factory)
    except NameError:  # a name that only type checkers import
        owner = inspect.getmodule(factory)
        names = vars(sys.modules[owner.__name__]) if owner else {}
        found: dict[str, Any] = {}
        for name, parameter in inspect.signature(factory).parameters.items():
            holder = types.SimpleNamespace(__annotations__={name: parameter.annotation})
            try:
                found |= get_type_hints(holder, dict(names))
            except NameError:
                continue
        return found


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 - annotations have no common type
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in inside)
    if origin is Annotated:
        return _is(value, inside[0])
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inside)
    if origin is tuple:
        return _is_tuple(value, inside)
    if kind is float:
        return type(value) in (int, float) and _is_finite(value)  # type: ignore[arg-type] # by the line itself
    if kind is int:
        return type(value) is int and -_LARGEST <= value < _LARGEST
    if kind is str and isinstance(value, str) and "\0" in value:
        return False  # no name of a file, nor of anything else
    return kind in _KINDS and type(value) is kind  # of any other kind there are no literals


def _is_tuple(value: object, inside: tuple[Any, ...]) -> bool:
    if not isinstance(value, tuple | list):
        return False
    if len(inside) == 2 and inside[1] is Ellipsis:
        return all(_is(one, inside[0]) for one in value)
    return len(value) == len(inside) and all(_is(one, of) for one, of in zip(value, inside, strict=True))


def _is_finite(value: float) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _said(kind: Any) -> str:  # noqa: ANN401 - as above
    """Put a kind into words."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_said(one) for one in inside))
    if origin is Annotated:
        return _said(inside[0])
    if origin is Literal:
        return " or ".join(repr(one) for one in inside)
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return f"a list, each of it {_said(inside[0])}"
    if origin is tuple:
        return f"a list of {len(inside)}: {', '.join(_said(one) for one in inside)}"
    return _KINDS.get(kind, "what only Python can hand in")


def _short(value: object) -> str:
    try:
        shown = repr(value)
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    return shown if len(shown) <= 80 else f"{shown[:60]} ... ({len(shown):,} signs)"
