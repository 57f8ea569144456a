"""Declaration of a command by its function's arguments; ``--json``, and which options were given."""

from __future__ import annotations

import ast
import inspect
import math
import re
import shlex
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import MISSING
from functools import partial
from pathlib import Path
from types import NoneType, UnionType
from typing import TYPE_CHECKING, Any, Literal, TypeGuard, Union, get_args, get_origin, get_type_hints

import click
from click.core import ParameterSource

from rankhouse.cli import console
from rankhouse.core.arguments import Kind, OptionField, option_fields
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import quoted
from rankhouse.io.outputs import check_file_target, is_stream, only_writer, writing
from rankhouse.page.tables import CommandResult

if TYPE_CHECKING:
    from rankhouse.cli.transfers import Transfers

_TRANSFERS = "rankhouse.transfers"
_WORDS = "rankhouse.words"
"""Key of a command's context for the remote files that options named; absent if none was."""
PLANNED = "planned"
"""The object of a context that only reads a command line: nothing is written yet, so nothing is looked at."""


# --- types of options -----------------------------------------------------------------------------------


class _WholeNumber(click.IntRange):
    """A whole number; a largest that only says what an integer of C holds is not shown in the help."""

    name = "integer"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Read the number, and say the whole range where it is outside. Args: as in click."""
        number = click.INT.convert(value, param, ctx)
        if self.max is not None and number > self.max:
            self.fail(f"{number} is not in the range {super()._describe_range()}.", param, ctx)
        return super().convert(value, param, ctx)

    def _describe_range(self) -> str:
        no_limit = self.max is None or self.max >= 2**31 - 1
        return f"x>={self.min}" if no_limit else super()._describe_range()


class WordType(click.ParamType[Any]):
    """A type by its name in the help, and the function that reads a word of the command line."""

    def __init__(self, name: str, read: Callable[[Any, click.Context | None], Any]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Read a value. Args: as in click."""
        del param
        return self._read(value, ctx)


class _Path(click.Path):
    """A path on this machine, or a URL, of which a function makes one."""

    def __init__(self, remote: Callable[[str, click.Context], Path]) -> None:
        super().__init__(path_type=Path)
        self._remote = remote

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path. Args: as in click."""
        if ctx is not None and _is_url(value, ctx):
            return self._remote(value, ctx)
        return super().convert(value, param, ctx)


def _is_url(value: object, ctx: click.Context) -> TypeGuard[str]:
    """Return whether a value of a command that is carried out may name a remote file."""
    is_planned = ctx.obj == PLANNED or ctx.resilient_parsing
    return isinstance(value, str) and "://" in value and not is_planned


def _is_shard(ctx: click.Context) -> bool:
    """Return whether --shard was given; an option that was not is no None while options are read."""
    return ctx.get_parameter_source("shard") is ParameterSource.COMMANDLINE


def _finite(value: object, _: click.Context | None) -> float:
    with suppress(ValueError):
        if math.isfinite(number := float(str(value))):
            return number
    raise click.BadParameter(f'"{value}" is no finite number')


def _bytes(value: object, _: click.Context | None) -> int:
    match = re.fullmatch(r"(\d{1,15})([KMG]?)B?", str(value), re.IGNORECASE)
    if match is None:
        raise click.BadParameter(f'"{value}" is no size; write bytes, or 500K, 20M, 1G')
    return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


def _transfers(ctx: click.Context) -> Transfers:
    """Return what is fetched and uploaded for a command."""
    from rankhouse.cli.transfers import Transfers

    transfers: Transfers = ctx.meta.setdefault(_TRANSFERS, Transfers())
    return transfers


def _source(value: object, ctx: click.Context | None) -> str:
    if ctx is not None and _is_url(value, ctx):
        return _transfers(ctx).local_text(value)
    return str(value)


def _refused(url: str, _: click.Context) -> Path:
    raise click.BadParameter(f"{url}: is written bit by bit, which only a local path can be")


def _uploaded(
    url: str, ctx: click.Context, *, reads: Sequence[str] = ("",), is_folder: bool | None = True
) -> Path:
    """Return where what is to be uploaded is written; ``is_folder`` None: it may be either.

    ``reads`` are options with which the command needs what a folder holds already; "" stands for always.
    """
    return _transfers(ctx).output(url, ctx, is_folder=is_folder, reads=tuple(reads))


def _added_to(url: str, ctx: click.Context) -> Path:
    # a shard is written elsewhere
    return _transfers(ctx).input(url) if _is_shard(ctx) else _uploaded(url, ctx)


def _output_file(value: Any, ctx: click.Context | None) -> Path:  # noqa: ANN401 - as in click
    """Lock a file for the command; refuse what cannot be written to, and what another process is writing."""
    if ctx is not None and _is_url(value, ctx):
        return _uploaded(value, ctx, reads=(), is_folder=False)
    path = Path(value)
    if ctx is not None and (ctx.obj == PLANNED or _is_shard(ctx)):
        return path  # with --shard it is a folder, which make_shard looks after
    check_file_target(path)
    if ctx is not None and not ctx.resilient_parsing and not is_stream(path):
        ctx.with_resource(only_writer(path))
    return path


PATH = _Path(lambda url, ctx: _transfers(ctx).input(url))
SOURCE, BYTES = WordType("text", _source), WordType("bytes", _bytes)
OUTPUT_FILE = WordType("path", _output_file)
_FINITE = WordType("float", _finite)
_TYPES: dict[Kind, click.ParamType[Any]] = {
    "input": PATH,
    "source": SOURCE,
    "bytes": BYTES,
    "index": _Path(_added_to),
    "local": _Path(_refused),
    "output": OUTPUT_FILE,
    # what is there is fetched only to add to it, or to see a shard that is done
    "folder": _Path(partial(_uploaded, reads=("append", "shard"))),
    "growing": _Path(_uploaded),
    "place": _Path(partial(_uploaded, is_folder=None)),
}

# --- commands -------------------------------------------------------------------------------------------

_NO_FILES = frozenset({"tag", "name", "names"})  # words of people's own, which may be the name of a file


class FileCommand(click.Command):
    """A command that reads or writes files: none may be both, and each may be remote."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Keep the words of the command line, for :func:`command_line`; WrongUse for a second file."""
        ctx.meta[_WORDS] = tuple(args)
        given = self.make_parser(ctx).parse_args(list(args))[2]
        for one in given:  # click takes the last value
            names_files = isinstance(one.type, _Path) or one.type in (SOURCE, OUTPUT_FILE)
            if names_files and isinstance(one, click.Option) and not one.multiple and given.count(one) > 1:
                times = f"{one.opts[-1]} is given {given.count(one)} times"
                raise WrongUse(f"{times}; {self.name} takes one: leave out the others")
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Carry the command out, remote files fetched and uploaded; WrongUse for an output that is read."""
        given = {one: ctx.params.get(one.name or "") for one in self.params}
        written = {one: path for one, path in given.items() if one.type is OUTPUT_FILE and path is not None}
        for output, path in written.items():
            others = (one for one in given if one not in written and path.is_file())
            if other := next((one for one in others if _reads(one, given[one], path)), None):
                named = other.opts[0] if isinstance(other, click.Option) else other.metavar or other.name
                raise WrongUse(
                    f"{output.opts[0]} {path}: is read by {named}; it would be lost: name another file"
                )
        if _TRANSFERS not in ctx.meta:
            return super().invoke(ctx)
        with _transfers(ctx).carried_out(ctx.params):
            return super().invoke(ctx)


def _reads(parameter: click.Parameter, value: object, path: Path) -> bool:
    """Return whether a parameter's value names a file, by itself or in quotes (a rule's)."""
    if parameter.name in _NO_FILES:
        return False
    several = value if isinstance(value, tuple) else (value,)
    words = [str(one) for one in several if isinstance(one, str | Path)]
    for name in (name for word in words for name in (word, *quoted(word))):
        with suppress(OSError, ValueError):  # a rule, a question: no name that a file could have
            if path.samefile(name):
                return True
    return False


def verb(name: str, example: str) -> Callable[[Callable[..., CommandResult | None]], FileCommand]:
    """Make a command of a function, whose arguments are its options; ``--json`` is added if it answers.

    An argument is an option (:class:`~rankhouse.core.arguments.Option`), or a record of such.
    """

    def declare(work: Callable[..., CommandResult | None]) -> FileCommand:
        hints, own = get_type_hints(work), {one.name: [one] for one in option_fields(work)}
        names = inspect.signature(work).parameters
        held = {name: own.get(name) or option_fields(hints[name]) for name in names}

        def carry_out(*, as_json: bool = False, **values: Any) -> None:  # noqa: ANN401 - a command's options
            for one in (one for some in held.values() for one in some if one.option.beside):
                if not was_given(one.option.beside):
                    idle(f"it is for --{one.option.beside.replace('_', '-')}, which is not given", one.name)
            given = {name: {one.name: _plain(one, values[one.name]) for one in held[name]} for name in held}
            answer = work(
                **{name: one[name] if name in own else hints[name](**one) for name, one in given.items()}
            )
            if answer is not None:
                console.show(answer, as_json=as_json)

        params = [_parameter(one) for fields in held.values() for one in fields]
        if hints["return"] is CommandResult:
            words = "Machine-readable result on standard output."
            params.append(click.Option(["--json", "as_json"], is_flag=True, help=words))
        said, epilog = inspect.getdoc(work), f"Example:  {example}"
        return FileCommand(name, callback=carry_out, params=params, help=said, epilog=epilog)

    return declare


def _plain(held: OptionField, value: Any) -> Any:  # noqa: ANN401 - an option's value
    """Return what is declared: texts for paths where its type says so, its default where none was given."""
    if value is None:
        return None if held.default is MISSING else held.default
    if get_origin(held.type) is tuple:
        return tuple(_plain(held._replace(type=get_args(held.type)[0]), one) for one in value)
    return value if Path in (held.type, *get_args(held.type)) or not isinstance(value, Path) else str(value)


def _parameter(held: OptionField) -> click.Parameter:
    """Make click's parameter of an option."""
    option, kinds = held.option, [kind for kind in _kinds(held.type) if kind is not NoneType]
    flag = option.flag or f"--{held.name.replace('_', '-')}"
    several, kind = get_origin(kinds[0]) is tuple, kinds[0]
    of = _click_type(held, get_args(kind)[0] if several else kind)
    is_required = held.default is MISSING
    if option.positional:
        given = {"type": of, "nargs": -1 if several else 1, "metavar": option.metavar}
        return _Argument(option.unless, [held.name], required=is_required or bool(option.unless), **given)
    words = f"{option.help}  [default: {option.default}]" if option.default else option.help
    more: dict[str, Any] = {"help": words, "required": is_required, "metavar": option.metavar}
    if not is_required:  # to click, None is a default that is there
        more["default"] = None if option.default else held.default
    made = NeutralOption if option.neutral else click.Option
    if kind is bool:
        both = len(_kinds(held.type)) > 1 or held.default is True  # not given is a third answer
        return made([held.name, f"{flag}/--no-{flag[2:]}" if both else flag], is_flag=True, **more)
    more |= {"multiple": several, "is_eager": option.eager}
    more["show_default"] = more.get("default") not in (None, "", ())
    return made([held.name, flag], type=of, **more)


class NeutralOption(click.Option):
    """An option that changes how fast, or what is shown, and never what is computed."""


class _Argument(click.Argument):
    """A positional argument, which may be missing beside some options."""

    def __init__(self, unless: Sequence[str], *args: Any, **rest: Any) -> None:  # noqa: ANN401 - click's
        super().__init__(*args, **rest)
        self._unless = unless

    def process_value(self, ctx: click.Context, value: Any) -> Any:  # noqa: ANN401 - click's
        try:
            return super().process_value(ctx, value)
        except click.MissingParameter:
            if any(ctx.params.get(name) for name in self._unless):  # options that were given are read first
                return ()
            raise


def _kinds(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - annotations have no common type
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _click_type(held: OptionField, kind: Any) -> click.ParamType[Any]:  # noqa: ANN401 - as above
    option = held.option
    if option.reader is not None:
        reader: click.ParamType[Any] = option.reader
        return reader
    if choices := get_args(kind) if get_origin(kind) is Literal else option.choices:
        return click.Choice(choices)
    if option.kind != "value":
        return _TYPES[option.kind]
    if kind is int:
        return _WholeNumber(option.least, option.most)
    return {float: _FINITE, Path: PATH}.get(kind, click.STRING)


# --- which options were given ---------------------------------------------------------------------------


def was_given(name: str) -> bool:
    """Return whether an option of the command at work stands on its command line."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def command_line() -> str:
    """Return the command at work as it was typed, but for --json."""
    context = click.get_current_context()
    words = [word for word in context.meta[_WORDS] if word != "--json"]
    return shlex.join(["rankhouse", str(context.command.name), *words])


def record_command(file: Path) -> None:
    """Write the command at work into a file of the folder that it made, for model cards."""
    with writing(file) as target:
        target.write(f"{command_line()}\n")


def idle(reason: str, *names: str) -> None:
    """Refuse options that were given and change nothing here: WrongUse."""
    if given := _given(names):
        raise WrongUse(f"{given} would change nothing here: {reason}")


def unused(reason: str, *names: str) -> None:
    """Say which options were given and are not needed; the result is the same without them."""
    if given := _given(names):
        console.note(f"{given} is not used: {reason}")


def _given(names: Sequence[str]) -> str:
    context = click.get_current_context()
    flags = {p.name: max(p.opts, key=len) for p in context.command.params if isinstance(p, click.Option)}
    return ", ".join(flags[name] for name in names if was_given(name))


# --- values that options take as text -------------------------------------------------------------------

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
