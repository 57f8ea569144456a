"""Checks by annotation: of a function's arguments, whether they fit; of a record's fields, their options.

Arguments are checked here once for every notation and for the Python API: a factory may take it that its
numbers are numbers, finite ones, and that its whole numbers fit 64 bits.

The options of commands stand in records. A field's name, type and default are the record's; its help and kind
are its annotation:

    @dataclass(frozen=True)
    class RerankOptions:
        depth: Annotated[int, Option("Documents read per query.", least=0)] = 1000

Commands, :mod:`rankhouse.api`, recipes and the shards of a job all fill the same record. What only a command
has is declared in the same way, at the arguments of its function.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields, is_dataclass
from functools import cache, partial, wraps
from itertools import chain
from numbers import Integral, Real
from typing import (
    Annotated,
    Any,
    Literal,
    NamedTuple,
    ParamSpec,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

import numpy as np

from rankhouse.core.errors import RankhouseError, UnknownArgument, WrongUse, did_you_mean

P = ParamSpec("P")
T = TypeVar("T")

_MEANT: Mapping[str, tuple[str, ...]] = {
    "top_k topk top_n topn n limit size count max_results num_results n_results": ("k", "depth", "top"),
    "docs corpus collection texts": ("documents", "texts"),
    "question text q": ("query",),
    "topics questions": ("queries",),
    "judgements judgments labels": ("qrels",),
    "candidates results ranking": ("run",),
    "metrics metric measure": ("measures", "measure"),
    "model reranker encoder": ("ranker",),
    "output output_dir out_dir save_path path folder": ("out", "path", "folder"),
    "n_jobs jobs num_workers processes": ("workers", "threads"),
    "force replace exist_ok": ("overwrite",),
    "epochs num_epochs lr learning_rate rate batch_size": ("settings",),
    "progress callback callbacks progress_bar show_progress": ("on_progress", "on_step"),
}
"""Names that other libraries use -> ours, of which a function may have one."""

_PYTHON = {"set": ("settings",), "valid_set": ("validation_sets",), "index": ("index", "out", "path")}
"""Options -> arguments that have other names, as far as the words of an option do not say them."""
_OPTION = re.compile(r"rankhouse [^,;:()]*|(?<![^\s(])--(?P<name>[a-z][a-z-]*)(?: (?=[\d\"']))?")
_LARGEST = 2**63
_KINDS: dict[object, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a finite number",
    str: "a text in quotes",
    type(None): "None",
}


def checked(function: Callable[P, T]) -> Callable[P, T]:
    """Make a function of the Python API refuse texts, numbers and choices that its annotations do not allow.

    What is not annotated by such kinds is the function's own to look at. An argument that it does not have is
    answered with the one that is meant.
    """
    known = inspect.signature(function).parameters
    names = [name for name in known if name not in ("self", "cls")]
    is_open = any(one.kind is inspect.Parameter.VAR_KEYWORD for one in known.values())

    @wraps(function)
    def call(*args: P.args, **kwargs: P.kwargs) -> T:
        if not is_open and (unknown := next((name for name in kwargs if name not in known), "")):
            raise UnknownArgument(f"{function.__name__}: {_unknown(unknown, names)}")
        try:
            wrong = fault(function, args, kwargs, written=False)
        except TypeError as error:
            raise TypeError(f"{function.__name__}: {error}; it takes {', '.join(names)}") from None
        if wrong:
            raise WrongUse(f"{function.__name__}: {wrong}")
        try:
            return function(*args, **kwargs)
        except RankhouseError as error:
            if error.args and isinstance(error.args[0], str) and "--" in error.args[0]:
                error.args = (in_python(error.args[0], known), *error.args[1:])
            raise

    return call


def in_python(message: str, known: Mapping[str, inspect.Parameter]) -> str:
    """Return a message that names options of the command line with a function's arguments instead.

    What has no such argument, and what stands in a command to be run, stays as it is.
    """

    def argument(match: re.Match[str]) -> str:
        words = str(match["name"] or "").replace("-", "_")
        name = next((one for one in _PYTHON.get(words, (words,)) if one in known), "")
        value = "True" if name and known[name].annotation in (bool, "bool") else ""
        return f"{name}={value}" if name else match[0]

    return _OPTION.sub(argument, message)


def _unknown(given: str, names: Sequence[str]) -> str:
    """Say that there is no such argument, which one is meant, and which there are."""
    meant = [one for theirs, ours in _MEANT.items() if given.lower() in theirs.split() for one in ours]
    known = next((name for name in meant if name in names), given)
    return f'there is no argument "{given}"{did_you_mean(known, names, "", "=")}; it takes {", ".join(names)}'


def check_least(options: object, least: float, *names: str) -> None:
    """Refuse options whose numbers are too small."""
    for name in names:
        if (number := getattr(options, name)) < least:
            raise WrongUse(f"{name}={number}: must be {least} or more")


def check_whole(owner: str, least: int | None = None, **numbers: object) -> None:
    """Refuse what is no whole number, or too small a one, where Python hands numbers in."""
    for name, number in numbers.items():
        if type(number) is not int or (least is not None and number < least):
            bound = "" if least is None else f" from {least} up"
            raise WrongUse(f"{owner}: {name}={number!r}, but it must be a whole number{bound}")


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> list[str]:
    """Return the names of options that are not as they were, with their value then: ``rate (was 0.001)``.

    Of a table, the value is left out.
    """
    return [
        name if isinstance(was, Mapping) else f"{name} (was {was!r})"
        for name, value in now.items()
        if (was := before.get(name)) != value
    ]


def fault(
    factory: Callable[..., object], args: tuple[Any, ...], kwargs: Mapping[str, Any], *, written: bool = True
) -> str:
    """Return what is wrong with the first argument that a factory's annotations do not allow, or "".

    For example ``k1='x', but it takes a finite number``. Raises TypeError where the signature itself does not
    take the arguments. ``written``: all of them stood in a notation, literals, and texts that may name files.
    """
    form = _form(factory)
    bound = form.bind(args, kwargs)
    for name, several, hint, literal in form.hints:
        if name not in bound or not (written or literal):
            continue
        for one in bound[name] if several else (bound[name],):
            if not _is(one, hint) or (written and _has_null(one)):
                return f"{name.rstrip('_')}={_short(one)}, but it takes {_said(hint)}"
    return ""


signature_of = cache(inspect.signature)


def settled(
    signature: inspect.Signature, args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[list[Any], dict[str, Any]]:
    """Return arguments in one way: by place what must be given, the rest by name as declared, no defaults.

    Whole numbers are without a point. Raises TypeError where the signature does not take them.
    """
    first: list[Any] = []
    named: dict[str, Any] = {}
    for name, value in signature.bind(*args, **kwargs).arguments.items():
        one = signature.parameters[name]
        if one.kind is one.VAR_POSITIONAL:
            first += map(_whole, value)
        elif one.default is one.empty and one.kind is not one.KEYWORD_ONLY:
            first.append(_whole(value))
        elif value != one.default or isinstance(value, bool) != isinstance(one.default, bool):
            named[name] = _whole(value)
    return first, named


def _whole(value: object) -> object:
    return int(value) if isinstance(value, float) and value.is_integer() and abs(value) < 1e15 else value


class _Form:
    """Parameters of a function, in order, and those with annotations."""

    def __init__(self, factory: Callable[..., object]) -> None:
        self.signature, hints = inspect.signature(factory), _hints(factory)
        known = self.signature.parameters.values()
        kinds = {inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY}
        self.is_plain = all(one.kind in kinds for one in known)
        self.names = {one.name for one in known}
        self.in_order = [one.name for one in known if one.kind is not inspect.Parameter.KEYWORD_ONLY]
        self.needed = {one.name for one in known if one.default is inspect.Parameter.empty}
        self.hints = [
            (one.name, one.kind is inspect.Parameter.VAR_POSITIONAL, hint, _is_literal(hint))
            for one in known
            if (hint := hints.get(one.name, inspect.Parameter.empty)) is not inspect.Parameter.empty
        ]

    def bind(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return arguments by name as Signature.bind does, in a tenth of its time; TypeError likewise."""
        bound = {**dict(zip(self.in_order, args, strict=False)), **kwargs}
        given = len(args) + len(kwargs) == len(bound) and self.needed <= bound.keys() <= self.names
        return bound if self.is_plain and given else self.signature.bind(*args, **kwargs).arguments


_form = cache(_Form)


@cache
def _hints(factory: Callable[..., object]) -> dict[str, Any]:
    """Return the annotations by parameter, without notes; one that cannot be looked up is left out."""
    while isinstance(factory, partial):
        factory = factory.func
    own = vars(factory).get("__init__") if isinstance(factory, type) else None
    if isinstance(own, types.FunctionType) and not is_dataclass(factory):
        # A class's own hints are those of its attributes: a dataclass's arguments, inherited ones too.
        factory = own
    try:
        return get_type_hints(factory)
    except NameError:  # a name that only type checkers import
        owner = inspect.getmodule(factory)
        names = vars(sys.modules[owner.__name__]) if owner else {}
        hints: dict[str, Any] = {}
        for name, parameter in inspect.signature(factory).parameters.items():
            holder = types.SimpleNamespace(__annotations__={name: parameter.annotation})
            try:
                hints |= get_type_hints(holder, dict(names))
            except NameError:
                continue
        return hints


def _is(value: object, kind: Any) -> bool:  # noqa: ANN401 - annotations have no common type
    origin, inside = get_origin(kind), get_args(kind)
    if kind is Any or kind is object:
        return True
    if origin in (Union, types.UnionType):
        return any(_is(value, one) for one in inside)
    if origin is Literal:
        return any(type(value) is type(one) and value == one for one in inside)
    if origin is tuple:
        if not isinstance(value, tuple | list):
            return False
        if len(inside) == 2 and inside[1] is Ellipsis:
            return all(_is(one, inside[0]) for one in value)
        return len(value) == len(inside) and all(map(_is, value, inside))
    if kind is bool or isinstance(value, bool | np.bool):
        return kind is bool and isinstance(value, bool | np.bool)
    if kind is float:
        return isinstance(value, Real) and _is_finite(value)
    if kind is int:
        return isinstance(value, Integral) and -_LARGEST <= int(value) < _LARGEST
    return kind in _KINDS and isinstance(value, kind)  # of any other kind there are no literals


def _is_literal(kind: Any) -> bool:  # noqa: ANN401 - as above
    """Return whether values of a kind can be written as literals, all of them."""
    if get_origin(kind) in (Union, types.UnionType):
        return all(map(_is_literal, get_args(kind)))
    return kind in _KINDS or get_origin(kind) is Literal


def _has_null(value: object) -> bool:
    """Return whether a text, or one in a list, has a null character, as no name of a file may have."""
    if isinstance(value, tuple | list):
        return any(map(_has_null, value))
    return isinstance(value, str) and "\0" in value


def _is_finite(value: Real) -> bool:
    try:
        return math.isfinite(value)
    except OverflowError:  # a whole number beyond all floats
        return False


def _said(kind: Any) -> str:  # noqa: ANN401 - as above
    """Put a kind into words."""
    origin, inside = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        return " or ".join(dict.fromkeys(_said(one) for one in inside))
    if origin is Literal:
        return " or ".join(repr(one) for one in inside)
    if origin is tuple and len(inside) == 2 and inside[1] is Ellipsis:
        return f"a list, each of it {_said(inside[0])}"
    if origin is tuple:
        return f"a list of {len(inside)}: {', '.join(_said(one) for one in inside)}"
    return _KINDS.get(kind, "what only Python can hand in")


def _short(value: object) -> str:
    try:
        shown = " ".join(repr(value).split())
    except ValueError:  # a whole number of thousands of digits
        return "a number of thousands of digits"
    return shown if len(shown) <= 80 else f"{shown[:60]} ... ({len(shown):,} signs)"


Kind = Literal[
    "value",  # a plain value
    "input",  # a file or folder that is read; a command's own Path is one without saying so
    "index",  # an index that is added to
    "source",  # a text that names files, by itself or in a notation
    "local",  # a path of this machine alone
    "output",  # a file that is written
    "folder",  # a folder that is made
    "growing",  # a folder that is made or resumed
    "place",  # a file or a folder that is written, as the work has it
    "bytes",  # a size in bytes
]


@dataclass(frozen=True)
class Option:
    """Form of a field, or of an argument of a command, on the command line."""

    help: str = ""  # what it means, in a line
    kind: Kind = "value"  # what its text is
    flag: str = ""  # its name there, where it is not -- and the field's
    choices: Sequence[str] = ()  # the values there are, where its type does not list them
    default: str = ""  # what holds where it is not given, in words, if the field's default does not say it
    least: int | None = None
    most: int = 2**31 - 1
    metavar: str | None = None  # what stands for its value in the help
    neutral: bool = False  # it changes how fast, or what is shown, and never what is computed
    positional: bool = False  # it has no name there, and stands by itself
    beside: str = ""  # a field without which it changes nothing
    unless: tuple[str, ...] = ()  # fields, each of which does without it: else it must be given
    eager: bool = False  # it is read before the others
    reader: Any = None  # click's type, where neither kind nor type says which


class OptionField(NamedTuple):
    """A field with its type and its option."""

    name: str
    type: Any
    default: Any  # MISSING where it must be given
    option: Option


def option_fields(declared: type | Callable[..., object]) -> list[OptionField]:
    """Return the fields of a record that have an option, its own first, or the arguments of a function."""
    hints = get_type_hints(declared, include_extras=True)
    if isinstance(declared, type):
        held = {field.name: field.default for field in fields(declared)}
        own_first = (vars(one).get("__annotations__", ()) for one in declared.__mro__)
        names = dict.fromkeys(chain.from_iterable(own_first))
    else:
        taken = inspect.signature(declared).parameters
        held = {name: MISSING if one.default is one.empty else one.default for name, one in taken.items()}
        names = dict.fromkeys(taken)
    return [
        OptionField(name, get_args(hints[name])[0], held[name], option=note)
        for name in names
        if name in held and get_origin(hints[name]) is Annotated
        for note in get_args(hints[name])[1:]
        if isinstance(note, Option)
    ]
