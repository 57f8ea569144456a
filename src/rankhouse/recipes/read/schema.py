"""A recipe as a frozen structure: what its TOML says, defaults filled in, nothing carried out yet."""

from __future__ import annotations

from typing import Any, Literal

import msgspec


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
