"""One small language for every choice: ``bm25(k1=0.9, b=0.4)``, ``sentences(10, 5)``, ``max``.

The same words work on the command line, in recipes, in Python and in manifests. A package owns a plain dict
of name -> factory as its table; a bare name is the factory called without arguments. Names that other
packages add (docs/extending.md) are looked up only where a table's own do not suffice: that takes tens of
milliseconds.
"""

from __future__ import annotations

import ast
import inspect
import json
import keyword
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from rankhouse.core.arguments import fault, settled, signature_of
from rankhouse.core.errors import RankhouseError, WrongUse, did_you_mean

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint


T = TypeVar("T")

# Arguments named by a word Python keeps for itself: jm(lambda=0.1) is the parameter lambda_ in Python.
_RESERVED = re.compile(rf"\b({'|'.join(keyword.kwlist)})(\s*=(?!=))")


quoted = re.compile(r"""["']([^"']+)["']""").findall
"""The texts in quotes in a notation, some of which name files."""


class Spec(NamedTuple):
    """A name and its literal arguments, before anything is made of them."""

    name: str
    args: tuple[Any, ...] = ()
    kwargs: Mapping[str, Any] = {}

    def __str__(self) -> str:
        return write(self.name, *self.args, **self.kwargs)


class Notation(str):
    """A notation written in one way, which remembers how it was given.

    What is recorded, and compared with records of earlier versions, is the text that was given.
    """

    given: str

    def __new__(cls, text: str, given: str = "") -> Notation:
        """Make one; without ``given``, both are the same."""
        self = super().__new__(cls, text)
        self.given = given or text
        return self


def as_given(text: str) -> str:
    """Return a notation as it was given."""
    return text.given if isinstance(text, Notation) else text


def escaped(text: str) -> str:
    """Return a notation with Python's escapes for the bytes of a file's name that are not UTF-8."""
    return re.sub("[\ud800-\udfff]", lambda sign: f"\\u{ord(sign[0]):04x}", text)


_SHORT = 200  # characters; trees of longer texts are not remembered
ONE_PARSER = threading.Lock()
"""Python 3.11 now and then fails with a SystemError where two threads parse at once."""


def parsed(text: str) -> ast.expr:
    """Return a text as Python's own tree of an expression; nothing is evaluated.

    Raises:
        SyntaxError, ValueError, MemoryError, RecursionError: It is none.
    """
    try:
        return _tree(text)
    except SyntaxError:
        return _tree(_RESERVED.sub(r"\1_\2", text))


def _tree(text: str) -> ast.expr:
    return (_remembered if len(text) <= _SHORT else _parsed)(text)


def _parsed(text: str) -> ast.expr:
    with ONE_PARSER:
        return ast.parse(escaped(text), mode="eval").body


_remembered = lru_cache(1024)(_parsed)


def parse(text: str) -> Spec:
    """Read ``name`` or ``name(1, key="value")``; arguments are Python literals.

    Raises:
        WrongUse: The text is not of that form.
    """
    try:
        node = parsed(text.strip())
        if isinstance(node, ast.Call):
            args = tuple(ast.literal_eval(argument) for argument in node.args)
            kwargs = {k.arg: ast.literal_eval(k.value) for k in node.keywords if k.arg is not None}
            if isinstance(node.func, ast.Name) and len(kwargs) == len(node.keywords):
                return Spec(node.func.id, args, kwargs)
        elif isinstance(node, ast.Name):
            return Spec(node.id)
    except (SyntaxError, ValueError, MemoryError, RecursionError):
        pass
    raise WrongUse(
        f'"{_short(text)}" cannot be read; write a name or a name with literal arguments, like  bm25  or  '
        'bm25(k1=0.9, b=0.4)  or  dense("folder")'
    )


def write(name: str, /, *args: object, **kwargs: object) -> str:
    """Write a name and its arguments in the notation that :func:`parse` reads back."""
    return write_spec(name, args, kwargs, repr)


def quote(text: str) -> str:
    """Write a text in double quotes, as Python reads it back."""
    return escaped(json.dumps(text, ensure_ascii=False))


def write_value(value: object) -> str:
    """Write a literal, texts in double quotes."""
    if isinstance(value, str):
        return quote(value)
    if isinstance(value, list | tuple):
        inside = ", ".join(map(write_value, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside}{',' * (len(value) == 1)})"
    return repr(value)


def write_spec(
    name: str,
    args: Sequence[object],
    kwargs: Mapping[str, object],
    write_one: Callable[[object], str] = write_value,
) -> str:
    """Write a name and its arguments; a word that Python keeps for itself stands without its underscore."""
    named = {key.removesuffix("_") if keyword.iskeyword(key[:-1]) else key: v for key, v in kwargs.items()}
    words = [*map(write_one, args), *(f"{key}={write_one(value)}" for key, value in named.items())]
    return f"{name}({', '.join(words)})" if words else name


def canonical(text: str, table: Mapping[str, Callable[..., object]], what: str) -> str:
    """Return the notation of something that a table knows, written in one way; "" as it is.

    Arguments that must be given stand by place, others by name in the declared order, and no defaults.
    """
    if not text:
        return ""
    spec = parse(as_given(text))
    make(spec, table, what)
    args, kwargs = settled(signature_of(table[spec.name]), spec.args, spec.kwargs)
    return Notation(write_spec(spec.name, args, kwargs), write_spec(*spec))


def choose(name: str, table: Mapping[str, T], what: str) -> T:
    """Look a name up; an unknown one raises with the table's names.

    Args:
        name: The name that was given.
        table: Name -> what it stands for.
        what: What it is, for the message.

    Raises:
        WrongUse: No such name; lists what there is and the nearest guess.
    """
    if not isinstance(name, str):
        raise WrongUse(f"{name!r} is no {what}; give its name, one of: {', '.join(sorted(table))}")
    if name in table:
        return table[name]
    guess = did_you_mean(name.lower(), table)
    raise WrongUse(f'"{name:.200}" is not a known {what}{guess}; choose from: {", ".join(sorted(table))}')


def make(text: str | Spec, table: Mapping[str, Callable[..., T]], what: str) -> T:
    """Make the thing a text names: ``make("bm25(b=0.5)", WEIGHTINGS, "model")``.

    Args:
        text: The notation, or a Spec already parsed.
        table: Name -> factory taking the arguments.
        what: What the table holds, for the error's sentence.

    Raises:
        WrongUse: Unknown name, arguments the factory does not take, or a value that is not of the kind which
            the factory's annotation names (:mod:`rankhouse.core.arguments`).
    """
    spec = text if isinstance(text, Spec) else parse(text)
    factory = choose(spec.name, table, what)
    try:
        wrong = fault(factory, spec.args, spec.kwargs)
    except TypeError as error:
        wrong = str(error)
    if wrong:
        raise WrongUse(f'"{_short(str(spec))}": {wrong}; accepted: {spec.name}{_signature(factory)}')
    return factory(*spec.args, **spec.kwargs)


def _signature(factory: Callable[..., object]) -> str:
    """Write what a factory takes as a person writes it: names and defaults, no types."""
    signature = inspect.signature(factory)
    plain = [one.replace(annotation=inspect.Parameter.empty) for one in signature.parameters.values()]
    bare = signature.replace(parameters=plain, return_annotation=inspect.Signature.empty)
    return re.sub(rf"\b({'|'.join(keyword.kwlist)})_=", r"\1=", str(bare))


def _short(text: str) -> str:
    return text if len(text) <= _SHORT else f"{text[:_SHORT]} ..."


def name_of(part: object) -> str:
    """Name a splitter, a pool or the like by its notation, a bare function by where it stands in the code."""
    if "__str__" in vars(type(part)):
        return str(part)
    home, own = getattr(part, "__module__", ""), getattr(part, "__qualname__", type(part).__qualname__)
    return f"{home}.{own}" if home else own


@cache
def entries(group: str) -> Mapping[str, EntryPoint]:
    """Return the entry points of a group, name -> where; RankhouseError if two packages claim a name."""
    from importlib.metadata import entry_points  # noqa: PLC0415 - slow, and only for names not known

    found: dict[str, EntryPoint] = {}
    for entry in entry_points(group=group):
        other = found.setdefault(entry.name, entry)
        if other.value != entry.value:
            raise RankhouseError(
                f'two installed packages bring "{entry.name}" for {group}: {other.value} and {entry.value}; '
                "uninstall one of them"
            )
    return found


@cache
def load(group: str, name: str) -> Any:  # noqa: ANN401 - what the package says
    """Import what an entry point names; RankhouseError if it cannot be imported."""
    entry = entries(group)[name]
    try:
        return entry.load()
    except Exception as error:  # an import runs any code
        package = entry.dist.name if entry.dist else "an installed package"
        raise RankhouseError(
            f'"{name}" of {package}, an extension for {group}, cannot be loaded from {entry.value} '
            f"({type(error).__name__}: {error}); mend or uninstall that package"
        ) from error


class Extensible(Mapping[str, T]):
    """A table of names that installed packages may add to; its own names come first.

    Args:
        own: Name -> what it stands for.
        group: The group of entry points.
        fits: Whether what one of them names is of the right kind.
        kind: What that is, for the error.
    """

    def __init__(
        self,
        own: Mapping[str, T],
        group: str,
        fits: Callable[[object], bool] = callable,
        kind: str = "callable",
    ) -> None:
        self._own, self._group, self._fits, self._kind = own, group, fits, kind

    def __getitem__(self, name: str) -> T:
        if name in self._own:
            return self._own[name]
        if name not in entries(self._group):
            raise KeyError(name)
        loaded: T = load(self._group, name)
        if not self._fits(loaded):
            raise RankhouseError(
                f'"{name}", an extension for {self._group}, is a {type(loaded).__name__} '
                f"({entries(self._group)[name].value}); it must be a {self._kind}"
            )
        return loaded

    def __contains__(self, name: object) -> bool:
        return name in self._own or name in entries(self._group)

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from (name for name in entries(self._group) if name not in self._own)

    def __len__(self) -> int:
        return sum(1 for _ in self)
