"""How a command is declared: its options and their types, ``--json``, and which options were given."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from contextlib import suppress
from functools import wraps
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, Literal, TypeGuard, TypeVar, Union, get_args, get_origin

import click
from click.core import ParameterSource

from rankhouse.cli import TRANSFERS, console
from rankhouse.core.arguments import OptionField, option_fields
from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import quoted
from rankhouse.io.locks import only_writer
from rankhouse.io.outputs import check_file_target, is_stream

F = TypeVar("F", bound=Callable[..., Any])

_MOST = 2**31 - 1


class _Whole(click.IntRange):
    """A whole number; a largest that only says what an integer of C holds is not shown."""

    name = "integer"

    def _describe_range(self) -> str:
        return super()._describe_range() if self.max is None or self.max < _MOST else f"x>={self.min}"


COUNT, FROM_ZERO, SEED = _Whole(1, _MOST), _Whole(0, _MOST), _Whole(0, 2**32 - 1)


class _Finite(click.ParamType[float]):
    """A number that is neither infinite nor nan."""

    name = "float"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:  # noqa: ANN401 - as in click
        """Read the number. Args: as in click."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            self.fail(f'"{value}" is no finite number', param, ctx)
        return number


FINITE = _Finite()


class _Bytes(click.ParamType[int]):
    """A size in bytes; K, M and G are powers of 1,024."""

    name = "bytes"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:  # noqa: ANN401 - as in click
        """Read the size. Args: as in click."""
        match = re.fullmatch(r"(\d{1,15})([KMG]?)B?", str(value), re.IGNORECASE)
        if match is None:
            self.fail(f'"{value}" is no size; write bytes, or 500K, 20M, 1G', param, ctx)
        return int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2].upper()]


BYTES = _Bytes()


PLANNED = "planned"
"""The object of a context that only reads a command line: nothing is written yet, so nothing is looked at."""


def _is_url(value: object, ctx: click.Context | None) -> TypeGuard[str]:
    """Return whether a value of a command that is carried out may name a remote file."""
    if not isinstance(value, str) or "://" not in value or ctx is None:
        return False
    return ctx.obj != PLANNED and not ctx.resilient_parsing


def _is_shard(ctx: click.Context) -> bool:
    """Return whether --shard was given; an option that was not is no None while options are read."""
    return ctx.get_parameter_source("shard") is ParameterSource.COMMANDLINE


class _InputPath(click.Path):
    """A file or folder that is read: a path, or a URL, of which the command gets a local copy's path."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the path. Args: as in click."""
        if ctx is not None and _is_url(value, ctx):
            from rankhouse.cli import transfers

            return transfers.of(ctx).input(value)
        return super().convert(value, param, ctx)


class _LocalPath(click.Path):
    """A path on this machine."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Refuse a URL. Args: as in click."""
        if _is_url(value, ctx):
            self.fail(f"{value}: is written bit by bit, which only a local path can be", param, ctx)
        return super().convert(value, param, ctx)


class _OutputPath(click.Path):
    """A folder that is written, or a file: a path, or a URL, to which the finished work is uploaded.

    Args:
        reads: Options with which the command needs what a folder holds already; "" stands for always.
        is_folder: None where it may be either.
    """

    def __init__(self, *reads: str, is_folder: bool | None = True) -> None:
        super().__init__(path_type=Path)
        self._reads, self._is_folder = reads, is_folder

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - as in click
        """Return the local path. Args: as in click."""
        if ctx is not None and _is_url(value, ctx):
            from rankhouse.cli import transfers

            if self is ADDED_TO and _is_shard(ctx):  # a shard is written elsewhere
                return transfers.of(ctx).input(value)
            return transfers.of(ctx).output(value, ctx, is_folder=self._is_folder, reads=self._reads)
        return super().convert(value, param, ctx)


class _Source(click.ParamType[str]):
    """A text that names files: a corpus, queries, a ranker, a rule; URLs in it become local paths."""

    name = "text"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:  # noqa: ANN401 - as in click
        """Return the text. Args: as in click."""
        del param
        if ctx is not None and _is_url(value, ctx):
            from rankhouse.cli import transfers

            return transfers.local_text(value, ctx)
        return str(value)


PATH, LOCAL, SOURCE = _InputPath(path_type=Path), _LocalPath(path_type=Path), _Source()
NEW_FOLDER = _OutputPath("append", "shard")
"""A folder that is made; what is there is fetched only to add to it, or to see a shard that is done."""
GROWING_FOLDER = _OutputPath("")
"""A folder that a command adds to, or goes on in."""
ADDED_TO = _OutputPath("")
"""A folder that a command adds to, but with --shard only reads."""
OUTPUT = _OutputPath("", is_folder=None)
"""A file, or a folder that is made or added to."""


class _OutputFile(click.ParamType[Path]):
    """A file to write: looked at before any work is done, and locked until the command ends."""

    name = "path"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Path:  # noqa: ANN401 - as in click
        """Refuse what no file can be written to, and whatever another process is writing.

        Args: as in click.
        """
        del param
        if ctx is not None and _is_url(value, ctx):
            from rankhouse.cli import transfers

            return transfers.of(ctx).output(value, ctx, is_folder=False)
        path = Path(value)
        if ctx is not None and (ctx.obj == PLANNED or _is_shard(ctx)):
            return path  # with --shard it is a folder, which make_shard looks after
        check_file_target(path)
        if ctx is not None and not ctx.resilient_parsing and not is_stream(path):
            ctx.with_resource(only_writer(path))
        return path


OUTPUT_FILE = _OutputFile()

_NO_FILES = frozenset({"tag", "name", "names"})  # words of people's own, which may be the name of a file


class FileCommand(click.Command):
    """A command that reads or writes files: none may be both, and each may be remote."""

    def invoke(self, ctx: click.Context) -> Any:  # noqa: ANN401 - as in click
        """Refuse to write over an input, then carry the command out, remote files fetched and uploaded.

        Raises:
            WrongUse: An output is a file that another option names.
        """
        written = [
            p for p in self.params if p.type is OUTPUT_FILE and ctx.params.get(p.name or "") is not None
        ]
        for output in written:
            path: Path = ctx.params[output.name or ""]
            for other in self.params:
                if (
                    path.is_file()
                    and other not in written
                    and _reads(other, ctx.params.get(other.name or ""), path)
                ):
                    named = (
                        other.opts[0] if isinstance(other, click.Option) else str(other.metavar or other.name)
                    )
                    raise WrongUse(
                        f"{output.opts[0]} {path}: is read by {named}; it would be lost: name another file"
                    )
        if TRANSFERS not in ctx.meta:
            return super().invoke(ctx)
        from rankhouse.cli import transfers

        with transfers.of(ctx).carried_out(ctx.params):
            return super().invoke(ctx)


def _reads(parameter: click.Parameter, value: object, path: Path) -> bool:
    """Return whether a parameter's value names a file, by itself or in quotes (a rule's)."""
    if parameter.name in _NO_FILES:
        return False
    words = [
        str(one) for one in (value if isinstance(value, tuple) else (value,)) if isinstance(one, str | Path)
    ]
    return any(_is_same(name, path) for word in words for name in (word, *quoted(word)))


def _is_same(name: str, path: Path) -> bool:
    with suppress(OSError, ValueError):  # a rule, a question: no name that a file could have
        return path.samefile(name)
    return False


def verb(name: str, example: str) -> Callable[[Callable[..., console.CommandResult]], click.Command]:
    """Make a command of a function that takes its options and returns its answer; ``--json`` is added."""

    def declare(work: Callable[..., console.CommandResult]) -> click.Command:
        @wraps(work)
        def carry_out(*, as_json: bool, **options: Any) -> None:  # noqa: ANN401 - a command's options
            console.show(work(**options), as_json=as_json)

        made = click.command(name, cls=FileCommand, epilog=f"Example:  {example}")(carry_out)
        words = "Machine-readable result on standard output."
        made.params.append(click.Option(["--json", "as_json"], is_flag=True, help=words))
        return made

    return declare


def was_given(name: str) -> bool:
    """Return whether an option of the command at work stands on its command line."""
    context = click.get_current_context(silent=True)
    return context is not None and context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def idle(reason: str, *names: str) -> None:
    """Refuse options that were given and change nothing here.

    Raises:
        WrongUse: One was given.
    """
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


skip_bad = click.option("--skip-bad", type=FROM_ZERO, default=0, show_default=True, metavar="N",
                        help="Pass over up to N malformed records and report them.")  # fmt: skip
relevant_from = click.option("--relevant-from", type=COUNT, default=1, show_default=True, metavar="GRADE",
                             help="The lowest grade that means relevant.")  # fmt: skip


def options_of(record: type) -> Callable[[F], F]:
    """Give a command the options of a record; it is called with one, behind those of further records."""
    held = option_fields(record)

    def decorate(command: F) -> F:
        @wraps(command)
        def call(*records: object, **values: Any) -> Any:  # noqa: ANN401 - a command's options
            given = {one.name: _plain(one, values.pop(one.name)) for one in held}
            return command(*records, record(**given), **values)

        made: Any = call
        for one in reversed(held):
            made = _option(one)(made)
        return made  # type: ignore[no-any-return]

    return decorate


def _plain(held: OptionField, value: Any) -> Any:  # noqa: ANN401 - an option's value
    """Return what the record holds: texts for paths where it says so, its default where none was given."""
    if value is None:
        return None if held.is_required else held.default
    if isinstance(value, tuple):
        return tuple(_plain(held._replace(type=get_args(held.type)[0]), one) for one in value)
    return value if Path in (held.type, *get_args(held.type)) or not isinstance(value, Path) else str(value)


def _option(held: OptionField) -> Callable[[F], F]:
    """Make the click option of a field."""
    option, kinds = held.option, [kind for kind in _kinds(held.type) if kind is not NoneType]
    flag = option.flag or f"--{held.name.replace('_', '-')}"
    several, kind = get_origin(kinds[0]) is tuple, kinds[0]
    of = _click_type(held, get_args(kind)[0] if several else kind)
    if option.kind == "inputs":
        return click.argument(held.name, nargs=-1, type=of, required=True)
    default = None if held.is_required or option.default else held.default
    words = f"{option.help}  [default: {option.default}]" if option.default else option.help
    more: dict[str, Any] = {"help": words, "required": held.is_required, "metavar": option.metavar}
    if kind is bool:
        both = len(_kinds(held.type)) > 1  # not given is a third answer
        return click.option(
            held.name, f"{flag}/--no-{flag[2:]}" if both else flag, is_flag=True, default=default, **more
        )
    return click.option(
        held.name, flag, type=of, multiple=several, default=default, show_default=bool(default), **more
    )


def _kinds(kind: Any) -> tuple[Any, ...]:  # noqa: ANN401 - annotations have no common type
    return get_args(kind) if get_origin(kind) in (Union, UnionType) else (kind,)


def _click_type(held: OptionField, kind: Any) -> click.ParamType[Any]:  # noqa: ANN401 - as above
    if choices := get_args(kind) if get_origin(kind) is Literal else held.option.choices:
        return click.Choice(choices)
    if kind is int:
        return _Whole(held.option.least, held.option.most)
    if kind is float:
        return FINITE
    return _TYPES.get(held.option.kind, click.STRING)


_TYPES = {"input": PATH, "inputs": SOURCE, "index": ADDED_TO, "source": SOURCE, "local": LOCAL}
