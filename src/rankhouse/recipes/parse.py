"""A recipe from its TOML: overrides laid over it, every key checked, every fault with its line."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar

import msgspec

from rankhouse.core.errors import WrongUse
from rankhouse.core.notation import choose
from rankhouse.io.files import as_text, numbered_lines
from rankhouse.recipes.lines import Key, RecipeLines


class DataEntry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Something from outside."""

    path: str  # a file or folder or its URL, ``ir_datasets:NAME`` or ``hub:OWNER/NAME``
    get: str = ""  # where to get it, for those who lack it
    otherwise: str = ""  # used where path is not there: ``ir_datasets:NAME`` or another path


class Step(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One call of a command."""

    command: str
    options: dict[str, Any] = {}  # long option name or argument name -> value
    out: str = ""  # name of the output, where the command does not make it plain


class Expect(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Numbers that a table should show."""

    rows: dict[str, dict[str, float]]  # row -> column -> number
    within: float = 0.0  # the difference that still counts as reproduced
    source: str = ""  # where the numbers are from
    when: dict[str, str | int | float] = {}  # loop variable -> value, for a table made once a value
    smallest: bool = False  # holds for the smallest size, and only there
    passes: int = 0  # holds for a mean over so many passes of the loop; 0 for any


class TableSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Systems and measures, or steps and the numbers they say."""

    name: str
    rows: dict[str, str]  # row -> reference to a run, or to a step or JSON file
    measures: str = ""  # in ir_measures' notation; rows are runs then
    qrels: str = ""  # reference to the judgements
    numbers: dict[str, str] = {}  # column -> place of the number in the JSON
    baseline: str = ""  # the row the others are tested against
    test: str = "t"  # of rankhouse.evaluation.significance
    correction: str = "none"
    equal: tuple[str, ...] = ()  # columns of numbers that every row should share; a warning says where not
    note: str = ""  # a sentence shown below
    expect: tuple[Expect, ...] = ()


class FigureSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A curve over a loop variable, or a field for each pair of values of two."""

    name: str
    kind: Literal["curve", "matrix"]
    rows: dict[str, str]  # line -> reference, as in a table; a matrix has one
    x: str  # the loop variable along the bottom
    y: str = ""  # the one along the side, of a matrix
    value: str = ""  # a measure of runs
    number: str = ""  # instead: place of a number in the JSON
    qrels: str = ""  # reference to the judgements, for a measure
    log: bool = False  # logarithmic x
    note: str = ""  # a sentence shown below


class Recipe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A whole experiment."""

    title: str
    about: str = ""  # what is done and why
    source: str = ""  # the paper and table it reproduces
    time: str = ""  # how long it takes, and on what
    partial: bool = False  # a collection of independent rows: those whose data are absent are always skipped
    data: dict[str, DataEntry] = {}
    loop: dict[str, tuple[Any, ...]] = {}  # variable -> its values: numbers, texts, or tables with a "name"
    steps: dict[str, Step] = {}
    table: tuple[TableSpec, ...] = ()
    figure: tuple[FigureSpec, ...] = ()


T = TypeVar("T")

_NAME = re.compile(r"[A-Za-z_][\w-]*")
_RANGE = re.compile(r"\s*(\d+)\s*\.\.\s*(\d+)\s*")
_MOST_VALUES = 10_000
_elsewhere = re.compile("ir_datasets:|hub:|[@/~]|.*://", re.DOTALL).match


class RecipeFile(NamedTuple):
    """A recipe and where its keys stand."""

    recipe: Recipe
    lines: RecipeLines
    folder: Path  # what relative paths of the data are relative to
    smallest: bool


def read_recipe(
    path: Path, changes: Sequence[str] = (), *, smallest: bool = False, only: Sequence[str] = ()
) -> RecipeFile:
    """Read a recipe, of its loops only some values; WrongUse with the line where it has a fault."""
    text = "\n".join(as_text(raw, path, line) for line, raw in numbered_lines(path)) + "\n"
    try:
        raw = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise WrongUse(f"{path}: not TOML: {error}") from error
    lines = RecipeLines(path, text)
    least = raw.pop("smallest", None)
    if smallest:
        if not isinstance(least, dict):
            raise WrongUse(f"{path}: has no table [smallest], which --smallest lays over the recipe")
        _lay_over(raw, least, lines)
    for change in changes:
        _change(raw, change, lines)
    recipe = _restricted(_checked(raw, lines), only)
    return RecipeFile(recipe, lines, path.parent.resolve(), smallest)


def _restricted(recipe: Recipe, only: Sequence[str]) -> Recipe:
    """Keep the named values of the loop variables that have them; WrongUse where none has one."""
    known = dict.fromkeys(label(value) for values in recipe.loop.values() for value in values)
    for name in only:
        choose(name, known or {"none, as the recipe has no [loop]": None}, "value of a loop")
    kept = {
        name: tuple(value for value in values if label(value) in only) or values
        for name, values in recipe.loop.items()
    }
    return msgspec.structs.replace(recipe, loop=kept)


def _lay_over(raw: dict[str, Any], changes: dict[str, Any], lines: RecipeLines, around: Key = ()) -> None:
    """Replace what the table [smallest] gives; tables merge, everything else is replaced."""
    for name, value in changes.items():
        place = (*around, name)
        if isinstance(value, dict) and isinstance(raw.get(name), dict):
            _lay_over(raw[name], value, lines, place)
        else:
            raw[name] = value
            lines.say(place, lines.where(("smallest", *place)))


def _change(raw: dict[str, Any], change: str, lines: RecipeLines) -> None:
    """Carry out one --set KEY=VALUE."""
    key, equals, value = change.partition("=")
    keys = tuple(part.strip() for part in key.split("."))
    if not equals or not all(keys):
        raise WrongUse(f"--set {change}: write KEY=VALUE, like  loop.seed=[1]  or  data.root=~/data")
    inside: Any = raw
    place: Key = ()
    for part in keys[:-1]:
        index: str | int = int(part) if isinstance(inside, list) and part.isdigit() else part
        inside = _opened(inside, index, change)
        place = (*place, index)
    last: str | int = int(keys[-1]) if isinstance(inside, list) and keys[-1].isdigit() else keys[-1]
    if isinstance(inside, list):
        _opened(inside, last, change)
    setting = _literal(value)
    if keys[0] == "data" and isinstance(setting, str) and not _elsewhere(setting):
        setting = str(Path.cwd() / setting)
    if keys[0] == "data" and isinstance(inside.get(last), dict) and isinstance(setting, str):
        inside[last]["path"] = setting  # and keep where to get it
    else:
        inside[last] = setting
    lines.say((*place, last), f"--set {change}", by_hand=True)


def _opened(inside: Any, name: str | int, change: str) -> Any:  # noqa: ANN401 - anything TOML holds
    try:
        inner = inside[name]
    except (KeyError, IndexError, TypeError):
        inner = None
    if not isinstance(inner, dict | list):
        there = list(inside) if isinstance(inside, dict) else range(len(inside))
        raise WrongUse(
            f'--set {change}: there is no table "{name}" there; there are: '
            f"{', '.join(map(str, there)) or 'none'}"
        )
    return inner


def _literal(text: str) -> object:
    """Read a value as TOML; what is none is a text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (tomllib.TOMLDecodeError, RecursionError):
        return text


def _checked(raw: dict[str, Any], lines: RecipeLines) -> Recipe:
    """Turn the tables into the structure."""
    for part in ("data", "loop", "steps"):
        if not isinstance(raw.setdefault(part, {}), dict):
            raise lines.fault((part,), f"{part} must be a table")
        for name in raw[part]:
            if not _NAME.fullmatch(name):
                raise lines.fault(
                    (part, name), f'"{name}" is no name here; letters, digits, _ and -, a letter first'
                )
    content = dict(raw)
    # One by one: the library does not say which entry of a mapping is at fault.
    paths = {n: {"path": v} if isinstance(v, str) else v for n, v in raw["data"].items()}
    content["data"] = {
        n: msgspec.to_builtins(_converted(v, DataEntry, ("data", n), lines)) for n, v in paths.items()
    }
    content["loop"] = {n: _values(n, v, lines) for n, v in raw["loop"].items()}
    content["steps"] = {n: _step(n, v, lines) for n, v in raw["steps"].items()}
    for name in content["data"].keys() & content["steps"].keys():
        raise lines.fault(
            ("steps", name), f'"{name}" is a data entry and a step; @{name} must mean one; rename one'
        )
    recipe = _converted(content, Recipe, (), lines)
    if not recipe.steps:
        raise lines.fault((), 'a recipe has steps: [steps.NAME] with command = "search" or another command')
    for number, table in enumerate(recipe.table):
        _check_table(table, ("table", number), lines)
    for number, figure in enumerate(recipe.figure):
        _check_figure(figure, recipe, ("figure", number), lines)
    return recipe


def _values(name: str, value: object, lines: RecipeLines) -> list[object]:
    """Read the values of a loop variable."""
    place = ("loop", name)
    if isinstance(value, str) and (span := _RANGE.fullmatch(value)):
        first, last = int(span[1]), int(span[2])
        if not 0 <= last - first < _MOST_VALUES:
            raise lines.fault(place, f'"{value}": a range goes up, like "1..5"')
        return list(range(first, last + 1))
    if not isinstance(value, list) or not value:
        raise lines.fault(place, f'{name} must be a list of values or a range "1..5", not {value!r}')
    for one in value:
        if isinstance(one, dict) and not isinstance(one.get("name"), str):
            raise lines.fault(place, f'a table among the values of {name} needs a "name"')
        if not isinstance(one, str | int | float | dict) or isinstance(one, bool):
            raise lines.fault(place, f"a value is a number, a text or a table, not {one!r}")
    labels = [label(one) for one in value]
    if len(set(labels)) < len(labels):
        raise lines.fault(place, f"the values of {name} must differ: {', '.join(labels)}")
    return value


def label(value: object) -> str:
    """Return the short name of a loop variable's value."""
    return str(value["name"]) if isinstance(value, Mapping) else str(value)


def _step(name: str, raw: object, lines: RecipeLines) -> dict[str, object]:
    place = ("steps", name)
    if not isinstance(raw, dict):
        raise lines.fault(place, f"[steps.{name}] must be a table")
    options = dict(raw)
    command = options.pop("command", options.pop("station", None))  # "station" until version 0.1
    if not isinstance(command, str):
        raise lines.fault(place, f'step "{name}" names no command; write  command = "search"  or another')
    out = options.pop("out", "")
    if not isinstance(out, str) or out != Path(out).name.strip("."):
        raise lines.fault((*place, "out"), f'out = {out!r}: give a file name without folders, like "a.run"')
    return {"command": command, "options": options, "out": out}


_AT = re.compile(r" - at `\$(?P<path>.*)`$")
_PLACE = re.compile(r"\.([^.\[\]]+)|\[(\d+|\.\.\.)\]")


def _converted(raw: object, kind: type[T], place: Key, lines: RecipeLines) -> T:
    """Turn plain data into a structure; a fault says its line and what is accepted there."""
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        message, keys = str(error), place
        if spot := _AT.search(message):
            steps = _PLACE.findall(spot["path"])
            keys += tuple(int(number) if number.isdigit() else name or number for name, number in steps)
            message = message[: spot.start()]
        raise _explained(message, keys, lines) from error


def _explained(message: str, keys: Key, lines: RecipeLines) -> WrongUse:
    if unknown := re.search(r"unknown field `(.+)`", message):
        message = f'"{unknown[1]}" is no key here; accepted: {", ".join(_fields(keys))}'
        keys = (*keys, unknown[1])
    if absent := re.search(r"missing required field `(.+)`", message):
        where = "at the top of the recipe" if not keys else "here"
        message = f'"{absent[1]}" is missing {where}; accepted: {", ".join(_fields(keys))}'
    return lines.fault(keys, message)


def _fields(keys: Key) -> tuple[str, ...]:
    match keys:
        case ("table", int()):
            return TableSpec.__struct_fields__
        case ("figure", int()):
            return FigureSpec.__struct_fields__
        case ("table", int(), "expect", int()):
            return Expect.__struct_fields__
        case ("data", _):
            return DataEntry.__struct_fields__
        case ("steps", _):
            return Step.__struct_fields__
        case _:
            return (*Recipe.__struct_fields__, "smallest")


def _check_table(table: TableSpec, place: Key, lines: RecipeLines) -> None:
    """Check what a table says against itself."""
    if bool(table.measures) == bool(table.numbers):
        raise lines.fault(
            place, f'table "{table.name}" needs either measures (of runs) or numbers (of steps)'
        )
    if table.measures and not table.qrels:
        raise lines.fault(place, f'table "{table.name}" has measures, so it needs qrels')
    if not table.rows:
        raise lines.fault(place, f'table "{table.name}" has no rows; write  rows = {{ BM25 = "@bm25" }}')
    if table.baseline and table.baseline not in table.rows:
        raise lines.fault(
            (*place, "baseline"), f'the baseline "{table.baseline}" is no row: {", ".join(table.rows)}'
        )
    _check_tests(table, place, lines)
    columns = measure_names(table.measures, (*place, "measures"), lines) if table.measures else table.numbers
    for number, expect in enumerate(table.expect):
        at = (*place, "expect", number)
        for row, cells in expect.rows.items():
            if row not in table.rows:
                raise lines.fault((*at, "rows", row), f'"{row}" is no row: {", ".join(table.rows)}')
            for column in cells:
                name = column
                if table.measures:
                    name = measure_names(column, (*at, "rows", row, column), lines)[0]
                if name not in columns:
                    raise lines.fault((*at, "rows", row), f'"{column}" is no column: {", ".join(columns)}')


def _check_tests(table: TableSpec, place: Key, lines: RecipeLines) -> None:
    """Check that the test, the correction and the columns that should be equal are known."""
    from rankhouse.evaluation.significance import CORRECTIONS, TESTS

    for column in table.equal:
        if column not in table.numbers:
            columns = ", ".join(table.numbers) or "none, as the rows are runs"
            raise lines.fault((*place, "equal"), f'"{column}" is no column of numbers; there are: {columns}')
    for key, name, known in (("test", table.test, TESTS), ("correction", table.correction, CORRECTIONS)):
        with lines.naming((*place, key)):
            choose(name, known, key)


def _check_figure(figure: FigureSpec, recipe: Recipe, place: Key, lines: RecipeLines) -> None:
    if bool(figure.value) == bool(figure.number):
        raise lines.fault(place, f'figure "{figure.name}" needs either value (a measure) or number (a place)')
    if figure.value and not figure.qrels:
        raise lines.fault(place, f'figure "{figure.name}" has a measure, so it needs qrels')
    if figure.value and len(measure_names(figure.value, (*place, "value"), lines)) != 1:
        raise lines.fault((*place, "value"), "a figure shows one measure")
    if (figure.kind == "matrix") != bool(figure.y):
        raise lines.fault(place, "y names the second variable of a matrix; a curve has none")
    if not figure.rows or (figure.kind == "matrix" and len(figure.rows) != 1):
        raise lines.fault((*place, "rows"), "a curve has one or more rows, a matrix just one")
    for axis in filter(None, (figure.x, figure.y)):
        if axis not in recipe.loop:
            raise lines.fault(
                place, f'"{axis}" is no loop variable; there are: {", ".join(recipe.loop) or "none"}'
            )


def measure_names(text: str, place: Key, lines: RecipeLines) -> tuple[str, ...]:
    """Return the measures' names as ir_measures writes them."""
    from rankhouse.evaluation.measure_notation import parse

    with lines.naming(place):
        return tuple(map(str, parse(text)))
